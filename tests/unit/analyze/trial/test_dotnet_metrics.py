"""The lines that a .NET program's startup hook wrote become metrics, notes and bottlenecks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fakes.scenes import pool, scene, tried
from fakes.trials import START_NS, Figures, experiment, record_of, spec, write_trial
from powerband.analyze.trial.bottleneck.rules import bottleneck_of
from powerband.analyze.trial.dotnet_metrics import dotnet_metrics, dotnet_problems
from powerband.analyze.trial.measure import measure
from powerband.model.bottlenecks import BottleneckName
from powerband.readings.probe_samples import Counters, read_probe
from powerband.store import TrialDir
from powerband.wire.dotnet_events import dotnet_events

S = 1_000_000_000
IDLE = {
    "dotnet_pool_threads_max": 8.0,
    "dotnet_pool_busy_mean": 0.5,
    "dotnet_pool_queue_mean": 0.0,
    "dotnet_gc_share": 0.01,
    "dotnet_lock_contentions_per_s": 3.0,
}
STARVED = {
    "dotnet_pool_queue_mean": 48.0,
    "dotnet_pool_busy_mean": 16.0,
    "dotnet_pool_blocked_mean": 15.8,
    "dotnet_pool_threads_max": 18.0,
}
POOL = pool(".NET TP Worker", 0.1, 0.0, lock=15.9)


def line(at_ns: int, **values: int) -> str:
    return json.dumps({"at_ns": at_ns, **values}) + "\n"


def test_lines_of_each_process_are_read_and_what_is_no_line_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "7.jsonl").write_text(line(1, gc_ns=5) + '[]\n"x"\n{"at_ns": 2.5}\n{"gc_ns": 1}\n' + line(3)[:-4])
    (tmp_path / "other.jsonl").write_text(line(1))
    (tmp_path / "8.jsonl").symlink_to(tmp_path / "7.jsonl")
    assert list(dotnet_events(tmp_path)) == [{"at_ns": 1, "gc_ns": 5, "type": "dotnet", "pid": 7}]
    assert list(dotnet_events(tmp_path / "none")) == []


def readings(pid: int, scale: int) -> list[dict[str, Any]]:
    """A reading each second of a process whose pool grows by a thread a second."""
    return [
        {
            "type": "dotnet",
            "pid": pid,
            "at_ns": at * S,
            "gc_ns": scale * at * S // 10,
            "gc_count": scale * 4 * at,
            "heap_bytes_now": scale * 1000,
            "allocated_bytes": scale * 5000 * at,
            "pool_threads_now": scale * (2 + at),
            "pool_queue_now": scale * 10,
        }
        for at in range(6)
    ]


def dotnets() -> tuple[Counters, ...]:
    host: dict[str, Any] = {"type": "sample", "at_ns": 0, "trees": [], "host": {}}
    probe = read_probe([host, *readings(1, 1), *readings(2, 2)])
    assert probe is not None
    return probe.dotnets


def test_processes_are_added_up() -> None:
    found = dict(dotnet_metrics(dotnets(), 0, 5 * S))
    assert found == pytest.approx(
        {
            "dotnet_gc_share": 0.2,  # of the second process, not the sum
            "dotnet_gc_per_s": 12.0,
            "dotnet_heap_bytes_max": 3000.0,
            "dotnet_allocated_bytes_per_s": 15000.0,
            "dotnet_pool_threads_max": 21.0,
            "dotnet_pool_queue_mean": 30.0,
            "dotnet_pool_growth_per_s": 3.0,
        }
    )
    assert not dict(dotnet_metrics((), 0, 5 * S))


def test_a_pool_that_grows_while_work_waits_is_noted() -> None:
    found = {**STARVED, **dict(dotnet_metrics(dotnets(), 0, 5 * S))}
    (growing,) = dotnet_problems("", found, 5.0)
    assert growing.code == "pool_growing" and not growing.fatal and "to 21 threads" in growing.message
    assert not list(dotnet_problems("", {**found, "dotnet_pool_queue_mean": 0.0}, 5.0)), "nothing waits for more"
    on_cpu = {**found, "dotnet_pool_blocked_mean": 1.0}
    assert not list(dotnet_problems("", on_cpu, 5.0)), "more threads get no more of the CPU"
    assert not list(dotnet_problems("", {**found, "dotnet_pool_growth_per_s": 0.05}, 5.0)), "no thread more"


def test_a_server_without_figures_is_noted() -> None:
    assert not list(dotnet_problems("", {}, 5.0))
    (problem,) = dotnet_problems("no SDK", {}, 5.0)
    assert (problem.code, problem.fatal) == ("no_dotnet_figures", False) and "no SDK" in problem.message


def test_the_process_that_allocated_most_is_the_first() -> None:
    assert [each.fields["allocated_bytes"][-1] for each in dotnets()] == [50_000, 25_000]


@pytest.mark.parametrize(
    ("figures", "named", "said"),
    [
        (
            STARVED,
            BottleneckName.POOL_TOO_SMALL,
            "48 work items wait for a thread",
        ),
        ({"dotnet_lock_contentions_per_s": 790.0}, BottleneckName.LOCK, "find a lock held 0.988 times per request"),
        ({"dotnet_gc_share": 0.23}, BottleneckName.GARBAGE_COLLECTION, "stop all threads 23 % of the time"),
    ],
)
def test_what_the_runtime_tells_is_named(figures: dict[str, float], named: BottleneckName, said: str) -> None:
    found = bottleneck_of(scene(POOL, metrics={**IDLE, **figures}))
    assert found is not None and found.name is named
    assert any(said in each for each in found.evidence), found.evidence


def test_few_waits_for_a_lock_suffice_where_one_at_a_time_is_served() -> None:
    figures = {**IDLE, **STARVED, "dotnet_lock_contentions_per_s": 190.0}
    one, several = (bottleneck_of(scene(POOL, metrics=figures, tried=tried(slots))) for slots in (1, 16))
    assert one is not None and one.name is BottleneckName.LOCK
    assert several is not None and several.name is BottleneckName.POOL_TOO_SMALL


def test_threads_that_block_at_a_dependency_which_serves_few_are_not_too_few() -> None:
    found = bottleneck_of(scene(POOL, metrics={**IDLE, **STARVED}, tried=tried(4), outgoing=16))
    assert found is not None and found.name is BottleneckName.DOWNSTREAM


def test_the_number_of_threads_is_advised_in_hexadecimal() -> None:
    found = bottleneck_of(scene(POOL, metrics={**IDLE, **STARVED}, codes=("pool_growing",)))
    assert found is not None and "DOTNET_ThreadPool_ForceMinWorkerThreads=40 (hexadecimal)" in found.advice
    assert "the pool grows" in found.evidence[1]


def test_an_open_load_needs_as_many_threads_as_its_rate_and_not_as_many_as_wait() -> None:
    """The queue, which grows all the time, holds 5,000 work items; half of what is offered is served."""
    given = {"dotnet_pool_queue_mean": 5000.0, "offered_rate_per_s": 1600.0}
    found = bottleneck_of(scene(POOL, users=None, metrics={**IDLE, **STARVED, **given}))
    assert found is not None and found.advice.endswith(
        "the offered rate needs at least 32, DOTNET_ThreadPool_ForceMinWorkerThreads=20 (hexadecimal)"
    )


def test_a_short_cpu_is_no_starved_pool_and_no_lock() -> None:
    busy = pool(".NET TP Worker", 0.99, 3.0, lock=1.0)
    found = bottleneck_of(scene(busy, metrics={**IDLE, **STARVED, "dotnet_lock_contentions_per_s": 790.0}))
    assert found is not None and found.name is BottleneckName.SUBJECT_CPU


@pytest.mark.parametrize(("shares", "named"), [((0.14,), True), ((0.08, 0.06), False)])
def test_pauses_of_several_programs_do_not_add_up(shares: tuple[float, ...], named: bool, tmp_path: Path) -> None:
    figures, directory = Figures(), TrialDir(tmp_path / "0001")
    record = write_trial(directory, record_of(spec(), figures), figures)
    begun = START_NS - S
    with directory.probe.open("a") as lines:
        for pid, share in enumerate(shares, 1):
            for at in range(begun, START_NS + 11 * S, S):
                reading = {"type": "dotnet", "pid": pid, "at_ns": at, "gc_ns": round(share * (at - begun))}
                lines.write(f"{json.dumps(reading)}\n")
    result = measure(directory, record, experiment())
    assert result.metrics["dotnet_gc_share"] == pytest.approx(max(shares))
    found = result.bottleneck
    assert (found is not None and found.name is BottleneckName.GARBAGE_COLLECTION) is named


@pytest.mark.parametrize("figures", [{}, {"dotnet_pool_queue_mean": 0.4, "dotnet_pool_busy_mean": 7.9}])
def test_a_pool_for_which_nothing_waits_is_not_blamed(figures: dict[str, float]) -> None:
    parked = bottleneck_of(scene(POOL, tried=tried(16)))
    assert parked is not None and parked.name is BottleneckName.POOL_TOO_SMALL, "as it looks to the kernel"
    found = bottleneck_of(scene(POOL, tried=tried(16), metrics={**IDLE, **figures}))
    assert found is not None and found.name is BottleneckName.HIDDEN_LIMIT


def test_a_pool_whose_threads_have_the_requests_in_hand_is_looked_at() -> None:
    figures = {"dotnet_pool_busy_mean": 16.0, "dotnet_pool_threads_max": 16.0}
    found = bottleneck_of(scene(POOL, present=16.0, metrics={**IDLE, **figures}))
    assert scene(POOL, present=16.0, metrics={**IDLE, **figures}).workers == (POOL,)
    assert found is None or found.name is not BottleneckName.HIDDEN_LIMIT


def test_a_lock_that_is_held_for_a_moment_is_no_limit_where_twice_the_users_get_twice_as_much() -> None:
    figures = {**IDLE, "dotnet_lock_contentions_per_s": 790.0}
    found = bottleneck_of(scene(POOL, metrics=figures, tried=tried(64, 2.0)))
    assert found is not None and found.name is BottleneckName.NONE
