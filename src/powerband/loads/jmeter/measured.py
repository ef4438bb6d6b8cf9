"""What is otherwise with a load that is a JMeter plan: what its process used stands for the engines' own account, times
come in whole ms, threads are the users. In: a trial's figures. Out: a `MergedFleet`, metrics and problems.

Conservation holds by construction, for a sample is known by its end only; a send lag is never told; of Little's law one
half is left, that no more requests can be under way than there are threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from powerband.model.results import Problem
from powerband.readings.fleet import MergedFleet, MergedTimes

THREADS_TOLERANCE = 0.02
THREADS_FLOOR = 0.5


def with_jmeter(fleet: MergedFleet, cores: float | None, cpus: float | None) -> MergedFleet:
    """The fleet with the CPU of JMeter's processes as the probe saw it, in `cores`. `cpus`: those that JMeter may use,
    all of which its threads share."""
    threads = max(1, round(fleet.users_mean))
    if cores is None:
        return replace(fleet, threads=threads)
    return replace(fleet, cpu_cores=cores, cpu_share_max=cores / cpus if cpus else 0.0, threads=threads)


def jmeter_metrics(fleet: MergedFleet) -> dict[str, float]:
    """Threads, and how many of them were within a request: by the times of all that were under way in the window."""
    if fleet.users_mean <= 0:
        return {}
    present = max(0.0, fleet.busy_users_mean + fleet.carried_users_mean)
    return {"users_mean": fleet.users_mean, "in_flight_mean": present}


def jmeter_problems(
    fleet: MergedFleet, response: MergedTimes, metrics: Mapping[str, float], told: Mapping[str, Any]
) -> Iterator[Problem]:
    """`told`: the record's own words on JMeter."""
    present, users = metrics.get("in_flight_mean", 0.0), fleet.users_mean
    if present > users + max(THREADS_FLOOR, THREADS_TOLERANCE * users):
        yield Problem(
            "littles_law",
            f"Little's law does not hold: by their times {present:.1f} requests were under way, and JMeter had "
            f"{users:.1f} threads: something is counted twice, such as a sampler that tells of sub-samples",
        )
    if alone := told.get("transactions_alone", 0):
        yield Problem(
            "jmeter_transactions",
            f"{alone:,} samples are transactions that stand for the requests within them (the controller's option "
            '"Generate parent sample"), and are counted as one request each: switch that off to count requests',
            fatal=False,
        )
    if response.count and response.quantile(0.5) <= 0:
        yield Problem(
            "jmeter_clock",
            "half of the requests were answered in less than 1 ms, which JMeter's clock does not tell apart: a "
            "quantile below 1 ms is left out; powerband's own engine measures such a server (powerband import turns "
            "the plan into a scenario)",
            fatal=False,
        )
