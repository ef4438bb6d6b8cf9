"""The data by which it is decided when a warm-up has lasted long enough."""

from __future__ import annotations

from dataclasses import dataclass

COMPILES = 0.1
"""A runtime whose compilers work for at least this share of the time is not warm; on warm JVMs they took under 2 %."""
COMPILE_WINDOW_NS = 2_000_000_000
"""The time over which that share is taken: a compiled method counts when it is done, which takes up to a second."""

COMPILING_MORE = 2
"""While a JVM compiles, its warm-up may last so many times `measure.warmup_max`."""


@dataclass(frozen=True)
class WarmupSeries:
    """The load of a trial so far, merged over all engines, with one entry for each interval of `interval_s` since `go`.
    The decision if it is steady sees nothing else.

    `rate_per_s`: requests per second that ended ok; `response_time_ns_mean`: their mean response time, NaN if there was
    none. `busy_users`: a fixed number of users have had a request under way all the time, and all ended ok; by Little's
    law their rate is the inverse of the response time then. `between`: it is asked between two full looks, of which
    there are two a second: then only response times that are plainly level end the warm-up."""

    interval_s: float
    rate_per_s: tuple[float, ...]
    response_time_ns_mean: tuple[float, ...]
    busy_users: bool = False
    between: bool = False
