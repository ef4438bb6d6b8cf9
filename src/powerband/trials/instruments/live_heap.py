"""What lives on the heaps of the subject's JVMs once the load is gone.

A heap fills with what nobody uses any more until it is collected, its old generation for minutes. So whether it keeps
what it gained is asked of the JVM: a class histogram counts what a full collection leaves. Where snapshots are taken
(`heap_snapshots.py`), theirs is used.
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
from powerband.trials.instruments.heap_snapshots import class_histogram, wait_alive
from powerband.trials.instruments.instrument import Instrument

_WITHIN_S = 5.0  # for all JVMs of a subject together: arbitrary, the trial is over; a larger heap has no answer
_TOTAL = re.compile(r"^Total\s+\d+\s+(\d+)\s*$", re.MULTILINE)


class LiveHeap(Instrument):
    """Asks each JVM after the load. One that cannot be asked, or does not answer in time, is not in the record."""

    def __init__(self) -> None:
        self._bytes: dict[int, int] = {}

    def after_load(self, subject: RunningSubject, pump: Pump) -> None:
        deadline_s = time.monotonic() + _WITHIN_S
        for pid in [jvm["pid"] for jvm in subject.probe.jvms()]:
            with suppress(NotAnsweredError):
                text = class_histogram(pid, partial(wait_alive, subject, pump), deadline_s)
                if found := _TOTAL.search(text):
                    self._bytes[pid] = int(found[1])

    def record(self) -> dict[str, Any]:
        return {"live_heap": {str(pid): live for pid, live in self._bytes.items()}}
