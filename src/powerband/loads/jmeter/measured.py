"""Measures a JMeter plan as a load: JMeter's process stands for the engines, its threads are the users, and its times
come in whole ms. In: a trial's evidence. Out: corrected evidence, metrics and problems.

Conservation holds by construction, since a sample is known only by its end. There is no send lag. Of Little's law one
half can be checked: no more requests can be under way than there are threads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from powerband.base.units import format_duration
from powerband.loads.jmeter.clock import clock_error_ns
from powerband.loads.measured import THREAD_SHARE_MAX, checks, in_flight_metrics, load_metrics, starved
from powerband.model.metrics import metric_words
from powerband.model.results import Problem
from powerband.readings.evidence import Evidence, Source
from powerband.readings.fleet import MergedFleet

THREADS_TOLERANCE = 0.02  # as for Little's law of powerband's own engine
LABELS_SHOWN = 5  # arbitrary: what fits a message
THREADS_CHANGE = 0.05  # within the window: arbitrary, above what threads that come and go by chance make
THREADS_FLOOR = 0.5  # a thread that starts or ends within the window may be counted or not


def with_own_cpu(evidence: Evidence) -> Evidence:
    """Returns the evidence with the CPU of JMeter's processes, as the probe saw it, in place of the engines' own
    account."""
    trees = () if evidence.probe is None else evidence.probe.matching("engine")
    used = [cores for tree in trees if (cores := tree.cores(*evidence.window)) is not None]
    cpus = len(evidence.record.cpus.get("engine", ())) or evidence.host_cpus
    return replace(evidence, fleet=with_jmeter(evidence.fleet, sum(used) if used else None, cpus))


def with_jmeter(fleet: MergedFleet, cores: float | None, cpus: float | None) -> MergedFleet:
    """Returns the fleet with `cores` as its CPU; None if nothing watched it. `cpus`: how many JMeter's threads share;
    None if that is unknown. Its `threads` are those that do not pause, on average: a thread in a pause waits for no
    CPU. They are within a request, or use a CPU between two."""
    threads = max(1, round(min(fleet.users_mean, _present(fleet) + (cores or 0.0))))
    if cores is None:
        return replace(fleet, threads=threads)
    return replace(fleet, cpu_cores=cores, cpu_share_max=cores / cpus if cpus else 0.0, threads=threads)


def jmeter_metrics(fleet: MergedFleet) -> dict[str, float]:
    """Returns the number of threads, and how many of them were within a request, by the times of all requests under way
    in the window."""
    if fleet.users_mean <= 0:
        return {}
    return {"users_mean": fleet.users_mean, "in_flight_mean": _present(fleet)}


def _present(fleet: MergedFleet) -> float:
    """Returns how many threads were within a request, on average over the window."""
    return max(0.0, fleet.busy_users_mean + fleet.carried_users_mean)


def jmeter_problems(fleet: MergedFleet, metrics: Mapping[str, float], told: Mapping[str, Any]) -> Iterator[Problem]:
    """Yields the problems of JMeter's threads and transactions. `told`: the record's entry on JMeter."""
    present, users = metrics.get("in_flight_mean", 0.0), fleet.users_mean
    if present > users + max(THREADS_FLOOR, THREADS_TOLERANCE * users):
        yield Problem(
            "littles_law",
            f"Little's law does not hold: by their times {present:.1f} requests were under way, and JMeter had "
            f"{users:.1f} threads: something is counted twice, such as a sampler that reports sub-samples",
        )
    if alone := told.get("transactions_alone", 0):
        yield Problem(
            "jmeter_transactions",
            f"{alone:,} samples are transactions that stand for the requests within them (the controller's option "
            '"Generate parent sample"), and are counted as one request each: switch that off to count requests',
            fatal=False,
        )
    if idle := told.get("sent_nothing"):
        yield Problem(
            "jmeter_transactions",
            f"{sum(idle.values()):,} samples sent nothing, and are counted as one request each "
            f"({', '.join(list(idle)[:LABELS_SHOWN])}): switch Debug Samplers off, let scripts be pre-processors",
            fatal=False,
        )


def clock_problem(evidence: Evidence, metrics: Mapping[str, float]) -> Iterator[Problem]:
    """Reports an objective whose margin is finer than JMeter's clock, or that the clock does not resolve most times."""
    objective, response = evidence.experiment.objective, evidence.response
    value, error_ns = metrics.get(objective.metric, math.inf), clock_error_ns(objective.metric)
    if 2 * error_ns > objective.margin * value:
        yield Problem(
            "jmeter_clock",
            f"JMeter's times are whole milliseconds, and the {metric_words(objective.metric)} is "
            f"{format_duration(value)}: settings that are not more than 1 ms apart are not told apart, nor called "
            "equivalent; judge the mean (response_time_ns_mean), in which that evens out, or let powerband's own "
            "engine measure (powerband import turns the plan into a scenario)",
            fatal=False,
        )
    elif response.count and response.quantile(0.5) <= 0:
        yield Problem(
            "jmeter_clock",
            "half of the requests were answered in less than 1 ms, which JMeter's clock does not resolve: a "
            "quantile below 1 ms is left out; powerband's own engine measures such a server (powerband import turns "
            "the plan into a scenario)",
            fatal=False,
        )


def threads_problem(evidence: Evidence) -> Iterator[Problem]:
    """Reports threads that still began, or already ended, within the window: by the means of its first and last
    fifth."""
    start, end = evidence.window
    users = [
        event["users_now"] for event in evidence.intervals if start <= event["start_ns"] and event["end_ns"] <= end
    ]
    fifth = len(users) // 5
    if not fifth:
        return
    first, last = sum(users[:fifth]) / fifth, sum(users[-fifth:]) / fifth
    if abs(last - first) > max(1.0, THREADS_CHANGE * max(first, last)):
        yield Problem(
            "not_all_joined",
            f"JMeter had {first:.0f} threads in the first fifth of the measured window, and {last:.0f} in the last: "
            "the figures are of no one number of threads; begin the window after the ramp-up (measure.warmup), and let "
            "thread groups loop for ever",
            fatal=False,
        )


def _too_busy(evidence: Evidence, metrics: Mapping[str, float]) -> Iterator[Problem]:
    share = evidence.fleet.cpu_share_max
    if share > THREAD_SHARE_MAX:
        yield Problem(
            "generator_cpu",
            f"JMeter used {100 * share:.0f} % of the CPU time that it may have (limit {100 * THREAD_SHARE_MAX:.0f} %): "
            "it was the limit, not the server; lower the plan's load, give it more CPUs (load.engine_threads, "
            "host.pinning), or let powerband's own load generator do it (powerband import)",
        )


_REMEDY = "give the plan fewer threads, or more CPUs (load.engine_threads, host.pinning)"
LOAD = Source("load", load_metrics, checks(_too_busy, partial(starved, whose="JMeter", remedy=_REMEDY)))
USERS = Source(
    "users",
    lambda evidence: {**dict(in_flight_metrics(evidence)), **jmeter_metrics(evidence.fleet)},
    lambda evidence, metrics: (
        *jmeter_problems(evidence.fleet, metrics, evidence.record.jmeter),
        *clock_problem(evidence, metrics),
        *threads_problem(evidence),
    ),
)
