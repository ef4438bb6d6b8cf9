"""Says how exact JMeter's clock is: it counts whole milliseconds."""

from __future__ import annotations

_WHOLE_MS = ("response_time_ns_", "service_time_ns_", "burst_response_time_ns_")


def clock_error_ns(metric: str) -> float:
    """Returns how far a time by JMeter's clock may lie from the truth on either side, in ns; 0 for all other metrics.

    JMeter subtracts two readings in whole ms: a time of t ms becomes floor(t + u), where u is anywhere from 0 to 1.
    The mean of such values is that of the times. A quantile hides what its whole ms holds, half a ms on either side,
    and agrees to the digit in trials that differ by less."""
    return 500_000.0 if metric.startswith(_WHOLE_MS) and not metric.endswith("_mean") else 0.0
