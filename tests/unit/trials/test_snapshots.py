"""Snapshots of JVMs that answer, refuse, are slow or have gone; this process plays the JVM, with a socket like
theirs."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from powerband.processes.engine_process import EngineProcess, Pump
from powerband.processes.line_file import LineFile
from powerband.processes.probe_process import RunningProbe
from powerband.processes.stop_request import StopRequest
from powerband.processes.subject_process import RunningSubject
from powerband.store import TrialDir, snapshot_file
from powerband.trials.instruments import heap_snapshots as snapshots
from powerband.trials.instruments import live_heap
from powerband.trials.instruments.heap_snapshots import Snapshot, take_snapshots
from powerband.trials.instruments.live_heap import LiveHeap

HISTOGRAM = "   1:  58632  5230912  [B (java.base@17.0.15)\nTotal  58632  5230912\n"


class FakeSubject:
    """A subject whose probe reads these JVMs all the time."""

    def __init__(self, *pids: int) -> None:
        self.pids = pids
        self.probe = self

    def jvms(self) -> list[dict[str, Any]]:
        return [{"pid": pid, "at_ns": time.monotonic_ns()} for pid in self.pids]

    def check_alive(self) -> None:
        pass


@contextmanager
def jvm(answer: bytes | None) -> Iterator[list[bytes]]:
    """Plays a JVM, and yields the list of the questions that it was asked. `answer` None: it does not answer."""
    path, questions = Path(f"/tmp/.java_pid{os.getpid()}"), []
    over = threading.Event()

    def serve(listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                questions.append(connection.recv(1000))
                if answer is None:
                    over.wait(20)
                else:
                    connection.sendall(answer)

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        try:
            yield questions
        finally:
            path.unlink()
            over.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(20)


@pytest.fixture
def take(tmp_path: Path) -> Iterator[Callable[..., list[Snapshot]]]:
    stop = StopRequest()
    with Pump(stop) as pump:
        yield lambda when, *pids: take_snapshots(
            when, cast("RunningSubject", FakeSubject(*pids)), TrialDir(tmp_path).snapshots, pump
        )
    stop.close()


def test_each_jvm_is_asked_for_what_lives_and_its_answer_is_kept(
    take: Callable[..., list[Snapshot]], tmp_path: Path
) -> None:
    with jvm(f"0\n{HISTOGRAM}".encode()) as questions:
        begun_ns = time.monotonic_ns()
        (before,) = take("before", os.getpid())
        (after,) = take("after", os.getpid())
    assert questions == [b"1\0jcmd\0GC.class_histogram\0\0\0"] * 2
    assert (before.when, before.pid, before.failed) == ("before", os.getpid(), "")
    assert begun_ns <= before.at_ns <= before.at_ns + before.took_ns <= after.at_ns
    folder = TrialDir(tmp_path).snapshots
    assert snapshot_file(folder, "before", os.getpid()).read_text() == HISTOGRAM
    assert TrialDir(tmp_path).read_snapshots() == {(when, os.getpid()): HISTOGRAM for when in ("before", "after")}
    assert json.loads(json.dumps(asdict(after)))["when"] == "after"


def test_one_that_refuses_or_is_gone_is_told_of_beside_one_that_answers(take: Callable[..., list[Snapshot]]) -> None:
    gone = 2**22 + os.getpid()
    with jvm(f"0\n{HISTOGRAM}".encode()):
        fine, lost = take("after", os.getpid(), gone)
    assert fine.failed == "" and lost.pid == gone and "No such file" in lost.failed
    with jvm(b"1\nUnknown diagnostic command\n"):
        (refused,) = take("before", os.getpid())
    assert refused.failed == "the JVM refuses: Unknown diagnostic command"


def test_one_that_does_not_answer_is_waited_for_so_long_and_no_longer(
    take: Callable[..., list[Snapshot]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(snapshots, "ANSWER_S", 0.2)
    with jvm(None):
        (slow,) = take("after", os.getpid())
    assert slow.failed == "the JVM did not answer in time"
    assert slow.took_ns >= 200_000_000
    assert TrialDir(tmp_path).read_snapshots() == {}


def test_without_a_jvm_it_is_said(take: Callable[..., list[Snapshot]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "READING_S", 0.05)
    (none,) = take("before")
    assert none.pid is None and "no JVM was found" in none.failed and "-XX:-UsePerfData" in none.failed


def test_after_a_snapshot_the_load_goes_on_for_as_long_and_until_jvms_were_read_once_more(
    take: Callable[..., list[Snapshot]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "ANSWER_S", 0.3)
    with jvm(None):
        begun_ns = time.monotonic_ns()
        (slow,) = take("before", os.getpid())
        passed_ns = time.monotonic_ns() - begun_ns
    assert passed_ns >= 2 * slow.took_ns


def test_the_probe_knows_the_jvms_that_are_there(tmp_path: Path) -> None:
    def told(pid: int, at_s: float) -> bytes:
        event = {"type": "jvm", "at_ns": round(at_s * 1e9), "tree": "subject", "pid": pid}
        return (json.dumps(event, separators=(",", ":")) + "\n").encode()  # as the engine writes

    with LineFile(tmp_path / "probe.jsonl") as lines:
        probe = RunningProbe(cast("EngineProcess", None), lines, 1.0)
        assert probe.jvms() == []
        for pid, at_s in ((1, 1.0), (2, 1.0), (2, 2.0), (1, 2.0), (3, 2.0), (2, 5.0), (1, 5.0)):
            probe.on_line(told(pid, at_s))
        assert [jvm["pid"] for jvm in probe.jvms()] == [2, 1]
        assert probe.jvms()[-1]["at_ns"] == 5_000_000_000


class SeldomRead(FakeSubject):
    """A subject whose probe reads its JVMs every 200 ms."""

    def jvms(self) -> list[dict[str, Any]]:
        return [{"pid": pid, "at_ns": time.monotonic_ns() // 200_000_000 * 200_000_000} for pid in self.pids]


def test_jvms_are_read_once_more_before_what_lives_is_counted_after_a_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """The collection for it would count towards the window, whose end lies between two readings."""
    subject, read_ns = SeldomRead(7), []

    def counted(*_: object) -> str:
        read_ns.append(subject.jvms()[-1]["at_ns"])
        return HISTOGRAM

    monkeypatch.setattr(live_heap, "class_histogram", counted)
    heap, stop = LiveHeap(), StopRequest()
    ended_ns = time.monotonic_ns()
    with Pump(stop) as pump:
        heap.after_load(cast("RunningSubject", subject), pump)
    stop.close()
    assert heap.record() == {"live_heap": {"7": 5_230_912}}
    assert read_ns[0] >= ended_ns


def test_without_a_jvm_nothing_is_waited_for() -> None:
    heap = LiveHeap()
    heap.after_load(cast("RunningSubject", FakeSubject()), MagicMock(wait=lambda *_: pytest.fail("it waits")))
    assert heap.record() == {"live_heap": {}}


def test_a_jvm_that_has_ended_after_the_load_costs_its_figure_and_no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ended(FakeSubject):
        def jvms(self) -> list[dict[str, Any]]:
            return [{"pid": pid, "at_ns": 0} for pid in self.pids]

        def check_alive(self) -> None:
            pytest.fail("a server that ended is no failure here")

    monkeypatch.setattr(snapshots, "READING_S", 0.05)
    heap, stop = LiveHeap(), StopRequest()
    with Pump(stop) as pump:
        heap.after_load(cast("RunningSubject", Ended(2**22 + os.getpid())), pump)
    stop.close()
    assert heap.record() == {"live_heap": {}}
