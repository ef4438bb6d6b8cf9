"""Finds what grew all through a trial's window and cannot grow for ever: memory, threads, descriptors, a queue.

In: a trial's evidence. Out: their growth per second, 0 if they did not grow, and the seconds until a limit ends it. A
JVM fills its heap between collections and to its bound, which is no leak: for a tree with JVMs, the growth of memory is
that of what their heaps hold after collections, if there were enough of them, and none is known if no heap could be
read. Of other trees it is that of anonymous memory: the kernel takes pages of mapped files back when it needs memory,
and shared buffers fill once. Where that is not known, resident memory stands for it. A limit is only said to be reached
if what is left under it fell as well. Method: docs/methods/lasting.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from powerband.analyze.stats.growth import PARTS, steady_growth
from powerband.readings.evidence import Evidence, Source
from powerband.readings.fleet import SECOND_NS
from powerband.readings.pools import VM_THREAD
from powerband.readings.probe_samples import Counters, ProbeSamples

Window = tuple[int, int]

# Less is what allocators and pools of a healthy server add now and then.
MEMORY_LEAST_BYTES = 4 << 20
COUNT_LEAST = 2 * PARTS  # two more in each part: one is a thread or connection that comes and goes
COLLECTIONS_LEAST = PARTS
TAKEN_LEAST = 0.5
"""The least share of the growth of memory by which what is left under a limit fell, so that it counts. Of a leak it
falls by all of it; others may have freed memory meanwhile. What resident memory has of files is not missing there."""
_ANONYMOUS, _RESIDENT = "anonymous_bytes_now", "rss_bytes_now"


def _growths(evidence: Evidence) -> Iterator[tuple[str, float]]:
    if (queue := _queue(evidence)) is not None:
        yield "queue_growth_per_s", queue
    probe, window = evidence.probe, evidence.window
    subject = None if probe is None else probe.trees.get("subject")
    if probe is None or subject is None:
        return
    if (memory := _memory(evidence, probe, subject)) is not None:
        growth, ends_s = memory
        yield "memory_growth_bytes_per_s", growth
        if ends_s:
            yield "memory_lasts_s", min(ends_s)
    for what in ("threads", "descriptors"):
        if (growing := _growth(subject, f"{what}_now", window, COUNT_LEAST)) is not None:
            yield f"{what}_growth_per_s", growing
            pace = _pace_of_fullest(subject, growing, window) if what == "descriptors" else growing
            for end_s in _ends_s(pace, _left(subject, f"{what}_left_now", window)):
                yield f"{what}_lasts_s", end_s


def _pace_of_fullest(subject: Counters, growing: float, window: Window) -> float:
    """How many more descriptors per second the process has open that may open the fewest more, since each has a limit
    of its own; 0 unless those of all processes grow, and what it may open falls all through the window."""
    left = subject.fields.get("descriptors_left_now")
    if left is None or growing <= 0:
        return 0.0
    return steady_growth(subject.at_ns, -left, *window, least=1) or 0.0


def _queue(evidence: Evidence) -> float | None:
    """The growth of the requests in flight, per second; None if users bound them: only an open load goes on sending."""
    if evidence.load.rate_per_s is None:
        return None
    engines: dict[int, list[tuple[int, int]]] = {}
    for interval in evidence.intervals:
        engines.setdefault(interval.get("engine", 0), []).append((interval["end_ns"], interval["in_flight_now"]))
    found = []
    for readings in engines.values():
        at, levels = np.array(readings, dtype=float).T
        found.append(steady_growth(at, levels, *evidence.window, least=COUNT_LEAST))
    return sum(each for each in found if each is not None) if found and None not in found else None


def _memory(evidence: Evidence, probe: ProbeSamples, subject: Counters) -> tuple[float, list[float]] | None:
    """The growth of memory in bytes per second, and the seconds until each limit ends it; None if it is not known."""
    window = evidence.window
    limits = ((probe.host, "memory_available_bytes_now"), (subject, "memory_left_bytes_now"))
    if not probe.jvms:
        unread = _has_jvm(probe, window)
        level = _RESIDENT if subject.levels(_ANONYMOUS, *window) is None else _ANONYMOUS
        growth = None if unread else _growth(subject, level, window, MEMORY_LEAST_BYTES)
        return None if growth is None else (growth, _filled(growth, limits, _gained(subject, level, window), window))
    heaps = [_heap(jvm, window, live) for jvm, live in zip(probe.jvms, _live(evidence, probe.jvm_pids), strict=True)]
    known = [heap for heap in heaps if heap is not None]
    if len(known) < len(heaps):
        return None
    growth = sum(own for own, _ in known)
    # From the middle of the first part of the window to that of the last, as `_gained` has it.
    gained = growth * (window[1] - window[0]) / SECOND_NS * (1 - 1 / PARTS)
    of_heaps = [end_s for own, of_heap in known for end_s in _ends_s(own, of_heap)]
    return growth, [*_filled(growth, limits, gained, window), *of_heaps]


def _filled(growth: float, limits: Sequence[tuple[Counters, str]], gained: float, window: Window) -> list[float]:
    """The seconds until each of the limits ends a growth in bytes per second; of a limit under which less than its part
    of the bytes `gained` in the window was taken, none."""
    taken = [limit for limit in limits if -_gained(*limit, window) >= TAKEN_LEAST * gained]
    return _ends_s(growth, *(_left(*limit, window) for limit in taken))


def _has_jvm(probe: ProbeSamples, window: Window) -> bool:
    """True if a HotSpot JVM ran in the subject's tree in the window."""
    start_ns, end_ns = window
    events = (each for each in probe.threads if start_ns <= each["at_ns"] <= end_ns)
    return any(pool["pool"] == VM_THREAD and pool["threads_now"] for event in events for pool in event["pools"])


def _ends_s(growth: float, *left: float | None) -> list[float]:
    return [each / growth for each in left if each is not None] if growth > 0 else []


def _gained(of: Counters, name: str, window: Window) -> float:
    """How much a level rose from the first part of the window to the last, by their medians; NaN if it is not known."""
    part_ns = round((window[1] - window[0]) / PARTS)
    first, last = of.levels(name, window[0], window[0] + part_ns), of.levels(name, window[1] - part_ns, window[1])
    return math.nan if first is None or last is None else float(np.median(last) - np.median(first))


def _left(of: Counters, name: str, window: Window) -> float | None:
    """The amount that a limit left at the end of the window; None if there is no limit, or it is not known."""
    levels = of.levels(name, *window)
    return None if levels is None else float(levels[-1])


def _growth(of: Counters, name: str, window: Window, least: float) -> float | None:
    levels = of.fields.get(name)
    return None if levels is None else steady_growth(of.at_ns, levels, *window, least)


def _live(evidence: Evidence, pids: Sequence[int]) -> list[float | None]:
    """The bytes that lived on each heap after the load; from the snapshots if there is only one JVM."""
    if evidence.heap_growth is not None and len(pids) == 1:
        return [float(evidence.heap_growth.bytes_after)]
    return [evidence.record.live_heap.get(str(pid)) for pid in pids]


def _heap(jvm: Counters, window: Window, live: float | None) -> tuple[float, float | None] | None:
    """The growth of what a heap holds after collections, in bytes per second, and the bytes that its bound left. None
    if it was collected too seldom for its floors to show that, or if it grew and what lives is not known. An old
    generation is collected less often, and grows until then: if not even half of what was gained in the window lives
    on, the growth is 0."""
    growth = _growth(jvm, "heap_used_bytes_now", window, MEMORY_LEAST_BYTES)
    collections = jvm.growth("gc_count", *window)
    if growth is None or collections is None or collections < COLLECTIONS_LEAST:
        return None
    if growth > 0 and live is None:
        return None
    part_ns = round((window[1] - window[0]) / PARTS)
    first = jvm.levels("heap_used_bytes_now", window[0], window[0] + part_ns)
    last = jvm.levels("heap_used_bytes_now", window[1] - part_ns, window[1])
    # Not the growth times the window: where a server stalled and caught up, its pace held for a part of it only.
    if live is not None and first is not None and last is not None and live < (first.min() + last.min()) / 2:
        growth = 0.0
    return growth, _left(jvm, "heap_left_bytes_now", window)


GROWING = Source("growing", _growths)
