"""The series that decides when a warm-up has lasted long enough."""

from __future__ import annotations

from dataclasses import dataclass

COMPILES = 0.1
"""A JVM whose compilers work for so much of the time is not warm: on one that was, they took under 2 %."""
COMPILE_WINDOW_NS = 2_000_000_000
"""Over the last so many nanoseconds: a method is counted once it is done, which takes up to a second."""

COMPILING_MORE = 2
"""While a JVM compiles, its warm-up may last so many times `measure.warmup_max`."""


@dataclass(frozen=True)
class WarmupSeries:
    """The load of a trial so far, fleet-merged, one entry per interval since `go`: all that the decision whether it is
    steady sees.

    `rate_per_s`: requests that ended ok per second; `response_time_ns_mean`: of those, NaN where there was none."""

    interval_s: float
    rate_per_s: tuple[float, ...]
    response_time_ns_mean: tuple[float, ...]
