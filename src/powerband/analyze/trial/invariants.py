"""Judges `measure.invariants` by one trial's metrics. In: conditions and metrics.
Out: a problem for each broken one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from powerband.base.units import format_value
from powerband.model.claim_expression import OPERATORS
from powerband.model.experiment import Constraint
from powerband.model.metrics import METRICS
from powerband.model.results import Problem


def invariant_problems(invariants: Sequence[Constraint], metrics: Mapping[str, float]) -> Iterator[Problem]:
    """What must hold in each trial and does not, or cannot be told."""
    for wanted in invariants:
        found = metrics.get(wanted.metric)
        if found is None:
            yield Problem(
                "invariant",
                f"it cannot be told whether {wanted.text}: this trial has no {wanted.metric}; see what "
                "measure.metrics makes it of, and subject.log",
            )
        elif not OPERATORS[wanted.op](found, wanted.threshold):
            unit = METRICS[wanted.metric].unit
            yield Problem(
                "invariant",
                f"{wanted.text} does not hold: {wanted.metric} was {format_value(found, unit)}; the subject is not "
                "right at this setting, so its figures do not count",
            )
