"""The conditions of an experiment, such as `error_rate < 1%`."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, model_validator

from powerband.base.units import parse_quantity
from powerband.model.claim_expression import OPERATORS, certain
from powerband.model.fields import Frozen, listed
from powerband.model.metrics import metric_named


class Constraint(Frozen):
    """A condition, such as `error_rate < 1%`: `metric` (its full name) `op` `threshold` (in the metric's own unit).
    `text`: as written."""

    metric: str
    op: Literal["<", "<=", ">", ">=", "=="]
    threshold: float
    text: str

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return parse_constraint(value) if isinstance(value, str) else value

    @property
    def asked(self) -> tuple[str, str, float]:
        """Metric, comparison and threshold, which may be written in several ways."""
        return self.metric, self.op, self.threshold

    def holds(self, value: float) -> bool:
        """True if the value satisfies it."""
        return OPERATORS[self.op](value, self.threshold)


Constraints = Annotated[tuple[Constraint, ...], BeforeValidator(listed)]
_CONSTRAINT = re.compile(r"^\s*([A-Za-z_][\w.]*)\s*(<=|>=|==|<|>)\s*(\S.*?)\s*$")


def parse_constraint(text: str) -> dict[str, Any]:
    """Parses `p99 < 50ms` into the fields of a Constraint. Raises ValueError for an unknown metric, for a wrong unit,
    and for a share that is to be less than a number from 1 on, which is meant in percent."""
    match = _CONSTRAINT.match(text)
    if match is None:
        raise ValueError(f"{text!r} is no condition: write metric, comparison, threshold, for example p99 < 50ms")
    metric = metric_named(match[1])
    threshold = parse_quantity(match[3], metric.unit)
    if certain(metric.name, match[2], threshold) == "always" and not match[3].endswith("%"):
        raise ValueError(f"{text.strip()!r} holds always, since 1 is all: write {match[1]} {match[2]} {match[3]}%")
    return {"metric": metric.name, "op": match[2], "threshold": threshold, "text": text.strip()}


def constraint_of(text: str) -> Constraint | None:
    """The constraint in a text that a run of any version holds; None if an older one wrote what is refused now."""
    try:
        return Constraint.model_validate(text)
    except ValueError:
        return None
