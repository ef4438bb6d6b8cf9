"""Interprets the short trials before a race: which settings are so far behind that no full trial is spent on them, how
long full trials must measure, and whether short trials are worth their time.

In: the contest of the short trials, results. Out: settings, a measured time, a yes or no. Short trials have a noise of
their own, and a server's rate in its first second may differ from its later rate. So they are compared only with each
other, with a share of the error of their own (`analyze/stats/spending.py`), and decide only on settings far apart. No
I/O here. Method and figures: docs/methods/racing.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np

from powerband.analyze.settings.contest import FAR, Contest, ResponseTable, compared
from powerband.analyze.settings.unsettled import RISES_MOST, is_unsettled
from powerband.analyze.trial.faults import fatal_codes, was_too_short
from powerband.model.experiment import Experiment
from powerband.model.plan import Setting, Stage, numbers_of
from powerband.model.results import TrialResult

NOISE_OF_MARGIN = 0.25
"""The noise allowed within a trial of the race, as a share of the margin, or of the bound asked for if that is larger:
with it, four blocks show differences of that size, if starts differ by no more than that."""
SHORTEST_NS = 2_000_000_000  # the shortest window in which steadiness can be judged
STEP_NS = 500_000_000
SHORTENED = 0.7  # of the full time; a trial that spares less keeps its full length
FIRST = 2  # valid short trials, of two settings
HOPELESS = 12
"""A setting whose first short trial gave less than the best divided by this gets no second: its trials often take
longest, and noise cannot explain so much. Between two powers of two, since levels often double: noise would decide."""
UPHILL = 3
"""A setting from which the rate climbs gets no second short trial either if it gave less than the best divided by this:
its neighbours say what that trial would. The rate climbs if each of the next two numeric levels gave at least `STEP`
times what the level before gave."""
STEP = 1.1
COMPARED = 4  # settings that get a second short trial at least: of fewer the noise is hardly known
OUTLASTED = frozenset({"no_request_ended", "short_window"})  # problems of a window shorter than a response
WORTH = 2 / 3
"""A short trial that takes more than this share of a full one's time spares too little: if a server takes long to start
or to warm up, the race begins at once."""


def far_behind(
    experiment: Experiment, contest: Contest, live: Sequence[Setting], results: Sequence[TrialResult]
) -> Iterator[Setting]:
    """Settings that are certainly worse than the leader by more than `FAR`, by the contest of the short trials. A
    setting that had not settled in any of its trials, short or full, stays if it may still catch up; so does one to
    which each of them added processes, and one that came nearer in a full trial."""
    if contest.leader in contest.endless:
        return
    far = max(contest.allowed, -contest.scale.allowed(-FAR, contest.leader_mean))
    # The difference of one trial and a mean of two has 3/2 times the variance of the difference of two such means.
    of_one = math.sqrt(3 / 2) * max((half for half in contest.half.values() if not math.isnan(half)), default=math.nan)
    for setting in live:
        half = of_one if contest.shared.get(setting) == 1 else contest.half.get(setting, math.nan)
        end = contest.difference.get(setting, math.nan) + half
        if setting == contest.leader or not end < -far:
            continue
        mine = [r for r in results if r.setting == setting and r.stage in (Stage.SCREEN, Stage.COMPARE) and r.valid]
        rises = all(r.rising or is_unsettled(r) for r in mine)
        if mine and all(map(_still_forks, mine)):
            continue
        if rises and (not contest.scale.log or math.exp(end) * RISES_MOST > 1):
            continue
        if _came_nearer(experiment, contest, setting, results, far):
            continue
        yield setting


def _came_nearer(
    experiment: Experiment, contest: Contest, setting: Setting, results: Sequence[TrialResult], far: float
) -> bool:
    """True if a full trial of the setting was not so far behind the leader's of its block."""
    assert contest.leader is not None
    cells, metric = compared(experiment, results), experiment.objective.metric
    for (of, block), result in cells.items():
        best = cells.get((contest.leader, block))
        if of == setting and best is not None and {metric} <= result.metrics.keys() & best.metrics.keys():
            mine, leaders = contest.scale.scaled([result.metrics[metric], best.metrics[metric]])
            if contest.sign * (mine - leaders) > -far:
                return True
    return False


def _still_forks(trial: TrialResult) -> bool:
    """True if the server's pool of processes still grew: how large it gets, a short trial does not show."""
    return trial.metrics.get("processes_added", 0.0) > 0


def looks_far(contest: Contest, live: Sequence[Setting]) -> frozenset[Setting]:
    """Settings whose estimate is worse than the leader by more than `FAR`, certain or not: one more short trial may
    show it."""
    far = -contest.scale.allowed(-FAR, contest.leader_mean)
    return frozenset(setting for setting in live if contest.difference.get(setting, math.nan) < -far)


def hopeless(experiment: Experiment, live: Sequence[Setting], results: Sequence[TrialResult]) -> frozenset[Setting]:
    """Settings whose first short trial gave so little that they get no second (`HOPELESS`, `UPHILL`); they leave with
    the others that are far behind. The worst of them, if `COMPARED` settings would not be left."""
    metric = experiment.objective.metric
    first = {r.setting: r for r in results if r.valid and r.stage is Stage.SCREEN and metric in r.metrics}
    if experiment.objective.direction != "maximise":
        return frozenset()
    rates = {setting: result.metrics[metric] for setting, result in first.items()}
    best = max(rates.values(), default=0.0)
    uphill = {s for s in rates if any(_climbs(experiment, rates, s, name) for name in experiment.factors)}
    found = [s for s in live if s in rates and 0 < rates[s] * (UPHILL if s in uphill else HOPELESS) < best]
    growing = {s for s in found if first[s].rising or _still_forks(first[s])}
    found = sorted((s for s in found if s not in growing), key=rates.__getitem__)
    return frozenset(found[: max(0, len(live) - COMPARED)])


def _climbs(experiment: Experiment, rates: Mapping[Setting, float], setting: Setting, factor: str) -> bool:
    """True if the rate climbs from this setting over the next two levels of the factor, up or down; never if its levels
    are no numbers, or one of the three has no rate."""
    numbers = numbers_of(experiment.factors[factor])
    if numbers is None:
        return False
    ordered = [level for _, level in sorted(zip(numbers, experiment.factors[factor], strict=True))]
    at = ordered.index(setting.as_dict()[factor])
    for way in (ordered[at : at + 3], ordered[max(0, at - 2) : at + 1][::-1]):
        line = [Setting(tuple((n, level if n == factor else own) for n, own in setting.levels)) for level in way]
        found = [rates[each] for each in line if each in rates]
        if len(found) == 3 and all(after >= STEP * before for before, after in pairwise(found)):
            return True
    return False


def long_enough(experiment: Experiment, table: ResponseTable, live: Sequence[Setting], around_s: float) -> int | None:
    """The measured time in ns of the race's trials; None: that of the experiment. It is as short as the noise of the
    short trials allows, if all of that is noise within a trial, which falls with the root of its length; but no longer
    than a trial takes besides (`around_s`, in s). Part of the noise lies between starts and is no smaller in longer
    trials, so that more trials show more. The size of that part is not known: with a window of `around_s`, time times
    variance is at most twice the least possible, whatever the part (docs/methods/racing.md). Only if all constraints
    are on the error rate, since percentiles need many requests."""
    return window_for(experiment, _noise(table, live), around_s)


def window_for(experiment: Experiment, sd: float, around_s: float) -> int | None:
    """Like `long_enough`, for short trials with this noise (standard deviation of logs); None for NaN, and
    with a margin of 0."""
    screened_ns, full_ns = experiment.screened_ns, experiment.load.duration_ns
    only_rates = all(constraint.metric == "error_rate" for constraint in experiment.objective.constraints)
    to_show = max(experiment.objective.margin, experiment.design.regret or 0.0)
    if screened_ns is None or not only_rates or math.isnan(sd) or not to_show:
        return None
    enough_ns = screened_ns * (sd / (NOISE_OF_MARGIN * math.log1p(to_show))) ** 2
    wanted_ns = min(enough_ns, around_s * 1e9)
    window_ns = max(SHORTEST_NS, 2 * screened_ns, math.ceil(wanted_ns / STEP_NS) * STEP_NS)
    return window_ns if window_ns <= SHORTENED * full_ns else None


def _noise(table: ResponseTable, live: Sequence[Setting]) -> float:
    """Standard deviation of the logs of short trials, without the effects of blocks and settings; of the settings that
    are left, or of all if these are fewer than three. NaN if it cannot be estimated."""
    values = table.values
    columns = [table.settings.index(setting) for setting in live] if len(live) >= 3 else range(len(table.settings))
    chosen = values[:, list(columns)]
    chosen = chosen[:, (chosen > 0).all(axis=0)]  # NaN is not above 0
    blocks, settings = chosen.shape
    if blocks < 2 or settings < 2:
        return math.nan
    logs = np.log(chosen)
    rest = logs - logs.mean(axis=0) - logs.mean(axis=1, keepdims=True) + logs.mean()
    return math.sqrt(float((rest**2).sum()) / ((blocks - 1) * (settings - 1)))


def outlast_short_trials(live: Sequence[Setting], results: Sequence[TrialResult]) -> bool:
    """True if a setting's answers took longer than its short trials: they may outlast shortened full trials, too."""
    late = {result.setting for result in results if was_too_short(result) and fatal_codes(result) & OUTLASTED}
    return not late.isdisjoint(live)


def too_dear(experiment: Experiment, results: Sequence[TrialResult]) -> bool:
    """True if the first short trials took so long that full ones would take hardly longer, or all ended before any
    answer. The quickest counts, since a single setting may be slow to stop."""
    if len(results) >= FIRST and all(map(was_too_short, results)):
        return True
    took_s = [result.took_s for result in results if result.valid and result.took_s is not None]
    if experiment.screened_ns is None or len(took_s) < FIRST:
        return False
    full_s = min(took_s) + (experiment.load.duration_ns - experiment.screened_ns) / 1e9
    return min(took_s) > WORTH * full_s
