"""Short trials before a race: which settings are so far behind that no full trial is spent on them, how long those of
the others have to be, and whether short trials are worth their time.

In: the contest of the short trials, results. Out: settings, a measured time, a yes or no. Short trials have noise of
their own, and what a server gives in its first second need not be what it gives later: so they are compared with each
other only, with a share of the error of their own (`analyze/stats/spending.py`), and they decide only what is far
apart. No I/O here. Method and figures: docs/methods/racing.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from powerband.analyze.settings.contest import Contest, ResponseTable
from powerband.analyze.settings.unsettled import RISES_MOST, is_unsettled
from powerband.model.experiment import Experiment
from powerband.model.plan import Setting, Stage
from powerband.model.results import TrialResult

FAR = 0.25
"""A setting leaves where its whole interval lies further below the leader than this share: rates of first seconds and
of later ones differed by a few percent on servers whose warm-up had ended (docs/methods/racing.md)."""
NOISE_OF_MARGIN = 0.25
"""The noise within a trial of the race, as a share of the margin: four blocks then show differences of the margin, if
starts differ by no more."""
SHORTEST_NS = 2_000_000_000  # a window of which it can be said whether it was steady
STEP_NS = 500_000_000
SHORTENED = 0.7  # of the full time; what spares less is not worth a length of its own
FIRST = 2  # valid short trials, of two settings
HOPELESS = 16
"""A setting whose first short trial gave less than the best divided by this gets no second: often it is the slowest to
end, and no noise that the others' trials show makes up for so much."""
WORTH = 2 / 3
"""A short trial that takes more than this share of a full one's time spares too little: where a server takes long to
start or to warm up, the race begins at once."""


def far_behind(contest: Contest, live: Sequence[Setting], results: Sequence[TrialResult]) -> Iterator[Setting]:
    """Settings that certainly give less than the leader by more than `FAR`. One that had not settled in any of its
    short trials stays in while it may catch up."""
    far = max(contest.allowed, -contest.scale.allowed(-FAR, contest.leader_mean))
    # Of one trial less another's mean of two the variance is 3/2 times that of two such means.
    of_one = math.sqrt(3 / 2) * max((half for half in contest.half.values() if not math.isnan(half)), default=math.nan)
    for setting in live:
        half = of_one if contest.shared.get(setting) == 1 else contest.half.get(setting, math.nan)
        end = contest.difference.get(setting, math.nan) + half
        if setting == contest.leader or not end < -far:
            continue
        mine = [r for r in results if r.setting == setting and r.stage is Stage.SCREEN and r.valid]
        rises = all(r.rising or is_unsettled(r) for r in mine)
        if rises and (not contest.scale.log or math.exp(end) * RISES_MOST > 1):
            continue
        yield setting


def looks_far(contest: Contest, live: Sequence[Setting]) -> frozenset[Setting]:
    """Settings that came out so far behind, though not for certain: one more short trial may show it."""
    far = -contest.scale.allowed(-FAR, contest.leader_mean)
    return frozenset(setting for setting in live if contest.difference.get(setting, math.nan) < -far)


def hopeless(experiment: Experiment, live: Sequence[Setting], results: Sequence[TrialResult]) -> frozenset[Setting]:
    """Settings whose first short trial gave so little that a second is spared; they leave with the others. None where
    the noise could then be told from fewer than three settings."""
    metric = experiment.objective.metric
    first = {r.setting: r for r in results if r.valid and r.stage is Stage.SCREEN and metric in r.metrics}
    best = max((result.metrics[metric] for result in first.values()), default=0.0)
    if experiment.objective.direction != "maximise":
        return frozenset()
    found = {s for s, r in first.items() if 0 < HOPELESS * r.metrics[metric] < best and not r.rising}
    return frozenset(found & set(live)) if len(set(live) - found) >= 3 else frozenset()


def long_enough(experiment: Experiment, table: ResponseTable, live: Sequence[Setting]) -> int | None:
    """The measured time of the race's trials, as short as the noise of the short ones allows; None: that of the
    experiment. All of their noise is taken for noise within a trial, which falls with the root of its length: what
    there is of it between starts is not less in longer trials. Only of rates: percentiles need many requests."""
    return window_for(experiment, _noise(table, live))


def window_for(experiment: Experiment, sd: float) -> int | None:
    """As `long_enough`, for a noise of short trials that is known; none for NaN."""
    screened_ns, full_ns = experiment.screened_ns, experiment.load.duration_ns
    only_rates = all(constraint.metric == "error_rate" for constraint in experiment.objective.constraints)
    if screened_ns is None or not only_rates or math.isnan(sd):
        return None
    enough_ns = screened_ns * (sd / (NOISE_OF_MARGIN * math.log1p(experiment.objective.margin))) ** 2
    window_ns = max(SHORTEST_NS, 2 * screened_ns, math.ceil(enough_ns / STEP_NS) * STEP_NS)
    return window_ns if window_ns <= SHORTENED * full_ns else None


def _noise(table: ResponseTable, live: Sequence[Setting]) -> float:
    """Standard deviation of the logs of short trials, blocks and settings taken out; of the settings that are left, or
    of all where these are fewer than three. NaN where it cannot be had."""
    values = table.values()
    columns = [table.settings.index(setting) for setting in live] if len(live) >= 3 else range(len(table.settings))
    chosen = values[:, list(columns)]
    chosen = chosen[:, (chosen > 0).all(axis=0)]  # NaN is not above 0
    blocks, settings = chosen.shape
    if blocks < 2 or settings < 2:
        return math.nan
    logs = np.log(chosen)
    rest = logs - logs.mean(axis=0) - logs.mean(axis=1, keepdims=True) + logs.mean()
    return math.sqrt(float((rest**2).sum()) / ((blocks - 1) * (settings - 1)))


def too_dear(experiment: Experiment, results: Sequence[TrialResult]) -> bool:
    """True if the first short trials took so long that full ones, which would take this much more, are hardly dearer.
    The quickest counts: one setting alone may be slow to stop."""
    took_s = [result.took_s for result in results if result.valid and result.took_s is not None]
    if experiment.screened_ns is None or len(took_s) < FIRST:
        return False
    full_s = min(took_s) + (experiment.load.duration_ns - experiment.screened_ns) / 1e9
    return min(took_s) > WORTH * full_s
