"""No load: the program drives itself, and a counter says how much it does."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from powerband.base.errors import FileProblem
from powerband.base.yaml_document import Node
from powerband.loads.counted.checks import LOAD_KEYS, check_counter, check_self_driven, with_stand_in
from powerband.loads.kind import LoadKind
from powerband.model.experiment import Experiment, Subject
from powerband.model.load import Load
from powerband.model.metrics import METRICS

if TYPE_CHECKING:
    from powerband.loads.counted.driver import Counted
    from powerband.loads.driver import Driver, DriverSetup
    from powerband.processes.subject_process import RunningSubject
    from powerband.readings.evidence import Evidence, Source
    from powerband.readings.fleet import MergedFleet


class SelfDriven(LoadKind):
    """The kind of a program that works by itself: nothing is sent, its counter is read, and only the duration of the
    measurement can be set."""

    load_keys = LOAD_KEYS
    uses_url = False
    default_slo = None  # no requests, so no errors
    not_apart = "this server drives itself, so that no node makes its load"
    no_capacity = "a program without requests has no capacity, for no rate is offered: maximise goodput"
    sends_requests = False
    steady_figures = "the rate"
    check_experiment = staticmethod(check_counter)

    def check_tree(self, root: Node, subject: Subject | None) -> Iterable[FileProblem]:
        return check_self_driven(root)

    def filled(self, root: Node, subject: Subject | None) -> Node:
        return with_stand_in(root)

    def has_metric(self, metric: str) -> bool:
        return not METRICS[metric].needs_load

    def why_missing(self, metric: str) -> str | None:
        if self.has_metric(metric):
            return None
        return f"only a load has {metric}, and a program without requests has none: its rate is goodput"

    def goodput_words(self, experiment: Experiment) -> str:
        return f"{experiment.noun}s"

    def may_share_cpus(self, experiment: Experiment) -> bool:
        return False  # nothing drives this server, so it has all CPUs anyway

    def load_words(self, load: Load) -> str:
        return ""

    def engine_threads(self, load: Load) -> int:
        return 0

    def counter(self, setup: DriverSetup) -> Counted:
        from powerband.loads.counted.driver import Counted

        counts, duration_ns = setup.trial.experiment.subject.counts, setup.trial.load.duration_ns
        assert counts is not None
        return Counted(counts, setup.events, setup.pump, warmup_ns=setup.warmup.driver_ns, duration_ns=duration_ns)

    def driver(self, setup: DriverSetup, subject: RunningSubject) -> AbstractContextManager[Driver]:
        from powerband.loads.counted.driver import Counted

        assert isinstance(subject.counter, Counted), "subject_up was given the counter"
        return nullcontext(subject.counter)

    @property
    def load(self) -> Source:
        from powerband.loads.counted.measured import COUNTER

        return COUNTER

    @property
    def users(self) -> Source:
        from powerband.loads.counted.measured import NO_USERS

        return NO_USERS

    def loaded(self, fleet: MergedFleet) -> None:
        return None

    def stretch_metrics(self, evidence: Evidence) -> dict[str, float]:
        from powerband.loads.counted.measured import counted_metrics

        return counted_metrics(evidence)
