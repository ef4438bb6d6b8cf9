"""A JMeter plan, run by the real JMeter."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from powerband.loads.kind import LoadKind
from powerband.model.experiment import Experiment
from powerband.model.templates import placeholders
from powerband.processes.failures import Code

if TYPE_CHECKING:
    from powerband.loads.driver import Driver, DriverSetup
    from powerband.processes.subject_process import RunningSubject


class JMeterPlan(LoadKind):
    """A JMeter plan, run by the real JMeter."""

    name = "jmeter"

    def prepare(self, experiment: Experiment) -> None:
        from powerband.loads.jmeter.driver import prepare_plan

        prepare_plan(experiment)

    def driver(self, setup: DriverSetup, subject: RunningSubject) -> AbstractContextManager[Driver]:
        from powerband.loads.jmeter.driver import jmeter_up

        return jmeter_up(setup, subject)

    def fails_every_trial(self, experiment: Experiment, code: str) -> bool:
        """A failure of the plan, where no factor changes its properties."""
        if code not in (Code.JMETER_FAILED, Code.NO_SAMPLES, Code.PLAN_ENDED):
            return False
        return not placeholders((experiment.load.properties or {}).values()) & set(experiment.factors)
