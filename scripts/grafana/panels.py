"""The parts of a dashboard, and their form in Grafana: values in, Grafana's JSON out.

Every dashboard has the variables datasource, run and setting. Not here: what is shown (`bench.py`, `subjects.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders.common import (
    ReduceDataOptions,
    ScaleDistributionConfig,
    StackingConfig,
    VizLegendOptions,
    VizTooltipOptions,
)
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.builders.stat import Panel as StatPanel
from grafana_foundation_sdk.builders.statetimeline import Panel as StateTimelinePanel
from grafana_foundation_sdk.builders.table import Panel as TablePanel
from grafana_foundation_sdk.builders.timeseries import Panel as TimeSeriesPanel
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common, dashboard, prometheus

TAG = "powerband"
COLUMNS = 24
OF_INTERVALS_ALONE = (
    "auto",
    "auto_count",
    "auto_min",
)  # the SDK writes them for every variable
DATASOURCE = dashboard.DataSourceRef(type_val="prometheus", uid="${datasource}")
SELECTED = 'run="$run",setting=~"$setting"'


@dataclass(frozen=True)
class Query:
    expr: str
    legend: str


@dataclass(frozen=True)
class Panel:
    """A panel. `kind`: lines over time, the newest value, bars for the times with a value, or a table with a row for
    each `row` and a column for each `column` (labels). `unit`: one of Grafana's."""

    title: str
    queries: tuple[Query, ...]
    unit: str = "short"
    about: str = ""
    kind: str = "lines"
    width: int = 8
    height: int = 8
    stacked: bool = False
    logarithmic: bool = False
    names: bool = False  # for `kind` newest: show the series' name instead of its value
    row: str = ""
    column: str = ""


@dataclass(frozen=True)
class Section:
    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Dashboard:
    """A dashboard. `known_by`: a metric by which the runs that the dashboard is for are recognised."""

    name: str
    title: str
    about: str
    known_by: str
    sections: tuple[Section, ...]


def now(metric: str, by: str = "setting", matchers: str = "") -> str:
    """The query of a gauge for the selected settings. One trial runs at a time, so the sum over trials is its value."""
    return f"sum by ({by}) ({_selected(metric, matchers)})"


def most(metric: str, by: str = "setting") -> str:
    """The query of a gauge that has several series, of which the largest counts."""
    return f"max by ({by}) ({_selected(metric, '')})"


def per_second(metric: str, by: str = "setting", matchers: str = "") -> str:
    """The query of the rate of a counter for the selected settings."""
    return f"sum by ({by}) (rate({_selected(metric, matchers)}[$__rate_interval]))"


def _selected(metric: str, matchers: str) -> str:
    return f"{metric}{{{','.join(filter(None, (SELECTED, matchers)))}}}"


def to_json(made: Dashboard) -> str:
    """The whole text of the dashboard's file."""
    builder = (
        builders.Dashboard(made.title)
        .uid(f"powerband-{made.name}")
        .description(made.about)
        .tags([TAG])
        .timezone("browser")
        .tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
        .time("now-15m", "now")
        .refresh("5s")
        .variables(list(_variables(made.known_by)))
        .link(_other_dashboards())
    )
    number = 0
    for section in made.sections:
        number += 1
        builder = builder.with_row(builders.Row(section.title).id(number))
        for panel in section.panels:
            number += 1
            builder = builder.with_panel(_built(panel).id(number))
    written = json.loads(JSONEncoder().encode(builder.build()))
    for variable in written["templating"]["list"]:
        for key in OF_INTERVALS_ALONE:
            variable.pop(key, None)
    return json.dumps(written, indent=2, sort_keys=True) + "\n"


def _variables(known_by: str) -> Iterator[Any]:
    yield builders.DatasourceVariable("datasource").label("Data source").type("prometheus")
    yield (
        builders.QueryVariable("run")
        .label("Run")
        .description("A run directory; the newest is the first")
        .datasource(DATASOURCE)
        .query(f"label_values({known_by}, run)")
        .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(dashboard.VariableSort.ALPHABETICAL_DESC)
    )
    yield (
        builders.QueryVariable("setting")
        .label("Setting")
        .datasource(DATASOURCE)
        .query('label_values(powerband_trial_phase{run="$run"}, setting)')
        .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(dashboard.VariableSort.NATURAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(dashboard.VariableOption(selected=True, text=["All"], value=["$__all"]))
    )


def _other_dashboards() -> builders.DashboardLink:
    return (
        builders.DashboardLink("powerband")
        .type(dashboard.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .as_dropdown(True)
        .include_vars(True)
        .keep_time(True)
    )


def _built(panel: Panel) -> Any:
    makers = {"lines": _lines, "newest": _newest, "spans": _spans, "table": _table}
    builder = makers[panel.kind](panel)
    builder = builder.title(panel.title).datasource(DATASOURCE).unit(panel.unit).span(panel.width).height(panel.height)
    if panel.about:
        builder = builder.description(panel.about)
    for index, query in enumerate(panel.queries):
        builder = builder.with_target(_target(query, "ABCDEFGHIJ"[index], panel.kind))
    return builder


def _target(query: Query, ref: str, kind: str) -> Dataquery:
    target = (
        Dataquery()
        .expr(query.expr)
        .legend_format(query.legend)
        .ref_id(ref)
        .editor_mode(prometheus.QueryEditorMode.CODE)
    )
    if kind == "table":
        return target.instant().format(prometheus.PromQueryFormat.TABLE)
    return (target.instant() if kind == "newest" else target.range()).format(prometheus.PromQueryFormat.TIME_SERIES)


def _lines(panel: Panel) -> TimeSeriesPanel:
    builder = (
        TimeSeriesPanel()
        .show_points(common.VisibilityMode.NEVER)
        .fill_opacity(30 if panel.stacked else 0)
        .legend(
            VizLegendOptions()
            .display_mode(common.LegendDisplayMode.LIST)
            .placement(common.LegendPlacement.BOTTOM)
            .show_legend(True)
        )
        .tooltip(VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI).sort(common.SortOrder.DESCENDING))
    )
    if panel.stacked:
        builder = builder.stacking(StackingConfig().mode(common.StackingMode.NORMAL).group("A"))
    if panel.logarithmic:
        return builder.scale_distribution(ScaleDistributionConfig().type(common.ScaleDistribution.LOG).log(10))
    return builder.min(0)


def _newest(panel: Panel) -> StatPanel:
    return (
        StatPanel()
        .graph_mode(common.BigValueGraphMode.NONE)
        .color_mode(common.BigValueColorMode.NONE)
        .text_mode(common.BigValueTextMode.NAME if panel.names else common.BigValueTextMode.AUTO)
        .reduce_options(ReduceDataOptions().calcs(["lastNotNull"]))
    )


def _spans(_panel: Panel) -> StateTimelinePanel:
    return (
        StateTimelinePanel()
        .show_value(common.VisibilityMode.NEVER)
        .merge_values(True)
        .row_height(0.8)
        .legend(
            VizLegendOptions()
            .display_mode(common.LegendDisplayMode.LIST)
            .placement(common.LegendPlacement.BOTTOM)
            .show_legend(False)
        )
    )


def _table(panel: Panel) -> TablePanel:
    options = {"rowField": panel.row, "columnField": panel.column, "valueField": "Value"}
    return TablePanel().with_transformation(dashboard.DataTransformerConfig(id_val="groupingToMatrix", options=options))
