"""What grew all through a trial's window and cannot grow for ever: memory, threads, descriptors.

In: a trial's evidence. Out: their growth per second, 0 where they did not, and how long the machine bears it. A JVM
fills its heap between collections and to its bound, which is no leak: of a tree with JVMs, what their heaps hold after
collections is looked at instead, if there were enough of them. Method: docs/methods/lasting.md.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from powerband.analyze.stats.growth import PARTS, steady_growth
from powerband.readings.evidence import Evidence, Source
from powerband.readings.probe_samples import Counters

# Less is what allocators and pools of a healthy server add now and then.
MEMORY_LEAST_BYTES = 4 << 20
COUNT_LEAST = 2 * PARTS
COLLECTIONS_LEAST = PARTS


def _growths(evidence: Evidence) -> Iterator[tuple[str, float]]:
    probe = evidence.probe
    subject = None if probe is None else probe.trees.get("subject")
    if probe is None or subject is None:
        return
    window = evidence.window
    memory = _heaps_growth(probe.jvms, window) if probe.jvms else _growth(subject, "rss_bytes_now", window)
    if memory is not None:
        yield "memory_growth_bytes_per_s", memory
        free = probe.host.levels("memory_available_bytes_now", *window)
        if memory > 0 and free is not None:
            yield "memory_lasts_s", float(free[-1]) / memory
    if (threads := _growth(subject, "threads_now", window, COUNT_LEAST)) is not None:
        yield "threads_growth_per_s", threads
    if (descriptors := _growth(subject, "descriptors_now", window, COUNT_LEAST)) is not None:
        yield "descriptors_growth_per_s", descriptors
        left = subject.levels("descriptors_left_now", *window)
        if descriptors > 0 and left is not None:
            yield "descriptors_lasts_s", float(left[-1]) / descriptors


def _growth(of: Counters, name: str, window: tuple[int, int], least: float = MEMORY_LEAST_BYTES) -> float | None:
    levels = of.fields.get(name)
    return None if levels is None else steady_growth(of.at_ns, levels, *window, least)


def _heaps_growth(jvms: tuple[Counters, ...], window: tuple[int, int]) -> float | None:
    """None where one of them collected too seldom for its floors to be what a collection leaves."""
    found = []
    for jvm in jvms:
        growth = _growth(jvm, "heap_used_bytes_now", window)
        collections = jvm.growth("gc_count", *window)
        if growth is None or collections is None or collections < COLLECTIONS_LEAST:
            return None
        found.append(growth)
    return float(np.sum(found))


LASTING = Source("lasting", _growths)
