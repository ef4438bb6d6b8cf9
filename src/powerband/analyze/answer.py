"""The answer in three sentences: the setting; how sure; why, and at what cost. Every word rests on a figure.

In: the standing of all settings after analysis. Out: sentences. What cannot be told from the figures is not said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from powerband.analyze.results import AnswerKind, SettingResult, Verdict
from powerband.experiment import Experiment
from powerband.metrics import METRICS
from powerband.plan import Setting
from powerband.units import format_bytes, format_value, significant

CPU_BUSY = 0.90
CPU_IDLE = 0.70
CHEAPER_BY = 1.2
LIST_MAX = 6


@dataclass(frozen=True)
class Standing:
    """All settings judged. `contenders`: those that may still be better than the leader by more than the margin;
    `blocks`: valid trials of the leader."""

    experiment: Experiment
    rows: Sequence[SettingResult]
    leader: Setting | None
    contenders: frozenset[Setting]
    blocks: int

    def row(self, setting: Setting) -> SettingResult:
        return next(row for row in self.rows if row.setting == setting)

    def value(self, setting: Setting, metric: str) -> float | None:
        found = self.row(setting).estimates.get(metric)
        return None if found is None else found.value


def word_answer(
    standing: Standing,
    kind: AnswerKind,
    chosen: Setting | None,
    equivalent: Sequence[Setting],
    undecided: Sequence[Setting],
) -> tuple[str, ...]:
    """One to three sentences."""
    match kind:
        case AnswerKind.NONE_VALID:
            return _none_valid(standing)
        case AnswerKind.NONE_FEASIBLE:
            return _none_feasible(standing)
        case AnswerKind.NOT_ENOUGH_DATA:
            return _not_enough(standing, undecided)
    assert chosen is not None
    first = f"Use {chosen.id}: {_figure(standing, chosen)}."
    return (first, _how_sure(standing, kind, chosen, equivalent, undecided), _why(standing, chosen, equivalent))


def _none_valid(standing: Standing) -> tuple[str, ...]:
    reasons = list(dict.fromkeys(reason for row in standing.rows for reason in row.infeasible_because))
    second = f"Most often: {reasons[0]}." if reasons else "No trial has run."
    return ("No setting could be measured.", second)


def _none_feasible(standing: Standing) -> tuple[str, ...]:
    wanted = " and ".join(constraint.text for constraint in standing.experiment.objective.constraints)
    measured = [row for row in standing.rows if row.trials]
    nearest = min(measured, key=lambda row: len(row.infeasible_because))
    return (
        f"No setting meets {wanted}.",
        f"{nearest.setting.id} comes nearest: it misses {'; '.join(nearest.infeasible_because)}.",
    )


def _not_enough(standing: Standing, undecided: Sequence[Setting]) -> tuple[str, ...]:
    leader = standing.leader
    assert leader is not None
    rivals = [setting for setting in undecided if setting in standing.contenders] or list(undecided)
    first = f"Not enough data to name a setting: {leader.id} looks best so far ({_figure(standing, leader)})."
    if standing.blocks < 2:
        return (
            first,
            "One trial a setting cannot tell a difference from noise: run at least 3 blocks, better 5 to 10.",
        )
    second = f"{_names(rivals)} may still be better by more than {standing.experiment.objective.margin:.0%}"
    return (first, f"{second}: more blocks (measure.repeats) or longer trials would tell.")


def _figure(standing: Standing, setting: Setting) -> str:
    """The objective with its interval, as a person reads it."""
    metric = standing.experiment.objective.metric
    unit = METRICS[metric].unit
    found = standing.row(setting).estimates[metric]
    text = f"{metric.removesuffix('_per_s').replace('_ns_', ' ').replace('_', ' ')} {format_value(found.value, unit)}"
    if found.low is None or found.high is None:
        return f"{text}, from one trial"
    return (
        f"{text} ({found.confidence:.0%} interval {format_value(found.low, unit)} to {format_value(found.high, unit)}, "
        f"{found.n} trials)"
    )


def _how_sure(
    standing: Standing,
    kind: AnswerKind,
    chosen: Setting,
    equivalent: Sequence[Setting],
    undecided: Sequence[Setting],
) -> str:
    objective = standing.experiment.objective
    measured = [row for row in standing.rows if row.trials and row.feasible]
    if len(measured) == 1:
        return "It is the only setting that could be measured and meets the constraints; nothing was there to compare."
    sure = f"At {objective.confidence:.0%} confidence over all comparisons together"
    others = [setting for setting in equivalent if setting != chosen]
    worse = [row for row in measured if row.verdict is Verdict.WORSE]
    parts = []
    if others:
        reach = "serve" if len(others) > 1 else "serves"
        parts.append(f"{_names(others)} {reach} as well within {objective.margin:.0%}")
        if kind is AnswerKind.EQUIVALENT_SET:
            parts[-1] += f" and {chosen.id} is the cheapest of them"
    if undecided:
        parts.append(
            f"nothing is better by more than {objective.margin:.0%}, though {_names(undecided)} may be as good"
        )
    if worse:
        parts.append(_worse(standing, worse, whole=len(worse) == len(measured) - 1))
    return f"{sure}, {'; '.join(parts)}."


def _worse(standing: Standing, worse: Sequence[SettingResult], *, whole: bool) -> str:
    who = "every other setting" if whole and len(worse) > 1 else _names([row.setting for row in worse])
    verb = "is" if whole or len(worse) == 1 else "are"
    closest = min(worse, key=lambda row: abs((row.effect.value if row.effect else 1.0) - 1))
    if closest.effect is None or closest.effect.low is None or closest.effect.high is None:
        return f"{who} {verb} worse"
    gaps = sorted(abs(1 - end) for end in (closest.effect.low, closest.effect.high))
    near = "" if len(worse) == 1 else f"the nearest, {closest.setting.id}, "
    return f"{who} {verb} worse ({near}by {_percent(gaps[0])} to {_percent(gaps[1])})"


def _why(standing: Standing, chosen: Setting, equivalent: Sequence[Setting]) -> str:
    clauses = [clause for rule in (_limit_here, _smaller, _larger) if (clause := rule(standing, chosen, equivalent))]
    if not clauses:
        return "The figures taken name no single resource as the limit."
    text = "; ".join(clauses)
    return f"{text[0].upper()}{text[1:]}."


def _limit_here(standing: Standing, chosen: Setting, equivalent: Sequence[Setting]) -> str | None:
    """What holds the chosen setting: the CPUs, or the load offered."""
    busy, cores = standing.value(chosen, "host_busy_share"), standing.value(chosen, "subject_cpu_cores")
    if busy is not None and busy >= CPU_BUSY:
        used = f" ({significant(cores)} cores by the subject)" if cores is not None else ""
        return f"the CPUs are the limit: {busy:.0%} of them are busy at {chosen.id}{used}"
    offered, goodput = standing.value(chosen, "offered_rate_per_s"), standing.value(chosen, "goodput_per_s")
    load = standing.experiment.load_for(chosen)
    if load.rate_per_s is not None and offered and goodput and goodput >= 0.99 * offered:
        return f"the load is the limit: {chosen.id} serves all that is offered"
    if load.users is not None and (fastest := _fastest_response(standing)) is not None:
        own = standing.value(chosen, "response_time_ns_mean")
        if own is not None and own <= 1.1 * fastest and len(equivalent) > 1:
            return (
                f"the load is the limit: at {chosen.id} the {load.users} users are answered as fast as at any setting"
            )
    return None


def _fastest_response(standing: Standing) -> float | None:
    found = [row.estimates.get("response_time_ns_mean") for row in standing.rows if row.trials]
    return min((item.value for item in found if item is not None), default=None)


def _smaller(standing: Standing, chosen: Setting, equivalent: Sequence[Setting]) -> str | None:
    """Settings with fewer threads that serve worse while CPUs idle: the pool is too small there."""
    threads = standing.value(chosen, "threads_max")
    if threads is None:
        return None
    smaller = [
        row
        for row in standing.rows
        if row.verdict is Verdict.WORSE
        and row.trials
        and (standing.value(row.setting, "threads_max") or threads) * CHEAPER_BY <= threads
        and (standing.value(row.setting, "host_busy_share") or 1.0) < CPU_IDLE
    ]
    if not smaller:
        return None
    nearest = max(smaller, key=lambda row: standing.value(row.setting, "threads_max") or 0.0)
    busy = standing.value(nearest.setting, "host_busy_share") or 0.0
    effect = f" it gives {significant(100 * nearest.effect.value)} % of the best while" if nearest.effect else ""
    metric = standing.experiment.objective
    if metric.direction == "minimise":
        effect = " it is slower while" if nearest.effect else ""
    return f"fewer threads wait rather than work: with {nearest.setting.id}{effect} {1 - busy:.0%} of the CPUs are idle"


def _larger(standing: Standing, chosen: Setting, equivalent: Sequence[Setting]) -> str | None:
    """What the largest setting that is no better costs more."""
    threads = standing.value(chosen, "threads_max")
    if threads is None:
        return None
    larger = [
        row
        for row in standing.rows
        if row.trials
        and row.setting != chosen
        and (standing.value(row.setting, "threads_max") or 0) >= CHEAPER_BY * threads
    ]
    if not larger:
        return None
    row = max(larger, key=lambda row: standing.value(row.setting, "threads_max") or 0.0)
    costs = [f"{significant(standing.value(row.setting, 'threads_max') or 0)} threads against {significant(threads)}"]
    for metric, text, show in (
        ("rss_bytes_max", "memory", format_bytes),
        ("response_time_ns_p99", "p99 response time", lambda value: format_value(value, "ns")),
        ("context_switches_per_request", "context switches a request", significant),
    ):
        here, there = standing.value(chosen, metric), standing.value(row.setting, metric)
        if here and there and there >= CHEAPER_BY * here:
            costs.append(f"{text} {show(there)} against {show(here)}")
    return f"{row.setting.id} takes {', '.join(costs[:3])}"


def _names(settings: Sequence[Setting]) -> str:
    names = [setting.id for setting in settings[:LIST_MAX]]
    if len(settings) > LIST_MAX:
        names.append(f"{len(settings) - LIST_MAX} more")
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _percent(share: float) -> str:
    return f"{significant(100 * share)} %"
