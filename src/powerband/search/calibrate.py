"""Checks this machine and the load generator against theory. Reference servers of known capacity go through ordinary
trials; their throughput and mean response time are compared with operational laws and queueing theory.

In: nothing but the engine. Out: a `Calibration` with one `CalibrationCheck` per server: deviations with intervals. Not
here: the formulas (`analyze/stats/theory.py`), printing. The real duration of a request is measured first: if timers
overshoot, the server is slower than its nominal speed, and the measurement is right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from powerband.analyze.stats.intervals import estimate
from powerband.analyze.stats.theory import closed_throughput_bound, mdc_response_s, mg1_response_s, mmc_response_s
from powerband.analyze.trial.faults import fatal_codes
from powerband.analyze.trial.honesty import MACHINE_CODES
from powerband.analyze.trial.measure import measure
from powerband.model.experiment import Experiment, Measure, Subject
from powerband.model.load import Constant, Load
from powerband.model.plan import Setting, TrialSpec
from powerband.model.results import TrialResult
from powerband.processes.stop_request import StopRequest
from powerband.search.observer import Observer
from powerband.store import TrialDir
from powerband.trials.trial import run_trial

TOLERANCE = 0.05  # the promise of docs/methods/calibration.md: every server within 5 % of theory
SAMPLING_MAX = 0.05  # the widest half interval with which a deviation of `TOLERANCE` can be seen
CONFIDENCE = 0.95  # the same as for settings that are compared
AT_ONCE = 8  # reference servers with one thread each; fewer if they have more threads
SERVICE_S = 0.010  # fifty times a request's other costs (some 0.2 ms), so that the servers hardly use a CPU
ATTEMPTS = 2  # at each trial: a disturbance may have passed the second time
# These servers are almost idle, so an engine that had no CPU was deprived of it by other programs.
DISTURBANCES = MACHINE_CODES | {"generator_starved"}


@dataclass(frozen=True)
class CalibrationCheck:
    """One reference server compared with theory.

    `name`: the model and its load; `quantity`: what is compared, in `unit` (as in `model/metrics.py`). `expected`:
    theory's value; `measured`: None if nothing could be measured; both are means over the usable `trials`, which sent
    so many `requests`. `deviation`: measured / expected - 1. `low`, `high`: its interval, from the spread over
    independent trials; None for one trial. `allowed`: the largest deviation that passes, 0.05; the quick form adds the
    sampling error, 0.05 at most. `disturbed`: number of trials on a machine that was not quiet. They count, since these
    servers hardly use the CPU, but a deviation may come from the disturbance. `problem`: the reason why nothing could
    be measured, or why the result is inconclusive."""

    name: str
    quantity: str
    unit: str
    expected: float
    measured: float | None
    deviation: float | None
    low: float | None
    high: float | None
    allowed: float
    trials: int
    requests: int
    disturbed: int = 0
    problem: str | None = None

    @property
    def passed(self) -> bool:
        """True if the deviation was measured and is allowed."""
        return self.problem is None and self.deviation is not None and abs(self.deviation) <= self.allowed

    @property
    def undecided(self) -> bool:
        """True if it was measured, but too coarsely to pass or to fail."""
        return self.problem is not None and self.deviation is not None


@dataclass(frozen=True)
class Served:
    """The duration of a request whose server is asked to wait `SERVICE_S`. `service_s`: the time that the request holds
    a thread, 1 / X of one saturated thread (utilisation law). `overhead_s`: the response time of a single user, who
    never queues, beyond `service_s`."""

    service_s: float
    overhead_s: float


@dataclass(frozen=True)
class Calibration:
    """The result of `powerband calibrate`: its `checks`. `service_asked_s`: the wait that requests ask of the reference
    servers. `served`: how long they really take; None if it could not be measured; `problem` says why. `planned`: the
    number of checks that were to be made. `interrupted`: `checks` holds only those that were finished, and the
    calibration does not pass."""

    service_asked_s: float
    served: Served | None
    checks: tuple[CalibrationCheck, ...]
    problem: str | None = None
    planned: int = 0
    interrupted: bool = False

    @property
    def passed(self) -> bool:
        """True if all checks were made, and each passed."""
        return not self.interrupted and bool(self.checks) and all(check.passed for check in self.checks)

    @property
    def undecided(self) -> int:
        """The number of inconclusive checks, if every other check passed; else 0."""
        if not all(check.passed or check.undecided for check in self.checks):
            return 0
        return sum(check.undecided for check in self.checks)


@dataclass(frozen=True)
class _Case:
    """A server and a load with a known answer; `expected` is in the metric's own unit."""

    name: str
    quantity: str
    metric: str
    unit: str
    servers: int
    distribution: str
    load: Load
    trials: int
    expected: Callable[[TrialResult, Served], float]


def calibrate(
    *,
    quick: bool,
    directory: Path,
    stop: StopRequest,
    starting: Callable[[str], None] = lambda what: None,
) -> Calibration:
    """Runs all checks: about four minutes, less than one when `quick`. Trials are kept under `directory`; `starting` is
    called with a description of each measurement before it starts.

    Raises MeasurementError if no engine is found or the disk is full."""
    cases = _cases(quick)
    bench = _Bench(directory, stop)
    starting("what a request takes")
    (alone,) = bench.run(_closed("one user", servers=1, users=1, think_s=0.0, seconds=3 if quick else 8))
    (busy,) = bench.run(_closed("one thread", servers=1, users=4, think_s=0.0, seconds=3 if quick else 8))
    if stop.requested:
        return Calibration(SERVICE_S, None, (), None, len(cases), interrupted=True)
    if not (_usable(alone) and _usable(busy)):
        return Calibration(SERVICE_S, None, (), _reason([alone, busy]), len(cases))
    service_s = 1 / busy.metrics["goodput_per_s"]
    served = Served(service_s, max(0.0, alone.metrics["response_time_ns_mean"] / 1e9 - service_s))
    checks = []
    for number, case in enumerate(cases, 1):
        starting(f"{number} of {len(cases)}: {case.name}")
        results = bench.run(case)
        if stop.requested:  # trials cut short say nothing about the machine
            break
        checks.append(_check(case, results, served, quick))
    return Calibration(SERVICE_S, served, tuple(checks), None, len(cases), interrupted=len(checks) < len(cases))


def _cases(quick: bool) -> list[_Case]:
    """The cases. Poisson loads are 30 to 70 % of the capacity, since above that the mean response time converges
    slowly. Seconds and trials are as many as bring the interval below `SAMPLING_MAX`."""
    closed = [
        _closed("closed loop, servers are the limit", servers=4, users=16, think_s=0.0, seconds=3 if quick else 8),
        _closed("closed loop, users are the limit", servers=16, users=8, think_s=0.03, seconds=3 if quick else 8),
    ]
    if quick:
        return [
            closed[0],
            _poisson("M/D/1", 1, "constant", 0.5, seconds=7, trials=8),
            _poisson("M/M/1", 1, "exponential", 0.3, seconds=10, trials=16),
        ]
    return [
        *closed,
        _poisson("M/D/1", 1, "constant", 0.6, seconds=20, trials=16),
        _poisson("M/M/1", 1, "exponential", 0.5, seconds=30, trials=24),
        _poisson("M/M/4", 4, "exponential", 0.6, seconds=20, trials=6),
        _poisson("M/D/4", 4, "constant", 0.7, seconds=12, trials=4),
    ]


def _closed(name: str, *, servers: int, users: int, think_s: float, seconds: int) -> _Case:
    """A closed load with constant times, so that the bound min(users / (Z + S), servers / S) is the throughput
    itself."""
    load = Load(users=users, think=Constant(ns=round(think_s * 1e9)), duration=seconds * 10**9)
    return _Case(
        name=f"{name} ({users} users, {servers} threads)",
        quantity="throughput",
        metric="goodput_per_s",
        unit="per_s",
        servers=servers,
        distribution="constant",
        load=load,
        trials=1,
        expected=lambda _result, served: closed_throughput_bound(
            users, served.service_s, think_s + served.overhead_s, servers
        ),
    )


def _poisson(name: str, servers: int, distribution: str, utilisation: float, *, seconds: int, trials: int) -> _Case:
    load = Load(rate=utilisation * servers / SERVICE_S, arrivals="poisson", duration=seconds * 10**9)
    return _Case(
        name=f"{name} at {100 * utilisation:.0f} % load",
        quantity="mean response time",
        metric="response_time_ns_mean",
        unit="ns",
        servers=servers,
        distribution=distribution,
        load=load,
        trials=trials,
        expected=lambda result, served: 1e9 * _response_s(result, served, servers, distribution),
    )


def _response_s(result: TrialResult, served: Served, servers: int, distribution: str) -> float:
    """Theory's response time at the measured rate of arrivals. A thread is held for a constant time beyond the
    requested wait (`extra_s`), so an exponential service has the moments of an exponential distribution shifted by it;
    for one server the formula of Pollaczek-Khinchine is exact."""
    rate, service_s = result.metrics["offered_rate_per_s"], served.service_s
    extra_s = service_s - SERVICE_S
    if distribution == "constant":
        return served.overhead_s + mdc_response_s(rate, service_s, servers)
    if servers > 1:
        return served.overhead_s + mmc_response_s(rate, service_s, servers)
    second_moment = 2 * SERVICE_S**2 + 2 * SERVICE_S * extra_s + extra_s**2
    return served.overhead_s + mg1_response_s(rate, service_s, second_moment)


def _check(case: _Case, results: Sequence[TrialResult], served: Served, quick: bool) -> CalibrationCheck:
    """Divides each trial's result by its own expectation; takes the mean and Student's t interval of the ratios. Trials
    are independent: fresh servers, different seeds."""
    valid = [result for result in results if _usable(result)]
    expected = [case.expected(result, served) for result in valid]
    usable = [(result, value) for result, value in zip(valid, expected, strict=True) if math.isfinite(value)]
    if 2 * len(usable) <= len(results):
        why = f"only {len(usable)} of {len(results)} trials could be used: {_reason(results)}"
        return CalibrationCheck(
            case.name, case.quantity, case.unit, 0.0, None, None, None, None, TOLERANCE, 0, 0, 0, why
        )
    # Trials of a Poisson load have equal weights: they have the same length and rate.
    found = estimate([result.metrics[case.metric] / value for result, value in usable], CONFIDENCE, log=False)
    half = 0.0 if found.low is None or found.high is None else (found.high - found.low) / 2
    return CalibrationCheck(
        name=case.name,
        quantity=case.quantity,
        unit=case.unit,
        expected=fmean(value for _, value in usable),
        measured=fmean(result.metrics[case.metric] for result, _ in usable),
        deviation=found.value - 1,
        low=None if found.low is None else found.low - 1,
        high=None if found.high is None else found.high - 1,
        allowed=TOLERANCE + (min(half, SAMPLING_MAX) if quick else 0.0),
        trials=len(usable),
        requests=round(sum(r.metrics["achieved_rate_per_s"] for r, _ in usable) * case.load.duration_ns / 1e9),
        disturbed=sum(_disturbed(result, alone=case.trials == 1) for result, _ in usable),
        problem=_too_coarse(found.value - 1, half),
    )


def _too_coarse(deviation: float, half: float) -> str | None:
    """The reason why the result is inconclusive, or None. A deviation that exceeds the tolerance by more than its
    interval is conclusive, however wide the interval is."""
    if half <= SAMPLING_MAX or abs(deviation) - half > TOLERANCE:
        return None
    return (
        f"inconclusive: trials differ so much that the mean is only known within {100 * half:.1f} % "
        f"({100 * SAMPLING_MAX:.0f} % allowed); make the machine quieter, or measure for longer (without --quick)"
    )


def _usable(result: TrialResult) -> bool:
    """True if the trial is valid, or invalid only because the machine was not quiet."""
    return result.status == "measured" and fatal_codes(result) <= DISTURBANCES


def _disturbed(result: TrialResult, *, alone: bool) -> bool:
    """True if other programs disturbed the trial. Trials that run at the same time see each other as foreign programs,
    so `host_foreign` is ignored unless the trial ran `alone`."""
    codes = fatal_codes(result)
    return bool(codes or result.held_up or result.by_quiet_time) if alone else bool(codes - {"host_foreign"})


def _reason(results: Sequence[TrialResult]) -> str:
    reasons = [problem.message for result in results for problem in result.problems if problem.fatal]
    return reasons[0] if reasons else "none was finished, or the server was slower than the load offered"


class _Bench:
    """Runs cases as ordinary trials, several reference servers at a time, since these hardly use the CPU."""

    def __init__(self, directory: Path, stop: StopRequest) -> None:
        self._directory = directory
        self._stop = stop
        self._number = 0

    def run(self, case: _Case) -> list[TrialResult]:
        """Runs all trials of a case; an invalid one is run once more."""
        numbers = range(self._number + 1, self._number + 1 + case.trials)
        self._number += case.trials * ATTEMPTS
        with ThreadPoolExecutor(min(max(1, AT_ONCE // case.servers), case.trials)) as pool:
            return list(pool.map(lambda number: self._attempts(case, number), numbers))

    def _attempts(self, case: _Case, number: int) -> TrialResult:
        result = self._trial(case, number, 1)
        for attempt in range(2, ATTEMPTS + 1):
            starved = any(problem.code == "generator_starved" for problem in result.problems)
            if (_usable(result) and not starved) or self._stop.requested:
                break
            result = self._trial(case, number + case.trials * (attempt - 1), attempt)
        return result

    def _trial(self, case: _Case, number: int, attempt: int) -> TrialResult:
        spec = TrialSpec(number, 0, attempt, Setting(()), seed=number)
        directory = TrialDir(self._directory / f"{number:04d}")
        made = _experiment(case, number)
        record = run_trial(made, spec, directory, steady=lambda _series: True, observer=Observer(), stop=self._stop)
        return measure(directory, record, made)


def _experiment(case: _Case, seed: int) -> Experiment:
    command = (
        *("{engine}", "serve", "--port", "{port}", "--model", "fixed", "--threads", str(case.servers)),
        *("--unit", "request", "--wait", f"{SERVICE_S * 1000:g}ms", "--wait-distribution", case.distribution),
        *("--seed", str(seed)),
    )
    return Experiment(
        name="calibrate",
        subject=Subject(name="reference", command=command),
        load=case.load,
        measure=Measure(warmup=1_000_000_000, slots=False),
    )
