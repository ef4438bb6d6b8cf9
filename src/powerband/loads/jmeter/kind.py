"""A JMeter plan, run by the real JMeter."""

from __future__ import annotations

from powerband.loads.kind import LoadKind


class JMeterPlan(LoadKind):
    """A JMeter plan, run by the real JMeter."""

    name = "jmeter"
