"""What each kind of load is to the rest of powerband: one object that knows its part in every phase of a run.

Not here: which kind an experiment has (`loads/__init__.py`), and the parts themselves (the folder of each kind).
"""

from __future__ import annotations

from typing import ClassVar

from powerband.loads.errors import error_kinds
from powerband.loads.measured import LOAD, USERS, stretch_metrics
from powerband.model.results import ErrorKind
from powerband.readings.evidence import Evidence, Source


class LoadKind:
    """A kind of load. What a method returns here holds for every kind that does not say otherwise."""

    name: ClassVar[str]
    load: ClassVar[Source] = LOAD
    """Makes the rates, errors and times of a trial, and says whether its generator may be believed."""
    users: ClassVar[Source] = USERS
    """Makes the metrics of the users that were present, and says what is amiss with them."""
    sends_requests: ClassVar[bool] = True
    """False: nothing is asked of the subject from outside, so that no request holds a thread or waits."""
    steady_figures: ClassVar[str] = "the rate or the response time"
    """The figures by which a measured window is found steady."""

    def corrected(self, evidence: Evidence) -> Evidence:
        """The evidence, with what this kind of load knows better than its engines said."""
        return evidence

    def stretch_metrics(self, evidence: Evidence) -> dict[str, float]:
        """Metrics of the load over a stretch of a trial: those that need no summary of the whole."""
        return stretch_metrics(evidence)

    def errors(self, evidence: Evidence) -> tuple[ErrorKind, ...]:
        """Everything that did not end ok, by kind, since the start of the load."""
        return error_kinds(evidence.fleet, evidence.overflows(), evidence.log)
