"""Measures the garbage collectors of the server's Go programs during the load, whose work no thread shows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from powerband.base.procfs import all_processes, tree_of
from powerband.processes.engine_process import Pump
from powerband.processes.go_memory import GoCollected, collected, go_variables
from powerband.processes.subject_process import RunningSubject
from powerband.trials.instruments.instrument import Instrument


class GoCollector(Instrument):
    """Reads the collector's variables from the memory of each Go program before and after the load, which takes a
    millisecond each time."""

    def __init__(self) -> None:
        self._found: dict[int, GoCollected | None] = {}

    @contextmanager
    def around_load(self, subject: RunningSubject, pump: Pump) -> Iterator[None]:
        """Reads the variables of all Go programs before the load and after it."""
        before = go_variables(_pids(subject))
        yield
        self._found = collected(before, _pids(subject))

    def record(self) -> dict[str, Any]:
        return {
            "go_collected": {str(pid): None if found is None else asdict(found) for pid, found in self._found.items()}
        }


def _pids(subject: RunningSubject) -> set[int]:
    return set() if subject.root_pid is None else tree_of(subject.root_pid, all_processes())
