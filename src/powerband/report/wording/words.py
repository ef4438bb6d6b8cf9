"""The words shared by every renderer: what a verdict is called, which trials do not count and why. Values to text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from powerband.model.metrics import METRICS
from powerband.model.plan import Setting, format_level
from powerband.model.results import Analysis, AnswerKind, ErrorKind, Estimate, SettingResult, TrialResult, Verdict
from powerband.report.wording.numbers import format_change, format_number, format_share


@dataclass(frozen=True)
class MetricColumn:
    """One column of the table of settings: a metric and its heading, long and short."""

    metric: str
    heading: str
    short: str


COLUMNS = (
    MetricColumn("response_time_ns_p50", "response time p50", "p50"),
    MetricColumn("response_time_ns_p99", "response time p99", "p99"),
    MetricColumn("error_rate", "errors", "errors"),
    MetricColumn("subject_cpu_cores", "CPU cores", "CPU"),
    MetricColumn("rss_bytes_max", "memory", "memory"),
    MetricColumn("threads_max", "threads alive, most", "thr. max"),
    MetricColumn("context_switches_per_request", "context switches / {noun}", "sw/{short}"),
)

# What a narrow page has room for.
NARROW = ("response_time_ns_p99", "error_rate", "subject_cpu_cores", "rss_bytes_max")

# What a thread does, by the name that analysis has for it.
STATES = {
    "on_cpu": "on a CPU",
    "run_wait": "waiting for a CPU",
    "lock": "waiting for a lock or for work",  # the kernel tells no difference
    "socket": "blocked on a socket",
    "disk": "blocked on a disk",
    "memory": "blocked on memory",
    "sleep": "asleep",
    "poll": "polling for events",
    "other": "blocked on other things",
    "blocked": "blocked",
}


def verdict_words(result: SettingResult, analysis: Analysis) -> str:
    """A setting's standing towards the leader, in two words at most."""
    if not result.trials:
        return "no data"
    if not result.feasible:
        return "not allowed"
    if result.setting == analysis.answer.leader:
        return "leader"
    if result.uncertain_because and result.verdict is not Verdict.WORSE:
        return "undecided"
    return {
        Verdict.BETTER: "better",
        Verdict.WORSE: "worse",
        Verdict.EQUIVALENT: "as good",
        Verdict.INCONCLUSIVE: "undecided",
    }[result.verdict]


def change_words(result: SettingResult, analysis: Analysis) -> str:
    """How far from the leader; empty for the leader itself."""
    leader = next((row for row in analysis.settings if row.setting == analysis.answer.leader), None)
    if leader is None or result is leader:
        return ""
    metric = analysis.objective
    return gap_words(result.effect, leader.estimates.get(metric), result.estimates.get(metric), metric)


def gap_words(effect: Estimate | None, base: Estimate | None, value: Estimate | None, metric: str) -> str:
    """From `base` to `value`: a signed percentage; percentage points for shares, whose differences are what is judged;
    a plain difference where a ratio cannot be had, as from 0. Empty where it rounds to nothing or is not known."""
    share = METRICS[metric].unit == "ratio"
    if effect is not None and not share:
        return format_change(effect)
    if base is None or value is None or (effect is None and base.value != 0):
        return ""
    gap = value.value - base.value
    sign = "−" if gap < 0 else "+"
    if share:
        points = f"{abs(100 * gap):.2g}" if abs(gap) < 0.1 else f"{abs(100 * gap):.0f}"
        return "" if gap == 0 else f"{sign}{points} pts"
    return "" if gap == 0 else f"{sign}{format_number(abs(gap), METRICS[metric].unit)}"


def margin_words(margin: float, objective: str) -> str:
    """`3 %`; for shares `3 percentage points`."""
    return f"{margin * 100:.6g} percentage points" if METRICS[objective].unit == "ratio" else format_share(margin)


def standing_words(analysis: Analysis) -> str:
    """What is known of the settings beside the answer, in a line; nothing that the answer does not say."""
    answer = analysis.answer
    if answer.setting is None:
        return (
            f"still possible: {_ids(dict.fromkeys((*answer.equivalent, *answer.undecided)))}"
            if answer.undecided
            else ""
        )
    parts = []
    if others := [setting for setting in answer.equivalent if setting != answer.setting]:
        parts.append(f"also as good: {_ids(others)}")
    if answer.undecided:
        parts.append(f"may be as good: {_ids(answer.undecided)}")
    if not parts and answer.kind is AnswerKind.BEST and len(analysis.settings) > 1:
        parts.append("none of the others is as good")
    return "; ".join(parts)


def is_as_good(setting: Setting, analysis: Analysis) -> bool:
    """It serves as well as the answer, or is the answer; nothing does where there is none."""
    return analysis.answer.setting is not None and setting in analysis.answer.equivalent


def _ids(settings: Iterable[Setting]) -> str:
    return ", ".join(setting.id for setting in settings)


def short_id(setting: Setting, analysis: Analysis) -> str:
    """What tells a setting from the others: where factors vary one at a time, the one level that it changes."""
    if not analysis.changes:
        return setting.id
    changed = {change.setting: f"{change.factor}={format_level(change.level)}" for change in analysis.changes}
    return changed.get(setting, "baseline")


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
        f"Verdicts are towards the leader, {leader.id}: as good means within "
        f"{margin_words(analysis.margin, analysis.objective)}, "
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
    """Failed and invalid trials in order, and interrupted ones that were not run again; `status` is `invalid` for one
    that ran but does not count."""
    trials = counted(trials)
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


@dataclass(frozen=True)
class ErrorRow:
    """Requests of all valid trials of a setting that failed in one way."""

    setting: str
    kind: str
    count: int
    cause: str


def error_rows(analysis: Analysis) -> list[ErrorRow]:
    """By setting in plan order, the most frequent kind first; the cause is that of the trial with most of them."""
    rows: list[ErrorRow] = []
    for result in analysis.settings:
        found: dict[str, list[ErrorKind]] = {}
        for trial in analysis.trials:
            if trial.valid and trial.setting == result.setting:
                for error in trial.errors:
                    found.setdefault(error.kind, []).append(error)
        for kind, errors in sorted(found.items(), key=lambda item: -sum(error.count for error in item[1])):
            cause = max(errors, key=lambda error: error.count).cause
            rows.append(ErrorRow(result.setting.id, kind, sum(error.count for error in errors), cause))
    return rows


def counted(trials: Iterable[TrialResult]) -> list[TrialResult]:
    """All but interrupted trials that were run again: these are no failure, only late."""
    trials = list(trials)
    last = {(trial.setting, trial.block, trial.attempt): trial.number for trial in trials}
    return [
        trial
        for trial in trials
        if trial.status != "interrupted" or last[trial.setting, trial.block, trial.attempt] == trial.number
    ]


def present_columns(analysis: Analysis) -> tuple[MetricColumn, ...]:
    """The columns that at least one setting has an estimate for."""
    noun = analysis.noun
    words = {"noun": noun, "short": noun[:3]}
    return tuple(
        MetricColumn(column.metric, column.heading.format(**words), column.short.format(**words))
        for column in COLUMNS
        if any(column.metric in row.estimates for row in analysis.settings)
    )


def trial_counts(analysis: Analysis) -> str:
    """`42 trials, 40 of them valid`."""
    trials = counted(analysis.trials)
    total = len(trials)
    valid = sum(trial.valid for trial in trials)
    return f"{total} trial{'s' if total != 1 else ''}, {'all' if valid == total else f'{valid} of them'} valid"
