"""A JMeter plan, run by the real JMeter."""

from __future__ import annotations

from powerband.loads.jmeter.measured import LOAD, USERS, corrected
from powerband.loads.kind import LoadKind
from powerband.readings.evidence import Evidence


class JMeterPlan(LoadKind):
    """A JMeter plan, run by the real JMeter."""

    name = "jmeter"
    load, users = LOAD, USERS

    def corrected(self, evidence: Evidence) -> Evidence:
        return corrected(evidence)
