"""Gets the full names of a JVM's threads, since the kernel keeps only 15 bytes of each."""

from __future__ import annotations

from typing import Any

from powerband.processes.engine_process import Pump
from powerband.processes.subject_process import RunningSubject
from powerband.trials.instruments.instrument import Instrument


class ThreadNames(Instrument):
    """Asks the server's JVMs after the load, since asking stops them for a moment."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def after_load(self, subject: RunningSubject, pump: Pump) -> None:
        """Asks each JVM for the names of its threads."""
        self._names = subject.thread_names()

    def record(self) -> dict[str, Any]:
        return {"thread_names": {str(tid): name for tid, name in self._names.items()}}
