"""The series that decides when a warm-up has lasted long enough."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WarmupSeries:
    """The load of a trial so far, fleet-merged, one entry per interval since `go`: all that the decision whether it is
    steady sees.

    `rate_per_s`: requests that ended ok per second; `response_time_ns_mean`: of those, NaN where there was none."""

    interval_s: float
    rate_per_s: tuple[float, ...]
    response_time_ns_mean: tuple[float, ...]
    elapsed_s: float
