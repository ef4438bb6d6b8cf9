"""The response surface: each metric over any two parameters, the others held fixed. In: an Analysis. Out: a chart
description and its section as escaped text; templates/surface.js draws it and handles the choosers.

Cells are measured settings, with nothing between them: no fit is drawn. In a space too large to race whole, settings
that did not race are shown by their one exploration trial and marked accordingly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from powerband.loads.measured import is_lower_bound
from powerband.model.metrics import METRICS, metric_words
from powerband.model.plan import Level, Setting, Stage, format_level, numbers_of
from powerband.model.results import Analysis
from powerband.report.html.charts import Picture, distinct_levels, estimate_words
from powerband.report.html.figure_parts import boxed, chooser, table
from powerband.report.wording.names import level_words
from powerband.report.wording.numbers import ABSENT, format_measured, unit_scale
from powerband.report.wording.standings import MEASURES
from powerband.report.wording.words import mark_of

_MEASURES = ("goodput_per_s", "response_time_ns_p50", "response_time_ns_p99", "subject_cpu_cores", "rss_bytes_max")
_LEAST_MEASURED = 0.5  # of the grid of the first pair: changes one at a time form a cross, not a surface
_LEAST_CELLS = 4  # two levels of each: fewer are a line


@dataclass(frozen=True)
class SurfaceFactor:
    """A parameter, by its `name`. `labels`: its values as text. `answer`: index of the answer's value, or of the
    leader's if there is no answer."""

    name: str
    labels: tuple[str, ...]
    answer: int


@dataclass(frozen=True)
class SurfaceMeasure:
    """A metric that colours the cells. `title`: its name; `unit`: that of its values. `most`: True: more is better;
    None: neither direction is better."""

    title: str
    unit: str
    most: bool | None


@dataclass(frozen=True)
class SurfaceCell:
    """One `setting`, by its id. `at`: an index into the values of each parameter. `values`: one for each metric, in its
    unit, None if it was not measured; `texts`: the same as text; `at_least`: whether each is a lower bound. `standing`:
    answer, equal, other, not_allowed or look (tried once, before the race)."""

    at: tuple[int, ...]
    setting: str
    standing: str
    values: tuple[float | None, ...]
    texts: tuple[str, ...]
    at_least: tuple[bool, ...]


@dataclass(frozen=True)
class SurfaceChart(Picture):
    """The chart. `factors`: the parameters that vary. `measures`: the metrics to choose from. `cells`: the settings.
    `first`: the parameters across and up that are shown first, as indices."""

    factors: tuple[SurfaceFactor, ...]
    measures: tuple[SurfaceMeasure, ...]
    cells: tuple[SurfaceCell, ...]
    first: tuple[int, int]


def surface_chart(analysis: Analysis) -> SurfaceChart | None:
    """The chart; None unless at least two parameters vary, and for some two of them half of the grid was measured with
    the others held at the answer. Also None if parameters vary one at a time, which forms a cross, not a surface."""
    held = analysis.answer.setting or analysis.answer.leader
    settings = [*_tried(analysis)]
    if held is None or held not in settings or analysis.changes:
        return None
    varied = [
        (place, name, levels)
        for place, (name, _) in enumerate(held.levels)
        if len(levels := _levels(settings, place)) > 1
    ]
    if len(varied) < 2:
        return None
    factors = tuple(
        SurfaceFactor(name, tuple(map(level_words, levels)), _index(held.levels[place][1], levels))
        for place, name, levels in varied
    )
    measures = _measures(analysis)
    scales = [_scale(metric, analysis) for metric in measures]
    cells = tuple(_cells(analysis, varied, measures, [scale for scale, _ in scales]))
    first = _first(factors, cells)
    if first is None:
        return None
    kinds = tuple(
        SurfaceMeasure(MEASURES.get(metric, metric_words(metric)), unit, _better(metric, analysis))
        for metric, (_, unit) in zip(measures, scales, strict=True)
    )
    note = "Each cell is a setting that was measured; the stronger its colour, the better."
    return SurfaceChart("surface", "surface", "Response surface", note, factors, kinds, cells, first)


def surface_section(chart: SurfaceChart | None) -> str:
    """The choosers, the chart and its numbers; empty if there is no chart."""
    if chart is None:
        return ""
    several = len(chart.factors) > 2
    lead = "Two parameters at once: how each measure changes with both."
    if several:
        lead += " Choose which two; the others keep the answer’s values until you choose others."
    choosers = chooser("surface-measure", "Colour", [measure.title for measure in chart.measures], 0)
    if several:
        names = [factor.name for factor in chart.factors]
        choosers += chooser("surface-across", "Across", names, chart.first[0])
        choosers += chooser("surface-up", "Up", names, chart.first[1])
        for place, factor in enumerate(chart.factors):
            choosers += chooser(f"surface-held-{place}", factor.name, factor.labels, factor.answer, kind="held")
    key = (
        '<p class="key standing"><span><i class="cell best"></i>the answer</span>'
        '<span><i class="cell equal"></i>equivalent</span>'
        '<span><i class="cell barred"></i>violates the SLO</span>'
        + (
            '<span><i class="cell look"></i>tried once</span>'
            if any(cell.standing == "look" for cell in chart.cells)
            else ""
        )
        + "</p>"
    )
    heads = ["setting", *(measure.title for measure in chart.measures), ""]
    words = {"answer": "the answer", "equal": "equivalent", "not_allowed": "violates the SLO", "look": "tried once"}
    rows = [(cell.setting, *cell.texts, words.get(cell.standing, "")) for cell in chart.cells]
    spoken = (
        f"Chart: a map of {chart.measures[0].title} over {chart.factors[chart.first[0]].name} and "
        f"{chart.factors[chart.first[1]].name}. The values are in the table below."
    )
    # Tall enough for the parameter with the most values.
    height = max(16.0, 7.0 + 2.4 * max(len(factor.labels) for factor in chart.factors))
    figure = boxed(
        chart,
        spoken,
        table(heads, rows),
        height_rem=min(height, 40.0),
        controls=f'<div class="choosers no-print">{choosers}</div>{key}',
    )
    return f'<p class="lead">{lead}</p>{figure}'


def _tried(analysis: Analysis) -> Iterator[Setting]:
    """The compared settings, then those that were only explored."""
    compared = dict.fromkeys(row.setting for row in analysis.settings)
    yield from compared
    looks = dict.fromkeys(t.setting for t in analysis.trials if t.stage is Stage.EXPLORE and t.valid)
    yield from (setting for setting in looks if setting not in compared)


def _levels(settings: Sequence[Setting], place: int) -> list[Level]:
    """The values of a parameter: numbers in rising order, anything else in the order of the plan."""
    found = distinct_levels(settings, place)
    return found if numbers_of(found) is None else sorted(found, key=float)


def _index(level: Level, levels: Sequence[Level]) -> int:
    return list(map(format_level, levels)).index(format_level(level))


def _measures(analysis: Analysis) -> tuple[str, ...]:
    wanted = dict.fromkeys((analysis.objective, *_MEASURES))
    return tuple(metric for metric in wanted if any(metric in row.shown for row in analysis.settings))


def _better(metric: str, analysis: Analysis) -> bool | None:
    if metric == analysis.objective:
        return analysis.direction == "maximise"
    return metric == "goodput_per_s"


def _scale(metric: str, analysis: Analysis) -> tuple[float, str]:
    values = [abs(row.shown[metric].value) for row in analysis.settings if metric in row.shown]
    return unit_scale(max(values), METRICS[metric].unit)


def _cells(
    analysis: Analysis,
    varied: Sequence[tuple[int, str, Sequence[Level]]],
    measures: Sequence[str],
    scales: Sequence[float],
) -> Iterator[SurfaceCell]:
    def at(setting: Setting) -> tuple[int, ...]:
        return tuple(_index(setting.levels[place][1], levels) for place, _, levels in varied)

    compared = set()
    for row in analysis.settings:
        compared.add(row.setting)
        found = [row.shown.get(metric) for metric in measures]
        if any(found):
            values = [None if e is None else e.value / scale for e, scale in zip(found, scales, strict=True)]
            texts = [estimate_words(e, metric) if e else ABSENT for e, metric in zip(found, measures, strict=True)]
            standing = mark_of(row.setting, analysis) if row.feasible else "not_allowed"
            bounds = tuple(e is not None and e.at_least for e in found)
            yield SurfaceCell(at(row.setting), row.setting.id, standing, tuple(values), tuple(texts), bounds)
    for trial in analysis.trials:
        if trial.stage is Stage.EXPLORE and trial.valid and trial.setting not in compared:
            compared.add(trial.setting)
            seen = [trial.metrics.get(metric) for metric in measures]
            values = [None if v is None else v / scale for v, scale in zip(seen, scales, strict=True)]
            texts = [format_measured(m, trial.metrics) if m in trial.metrics else ABSENT for m in measures]
            bounds = tuple(m in trial.metrics and is_lower_bound(m, trial.metrics) for m in measures)
            yield SurfaceCell(at(trial.setting), trial.setting.id, "look", tuple(values), tuple(texts), bounds)


def _first(factors: Sequence[SurfaceFactor], cells: Sequence[SurfaceCell]) -> tuple[int, int] | None:
    """The pair with most cells measured while the others are held; the parameter with more values lies across."""
    counted = []
    for a, b in combinations(range(len(factors)), 2):
        held = [place for place in range(len(factors)) if place not in (a, b)]
        here = sum(all(cell.at[place] == factors[place].answer for place in held) for cell in cells)
        counted.append((here, (a, b)))
    most, (a, b) = max(counted, key=lambda pair: pair[0])
    if most < max(_LEAST_CELLS, _LEAST_MEASURED * len(factors[a].labels) * len(factors[b].labels)):
        return None
    return (a, b) if len(factors[a].labels) >= len(factors[b].labels) else (b, a)
