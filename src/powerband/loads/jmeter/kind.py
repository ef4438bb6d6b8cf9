"""A JMeter plan, run by the real JMeter."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from powerband.base.yaml_document import Node
from powerband.loads.jmeter.checks import LOAD_KEYS, check_jmeter, check_plan, with_plan_keys
from powerband.loads.jmeter.clock import clock_error_ns
from powerband.loads.kind import LoadKind
from powerband.model.experiment import Experiment, Subject
from powerband.model.load import Load
from powerband.model.templates import placeholders

if TYPE_CHECKING:
    from powerband.loads.driver import Driver, DriverSetup
    from powerband.processes.stop_request import StopRequest
    from powerband.processes.subject_process import RunningSubject
    from powerband.readings.evidence import Evidence, Source


_BY_ITS_CLOCK = ("littles_law", "send_lag_ns", "connect_time_ns", "response_time_ns", "service_time_ns", "finish_s")
"""Beginnings of the names of metrics that JMeter's results lack, or have only in whole milliseconds."""


class JMeterPlan(LoadKind):
    """The kind of a load that the user's JMeter plan defines, and that JMeter itself sends."""

    load_keys = LOAD_KEYS
    start_ns = 6_000_000_000  # for its JVM to start, load the plan and end
    not_apart = "JMeter runs on the server's node, and other nodes cannot make its load"
    no_capacity = (
        "capacity is searched for by offering one rate after another, and a plan has its own: take another objective "
        "(goodput, p99)"
    )
    check_tree = staticmethod(check_jmeter)
    check_to_run = staticmethod(check_plan)

    def filled(self, root: Node, subject: Subject | None) -> Node:
        return with_plan_keys(root)

    def may_share_cpus(self, experiment: Experiment) -> bool:
        return False  # JMeter's JVM costs more than a generator that only sends

    def load_words(self, load: Load) -> str:
        return "under the JMeter plan"

    def why_missing(self, metric: str) -> str | None:
        if metric.startswith(_BY_ITS_CLOCK):
            return "JMeter does not report it, or it is less than the 1 ms that its clock resolves"
        return None

    def clock_error(self, metric: str) -> float:
        return clock_error_ns(metric)

    def prepare(self, experiment: Experiment, stop: StopRequest) -> None:
        from powerband.loads.jmeter.driver import prepare_plan

        prepare_plan(experiment, stop)

    def driver(self, setup: DriverSetup, subject: RunningSubject) -> AbstractContextManager[Driver]:
        from powerband.loads.jmeter.driver import jmeter_up

        return jmeter_up(setup, subject)

    def fails_every_trial(self, experiment: Experiment, code: str) -> bool:
        """True for a failure of the plan, unless a factor changes the load or its properties."""
        from powerband.processes.failures import Code

        own = code in (Code.JMETER_FAILED, Code.NO_SAMPLES, Code.PLAN_ENDED)
        if not own or any(name.startswith("load.") for name in experiment.factors):
            return False
        return not placeholders((experiment.load.properties or {}).values()) & set(experiment.factors)

    @property
    def load(self) -> Source:
        from powerband.loads.jmeter.measured import LOAD

        return LOAD

    @property
    def users(self) -> Source:
        from powerband.loads.jmeter.measured import USERS

        return USERS

    def corrected(self, evidence: Evidence) -> Evidence:
        from powerband.loads.jmeter.measured import with_own_cpu

        return with_own_cpu(evidence)
