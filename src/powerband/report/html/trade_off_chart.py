"""Throughput, tail, CPU and memory against each other, with the settings that no other beats in all of them. In: the
result of `analyze.trade_offs`. Out: a chart description and its section as escaped text; templates/surface.js draws
it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from powerband.analyze.settings.trade_offs import CPU_EACH, TradeOff, TradeOffMeasure, TradeOffStanding, trade_offs
from powerband.base.units import capital, joined
from powerband.model.metrics import METRICS
from powerband.model.results import Analysis, Estimate
from powerband.report.html.charts import BOUNDS, LOG_VALUE_RATIO, Picture, estimate_words, whiskers
from powerband.report.html.figure_parts import boxed, chooser, table
from powerband.report.wording.names import short_names
from powerband.report.wording.numbers import unit_scale
from powerband.report.wording.standings import MEASURES, metric_name
from powerband.report.wording.words import mark_of

_NAMES = {**MEASURES, "response_time_ns_p99": "response time p99"}


@dataclass(frozen=True)
class TradeOffAxis:
    """One axis: a metric, with its name (`title`) and `unit`. `most`: more is better. `log`: logarithmic, since the
    values are far apart."""

    title: str
    unit: str
    most: bool
    log: bool


@dataclass(frozen=True)
class TradeOffPoint:
    """One `setting`, by its id. `values`, `lows`, `highs`: its value and interval on each axis, in the axis's unit;
    None: no interval. `at_least`: whether each value is a lower bound. `texts`: the same as text. `words`: the
    standing, as the table says it. `label`: a short name; `standing`: a `TradeOffStanding`; `mark`: answer, equal or
    other."""

    setting: str
    label: str
    standing: str
    mark: str
    words: str
    values: tuple[float, ...]
    lows: tuple[float | None, ...]
    highs: tuple[float | None, ...]
    at_least: tuple[bool, ...]
    texts: tuple[str, ...]


@dataclass(frozen=True)
class TradeOffFront:
    """The Pareto front of two axes (`pair`, the first below the second). `points`: indices of the points that no other
    beats in both, in order."""

    pair: tuple[int, int]
    points: tuple[int, ...]


@dataclass(frozen=True)
class TradeOffChart(Picture):
    """The chart. `axes`: the metrics to choose two from. `points`: the settings. `fronts`: one for each pair of
    axes."""

    axes: tuple[TradeOffAxis, ...]
    points: tuple[TradeOffPoint, ...]
    fronts: tuple[TradeOffFront, ...]


def trade_off_chart(analysis: Analysis) -> TradeOffChart | None:
    """The chart; None if there is nothing to trade off."""
    found = trade_offs(analysis)
    if found is None:
        return None
    scales = [
        unit_scale(max(abs(row.estimates[place].value) for row in found.rows), METRICS[measure.metric].unit)
        for place, measure in enumerate(found.measures)
    ]
    axes = tuple(
        TradeOffAxis(
            _name(measure, analysis), unit, measure.most, _wide([row.estimates[place].value for row in found.rows])
        )
        for place, (measure, (_, unit)) in enumerate(zip(found.measures, scales, strict=True))
    )
    short = short_names(analysis)
    points = tuple(
        _point(row, found.measures, [scale for scale, _ in scales], short.row(row.setting), analysis)
        for row in found.rows
    )
    place = {row.setting: index for index, row in enumerate(found.rows)}
    fronts = tuple(
        TradeOffFront(pair, tuple(place[setting] for setting in front)) for pair, front in found.fronts.items()
    )
    note = "Filled: unbeaten in all of these together. The line joins those that none beats in the two shown."
    drawn = (point for point in points if point.standing != TradeOffStanding.NOT_ALLOWED)
    note += (BOUNDS if any(any(point.at_least) for point in drawn) else "") + short.note
    return TradeOffChart("trade-offs", "trade_offs", "Trade-offs", note, axes, points, fronts)


def trade_off_section(chart: TradeOffChart | None) -> str:
    """The choosers, the chart and its numbers; empty if there is no chart."""
    if chart is None:
        return ""
    names = [axis.title for axis in chart.axes]
    front = [point for point in chart.points if point.standing == TradeOffStanding.UNBEATEN]
    unbeaten = [point.setting for point in front]
    if len("".join(unbeaten)) > _LONG_NAMES:
        unbeaten = [point.label for point in front]
    which = f"{joined(names)}: " + (
        f"no other setting beats {joined(unbeaten)} in all of them."
        if 0 < len(unbeaten) <= _NAMED_MAX
        else f"{len(unbeaten)} of {len(chart.points)} settings are beaten by no other in all of them."
    )
    lead = (
        f"{capital(which)} A beaten setting is worse in one measure and better in none. Choosing among the unbeaten is "
        "a trade-off; the answer above uses the objective alone."
    )
    choosers = chooser("trade-offs-across", "Across", names, min(1, len(names) - 1))
    choosers += chooser("trade-offs-up", "Up", names, 0)
    barred = any(point.standing == TradeOffStanding.NOT_ALLOWED for point in chart.points)
    key = (
        '<p class="key standing"><span><i class="dot full"></i>unbeaten</span>'
        '<span><i class="dot open"></i>beaten, but not for certain</span>'
        '<span><i class="dot pale"></i>beaten</span>'
        + ('<span><i class="dot cross">×</i>violates the SLO</span>' if barred else "")
        + '<span><i class="dot ring"></i>the answer</span><span><i class="dot ring thin"></i>equivalent</span></p>'
    )
    heads = ["setting", *names, "in all of them"]
    rows = [(point.setting, *point.texts, point.words) for point in chart.points]
    told = "; ".join(f"{point.setting} {', '.join(point.texts)}" for point in chart.points[:12])
    spoken = f"Chart: {names[0]} against {names[min(1, len(names) - 1)]}. {told}. The values are in the table below."
    figure = boxed(
        chart,
        spoken,
        table(heads, rows),
        height_rem=26.0,
        controls=f'<div class="choosers no-print">{choosers}</div>{key}',
    )
    return f'<p class="lead">{escape(lead)}</p>{figure}'


_NAMED_MAX = 4  # arbitrary: more names would cover the points
_LONG_NAMES = 100  # characters in all names together from which the text uses short names
_WORDS = {
    TradeOffStanding.UNBEATEN: "unbeaten",
    TradeOffStanding.CLOSE: "beaten by {}, but not for certain",
    TradeOffStanding.BEATEN: "beaten by {}",
    TradeOffStanding.NOT_ALLOWED: "violates the SLO",
}


def _point(
    row: TradeOff, measures: Sequence[TradeOffMeasure], scales: Sequence[float], label: str, analysis: Analysis
) -> TradeOffPoint:
    pairs: list[tuple[Estimate, float]] = list(zip(row.estimates, scales, strict=True))
    return TradeOffPoint(
        setting=row.setting.id,
        label=label,
        standing=row.standing,
        mark=mark_of(row.setting, analysis),
        words=_WORDS[row.standing].format("" if row.beaten_by is None else row.beaten_by.id),
        values=tuple(estimate.value / scale for estimate, scale in pairs),
        lows=tuple(whiskers(estimate, scale)[0] for estimate, scale in pairs),
        highs=tuple(whiskers(estimate, scale)[1] for estimate, scale in pairs),
        at_least=tuple(estimate.at_least for estimate in row.estimates),
        texts=tuple(
            estimate_words(estimate, measure.metric).rpartition(",")[0]
            for estimate, measure in zip(row.estimates, measures, strict=True)
        ),
    )


def _name(measure: TradeOffMeasure, analysis: Analysis) -> str:
    if measure.metric == CPU_EACH:
        return f"CPU per {analysis.noun}"
    return _NAMES.get(measure.metric, metric_name(measure.metric))


def _wide(values: Sequence[float]) -> bool:
    return min(values) > 0 and max(values) / min(values) >= LOG_VALUE_RATIO
