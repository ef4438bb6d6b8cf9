"""The data of a run for the page. In: a `RunState`. Out: plain JSON values; nothing is computed.

Figures of the analysis are sent as the text that the report shows, beside the bare number, so that page and report
never differ in a digit. The seconds of a trial are sent as flat rows by name (`cpu_cores:subject`), for plots.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from powerband.live.state import Figures, RunState, SettingState, TrialLine, TrialState
from powerband.model.results import Estimate
from powerband.report.wording.findings import range_phrase
from powerband.report.wording.numbers import ABSENT, format_estimate, format_interval, format_number
from powerband.report.wording.standings import metric_name
from powerband.report.wording.words import COLUMNS, NARROW

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
    """Everything but the trials and the one in flight."""
    return {
        "folder": folder,
        "name": state.name,
        "status": state.status.value,
        "because": state.because,
        "question": state.question,
        "objective": metric_name(state.objective) if state.objective else "",
        "unit": state.unit,
        "direction": state.direction,
        "planned_total": state.planned_total,
        "at_most": state.at_most,
        "done": state.done,
        "valid": state.valid,
        "invalid": state.invalid,
        "failed": state.failed,
        "started_s": state.started_s,
        "ended_s": state.ended_s,
        "answer": list(state.answer),
        "race": state.race,
        "warnings": list(state.warnings),
        "blocks": state.blocks,
        "judged": state.judged,
        "has_report": state.has_report,
        "settings": [_setting(setting, state) for setting in state.settings],
        "columns": [name for metric, name in _COLUMNS if _present(metric, state)],
    }


def trial_row(line: TrialLine, unit: str) -> Row:
    return {
        "number": line.number,
        "setting": line.setting,
        "block": line.block,
        "attempt": line.attempt,
        "stage": line.stage,
        "outcome": line.outcome.value,
        "value": line.value,
        "value_text": "" if line.value is None or not unit else format_number(line.value, unit),
        "because": line.because,
        "took_s": line.took_s,
        "rate_per_s": line.rate_per_s,
    }


def current_row(trial: TrialState) -> Row:
    """The trial in flight without its points."""
    return {
        "number": trial.number,
        "setting": trial.setting,
        "block": trial.block,
        "stage": trial.stage,
        "rate_per_s": trial.rate_per_s,
        "phase": trial.phase.value,
        "phase_began_s": trial.phase_began_s,
        "began_s": trial.began_s,
        "phases_s": dict(trial.phases_s),
    }


def point_rows(points: Iterable[Figures]) -> list[Row]:
    return [_point(point) for point in points]


_SCALARS = (
    "rate_per_s",
    "errors_per_s",
    "response_time_ns_mean",
    "response_time_ns_p50",
    "response_time_ns_p99",
    "in_flight",
    "users",
    "context_switches_per_s",
)
_GROUPS = ("cpu_cores", "rss_bytes", "threads", "gauges")


def _point(point: Figures) -> Row:
    row: Row = {"t_s": point.t_s}
    for name in _SCALARS:
        value = getattr(point, name)
        if value is not None:
            row[name] = value
    for group in _GROUPS:
        values: Mapping[str, float] = getattr(point, group)
        for name, value in values.items():
            row[f"{group}:{name}"] = value
    return row


def _setting(setting: SettingState, state: RunState) -> Row:
    metric = state.objective
    objective = setting.estimates.get(metric)
    effect = None
    if setting.effect is not None:
        effect = Estimate(setting.effect, setting.effect_low, setting.effect_high, 0.0, 0)
    return {
        "id": setting.id,
        "trials": setting.trials,
        "invalid": setting.invalid,
        "value": setting.estimate,
        "low": setting.low,
        "high": setting.high,
        "text": format_estimate(objective, metric),
        "interval": format_interval(objective, metric),
        "effect": [setting.effect, setting.effect_low, setting.effect_high],
        "effect_text": "" if effect is None else range_phrase(effect),
        "told": setting.told,
        "verdict": setting.verdict,
        "feasible": setting.feasible,
        "leads": setting.leads,
        "answer": setting.answer,
        "left_after_block": setting.left_after_block,
        "because": setting.because,
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
    """True if `metric` is not the objective and at least one setting has an estimate of it."""
    return metric != state.objective and any(metric in setting.estimates for setting in state.settings)
