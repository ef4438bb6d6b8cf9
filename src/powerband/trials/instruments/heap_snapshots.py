"""Takes class histograms of the heaps of a server's JVMs, just before the measured window and just after it.

In: a running server. Out: a file for each JVM and moment, and for the record when it was taken, how long that took, or
why there is none. A histogram costs the JVM a full collection and stops it meanwhile. So it is taken while nothing is
measured, and the probe reads the JVMs once more before the window begins, so that no part of it counts towards the
window. Not here: which classes grew (`analyze/trial/heap_growth.py`).
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
from powerband.processes.jvm_attach import NotAnsweredError, command_sent
from powerband.processes.subject_process import RunningSubject
from powerband.store import open_private, snapshot_file, writing
from powerband.trials.instruments.instrument import Instrument

When = Literal["before", "after"]

ANSWER_S = 20.0  # for all JVMs of a server together: long, since snapshots of large heaps are worth the wait
READING_S = 2.5  # the probe reads JVMs four times a second, and finds a new one after some readings
LONGEST_S = 2 * ANSWER_S + 2 * READING_S
_POLL_S = 0.02  # the error of `took_ns`

Wait = Callable[[Callable[[], bool], float], bool]
"""A function that waits until a condition is true, or for so many seconds; returns whether it is true."""


@dataclass(frozen=True)
class Snapshot:
    """The snapshot of one JVM. `when`: before or after the measured window; `pid`: None if no JVM was found. `at_ns`:
    monotonic instant at which it was asked for; `took_ns`: from then to the whole answer. `failed`: the reason why
    there is no snapshot, else empty."""

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
        """Takes the snapshots before the window, as `take_snapshots`."""
        self._take("before", subject, pump)

    def after_load(self, subject: RunningSubject, pump: Pump) -> None:
        """Takes the snapshots after the load, as `take_snapshots`."""
        self._take("after", subject, pump)

    def record(self) -> dict[str, Any]:
        return {"snapshots": tuple(asdict(snapshot) for snapshot in self._taken)}

    def _take(self, when: When, subject: RunningSubject, pump: Pump) -> None:
        self._announce("snapshot")
        self._taken += take_snapshots(when, subject, self._folder, pump)


def take_snapshots(when: When, subject: RunningSubject, folder: Path, pump: Pump) -> list[Snapshot]:
    """Takes a snapshot of each JVM. Before a window, it then waits for as long again, so that the server catches up on
    the work that the histograms kept it from. A JVM that does not answer is noted in its snapshot, and is no error.

    Raises TrialFailed if the server ends or on a stop request, MeasurementError if the disk cannot be written."""
    wait = partial(wait_alive, subject, pump)
    if when == "after":
        settle(subject, wait, 0)
    taken = _of_all(when, subject, folder, wait)
    if when == "before":
        settle(subject, wait, sum(snapshot.took_ns for snapshot in taken))
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
    """The class histogram of the live objects of a JVM, which does a full collection for it. Raises NotAnsweredError,
    and the errors of `wait`."""
    with command_sent(pid, "jcmd", "GC.class_histogram", deadline_s=deadline_s) as answer:
        # In short steps, since `wait` checks only when another line arrives, and the length of the answer is recorded.
        while not wait(answer.arrived, _POLL_S) and time.monotonic() < deadline_s:
            pass
        return answer.text()


def settle(subject: RunningSubject, wait: Wait, at_least_ns: int) -> None:
    """Waits until the probe has read the JVMs once more and `at_least_ns` have passed, for 2.5 s at most beside these;
    returns at once without JVMs. Raises the errors of `wait`."""
    begun_ns = time.monotonic_ns()
    jvms = subject.probe.jvms
    if jvms():
        wait(lambda: bool(jvms()[-1]["at_ns"] >= begun_ns), READING_S)
        wait(lambda: time.monotonic_ns() >= begun_ns + at_least_ns, at_least_ns / 1e9)


def wait_alive(subject: RunningSubject, pump: Pump, done: Callable[[], bool], timeout_s: float) -> bool:
    """Waits until `done` is true, or for `timeout_s`; returns whether it is true. Raises TrialFailed if the server
    ends, TrialInterrupted on a stop request."""

    def check() -> bool:
        subject.check_alive()
        return done()

    return pump.wait(check, timeout_s)
