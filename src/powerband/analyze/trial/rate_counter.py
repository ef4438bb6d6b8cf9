"""What a rate counter prints: the rate of each window of 3 s since the first answer, and the mean rate since then.

Such counters are what publications quote, and a single run's windows say nothing of how sure that is; so their view is
kept beside the proper figures. In: the engines' `interval` events. Out: lines, and metrics named `rate_counter_...`.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from powerband.readings.fleet import SECOND_NS

WINDOW_NS = 3e9


@dataclass(frozen=True)
class CounterLine:
    """`at_ns`: the end of the window; rates of requests that ended ok."""

    at_ns: float
    window_per_s: float
    cumulative_per_s: float


def rate_counter(intervals: Sequence[Mapping[str, Any]]) -> list[CounterLine]:
    """Of whole windows, until the drain; a window ends with the interval that reaches its length."""
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


def rate_counter_metrics(intervals: Sequence[Mapping[str, Any]]) -> dict[str, float]:
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
