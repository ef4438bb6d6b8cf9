"""Finds how many CPUs the server's language runtimes believe to have, and what they chose by it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict
from typing import Any

from powerband.base.procfs import process_stat
from powerband.model.runtime import RuntimeView
from powerband.processes.engine_process import Pump
from powerband.processes.runtimes import runtime_views
from powerband.processes.subject_process import RunningSubject
from powerband.trials.instruments.instrument import Instrument

# Of the CPU time that the busiest process uses under load: one that uses less only starts others, or watches over them.
HARDLY_RUNS = 0.01


class RuntimeViews(Instrument):
    """Looks after the load: by then all processes have begun, and asking a JVM disturbs nothing."""

    def __init__(self) -> None:
        self._before: dict[int, int] = {}
        self._views: tuple[RuntimeView, ...] = ()

    def around_load(self, subject: RunningSubject, pump: Pump) -> AbstractContextManager[object]:
        """Reads the CPU time of each process of the server before the load."""
        self._before = _cpu_ticks(subject.pids())
        return nullcontext()

    def after_load(self, subject: RunningSubject, pump: Pump) -> None:
        """Asks each process of the server."""
        used = {pid: ticks - self._before.get(pid, 0) for pid, ticks in _cpu_ticks(subject.pids()).items()}
        least = max(1.0, HARDLY_RUNS * max(used.values(), default=0))
        self._views = runtime_views(used, {pid for pid, ticks in used.items() if ticks >= least})

    def record(self) -> dict[str, Any]:
        return {"runtimes": tuple(asdict(view) for view in self._views)}


def _cpu_ticks(pids: Iterable[int]) -> dict[int, int]:
    """The CPU time of each of these processes that still runs, in clock ticks."""
    found = {}
    for pid in pids:
        with suppress(OSError):
            stat = process_stat(pid)
            if stat.state != "Z":
                found[pid] = stat.cpu_ticks
    return found
