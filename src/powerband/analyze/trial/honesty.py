"""The honesty gate: may this trial's figures be believed? Every check of one trial, as a list of problems.

A fatal problem makes the trial invalid: it is repeated within the budget and never averaged in. Each code, its
threshold and the reason for it are documented in docs/reference/validity.md. Here: the checks; not here: the figures
they look at (`fleet.py`, `measure.py`) or what follows from them (`search/blocks.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from powerband.base.units import format_duration
from powerband.model.experiment import STEAL_MAX
from powerband.model.load import Load
from powerband.model.results import Problem
from powerband.readings.fleet import MergedFleet, MergedTimes, RequestCounts

LITTLE_TOLERANCE = 0.02
LAG_FLOOR_NS = 1_000_000
LAG_SHARE = 0.10
THREAD_SHARE_MAX = 0.90
STARVED_WINDOW_SHARE = 0.05
WAKE_UP_NS = 100_000
STARVED_RESPONSE_SHARE = 0.10
FOREIGN_SHARE_NOTE = 0.03
PRESSURE_NOTES = {"memory": 0.01, "io": 0.10}
SCHEDULE_SHARE = 0.02
FEW_REQUESTS = 100

# Problems that the subject under this load caused: repeating such a trial would only repeat them.
SUBJECT_CODES = frozenset({"no_request_ended", "no_request_ok", "invariant"})
# Problems that the machine caused.
MACHINE_CODES = frozenset({"host_steal", "host_foreign"})


@dataclass(frozen=True)
class Evidence:
    """What the gate looks at. `metrics` holds those that could be measured."""

    fleet: MergedFleet
    load: Load
    metrics: Mapping[str, float]
    response: MergedTimes
    send_lag: MergedTimes
    host_cpus: float | None
    """How many CPUs the host's samples are of: those that the trial may use."""
    foreign_cpu_max: float
    steal_max: float
    pinned: bool
    """Whether subject and engine had CPUs of their own."""
    steady: bool | None
    """Whether the measured window was steady; None: too few intervals to say."""
    self_driven: bool = False
    """Nothing loaded the subject, so that there is no generator to doubt, and no times that could be wrong."""


def problems_of(evidence: Evidence) -> tuple[Problem, ...]:
    """Every problem of a trial that was measured, the fatal ones first."""
    checks: tuple[Check, ...] = (_machine, _pressure, _steadiness)
    if not evidence.self_driven:
        checks = (
            _conservation,
            _ended,
            _littles_law,
            _starved_users,
            _ran_out,
            _generator,
            _starved,
            _schedule,
            *checks,
        )
    found = [problem for check in checks for problem in check(evidence)]
    return tuple(sorted(found, key=lambda problem: not problem.fatal))


Check = Callable[[Evidence], Iterator[Problem]]


def _conservation(evidence: Evidence) -> Iterator[Problem]:
    for name, counts in (("the whole run", evidence.fleet.total), ("the measured window", evidence.fleet.cohort)):
        yield from _lost(name, counts)


def _lost(name: str, counts: RequestCounts) -> Iterator[Problem]:
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
    if deviation > LITTLE_TOLERANCE:
        fleet = evidence.fleet
        slots = fleet.users_mean * evidence.load.pipeline
        yield Problem(
            "littles_law",
            f"Little's law does not hold: {slots:.1f} were present, but X (R + Z) and what the window's "
            f"edges cut make {present_by_times(fleet):.1f}, {deviation:.1%} apart ({LITTLE_TOLERANCE:.0%} allowed): "
            "times or counts of this trial are wrong; please report this as a defect with the trial's directory",
        )


def present_by_times(fleet: MergedFleet) -> float:
    """The right-hand side of Little's law over a window, N = X (R + Z): the cycles that ended within it, less what of
    them lay before it, and what lay within it of those that had not ended (Little 2011, "Little's Law as viewed on its
    50th anniversary": with the edges counted the law is an identity on every finite window)."""
    return fleet.busy_users_mean + fleet.thinking_users_mean + fleet.carried_users_mean


def _starved_users(evidence: Evidence) -> Iterator[Problem]:
    """Neither an error nor a response time tells of a request that waits all through the window."""
    fleet, load = evidence.fleet, evidence.load
    if not fleet.unanswered or not fleet.ended:
        return
    whose = f"{fleet.unanswered} requests were"
    if load.users is not None and load.pipeline == 1:
        whose = f"{fleet.unanswered} of {fleet.users_mean:.0f} users were"
    yield Problem(
        "starved_users",
        f"{whose} not answered once within the measured window, which error_rate and the response times do not show: "
        "the subject serves fewer connections than it was given (keep-alive may bind each to a thread), or the window "
        "is shorter than one response",
        fatal=False,
    )


def _ran_out(evidence: Evidence) -> Iterator[Problem]:
    fleet = evidence.fleet
    for outcome, remedy in (
        ("no_descriptors", "raise the limit (ulimit -n) or lower the load"),
        ("no_ports", "use keep_alive, or a wider net.ipv4.ip_local_port_range"),
    ):
        if count := fleet.total.outcomes.get(outcome, 0):
            yield Problem(
                f"generator_{outcome}", f"this machine ran out of {outcome[3:]} for {count} requests: {remedy}"
            )


def _generator(evidence: Evidence) -> Iterator[Problem]:
    fleet, load = evidence.fleet, evidence.load
    if load.jmeter is not None:
        if fleet.cpu_share_max > THREAD_SHARE_MAX:
            yield Problem(
                "generator_cpu",
                f"JMeter used {fleet.cpu_share_max:.0%} of the CPU time that it may have (limit "
                f"{THREAD_SHARE_MAX:.0%}): it was the limit, not the subject; lower the plan's load, give it more CPUs "
                "(load.engine_threads, host.pinning), or let powerband's own engine load (powerband import)",
            )
        return
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


def _starved(evidence: Evidence) -> Iterator[Problem]:
    """In a closed load an engine without a CPU sends and reads late, and nothing in its times tells."""
    fleet, waited = evidence.fleet, evidence.metrics.get("engine_run_wait_cores")
    if not evidence.pinned:
        yield Problem(
            "not_pinned",
            "subject and engine shared CPUs: each took time from the other; where there are two CPUs or more, leave "
            "host.pinning on",
            fatal=False,
        )
    if not waited or not fleet.threads or not evidence.response.count:
        return
    # Each wake-up alone takes some us, which the kernel counts as waiting: only longer waits are a lack of CPU.
    turn_ns = evidence.metrics.get("engine_run_wait_ns_mean", 0.0)
    waited_share, wanted_share = waited / fleet.threads, (waited + fleet.cpu_cores) / fleet.threads
    slowed = turn_ns > STARVED_RESPONSE_SHARE * evidence.response.moment(1)
    whose, remedy = "engine", "use no more load.engine_threads than the engine has CPUs"
    if evidence.load.jmeter is not None:
        whose, remedy = "JMeter", "give the plan fewer threads, or more CPUs (load.engine_threads, host.pinning)"
    if turn_ns > WAKE_UP_NS and waited_share > STARVED_WINDOW_SHARE and (slowed or wanted_share > THREAD_SHARE_MAX):
        yield Problem(
            "generator_starved",
            f"{whose} threads waited {format_duration(turn_ns)} for a CPU each time they were to run, "
            f"{waited_share:.0%} of the window: the response times hold that wait; stop other programs, pin "
            f"subject and engine apart (host.pinning), or {remedy}",
        )


def lag_limit_ns(load: Load, response: MergedTimes) -> float:
    """The largest believable p99 of the send lag: 1 ms, a tenth of the p99 response time, or twice the precision
    asked for, whichever is largest."""
    return max(LAG_FLOOR_NS, LAG_SHARE * response.quantile(0.99), 2.0 * load.precision_ns)


def _schedule(evidence: Evidence) -> Iterator[Problem]:
    """Open model: the engine must have scheduled what it was told to; three standard errors of a Poisson count more."""
    load, fleet = evidence.load, evidence.fleet
    if load.rate_per_s is None or load.ramp_ns > 0 or len(load.scenario) > 1 or fleet.cohort.dropped:
        return  # of several steps, the later are scheduled by the answers to the earlier
    wanted = load.rate_per_s * fleet.window_s
    sampling = 3 * math.sqrt(wanted) if load.arrivals == "poisson" else 1
    if wanted - fleet.cohort.scheduled > SCHEDULE_SHARE * wanted + sampling:
        yield Problem(
            "generator_schedule",
            f"{fleet.cohort.scheduled} requests were scheduled where the rate asks for {wanted:.0f}: "
            "the engine did not keep its schedule; give it more threads or CPUs, or lower the rate",
        )


def _machine(evidence: Evidence) -> Iterator[Problem]:
    steal = evidence.metrics.get("host_steal_share", 0.0)
    taken = f"the hypervisor took {steal:.1%} of the CPU time"
    if steal > evidence.steal_max:
        yield Problem(
            "host_steal",
            f"{taken} ({evidence.steal_max:.0%} allowed): other machines disturbed this trial, so it does not count; "
            "run when the host is quieter, or raise measure.steal_max, knowing that results then hold what they did",
        )
    elif steal > STEAL_MAX:
        yield Problem(
            "host_steal_some", f"{taken}: run when the host is quieter, or expect wider intervals", fatal=False
        )
    foreign, cpus = evidence.metrics.get("host_foreign_cores"), evidence.host_cpus
    if foreign is None or not cpus:
        return
    share, allowed = foreign / cpus, evidence.foreign_cpu_max
    used = f"other programs used {foreign:.2f} of the trial's {cpus:.0f} CPUs ({share:.0%})"
    if share > allowed:
        yield Problem(
            "host_foreign",
            f"{used}, more than the {allowed:.0%} allowed: this trial does not count; stop them, or raise "
            "measure.foreign_cpu_max, knowing that results then hold what those programs did",
        )
    elif share > FOREIGN_SHARE_NOTE:
        yield Problem("host_foreign_some", f"{used}: stop them, or expect wider intervals", fatal=False)


def _pressure(evidence: Evidence) -> Iterator[Problem]:
    """Notes only: the kernel tells of the whole host, and the subject may be the one that waits."""
    share = evidence.metrics.get("psi_memory_share", 0.0)
    if share > PRESSURE_NOTES["memory"]:
        yield Problem(
            "memory_pressure",
            f"tasks of this machine waited for memory in {share:.0%} of the window: it is short of it, which slows "
            "down whatever touches a page; end other programs, or give the subject less",
            fatal=False,
        )
    share = evidence.metrics.get("psi_io_share", 0.0)
    if share > PRESSURE_NOTES["io"]:
        yield Problem(
            "io_pressure",
            f"tasks of this machine waited for a disk in {share:.0%} of the window: if the subject uses none, other "
            "programs do; end them",
            fatal=False,
        )


def _steadiness(evidence: Evidence) -> Iterator[Problem]:
    if evidence.steady is False:
        what = "the rate" if evidence.self_driven else "the rate or the response time"
        yield Problem(
            "not_steady",
            f"{what} was still changing within the measured window: lengthen measure.warmup_max or load.duration",
            fatal=False,
        )
