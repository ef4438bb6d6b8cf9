"""Servers that are queues of known theory, M/G/k: every request of a trial is simulated, in a window after a warm-up
from empty, as in a real trial. Results are computed: nothing is run or measured."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from heapq import heapreplace

import numpy as np

from fakes.edges import Answer, result
from powerband.analyze.stats.special import Array
from powerband.model.plan import Stage, TrialSpec
from powerband.model.results import TrialResult

WARMUP_S = 2.0
LONG_RUN = 300_000
"""Requests in the long run that gives the true capacity: a thousand times what a queue at 92 % takes to forget."""
HEAVY_SIGMA = 1.27  # lognormal, squared coefficient of variation 4


@dataclass(frozen=True)
class Queue:
    """A queue with `slots` servers, first come first served. The time of a request has the mean `mean_s` and is
    "fixed", "exponential" or "heavy". `sd`: log standard deviation of the speed between starts. The condition: p99
    below `limit_s`."""

    slots: int
    service: str
    mean_s: float
    limit_s: float = 0.1
    sd: float = 0.0

    @property
    def most_per_s(self) -> float:
        return self.slots / self.mean_s

    @property
    def capacity_per_s(self) -> float:
        """The rate that 95 % of starts sustain in the long run."""
        slow = math.exp(-1.645 * self.sd)
        return self.most_per_s * slow * _load_held(self.slots, self.service, self.limit_s * slow / self.mean_s)


@lru_cache(maxsize=64)
def _load_held(slots: int, service: str, limit: float) -> float:
    """The highest load (share of what the slots can give) whose long-run p99 is below the limit, in mean service times;
    by bisection, with the same random numbers at every load."""
    dice = np.random.default_rng(11)
    gaps, served = dice.exponential(1.0, LONG_RUN), _times(service, dice, LONG_RUN)
    low, high = 0.02, 0.999
    while high - low > 0.001:
        load = (low + high) / 2
        arrivals = np.cumsum(gaps) / (load * slots)
        p99 = float(np.quantile(ends(arrivals, served, slots) - arrivals, 0.99))
        low, high = (load, high) if p99 < limit else (low, load)
    return low


def ends(arrivals: Array, served: Array, slots: int) -> Array:
    """The end of each request, with so many servers that begin idle and serve first come, first served."""
    free, found = [0.0] * slots, []
    for arrival, takes in zip(arrivals.tolist(), served.tolist(), strict=True):
        first = free[0]
        end = (arrival if arrival > first else first) + takes
        heapreplace(free, end)
        found.append(end)
    return np.array(found)


def _times(service: str, dice: np.random.Generator, count: int) -> Array:
    """Random service times of mean 1."""
    if service == "fixed":
        return np.ones(count)
    if service == "exponential":
        return dice.exponential(1.0, count)
    return np.asarray(dice.lognormal(-(HEAVY_SIGMA**2) / 2, HEAVY_SIGMA, count))


def queue_answers(queue: Queue, dice: np.random.Generator, usual_window_s: float) -> Answer:
    def answer(spec: TrialSpec) -> TrialResult:
        mean_s = queue.mean_s * math.exp(queue.sd * dice.standard_normal())
        window_s = usual_window_s if spec.window_ns is None else spec.window_ns / 1e9
        if spec.stage is Stage.SATURATE:
            count = round(2 * window_s * queue.slots / mean_s)
            at = ends(np.zeros(count), mean_s * _times(queue.service, dice, count), queue.slots)
            return result(spec, {"goodput_per_s": float((at <= window_s).sum()) / window_s})
        assert spec.rate_per_s is not None
        whole_s = WARMUP_S + window_s
        count = dice.poisson(spec.rate_per_s * whole_s)
        arrivals = np.sort(dice.uniform(0, whole_s, count))
        at = ends(arrivals, mean_s * _times(queue.service, dice, count), queue.slots)
        times_s = (at - arrivals)[arrivals >= WARMUP_S]
        metrics = {
            "response_time_ns_p99": 1e9 * float(np.quantile(times_s, 0.99)),
            "response_time_ns_mean": 1e9 * float(times_s.mean()),
            "error_rate": 0.0,
            "offered_rate_per_s": len(times_s) / window_s,
            "goodput_per_s": float(((at >= WARMUP_S) & (at <= whole_s)).sum()) / window_s,
        }
        return result(spec, metrics)

    return answer
