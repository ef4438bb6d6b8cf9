"""Makes metrics of what .NET programs report by their startup hook: collections, heap, thread pool, locks.

In: the readings of each process. Out: metrics, all processes added up (of shares the largest), and two notes: why a
.NET server gave none, and that its pool was still growing. A process that lacks a figure is left out of that figure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from powerband.model.results import Problem
from powerband.readings.evidence import Evidence, Source
from powerband.readings.fleet import SECOND_NS
from powerband.readings.probe_samples import Array, Counters

WORKERS = ".NET TP Worker"  # the kernel's name of the threads of the pool
# .NET adds a thread or two a second to a pool that starves; the least that can be seen is one.
GREW_LEAST = 1
QUEUED = 1.0  # work items that wait, on average: without one nothing asks for more threads
QUEUED_EACH = 0.1  # the same, for each thread that has one in hand: fewer wait no time that matters
BLOCKED = 0.5  # of the threads that have work in hand

_LEVELS = (
    ("dotnet_heap_bytes_max", "heap_bytes_now", np.max),
    ("dotnet_pool_threads_max", "pool_threads_now", np.max),
    ("dotnet_pool_busy_mean", "pool_busy_now", np.mean),
    ("dotnet_pool_queue_mean", "pool_queue_now", np.mean),
)
_COUNTERS = (
    ("dotnet_gc_per_s", "gc_count"),
    ("dotnet_gc_gen2_per_s", "gc_gen2_count"),
    ("dotnet_allocated_bytes_per_s", "allocated_bytes"),
    ("dotnet_work_items_per_s", "work_items"),
    ("dotnet_lock_contentions_per_s", "lock_contentions"),
)


def dotnet_metrics(dotnets: Sequence[Counters], start_ns: int, end_ns: int) -> Iterator[tuple[str, float]]:
    """The figures over the window, in ns of the monotonic clock."""

    def levels_of(field: str) -> list[Array]:
        return [levels for each in dotnets if (levels := each.levels(field, start_ns, end_ns)) is not None]

    for metric, field, summary in _LEVELS:
        if found := levels_of(field):
            yield metric, sum(float(summary(levels)) for levels in found)

    def growths_of(field: str) -> list[float]:
        return [growth for each in dotnets if (growth := each.growth(field, start_ns, end_ns)) is not None]

    if paused := growths_of("gc_ns"):
        yield "dotnet_gc_share", max(paused) / (end_ns - start_ns)
    for metric, field in _COUNTERS:
        if grown := growths_of(field):
            yield metric, sum(grown) * SECOND_NS / (end_ns - start_ns)
    if pools := levels_of("pool_threads_now"):
        grew = sum(float(pool[-1] - pool[0]) for pool in pools)
        yield "dotnet_pool_growth_per_s", grew / (end_ns - start_ns) * SECOND_NS


def _blocked(evidence: Evidence, busy: float | None) -> Iterator[tuple[str, float]]:
    """Yields the mean number of pool threads that have work and are blocked: those that have work, by the runtime, less
    those that run or want a CPU, by the kernel."""
    if busy is not None:
        want = sum(pool.use.on_cpu + pool.use.run_wait for pool in evidence.pools if pool.name.startswith(WORKERS))
        yield "dotnet_pool_blocked_mean", max(0.0, busy - want)


def _metrics(evidence: Evidence) -> dict[str, float]:
    found = dict(dotnet_metrics(() if evidence.probe is None else evidence.probe.dotnets, *evidence.window))
    return {**found, **dict(_blocked(evidence, found.get("dotnet_pool_busy_mean")))}


def dotnet_problems(missing: str, metrics: Mapping[str, float], window_s: float) -> Iterator[Problem]:
    """Yields a note if .NET's own figures are missing, and one if its thread pool still grows while work waits.
    `missing`: the reason why there are no figures; empty if there are some, or if the server is no .NET program."""
    if missing:
        text = f"no figures from inside .NET, for its startup hook is missing: {missing}; it is measured from outside"
        yield Problem("no_dotnet_figures", text, fatal=False)
    if still_growing(metrics, window_s):
        most = metrics["dotnet_pool_threads_max"]
        yield Problem(
            "pool_growing",
            f"the server's .NET thread pool was still growing, to {most:,.0f} threads, while work waited for one: it "
            "would soon serve more than was measured; start it with more (DOTNET_ThreadPool_ForceMinWorkerThreads, in "
            "hexadecimal), do not block its threads, or measure longer",
            fatal=False,
        )


def starves(metrics: Mapping[str, float]) -> bool:
    """True if work waits for a thread of the pool while most of the threads that have work in hand are blocked. If the
    CPU is short, work waits as well, but for threads that run, or want to."""
    busy = metrics.get("dotnet_pool_busy_mean", 0.0)
    waits = metrics.get("dotnet_pool_queue_mean", 0.0) >= max(QUEUED, QUEUED_EACH * busy)
    return waits and metrics.get("dotnet_pool_blocked_mean", 0.0) >= BLOCKED * busy > 0


def still_growing(metrics: Mapping[str, float], window_s: float) -> bool:
    """True if the pool starves, and has more threads at the end of the window."""
    grew = metrics.get("dotnet_pool_growth_per_s", 0.0) * window_s
    return round(grew) >= GREW_LEAST and starves(metrics)


DOTNET = Source(
    "dotnet",
    _metrics,
    lambda e, metrics: dotnet_problems(e.record.no_dotnet_figures, metrics, e.fleet.window_s),
)
