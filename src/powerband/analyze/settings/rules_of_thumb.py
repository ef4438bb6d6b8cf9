"""Judges rules of thumb: how many threads each well-known rule proposes from the measured figures, and what following
it would cost compared with the measured answer.

In: an experiment, its rows and trials, the answer. Out: one `RuleVerdict` for each rule; none if no factor counts
threads, or if there are no requests.
What was measured along the threads is in `thread_line.py`, the law of scalability in `usl.py`, queueing formulas in
`theory.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from powerband.analyze.settings.thread_line import ThreadLine, thread_line
from powerband.analyze.stats.intervals import estimate, on_log_scale
from powerband.analyze.stats.theory import erlang_c, machine_repairman_throughput, mmc_response_s, mmc_waits_longer
from powerband.analyze.stats.usl import fit_usl
from powerband.base.units import format_duration, percent, significant
from powerband.loads import kind_of
from powerband.model.constraint import Constraint
from powerband.model.experiment import Experiment
from powerband.model.metrics import METRICS
from powerband.model.plan import Setting
from powerband.model.results import Answer, Estimate, RuleVerdict, SettingResult, TrialResult
from powerband.readings.fleet import QUANTILES

NEAR = 2.0  # a tried setting stands for a proposal up to this factor away
WAIT_MAX = 0.10  # of the requests may wait for a thread, in M/M/c without an SLO
PAUSE_MIN = 0.01  # of the time a request takes; a shorter pause is none

GOETZ = "Goetz et al., Java Concurrency in Practice, 2006, section 8.2"
NETTY = "Netty's default number of event loops (NettyRuntime.availableProcessors() * 2)"
GUNICORN = "Gunicorn's documentation, How Many Workers?"
ERLANG = "Erlang 1917; Gross & Harris, Fundamentals of Queueing Theory"
GUNTHER = "Gunther, Guerrilla Capacity Planning, 2007"


@dataclass(frozen=True)
class Proposal:
    """The number of `threads` that a rule proposes. `formula`: the rule, with the measured figures in it as far as they
    are known. `refused`: the reason why it proposes none."""

    formula: str
    threads: float | None
    refused: str | None = None


def judge_rules(
    experiment: Experiment, rows: Sequence[SettingResult], trials: Sequence[TrialResult], answer: Answer
) -> tuple[RuleVerdict, ...]:
    """Compares each rule's proposal with the answer, or with the leader if nothing was decided.

    A verdict's `cost` is as in the table of settings if the answer leads; otherwise it is paired over the blocks that
    hold both, with Student's t interval for this pair alone."""
    measured_against = answer.setting or answer.leader
    line = None if measured_against is None else thread_line(experiment, trials, measured_against)
    if line is None or measured_against is None or not kind_of(experiment).has_metric("response_time_ns_mean"):
        return ()
    rules = (
        ("Goetz", GOETZ, goetz(line)),
        ("N + 1", GOETZ, _by_cores(line, "{} + 1", lambda cores: cores + 1)),
        ("2 N", NETTY, _by_cores(line, "2 x {}", lambda cores: 2 * cores)),
        ("2 N + 1", GUNICORN, _by_cores(line, "2 x {} + 1", lambda cores: 2 * cores + 1)),
        ("M/M/c", ERLANG, mmc(experiment, line, next(row for row in rows if row.setting == measured_against))),
        ("USL", GUNTHER, usl(experiment, line)),
    )
    costs = _Costs(experiment, rows, line, answer, measured_against)
    return tuple(costs.verdict(name, source, proposal) for name, source, proposal in rules)


def goetz(line: ThreadLine) -> Proposal:
    """N = cores x U x (1 + W / C) at a target utilisation U of 1, with W and C as measured."""
    cores, work = line.cores(), line.work()
    if cores is None or work is None or work.cpu_s <= 0:
        missing = "how many CPUs the server may use" if cores is None else "how long a request takes"
        return Proposal("cores x (1 + W / C)", None, f"it was not measured {missing}")
    wait, cpu = format_duration(work.wait_s * 1e9), format_duration(work.cpu_s * 1e9)
    return Proposal(f"{_cores(cores)} x (1 + {wait} / {cpu})", cores * (1 + work.wait_s / work.cpu_s))


def _by_cores(line: ThreadLine, formula: str, threads: Callable[[float], float]) -> Proposal:
    cores = line.cores()
    if cores is None:
        return Proposal(formula.format("cores"), None, "it was not measured how many CPUs the server may use")
    return Proposal(formula.format(_cores(cores)), threads(cores))


def _cores(cores: float) -> str:
    return f"{cores:g} core{'' if cores == 1 else 's'}"


def mmc(experiment: Experiment, line: ThreadLine, answer: SettingResult) -> Proposal:
    """The fewest servers c of M/M/c, where a thread is a server that a request holds as long as it does without queues.

    Open load: the wait for a thread stays within what the first constraint on a response time leaves (P(Wq > t) =
    C(c, a) exp(-(c - a) t / S)); without such a constraint at most 10 % of the requests wait (Erlang's C). Closed
    load: c servers give, within the margin, the throughput that a thread for each user would (M/M/c//N, the machine
    repairman). CPUs are not in the model: Goetz' rule has those."""
    work = line.work()
    if work is None or work.service_s <= 0:
        return Proposal("M/M/c", None, "it was not measured how long a request takes")
    load = experiment.load_for(answer.setting)
    if experiment.objective.is_capacity:
        rate = None if answer.capacity is None or answer.capacity.estimate is None else answer.capacity.estimate.value
    elif load.rate_per_s is not None:
        rate = load.rate_per_s  # what is asked for, also where the answer serves less
    else:
        rate = line.mean(answer.setting, "achieved_rate_per_s") if answer.setting in line.trials else None
    if rate is None:
        return Proposal("M/M/c", None, "the answer's rate is not known")
    if load.rate_per_s is not None or experiment.objective.is_capacity:
        # Each arrival sends the requests of all steps.
        return _open_mmc(rate * len(load.scenario), work.service_s, response_limit(experiment))
    users, response_ns = line.mean(answer.setting, "users_mean"), line.mean(answer.setting, "response_time_ns_mean")
    if users is None or response_ns is None:
        return Proposal("M/M/c//N", None, "users or response times were not measured")
    slots = users * load.pipeline
    pause_s = max(0.0, slots / rate - response_ns / 1e9)  # Little's law over the whole cycle
    return _closed_mmc(max(1, round(slots)), work.service_s, pause_s, experiment.objective.margin)


def response_limit(experiment: Experiment) -> Constraint | None:
    """The first condition that a mean or a percentile of response times is below something; None: there is none."""
    for constraint in experiment.objective.constraints:
        name = constraint.metric.removeprefix("response_time_ns_")
        if name in (*QUANTILES, "mean") and name != constraint.metric and constraint.op in ("<", "<="):
            return constraint
    return None


def mmc_meets(limit: Constraint, rate_per_s: float, service_s: float, servers: int) -> bool:
    """True if M/M/c meets the limit of `response_limit`, with a request that takes `service_s` without queues."""
    left_s = limit.threshold / 1e9 - service_s
    name = limit.metric.removeprefix("response_time_ns_")
    if name == "mean":
        return mmc_response_s(rate_per_s, service_s, servers) - service_s <= left_s
    return mmc_waits_longer(left_s, rate_per_s, service_s, servers) <= 1 - QUANTILES[name]


def _open_mmc(rate_per_s: float, service_s: float, limit: Constraint | None) -> Proposal:
    busy = rate_per_s * service_s
    taken = format_duration(service_s * 1e9)
    formula = f"{significant(rate_per_s)}/s x {taken}: {significant(busy)} busy, "
    formula += limit.text if limit else f"{100 * WAIT_MAX:.0f} % wait at most"
    left_s = math.inf if limit is None else limit.threshold / 1e9 - service_s
    if left_s <= 0:
        return Proposal(formula, None, f"a request alone takes {taken}: no number of threads meets that")

    def enough(servers: int) -> bool:
        if limit is None:
            return erlang_c(servers, busy) <= WAIT_MAX
        return mmc_meets(limit, rate_per_s, service_s, servers)

    least = math.floor(busy) + 1
    most = least + 10 * math.isqrt(math.ceil(busy) + 100)  # ten standard deviations of the busy servers beyond it
    return Proposal(formula, float(_fewest(least, most, enough)))


def _closed_mmc(users: int, service_s: float, pause_s: float, margin: float) -> Proposal:
    pauses = pause_s >= PAUSE_MIN * service_s

    def throughput(servers: int) -> float:
        if pauses:
            return machine_repairman_throughput(users, service_s, pause_s, servers)
        return min(users, servers) / service_s

    wanted = (1 - margin) * throughput(users)
    thinking = f", then {format_duration(pause_s * 1e9)} of pause" if pauses else ""
    each = f"{format_duration(service_s * 1e9)} each{thinking}"
    formula = f"{users:,} users, {each}: within {percent(margin)} of what {users:,} threads serve"
    return Proposal(formula, float(_fewest(1, users, lambda servers: throughput(servers) >= wanted)))


def _fewest(low: int, high: int, enough: Callable[[int], bool]) -> int:
    """The smallest number that is enough, given that `high` is enough, and any number above one that is enough."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low


def usl(experiment: Experiment, line: ThreadLine) -> Proposal:
    """N* of the law fitted to all trials of the line. See `usl.py`."""
    formula = "X(N) = g N / (1 + a (N - 1) + b N (N - 1))"
    if experiment.objective.is_capacity:
        return Proposal(
            formula, None, "a capacity search runs each setting only once at full load: too few points for the fit"
        )
    if experiment.load.rate_per_s is not None:
        return Proposal(
            formula,
            None,
            "an open load offers the same rate to all settings, which shows no scaling: load with users",
        )
    metric = "goodput_per_s"
    points = [
        (level, trial.metrics[metric], trial.block)
        for level, setting in line.settings.items()
        for trial in line.trials[setting]
        if trial.metrics.get(metric, 0.0) > 0
    ]
    law = fit_usl(*zip(*points, strict=True), confidence=experiment.objective.confidence) if points else None
    if law is None:
        return Proposal(
            formula, None, "it needs at least four numbers of threads that served requests, in at least two rounds"
        )
    figures = f"g = {significant(law.rate_per_s)}/s, a = {law.contention:.3g}, b = {law.coherency:.3g}"
    best = law.threads_best
    if best is None:
        return Proposal(figures, None, law.refused)
    return Proposal(f"{figures}: {best.low:.3g} to {best.high:.3g}", best.value)


@dataclass(frozen=True)
class _Costs:
    """Compares proposals with the measured answer."""

    experiment: Experiment
    rows: Sequence[SettingResult]
    line: ThreadLine
    answer: Answer
    against: Setting

    def verdict(self, name: str, source: str, proposal: Proposal) -> RuleVerdict:
        setting = None if proposal.threads is None else self._nearest(proposal.threads)
        cost = None if setting is None else self._cost(setting)
        return RuleVerdict(
            name, proposal.formula, source, proposal.threads, setting, cost, proposal.refused, self.line.factor
        )

    def _nearest(self, threads: float) -> Setting | None:
        """The tried setting whose number of threads is nearest as a ratio; None if none is within a factor of 2."""
        level = min(self.line.settings, key=lambda level: abs(math.log(level / threads)))
        return self.line.settings[level] if 1 / NEAR <= level / threads <= NEAR else None

    def _cost(self, setting: Setting) -> Estimate | None:
        confidence = self.experiment.objective.confidence
        if setting == self.against:
            return Estimate(1.0, 1.0, 1.0, confidence, len(self.line.trials[setting]))
        if self.against == self.answer.leader or self.experiment.objective.is_capacity:
            return self._from_table(setting)
        metric = self.experiment.objective.metric
        mine, theirs = (
            {trial.block: trial.metrics[metric] for trial in self.line.trials.get(which, ()) if metric in trial.metrics}
            for which in (setting, self.against)
        )
        shared = sorted(mine.keys() & theirs.keys())
        values = [value for block in shared for value in (mine[block], theirs[block])]
        if not shared or not on_log_scale(values, METRICS[metric].unit):
            return self._from_table(setting)
        return estimate(list(np.array(values[::2]) / np.array(values[1::2])), confidence, log=True)

    def _from_table(self, setting: Setting) -> Estimate | None:
        """The setting's ratio to the answer, from their ratios to the leader; no interval if neither is the leader.
        None if either has only the guess of a capacity."""
        of = {row.setting: row.effect for row in self.rows if not row.is_guess}
        effect, base = of.get(setting), of.get(self.against)
        if effect is None or base is None or base.value == 0:
            return None
        if self.against == self.answer.leader:
            return effect
        return Estimate(effect.value / base.value, None, None, effect.confidence, effect.n)
