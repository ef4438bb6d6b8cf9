"""The data of a run for the page. In: a `RunState`. Out: plain JSON values; nothing is computed.

Figures of the analysis are sent as the text that the report shows, beside the bare number, so that page and report
never differ in a digit. The seconds of a trial are sent as flat rows by name (`cpu_cores:subject`), for plots.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from powerband.live.state import Figures, NodeState, RunState, SettingState, TrialLine, TrialState
from powerband.model.results import Estimate
from powerband.report.wording.findings import gap_range
from powerband.report.wording.numbers import ABSENT, format_estimate, format_interval, format_number, unit_scale
from powerband.report.wording.standings import metric_name
from powerband.report.wording.words import COLUMNS, NARROW, has_column

_COLUMNS = [(column.metric, column.short) for column in COLUMNS if column.metric in NARROW]
Row = dict[str, Any]
_encoded = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def as_json(told: Any) -> str:
    """ASCII JSON: characters that are invalid in text become escapes; NaN and infinity become null."""
    try:
        return _encoded(told)
    except ValueError:
        return _encoded(_finite(told))


def _finite(told: Any) -> Any:
    if isinstance(told, Mapping):
        return {key: _finite(value) for key, value in told.items()}
    if isinstance(told, list | tuple):
        return [_finite(value) for value in told]
    return None if isinstance(told, float) and not math.isfinite(told) else told


def run_row(state: RunState, folder: str) -> Row:
    """The run without its trials: what its page shows above and beside the plan."""
    return {
        **_fields(state, but=("path", "eta_s", "current", "trials", "nodes", "version")),
        "folder": folder,
        "objective": metric_name(state.objective) if state.objective else "",
        "scale": axis_scale((setting.estimate for setting in state.settings), state.unit),
        "settings": [_setting(setting, state) for setting in state.settings],
        "columns": [name for metric, name in _COLUMNS if _present(metric, state)],
        "nodes": [_node(node) for node in state.nodes],
    }


def axis_scale(values: Iterable[float | None], unit: str) -> tuple[float, str]:
    """The divisor and the suffix of an axis for these values."""
    return unit_scale(max((abs(value) for value in values if value is not None), default=0.0), unit)


def _node(node: NodeState) -> Row:
    trial = None if node.trial is None else current_row(node.trial)
    return {"name": node.name, "does": node.does, "lost": node.lost, "trial": trial, "load_from": node.load_from}


def trial_row(line: TrialLine, unit: str) -> Row:
    """A line of the plan, with its value also as text. `unit`: that of the objective; empty if it is not known."""
    text = "" if line.value is None or not unit else format_number(line.value, unit)
    return {**_fields(line), "value_text": f"≥ {text}" if text and line.at_least else text}


def current_row(trial: TrialState) -> Row:
    """The trial in flight without its points, but with the number of those that were dropped."""
    return _fields(trial, but=("figures", "points"))


def point_rows(points: Iterable[Figures]) -> list[Row]:
    """The seconds of a trial as flat rows, without figures that are None."""
    return [_point(point) for point in points]


def _fields(state: object, but: Collection[str] = ()) -> Row:
    return {name: value for name, value in vars(state).items() if name not in but}


def _point(point: Figures) -> Row:
    row: Row = {}
    for name, value in vars(point).items():
        if isinstance(value, Mapping):
            row |= {f"{name}:{key}": each for key, each in value.items()}
        elif value is not None:
            row[name] = value
    return row


def _setting(setting: SettingState, state: RunState) -> Row:
    metric = state.objective
    objective = setting.estimates.get(metric)
    base = next((each.estimates.get(metric) for each in state.settings if each.leads), None)
    effect = None
    if setting.effect is not None:
        effect = Estimate(setting.effect, setting.effect_low, setting.effect_high, 0.0, 0)
    left = setting.left_after_block is not None
    return {
        **_fields(setting, but=("levels", "estimate", "effect_low", "effect_high", "estimates")),
        "value": setting.estimate,
        "at_least": objective is not None and objective.at_least,
        "text": format_estimate(objective, metric),
        "interval": format_interval(objective, metric),
        "effect": [setting.effect, setting.effect_low, setting.effect_high],
        "effect_text": "" if setting.leads or not metric else gap_range(effect, base, objective, metric, left=left),
        "others": {
            name: format_estimate(setting.estimates.get(metric), metric, digits=3)
            if metric in setting.estimates
            else ABSENT
            for metric, name in _COLUMNS
            if _present(metric, state)
        },
        "looks": [[look.block, look.value, look.low, look.high, look.leads] for look in setting.looks],
    }


def _present(metric: str, state: RunState) -> bool:
    return has_column(metric, [setting.estimates for setting in state.settings], beside=state.objective)
