"""Operational laws (Denning and Buzen 1978, "The operational analysis of queueing network models"): identities
between what one trial measured, without assumption about distributions.

In: figures of one trial. Out: figures that were not measured themselves. Not here: any verdict, and what several
settings tell together (`thread_line.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

from powerband.model.results import PoolUse
from powerband.readings.fleet import SECOND_NS

ERRORS_MAX = 0.01  # above it, quick refusals hide what a request takes
# Threads without a request wait on these, too.
IDLE_KINDS = ("lock", "poll")


def in_flight(metrics: Mapping[str, float]) -> float | None:
    """The mean number of requests in the system, by Little's law, N = X R, over the requests that were answered
    rightly, since only these have response times. If requests fail, or some wait all through the window, it is the
    sampled number. None if neither is known."""
    rate, response_ns = metrics.get("goodput_per_s"), metrics.get("response_time_ns_mean")
    sampled = metrics.get("in_flight_mean")
    if rate is None or response_ns is None:
        return sampled
    little = rate * response_ns / SECOND_NS
    if sampled is None or sampled <= little:
        return little
    fail = metrics.get("error_rate", 0.0) > ERRORS_MAX
    return sampled if fail or sampled > 1.5 * little + 1 else little


def time_in_pool_ns(busy_threads: float, rate_per_s: float) -> float:
    """Little's law for a pool, or for what its threads wait on: their mean number = X times the mean time in it."""
    return busy_threads / rate_per_s * SECOND_NS


def held_ns(pool: PoolUse, rate_per_s: float, present: float | None) -> float | None:
    """The time that a request holds a thread of this pool, on average and at least; None if no request ended.
    `present`: the mean number of requests in the system, None if it is not known. Threads beyond that number which wait
    on a socket may do so for the next request of their connection, and do not count. All that work count: a request may
    hold several at once, or one after its answer."""
    if rate_per_s <= 0:
        return None
    active = active_threads(pool)
    if present is not None:
        elsewhere = pool.blocked * sum(pool.blocked_on.get(kind, 0.0) for kind in IDLE_KINDS)
        idle = max(0.0, pool.threads - present - elsewhere)
        active -= min(idle, pool.blocked * pool.blocked_on.get("socket", 0.0))
    return time_in_pool_ns(active, rate_per_s)


def active_threads(pool: PoolUse) -> float:
    """The mean number of threads that certainly do something: on a CPU, waiting for one, or blocked on what idle
    threads do not wait on."""
    idle = sum(pool.blocked_on.get(kind, 0.0) for kind in IDLE_KINDS) if pool.blocked_on else 1.0
    return pool.on_cpu + pool.run_wait + pool.blocked * max(0.0, 1.0 - idle)
