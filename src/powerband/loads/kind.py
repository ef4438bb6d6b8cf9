"""LoadKind: the interface between a kind of load and the rest of powerband. One object knows its part in every phase of
a run.

Not here: which kind an experiment has (`loads/__init__.py`), and the parts themselves (the folder of each kind).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, ClassVar

from powerband.base.errors import FileProblem
from powerband.base.units import duration_text, format_duration, format_value, plural, time_text
from powerband.base.yaml_document import Node
from powerband.model.experiment import Experiment, Subject
from powerband.model.load import Load, mean_ns
from powerband.model.plan import Stage
from powerband.model.subjects import uses

if TYPE_CHECKING:
    from powerband.loads.driver import Driver, DriverSetup, WarmUp
    from powerband.model.results import ErrorKind
    from powerband.processes.stop_request import StopRequest
    from powerband.processes.subject_process import RunningSubject, SubjectCounter
    from powerband.readings.evidence import Evidence, Source
    from powerband.readings.fleet import MergedFleet

CLOCK = "the load's clock"  # begins the clause on its steps


def of_requests(load: Load) -> str:
    """Returns `, each of 3 requests`, to follow a rate of scenarios; empty if each is one request."""
    return f", each of {len(load.scenario)} requests" if len(load.scenario) > 1 else ""


class LoadKind(ABC):
    """A kind of load. Its definitions here hold for every kind that does not override them."""

    load_keys: ClassVar[tuple[str, ...] | None] = None
    """The keys of `load` that this kind reads and a resolved file keeps; None: all of them."""
    beside_level: ClassVar[Mapping[str, object]] = {}
    """The keys that one level of a factor `load.*` needs beside it to make a valid load."""
    uses_url: ClassVar[bool] = True
    """True if the load goes to `subject.url`: then the server listens there, and its host must be one that may be
    loaded."""
    users_join: ClassVar[bool] = False
    """True if each user opens a connection that it keeps, before it sends anything."""
    start_ns: ClassVar[int] = 0
    """The time that the load takes to start once the server is ready, in ns."""
    default_slo: ClassVar[str | None] = "error_rate < 1%"
    """The default condition of `powerband tune`; None: there is none."""
    not_apart: ClassVar[str | None] = None
    """The reason why other nodes of a cluster cannot make the load; None: they can."""
    no_capacity: ClassVar[str | None] = None
    """The reason why the objective cannot be capacity; None: it can."""

    def check_tree(self, root: Node, subject: Subject | None) -> Iterable[FileProblem]:
        """Yields the problems of the load of a file; `subject` is None if it is not valid itself."""
        return ()

    def filled(self, root: Node, subject: Subject | None) -> Node:
        """Returns the tree with a load that the models accept, including what a file may leave out."""
        return root

    def check_experiment(self, experiment: Experiment, root: Node) -> Iterable[FileProblem]:
        """Yields the problems that show only once the whole file is valid; `root` is its tree."""
        return ()

    def check_to_run(self, experiment: Experiment, root: Node) -> Iterable[FileProblem]:
        """Yields the problems that keep a valid experiment from being run, but not an old run from being read."""
        return ()

    def has_metric(self, metric: str) -> bool:
        """True if a trial can have this metric, as far as the load decides it."""
        return True

    def why_missing(self, metric: str) -> str | None:
        """Returns why trials lack this metric; None if this kind of load knows no reason of its own."""
        return None

    def clock_error(self, metric: str) -> float:
        """Returns how far a trial's figure of this metric may lie from the truth on either side, in the metric's unit,
        since the load's clock is coarse."""
        return 0.0

    def clock_words(self, metric: str) -> str:
        """Returns a clause on the steps in which the load's clock counts this metric; empty if it is not coarse."""
        step_ns = 2 * self.clock_error(metric)
        return f"{CLOCK} counts steps of {format_duration(step_ns)}" if step_ns else ""

    def goodput_words(self, experiment: Experiment) -> str:
        """Returns the name of the metric `goodput_per_s` in sentences."""
        return "goodput"

    # --- driving a trial; a driver is imported when a trial opens it -------------------------------------------------

    def prepare(self, experiment: Experiment, stop: StopRequest) -> None:  # noqa: B027 - most kinds need nothing
        """Fetches and checks what every trial needs, once before a run. Raises PowerbandError."""

    def engine_threads(self, load: Load) -> int:
        """Returns the number of threads for which CPUs are set aside; 0: the subject has all CPUs to itself."""
        return load.engine_threads

    def threads_here(self, experiment: Experiment, load: Load) -> int:
        """Returns how many of these threads are on the server's machine."""
        return 0 if experiment.generators else self.engine_threads(load)

    def may_share_cpus(self, experiment: Experiment) -> bool:
        """True if the server may get all CPUs, those of the load included, when its requests cost much more than the
        load's. False if something else of the bench needs CPUs in each trial: a link's thread, a browser, a database
        that was given its own CPUs before the first trial."""
        subject = experiment.subject
        served = any(uses(subject, service, each) for service in subject.services for each in experiment.settings())
        return not served and not experiment.measure.visitor and not experiment.generators

    def load_words(self, load: Load) -> str:
        """Returns the load as the end of a sentence: `with 64 users that never pause`, `with 500/s offered`; empty if
        it has none."""
        if load.rate_per_s is not None:
            return f"with {format_value(load.rate_per_s, 'per_s')} offered{of_requests(load)}"
        if load.users is None:
            return ""
        users, one = plural(load.users, "user"), load.users == 1
        pause, sends = ("pauses", "sends") if one else ("pause", "send")
        if load.pace is not None:
            return f"with {users} that {sends} every {duration_text(mean_ns(load.pace))}"
        pauses = {mean_ns(step.think or load.think) for step in load.scenario}
        if pauses == {0}:
            return f"with {users} that never {pause}"
        return f"with {users} that {pause} {duration_text(max(pauses)) if len(pauses) == 1 else 'between requests'}"

    def joining_ns(self, load: Load) -> int:
        """Returns the time before the warm-up in which users join, in ns."""
        return load.joining_ns if self.users_join else 0

    def warmup(self, experiment: Experiment, load: Load) -> WarmUp:
        """Returns the warm-up of a trial that compares settings, if no instrument makes it longer."""
        from powerband.loads.driver import WarmUp

        return WarmUp.of(experiment, Stage.COMPARE, load, joining_ns=self.joining_ns(load), pause_ns=0)

    def joining_text(self, experiment: Experiment) -> str:
        """Returns `42,000 users join over 4 min 22 s`, for the setting with the longest joining; empty if all begin at
        once."""
        longest = max(map(experiment.load_for, experiment.settings()), key=self.joining_ns)
        if longest.users is None or not self.joining_ns(longest):
            return ""
        return f"{plural(longest.users, 'user')} join over {time_text(longest.joining_ns)}"

    def counter(self, setup: DriverSetup) -> SubjectCounter | None:
        """Returns the subject's own counter, by which it shows that it is ready; None if it shows that by itself."""
        return None

    @abstractmethod
    def driver(self, setup: DriverSetup, subject: RunningSubject) -> AbstractContextManager[Driver]:
        """Yields the driver once it can go; on leaving, its processes have ended. Raises TrialFailed."""

    def counts_slots(self, experiment: Experiment, load: Load) -> bool:
        """True if the trial is to measure once more with one user and with twice the users, which shows how many
        requests the server serves at once."""
        return False

    def fails_every_trial(self, experiment: Experiment, code: str) -> bool:
        """True if a trial whose load failed with this code shows that all others will fail like it."""
        return False

    # --- measuring a trial; what measures is imported when the first one is measured ---------------------------------

    @property
    def load(self) -> Source:
        """The source of a trial's rates, errors and times, and of the problems of its load generator."""
        from powerband.loads.measured import LOAD

        return LOAD

    @property
    def users(self) -> Source:
        """The source of the metrics of the users that were present, and of their problems."""
        from powerband.loads.measured import USERS

        return USERS

    sends_requests: ClassVar[bool] = True
    """False if nobody sends requests to the subject, so that no request holds a thread or waits."""
    steady_figures: ClassVar[str] = "the rate or the response time"
    """The figures that decide whether a measured window was steady."""

    def loaded(self, fleet: MergedFleet) -> tuple[int, int] | None:
        """Returns start and end in monotonic ns of the load, which ends with its window; what others ask of a deployed
        server goes on, at the same rate. None for a program that works all the time."""
        return min(summary["go_ns"] for summary in fleet.summaries), fleet.end_ns

    def corrected(self, evidence: Evidence) -> Evidence:
        """Returns a trial's evidence, with the figures that the events of this kind of load lack filled in."""
        return evidence

    def stretch_metrics(self, evidence: Evidence) -> dict[str, float]:
        """Returns the metrics of the load over a part of a trial: those that need no summary of the whole."""
        from powerband.loads.measured import stretch_metrics

        return stretch_metrics(evidence)

    def errors(self, evidence: Evidence) -> tuple[ErrorKind, ...]:
        """Returns everything that did not end ok, by kind, since the start of the load."""
        from powerband.loads.failed_requests import error_kinds

        return error_kinds(evidence.fleet, evidence.overflows(), evidence.log, pipeline=evidence.load.pipeline)
