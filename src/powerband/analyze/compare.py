"""Trial results in, `Analysis` out: estimates per setting, verdicts against the leader, the answer.

In: an experiment and the results of its trials, in any order. Out: values for reports. The statistics themselves are in
`intervals.py`, the words in `answer.py`; nothing is read or written here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from powerband.analyze.answer import Standing, word_answer
from powerband.analyze.claims import judge_claims
from powerband.analyze.intervals import compare_with_leader, estimate
from powerband.analyze.results import Analysis, Answer, AnswerKind, Estimate, SettingResult, TrialResult, Verdict
from powerband.analyze.special import Array
from powerband.experiment import Constraint, Experiment
from powerband.metrics import METRICS
from powerband.plan import Setting
from powerband.units import format_value

OPERATORS = {
    "<": lambda value, threshold: value < threshold,
    "<=": lambda value, threshold: value <= threshold,
    ">": lambda value, threshold: value > threshold,
    ">=": lambda value, threshold: value >= threshold,
    "==": lambda value, threshold: value == threshold,
}


def analyse(experiment: Experiment, results: Sequence[TrialResult]) -> Analysis:
    """Judges all settings by the objective, from their valid trials; never raises for what results hold.

    Of several attempts at one setting in one block the last valid one counts. Settings that miss a constraint by their
    point estimate cannot lead nor be the answer; where the constraint lies within the interval a warning says so."""
    settings = list(dict.fromkeys([*experiment.settings(), *(result.setting for result in results)]))
    table = _Table(experiment, settings, results)
    scale = _scale(experiment, table)
    estimates = {setting: _estimates(experiment, table.valid(setting)) for setting in settings}
    shortfalls = {setting: _shortfalls(experiment, estimates[setting]) for setting in settings}
    contest = _contest(experiment, table, scale, shortfalls)
    rows = tuple(
        SettingResult(
            setting=setting,
            trials=len(table.valid(setting)),
            invalid=sum(1 for result in results if result.setting == setting and not result.valid),
            estimates=estimates[setting],
            effect=contest.effect(setting),
            verdict=contest.verdict(setting),
            feasible=bool(estimates[setting]) and not shortfalls[setting],
            infeasible_because=shortfalls[setting] if estimates[setting] else _absent_because(setting, results),
        )
        for setting in settings
    )
    standing = Standing(experiment, rows, contest.leader, frozenset(contest.contenders()), _blocks(table, contest))
    return Analysis(
        name=experiment.name,
        question=experiment.question,
        objective=experiment.objective.metric,
        direction=experiment.objective.direction,
        constraints=tuple(constraint.text for constraint in experiment.objective.constraints),
        confidence=experiment.objective.confidence,
        margin=experiment.objective.margin,
        answer=_answer(standing),
        settings=rows,
        trials=tuple(sorted(results, key=lambda result: result.number)),
        warnings=tuple(_warnings(experiment, rows, results)),
        claims=judge_claims(experiment, results),
    )


class _Table:
    """Valid results by setting and block."""

    def __init__(self, experiment: Experiment, settings: Sequence[Setting], results: Sequence[TrialResult]) -> None:
        self.settings = settings
        self.metric = experiment.objective.metric
        self.sign = 1.0 if experiment.objective.direction == "maximise" else -1.0
        cells: dict[tuple[Setting, int], TrialResult] = {}
        for result in sorted(results, key=lambda result: result.number):
            if result.valid and self.metric in result.metrics:
                cells[result.setting, result.block] = result
        self._cells = cells
        self.blocks = sorted({block for _, block in cells})

    def valid(self, setting: Setting) -> list[TrialResult]:
        return [self._cells[setting, block] for block in self.blocks if (setting, block) in self._cells]

    def values(self) -> Array:
        """(blocks, settings) of the objective as measured; NaN for missing cells."""
        values = np.full((len(self.blocks), len(self.settings)), np.nan)
        for (setting, block), result in self._cells.items():
            values[self.blocks.index(block), self.settings.index(setting)] = result.metrics[self.metric]
        return values


@dataclass(frozen=True)
class _Scale:
    """`log`: ratios are compared; otherwise differences, against the margin in the metric's own unit (shares) or
    relative to the leader's mean (`relative`)."""

    log: bool
    relative: bool


def _scale(experiment: Experiment, table: _Table) -> _Scale:
    """Logs wherever every value is above zero and the metric is no share: noise of rates and times is proportional."""
    values = table.values()
    share = METRICS[table.metric].unit == "ratio"
    positive = bool(np.nanmin(values) > 0) if values.size and not np.isnan(values).all() else True
    return _Scale(log=positive and not share, relative=not share)


@dataclass(frozen=True)
class _Contest:
    """Who leads, and how every other setting compares; in differences and half-widths larger is better."""

    settings: tuple[Setting, ...]
    leader: Setting | None
    sign: float
    scale: _Scale
    leader_mean: float
    margin: float
    confidence: float
    difference: Mapping[Setting, float]
    half: Mapping[Setting, float]
    half_tost: Mapping[Setting, float]
    shared: Mapping[Setting, int]

    def verdict(self, setting: Setting) -> Verdict:
        """Towards the leader. Equivalence comes first: within the margin no difference matters, however certain."""
        if setting == self.leader:
            return Verdict.EQUIVALENT
        difference, half = self.difference.get(setting, math.nan), self.half.get(setting, math.nan)
        if math.isnan(half):
            return Verdict.INCONCLUSIVE
        if abs(difference) + self.half_tost[setting] <= self._allowed:
            return Verdict.EQUIVALENT
        if abs(difference) > half:
            return Verdict.WORSE if difference < 0 else Verdict.BETTER
        return Verdict.INCONCLUSIVE

    def effect(self, setting: Setting) -> Estimate | None:
        """Ratio of the objective to the leader's; None where it cannot be had."""
        if self.leader is None or setting not in self.difference:
            return None
        difference, half = self.difference[setting], self.half[setting]
        n = self.shared[setting]
        if setting == self.leader:
            return Estimate(1.0, 1.0, 1.0, self.confidence, n)
        if math.isnan(difference):
            return None
        ends = sorted(self._ratio(self.sign * (difference + side)) for side in (-half, half))
        low, high = (None, None) if math.isnan(half) else ends
        return Estimate(self._ratio(self.sign * difference), low, high, self.confidence, n)

    def contenders(self) -> list[Setting]:
        """Settings that the intervals allow to be better than the leader by more than the margin."""
        return [
            setting
            for setting in self.settings
            if setting != self.leader
            and setting in self.difference
            and self.verdict(setting) is Verdict.INCONCLUSIVE
            and not self.difference[setting] + self.half_tost[setting] <= self._allowed
        ]

    @property
    def _allowed(self) -> float:
        if self.scale.log:
            return math.log1p(self.margin)
        return self.margin * (abs(self.leader_mean) if self.scale.relative else 1.0)

    def _ratio(self, difference: float) -> float:
        if self.scale.log:
            return math.exp(difference)
        return 1 + difference / self.leader_mean if self.leader_mean else math.nan


def _contest(
    experiment: Experiment, table: _Table, scale: _Scale, shortfalls: Mapping[Setting, Sequence[str]]
) -> _Contest:
    """Compares all settings that have data; only those that meet the constraints may lead."""
    raw = table.values()
    columns = [index for index in range(len(table.settings)) if raw.size and not np.isnan(raw[:, index]).all()]
    settings = tuple(table.settings[index] for index in columns)
    may_lead = np.array([not shortfalls[setting] for setting in settings], dtype=bool)
    objective = experiment.objective
    empty = _Contest(settings, None, table.sign, scale, 0.0, objective.margin, objective.confidence, {}, {}, {}, {})
    if not may_lead.any():
        return empty
    values = raw[:, columns]
    scaled = table.sign * (np.log(values) if scale.log else values)
    if len(settings) == 1:
        only = settings[0]
        return _lone(empty, only, float(np.nanmean(values)), len(table.blocks))
    found = compare_with_leader(scaled[None], objective.confidence, may_lead)
    lead = int(found.leader[0])
    shared = (~np.isnan(scaled) & ~np.isnan(scaled[:, [lead]])).sum(0)
    single = np.nansum(scaled - scaled[:, [lead]], axis=0) / np.maximum(shared, 1)
    difference = np.where(shared == 1, single, found.difference[0])
    return _Contest(
        settings=settings,
        leader=settings[lead],
        sign=table.sign,
        scale=scale,
        leader_mean=float(np.nanmean(values[:, lead])),
        margin=objective.margin,
        confidence=objective.confidence,
        difference=dict(zip(settings, map(float, difference), strict=True)),
        half=dict(zip(settings, map(float, found.half[0]), strict=True)),
        half_tost=dict(zip(settings, map(float, found.half_tost[0]), strict=True)),
        shared=dict(zip(settings, map(int, shared), strict=True)),
    )


def _lone(empty: _Contest, only: Setting, mean: float, blocks: int) -> _Contest:
    return _Contest(
        (only,), only, empty.sign, empty.scale, mean, empty.margin, empty.confidence,
        {only: 0.0}, {only: 0.0}, {only: 0.0}, {only: blocks},
    )  # fmt: skip


def _estimates(experiment: Experiment, trials: Sequence[TrialResult]) -> dict[str, Estimate]:
    """Every metric that all of the setting's valid trials have, or those that have it."""
    names = [name for name in METRICS if any(name in trial.metrics for trial in trials)]
    return {
        name: _metric_estimate(name, [t.metrics[name] for t in trials if name in t.metrics], experiment)
        for name in names
    }


def _metric_estimate(name: str, values: Sequence[float], experiment: Experiment) -> Estimate:
    log = METRICS[name].unit != "ratio" and min(values) > 0
    return estimate(values, experiment.objective.confidence, log=log)


def _shortfalls(experiment: Experiment, estimates: Mapping[str, Estimate]) -> tuple[str, ...]:
    """The constraints that the point estimates miss, in words."""
    return tuple(
        why for constraint in experiment.objective.constraints if (why := _misses(constraint, estimates)) is not None
    )


def _misses(constraint: Constraint, estimates: Mapping[str, Estimate]) -> str | None:
    found = estimates.get(constraint.metric)
    if found is None:
        return f"{constraint.text}: {constraint.metric} was not measured" if estimates else None
    if OPERATORS[constraint.op](found.value, constraint.threshold):
        return None
    return f"{constraint.text}: it was {format_value(found.value, METRICS[constraint.metric].unit)}"


def _absent_because(setting: Setting, results: Sequence[TrialResult]) -> tuple[str, ...]:
    """Why a setting has no valid trial: the fatal problems of its trials, each once."""
    messages = [
        problem.message
        for result in results
        if result.setting == setting
        for problem in result.problems
        if problem.fatal or result.status != "measured"
    ]
    return tuple(dict.fromkeys(messages)) or ("it was not tried yet",)


def _blocks(table: _Table, contest: _Contest) -> int:
    return len(table.valid(contest.leader)) if contest.leader is not None else 0


def _answer(standing: Standing) -> Answer:
    """The kind of answer from the verdicts; see `AnswerKind`."""
    rows = standing.rows
    measured = [row for row in rows if row.trials]
    feasible = [row for row in measured if row.feasible]
    leader = standing.leader
    if leader is None:
        kind = AnswerKind.NONE_FEASIBLE if measured else AnswerKind.NONE_VALID
        return Answer(kind, None, None, (), (), word_answer(standing, kind, None, (), ()))
    equivalent = tuple(row.setting for row in feasible if row.verdict in (Verdict.EQUIVALENT, Verdict.BETTER))
    undecided = tuple(row.setting for row in feasible if row.verdict is Verdict.INCONCLUSIVE)
    could_win = tuple(setting for setting in undecided if setting in standing.contenders)
    if could_win or (len(feasible) > 1 and standing.blocks < 2):
        kind, chosen = AnswerKind.NOT_ENOUGH_DATA, None
    elif len(equivalent) > 1 or undecided:
        kind, chosen = AnswerKind.EQUIVALENT_SET, cheapest(rows, equivalent)
    else:
        kind, chosen = AnswerKind.BEST, leader
    return Answer(
        kind, chosen, leader, equivalent, undecided, word_answer(standing, kind, chosen, equivalent, undecided)
    )


def cheapest(rows: Sequence[SettingResult], among: Sequence[Setting]) -> Setting:
    """Fewest threads, then least memory, then the first of the plan; unmeasured costs count as infinite."""

    def cost(row: SettingResult) -> tuple[float, float]:
        threads, memory = (row.estimates.get(name) for name in ("threads_max", "rss_bytes_max"))
        return (round(threads.value) if threads else math.inf, memory.value if memory else math.inf)

    return min((row for row in rows if row.setting in among), key=cost).setting


def _warnings(experiment: Experiment, rows: Sequence[SettingResult], results: Sequence[TrialResult]) -> list[str]:
    warnings = []
    if invalid := sum(row.invalid for row in rows):
        warnings.append(
            f"{invalid} of {len(results)} trials were failed or invalid and count for nothing but this; each says why"
        )
    unsteady = sum(1 for r in results if r.valid and any(problem.code == "not_steady" for problem in r.problems))
    if unsteady:
        warnings.append(
            f"{unsteady} valid trials were still changing while measured: their figures may shift with time"
        )
    for row in rows:
        for constraint in experiment.objective.constraints:
            found = row.estimates.get(constraint.metric)
            if found is not None and found.low is not None and found.high is not None:
                ends = {OPERATORS[constraint.op](end, constraint.threshold) for end in (found.low, found.high)}
                if len(ends) == 2:
                    warnings.append(
                        f"{row.setting.id}: whether {constraint.text} holds is not certain, "
                        "the interval holds both; it is judged by the estimate"
                    )
    return warnings
