"""No load: the program drives itself, and a counter says how much it does."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from powerband.loads.kind import LoadKind
from powerband.model.load import Load

if TYPE_CHECKING:
    from powerband.loads.counted.driver import Counted
    from powerband.loads.driver import Driver, DriverSetup
    from powerband.processes.subject_process import RunningSubject


class SelfDriven(LoadKind):
    """No load: the program drives itself, and a counter says how much it does."""

    name = "counted"

    def engine_threads(self, load: Load) -> int:
        return 0

    def counter(self, setup: DriverSetup) -> Counted:
        from powerband.loads.counted.driver import counted_by

        return counted_by(setup)

    def driver(self, setup: DriverSetup, subject: RunningSubject) -> AbstractContextManager[Driver]:
        from powerband.loads.counted.driver import Counted

        assert isinstance(subject.counter, Counted), "subject_up was given the counter"
        return nullcontext(subject.counter)
