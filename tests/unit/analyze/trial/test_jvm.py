from __future__ import annotations

import pytest

from powerband.analyze.trial.processes import jvm_metrics
from powerband.readings.probe_samples import ProbeSamples, read_probe

S = 10**9


def probe_of(*jvms: list[dict[str, object]]) -> ProbeSamples:
    sample = {"type": "sample", "at_ns": 0, "trees": [], "host": {"cpu_busy_ns": 0}}
    found = read_probe([sample, *(event for jvm in jvms for event in jvm)])
    assert found is not None
    return found


def jvm(pid: int, at_s: int, **figures: object) -> dict[str, object]:
    usual = {
        "heap_used_bytes_now": 100,
        "heap_committed_bytes_now": 1000,
        "collectors": [
            {"name": "young", "count": at_s, "time_ns": at_s * 10_000_000},
            {"name": "old", "count": 0, "time_ns": 0},
        ],
        "safepoint_ns": None,
        "threads_live_now": 10,
        "threads_daemon_now": 1,
        "threads_peak": 12,
        "threads_started": 20 * at_s,
    }
    return {"type": "jvm", "at_ns": at_s * S, "tree": "subject", "pid": pid, **usual, **figures}


def test_figures_over_the_window() -> None:
    events = [
        jvm(1, at, heap_used_bytes_now=100 * at, safepoint_ns=at * 20_000_000, compile_ns=at * 300_000_000)
        for at in range(6)
    ]
    assert "jvm_heap_used_bytes_max" not in dict(jvm_metrics(probe_of(events[:2]).jvms, 0, S // 2)), "not told yet"
    found = dict(jvm_metrics(probe_of(events).jvms, 1 * S, 5 * S))
    assert found["jvm_heap_used_bytes_max"] == 500 and found["jvm_heap_used_bytes_mean"] == 300
    assert found["jvm_gc_share"] == pytest.approx(0.01) and found["jvm_gc_per_s"] == pytest.approx(1)
    assert found["jvm_safepoint_share"] == pytest.approx(0.02)
    assert found["jvm_compile_share"] == pytest.approx(0.3)
    assert found["jvm_threads_started_per_s"] == pytest.approx(20)


def test_several_jvms_are_added_up_and_what_is_not_told_is_left_out() -> None:
    probe = probe_of([jvm(1, at) for at in range(4)], [jvm(2, at, threads_live_now=5) for at in range(4)])
    found = dict(jvm_metrics(probe.jvms, 0, 3 * S))
    assert found["jvm_threads_live_max"] == 15 and found["jvm_heap_committed_bytes_max"] == 2000
    assert found["jvm_gc_per_s"] == pytest.approx(2)
    assert "jvm_safepoint_share" not in found
    assert not dict(jvm_metrics((), 0, S))


def test_of_several_jvms_shares_of_the_window_are_those_of_the_one_with_the_largest() -> None:
    """Two JVMs that each collect for 0.6 of the time do not collect for 1.2 of it."""

    def events(pid: int, share: float) -> list[dict[str, object]]:
        collectors = [[{"name": "young", "count": at, "time_ns": round(share * at * S)}] for at in range(4)]
        return [jvm(pid, at, collectors=collectors[at], safepoint_ns=round(share * at * S)) for at in range(4)]

    found = dict(jvm_metrics(probe_of(events(1, 0.6), events(2, 0.55)).jvms, 0, 3 * S))
    assert found["jvm_gc_share"] == found["jvm_safepoint_share"] == pytest.approx(0.6)


def test_phases_beside_the_program_are_not_taken_for_collections() -> None:
    """A program of 4 s on JDK 25 had 36 collections, whose pauses took 11 ms."""
    phases = [[{"name": "Shenandoah full", "count": 99 * at, "time_ns": 425_000_000 * at}] for at in range(5)]
    found = dict(jvm_metrics(probe_of([jvm(1, at, collectors=phases[at]) for at in range(5)]).jvms, 0, 4 * S))
    assert "jvm_threads_live_max" in found and not {"jvm_gc_share", "jvm_gc_per_s"} & set(found)


def test_the_heap_before_the_load_is_the_last_that_was_told_by_then() -> None:
    grown = [jvm(1, at, heap_committed_bytes_now=1000 * (at + 1)) for at in range(5)]
    probe = probe_of(grown, [jvm(2, at) for at in range(5)])
    found = dict(jvm_metrics(probe.jvms, 3 * S, 4 * S, go_ns=1_500_000_000))
    assert found["jvm_heap_committed_bytes_before"] == 2000 + 1000
    assert found["jvm_heap_committed_bytes_max"] == 5000 + 1000
    late = probe_of([jvm(1, at) for at in range(2, 5)])
    assert "jvm_heap_committed_bytes_before" not in dict(jvm_metrics(late.jvms, 3 * S, 4 * S, go_ns=S))
    soon = dict(jvm_metrics(late.jvms, 3 * S, 4 * S, go_ns=2 * S - 200_000_000))
    assert soon["jvm_heap_committed_bytes_before"] == 1000, "a server that is ready before the JVM is first read"
