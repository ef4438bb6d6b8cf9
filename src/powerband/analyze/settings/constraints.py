"""Does a setting meet the objective's constraints: certainly, certainly not, or is it not certain?

In: the values of its valid trials. Out: what it misses and what is open, in words. The interval decides, never the
estimate alone: of equal settings at a limit the estimates of some lie on either side by luck.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from powerband.analyze.stats.intervals import estimate_of
from powerband.base.units import format_value
from powerband.model.claim_expression import OPERATORS
from powerband.model.experiment import Constraint, Objective
from powerband.model.metrics import METRICS

UNSERVED = "users_unserved_share"
ENDLESS = 1e4  # high / low: a hundredfold to either side


@dataclass(frozen=True)
class Compliance:
    """`missed`: constraints that the setting certainly breaks; `open`: those that it may meet or break. `seen`: whether
    the estimates meet them all."""

    missed: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    seen: bool = True

    @property
    def certain(self) -> bool:
        return not self.missed and not self.open


def judge(
    objective: Objective,
    trials: Sequence[Mapping[str, float]],
    *,
    settings: int,
    share: float = 1.0,
) -> Compliance:
    """`trials`: the metrics of one setting's valid trials. `settings`: how many are judged, this one included.
    `share`: of the error that this judgement may spend, where there is one after each block.

    One-sided t intervals, each at the error (1 - confidence) / (settings x constraints) (Bonferroni): with the
    confidence asked for, none of all these judgements is wrong. One trial alone decides only where there is nothing
    to choose from."""
    constraints = in_force(objective, trials)
    error = share * (1 - objective.confidence) / max(1, settings * len(constraints))
    missed: list[str] = []
    unsure: list[str] = []
    seen = True
    for constraint in constraints:
        values = [metrics[constraint.metric] for metrics in trials if constraint.metric in metrics]
        if not values:
            unsure.append(f"{constraint.text}: {constraint.metric} was not measured")
            seen = False
            continue
        unit = METRICS[constraint.metric].unit
        found = estimate_of(values, constraint.metric, max(1 - 2 * error, 0.01))
        here = _meets(constraint, found.value)
        seen &= here
        text = f"{constraint.text}: it was {format_value(found.value, unit)}"
        if found.low is None or found.high is None:
            verdict = here if settings == 1 else None
            text += " in one trial"
        else:
            verdict = _certainly(constraint, found.low, found.high)
            if verdict is None and _endless(found.low, found.high):
                text += ", its trials too few and too different for limits"
            elif verdict is None:
                text += f", {format_value(found.low, unit)} to {format_value(found.high, unit)}"
        if verdict is not True:
            (unsure if verdict is None else missed).append(text)
    return Compliance(tuple(missed), tuple(unsure), seen)


def in_force(objective: Objective, trials: Sequence[Mapping[str, float]]) -> tuple[Constraint, ...]:
    """The objective's constraints and, where a trial left users unserved, the share of them that is allowed."""
    if not any(metrics.get(UNSERVED, 0.0) > 0 for metrics in trials):
        return objective.constraints
    text = f"at most {objective.allow_unserved:.3%} of the users unserved (allow_unserved)"
    allowed = Constraint(metric=UNSERVED, op="<=", threshold=objective.allow_unserved, text=text)
    return (*objective.constraints, allowed)


def shortfall(constraint: Constraint, value: float | None) -> float | None:
    """How far a value lies beyond the threshold, relative to it; None where it meets it. Unmeasured: infinitely."""
    if value is None:
        return float("inf")
    if _meets(constraint, value):
        return None
    return abs(value - constraint.threshold) / (abs(constraint.threshold) or 1.0)


def _endless(low: float, high: float) -> bool:
    """An interval so wide, a hundredfold and more to either side, that its ends are only arithmetic."""
    return low > 0 and high / low > ENDLESS


def _meets(constraint: Constraint, value: float) -> bool:
    return OPERATORS[constraint.op](value, constraint.threshold)


def _certainly(constraint: Constraint, low: float, high: float) -> bool | None:
    ends = (_meets(constraint, low), _meets(constraint, high))
    within = low <= constraint.threshold <= high
    if ends[0] != ends[1] or (constraint.op == "==" and within and low < high):
        return None
    return ends[0]
