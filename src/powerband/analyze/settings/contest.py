"""Holds the contest of settings: which one leads and how every other one compares, from a table of blocks and settings.

In: an experiment and its trials' results. Out: `ResponseTable`, `Compliance` of each setting, `Contest`. The statistics
are in `intervals.py`; the answer is put together in `compare.py`, and a race asks for a contest after every block: in
a race every interval spends its share of the error (`spending.py`), and a setting that left it does not come back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from powerband.analyze.settings.behind import with_behind
from powerband.analyze.settings.constraints import UNSERVED, Compliance, judge
from powerband.analyze.settings.starts import begun_in, starts_of
from powerband.analyze.stats.counts import EDGES
from powerband.analyze.stats.intervals import Fit, Scale, compare_with_leader, fit_of, mean_of
from powerband.analyze.stats.special import Array
from powerband.analyze.stats.spending import Glance, glance_at
from powerband.base.units import parse_bytes
from powerband.loads import kind_of
from powerband.loads.measured import is_lower_bound, least_of
from powerband.model.experiment import Experiment
from powerband.model.metrics import METRICS
from powerband.model.plan import Setting, Stage
from powerband.model.results import Departure, Estimate, Starts, TrialResult, Verdict

Cost = tuple[float, ...]
"""The parts of a setting's cost, as in `COSTS`: what comes first decides."""
CPU_EACH = "subject_cpu_ns_per_request"
COSTS = ("threads_max", "rss_bytes_max", CPU_EACH, "subject_cpu_cores")
CHEAPER_BY = 1.2  # a smaller difference in cost is noise, or not worth a clause
LITTLE_CPU = 0.05  # of one CPU; arbitrary: less than this is mostly what the server does beside requests
SCREENED_UNTIL = 2  # blocks of short trials, then of full ones, are needed: one alone shows no noise
FAR = 0.25
"""By this share a comparison of short trials may be off from that of full ones, besides its noise; a setting leaves if
its whole interval lies further below the leader. On servers whose warm-up had ended, rates of first seconds and of
later ones differed by a few percent."""


def cost_of(means: Mapping[str, float]) -> Cost:
    """The cost of a setting: its threads, then its memory, then its CPU time per request or, where no requests are
    counted, its CPUs; infinite if not measured. Less than `LITTLE_CPU` counts as so much. `cheapest_of` compares them.

    `means`: as `mean_of` makes them, since a reader finds these in the table of settings and can check."""
    threads, memory, each, cores = (means.get(name, math.inf) for name in COSTS)
    if cores < LITTLE_CPU:
        each *= LITTLE_CPU / (cores or LITTLE_CPU)
        cores = LITTLE_CPU
    return (threads if math.isinf(threads) else round(threads), memory, each, math.inf if CPU_EACH in means else cores)


def cheapest_of(costs: Mapping[Setting, Cost]) -> list[Setting]:
    """The settings that cost least, in the order of `costs`, which is that of the plan: the first is the one to name.
    They have less than `CHEAPER_BY` times the fewest threads; of these, less than so many times the least memory; of
    these, so of the CPU; and of these, the lowest limits of CPU and memory (`host.cpu_quota`, `host.memory_limit`)."""
    found = list(costs)
    for part in range(len(COSTS)):
        least = min((costs[setting][part] for setting in found), default=math.inf)
        found = [s for s in found if not clearly_more(costs[s][part], least)]
    limits = {setting: _limits_of(setting) for setting in found}
    lowest = min(limits.values(), default=())
    return [setting for setting in found if limits[setting] == lowest]


def _limits_of(setting: Setting) -> Cost:
    """The CPUs and the bytes to which the levels of a setting limit the server; infinite without such a level."""
    levels = setting.as_dict()
    quota, memory = levels.get("host.cpu_quota"), levels.get("host.memory_limit")
    return (math.inf if quota is None else float(quota), math.inf if memory is None else parse_bytes(memory))


def clearly_more(cost: float, other: float) -> bool:
    """True if a cost is at least `CHEAPER_BY` times another one. Both may be 0 or infinite."""
    return cost != other and cost >= CHEAPER_BY * other


def last_valid(results: Iterable[TrialResult], stage: Stage = Stage.COMPARE) -> dict[tuple[Setting, int], TrialResult]:
    """The valid results of a stage, by setting and block; the last one of several attempts."""
    ordered = sorted(results, key=lambda result: result.number)
    return {(result.setting, result.block): result for result in ordered if result.valid and result.stage is stage}


def compared(experiment: Experiment, results: Sequence[TrialResult]) -> dict[tuple[Setting, int], TrialResult]:
    """The valid results of the compared blocks. In a race without those of blocks that lost a trial with its node:
    another block makes up for each, and a look at a part of one would spend a share of the error that nobody has."""
    lost = {r.block for r in results if r.lost and r.stage is Stage.COMPARE} if experiment.is_race else set()
    return {key: result for key, result in last_valid(results).items() if key[1] not in lost}


def window_ns_of(results: Iterable[TrialResult]) -> int | None:
    """The shortest measured time of the trials; None if it was that of the experiment in all of them."""
    windows_s = [result.window_s for result in results if result.window_s is not None]
    return round(min(windows_s) * 1e9) if windows_s else None


class ResponseTable:
    """The valid results of the blocks, by setting and block, without trials that were run to explore or to confirm.

    If a race begins with short trials (`Stage.SCREEN`), the table holds these until there are two blocks of full trials
    (`screened`), and then only full ones: the two kinds differ in noise. A setting that left before its first full
    trial is still described by its short ones (`valid`), but no longer compared (`values`).

    A setting whose trials all had too few requests for the percentile that is to be least, while another one had
    enough, is in the table with lower bounds of it (`is_bounded`).

    `started`: also the results of blocks that are not whole, if there may be some: that a start failed, or broke a
    constraint, is a fact in these, too (`begun_in`)."""

    def __init__(
        self,
        experiment: Experiment,
        settings: Sequence[Setting],
        results: Sequence[TrialResult],
        *,
        started: Sequence[TrialResult] | None = None,
    ) -> None:
        self.settings = settings
        self.metric = experiment.objective.metric
        self.sign = 1.0 if experiment.objective.direction == "maximise" else -1.0
        measured = [result for result in results if self.metric in result.metrics or result.lost]
        cells = compared(experiment, measured)
        has = {setting for setting, _ in cells if setting in settings}
        lacking = [result for result in results if result.setting not in has and self.metric not in result.metrics]
        if has and self.sign < 0:
            cells = compared(experiment, [*measured, *(r for r in lacking if not math.isnan(self.value(r)))])
        self.lacking = frozenset(result.setting for result in lacking if result.valid and result.stage is Stage.COMPARE)
        """Settings of which full trials are valid, none of them with the objective: more rounds have no more."""
        short = last_valid(measured, Stage.SCREEN) if experiment.screened_ns is not None else {}
        whole = len({block for _, block in short}) >= SCREENED_UNTIL
        full_blocks = len({block for _, block in cells})
        self.screened = bool(short) and full_blocks < (SCREENED_UNTIL if whole else 1)
        if self.screened:
            cells = short
        self._experiment = experiment
        self._cells = cells
        self.blocks = sorted({block for _, block in cells})
        self._look: Glance | None = None  # of a race
        if experiment.is_race:
            window_ns = window_ns_of(cells.values())
            self._look = glance_at(experiment, len(self.blocks), screened=self.screened, window_ns=window_ns)
        confidence = experiment.objective.confidence
        begun = begun_in(results, results if started is None else started)
        self.starts = {setting: starts_of(begun, setting, confidence) for setting in settings}
        counted = {result.number for result in results}
        self._apart = [r for r in begun if r.valid and r.stage is Stage.COMPARE and r.number not in counted]
        self.fits: dict[Scale, Fit] = {}
        """Made once for all contests over the table, whichever setting leads."""
        self._valid: dict[Setting, list[TrialResult]] = {}
        self._as_ran: dict[Setting, Experiment] = {}
        full = {result.setting for result in results if result.stage is Stage.COMPARE}
        spared = {key: result for key, result in short.items() if key[0] not in full}
        for result in sorted({**spared, **cells}.values(), key=lambda result: result.block):
            self._valid.setdefault(result.setting, []).append(result)

    def glance(self, live: int) -> Glance | None:
        """The look at the table, at so many settings that are still in the race; None if it is no race."""
        return None if self._look is None else replace(self._look, live=max(2, live))

    @property
    def share(self) -> float:
        """The part of the whole error that the look may spend; 1 if it is no race."""
        return 1.0 if self._look is None else self._look.share

    def valid(self, setting: Setting) -> list[TrialResult]:
        """The setting's valid results, in the order of the blocks."""
        return self._valid.get(setting, [])

    def apart(self, setting: Setting) -> list[TrialResult]:
        """The setting's valid results in blocks that are not whole."""
        return [result for result in self._apart if result.setting == setting]

    def value(self, result: TrialResult) -> float:
        """The objective in a trial; a lower bound of it where it had too few requests for it, NaN without one."""
        least = least_of(self.metric, result.metrics)
        return result.metrics.get(self.metric, math.nan if least is None else least)

    def is_bounded(self, setting: Setting) -> bool:
        """True if the setting's valid trials have only lower bounds of the objective, from lower percentiles."""
        return setting in self.lacking and bool(self.valid(setting))

    def is_endless(self, setting: Setting) -> bool:
        """True if the setting's figure is a lower bound: the objective is a time that requests without a right answer
        exceed in a valid trial, or a percentile that lower ones stand for."""
        endless = any(is_lower_bound(self.metric, result.metrics) for result in self.valid(setting))
        return endless or self.is_bounded(setting)

    def experiment_of(self, setting: Setting) -> Experiment:
        """The experiment as the trials of `valid` ran it: with the load of the setting and the measured time that they
        had."""
        if setting not in self._as_ran:
            loaded = self._experiment.loaded_for(setting)
            self._as_ran[setting] = loaded.measured_for(window_ns_of(self.valid(setting)))
        return self._as_ran[setting]

    def has_only_short(self, setting: Setting) -> bool:
        """True if the setting's valid results are those of short trials."""
        return any(result.stage is Stage.SCREEN for result in self.valid(setting))

    def cost(self, setting: Setting) -> Cost:
        """The cost of a setting, as `cost_of` has it."""
        trials = [result.metrics for result in self.valid(setting)]
        measured = {name: [metrics[name] for metrics in trials if name in metrics] for name in COSTS}
        means = {name: mean_of(values, METRICS[name].unit) for name, values in measured.items() if values}
        return cost_of(means)

    @cached_property
    def values(self) -> Array:
        """The objective as measured, (blocks, settings); NaN for missing cells."""
        return self._of_cells(self.value)

    @cached_property
    def _held_up(self) -> Array:
        return self._of_cells(lambda result: result.held_up)

    def slack(self, scale: Scale) -> Array:
        """The gain that each trial may have lost to disturbance, on the comparison's scale, (blocks, settings); NaN for
        missing cells."""
        return slack_of(self._held_up, self.values, scale)

    def blur(self, scale: Scale) -> Array:
        """How far each trial's value may lie from the truth on either side, since the load's clock is coarse, on the
        comparison's scale, (blocks, settings); NaN for missing cells."""
        return scale.blur(self.values, kind_of(self._experiment).clock_error(self.metric))

    def _of_cells(self, figure: Callable[[TrialResult], float]) -> Array:
        """A figure of each trial, (blocks, settings); NaN for missing cells."""
        figures = np.full((len(self.blocks), len(self.settings)), np.nan)
        rows = {block: row for row, block in enumerate(self.blocks)}
        columns = {setting: column for column, setting in enumerate(self.settings)}
        for (setting, block), result in self._cells.items():
            figures[rows[block], columns[setting]] = figure(result)
        figures.setflags(write=False)  # kept for all contests over the table
        return figures


def slack_of(held_up: Array, values: Array, scale: Scale) -> Array:
    """The room above each value, on the scale: a trial that was held up for the share `held_up` of its time may serve
    up to `values / (1 - held_up)` when nothing disturbs it (docs/methods/disturbance.md)."""
    most = 1 / (1 - held_up)
    return np.asarray(np.log(most) if scale.log else np.abs(values) * (most - 1))


def scale_of(table: ResponseTable) -> Scale:
    """The scale on which the objective's values are compared: ratios where noise is proportional, else differences."""
    values = table.values
    return Scale.of(list(values[~np.isnan(values)]), METRICS[table.metric].unit)


@dataclass(frozen=True)
class Contest:
    """The leader, and how every other setting compares. `settings`: those with data. `leader`: None if none may lead.
    `sign`: -1.0 if less of the objective is better, else 1.0. `scale`: that of all differences. `leader_mean`: the mean
    of the leader's values as measured. `margin`, `confidence`: those of the objective. `difference`: setting less
    leader, larger is better: the middle of the interval. `half`, `half_tost`: half-widths, as in `LeaderComparison`.
    `shared`: the number of blocks that hold both. `shift`: how far that middle lies above the measured difference,
    since disturbance may have cost the setting more than the leader; 0 where it is absent. `left`: settings that were
    eliminated from the race. `endless`: settings whose figures are lower bounds: none can come out equivalent or
    better, and nothing can be compared with one that leads."""

    settings: tuple[Setting, ...]
    leader: Setting | None
    sign: float
    scale: Scale
    leader_mean: float
    margin: float
    confidence: float
    difference: Mapping[Setting, float]
    half: Mapping[Setting, float]
    half_tost: Mapping[Setting, float]
    shared: Mapping[Setting, int]
    shift: Mapping[Setting, float] = field(default_factory=dict)
    left: Mapping[Setting, Departure] = field(default_factory=dict)
    endless: frozenset[Setting] = frozenset()

    def verdict(self, setting: Setting) -> Verdict:
        """The verdict on a setting compared with the leader. Equivalence comes first: within the margin no difference
        matters, however certain."""
        if setting == self.leader:
            return Verdict.EQUIVALENT
        if self._left_as_worse(setting):
            return Verdict.WORSE
        difference, half = self.difference.get(setting, math.nan), self.half.get(setting, math.nan)
        if math.isnan(half) or self.leader in self.endless:
            return Verdict.INCONCLUSIVE
        has_end = setting not in self.endless
        if has_end and abs(difference) + self.half_tost[setting] <= self.allowed:
            return Verdict.EQUIVALENT
        if difference < -half:
            return Verdict.WORSE
        return Verdict.BETTER if has_end and difference > half else Verdict.INCONCLUSIVE

    def effect(self, setting: Setting) -> Estimate | None:
        """The ratio of the objective to the leader's; None if there is none, as with a leader at 0. For a setting that
        left a race as worse, the ratio to the setting that led then."""
        if self._left_as_worse(setting):
            return self.left[setting].effect
        if self.leader is None or setting not in self.difference:
            return None
        return self.ratio(setting, self.sign, self.leader_mean)

    def ratio(self, setting: Setting, sign: float, base: float) -> Estimate | None:
        """`sign` times the setting's measured difference, and its interval, as a ratio to a mean of `base`."""
        middle, half, n = self.difference[setting], self.half[setting], self.shared[setting]
        measured = middle - self.shift.get(setting, 0.0)
        values = self.scale.ratio(sign * measured, math.nan, base, self.confidence, n)
        ends = self.scale.ratio(sign * middle, half, base, self.confidence, n)
        return None if values is None or ends is None else replace(ends, value=values.value)

    def contenders(self) -> list[Setting]:
        """Settings that the intervals allow to be better than the leader by more than the margin, and those that are
        better for certain: the leader need not have the best mean if it alone certainly meets the constraints."""
        return [
            setting
            for setting in self.settings
            if setting != self.leader
            and setting not in self.left
            and setting in self.difference
            and self.verdict(setting) in (Verdict.INCONCLUSIVE, Verdict.BETTER)
            and self._may_be_better(setting)
        ]

    def _may_be_better(self, setting: Setting) -> bool:
        # A lower bound of a time may be compared in this direction: the setting is no better than that.
        return self.leader in self.endless or not self.difference[setting] + self.half_tost[setting] <= self.allowed

    def below(self, setting: Setting) -> bool:
        """True if the setting's whole interval lies below the leader by more than the margin."""
        end = self.difference.get(setting, math.nan) + self.half.get(setting, math.nan)
        return setting != self.leader and self.leader not in self.endless and end < -self.allowed

    def near(self, setting: Setting) -> bool:
        """True if the setting is worse than the leader, but perhaps by no more than the margin."""
        worse = self.verdict(setting) is Verdict.WORSE and not self._left_as_worse(setting)
        return worse and not self.below(setting)

    def _left_as_worse(self, setting: Setting) -> bool:
        return setting in self.left and self.left[setting].worse

    @property
    def allowed(self) -> float:
        """The margin on the scale of `difference`."""
        return self.scale.allowed(self.margin, self.leader_mean)


def hold_contest(
    experiment: Experiment,
    table: ResponseTable,
    scale: Scale,
    compliance: Mapping[Setting, Compliance],
    left: Mapping[Setting, Departure] | None = None,
    *,
    against: Setting | None = None,
    of_full: bool = False,
) -> Contest:
    """Compares all settings that have data. Those that certainly meet the constraints may lead; if there are none,
    those that were seen to meet them; of these, those whose figures are no lower bounds, if any, and never one that is
    bounded by lower percentiles. `left`: settings that left the race; none of these leads. `against`: a setting to
    compare with, whichever leads. `of_full`: True if it is to hold for full trials: where the table has short ones, the
    intervals are wider by `FAR`."""
    left = left or {}
    raw = table.values
    columns = [index for index in range(len(table.settings)) if raw.size and not np.isnan(raw[:, index]).all()]
    settings = tuple(table.settings[index] for index in columns)
    live = np.array([setting not in left for setting in settings], dtype=bool)
    measured = [setting for setting in settings if not table.is_bounded(setting)]
    certain = [compliance[setting].certain and setting in measured for setting in settings]
    seen = [compliance[setting].seen_to_meet and setting in measured for setting in settings]
    may_lead = np.array(certain, dtype=bool) & live
    if not may_lead.any():
        may_lead = np.array(seen, dtype=bool) & live
    if against is not None:
        may_lead = np.array([setting == against for setting in settings], dtype=bool)
    endless = frozenset(filter(table.is_endless, settings))
    with_end = np.array([setting not in endless for setting in settings], dtype=bool)
    if against is None and (may_lead & with_end).any():
        may_lead &= with_end
    objective = experiment.objective
    empty = Contest(
        settings,
        leader=None,
        sign=table.sign,
        scale=scale,
        leader_mean=0.0,
        margin=objective.margin,
        confidence=objective.confidence,
        difference={},
        half={},
        half_tost={},
        shared={},
        left=left,
        endless=endless,
    )
    if not may_lead.any():
        return empty
    values = raw[:, columns]
    glance = table.glance(int(live.sum()))
    scaled = table.sign * scale.scaled(values)
    if len(settings) == 1:
        zero, blocks = {settings[0]: 0.0}, {settings[0]: len(table.valid(settings[0]))}
        alone = replace(empty, leader=settings[0], leader_mean=float(np.nanmean(values)))
        return replace(alone, difference=zero, half=zero, half_tost=zero, shared=blocks)
    of_loads = settings if experiment.load_varies else settings[:1]
    windows_ns = [table.experiment_of(setting).load.duration_ns for setting in of_loads]
    least = _least(experiment, windows_ns, values, scale)
    if scale not in table.fits:
        table.fits[scale] = fit_of(scaled[None], least, scale.size(values))
    found = compare_with_leader(scaled[None], objective.confidence, may_lead, glance, least, fit=table.fits[scale])
    lead = int(found.leader[0])
    assert may_lead[lead], "a setting leads that may not"
    shared = (~np.isnan(scaled) & ~np.isnan(scaled[:, [lead]])).sum(0)
    single = np.nansum(scaled - scaled[:, [lead]], axis=0) / np.maximum(shared, 1)
    difference = np.where(shared == 1, single, found.difference[0])
    above, below = _room(table.slack(scale)[:, columns], lead)
    own, leaders = _room(table.blur(scale)[:, columns], lead)
    shift, room = (above - below) / 2, (above + below) / 2 + own + leaders
    leader_mean = float(np.nanmean(values[:, lead]))
    if of_full and table.screened:
        room -= np.where(np.arange(len(settings)) == lead, 0.0, scale.allowed(-FAR, leader_mean))
    return replace(
        empty,
        leader=settings[lead],
        leader_mean=leader_mean,
        difference=dict(zip(settings, map(float, difference + shift), strict=True)),
        shift=dict(zip(settings, map(float, shift), strict=True)),
        half=dict(zip(settings, map(float, found.half[0] + room), strict=True)),
        half_tost=dict(zip(settings, map(float, found.half_tost[0] + room), strict=True)),
        shared=dict(zip(settings, map(int, shared), strict=True)),
    )


def _room(slack: Array, lead: int) -> tuple[Array, Array]:
    """How far, undisturbed, each setting's difference to the leader may lie above and below the measured one, (k,)
    each: above by the mean room of its own trials, below by that of the leader's trials in the same blocks."""
    together = ~np.isnan(slack) & ~np.isnan(slack[:, [lead]])
    n = np.maximum(together.sum(0), 1)
    above = np.where(together, slack, 0.0).sum(0) / n
    below = np.where(together, slack[:, [lead]], 0.0).sum(0) / n
    above[lead] = below[lead] = 0.0
    return above, below


def _least(experiment: Experiment, windows_ns: Sequence[int], values: Array, scale: Scale) -> Array | None:
    """The least standard deviation of each setting, for a rate on the log scale: the counting error that the ends of
    the window leave, relative to the count. None for all else. `windows_ns`: one for each setting, or one for all."""
    if not scale.log or METRICS[experiment.objective.metric].unit != "per_s":
        return None
    counts = np.nanmean(values, axis=0) * np.array(windows_ns) / 1e9
    return np.asarray(EDGES / np.maximum(counts, 1.0))


def _judged(result: TrialResult) -> Mapping[str, float]:
    """The metrics that constraints are judged by; without unserved users for a short trial, in which a user who waits
    in line gets no answer."""
    if result.stage is not Stage.SCREEN:
        return result.metrics
    return {name: value for name, value in result.metrics.items() if name != UNSERVED}


def compliance_of(table: ResponseTable) -> dict[Setting, Compliance]:
    """Judges how each setting meets the constraints; one without valid trials says nothing of them, but for its failed
    starts. In a race each judgement spends its look's share of the error. Short trials show a setting to meet a
    constraint, and leave it open otherwise: they end before a slow server has answered all users."""
    trials = {setting: [_judged(result) for result in table.valid(setting)] for setting in table.settings}
    judged = sum(1 for metrics in trials.values() if metrics)
    alone = len(table.settings) == 1
    settings = 1 if alone else max(2, judged)

    def judged_by(setting: Setting, metrics: Sequence[Mapping[str, float]], starts: Starts | None) -> Compliance:
        return judge(table.experiment_of(setting), metrics, settings=settings, share=table.share, starts=starts)

    found = dict.fromkeys(table.settings, Compliance())
    for setting, metrics in trials.items():
        if table.has_only_short(setting):
            seen, by_starts = judged_by(setting, metrics, None), judged_by(setting, [], table.starts[setting])
            doubts = (f"{reason}, by short trials alone" for reason in seen.barred)
            unsure = (*doubts, *seen.open)
            found[setting] = replace(seen, missed=by_starts.missed, lapsed=by_starts.lapsed, open=unsure)
        elif metrics:
            kept = judged_by(setting, metrics, table.starts[setting])
            found[setting] = with_behind(table.experiment_of(setting), kept, table.valid(setting))
        elif table.starts[setting].failed:
            by_starts = judged_by(setting, [], table.starts[setting])
            found[setting] = Compliance(missed=by_starts.missed, lapsed=by_starts.lapsed)
    return {setting: _with_apart(table, setting, each) for setting, each in found.items()}


def _with_apart(table: ResponseTable, setting: Setting, found: Compliance) -> Compliance:
    """The judgement with the constraints that single starts broke in blocks that are not whole, where none may."""
    experiment = table.experiment_of(setting)
    if experiment.objective.allow_failed_starts:
        return found
    alone = (judge(experiment, [result.metrics], settings=1).barred for result in table.apart(setting))
    broken = dict.fromkeys(reason.partition(": ")[0] for reasons in alone for reason in reasons)
    lapsed = (f"{condition}: broken in a start of a round that was not over" for condition in broken)
    return replace(found, lapsed=(*found.lapsed, *lapsed))
