"""Users or arrivals that send HTTP/1.1 requests: the kind of every load that is no other."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from powerband.loads.kind import LoadKind
from powerband.model.experiment import Experiment
from powerband.processes.failures import Code

if TYPE_CHECKING:
    from powerband.loads.driver import Driver, DriverSetup
    from powerband.processes.subject_process import RunningSubject


class Http(LoadKind):
    """Users or arrivals that send HTTP/1.1 requests: the kind of every load that is no other."""

    name = "http"

    def driver(self, setup: DriverSetup, subject: RunningSubject) -> AbstractContextManager[Driver]:
        from powerband.loads.http.driver import engines_up

        return engines_up(setup, subject)

    def fails_every_trial(self, experiment: Experiment, code: str) -> bool:
        """A limit of this machine, where no factor changes the load."""
        limits = (Code.DESCRIPTOR_LIMIT, Code.PORT_LIMIT)
        return code in limits and not any(name.startswith("load.") for name in experiment.factors)
