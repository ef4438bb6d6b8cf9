"""The first moments of a load, told apart from the steady state: all users begin at once, nothing is warm.

In: the engines' `interval` events since `go`. Out: metrics named `burst_...`. Quantiles are of merged histograms, which
engines give about once a second, so the end of the burst is rounded to the next of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from powerband.readings.fleet import QUANTILES, SECOND_NS, MergedTimes


def burst_metrics(intervals: Sequence[Mapping[str, Any]], go_ns: int, burst_ns: int) -> dict[str, float]:
    """Empty where no burst is asked for, or nothing ended in it."""
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
