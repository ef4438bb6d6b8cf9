"""Notes a server that stood still: times in which nothing was answered at all, though requests waited.

In: the engines' intervals, the probe's samples of the machine. Out: the note `stood_still`. A silence may be a garbage
collection, a checkpoint or a lock that all requests take, or slow requests may have taken the whole pool: which of
them is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from powerband.base.units import format_duration, plural, share
from powerband.model.results import Problem
from powerband.readings.evidence import Evidence, Source
from powerband.readings.fleet import SECOND_NS
from powerband.wire.load_events import EngineInterval

LEAST_NS = 300_000_000  # three intervals
TYPICAL_TIMES = 5  # as long as so many median response times: answers that come in batches are no silence
SLOW_FROM = 0.9  # quantile: what a tenth of the requests take is their own time, and nothing that stops them
EXPECTED_LEAST = 20  # so many answers would have come meanwhile: fewer may be missing by chance
SHARE_LEAST = 0.05  # of the window
COLLECTIONS = ("jvm_gc_share", "dotnet_gc_share")


def silences(
    intervals: Iterable[EngineInterval], start_ns: int, end_ns: int, least_ns: float
) -> Iterator[tuple[int, int]]:
    """Yields start and end, in monotonic ns, of each time of at least `least_ns` within the window in which no answer
    came from any engine, though at least two requests were under way at the end of each interval. The last may reach to
    the window's end: a server that hangs answers no more. The time before the first answer of all is the start's."""
    intervals = [event for event in intervals if event["start_ns"] < end_ns]
    answered = sorted((event["start_ns"], event["end_ns"]) for event in intervals if sum(event["outcomes"].values()))
    reached = answered[0][1] if answered else end_ns
    for begin, end in [*answered, (end_ns, end_ns)]:
        since, until = max(reached, start_ns), min(begin, end_ns)
        if until - since >= least_ns:
            meanwhile = [each for each in intervals if since <= each["start_ns"] and each["end_ns"] <= until]
            if _least_in_flight(meanwhile) >= 2:
                yield since, until
        reached = max(reached, end)


def _least_in_flight(intervals: Sequence[EngineInterval]) -> int:
    """The least number of requests under way at the ends of the intervals, added over the engines."""
    least: dict[int, int] = {}
    for event in intervals:
        engine, level = event.get("engine", 0), event["in_flight_now"]
        least[engine] = min(level, least.get(engine, level))
    return sum(least.values())


def _stood_still(evidence: Evidence, metrics: Mapping[str, float]) -> Iterator[Problem]:
    """Yields a note if the silences are a part of the window that other programs do not explain."""
    start_ns, end_ns = evidence.window
    typical_ns, rate_per_s = evidence.response.quantile(0.5), evidence.fleet.achieved_per_s
    if "quiet_s" in metrics or not rate_per_s:
        return
    collected = max(metrics.get(name, 0.0) for name in COLLECTIONS)
    # Users who never pause have but one request each in a silence, and many before and after it. A collection that
    # stops everything may come so often that a tenth of them meet it.
    may_wait = evidence.load.never_pauses and collected < SHARE_LEAST
    slow_ns = evidence.response.quantile(SLOW_FROM) if may_wait else 0.0
    least_ns = max(LEAST_NS, TYPICAL_TIMES * typical_ns, slow_ns, EXPECTED_LEAST / rate_per_s * SECOND_NS)
    found = [
        end - begin
        for begin, end in silences(evidence.intervals, start_ns, end_ns, least_ns)
        if not _machine_stopped(evidence, begin, end)
    ]
    part = sum(found) / max(1, end_ns - start_ns)
    if part < max(SHARE_LEAST, 2 * metrics.get("held_up_share_max", 0.0)):
        return
    yield Problem(
        "stood_still",
        f"nothing was answered for up to {format_duration(max(found))} ({plural(len(found), 'time')}, {share(part)} of "
        f"the window), though requests waited that usually take {format_duration(typical_ns)}: "
        + (
            f"garbage collections took {share(collected)}"
            if collected > part / 2
            else "look for what stops them all, such as a garbage collection, a checkpoint or a lock, or for slow "
            "requests that fill the pool, or that all users wait for"
        ),
        fatal=False,
    )


def _machine_stopped(evidence: Evidence, begin_ns: int, end_ns: int) -> bool:
    """True if the probe took no sample for most of that time, either: the machine stood still, not the server."""
    if evidence.probe is None:
        return False
    at = evidence.probe.host.at_ns
    inside = [begin_ns, *at[(at > begin_ns) & (at < end_ns)].tolist(), end_ns]
    return bool(max(after - before for before, after in pairwise(inside)) > (end_ns - begin_ns) / 2)


STILLNESS = Source("stillness", problems=_stood_still)
