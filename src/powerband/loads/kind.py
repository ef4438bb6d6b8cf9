"""What each kind of load is to the rest of powerband: one object that knows its part in every phase of a run.

Not here: which kind an experiment has (`loads/__init__.py`), and the parts themselves (the folder of each kind).
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, ClassVar

from powerband.model.experiment import Experiment
from powerband.model.load import Load

if TYPE_CHECKING:
    from powerband.loads.driver import Driver, DriverSetup
    from powerband.processes.subject_process import RunningSubject, SubjectCounter


class LoadKind:
    """A kind of load. What a method returns here holds for every kind that does not say otherwise."""

    name: ClassVar[str]
    users_join: ClassVar[bool] = False
    """Whether each user opens a connection that it keeps, before it sends anything."""

    # --- driving a trial; a driver is imported when a trial opens it -------------------------------------------------

    def prepare(self, experiment: Experiment) -> None:
        """Fetches and checks what every trial needs, once before a run. Raises PowerbandError."""

    def engine_threads(self, load: Load) -> int:
        """The threads for which CPUs are set aside; 0: the subject has all CPUs to itself."""
        return load.engine_threads

    def joining_ns(self, load: Load) -> int:
        """The time before the warm-up in which users join."""
        return load.joining_ns if self.users_join else 0

    def counter(self, setup: DriverSetup) -> SubjectCounter | None:
        """The subject's own counter, by which it shows that it is ready; None: it shows that by itself."""
        return None

    def driver(self, setup: DriverSetup, subject: RunningSubject) -> AbstractContextManager[Driver]:
        """Yields the driver once it can be told to go; on leaving, its processes have ended. Raises TrialFailed."""
        raise NotImplementedError

    def fails_every_trial(self, experiment: Experiment, code: str) -> bool:
        """Whether a trial whose load failed with this code shows that all others fail like it."""
        return False
