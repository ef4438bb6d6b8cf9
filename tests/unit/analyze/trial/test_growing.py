"""Growth of a server's memory, threads and descriptors, and the nearest limit that it would reach."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from powerband.analyze.trial.growing import GROWING
from powerband.readings.evidence import Evidence
from powerband.readings.probe_samples import Counters, ProbeSamples

S, MIB = 1_000_000_000, 1 << 20
AT = np.arange(0, 12 * S, S // 2, dtype=float)
SECONDS = AT / S
END_S = float(SECONDS[-1])


def counters(**fields: Any) -> Counters:
    return Counters(
        AT, {name: np.broadcast_to(np.asarray(value, dtype=float), AT.shape) for name, value in fields.items()}
    )


def metrics(
    subject: Counters, *jvms: Counters, available: Any = 1000 * MIB, live: dict[str, int] | None = None
) -> dict[str, float]:
    host = counters(memory_available_bytes_now=available)
    probe = ProbeSamples({"subject": subject}, host, (), 0.0, jvms, tuple(range(len(jvms))))
    return made(probe, live=live)


def made(
    probe: ProbeSamples | None,
    rate_per_s: float | None = None,
    *engines: Any,
    live: dict[str, int] | None = None,
) -> dict[str, float]:
    """The metrics of growth. `engines`: the requests in flight of each engine, at the times of the probe's samples."""
    intervals = [
        {"engine": engine, "end_ns": int(at), "in_flight_now": int(level)}
        for engine, levels in enumerate(engines)
        for at, level in zip(AT, levels, strict=True)
    ]
    load = SimpleNamespace(rate_per_s=rate_per_s)
    evidence = SimpleNamespace(probe=probe, window=(0, 12 * S), load=load, intervals=intervals, heap_growth=None)
    evidence.record = SimpleNamespace(live_heap=live or {})
    return dict(GROWING.metrics(cast(Evidence, evidence)))


def test_of_several_limits_of_memory_the_nearest_counts() -> None:
    grown = 10 * MIB * SECONDS
    to_come = grown[-1] - grown  # until the end of the window
    leak = counters(rss_bytes_now=100 * MIB + grown)
    assert metrics(leak, available=1000 * MIB + to_come) == {
        "memory_growth_bytes_per_s": pytest.approx(10 * MIB),
        "memory_lasts_s": pytest.approx(100),
    }
    within = counters(rss_bytes_now=100 * MIB + grown, memory_left_bytes_now=200 * MIB + to_come)
    assert metrics(within)["memory_lasts_s"] == pytest.approx(20)
    assert metrics(within, available=50 * MIB + to_come)["memory_lasts_s"] == pytest.approx(5)


@pytest.mark.parametrize(("taken", "ends"), [(1.0, True), (0.6, True), (0.4, False), (0.0, False), (-0.5, False)])
def test_memory_that_the_kernel_can_take_back_fills_nothing(taken: float, *, ends: bool) -> None:
    """Resident pages of mapped files are no loss of available memory. Others may free or take memory meanwhile."""
    grown = 300 * MIB * SECONDS
    mapping = counters(rss_bytes_now=100 * MIB + grown, memory_left_bytes_now=9000 * MIB - taken * grown)
    found = metrics(mapping, available=8000 * MIB)
    assert found["memory_growth_bytes_per_s"] == pytest.approx(300 * MIB)
    assert ("memory_lasts_s" in found) is ends
    unlimited = counters(rss_bytes_now=100 * MIB + grown)
    assert ("memory_lasts_s" in metrics(unlimited, available=8000 * MIB - taken * grown)) is ends


@pytest.mark.parametrize(
    ("anonymous", "growth"),
    [
        (100 * MIB, 0),
        (100 * MIB + 10 * MIB * SECONDS, 10 * MIB),
        (np.where(AT < 6 * S, math.nan, 100 * MIB), None),
        (math.nan, 300 * MIB),
    ],
    ids=["files only", "a leak beside files", "not known of all parts", "not known"],
)
def test_mapped_files_are_no_growth_where_anonymous_memory_is_known(anonymous: Any, growth: int | None) -> None:
    reading = counters(rss_bytes_now=100 * MIB + 300 * MIB * SECONDS, anonymous_bytes_now=anonymous)
    found = metrics(reading, available=8000 * MIB - 10 * MIB * SECONDS)
    assert found.get("memory_growth_bytes_per_s") == (None if growth is None else pytest.approx(growth))
    assert ("memory_lasts_s" in found) is (growth == 10 * MIB)


def test_threads_and_descriptors_have_limits_of_their_own() -> None:
    found = metrics(
        counters(
            threads_now=10 + 4 * SECONDS,
            threads_left_now=400 - 4 * SECONDS,
            descriptors_now=20 + 50 * SECONDS,
            descriptors_left_now=1000 - 50 * SECONDS,
        )
    )
    assert found["threads_growth_per_s"] == pytest.approx(4)
    assert found["threads_lasts_s"] == pytest.approx(100 - END_S)
    assert found["descriptors_growth_per_s"] == pytest.approx(50)
    assert found["descriptors_lasts_s"] == pytest.approx(20 - END_S)
    assert "threads_lasts_s" not in metrics(counters(threads_now=10 + 4 * SECONDS)), "no limit is known"


def test_of_several_processes_the_one_with_fewest_descriptors_left_ends_first_at_its_own_pace() -> None:
    found = metrics(counters(descriptors_now=80 + 40 * SECONDS, descriptors_left_now=1000 - 5 * SECONDS))
    assert found["descriptors_growth_per_s"] == pytest.approx(40)
    assert found["descriptors_lasts_s"] == pytest.approx(200 - END_S)
    others = metrics(counters(descriptors_now=80 + 40 * SECONDS, descriptors_left_now=100))
    assert "descriptors_lasts_s" not in others, "the fullest process has as many as before"
    swapped = metrics(counters(descriptors_now=80, descriptors_left_now=1000 - 5 * SECONDS))
    assert swapped == {"descriptors_growth_per_s": 0}


def test_what_stays_has_no_end() -> None:
    assert metrics(counters(rss_bytes_now=100 * MIB, threads_now=8, descriptors_now=30)) == {
        "memory_growth_bytes_per_s": 0,
        "threads_growth_per_s": 0,
        "descriptors_growth_per_s": 0,
    }


def test_of_a_jvm_the_heap_after_collections_counts_and_its_own_bound() -> None:
    growing = counters(rss_bytes_now=100 * MIB + 30 * MIB * SECONDS)
    heap = 50 * MIB + 5 * MIB * SECONDS + 20 * MIB * (SECONDS % 1)
    leaking = counters(heap_used_bytes_now=heap, heap_left_bytes_now=100 * MIB, gc_count=SECONDS)
    found = metrics(growing, leaking, live={"0": 100 * MIB})
    assert found["memory_growth_bytes_per_s"] == pytest.approx(5 * MIB, rel=0.01)
    assert found["memory_lasts_s"] == pytest.approx(20, rel=0.01)
    committed = metrics(growing, leaking, available=50 * MIB, live={"0": 100 * MIB})
    assert committed == found, "memory that the heap had taken before fills no limit"
    falling = 50 * MIB + 5 * MIB * (END_S - SECONDS)
    assert metrics(growing, leaking, available=falling, live={"0": 100 * MIB})["memory_lasts_s"] == pytest.approx(
        10, rel=0.01
    )
    sound = counters(heap_used_bytes_now=50 * MIB + 20 * MIB * (SECONDS % 1), gc_count=SECONDS)
    assert metrics(growing, sound) == {"memory_growth_bytes_per_s": 0}
    # A heap that is hardly ever collected fills up, whatever the program keeps.
    assert metrics(growing, leaking, counters(heap_used_bytes_now=heap, gc_count=SECONDS / 6)) == {}


def test_a_queue_grows_under_an_open_load_only() -> None:
    growing, steady = 50 * SECONDS, np.full(AT.shape, 20)
    assert made(None, 500.0, growing, growing) == {"queue_growth_per_s": pytest.approx(100)}
    assert made(None, 500.0, growing, steady) == {"queue_growth_per_s": pytest.approx(50)}
    assert made(None, 500.0, steady) == {"queue_growth_per_s": 0}
    assert made(None, None, growing) == {}


def test_an_old_generation_that_waits_for_its_collection_is_no_leak() -> None:
    """Replaced sessions all die in the old generation, which young collections do not clean."""
    heap = 50 * MIB + 5 * MIB * SECONDS
    churning = counters(heap_used_bytes_now=heap, gc_count=SECONDS)
    resident = counters(rss_bytes_now=500 * MIB)
    assert metrics(resident, churning, live={"0": 40 * MIB}) == {"memory_growth_bytes_per_s": 0}
    assert metrics(resident, churning, live={"0": 105 * MIB})["memory_growth_bytes_per_s"] == pytest.approx(5 * MIB)
    assert metrics(resident, churning) == {}, "the JVM did not answer what lives"


def test_an_old_generation_that_a_burst_fills_is_no_leak() -> None:
    """The server stalled and then caught up: the pace of the burst is not that of the window."""
    burst = counters(heap_used_bytes_now=2 * MIB + MIB * (0.1 * SECONDS + 12 * np.maximum(0, SECONDS - 4)), gc_count=AT)
    resident = counters(rss_bytes_now=500 * MIB)
    assert metrics(resident, burst, live={"0": 30 * MIB}) == {"memory_growth_bytes_per_s": 0}
    assert metrics(resident, burst, live={"0": 60 * MIB})["memory_growth_bytes_per_s"] > 0


CASES = [("VM Thread", 1, False), ("VM Thread", 0, True), ("java", 1, True)]


@pytest.mark.parametrize(("pool", "alive", "known"), CASES)
def test_a_heap_that_fills_is_no_leak_of_a_jvm_that_could_not_be_read(pool: str, alive: int, known: bool) -> None:
    filling = counters(rss_bytes_now=100 * MIB + 10 * MIB * SECONDS)
    seen = {"type": "threads", "at_ns": 5 * S, "tree": "subject", "pools": [{"pool": pool, "threads_now": alive}]}
    probe = ProbeSamples({"subject": filling}, counters(memory_available_bytes_now=1000 * MIB), (cast(Any, seen),), 0.0)
    assert ("memory_growth_bytes_per_s" in made(probe)) is known
