"""The place where the engines of a load run: this machine, or others (`cluster/far_engines.py`).

A fleet starts its engines through `Engines`, and need not know where they run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from powerband.base.hosts import LOCAL
from powerband.processes.engine_process import EngineProcess, LineSource, descriptor_limit
from powerband.processes.ports import local_ports
from powerband.wire.message import Wire


class Engine(LineSource, Protocol):
    """A started engine. Leaving its context ends it."""

    @property
    def pid(self) -> int | None:
        """The pid; None if it is no process of this machine."""

    def __enter__(self) -> Engine: ...

    def __exit__(self, *error: object) -> None: ...

    def send(self, message: Wire) -> None:
        """Sends one message, whose instants are by this machine's clock."""

    def wait(self, timeout_s: float) -> int | None:
        """Returns the exit status once its lines have ended, negative for a signal; None if it still runs after
        `timeout_s`."""


class Engines(Protocol):
    """A way to start the engines of a load on one machine or several, and the limits that hold there."""

    @property
    def apart(self) -> bool:
        """True if the engines run on other machines than the server."""

    @property
    def address(self) -> str:
        """The address at which the engines reach the server's machine."""

    @property
    def machines(self) -> int:
        """How many machines the engines share."""

    @property
    def descriptor_limit(self) -> int:
        """How many descriptors one engine may open, on each of the machines."""

    @property
    def local_ports(self) -> int:
        """How many connections each of the machines may open to one destination."""

    @property
    def lead_ns(self) -> int:
        """How much longer a command takes to get there than on this machine, in ns."""

    def before(self) -> None:
        """Called before the engines of a fleet are started."""

    def start(self, index: int, stderr_file: Path) -> Engine:
        """Starts the engine of this index in its fleet; its stderr is appended to the file. Raises MeasurementError."""

    def after(self) -> dict[str, Any]:
        """Called once the engines of a fleet have ended; returns the fields that they add to the trial's record. Raises
        MeasurementError."""


class EnginesHere:
    """Engines that are processes of this machine."""

    apart = False
    address = LOCAL
    machines = 1
    lead_ns = 0

    def __init__(self, binary: Path) -> None:
        self._binary = binary

    @property
    def descriptor_limit(self) -> int:
        return descriptor_limit()

    @property
    def local_ports(self) -> int:
        return local_ports()

    def before(self) -> None: ...

    def start(self, index: int, stderr_file: Path) -> EngineProcess:
        return EngineProcess([str(self._binary), "load"], stderr_file)

    def after(self) -> dict[str, Any]:
        return {}
