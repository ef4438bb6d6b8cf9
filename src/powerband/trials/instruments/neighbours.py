"""Finds the other programs of this machine that used CPU while the trial was loaded, by name."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from powerband.processes.engine_process import Pump
from powerband.processes.other_programs import processes, used_by_others
from powerband.processes.subject_process import RunningSubject
from powerband.trials.instruments.instrument import Instrument


class Neighbours(Instrument):
    """Reads /proc before the load and after it: some milliseconds each, when nothing is measured."""

    def __init__(self) -> None:
        self._used: list[tuple[str, float]] = []
        self._took_s = 0.0

    @contextmanager
    def around_load(self, subject: RunningSubject, pump: Pump) -> Iterator[None]:
        """Reads the CPU times of all processes before the load and after it, whatever ended the load."""
        before, begun_s = processes(), time.monotonic()
        try:
            yield
        finally:
            self._took_s = time.monotonic() - begun_s
            ours = [pid for pid in (os.getpid(), subject.root_pid) if pid is not None]
            self._used = used_by_others(before, processes(), *ours)

    def record(self) -> dict[str, Any]:
        cores = {name: round(cpu_s / self._took_s, 4) for name, cpu_s in self._used if self._took_s}
        return {"neighbours": cores}
