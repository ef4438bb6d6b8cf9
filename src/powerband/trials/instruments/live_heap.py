"""Measures the live bytes on the heaps of the server's JVMs after the load.

A heap fills with dead objects until it is collected, its old generation for minutes. So a JVM is asked for a class
histogram, which counts what a full collection leaves, to see if the heap really grew; first the probe reads it once
more, so that no part of that collection counts towards the window. If snapshots are taken (`heap_snapshots.py`), those
are used instead.
"""

from __future__ import annotations

import re
import time
from contextlib import suppress
from functools import partial
from typing import Any

from powerband.processes.engine_process import Pump
from powerband.processes.jvm_attach import NotAnsweredError
from powerband.processes.subject_process import RunningSubject
from powerband.trials.instruments.heap_snapshots import class_histogram, settle, wait_alive
from powerband.trials.instruments.instrument import Instrument

_WITHIN_S = 5.0  # for all JVMs of a server together: arbitrary, since the trial is over; larger heaps get no figure
_TOTAL = re.compile(r"^Total\s+\d+\s+(\d+)\s*$", re.MULTILINE)


class LiveHeap(Instrument):
    """Asks each JVM after the load. A JVM that cannot be asked, or does not answer in time, is not in the record."""

    def __init__(self) -> None:
        self._bytes: dict[int, int] = {}

    def after_load(self, subject: RunningSubject, pump: Pump) -> None:
        """Counts the live bytes of each JVM, by a full collection."""
        settle(subject, pump.wait, 0)  # a server may end by itself now
        deadline_s = time.monotonic() + _WITHIN_S
        for pid in [jvm["pid"] for jvm in subject.probe.jvms()]:
            with suppress(NotAnsweredError):
                text = class_histogram(pid, partial(wait_alive, subject, pump), deadline_s)
                if found := _TOTAL.search(text):
                    self._bytes[pid] = int(found[1])

    def record(self) -> dict[str, Any]:
        return {"live_heap": {str(pid): live for pid, live in self._bytes.items()}}
