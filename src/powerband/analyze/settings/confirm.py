"""Judges whether fresh starts uphold a race's answer. A setting that wins among many was lucky too: new trials, which
had no part in choosing it, show by how much.

In: the race's table, the confirming trials, the setting that the race names. Out: a `Confirmation`. The race's data
decide; fresh starts only uphold or contradict, and enter no interval of the race. Method: docs/methods/racing.md.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from powerband.analyze.settings.constraints import Compliance, judge
from powerband.analyze.settings.contest import ResponseTable, last_valid, slack_of
from powerband.analyze.settings.starts import starts_of
from powerband.analyze.stats.intervals import Difference, Scale, estimate
from powerband.analyze.trial.faults import subjects_own, tried
from powerband.base.units import format_value, plural, signed_percent
from powerband.loads.measured import is_lower_bound
from powerband.model.experiment import Experiment
from powerband.model.metrics import METRICS, metric_words
from powerband.model.plan import Setting, Stage
from powerband.model.results import Confirmation, Estimate, TrialResult


def confirm(
    experiment: Experiment,
    table: ResponseTable,
    scale: Scale,
    results: Sequence[TrialResult],
    setting: Setting,
    *,
    barred: Collection[Setting] = (),
    bound: float | None = None,
) -> Confirmation | None:
    """The confirmation of `setting`, which the race names; None without a valid trial. The last valid attempt counts.
    `barred`: settings that can be no answer, and so no rival: one that was named before may have failed since. `bound`:
    by how much others may be better where the race only says that; a larger one than the margin stands for it.

    It is not upheld if the fresh starts show it worse than its rival in the same blocks by more than the margin; if it
    serves worse than in the race by more than the margin, also in comparison with its rival (if both lose alike, the
    machine has changed, not the standing); or if it certainly breaks a constraint. They do not agree if one lacks the
    objective, or the metric of a constraint: few requests may be the sign of a slow start."""
    counted = _fresh_trials(table, results)
    fresh = {key: result.metrics[table.metric] for key, result in counted.items()}
    objective = experiment.objective
    rivals = [other for other, _ in fresh if other != setting and other not in barred]
    rival = rivals[-1] if rivals else None
    own = {block: value for (of, block), value in fresh.items() if of == setting}
    if not own:
        return None
    # A zero among the fresh ones has no logarithm, whatever the race had.
    scale = replace(scale, log=scale.log and all(value > 0 for value in fresh.values()))
    back = _Back(scale, objective.confidence)
    least = any(is_lower_bound(table.metric, result.metrics) for (of, _), result in counted.items() if of == setting)
    raced = {result.block: table.value(result) for result in table.valid(setting)}
    change = back.unpaired(list(own.values()), list(raced.values()))
    beside = against = apart = None
    if rival is not None:
        of_rival = {block: value for (of, block), value in fresh.items() if of == rival}
        rival_raced = {result.block: table.value(result) for result in table.valid(rival)}
        beside = back.paired(own, of_rival)
        against = _less(beside, back.paired(raced, rival_raced), objective.confidence)
        apart = back.unpaired(list(own.values()), list(of_rival.values()))
    said = _Fresh(table.sign, change, beside, against, apart, short=table.screened)
    # A loss that may be due to disturbances of the fresh starts contradicts nothing.
    margin = max(objective.margin, bound or 0.0)
    allowed = scale.allowed(margin, _mean(raced)) + fresh_room(table, scale, results, setting)
    mine = _fresh_metrics(results, setting)
    lacking = sum(not objective.needed_metrics <= metrics.keys() for metrics in mine)
    kept = kept_afresh(experiment, table, results, setting)
    made = Confirmation(
        setting=setting,
        rival=rival,
        trials=len(own),
        race=estimate(list(raced.values()), objective.confidence, log=scale.log),
        confirmed=replace(estimate(list(own.values()), objective.confidence, log=scale.log), at_least=least),
        shrinkage=back.share_lost(change, _mean(raced)),
        advantage=None if beside is None or rival is None else back.ratio(beside, _mean(of_rival)),
        upheld=said.upheld(allowed) and not kept.barred,
        agrees=said.upheld(allowed) and said.agrees(allowed) and kept.seen and not lacking,
        sentence="",
    )
    told = f"; {lacking} of {plural(len(mine), 'fresh start')} did not measure all that is judged" if lacking else ""
    return _worded(made, said, table, kept, told)


def kept_afresh(
    experiment: Experiment, table: ResponseTable, results: Sequence[TrialResult], setting: Setting
) -> Compliance:
    """The judgement on the constraints by the fresh starts of a setting. Where some starts may fail or break one, those
    of the race count as well: so few by themselves never show that the share is small enough."""
    loaded, starts = experiment.loaded_for(setting), starts_of(results, setting, experiment.objective.confidence)
    fresh = _fresh_metrics(results, setting)
    kept = judge(loaded, fresh, settings=1, starts=starts)
    if not experiment.objective.allow_failed_starts:
        return kept
    raced = [result.metrics for result in table.valid(setting)]
    return replace(kept, lapsed=judge(loaded, [*raced, *fresh], settings=1, starts=starts).lapsed)


def _fresh_metrics(results: Sequence[TrialResult], setting: Setting) -> list[Mapping[str, float]]:
    return [result.metrics for (of, _), result in last_valid(results, Stage.CONFIRM).items() if of == setting]


def fresh_room(table: ResponseTable, scale: Scale, results: Sequence[TrialResult], setting: Setting) -> float:
    """The mean gain that a setting's valid fresh starts may have lost to disturbance, on the comparison's scale."""
    held_up = [result.held_up for (of, _), result in _fresh_trials(table, results).items() if of == setting]
    return float(slack_of(np.array(held_up), np.array(fresh_values(table, results, setting)), scale).mean())


def fresh_values(table: ResponseTable, results: Sequence[TrialResult], setting: Setting) -> list[float]:
    """The objective in a setting's valid fresh starts."""
    return [r.metrics[table.metric] for (of, _), r in _fresh_trials(table, results).items() if of == setting]


def _fresh_trials(table: ResponseTable, results: Sequence[TrialResult]) -> dict[tuple[Setting, int], TrialResult]:
    return last_valid((result for result in results if table.metric in result.metrics), Stage.CONFIRM)


def unconfirmed(results: Sequence[TrialResult], setting: Setting, metric: str) -> tuple[str, bool] | None:
    """The reason why no fresh start of `setting` is valid and has the objective, `metric`, and True if the server was
    at fault in all of them. None if there was no fresh start, or one counts."""
    fresh = [result for result in tried(results, setting) if result.stage is Stage.CONFIRM]
    if not fresh or any(result.valid and metric in result.metrics for result in fresh):
        return None
    lacks = f"{metric_words(metric)} was not measured" if any(result.valid for result in fresh) else "it failed"
    reason = next((problem.message for result in fresh for problem in result.problems if problem.fatal), lacks)
    return reason, all(subjects_own(result) for result in fresh)


@dataclass(frozen=True)
class _Back:
    """Computes differences on the scale, and turns them back into ratios."""

    scale: Scale
    confidence: float

    def paired(self, first: dict[int, float], second: dict[int, float]) -> Difference | None:
        """The mean difference over the blocks that hold both, with Student's t interval."""
        shared = sorted(first.keys() & second.keys())
        if not shared:
            return None
        first_values, second_values = ([side[block] for block in shared] for side in (first, second))
        differences = self.scale.scaled(first_values) - self.scale.scaled(second_values)
        n = len(shared)
        variance = self.scale.variance(differences) / n if n > 1 else math.nan
        return Difference.of(float(differences.mean()), variance, n - 1, self.confidence, n)

    def unpaired(self, first: Sequence[float], second: Sequence[float]) -> Difference:
        return self.scale.unpaired(self.scale.scaled(first), self.scale.scaled(second), self.confidence)

    def share_lost(self, change: Difference, base: float) -> Estimate:
        """1 - new / old, from the change on the scale and the old mean; 0 without an interval if that is 0."""
        ratio = self.ratio(change, base) or Estimate(1.0, None, None, self.confidence, change.n)
        low, high = ratio.low, ratio.high
        if low is None or high is None:
            return replace(ratio, value=1 - ratio.value)
        return replace(ratio, value=1 - ratio.value, low=1 - high, high=1 - low)

    def ratio(self, difference: Difference, base: float) -> Estimate | None:
        """The ratio first / second. `base`: the second's mean, needed off the log scale; if it is 0, there is none."""
        return self.scale.ratio(difference.value, difference.half, base, self.confidence, difference.n)


def _less(first: Difference | None, second: Difference | None, confidence: float) -> Difference | None:
    if first is None or second is None or math.isnan(first.half) or math.isnan(second.half):
        return None
    parts = [(first.variance, first.df), (second.variance, second.df)]
    return Difference.welch(first.value - second.value, parts, confidence, min(first.n, second.n))


@dataclass(frozen=True)
class _Fresh:
    """The fresh starts' differences. `change`: to the race. `beside`: to the rival in the same blocks. `against`:
    `beside` less the same difference in the race. `apart`: of all starts to all of the rival, which may have had fewer.
    `short`: True if the race had only short trials, which do not measure what full ones do: then only the rival
    counts."""

    sign: float
    change: Difference
    beside: Difference | None = None
    against: Difference | None = None
    apart: Difference | None = None
    short: bool = False

    def upheld(self, allowed: float) -> bool:
        # Among many the winner was lucky and its rival less so: to have lost a little against it proves nothing.
        lost_alone = self.beside is None or self._surely_below(self.against, -allowed)
        fell = self._surely_below(self.change, -allowed) and lost_alone and not self.short
        return not fell and not self._surely_below(self.beside, -allowed)

    def agrees(self, allowed: float) -> bool:
        """True if the fresh starts, taken as they came out, agree with the race: in comparison with the rival if there
        is one, else by the figure itself. The starts that the winner made alone count as well."""
        beside = self.change if self.beside is None else self.beside
        return all(self.sign * each.value >= -allowed for each in (beside, self.apart) if each is not None)

    def _surely_below(self, difference: Difference | None, limit: float) -> bool:
        return difference is not None and self.sign * difference.value + difference.half < limit  # NaN: not sure


def _mean(values: dict[int, float]) -> float:
    return float(np.mean(list(values.values()))) if values else math.nan


def _worded(made: Confirmation, said: _Fresh, table: ResponseTable, kept: Compliance, more: str) -> Confirmation:
    starts = "1 fresh start" if made.trials == 1 else f"{made.trials} fresh starts"
    head = f"Confirmed on {starts}:"
    if not made.upheld:
        head = f"Not confirmed: on {starts}"
    elif not made.agrees:
        verbs = "confirms nor contradicts" if made.trials == 1 else "confirm nor contradict"
        head = f"{starts} neither {verbs} it:"
    unit = METRICS[table.metric].unit
    moved = f"compared with the race {_points_moved(said) if unit == 'ratio' else _moved(made.shrinkage)}"
    if unit != "ratio" and not made.race.value:
        moved = f"in the race {format_value(0.0, unit)}"
    least = "at least " if made.confirmed.at_least else ""
    text = f"{head} {least}{format_value(made.confirmed.value, unit)}, {moved}"
    if made.rival is not None and said.beside is not None:
        text += f"; {_beside(said.beside, made.advantage, unit, made.rival)}"
    if kept.barred or not kept.seen:
        text += f"; misses {'; '.join(kept.barred or kept.open)}"
    return replace(made, sentence=f"{text}{more}.")


def _moved(lost: Estimate) -> str:
    low, high = lost.ends
    return _signed([1 - each for each in (lost.value, high, low)], "%")


def _points_moved(said: _Fresh) -> str:
    """Shares move by percentage points."""
    return _signed([1 + said.change.value] * 3, "percentage points")


def _beside(beside: Difference, advantage: Estimate | None, unit: str, rival: Setting) -> str:
    """`the runner-up threads=32, side by side (one start each): −50.0 %`, with the interval from two starts on: only
    the rounds that started both are compared, which may be fewer than those of the winner. The plain difference where
    one of both is at 0."""
    starts = "one start" if beside.n == 1 else f"{beside.n} starts"
    head = f"the runner-up {rival.id}, side by side ({starts} each):"
    if unit == "ratio":
        low, high = beside.value - beside.half, beside.value + beside.half
        ratios, word = [1 - each for each in (beside.value, high, low)], "percentage points"
    elif advantage is None or advantage.value <= 0:
        ends = (-beside.value - beside.half, -beside.value + beside.half) if beside.n > 1 else ()
        shown, *between = (
            f"{'−' if each < 0 else '+' if each else ''}{format_value(abs(each), unit)}"
            for each in (-beside.value, *ends)
        )
        return f"{head} {shown}" + (f" ({' to '.join(between)})" if len(set(between)) > 1 else "")
    else:
        low, high = advantage.ends
        ratios, word = [1 / each if each > 0 else math.inf for each in (advantage.value, high, low)], "%"
    return f"{head} {_signed(ratios, word, between=beside.n > 1)}"


def _signed(ratios: Sequence[float], word: str, *, between: bool = True) -> str:
    """`−1.8 % (−4.1 to +0.5 %)`, from a ratio and the ends of its interval."""
    shown, low, high = map(signed_percent, ratios)
    shown = "0.0" if shown[1:] == "0.0" else shown
    return f"{shown} {word}" + (f" ({low} to {high} {word})" if between and low != high else "")
