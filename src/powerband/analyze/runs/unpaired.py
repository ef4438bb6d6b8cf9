"""Compares two runs setting by setting: what changed from the first to the second, and how sure that is.

Runs share no blocks, so trials cannot be paired: Welch's t interval (Welch 1947), at a confidence that holds for all
settings together (Bonferroni); on logs if every value is above zero and no share, else on plain differences. The amount
by which sessions of a machine differ is added to each interval (`sessions.py`), and so is that by which the clocks of
the loads may be off.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from operator import methodcaller
from typing import Any

import numpy as np

from powerband.analyze.runs.changes import TWO_RUNS, Change, RunComparison, by_bound, smallest_difference, with_ends
from powerband.analyze.runs.sessions import ASSUMED, SessionSpread
from powerband.analyze.runs.undershown import undershown, where_shown
from powerband.analyze.settings.starts import failed_words, unmeasured_pair, verdict_by_starts
from powerband.analyze.settings.unsettled import still_rising
from powerband.analyze.stats.intervals import Scale, estimate, estimate_of
from powerband.analyze.trial.faults import ran_out, tried
from powerband.analyze.trial.processes import PARTIAL_SWITCHES
from powerband.base.errors import UsageError
from powerband.base.units import format_value
from powerband.loads.kind import LoadKind
from powerband.loads.measured import least_of
from powerband.model.constraint import Constraint, constraint_of
from powerband.model.experiment import Experiment
from powerband.model.host_facts import host_fact
from powerband.model.metrics import METRICS, metric_words
from powerband.model.plan import Setting, Stage
from powerband.model.results import Analysis, SettingResult, Verdict


def compare_runs(
    first: Analysis,
    second: Analysis,
    warnings: Sequence[str] = (),
    sessions: SessionSpread = ASSUMED,
    kinds: Sequence[LoadKind] = (),
) -> RunComparison:
    """Compares valid trials by the first run's objective, confidence and margin. `warnings`: what else differs;
    `kinds`: of the load of both runs, whose clocks may be coarse; empty: they are not. Raises UsageError if the
    objective counts context switches and only one of the runs counted those of ended threads, too."""
    living = [_counts_living_threads(analysis) for analysis in (first, second)]
    if first.objective.startswith("context_switches_per_") and living[0] != living[1]:
        raise UsageError(
            f"the two runs' {metric_words(first.objective)} cannot be compared: one run counted all threads, the other "
            "only living ones, since perf was not permitted there; run both with the same rights"
        )
    values = _like_with_like(first, second)
    bounds = _bounds((first, second), values)
    values = [run | bound for run, bound in zip(values, bounds, strict=True)]
    rows, alone = _by_common_slo((first, second))
    common = [setting for setting in values[0] if setting in values[1]]
    ran = [setting for setting in rows[0] if all(tried(run.trials, setting) for run in (first, second))]
    each = 1 - (1 - first.confidence) / max(1, len(common))
    everything = [value for run in values for setting in common for value in run[setting]]
    scale = Scale.of(everything, METRICS[first.objective].unit)
    rising = [(run, still_rising(first.objective, run.trials)) for run in (first, second)]

    def change(setting: Setting) -> Change:
        if setting not in common:
            return _fails(setting, (first, second), values)
        both = [run[setting] for run in values]
        found = _change(setting, both, first, scale, confidence=each, sessions=sessions, kinds=kinds)
        found = _with_ends(found, rows, first.objective)
        shown = [undershown(setting, run.trials, its, found.ratio) for run, its in rising]
        found = where_shown(found, shown, TWO_RUNS)
        for index in (0, 1):
            if setting in bounds[index]:
                _, why = _unmeasured(setting, (first, second), (index != 0, index != 1))
                found = by_bound(found, index, found.verdict, first.objective, why)
        at_slo = _changes_at_slo(setting, (first, second), rows, 1 - each, sessions=sessions, kinds=kinds)
        over = ran_out(trial for run in (first, second) for trial in tried(run.trials, setting))
        found = _allowed(found, rows, 1 - each, at_slo)
        if setting in alone and found.verdict is not Verdict.WORSE:
            because = "; ".join(filter(None, (found.because, alone[setting])))
            found = replace(found, verdict=Verdict.INCONCLUSIVE, because=because)
        return replace(found, verdict=Verdict.INCONCLUSIVE, because=over) if over else found

    return RunComparison.of(
        first,
        map(change, dict.fromkeys((*ran, *common))),
        only_first=tuple(setting for setting in values[0] if setting not in values[1] and setting not in ran),
        only_second=tuple(setting for setting in values[1] if setting not in values[0] and setting not in ran),
        warnings=tuple(warnings),
        sessions=sessions,
    )


def _by_common_slo(runs: Sequence[Analysis]) -> tuple[list[dict[Setting, SettingResult]], dict[Setting, str]]:
    """The results of both runs by setting, as if neither had a constraint that the other lacks, since it is not known
    whether the other meets it; and which constraint that is, in words, for each setting that may break one."""
    asked = [{_as_asked(text): text for text in run.constraints} for run in runs]
    rows: list[dict[Setting, SettingResult]] = []
    alone: dict[Setting, str] = {}
    for which, run, mine, other in zip(("first", "second"), runs, asked, asked[::-1], strict=True):
        own = {text for each, text in mine.items() if each not in other}
        rows.append({})
        for row in run.settings:
            reasons = (row.infeasible_because, row.uncertain_because)
            broken, unsure = (tuple(why for why in each if why.partition(": ")[0] not in own) for each in reasons)
            rows[-1][row.setting] = replace(row, infeasible_because=broken, uncertain_because=unsure)
            if told := next((text for text in (why.partition(": ")[0] for why in chain(*reasons)) if text in own), ""):
                alone[row.setting] = f"only the {which} run has the condition {told}"
    return rows, alone


def _as_asked(text: str) -> tuple[str, str, float] | str:
    """Returns what a constraint asks, however it is written. One that is refused now is returned as it is written."""
    constraint = constraint_of(text)
    return text if constraint is None else constraint.asked


# The facts of host.json that change what a server can do; others (load average, uptime, free memory) always differ.
_HOST_FACTS = (
    *("CPU", "CPUs allowed", "CPU governor", "turbo", "CPU limit of the cgroup", "memory", "kernel", "system"),
    *("virtualisation", "container", "clock", "host name", "engine"),
)


def changed_facts(first: Mapping[str, Any], second: Mapping[str, Any], *more: str) -> Iterator[tuple[str, Any, Any]]:
    """Yields the name and both values of each host fact that differs and is known of both. `more`: names of facts that
    other runs may differ in."""
    for name in (*_HOST_FACTS, *more):
        a, b = (_known(host, name) for host in (first, second))
        if a is not None and b is not None and a != b:
            yield name, a, b


def _known(host: Mapping[str, Any], name: str) -> Any:
    """A fact; None if it is not known. That there is no CPU limit is a fact as well."""
    cpu = host.get("cpu")
    if name == "CPU limit of the cgroup" and isinstance(cpu, Mapping) and "cgroup_cpus_max" in cpu:
        return cpu["cgroup_cpus_max"] or "none"
    return host_fact(host, name)


def host_differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[str]:
    """The differences between the host facts of two runs: a sentence for each that differs and is known of both."""
    for name, a, b in changed_facts(first, second):
        yield f"the hosts differ: {name} {a} in the first run, {b} in the second; the difference may come from that"


def experiment_differences(first: Experiment, second: Experiment) -> Iterator[str]:
    """Yields a sentence for each part of the experiments that differs, but for how many trials were to be run, and for
    what else was to be measured."""
    for name, keys in (
        *((name, type(getattr(first, name)).model_fields) for name in ("load", "objective", "host")),
        ("measure", ("warmup_ns", "warmup_min_ns", "warmup_max_ns", "burst_ns", "snapshots", "visitor")),
    ):
        a, b = getattr(first, name), getattr(second, name)
        if fields := [f"{name}.{key}" for key in keys if getattr(a, key) != getattr(b, key)]:
            yield f"the runs differ in {', '.join(fields)}: they did not measure the same"
    if first.cluster != second.cluster:
        yield "the runs differ in cluster: the machines that ran them may have been others"
    if first.subject.url != second.subject.url and first.subject.deployed is not None:
        yield f"the runs differ in subject.url, {first.subject.url} and {second.subject.url}: these are two servers"


def _like_with_like(first: Analysis, second: Analysis) -> list[dict[Setting, list[float]]]:
    """The objective of every setting in both runs, from trials of the same purpose: those of blocks; if a run has none,
    the fresh starts that confirmed the setting in both; else the short trials of both."""

    def read(metrics: Mapping[str, float]) -> float | None:
        return metrics.get(first.objective)

    found = [_values(analysis, read, Stage.COMPARE) for analysis in (first, second)]
    for stage in (Stage.CONFIRM, Stage.SCREEN):
        others = [_values(analysis, read, stage) for analysis in (first, second)]
        for setting in others[0].keys() & others[1].keys():
            if not all(setting in run for run in found):
                for run, other in zip(found, others, strict=True):
                    run[setting] = other[setting]
    order = {row.setting: at for at, row in enumerate(first.settings)}
    return [dict(sorted(run.items(), key=lambda each: order.get(each[0], len(order)))) for run in found]


def _bounds(
    runs: Sequence[Analysis], values: Sequence[Mapping[Setting, list[float]]]
) -> list[dict[Setting, list[float]]]:
    """Lower bounds of a percentile that is to be least, for settings with too few requests for it in one run alone."""
    if runs[0].direction == "maximise":
        return [{}, {}]
    least = [_values(run, partial(least_of, runs[0].objective), Stage.COMPARE) for run in runs]
    return [
        {setting: found[setting] for setting in found if setting in other and setting not in own}
        for found, own, other in zip(least, values, values[::-1], strict=True)
    ]


def _values(
    analysis: Analysis, read: Callable[[Mapping[str, float]], float | None], stage: Stage
) -> dict[Setting, list[float]]:
    """A figure of every valid, undisturbed trial of a stage, by setting, in the order of the analysis' settings.
    `read`: takes it from a trial's metrics; None: it has none."""
    found: dict[Setting, list[float]] = {result.setting: [] for result in analysis.settings}
    for trial in analysis.trials:
        whole = trial.valid and not trial.disturbed
        if whole and trial.stage is stage and (value := read(trial.metrics)) is not None:
            found.setdefault(trial.setting, []).append(value)
    return {setting: values for setting, values in found.items() if values}


def _counts_living_threads(analysis: Analysis) -> bool:
    return any(problem.code == PARTIAL_SWITCHES for trial in analysis.trials for problem in trial.problems)


def _fails(setting: Setting, runs: Sequence[Analysis], values: Sequence[Mapping[Setting, list[float]]]) -> Change:
    """The change of a setting that was tried in both runs and measured in one at most. If it failed by its own fault in
    one and served in the other, it has changed."""
    metric, confidence = runs[0].objective, runs[0].confidence
    estimates = [estimate_of(run[setting], metric, confidence) if setting in run else None for run in values]
    measured = [found is not None for found in estimates]
    verdict, because = _unmeasured(setting, runs, measured)
    return Change(setting, estimates[0], estimates[1], None, verdict, None, because)


def _unmeasured(setting: Setting, runs: Sequence[Analysis], measured: Sequence[bool]) -> tuple[Verdict, str]:
    words, ran = [], []
    for which, run in zip(("first", "second"), runs, strict=True):
        ever = tried(run.trials, setting)
        mine = [trial for trial in ever if trial.stage is not Stage.EXPLORE]  # one trial, never repeated
        valid = [trial for trial in mine if trial.valid and runs[0].objective in trial.metrics]
        disturbed = bool(valid) and all(trial.disturbed for trial in valid)
        short = bool(valid) and all(trial.stage is Stage.SCREEN for trial in mine)  # it left the race after these
        said = "only short trials measured it" if short else "not measured" if mine or not ever else "only explored"
        said = f"{said} in the {which} run"
        words.append(f"every valid trial in the {which} run was disturbed by other programs" if disturbed else said)
        ran.append([] if short else valid if disturbed else mine)
    return unmeasured_pair(ran, measured, words, 1 - runs[0].confidence)


def _allowed(
    change: Change,
    rows: Sequence[Mapping[Setting, SettingResult]],
    error: float,
    at_slo: Iterator[tuple[Constraint, Change]],
) -> Change:
    """The change with failed starts and constraints put first, as each run judged its own. A setting is worse in the
    run in which it breaks a constraint, if it certainly meets all in the other, whatever it serves, unless the metrics
    (`at_slo`) of all that it breaks may differ as sessions do. If it may break one there, too, it is worse where it
    serves worse, or where a constraint's metric is worse, else the verdict is inconclusive. The second is neither
    better nor equivalent if some of its starts failed or broke one, even if it is only luck that those of the first did
    not, or if it is not certain that it meets all."""
    found = [row.get(change.setting) for row in rows]
    broken = [() if row is None or row.lapsed else row.infeasible_because for row in found]
    doubts = [() if row is None else row.uncertain_because for row in found]
    if found[1] is not None and found[1].lapsed:
        doubts[1] = (*found[1].infeasible_because, *doubts[1])
    if by_starts := _by_starts(found, broken[1], doubts[1], error):
        return replace(change, verdict=by_starts[0], because=by_starts[1])
    clauses = [
        f"the {which} run violates the SLO ({'; '.join(why)})"
        if why
        else f"it is not certain whether the {which} run meets the SLO ({'; '.join(unsure)})"
        for which, why, unsure in zip(("first", "second"), broken, doubts, strict=True)
        if why or unsure
    ]
    for index, verdict in ((1, Verdict.WORSE), (0, Verdict.BETTER)):
        if broken[index] and len(clauses) == 1:
            alike = change.verdict is not verdict and _may_be_session(broken[index], at_slo)
            because = f"{clauses[0]}, by no more than separate runs may differ" if alike else clauses[0]
            return replace(change, verdict=Verdict.INCONCLUSIVE if alike else verdict, because=because)
    if not (any(broken) or (doubts[1] and change.verdict in (Verdict.BETTER, Verdict.EQUIVALENT))):
        return change
    if broken[1] and change.verdict is Verdict.WORSE:
        return change
    if broken[1] and (because := _worse_at_slo(at_slo)):
        return replace(change, verdict=Verdict.WORSE, because=because)
    if all(broken):
        clauses = [f"both runs violate the SLO ({'; '.join(dict.fromkeys((*broken[0], *broken[1])))})"]
    return replace(change, verdict=Verdict.INCONCLUSIVE, because="; ".join(clauses))


def _by_starts(
    rows: Sequence[SettingResult | None], broken: Sequence[str], doubts: Sequence[str], error: float
) -> tuple[Verdict, str] | None:
    """The verdict by the failed starts of a setting in both runs, and its reason; None if neither certainly fails more,
    or if the second, which would be better, certainly breaks a constraint. `broken`, `doubts`: what the second breaks
    or may break; then it is not better."""
    starts = [row.starts for row in rows if row is not None and row.starts]
    verdict = verdict_by_starts(starts, error) if len(starts) == len(rows) else Verdict.INCONCLUSIVE
    if verdict is Verdict.INCONCLUSIVE or (verdict is Verdict.BETTER and broken):
        return None
    because = f"{failed_words(starts[0])} in the first run, {failed_words(starts[1])} in the second"
    if verdict is Verdict.BETTER and doubts:
        return Verdict.INCONCLUSIVE, "; ".join((because, *doubts))
    return verdict, because


def _changes_at_slo(
    setting: Setting,
    runs: Sequence[Analysis],
    rows: Sequence[Mapping[Setting, SettingResult]],
    error: float,
    *,
    sessions: SessionSpread,
    kinds: Sequence[LoadKind],
) -> Iterator[tuple[Constraint, Change]]:
    """Yields each of the first run's constraints whose metric can be compared, with its change. The constraints share
    the error (Bonferroni). How far sessions differ is learned of the objective alone."""
    confidence = runs[0].confidence
    unlearned = max(sessions, ASSUMED, key=lambda each: each.half_width(confidence)) if sessions.sd else sessions
    for constraint in filter(None, map(constraint_of, runs[0].constraints)):
        metric = constraint.metric
        values = [_values(run, methodcaller("get", metric), Stage.COMPARE).get(setting, []) for run in runs]
        if constraint.op == "==" or not all(values):
            continue
        direction = "maximise" if constraint.op.startswith(">") else "minimise"
        asked = replace(runs[0], objective=metric, direction=direction)
        scale = Scale.of([*values[0], *values[1]], METRICS[metric].unit)
        each = 1 - error / len(runs[0].constraints)
        spread = sessions if metric == runs[0].objective else unlearned
        found = _change(setting, values, asked, scale, confidence=each, sessions=spread, kinds=kinds)
        yield constraint, _with_ends(found, rows, metric)


def _worse_at_slo(changes: Iterator[tuple[Constraint, Change]]) -> str:
    """Why the second run is certainly worse by the metric of a constraint; empty if it is not."""
    for constraint, found in changes:
        if found.verdict is Verdict.WORSE and found.first is not None and found.second is not None:
            unit = METRICS[constraint.metric].unit
            before, after = (format_value(each.value, unit) for each in (found.first, found.second))
            return found.because or f"{metric_words(constraint.metric)} {after} instead of {before}"
    return ""


def _may_be_session(broken: Sequence[str], changes: Iterator[tuple[Constraint, Change]]) -> bool:
    """True if each reason of `broken` is a constraint on a metric that is no share of requests and no count, and of
    which it is not certain that the runs differ. What fails in one run only, and what is counted, is no matter of the
    day."""
    near = {
        constraint.asked
        for constraint, found in changes
        if METRICS[constraint.metric].unit not in ("ratio", "count")
        and found.verdict in (Verdict.INCONCLUSIVE, Verdict.EQUIVALENT)
    }
    return all(_as_asked(reason.partition(": ")[0]) in near for reason in broken)


def _with_ends(change: Change, rows: Sequence[Mapping[Setting, SettingResult]], metric: str) -> Change:
    found = [row[change.setting].estimates.get(metric) if change.setting in row else None for row in rows]
    endless = [estimate is not None and estimate.at_least for estimate in found]
    return with_ends(change, endless, TWO_RUNS, metric)


def _change(
    setting: Setting,
    values: Sequence[list[float]],
    analysis: Analysis,
    scale: Scale,
    *,
    confidence: float,
    sessions: SessionSpread,
    kinds: Sequence[LoadKind],
) -> Change:
    """The change of a setting measured in both runs. `confidence`: that of the interval of the ratio. The half-widths
    for trials, for sessions and for the clocks of the loads are added: a session's effect is one for all settings, and
    the sum holds for any mixture of all."""
    a, b = map(scale.scaled, values)
    found = scale.unpaired(b, a, confidence)
    difference, half = found.value, found.half
    before, after = (estimate(x, analysis.confidence, log=scale.log) for x in values)
    base = float(np.mean(values[0]))
    of_sessions = sessions.half_width(analysis.confidence)
    half += of_sessions if scale.log else of_sessions * max(abs(float(np.mean(x))) for x in values)
    by_trials = _verdict(difference, half, scale.allowed(analysis.margin, base), analysis.direction)
    errors = [kind.clock_error(analysis.objective) for kind in kinds] or [0.0, 0.0]
    by_clock = sum(float(scale.blur(x, error).mean()) for x, error in zip(values, errors, strict=True))
    half += by_clock
    ratio = scale.ratio(difference, half, base, confidence, min(len(a), len(b)))
    verdict = _verdict(difference, half, scale.allowed(analysis.margin, base), analysis.direction)
    words = (kind.clock_words(analysis.objective) for kind in kinds)
    open_by_clock = verdict is Verdict.INCONCLUSIVE and (verdict is not by_trials or 2 * by_clock >= half)
    because = next(filter(None, words), "") if open_by_clock else ""
    smallest = smallest_difference(ratio, before, analysis.objective, log=scale.log)
    return Change(setting, before, after, ratio, verdict, smallest, because)


def _verdict(difference: float, half: float, margin: float, direction: str) -> Verdict:
    low, high = difference - half, difference + half
    if -margin < low and high < margin:
        return Verdict.EQUIVALENT
    if math.isnan(half) or low <= 0 <= high:
        return Verdict.INCONCLUSIVE
    rose = low > 0
    return Verdict.BETTER if rose == (direction == "maximise") else Verdict.WORSE
