"""The rate in bars of a given width over the measured window, as authors draw it who watch one long run.

In: `interval` events. Out: the mean rate of each whole bar, and the lowest and the highest as metrics: a claim on their
ratio says whether a rate was kept up. What the trials of a setting differ by is not in one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from powerband.readings.fleet import SECOND_NS

WHOLE = 0.99  # of a bar: windows end with a reading, a little early or late


def bar_rates(intervals: Iterable[Mapping[str, Any]], start_ns: int, end_ns: int, width_ns: int) -> tuple[float, ...]:
    """Per second, of what ended ok; an interval over an edge is dealt out by time. Empty where not one bar is whole."""
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


def bar_metrics(intervals: Iterable[Mapping[str, Any]], start_ns: int, end_ns: int, width_ns: int) -> dict[str, float]:
    """Nothing where no bars were asked for, or the window holds no whole one."""
    rates = bar_rates(intervals, start_ns, end_ns, width_ns)
    return {"bar_rate_per_s_min": min(rates), "bar_rate_per_s_max": max(rates)} if rates else {}
