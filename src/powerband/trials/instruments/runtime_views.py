"""Finds how many CPUs the server's language runtimes believe to have, and what they chose by it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from powerband.base.procfs import all_processes, tree_of
from powerband.model.runtime import RuntimeView
from powerband.processes.engine_process import Pump
from powerband.processes.runtimes import runtime_views
from powerband.processes.subject_process import RunningSubject
from powerband.trials.instruments.instrument import Instrument


class RuntimeViews(Instrument):
    """Looks after the load: by then all processes have begun, and asking a JVM disturbs nothing."""

    def __init__(self) -> None:
        self._views: tuple[RuntimeView, ...] = ()

    def after_load(self, subject: RunningSubject, pump: Pump) -> None:
        """Asks each process of the server."""
        if subject.root_pid is not None:
            self._views = runtime_views(tree_of(subject.root_pid, all_processes()))

    def record(self) -> dict[str, Any]:
        return {"runtimes": tuple(asdict(view) for view in self._views)}
