"""Words shared by all renderers: names of verdicts, excluded trials and their reasons. In: values. Out: text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from powerband.base.units import percent
from powerband.model.metrics import METRICS, metric_words, regret_words
from powerband.model.plan import REVISION, Setting, Stage
from powerband.model.results import Analysis, AnswerKind, ErrorKind, Estimate, SettingResult, TrialResult, Verdict
from powerband.report.wording.numbers import format_change, format_interval, format_number


@dataclass(frozen=True)
class MetricColumn:
    """One column of the table of settings. `metric`: what it shows. `heading`, `short`: its head, the short one for
    narrow tables."""

    metric: str
    heading: str
    short: str


COLUMNS = (
    MetricColumn("goodput_per_s", "goodput", "goodput"),
    MetricColumn("response_time_ns_p50", "response time p50", "p50"),
    MetricColumn("response_time_ns_p99", "response time p99", "p99"),
    MetricColumn("error_rate", "errors", "errors"),
    MetricColumn("users_unserved", "users never served", "unserved"),
    MetricColumn("subject_cpu_cores", "CPU cores", "CPUs"),
    MetricColumn("rss_bytes_max", "memory", "memory"),
    MetricColumn("threads_max", "threads alive, most", "max threads"),
    MetricColumn("context_switches_per_request", "context switches / {noun}", "sw/{short}"),
)

# These fit on a narrow page.
NARROW = ("goodput_per_s", "response_time_ns_p99", "error_rate", "users_unserved", "subject_cpu_cores", "rss_bytes_max")

# Words for a thread's state, by its name in the analysis.
STATES = {
    "on_cpu": "on a CPU",
    "run_wait": "waiting for a CPU",
    "lock": "waiting for a lock or for work",  # the kernel does not distinguish the two
    "socket": "blocked on a socket",
    "disk": "blocked on a disk",
    "memory": "blocked on memory",
    "sleep": "asleep",
    "poll": "polling for events",
    "other": "blocked on other things",
    "blocked": "blocked",
}


VIOLATES = "violates SLO"
INCONCLUSIVE = "inconclusive"


def verdict_words(result: SettingResult, analysis: Analysis) -> str:
    """A setting's verdict against the leader, in two words at most."""
    if not result.trials:
        return "no data"
    if not result.feasible:
        return VIOLATES
    if result.setting == analysis.answer.leader:
        return "leader"
    if result.uncertain_because and result.verdict is not Verdict.WORSE:
        return INCONCLUSIVE
    return result.verdict.value


def tone(result: SettingResult, analysis: Analysis) -> str:
    """The tone of a setting's verdict: good, bad or unsure."""
    if not result.feasible or not result.trials:
        return "bad"
    if result.setting == analysis.answer.leader:
        return "good"
    if verdict_words(result, analysis) == INCONCLUSIVE:
        return "unsure"
    return "bad" if result.verdict is Verdict.WORSE else "good"


def change_words(result: SettingResult, analysis: Analysis) -> str:
    """The difference from the leader; empty for the leader itself."""
    leader = next((row for row in analysis.settings if row.setting == analysis.answer.leader), None)
    if leader is None or result is leader:
        return ""
    metric = analysis.objective
    return gap_words(effect_of(result, analysis), leader.shown.get(metric), result.shown.get(metric), metric)


def effect_of(result: SettingResult, analysis: Analysis) -> Estimate | None:
    """The ratio to the leader; None if there is none, or if one of the two is the guess of a capacity."""
    leader = (row for row in analysis.settings if row.setting == analysis.answer.leader)
    return None if any(row.is_guess for row in (result, *leader)) else result.effect


def is_change_bound(base: Estimate | None, value: Estimate | None) -> bool:
    """True if the change from `base` to `value` is a lower bound, since `value` alone is one."""
    return value is not None and value.at_least and not (base is not None and base.at_least)


def gap_words(effect: Estimate | None, base: Estimate | None, value: Estimate | None, metric: str) -> str:
    """The change from `base` to `value`: a signed percentage, with `≥` if `value` alone is a lower bound; percentage
    points for shares, which are judged by their differences; a plain difference if there is no ratio, as from 0. Empty
    if it is unknown."""
    share = METRICS[metric].unit == "ratio"
    if effect is not None and not share:
        return f"≥ {format_change(effect)}" if is_change_bound(base, value) else format_change(effect)
    if base is None or value is None or (effect is None and base.value != 0):
        return ""
    gap = value.value - base.value
    if gap == 0:
        return "0"
    if share:
        return f"{signed_points(gap)} pts"
    return f"{_sign(gap)}{format_number(abs(gap), METRICS[metric].unit)}"


def signed_points(gap: float) -> str:
    """A difference of two shares in percentage points: `+0.2`, `−52`."""
    return _sign(gap) + (f"{abs(100 * gap):.2g}" if abs(gap) < 0.1 else f"{abs(100 * gap):.0f}")


def _sign(gap: float) -> str:
    return "−" if gap < 0 else "+"


def standing_words(analysis: Analysis) -> str:
    """The standing of the settings beside the answer, in a line, without repeating the answer."""
    answer = analysis.answer
    if answer.setting is None:
        return (
            f"still possible: {_ids(dict.fromkeys((*answer.equivalent, *answer.undecided)))}"
            if answer.undecided
            else ""
        )
    if answer.kind is AnswerKind.BOUNDED:
        bound = bound_words(analysis)
        return f"{bound}; may be better: {_ids(answer.undecided)}" if answer.undecided else bound
    parts = []
    if others := [setting for setting in answer.equivalent if setting != answer.setting]:
        parts.append(f"also equivalent: {_ids(others)}")
    if answer.undecided:
        parts.append(f"may be equivalent: {_ids(answer.undecided)}")
    if not parts and answer.kind is AnswerKind.BEST and len(analysis.settings) > 1:
        parts.append(f"close behind: {_ids(answer.close)}" if answer.close else "no other setting is equivalent")
    return "; ".join(parts)


def margin_as_ratio(analysis: Analysis, base: Setting | None) -> float:
    """The margin as a part of the objective at `base`, for ratios to it. A share's margin is in percentage points,
    which are a larger part of a small share."""
    row = next((row for row in analysis.settings if row.setting == base), None)
    estimate = None if row is None else row.estimates.get(analysis.objective)
    if METRICS[analysis.objective].unit != "ratio" or estimate is None or estimate.value == 0:
        return analysis.margin
    return analysis.margin / abs(estimate.value)


def bound_words(analysis: Analysis) -> str:
    """`no other is better by more than 9 %`; if the setting to use does not lead, the words name the setting; `no other
    is better` with a bound of 0. Empty without a bound."""
    answer = analysis.answer
    if answer.setting is None or answer.regret is None:
        return ""
    than = "" if answer.setting == answer.leader else f" than {answer.setting.id}"
    other = "no other is better" if not than else "none is better"
    by = f" by more than {regret_words(answer.regret, analysis.objective)}" if answer.regret > 0 else ""
    return f"{other}{than}{by}"


def trials_of(result: SettingResult) -> str:
    """`5`, or `4 of 5` if one is excluded."""
    return f"{result.trials} of {result.trials + result.invalid}" if result.invalid else str(result.trials)


def failed_starts(result: SettingResult) -> str:
    """`5 of 8`; empty if none failed."""
    starts = result.starts
    return f"{starts.failed} of {starts.made}" if starts is not None and starts.failed else ""


def any_failed_start(analysis: Analysis) -> bool:
    """True if a column for failed starts has anything to show."""
    return any(failed_starts(result) for result in analysis.settings)


def start_noun(analysis: Analysis) -> str:
    """The noun for a trial: `start`, or `trial` for a server that was not restarted."""
    return "trial" if analysis.deployed else "start"


def fresh_noun(analysis: Analysis) -> str:
    """The noun for a trial that had no part in choosing a setting."""
    return "further trial" if analysis.deployed else "fresh start"


def mark_of(setting: Setting, analysis: Analysis) -> str:
    """The mark of a setting in a picture: answer, equal or other."""
    if setting == analysis.answer.setting:
        return "answer"
    return "equal" if is_as_good(setting, analysis) else "other"


def is_as_good(setting: Setting, analysis: Analysis) -> bool:
    """True for the answer and every setting equivalent to it; always False if there is no answer."""
    return analysis.answer.setting is not None and setting in analysis.answer.equivalent


def _ids(settings: Iterable[Setting]) -> str:
    return ", ".join(setting.id for setting in settings)


def short_id(setting: Setting, analysis: Analysis) -> str:
    """The part of a setting's name that distinguishes it: if parameters vary one at a time, only the changed value."""
    if not analysis.changes:
        return setting.id
    changed = {change.setting: change.name for change in analysis.changes}
    return changed.get(setting, "baseline")


def not_allowed(analysis: Analysis) -> list[tuple[str, str]]:
    """Settings that violate a condition: their id, and the condition."""
    return [
        (result.setting.id, "; ".join(result.infeasible_because) or "a condition is not met")
        for result in analysis.settings
        if result.trials and not result.feasible
    ]


def factor_names(analysis: Analysis) -> tuple[str, ...]:
    """The parameters in the experiment's order; empty if there are none."""
    return tuple(name for name, _ in analysis.settings[0].setting.levels) if analysis.settings else ()


def about_revisions(analysis: Analysis) -> bool:
    """True if the question was whether one of two revisions is worse, and not which setting to use."""
    return factor_names(analysis) == (REVISION,) and len(analysis.settings) == 2


def verdict_note(analysis: Analysis) -> str:
    """The basis of the verdicts, in one sentence."""
    leader = analysis.answer.leader
    if leader is None:
        return "There is no leader to compare with."
    corrected = ", corrected for multiple comparisons" if len(analysis.settings) > 2 else ""
    return (
        f"Each setting is compared with the leader, {short_id(leader, analysis)}, at "
        f"{percent(analysis.confidence)} confidence{corrected}."
    )


def figure_note(analysis: Analysis) -> str:
    """Why the figure of the first sentence is not that of the table, as a sentence; empty if it is."""
    answer, metric = analysis.answer, analysis.objective
    told = next((row for row in analysis.settings if row.setting == (answer.setting or answer.leader)), None)
    if answer.figure is None or told is None or about_revisions(analysis):
        return ""
    if answer.figure.fresh:
        return f"The table is of the race, the first sentence of the {fresh_noun(analysis)}s."
    ours, its = (format_interval(each, metric) for each in (answer.figure.estimate, told.estimates.get(metric)))
    if ours == its or len(analysis.settings) == 1:
        return ""
    return "The first sentence's interval is wider, since it allows for the choice of the best."


def footnote(analysis: Analysis) -> str:
    """The note below the table of settings: its objective, intervals, number of trials and leader."""
    parts = (
        f"Objective: {objective_words(analysis)}.", f"Intervals: {percent(analysis.confidence)}.",
        figure_note(analysis), f"{trial_counts(analysis)}.", verdict_note(analysis),
    )  # fmt: skip
    return " ".join(filter(None, parts))


def objective_words(analysis: Analysis) -> str:
    """`highest goodput (correct responses per second) that meets the SLO (error_rate < 1%)`."""
    best = "highest" if analysis.direction == "maximise" else "lowest"
    of_requests = analysis.objective == "goodput_per_s" and analysis.noun == "request"
    meaning = " (correct responses per second)" if of_requests else ""
    where = f" that meets the SLO ({' and '.join(analysis.constraints)})" if analysis.constraints else ""
    return f"{best} {metric_words(analysis.objective)}{meaning}{where}"


@dataclass(frozen=True)
class Unusable:
    """A trial that was excluded, by its `number`. `setting`: its id. `status`: `failed`, `interrupted`, or `invalid` if
    it ran to its end. `reasons`: sentences, joined."""

    number: int
    setting: str
    status: str
    reasons: str


def unusable_trials(trials: Iterable[TrialResult]) -> list[Unusable]:
    """Failed and invalid trials in order, and interrupted ones that were not run again. `status` is `invalid` for a
    trial that ran but is excluded."""
    return [
        Unusable(
            trial.number,
            trial.setting.id,
            "invalid" if trial.status == "measured" else trial.status,
            "; ".join(problem.message for problem in trial.problems if problem.fatal) or "no reason was recorded",
        )
        for trial in counted(trials)
        if not trial.valid
    ]


@dataclass(frozen=True)
class ErrorRow:
    """Failed requests of one kind, over all valid trials of a setting. `setting`: its id. `kind`, `cause`: as in
    `ErrorKind`. `count`: how many."""

    setting: str
    kind: str
    count: int
    cause: str


def error_rows(analysis: Analysis) -> list[ErrorRow]:
    """Settings in plan order, the most frequent kind first; the cause is taken from the trial with most errors of that
    kind."""
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
    """All trials except interrupted ones that were run again: these did not fail, they only ran later."""
    trials = list(trials)
    last = {(trial.setting, trial.block, trial.attempt): trial.number for trial in trials}
    return [
        trial
        for trial in trials
        if trial.status != "interrupted" or last[trial.setting, trial.block, trial.attempt] == trial.number
    ]


def rounds_of(trials: Iterable[TrialResult]) -> dict[int, int]:
    """The number of each round for readers, from 1, by the number of its block: a race that needed fewer short trials
    than were allowed leaves out some blocks."""
    compared = {trial.block for trial in trials if trial.stage in (Stage.SCREEN, Stage.COMPARE)}
    return {block: number for number, block in enumerate(sorted(compared), 1)}


def present_columns(analysis: Analysis) -> tuple[MetricColumn, ...]:
    """The columns beside the objective for which at least one setting has an estimate to show."""
    noun = analysis.noun
    words = {"noun": noun, "short": noun[:3]}
    return tuple(
        MetricColumn(column.metric, column.heading.format(**words), column.short.format(**words))
        for column in COLUMNS
        if has_column(column.metric, [row.estimates for row in analysis.settings], beside=analysis.objective)
    )


def has_column(metric: str, settings: Sequence[Mapping[str, Estimate]], *, beside: str = "") -> bool:
    """True if a setting has an estimate of the metric; of users never served, only one that is not 0 counts. `beside`:
    the objective, which has a column of its own; that of a capacity says what is served there."""
    if metric == beside or (metric, beside) == ("goodput_per_s", "capacity_per_s"):
        return False
    found = [estimates[metric] for estimates in settings if metric in estimates]
    return bool(found) and (metric != "users_unserved" or any(estimate.value > 0 for estimate in found))


def valid_note(analysis: Analysis) -> str:
    """`the valid trials behind the row's figures, 19 of 30; ...`; empty if these are all that were valid."""
    rows, valid = sum(row.trials for row in analysis.settings), sum(trial.valid for trial in counted(analysis.trials))
    others = "the others were short, or confirm or explain the answer"
    return f"the valid trials behind the row's figures, {rows} of {valid}; {others}" if rows < valid else ""


def trial_counts(analysis: Analysis) -> str:
    """`42 trials, 40 of them valid`."""
    trials = counted(analysis.trials)
    total = len(trials)
    valid = sum(trial.valid for trial in trials)
    return f"{total} trial{'s' if total != 1 else ''}, {'all' if valid == total else f'{valid} of them'} valid"
