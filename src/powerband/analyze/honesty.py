"""The honesty gate: may this trial's figures be believed? Every check of one trial, as a list of problems.

A fatal problem makes the trial invalid: it is repeated within the budget and never averaged in. Each code, its
threshold and the reason for it are documented in docs/reference/validity.md. Here: the checks; not here: the figures
they look at (`fleet.py`, `measure.py`) or what follows from them (`search/blocks.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from powerband.analyze.fleet import Counts, Fleet, Times
from powerband.analyze.results import Problem
from powerband.experiment import Load
from powerband.units import format_duration

LITTLE_TOLERANCE = 0.02
LAG_FLOOR_NS = 1_000_000
LAG_SHARE = 0.10
THREAD_SHARE_MAX = 0.90
STEAL_MAX = 0.02
FOREIGN_SHARE_MAX = 0.10
FOREIGN_SHARE_NOTE = 0.03
SCHEDULE_SHARE = 0.02
FEW_REQUESTS = 100

# Problems that the subject under this load caused: repeating such a trial would only repeat them.
SUBJECT_CODES = frozenset({"no_request_ended", "no_request_ok"})
# Problems that the machine caused.
MACHINE_CODES = frozenset({"host_steal", "host_foreign"})


@dataclass(frozen=True)
class Evidence:
    """What the gate looks at. `metrics` holds those that could be measured."""

    fleet: Fleet
    load: Load
    metrics: Mapping[str, float]
    response: Times
    send_lag: Times
    host_cpus: float | None
    steady: bool | None
    """Whether the measured window was steady; None: too few intervals to say."""


def problems_of(evidence: Evidence) -> tuple[Problem, ...]:
    """Every problem of a trial whose engines reported, the fatal ones first."""
    checks = (_conservation, _ended, _littles_law, _generator, _schedule, _machine, _steadiness)
    found = [problem for check in checks for problem in check(evidence)]
    return tuple(sorted(found, key=lambda problem: not problem.fatal))


def _conservation(evidence: Evidence) -> Iterator[Problem]:
    for name, counts in (("the whole run", evidence.fleet.total), ("the measured window", evidence.fleet.cohort)):
        yield from _lost(name, counts)


def _lost(name: str, counts: Counts) -> Iterator[Problem]:
    if counts.scheduled != counts.sent + counts.dropped:
        yield Problem(
            "lost_work",
            f"over {name} {counts.scheduled} requests were scheduled but {counts.sent} sent and {counts.dropped} "
            "dropped: the engine lost count; please report this as a defect with the trial's directory",
        )
    if counts.sent != counts.ended:
        yield Problem(
            "lost_outcomes",
            f"over {name} {counts.sent} requests were sent but {counts.ended} have an outcome: "
            "the engine lost count; please report this as a defect with the trial's directory",
        )


def _ended(evidence: Evidence) -> Iterator[Problem]:
    fleet = evidence.fleet
    if fleet.ended == 0:
        yield Problem(
            "no_request_ended",
            f"no request ended within the measured {fleet.window_s:.1f} s: the subject does not answer at this "
            "setting, or the window is shorter than one response; lengthen load.duration or look at the subject's log",
        )
    elif fleet.window_outcomes.get("ok", 0) == 0:
        worst = max(fleet.window_outcomes, key=lambda outcome: fleet.window_outcomes[outcome])
        yield Problem(
            "no_request_ok",
            f"none of {fleet.ended} requests ended ok (most: {worst}): look at the subject's log and the step's checks",
        )
    elif evidence.response.count < FEW_REQUESTS:
        yield Problem(
            "few_requests",
            f"only {evidence.response.count} requests were answered: a p99 needs at least {FEW_REQUESTS}; "
            "lengthen load.duration",
            fatal=False,
        )


def _littles_law(evidence: Evidence) -> Iterator[Problem]:
    deviation = evidence.metrics.get("littles_law_deviation")
    if deviation is None or evidence.fleet.ended == 0:
        return
    allowed = LITTLE_TOLERANCE + edge_share(evidence.fleet, evidence.load, evidence.response)
    if deviation > allowed:
        fleet = evidence.fleet
        slots = fleet.users_mean * evidence.load.pipeline
        yield Problem(
            "littles_law",
            f"Little's law does not hold: {slots:.1f} were present, but X (R + Z) = "
            f"{fleet.busy_users_mean + fleet.thinking_users_mean:.1f}, {deviation:.1%} apart ({allowed:.1%} allowed): "
            "times or counts of this trial are wrong",
        )


def edge_share(fleet: Fleet, load: Load, response: Times) -> float:
    """How far N and X (R + Z) may be apart, relative to N, only because cycles overlap the edges of the window.

    The sums hold the cycles that *ended* in the window; the integral holds what was *present*. They differ by the ages
    of the cycles cut at the start less those cut at the end. A cycle of mean length C = N / X has a mean age of at most
    C when users move in step, which over a window T is C / T. Users that move independently add three standard
    errors: 3 sqrt(2 / N) rms(age) / T, with rms(age)^2 = E[L^3] / (3 E[L]) (age of a renewal process; Cox 1962).
    """
    if fleet.achieved_per_s <= 0 or fleet.window_s <= 0:
        return 0.0
    slots = max(1.0, fleet.users_mean * load.pipeline)
    cycle_s = slots / fleet.achieved_per_s
    mean_ns = response.moment(1)
    rms_age_s = math.sqrt(response.moment(3) / (3 * mean_ns)) / 1e9 if mean_ns > 0 else cycle_s
    independent = 3 * math.sqrt(2 / slots) * max(rms_age_s, cycle_s / math.sqrt(3))
    return (cycle_s + independent) / fleet.window_s


def _generator(evidence: Evidence) -> Iterator[Problem]:
    fleet, load = evidence.fleet, evidence.load
    for outcome, remedy in (
        ("no_descriptors", "raise the limit (ulimit -n) or lower the load"),
        ("no_ports", "use keep_alive, or a wider net.ipv4.ip_local_port_range"),
    ):
        if count := fleet.total.outcomes.get(outcome, 0):
            yield Problem(
                f"generator_{outcome}", f"this machine ran out of {outcome[3:]} for {count} requests: {remedy}"
            )
    # An engine that is told to be exact to the nanosecond spins before each send: its CPU then says nothing.
    spins = load.rate_per_s is not None and load.precision_ns == 0
    if fleet.cpu_share_max > THREAD_SHARE_MAX and not spins:
        yield Problem(
            "generator_cpu",
            f"the busiest engine thread used {fleet.cpu_share_max:.0%} of a CPU (limit {THREAD_SHARE_MAX:.0%}): "
            "the generator was the limit, not the subject; raise load.engine_threads or lower the load",
        )
    lag_ns, limit_ns = evidence.send_lag.quantile(0.99), lag_limit_ns(load, evidence.response)
    if evidence.send_lag.count and lag_ns > limit_ns:
        yield Problem(
            "generator_lag",
            f"requests left {format_duration(lag_ns)} late at p99 ({format_duration(limit_ns)} allowed): the response "
            "times hold the generator's own delay; give the engine more threads or CPUs, or lower the load",
        )


def lag_limit_ns(load: Load, response: Times) -> float:
    """The largest believable p99 of the send lag: 1 ms, a tenth of the p99 response time, or twice the precision
    asked for, whichever is largest."""
    return max(LAG_FLOOR_NS, LAG_SHARE * response.quantile(0.99), 2.0 * load.precision_ns)


def _schedule(evidence: Evidence) -> Iterator[Problem]:
    """Open model: the engine must have scheduled what it was told to; three standard errors of a Poisson count more."""
    load, fleet = evidence.load, evidence.fleet
    if load.rate_per_s is None or load.ramp_ns > 0:
        return
    wanted = load.rate_per_s * len(load.scenario) * fleet.window_s
    sampling = 3 * math.sqrt(wanted) * len(load.scenario) if load.arrivals == "poisson" else len(load.scenario)
    short = wanted - fleet.cohort.scheduled
    if short > SCHEDULE_SHARE * wanted + sampling and fleet.cohort.dropped == 0 and len(load.scenario) == 1:
        yield Problem(
            "generator_schedule",
            f"{fleet.cohort.scheduled} requests were scheduled where the rate asks for {wanted:.0f}: "
            "the engine did not keep its schedule; give it more threads or CPUs, or lower the rate",
        )


def _machine(evidence: Evidence) -> Iterator[Problem]:
    steal = evidence.metrics.get("host_steal_share", 0.0)
    if steal > STEAL_MAX:
        yield Problem(
            "host_steal",
            f"the hypervisor took {steal:.1%} of the CPU time ({STEAL_MAX:.0%} allowed): other machines disturbed "
            "this trial; run when the host is quieter",
        )
    foreign, cpus = evidence.metrics.get("host_foreign_cores"), evidence.host_cpus
    if foreign is None or not cpus:
        return
    share = foreign / cpus
    if share > FOREIGN_SHARE_NOTE:
        fatal = share > FOREIGN_SHARE_MAX
        yield Problem(
            "host_foreign" if fatal else "host_foreign_some",
            f"other programs used {foreign:.2f} of {cpus:.0f} CPUs ({FOREIGN_SHARE_MAX:.0%} of the CPUs allowed): "
            "stop them, or expect wider intervals",
            fatal=fatal,
        )


def _steadiness(evidence: Evidence) -> Iterator[Problem]:
    if evidence.steady is False:
        yield Problem(
            "not_steady",
            "the rate or the response time was still changing within the measured window: "
            "lengthen measure.warmup_max or load.duration",
            fatal=False,
        )
