"""What the subject's JVMs told of themselves over the measured window: heap, collections, threads.

In: the probe's `jvm` events as counters. Out: metrics; of several JVMs the sums. How fresh heap figures are depends on
the collector: docs/methods/process-counters.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from powerband.readings.fleet import SECOND_NS
from powerband.readings.probe_samples import Array, Counters


def jvm_metrics(jvms: Sequence[Counters], start_ns: int, end_ns: int) -> Iterator[tuple[str, float]]:
    """Nothing where there is no JVM; what one of them does not tell is left out."""
    window_ns = end_ns - start_ns

    def levels(name: str, summary: Callable[[Array], float]) -> float | None:
        parts = [None if (found := jvm.levels(name, start_ns, end_ns)) is None else summary(found) for jvm in jvms]
        return _sum(parts)

    def growth(name: str) -> float | None:
        return _sum([jvm.growth(name, start_ns, end_ns) for jvm in jvms])

    found = {
        "jvm_heap_used_bytes_max": levels("heap_used_bytes_now", _largest),
        "jvm_heap_used_bytes_mean": levels("heap_used_bytes_now", _mean),
        "jvm_heap_committed_bytes_max": levels("heap_committed_bytes_now", _largest),
        "jvm_threads_live_max": levels("threads_live_now", _largest),
    }
    for metric, field, unit_ns in (
        ("jvm_gc_share", "gc_ns", 1.0),
        ("jvm_gc_per_s", "gc_count", SECOND_NS),
        ("jvm_safepoint_share", "safepoint_ns", 1.0),
        ("jvm_threads_started_per_s", "threads_started", SECOND_NS),
    ):
        grown = growth(field)
        found[metric] = None if grown is None else grown * unit_ns / window_ns
    return ((name, value) for name, value in found.items() if value is not None)


def _sum(parts: Sequence[float | None]) -> float | None:
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


def _largest(values: Array) -> float:
    return float(values.max())


def _mean(values: Array) -> float:
    return float(values.mean())
