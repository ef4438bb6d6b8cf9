"""Finds settings that never stabilised: most of their valid trials were still changing while they were measured.

In: trial results (each says whether its window was steady, and how its warm-up ended). Out: the settings, and the words
for warnings and the answer. The test of a series is in `steady.py`.

A trial was unsettled if its window had a trend or a step, or if the warm-up reached its limit and the window was too
short to say. Every tenth trial of a steady server may look so by chance. So it takes more than half of a setting's
trials, and so many of them that by chance any setting has that many in at most one run of twenty (binomial tail,
Bonferroni over settings).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from powerband.analyze.settings.standing import GOODPUT
from powerband.base.units import joined
from powerband.model.experiment import Experiment
from powerband.model.plan import Setting, Stage
from powerband.model.results import Answer, Estimate, TrialResult

BY_CHANCE = 0.1  # trials of a steady server that look unsettled
ERROR = 0.05  # one run of twenty
APART = (Stage.CAPACITY, Stage.SCREEN, Stage.SOAK)
"""Stages that do not count: near a capacity a queue grows; a short trial leaves no time to settle, and decides only
what is far apart; a soak is judged by itself."""
NAMED_MOST = 5  # arbitrary: the report marks each
WARM_S = 20  # arbitrary: most of a JVM's code is compiled by then
RISES_MOST = 4.0  # times what it gave: a JVM that computes gave 3.4 times as much after a minute as after five seconds


@dataclass(frozen=True)
class Unsettled:
    """How often a setting was unsettled: in `times` of its `trials` valid trials."""

    times: int
    trials: int


def is_unsettled(trial: TrialResult) -> bool:
    """True if the trial's window had a trend or a step; if the window was too short to say, True if the warm-up reached
    its limit."""
    if trial.by_quiet_time:
        return False  # other programs came and went
    if trial.steady is None:
        return trial.warmup_ended_by == "limit"
    return not trial.steady


def never_stabilised(trials: Sequence[TrialResult]) -> dict[Setting, Unsettled]:
    """The settings that never stabilised, in the order of the trials; stages in `APART` do not count."""
    return _mostly(trials, is_unsettled)


def still_rising(objective: str, trials: Sequence[TrialResult]) -> frozenset[Setting]:
    """The settings that got faster while they were measured, in most of their valid trials and in more than chance
    gives: in the end they do better than was measured. Several that did so in each of at least two trials count
    together: chance makes few settings do that. Empty if the objective, a metric, does not gain by that."""
    if not _gains(objective):
        return frozenset()
    counted = _counted(trials, _rises)
    always = {setting for setting, seen in counted.items() if seen.times == seen.trials >= 2}
    # Chance makes all of two trials or more rise at most so often.
    twice = sum(seen.trials >= 2 for seen in counted.values())
    together = _by_chance(Unsettled(len(always), twice), BY_CHANCE**2) <= ERROR
    return frozenset(_mostly(trials, _rises)) | (always if together else set())


def may_still_rise(objective: str, trials: Sequence[TrialResult]) -> frozenset[Setting]:
    """The settings that got faster in all of their valid trials, which are too few to tell that from chance: one more
    may. Empty if the objective does not gain by that."""
    if not _gains(objective):
        return frozenset()
    always = {setting for setting, seen in _counted(trials, _rises).items() if seen.times == seen.trials}
    return frozenset(always - still_rising(objective, trials))


def longer_warmup_s(trials: Sequence[TrialResult], rising: Collection[Setting]) -> int:
    """A warm-up in s that may suffice for these settings: to tens, twice the longest that they had, and long enough for
    most of a JVM's code."""
    longest_s = max((trial.warmup_s or 0.0 for trial in trials if trial.setting in rising and trial.valid), default=0.0)
    return max(WARM_S, 10 * round(2 * longest_s / 10))


def _gains(objective: str) -> bool:
    """True if the objective gets better while a server gets faster."""
    return objective == GOODPUT or objective.startswith("response_time")


def _rises(trial: TrialResult) -> bool:
    return trial.rising


def cold_capacity(experiment: Experiment, trials: Sequence[TrialResult], setting: Setting | None) -> Iterator[str]:
    """Yields a warning if the capacity of this setting was measured before its server was warm: if it still got faster
    in most of its valid trials, and in more than chance gives."""
    mine = [trial for trial in trials if trial.valid and (trial.stage, trial.setting) == (Stage.CAPACITY, setting)]
    seen = Unsettled(sum(trial.rising for trial in mine), len(mine))
    if setting is None or 2 * seen.times <= seen.trials or _by_chance(seen) > ERROR:
        return
    longer_s = max(WARM_S, math.ceil(2 * (experiment.warmup_ns_of(Stage.CAPACITY) or 0) / 1e9))
    yield (
        f"{setting.id} still got faster while it was measured, in {seen.times} of {seen.trials} trials: once warm its "
        f"capacity is higher; give it a longer warm-up (--warmup {longer_s}s)"
    )


def _mostly(trials: Sequence[TrialResult], mark: Callable[[TrialResult], bool]) -> dict[Setting, Unsettled]:
    """The settings of which most valid trials, and more than chance gives, have the mark."""
    counted = _counted(trials, mark)
    return {
        setting: seen
        for setting, seen in counted.items()
        # Rounded, since 0.1 ** 2 is a little more than 0.05 / 5.
        if 2 * seen.times > seen.trials and round(_by_chance(seen) * len(counted), 9) <= ERROR
    }


def _counted(trials: Sequence[TrialResult], mark: Callable[[TrialResult], bool]) -> dict[Setting, Unsettled]:
    """In how many of its valid trials each setting has the mark; stages in `APART` do not count."""
    found: defaultdict[Setting, list[bool]] = defaultdict(list)
    for trial in trials:
        if trial.valid and trial.stage not in APART:
            found[trial.setting].append(mark(trial))
    return {setting: Unsettled(sum(marks), len(marks)) for setting, marks in found.items()}


def may_catch_up(effect: Estimate | None) -> bool:
    """True if a setting that still rises could end up ahead of the leader. `effect`: its ratio to the leader's."""
    if effect is None or effect.low is None or effect.high is None:
        return True
    return effect.high * RISES_MOST > 1 and effect.low < RISES_MOST


def _by_chance(seen: Unsettled, chance: float = BY_CHANCE) -> float:
    """The probability that chance alone makes so many trials or more unsettled. `chance`: that of one."""
    n = seen.trials
    return sum(math.comb(n, k) * chance**k * (1 - chance) ** (n - k) for k in range(seen.times, n + 1))


def warnings_of(trials: Sequence[TrialResult], restless: Mapping[Setting, Unsettled]) -> Iterator[str]:
    """Yields a warning for each setting that never stabilised, and one for the unsettled trials of all others."""
    for setting, seen in restless.items():
        yield (
            f"{setting.id} had not reached a steady state in {seen.times} of {seen.trials} trials: its figures may "
            "shift with time; lengthen measure.warmup_max or load.duration"
        )
    compared = [trial for trial in trials if trial.valid and trial.stage not in APART]
    others = [trial for trial in compared if trial.steady is False and trial.setting not in restless]
    if others:
        named = [f"{trial.number} ({trial.setting.id})" for trial in others[:NAMED_MOST]]
        more = [f"{len(others) - NAMED_MOST} more"] if len(others) > NAMED_MOST else []
        which, whose = ("trial", "its") if len(others) == 1 else ("trials", "their")
        yield f"{which} {joined([*named, *more])} had not reached a steady state: {whose} figures may shift with time"


def with_caveat(answer: Answer, restless: Mapping[Setting, Unsettled]) -> Answer:
    """The answer, with a last sentence if the setting that it names, or sees ahead, never stabilised."""
    named = answer.setting or answer.leader
    if named is None or named not in restless:
        return answer
    seen = restless[named]
    said = f"But {named.id} had not reached a steady state in {seen.times} of {seen.trials} trials: this may change."
    return replace(answer, sentences=(*answer.sentences, said))
