"""The shape of a load over one trial: its first moments, its rate in bars, and what a rate counter prints.

In: the engines' `interval` events. Out: metrics named `burst_...`, `bar_...` and `rate_counter_...`, and the bars and
lines that they are made of, for reports. Publications quote such figures; they say nothing of how sure they are.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from powerband.readings.evidence import Evidence, Source
from powerband.readings.fleet import QUANTILES, SECOND_NS, MergedTimes
from powerband.wire.load_events import EngineInterval

WHOLE = 0.99  # of a bar: windows end with a reading, a little early or late
WINDOW_NS = 3e9  # of a rate counter


def burst_metrics(intervals: Sequence[EngineInterval], go_ns: int, burst_ns: int) -> dict[str, float]:
    """Figures of the first moments, in which all users begin at once and nothing is warm; empty where no burst is asked
    for, or nothing ended in it. Engines give histograms about once a second: the burst's end is rounded to the next."""
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
    times = MergedTimes(event["response_time_ns"] for event in inside if event.get("response_time_ns"))
    if times.count:
        metrics["burst_response_time_ns_mean"] = times.moment(1)
        metrics["burst_response_time_ns_max"] = times.maximum
        metrics |= {f"burst_response_time_ns_{name}": times.quantile(q) for name, q in QUANTILES.items()}
    return metrics


def bar_rates(intervals: Iterable[EngineInterval], start_ns: int, end_ns: int, width_ns: int) -> tuple[float, ...]:
    """Requests that ended ok per second, in each whole bar of this width; an interval over an edge is dealt out by
    time. Empty where not one bar is whole."""
    count = int((end_ns - start_ns) / width_ns + 1 - WHOLE) if width_ns else 0
    if count < 1:
        return ()
    ok = [0.0] * count
    for event in intervals:
        begun, ended = event["start_ns"], event["end_ns"]
        first, last = (begun - start_ns) // width_ns, (ended - start_ns) // width_ns
        for bar in range(max(0, first), min(count - 1, last) + 1):
            low, high = start_ns + bar * width_ns, start_ns + (bar + 1) * width_ns
            inside = min(ended, high, end_ns) - max(begun, low)
            if inside > 0:
                ok[bar] += event["outcomes"].get("ok", 0) * inside / (ended - begun)
    ends = [min(end_ns, start_ns + (bar + 1) * width_ns) for bar in range(count)]
    return tuple(number * SECOND_NS / (ends[bar] - start_ns - bar * width_ns) for bar, number in enumerate(ok))


def bar_metrics(intervals: Iterable[EngineInterval], start_ns: int, end_ns: int, width_ns: int) -> dict[str, float]:
    """The lowest and the highest bar: a claim on their ratio says whether a rate was kept up. Empty without bars."""
    rates = bar_rates(intervals, start_ns, end_ns, width_ns)
    return {"bar_rate_per_s_min": min(rates), "bar_rate_per_s_max": max(rates)} if rates else {}


@dataclass(frozen=True)
class CounterLine:
    """`at_ns`: the end of the window; rates of requests that ended ok."""

    at_ns: float
    window_per_s: float
    cumulative_per_s: float


def rate_counter(intervals: Sequence[EngineInterval]) -> list[CounterLine]:
    """The rate of each whole window since the first answer, and the mean rate since then, until the drain. A window
    ends with the interval that reaches its length."""
    running = sorted((e for e in intervals if e["phase"] in ("warmup", "measure")), key=lambda event: event["end_ns"])
    first = next((event["start_ns"] for event in running if event["outcomes"].get("ok")), None)
    if first is None:
        return []
    lines: list[CounterLine] = []
    begun, count, total = first, 0, 0
    for event in running:
        count += event["outcomes"].get("ok", 0)
        if event["end_ns"] - begun < WINDOW_NS:
            continue
        total += count
        end = event["end_ns"]
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


def _rate_counter(evidence: Evidence) -> dict[str, float]:
    return rate_counter_metrics(evidence.intervals) if evidence.experiment.measure.rate_counter else {}


BURST = Source("burst", _burst)
BARS = Source("bars", lambda e: bar_metrics(e.intervals, *e.window, e.experiment.measure.bars_ns))
RATE_COUNTER = Source("rate_counter", _rate_counter)
