"""Describes the shape of a load over one trial: its first moments, its rate in bars, and what a rate counter prints.

In: the engines' `interval` events, and for the bars the probe's samples. Out: metrics named `burst_...`, `bar_...` and
`rate_counter_...`, and the bars and lines that they are made of, for reports. Publications quote such figures; they do
not tell how sure they are.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from powerband.readings.evidence import Evidence, Source
from powerband.readings.fleet import QUANTILES, SECOND_NS, MergedTimes
from powerband.readings.probe_samples import Counters
from powerband.wire.load_events import EngineInterval

WHOLE = 0.99  # of a bar: windows end with a reading, a little early or late
WINDOW_NS = 3e9  # of a rate counter


def burst_metrics(intervals: Sequence[EngineInterval], go_ns: int, burst_ns: int) -> dict[str, float]:
    """The figures of the first moments, in which all users begin at once and nothing is warm; empty if no burst is
    asked for, or nothing ended in it."""
    inside = [event for event in intervals if go_ns <= event["start_ns"] and event["end_ns"] <= go_ns + burst_ns]
    outcomes: Counter[str] = Counter()
    for event in inside:
        outcomes.update(event["outcomes"])
    ended = outcomes.total()
    if not burst_ns or not ended:
        return {}
    length_s = (max(event["end_ns"] for event in inside) - go_ns) / SECOND_NS
    metrics = {
        "burst_goodput_per_s": outcomes["ok"] / length_s,
        "burst_error_rate": 1 - outcomes["ok"] / ended,
    }
    return metrics | dict(_burst_times(inside))


def _burst_times(inside: Sequence[EngineInterval]) -> Iterator[tuple[str, float]]:
    """Yields the response times in ns up to each engine's last histogram, which comes about once a second: the mean of
    those answered rightly, and percentiles and maximum of all that were due. The others, in flight or failed, rank
    last; how long they took is not known, so a figure that falls on them is left out."""
    engines = _until_last_histogram(inside)
    told = [event for events in engines for event in events]
    times = MergedTimes(event["response_time_ns"] for event in told if event.get("response_time_ns"))
    if not times.count:
        return
    yield "burst_response_time_ns_mean", times.moment(1)
    others = sum(events[-1]["in_flight_now"] for events in engines)
    others += sum(event["dropped"] + sum(event["outcomes"].values()) - event["outcomes"].get("ok", 0) for event in told)
    ranks = {"max": 1.0, **QUANTILES}
    of_answered = {name: q * (times.count + others) / times.count for name, q in ranks.items()}
    yield from ((f"burst_response_time_ns_{name}", times.quantile(q)) for name, q in of_answered.items() if q <= 1)


def _until_last_histogram(inside: Sequence[EngineInterval]) -> list[list[EngineInterval]]:
    """Each engine's intervals in their order, without those after its last histogram."""
    engines: dict[int, list[EngineInterval]] = {}
    for event in sorted(inside, key=lambda event: event["end_ns"]):
        engines.setdefault(event.get("engine", 0), []).append(event)
    for events in engines.values():
        while events and not events[-1].get("response_time_ns"):
            events.pop()
    return [events for events in engines.values() if events]


def bar_rates(intervals: Iterable[EngineInterval], start_ns: int, end_ns: int, width_ns: int) -> tuple[float, ...]:
    """The requests that ended ok per second, in each whole bar of this width; an interval across an edge is divided by
    time. Empty if not one bar is whole."""
    edges = bar_edges(start_ns, end_ns, width_ns)
    if not edges:
        return ()
    count = len(edges)
    ok = [0.0] * count
    for event in intervals:
        begun, ended = event["start_ns"], event["end_ns"]
        first, last = (begun - start_ns) // width_ns, (ended - start_ns) // width_ns
        for bar in range(max(0, first), min(count - 1, last) + 1):
            low, high = start_ns + bar * width_ns, start_ns + (bar + 1) * width_ns
            inside = min(ended, high, end_ns) - max(begun, low)
            if inside > 0:
                ok[bar] += event["outcomes"].get("ok", 0) * inside / (ended - begun)
    return tuple(number * SECOND_NS / (end - begin) for number, (begin, end) in zip(ok, edges, strict=True))


def bar_edges(start_ns: int, end_ns: int, width_ns: int) -> list[tuple[int, int]]:
    """The start and end of each whole bar of the window, in ns; the last may end a little early. Empty if not one is
    whole, or no bars are asked for (a width of 0)."""
    count = int((end_ns - start_ns) / width_ns + 1 - WHOLE) if width_ns else 0
    begins = [start_ns + bar * width_ns for bar in range(count)]
    return [(begin, min(end_ns, begin + width_ns)) for begin in begins]


def bar_metrics(intervals: Iterable[EngineInterval], start_ns: int, end_ns: int, width_ns: int) -> dict[str, float]:
    """The lowest and the highest bar: a claim on their ratio says whether a rate was kept up. Empty without bars."""
    rates = bar_rates(intervals, start_ns, end_ns, width_ns)
    return {"bar_rate_per_s_min": min(rates), "bar_rate_per_s_max": max(rates)} if rates else {}


@dataclass(frozen=True)
class CounterLine:
    """One line of a rate counter. `at_ns`: the end of its window. `window_per_s`: the rate within the window;
    `cumulative_per_s`: that since the first answer. Both are of requests that ended ok."""

    at_ns: float
    window_per_s: float
    cumulative_per_s: float


def rate_counter(intervals: Sequence[EngineInterval]) -> list[CounterLine]:
    """The rate of each whole window since the first answer, and the mean rate since then, until the drain. A window
    ends with the intervals that reach its length: those of several engines end together."""
    running = sorted((e for e in intervals if e["phase"] in ("warmup", "measure")), key=lambda event: event["end_ns"])
    first = next((event["start_ns"] for event in running if event["outcomes"].get("ok")), None)
    if first is None:
        return []
    lines: list[CounterLine] = []
    begun, count, total = first, 0, 0
    next_ends = [*(event["end_ns"] for event in running[1:]), math.inf]
    for event, next_end in zip(running, next_ends, strict=True):
        end = event["end_ns"]
        count += event["outcomes"].get("ok", 0)
        together = next_end - end < (end - event["start_ns"]) / 2
        if end - begun < WINDOW_NS or together:
            continue
        total += count
        lines.append(CounterLine(end, count * SECOND_NS / (end - begun), total * SECOND_NS / (end - first)))
        begun, count = end, 0
    return lines


def rate_counter_metrics(intervals: Sequence[EngineInterval]) -> dict[str, float]:
    """Mean and standard deviation of the windows, and the last cumulative rate; empty before one window is over."""
    lines = rate_counter(intervals)
    if not lines:
        return {}
    windows = [line.window_per_s for line in lines]
    metrics = {
        "rate_counter_window_per_s_mean": statistics.fmean(windows),
        "rate_counter_per_s_last": lines[-1].cumulative_per_s,
    }
    if len(windows) > 1:
        metrics["rate_counter_window_per_s_sd"] = statistics.stdev(windows)
    return metrics


def _burst(evidence: Evidence) -> Iterator[tuple[str, float]]:
    go_ns, burst_ns = evidence.record.phases.get("go", 0), evidence.experiment.measure.burst_ns
    yield from burst_metrics(evidence.intervals, go_ns, burst_ns).items()
    if burst_ns and (overflows := evidence.overflows(go_ns + burst_ns)) is not None:
        yield "burst_accept_overflows", overflows


def bar_cores(subject: Counters, edges: Sequence[tuple[int, int]]) -> dict[str, float]:
    """The bars with least and most CPU of the server, in cores; empty unless the CPU of each bar is known."""
    known = [used for begin, end in edges if (used := subject.cores(begin, end)) is not None]
    if not known or len(known) < len(edges):
        return {}
    return {"bar_cpu_cores_min": min(known), "bar_cpu_cores_max": max(known)}


def bar_gc_share(jvms: Sequence[Counters], edges: Sequence[tuple[int, int]]) -> dict[str, float]:
    """The bar with the largest share of its time in collections, of any JVM; a JVM with figures for no bar is left out.
    Empty unless the others have figures for each bar. A collection counts when it is over: a share may be
    above 1 if one is longer than a bar."""
    by_jvm = [[jvm.growth("gc_ns", begin, end) for begin, end in edges] for jvm in jvms]
    told = [bars for bars in by_jvm if any(grown is not None for grown in bars)]
    shares: list[float] = []
    for bar, (begin, end) in enumerate(edges):
        known = [grown for bars in told if (grown := bars[bar]) is not None]
        if not known or len(known) < len(told):
            return {}
        shares.append(max(known) / (end - begin))
    return {"bar_gc_share_max": max(shares)} if shares else {}


def _bars(evidence: Evidence) -> Iterator[tuple[str, float]]:
    width_ns = evidence.experiment.measure.bars_ns
    yield from bar_metrics(evidence.intervals, *evidence.window, width_ns).items()
    if evidence.probe is None:
        return
    edges = bar_edges(*evidence.window, width_ns)
    if (subject := evidence.probe.trees.get("subject")) is not None:
        yield from bar_cores(subject, edges).items()
    yield from bar_gc_share(evidence.probe.jvms, edges).items()


def _rate_counter(evidence: Evidence) -> dict[str, float]:
    return rate_counter_metrics(evidence.intervals) if evidence.experiment.measure.rate_counter else {}


BURST = Source("burst", _burst)
BARS = Source("bars", _bars)
RATE_COUNTER = Source("rate_counter", _rate_counter)
