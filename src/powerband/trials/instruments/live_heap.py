"""What lives on the heaps of the subject's JVMs once the load is gone.

A heap fills with what nobody uses any more until it is collected, its old generation for minutes. So whether it keeps
what it gained is asked of the JVM: a class histogram counts what a full collection leaves. Where snapshots are taken
(`heap_snapshots.py`), theirs is used.
"""

from __future__ import annotations

import re
import time
from typing import Any

from powerband.processes.engine_process import Pump
from powerband.processes.jvm_attach import NotAnsweredError, asked
from powerband.processes.subject_process import RunningSubject
from powerband.trials.instruments.instrument import Instrument

_WITHIN_S = 5.0  # for all JVMs of a subject together
_POLL_S = 0.02  # arbitrary: later than the answer by so much at the most
_TOTAL = re.compile(r"^Total\s+\d+\s+(\d+)\s*$", re.MULTILINE)


class LiveHeap(Instrument):
    """Asks each JVM after the load. One that cannot be asked, or does not answer in time, is not in the record."""

    name = "live heap"

    def __init__(self) -> None:
        self._bytes: dict[int, int] = {}

    def after_load(self, subject: RunningSubject, pump: Pump) -> None:
        deadline_s = time.monotonic() + _WITHIN_S
        for pid in [jvm["pid"] for jvm in subject.probe.jvms()]:
            live = _live_bytes(pid, subject, pump, deadline_s)
            if live is not None:
                self._bytes[pid] = live

    def record(self) -> dict[str, Any]:
        return {"live_heap": {str(pid): live for pid, live in self._bytes.items()}}


def _live_bytes(pid: int, subject: RunningSubject, pump: Pump, deadline_s: float) -> int | None:
    try:
        with asked(pid, "jcmd", "GC.class_histogram", deadline_s=deadline_s) as answer:
            while not pump.wait(answer.arrived, _POLL_S) and time.monotonic() < deadline_s:
                subject.check_alive()
            found = _TOTAL.search(answer.text())
    except NotAnsweredError:
        return None
    return None if found is None else int(found[1])
