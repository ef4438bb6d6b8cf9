"""Class histograms of the heaps of a subject's JVMs, just before the measured window and just after it.

In: a running subject. Out: a file for each JVM and moment, and for the record when it was taken, how long that took, or
why there is none. A histogram costs the JVM a full collection and stops it meanwhile. So it is taken while nothing is
measured, and the probe reads the JVMs once more before the window begins: no part of it counts to the window.
Not here: which classes grew (`analyze/trial/heap_growth.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from powerband.loads.driver import TrialSetup
from powerband.processes.engine_process import Pump
from powerband.processes.jvm_attach import NotAnsweredError, asked
from powerband.processes.subject_process import RunningSubject
from powerband.store import open_private, snapshot_file, writing
from powerband.trials.instruments.instrument import Instrument

When = Literal["before", "after"]

ANSWER_S = 20.0  # for all JVMs of a subject together: asked for, so that large heaps are waited for
READING_S = 2.5  # the probe reads JVMs four times a second, and finds one within some looks
LONGEST_S = 2 * ANSWER_S + 2 * READING_S
_POLL_S = 0.02  # the length of an answer is exact to so much

Wait = Callable[[Callable[[], bool], float], bool]
"""Waits until something is so, or for so many seconds: whether it was so."""


@dataclass(frozen=True)
class Snapshot:
    """`at_ns`: monotonic, when it was asked for. `pid` None: no JVM was found. `failed`: why there is none, else
    empty."""

    when: When
    pid: int | None
    at_ns: int
    took_ns: int
    failed: str = ""


class HeapSnapshots(Instrument):
    """Takes a snapshot of each JVM just before the measured window and just after it."""

    pause_ns = round(LONGEST_S * 1e9)

    def __init__(self, setup: TrialSetup, announce: Callable[[str], None]) -> None:
        self._folder = setup.directory.snapshots
        self._announce = announce
        self._taken: list[Snapshot] = []

    def before_window(self, subject: RunningSubject, pump: Pump) -> None:
        self._take("before", subject, pump)

    def after_load(self, subject: RunningSubject, pump: Pump) -> None:
        self._take("after", subject, pump)

    def record(self) -> dict[str, Any]:
        return {"snapshots": tuple(asdict(snapshot) for snapshot in self._taken)}

    def _take(self, when: When, subject: RunningSubject, pump: Pump) -> None:
        self._announce("snapshot")
        self._taken += take_snapshots(when, subject, self._folder, pump)


def take_snapshots(when: When, subject: RunningSubject, folder: Path, pump: Pump) -> list[Snapshot]:
    """Takes one of each JVM. Before a window the subject then gets as much time again, to make up for the work that the
    histograms kept it from. A JVM that does not answer is noted in its snapshot, and is no error.

    Raises TrialFailed where the subject ends or a person wants to stop, MeasurementError where the disk refuses."""
    wait = partial(wait_alive, subject, pump)
    if when == "after":
        _settle(subject, wait, 0)
    taken = _of_all(when, subject, folder, wait)
    if when == "before":
        _settle(subject, wait, sum(snapshot.took_ns for snapshot in taken))
    return taken


def _of_all(when: When, subject: RunningSubject, folder: Path, wait: Wait) -> list[Snapshot]:
    if not wait(lambda: bool(subject.probe.jvms()), READING_S):
        failed = "no JVM was found in the server; one that was started with -XX:-UsePerfData cannot be seen"
        return [Snapshot(when, None, time.monotonic_ns(), 0, failed)]
    deadline_s = time.monotonic() + ANSWER_S
    return [_of_one(when, jvm["pid"], folder, wait, deadline_s) for jvm in subject.probe.jvms()]


def _of_one(when: When, pid: int, folder: Path, wait: Wait, deadline_s: float) -> Snapshot:
    begun_ns = time.monotonic_ns()
    text = failed = ""
    try:
        text = class_histogram(pid, wait, deadline_s)
    except NotAnsweredError as error:
        failed = str(error)
    took_ns = time.monotonic_ns() - begun_ns
    if not failed:
        path = snapshot_file(folder, when, pid)
        with writing(path):
            folder.mkdir(mode=0o700, exist_ok=True)
            with open_private(path, "w") as file:
                file.write(text)
    return Snapshot(when, pid, begun_ns, took_ns, failed)


def class_histogram(pid: int, wait: Wait, deadline_s: float) -> str:
    """What lives on the heap of a JVM, which collects all first. Raises NotAnsweredError, and what `wait` raises."""
    with asked(pid, "jcmd", "GC.class_histogram", deadline_s=deadline_s) as answer:
        # In short steps, since a wait looks again only when something else has happened: its length is recorded.
        while not wait(answer.arrived, _POLL_S) and time.monotonic() < deadline_s:
            pass
        return answer.text()


def _settle(subject: RunningSubject, wait: Wait, at_least_ns: int) -> None:
    """Until the probe has read the JVMs once more, where there are any, and for so long."""
    begun_ns = time.monotonic_ns()
    jvms = subject.probe.jvms
    if jvms():
        wait(lambda: bool(jvms()[-1]["at_ns"] >= begun_ns), READING_S)
        wait(lambda: time.monotonic_ns() >= begun_ns + at_least_ns, at_least_ns / 1e9)


def wait_alive(subject: RunningSubject, pump: Pump, done: Callable[[], bool], timeout_s: float) -> bool:
    def check() -> bool:
        subject.check_alive()
        return done()

    return pump.wait(check, timeout_s)
