"""No load: the program drives itself, and a counter says how much it does."""

from __future__ import annotations

from powerband.loads.counted.measured import COUNTER, NO_USERS, counted_metrics
from powerband.loads.kind import LoadKind
from powerband.readings.evidence import Evidence


class SelfDriven(LoadKind):
    """No load: the program drives itself, and a counter says how much it does."""

    name = "counted"
    load, users = COUNTER, NO_USERS
    sends_requests = False
    steady_figures = "the rate"

    def stretch_metrics(self, evidence: Evidence) -> dict[str, float]:
        return counted_metrics(evidence)
