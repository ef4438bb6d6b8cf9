"""Draws a metric of every setting as a figure of matplotlib, which is imported only here.

In: an Analysis. Out: a figure that a notebook displays by itself, without pyplot and its windows; nothing is computed
but the change of unit. Texts from outside are never interpreted as formulas."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from powerband.base.errors import UsageError
from powerband.model.metrics import Metric, metric_named, metric_words
from powerband.model.plan import format_level, numbers_of
from powerband.model.results import Analysis, Estimate, SettingResult
from powerband.report.wording.numbers import unit_scale
from powerband.report.wording.words import short_id

LINES_MAX = 8  # arbitrary: more lines cannot be told apart by their colours
_LOG_FROM = 8  # values that differ by this factor are spaced evenly on a log scale
_NAME_MAX = 32  # letters in a line: arbitrary, a quarter of the figure
_READABLE = FuncFormatter(lambda x, _: f"{x:,.0f}" if abs(x) >= 1000 else f"{x:.4g}")
_SUFFIX = {"/s": "per second", "": ""}


class NotebookFigure(Figure):
    """A figure that notebooks display as a PNG image."""

    def _repr_png_(self) -> bytes:
        out = io.BytesIO()
        self.savefig(out, format="png", dpi=120)
        return out.getvalue()


def metric_figure(analysis: Analysis, name: str) -> Figure:
    """The figure of a metric: points with intervals across the factor with the most numeric levels, and a line for each
    combination of the other factors; if there is no such factor, a row for each setting. Raises UsageError for an
    unknown metric, or if no setting has it."""
    try:
        metric = metric_named(name)
    except ValueError as error:
        raise UsageError(str(error)) from None
    rows = [(row, row.shown[metric.name]) for row in analysis.settings if metric.name in row.shown]
    if not rows:
        raise UsageError(f"no setting has a valid trial that measured {metric.name}")
    scale, suffix = unit_scale(max((abs(found.value) for _, found in rows), default=0.0), metric.unit)
    points = [_point(row, found, scale, analysis) for row, found in rows]
    across = _across(analysis)
    figure = NotebookFigure(figsize=_size(points, across), layout="constrained")
    axes = figure.subplots()
    label = _label(metric, suffix)
    if across is None:
        _as_rows(axes, points)
        axes.set_xlabel(label)
    else:
        _as_lines(axes, points, across)
        axes.set_ylabel(label)
    axes.set_title(_plain(analysis.question or analysis.name), fontsize="medium", wrap=True)
    axes.grid(visible=True, alpha=0.25)
    return figure


def _size(points: Sequence[_Point], across: str | None) -> tuple[float, float]:
    """The size in inches; with a row for each setting, tall enough for the names."""
    lines = sum(1 + _row_name(point).count("\n") for point in points)
    return (7.2, 4.2) if across is not None else (7.2, min(40.0, 1.4 + 0.22 * lines + 0.1 * len(points)))


@dataclass(frozen=True)
class _Point:
    """The point of one setting, in the displayed unit. `below`, `above`: the lengths of the interval to each side, 0
    without an interval; `at_least`: the value is a lower bound; `chosen`: it is the answer's setting."""

    of: SettingResult
    name: str
    value: float
    below: float
    above: float
    at_least: bool
    chosen: bool


def _point(row: SettingResult, found: Estimate, scale: float, analysis: Analysis) -> _Point:
    low, high = (found.value, found.value) if found.at_least else found.ends  # of a lower bound none is known
    return _Point(
        of=row,
        name=short_id(row.setting, analysis),
        value=found.value / scale,
        below=max(0.0, found.value - low) / scale,
        above=max(0.0, high - found.value) / scale,
        at_least=found.at_least,
        chosen=row.setting == analysis.answer.setting,
    )


def _across(analysis: Analysis) -> str | None:
    """The factor of the axis; None if no factor has two numeric levels, or if there would be too many lines."""
    if analysis.changes:  # each factor varies alone: there are no combinations
        return None
    levels: dict[str, set[Any]] = {}
    for row in analysis.settings:
        for name, level in row.setting.levels:
            levels.setdefault(name, set()).add(level)
    numbers = [name for name, found in levels.items() if len(found) > 1 and numbers_of(found) is not None]
    chosen = max(numbers, key=lambda name: len(levels[name]), default=None)
    lines = math.prod(len(found) for name, found in levels.items() if name != chosen)
    return chosen if lines <= LINES_MAX else None


def _as_lines(axes: Axes, points: Sequence[_Point], across: str) -> None:
    lines: dict[str, list[tuple[float, _Point]]] = {}
    shown: dict[float, str] = {}
    for point in points:
        levels = point.of.setting.as_dict()
        rest = ", ".join(f"{name}={format_level(level)}" for name, level in levels.items() if name != across)
        level = levels[across]
        lines.setdefault(rest, []).append((float(level), point))
        shown[float(level)] = format_level(level)
    for name, found in lines.items():
        found.sort(key=lambda each: each[0])
        _draw(axes, [at for at, _ in found], [point for _, point in found], name)
    _mark_bounds(axes, [(x, each.value) for found in lines.values() for x, each in found if each.at_least])
    at = sorted(shown)
    if at[0] > 0 and at[-1] / at[0] >= _LOG_FROM:
        axes.set_xscale("log", base=2)
    axes.set_xticks(at, [shown[x] for x in at])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(_READABLE)
    axes.set_xlabel(_plain(across))
    if all(point.value >= 0 for point in points):
        axes.set_ylim(bottom=0)
    axes.legend(frameon=False)


def _draw(axes: Axes, at: Sequence[float], points: Sequence[_Point], name: str) -> None:
    bars = [[point.below for point in points], [point.above for point in points]]
    values = [point.value for point in points]
    line = axes.errorbar(at, values, yerr=bars, fmt="o-", capsize=3, markersize=4, label=_plain(name) or "estimate")
    for x, point in zip(at, points, strict=True):
        if point.chosen:
            axes.plot([x], [point.value], "*", markersize=14, color=line.lines[0].get_color(), label="the answer")


def _mark_bounds(axes: Axes, places: Sequence[tuple[float, float]]) -> None:
    """Puts a triangle around the point at each of these places, which are lower bounds."""
    if places:
        at, values = zip(*places, strict=True)
        axes.plot(at, values, "^", markersize=10, color="0.4", fillstyle="none", label="a lower bound")


def _as_rows(axes: Axes, points: Sequence[_Point]) -> None:
    places = list(range(len(points)))
    bars = [[point.below for point in points], [point.above for point in points]]
    axes.errorbar([point.value for point in points], places, xerr=bars, fmt="o", capsize=3, markersize=4)
    for place, point in zip(places, points, strict=True):
        if point.chosen:
            axes.plot([point.value], [place], "*", markersize=14, color="C0", label="the answer")
    _mark_bounds(axes, [(point.value, place) for place, point in zip(places, points, strict=True) if point.at_least])
    if axes.get_legend_handles_labels()[1]:
        axes.legend(frameon=False)
    axes.set_yticks(places, [_plain(_row_name(point)) for point in points], fontsize="small")
    axes.set_ylim(len(points) - 0.4, -0.6)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(_READABLE)


def _row_name(point: _Point) -> str:
    """The setting, in lines short enough to leave room for the figure."""
    lines = [""]
    for part in point.name.split(","):
        if lines[-1] and len(lines[-1]) + len(part) >= _NAME_MAX:
            lines.append("")
        lines[-1] += f"{',' if lines[-1] else ''}{part}"
    return "\n".join(lines)


def _label(metric: Metric, suffix: str) -> str:
    unit = _SUFFIX.get(suffix, suffix)
    return f"{metric_words(metric.name)}{f' ({unit})' if unit else ''}"


def _plain(text: str) -> str:
    return text.replace("$", r"\$")
