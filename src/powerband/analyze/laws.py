"""Operational laws (Denning and Buzen 1978, "The operational analysis of queueing network models"): identities
between what one trial measured, without assumption about distributions.

In: a trial's result. Out: figures for the rules of thumb and the bottleneck. Not here: any verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from powerband.analyze.results import PoolUse, TrialResult

SECOND_NS = 1e9
# Loops and collectors do not hold a request while they wait.
IDLE_KINDS = ("lock", "poll")


@dataclass(frozen=True)
class Work:
    """One request's demand: `cpu_ns` on a CPU, in any thread of the subject; `wait_ns` blocked in the thread that
    serves it. Waiting for a CPU, or for a thread, is in neither."""

    cpu_ns: float
    wait_ns: float

    @property
    def ratio(self) -> float:
        """W / C of Goetz's rule."""
        return self.wait_ns / self.cpu_ns


def in_flight(metrics: Mapping[str, float]) -> float | None:
    """Mean requests in the system: by Little's law, N = X R; where some wait all through the window and so have no
    response time, as many as were sampled."""
    rate, response_ns = metrics.get("achieved_rate_per_s"), metrics.get("response_time_ns_mean")
    sampled = metrics.get("in_flight_mean")
    if rate is None or response_ns is None:
        return sampled
    little = rate * response_ns / SECOND_NS
    return max(little, sampled) if sampled is not None and sampled > 1.5 * little + 1 else little


def serving_threads(pool: PoolUse, present: float) -> float:
    """How many threads of a pool hold a request while `present` are in the system: no more than there are of either."""
    return min(pool.threads, present)


def time_in_pool_ns(busy_threads: float, rate_per_s: float) -> float | None:
    """Little's law for a pool: mean busy threads = X times the mean time in it."""
    return busy_threads / rate_per_s * SECOND_NS if rate_per_s > 0 else None


def work_per_request(result: TrialResult) -> Work | None:
    """W and C of one request as measured; None without pools that were watched, without ended requests, or where no
    pool of threads serves (event loops hold many requests each).

    W is what the worker pool's threads were blocked while they served, over X. Threads without a request wait on a
    condition, so as many of those waits are taken off as there are threads beyond the requests present."""
    rate = result.metrics.get("achieved_rate_per_s")
    cpu_ns = result.metrics.get("subject_cpu_ns_per_request")
    present = in_flight(result.metrics)
    workers = worker_pool(result.pools, rate)
    if not rate or not cpu_ns or present is None or workers is None:
        return None
    serving = serving_threads(workers, present)
    blocked = max(0.0, min(workers.blocked, serving - workers.on_cpu - workers.run_wait))
    wait_ns = time_in_pool_ns(blocked, rate)
    return None if wait_ns is None else Work(cpu_ns=cpu_ns, wait_ns=wait_ns)


def worker_pool(pools: tuple[PoolUse, ...], rate_per_s: float | None) -> PoolUse | None:
    """The pool whose threads serve requests: of those that do not mostly poll, the one with the most thread time that
    is not idle waiting on a condition; at least a twentieth of a thread, or it serves nothing."""
    if not rate_per_s:
        return None
    busy = [(active_threads(pool), pool) for pool in pools if pool.blocked_on.get("poll", 0.0) < 0.5]
    best = max(busy, key=lambda pair: pair[0], default=None)
    return best[1] if best is not None and best[0] >= 0.05 else None


def active_threads(pool: PoolUse) -> float:
    """Threads that certainly do something: on a CPU, waiting for one, or blocked on other things than idle threads."""
    idle = sum(pool.blocked_on.get(kind, 0.0) for kind in IDLE_KINDS) if pool.blocked_on else 1.0
    return pool.on_cpu + pool.run_wait + pool.blocked * max(0.0, 1.0 - idle)
