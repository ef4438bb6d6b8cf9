"""The words shared by every renderer: what a verdict is called, which trials do not count and why. Values to text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from powerband.analyze.results import Analysis, SettingResult, TrialResult, Verdict
from powerband.report.numbers import format_change, format_share


@dataclass(frozen=True)
class Column:
    """One column of the table of settings: a metric and its heading, long and short."""

    metric: str
    heading: str
    short: str


COLUMNS = (
    Column("response_time_ns_p50", "response time p50", "p50"),
    Column("response_time_ns_p99", "response time p99", "p99"),
    Column("error_rate", "errors", "errors"),
    Column("subject_cpu_cores", "CPU cores", "CPU"),
    Column("rss_bytes_max", "memory", "memory"),
    Column("threads_max", "threads alive, most", "thr. max"),
    Column("context_switches_per_request", "context switches / request", "sw/req"),
)


def verdict_words(result: SettingResult, analysis: Analysis) -> str:
    """A setting's standing towards the leader, in two words at most."""
    if not result.trials:
        return "no data"
    if not result.feasible:
        return "not allowed"
    if result.setting == analysis.answer.leader:
        return "leader"
    return {
        Verdict.BETTER: "better",
        Verdict.WORSE: "worse",
        Verdict.EQUIVALENT: "as good",
        Verdict.INCONCLUSIVE: "undecided",
    }[result.verdict]


def change_words(result: SettingResult, analysis: Analysis) -> str:
    """How far from the leader, as a signed percentage; empty for the leader itself."""
    return "" if result.setting == analysis.answer.leader else format_change(result.effect)


def not_allowed(analysis: Analysis) -> list[tuple[str, str]]:
    """Settings that broke a constraint: their id, and which."""
    return [
        (result.setting.id, "; ".join(result.infeasible_because) or "a constraint is not met")
        for result in analysis.settings
        if result.trials and not result.feasible
    ]


def factor_names(analysis: Analysis) -> tuple[str, ...]:
    """The factors in the experiment's order; empty where there are none."""
    return tuple(name for name, _ in analysis.settings[0].setting.levels) if analysis.settings else ()


def verdict_note(analysis: Analysis) -> str:
    """What the verdicts mean, in one sentence."""
    leader = analysis.answer.leader
    if leader is None:
        return "There is no leader to compare with."
    return (
        f"Verdicts are towards the leader, {leader.id}: as good means within {format_share(analysis.margin)}, "
        f"at {format_share(analysis.confidence)} confidence for all settings together."
    )


@dataclass(frozen=True)
class Unusable:
    """One trial that does not count, and why."""

    number: int
    setting: str
    block: int
    attempt: int
    status: str
    reasons: tuple[str, ...]


def unusable_trials(trials: Iterable[TrialResult]) -> list[Unusable]:
    """Failed, interrupted and invalid trials in order; `status` is `invalid` for one that ran but does not count."""
    return [
        Unusable(
            trial.number,
            trial.setting.id,
            trial.block,
            trial.attempt,
            "invalid" if trial.status == "measured" else trial.status,
            tuple(problem.message for problem in trial.problems if problem.fatal) or ("no reason was recorded",),
        )
        for trial in trials
        if not trial.valid
    ]


def present_columns(analysis: Analysis) -> tuple[Column, ...]:
    """The columns that at least one setting has an estimate for."""
    return tuple(column for column in COLUMNS if any(column.metric in row.estimates for row in analysis.settings))


def trial_counts(analysis: Analysis) -> str:
    """`42 trials, 40 of them valid`."""
    total = len(analysis.trials)
    valid = sum(trial.valid for trial in analysis.trials)
    return f"{total} trial{'s' if total != 1 else ''}, {'all' if valid == total else f'{valid} of them'} valid"
