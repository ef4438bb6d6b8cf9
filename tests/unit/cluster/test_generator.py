"""The time that an engine's threads waited for a CPU, on a node without a probe."""

from __future__ import annotations

import os
import threading

import pytest

from powerband.cluster import generator
from powerband.cluster.generator import Waits, waits_of_threads

BEGINS = b'{"type":"phase","phase":"measure"}\n'
SECOND = b'{"type":"interval"}\n'
ENDS = b'{"type":"phase","phase":"drain"}\n'


def told(monkeypatch: pytest.MonkeyPatch, *seen: tuple[bytes, dict[str, tuple[int, int]]]) -> dict[str, int]:
    waits = Waits()
    for line, threads in seen:
        monkeypatch.setattr(generator, "waits_of_threads", lambda pid, threads=threads: threads)
        waits.note(line, 1)
    return waits.sums()


def test_only_the_measured_window_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = [(SECOND, {"1": (1, 1)}), (BEGINS, {"1": (10, 2)}), (SECOND, {"1": (15, 3)}), (ENDS, {"1": (40, 6)})]
    assert told(monkeypatch, *seen, (SECOND, {"1": (900, 90)})) == {"run_wait_ns": 30, "turns": 4}


def test_a_thread_that_ended_with_the_load_counts_as_it_was_seen_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's last line may be read after the threads that loaded have ended; their waits were once subtracted."""
    seen = [(BEGINS, {"1": (10, 2), "2": (500, 9)}), (SECOND, {"1": (11, 3), "2": (900, 19)}), (ENDS, {"1": (12, 4)})]
    assert told(monkeypatch, *seen) == {"run_wait_ns": 402, "turns": 12}


def test_a_thread_that_began_in_the_window_counts_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = [(BEGINS, {"1": (10, 2)}), (ENDS, {"1": (10, 2), "7": (5, 1)})]
    assert told(monkeypatch, *seen) == {"run_wait_ns": 5, "turns": 1}


@pytest.mark.parametrize("seen", [[], [(BEGINS, {"1": (1, 1)})], [(BEGINS, {}), (ENDS, {})]])
def test_without_a_whole_window_or_a_kernel_that_tells_nothing_is_known(
    seen: list[tuple[bytes, dict[str, tuple[int, int]]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert told(monkeypatch, *seen) == {}


def test_every_thread_of_a_process_is_read() -> None:
    halt = threading.Event()
    thread = threading.Thread(target=halt.wait)
    thread.start()
    try:
        assert {str(thread.native_id), str(os.getpid())} <= set(waits_of_threads(os.getpid()))
    finally:
        halt.set()
        thread.join()
