"""Weighs what a setting buys against what it costs: throughput, tail, CPU and memory side by side, and which settings
no other beats in all of them (Pareto's front, as Kung, Luccio & Preparata 1975 define the maxima of a set of vectors).

In: a finished `Analysis`. Out: values for a picture and a table. Not here: which setting to use, which is the answer's
to say. Method and limits: docs/methods/trade-offs.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from powerband.model.plan import Setting, Stage
from powerband.model.results import Analysis, Estimate, SettingResult

CAPACITY, GOODPUT, TAIL = "capacity_per_s", "goodput_per_s", "response_time_ns_p99"
CPU_EACH, CPU, MEMORY = "subject_cpu_ns_per_request", "subject_cpu_cores", "rss_bytes_max"


class TradeOffStanding(StrEnum):
    """The standing of a setting among all that may be used, over all measures together."""

    UNBEATEN = "unbeaten"  # no other setting is as good or better in all measures
    CLOSE = "close"  # one is, as measured, but in no measure do their intervals lie apart
    BEATEN = "beaten"  # one is, and in at least one measure it is better for certain
    NOT_ALLOWED = "not_allowed"  # it breaks a constraint, and takes no part


@dataclass(frozen=True)
class TradeOffMeasure:
    """One `metric` that settings are compared by. `most`: True if more of it is better."""

    metric: str
    most: bool


@dataclass(frozen=True)
class TradeOff:
    """One `setting`. `standing`: how it compares with the others over all measures. `beaten_by`: a setting that is as
    good or better in all measures, itself unbeaten; None if there is none."""

    setting: Setting
    estimates: tuple[Estimate, ...]  # by measure
    standing: TradeOffStanding
    beaten_by: Setting | None = None


@dataclass(frozen=True)
class TradeOffs:
    """All settings weighed. `measures`: in the order of each row's estimates. `rows`: the settings of which every
    measure is known, in plan order, without those that have short trials alone, unless all have. `fronts`: for each
    pair of measures (by index, the first below the second) the settings that no other beats in these two, by the first
    measure rising."""

    measures: tuple[TradeOffMeasure, ...]
    rows: tuple[TradeOff, ...]
    fronts: Mapping[tuple[int, int], tuple[Setting, ...]]


def trade_offs(analysis: Analysis) -> TradeOffs | None:
    """The trade-offs of an analysis; None if it has fewer than two settings, or fewer than two measures, to weigh."""
    measures = _measures(analysis)
    known = [row for row in analysis.settings if row.trials and all(m.metric in row.shown for m in measures)]
    short = _only_short(analysis)
    known = [row for row in known if row.setting not in short] or known
    if len(measures) < 2 or len(known) < 2:
        return None
    field = [row for row in known if row.feasible]
    rows = tuple(_weigh(row, field, measures) for row in known)
    pairs = [(a, b) for b in range(len(measures)) for a in range(b)]
    fronts = {(a, b): _front(field, (measures[a], measures[b])) for a, b in pairs}
    return TradeOffs(measures, rows, fronts)


def _only_short(analysis: Analysis) -> set[Setting]:
    """The settings whose trials that count are short ones alone: their memory, CPU and p99 are not comparable with
    those of full trials."""
    half = analysis.race.half if analysis.race is not None else ()
    counted = [trial for trial in analysis.trials if trial.valid and trial.block not in half]
    short, full = ({each.setting for each in counted if each.stage is of} for of in (Stage.SCREEN, Stage.COMPARE))
    return short - full


def _measures(analysis: Analysis) -> tuple[TradeOffMeasure, ...]:
    """The measures that at least two settings have. CPU is that of a request: a setting that serves little also uses
    few cores, and by cores it would never be beaten. The objective stands first if it is none of these. In a capacity
    search the tail is none: p99s at different rates say nothing of each other."""
    searched = analysis.objective == CAPACITY
    wanted = [
        TradeOffMeasure(CAPACITY if searched else GOODPUT, most=True),
        *(() if searched else (TradeOffMeasure(TAIL, most=False),)),
        TradeOffMeasure(CPU_EACH if _is_measured(CPU_EACH, analysis) else CPU, most=False),
        TradeOffMeasure(MEMORY, most=False),
    ]
    if analysis.objective not in {measure.metric for measure in wanted}:
        wanted.insert(0, TradeOffMeasure(analysis.objective, most=analysis.direction == "maximise"))
    return tuple(measure for measure in wanted if _is_measured(measure.metric, analysis))


def _is_measured(metric: str, analysis: Analysis) -> bool:
    return sum(metric in row.shown for row in analysis.settings) > 1


def _weigh(row: SettingResult, field: Sequence[SettingResult], measures: Sequence[TradeOffMeasure]) -> TradeOff:
    estimates = tuple(row.estimates[measure.metric] for measure in measures)
    if not row.feasible:
        return TradeOff(row.setting, estimates, TradeOffStanding.NOT_ALLOWED)
    better = [other for other in field if _beats(other, row, measures)]
    if not better:
        return TradeOff(row.setting, estimates, TradeOffStanding.UNBEATEN)
    # The one that is beaten by none of these is beaten by none at all, since beating is transitive.
    best = next(one for one in better if not any(_beats(other, one, measures) for other in better))
    sure = any(_apart(other, row, measure) for other in better for measure in measures)
    return TradeOff(row.setting, estimates, TradeOffStanding.BEATEN if sure else TradeOffStanding.CLOSE, best.setting)


def _beats(one: SettingResult, other: SettingResult, measures: Sequence[TradeOffMeasure]) -> bool:
    """True if one is as good or better in all measures, and better in one, by the estimates."""
    gains = [_gain(one, other, measure) for measure in measures]
    return min(gains) >= 0 and max(gains) > 0


def _gain(one: SettingResult, other: SettingResult, measure: TradeOffMeasure) -> float:
    """How much better the first is; below 0 where it is worse. A time that is only a lower bound is the longest."""
    found = (row.estimates[measure.metric] for row in (one, other))
    first, second = (math.inf if each.at_least else each.value for each in found)
    ahead = 0.0 if first == second else first - second
    return ahead if measure.most else -ahead


def _apart(one: SettingResult, other: SettingResult, measure: TradeOffMeasure) -> bool:
    """True if the whole interval of the first is better than that of the other. A lower bound may lie anywhere above
    its interval."""
    better, worse = one.estimates[measure.metric], other.estimates[measure.metric]
    if (worse if measure.most else better).at_least:
        return False
    if better.low is None or better.high is None or worse.low is None or worse.high is None:
        return False
    return better.low > worse.high if measure.most else better.high < worse.low


def _front(field: Sequence[SettingResult], pair: tuple[TradeOffMeasure, TradeOffMeasure]) -> tuple[Setting, ...]:
    front = [row for row in field if not any(_beats(other, row, pair) for other in field)]
    return tuple(row.setting for row in sorted(front, key=lambda row: row.estimates[pair[0].metric].value))
