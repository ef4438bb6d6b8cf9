"""Judges whether a setting meets the objective's constraints: certainly, certainly not, or not certain.

In: the values of its valid trials, and how many of its starts failed. Out: what it misses and what is open, in words.
The interval of the mean decides, never the estimate alone: among equal settings at a limit, estimates lie on either
side by luck. For a share of requests it is no narrower than their number allows (`counting.py`); where none failed,
the share that may fail unseen is stated and bars nothing, as for starts. Nor is it narrower than the load's clock can
tell. Besides, no more starts may fail or break a constraint than the objective allows: a mean hides the start in which
a third of the requests failed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from powerband.analyze.settings.counting import counted_share
from powerband.analyze.settings.starts import allowed_words, failed_words, is_allowed, is_surely_more
from powerband.analyze.stats.intervals import estimate_of
from powerband.base.units import format_value, percent, plural
from powerband.loads import kind_of
from powerband.loads.kind import CLOCK
from powerband.loads.measured import as_judged, least_of
from powerband.model.constraint import Constraint
from powerband.model.experiment import Experiment, Objective
from powerband.model.metrics import METRICS, metric_words
from powerband.model.results import Estimate, Starts

UNSERVED = "users_unserved_share"
ENDLESS = 1e4  # high / low: a hundredfold to either side


@dataclass(frozen=True)
class Compliance:
    """The judgement on how a setting meets the constraints. `missed`: those that it certainly breaks. `lapsed`: those
    that more of its starts broke than is allowed, though other settings may do so as often. `open`: those that it may
    meet or break. `hidden`: those that it meets, though of so few requests that more may fail unseen; these keep
    no setting from being the answer, which states them. `seen`: True if the estimates meet them all."""

    missed: tuple[str, ...] = ()
    lapsed: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    seen: bool = True

    @property
    def barred(self) -> tuple[str, ...]:
        """The reasons why the setting can be no answer; empty if it can."""
        return (*self.missed, *self.lapsed)

    @property
    def seen_to_meet(self) -> bool:
        """True if nothing bars the setting and the estimates meet all constraints, if only by luck."""
        return self.seen and not self.barred

    @property
    def certain(self) -> bool:
        """True if the setting certainly meets all constraints."""
        return not self.barred and not self.open


def judge(
    experiment: Experiment,
    trials: Sequence[Mapping[str, float]],
    *,
    settings: int,
    share: float = 1.0,
    starts: Starts | None = None,
) -> Compliance:
    """Judges one setting. `experiment`: with the measured time of the trials. `trials`: the metrics of its valid ones.
    `settings`: how many are judged, this one included. `share`: the part of the error that this judgement may spend, if
    there is one after each block. `starts`: None if failed ones are judged elsewhere.

    The intervals are one-sided t intervals, each at the error (1 - confidence) / (settings x constraints) (Bonferroni):
    with the confidence asked for, none of all these judgements is wrong. One trial alone decides only if there is
    nothing to choose from. A percentile of which a trial has only a lower bound meets no upper limit there, and one
    that a trial had too few requests for leaves the constraint open: few requests may be the sign of a slow start. But
    it is at least the highest lower percentile that was measured, which takes its place where it breaks the limit.
    A constraint that the mean may meet lapses if more starts break it than are allowed (`is_allowed`, at the same
    error), and is missed if these are certainly more than luck (`is_surely_more`). A trial alone, and each start, has
    the interval that its number of requests gives to a share of them, and the load's clock to a time by it; a share of
    which none was seen meets its limit, however few the requests, and what these may hide is `hidden`."""
    objective = experiment.objective
    constraints = in_force(objective, trials)
    allowed = objective.allow_failed_starts
    error = share * (1 - objective.confidence) / (settings * max(1, len(constraints)))
    missed: list[str] = []
    lapsed: list[str] = []
    unsure: list[str] = []
    hidden: list[str] = []
    seen = True
    if starts is not None and not (starts.wrong == 0 and is_allowed(starts.failed, starts.made, allowed, error)):
        (missed if starts.wrong else lapsed).append(f"{allowed_words(allowed)}: it {failed_words(starts)}")
    for constraint in constraints:
        bounds = [_breaking_bound(constraint, metrics) for metrics in trials]
        known = [{**metrics, **bound} if bound else metrics for metrics, bound in zip(trials, bounds, strict=True)]
        measured = [metrics for metrics in known if constraint.metric in metrics]
        if not measured:
            unsure.append(f"{constraint.text}: {metric_words(constraint.metric)} was not measured")
            seen = False
            continue
        confidence = max(1 - 2 * error, 0.01)
        values = [metrics[constraint.metric] for metrics in measured]
        found = _widened(experiment, constraint.metric, _estimate(values, constraint.metric, confidence), measured)
        ends_each = [
            _ends_of_start(experiment, constraint.metric, value, metrics, confidence)
            for metrics in known
            if (value := as_judged(constraint.metric, metrics)) is not None
        ]
        unit = METRICS[constraint.metric].unit
        at_least = (math.inf, math.inf) in ends_each or any(bounds)
        here = constraint.holds(math.inf if at_least else found.value)
        seen &= here
        text = f"{constraint.text}: it was {'at least ' if at_least else ''}{format_value(found.value, unit)}"
        if found.low is None:
            verdict, how = _by_only_trial(experiment, constraint, max(ends_each), decides=settings == 1)
        else:
            verdict = _certainly(constraint, *found.ends)
            if verdict and not here:  # a mean of lower bounds
                verdict = None
            floor = 0.0 if min(values) >= 0 else -math.inf
            how = f", {_range_words(experiment, constraint, found.ends, floor)}" if verdict is None else ""
        text += how
        bad = sum(_certainly(constraint, *ends) is False for ends in ends_each)
        if verdict is False:
            missed.append(text)
        elif (len(ends_each) > 1 or settings == 1) and not is_allowed(bad, len(ends_each), allowed, error):
            text = f"{constraint.text}: broken in {bad} of {plural(len(ends_each), 'start')}"
            (missed if is_surely_more(bad, len(ends_each), allowed, error) else lapsed).append(text)
        elif verdict is None:
            unsure.append(text)
        elif len(values) < len(trials):
            unsure.append(f"{constraint.text}: not measured in {len(trials) - len(values)} of {len(trials)} starts")
        hidden += _hidden(experiment, constraint, found, measured)
    return Compliance(tuple(missed), tuple(lapsed), tuple(unsure), tuple(hidden), seen)


def in_force(objective: Objective, trials: Sequence[Mapping[str, float]]) -> tuple[Constraint, ...]:
    """The objective's constraints and, where a trial left users unserved, the share of them that is allowed."""
    if not any(metrics.get(UNSERVED, 0.0) > 0 for metrics in trials):
        return objective.constraints
    text = f"at most {percent(objective.allow_unserved)} of the users unserved (allow_unserved)"
    allowed = Constraint(metric=UNSERVED, op="<=", threshold=objective.allow_unserved, text=text)
    return (*objective.constraints, allowed)


def _breaking_bound(constraint: Constraint, metrics: Mapping[str, float]) -> dict[str, float]:
    """A percentile that a trial lacks, as the highest lower one if that breaks an upper limit; empty in other cases."""
    least = None if constraint.metric in metrics else least_of(constraint.metric, metrics)
    breaks = least is not None and constraint.op in ("<", "<=") and not constraint.holds(least)
    return {constraint.metric: least} if least is not None and breaks else {}


def shortfall(constraint: Constraint, value: float | None) -> float | None:
    """How far a value lies beyond the threshold, relative to it; None if it meets it, infinite if not measured."""
    if value is None:
        return float("inf")
    if constraint.holds(value):
        return None
    return abs(value - constraint.threshold) / (abs(constraint.threshold) or 1.0)


def shortfalls(objective: Objective, metrics: Mapping[str, float]) -> float:
    """The sum of a trial's shortfalls of the constraints, unserved users among them, each relative to its threshold; 0
    if it meets them all, infinite if it did not measure one."""
    asked = in_force(objective, [metrics])
    misses = (shortfall(constraint, as_judged(constraint.metric, metrics)) for constraint in asked)
    return sum(miss for miss in misses if miss is not None)


def _ends_of_start(
    experiment: Experiment, metric: str, value: float, metrics: Mapping[str, float], confidence: float
) -> tuple[float, float]:
    """The interval of one start's value by its number of requests and the load's clock alone; the value twice if these
    say nothing of it."""
    return _widened(experiment, metric, Estimate(value, value, value, confidence, 1), [metrics]).ends


def _estimate(values: Sequence[float], metric: str, confidence: float) -> Estimate:
    """The estimate of a metric. A count that was the same in all trials has no width: counts are exact, and a limit may
    well be what a server keeps to, as `threads <= 8`."""
    found = estimate_of(values, metric, confidence)
    if METRICS[metric].unit != "count" or len(set(values)) > 1:
        return found
    ends = (None, None) if found.low is None else (values[0], values[0])
    return replace(found, value=values[0], low=ends[0], high=ends[1])


def _widened(experiment: Experiment, metric: str, found: Estimate, trials: Sequence[Mapping[str, float]]) -> Estimate:
    """The estimate with an interval no narrower than its number of requests allows, but for a share of which none was
    seen, and wider by as much as the load's clock may be off."""
    found = counted_share(experiment, metric, found, trials) if found.value else found
    error = kind_of(experiment).clock_error(metric)
    if not error or found.low is None or found.high is None:
        return found
    # The values of such a clock are no less than twice its error, so that an end below that is due to noise.
    return replace(found, low=found.low - min(error, abs(found.low) / 2), high=found.high + error)


def _why_wide(experiment: Experiment, metric: str, width: float) -> str:
    """Says that the load's clock makes half of an interval of this width or more, so that more trials hardly narrow it;
    else empty."""
    kind = kind_of(experiment)
    words = kind.clock_words(metric)
    return f", as {words}" if words and width <= 4 * kind.clock_error(metric) else ""


def by_clock(reasons: Iterable[str]) -> bool:
    """True if one of the reasons of `Compliance.open` is that the load's clock is too coarse for the limit."""
    return any(CLOCK in reason for reason in reasons)


def _hidden(
    experiment: Experiment, constraint: Constraint, found: Estimate, trials: Sequence[Mapping[str, float]]
) -> list[str]:
    """Says how large a share of requests may fail unseen, if none failed and that share breaks the limit."""
    if found.value:
        return []
    most = counted_share(experiment, constraint.metric, replace(found, low=0.0, high=0.0), trials).ends[1]
    most_words = format_value(most, METRICS[constraint.metric].unit)
    told = f"{constraint.text}: none failed, but up to {most_words} may fail unseen"
    return [] if constraint.holds(most) else [told]


def _by_only_trial(
    experiment: Experiment, constraint: Constraint, ends: tuple[float, float], *, decides: bool
) -> tuple[bool | None, str]:
    """The verdict by the interval of a single trial, None if it is open, and the words that follow its figure.
    `decides`: False if one trial shows nothing, as there are others to choose from."""
    verdict, words = _certainly(constraint, *ends) if decides else None, " in its only trial"
    if decides and verdict is None:
        few = " of few requests" if METRICS[constraint.metric].unit == "ratio" else ""
        words += f"{few}, {_range_words(experiment, constraint, ends)}"
    return verdict, words


def _range_words(
    experiment: Experiment, constraint: Constraint, ends: tuple[float, float], floor: float = -math.inf
) -> str:
    """An interval of the constraint's metric in words, and why it is wide. One on the log scale that is a hundredfold
    and more wide to either side has ends that are only arithmetic. `floor`: the least value that there is; a share is
    not below zero."""
    (low, high), unit = ends, METRICS[constraint.metric].unit
    if unit != "ratio" and low > 0 and high / low > ENDLESS:
        return "its trials too few and too different for limits"
    why = _why_wide(experiment, constraint.metric, high - low)
    return f"{format_value(max(floor, low), unit)} to {format_value(high, unit)}{why}"


def _certainly(constraint: Constraint, low: float, high: float) -> bool | None:
    ends = (constraint.holds(low), constraint.holds(high))
    within = low <= constraint.threshold <= high
    if ends[0] != ends[1] or (constraint.op == "==" and within and low < high):
        return None
    return ends[0]
