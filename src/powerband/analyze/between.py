"""Compares two runs setting by setting: what changed from the first to the second, and how sure that is.

Runs share no blocks, so trials cannot be paired: Welch's t interval (Welch 1947), at a confidence that holds for all
settings together (Bonferroni); on logs where every value is above zero and no share, else on plain differences. Drift
of the machine between two runs is not cancelled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from powerband.analyze.intervals import estimate, on_log_scale
from powerband.analyze.results import Analysis, Estimate, Verdict
from powerband.analyze.special import Array, student_t
from powerband.metrics import METRICS
from powerband.plan import Setting


@dataclass(frozen=True)
class Change:
    """One setting in both runs; `ratio` is second / first, None where the first is 0. The verdict is the second's
    towards the first."""

    setting: Setting
    first: Estimate
    second: Estimate
    ratio: Estimate | None
    verdict: Verdict


@dataclass(frozen=True)
class RunComparison:
    """`changes` in the first run's order; `only_first` and `only_second` name settings that cannot be compared."""

    objective: str
    direction: str
    confidence: float
    margin: float
    changes: tuple[Change, ...]
    only_first: tuple[Setting, ...]
    only_second: tuple[Setting, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON types only; the shape of `powerband compare --format json`."""
        return {
            "format": 1,
            "objective": self.objective,
            "direction": self.direction,
            "confidence": self.confidence,
            "margin": self.margin,
            "settings": [
                {
                    "setting": _setting(change.setting),
                    "first": vars(change.first),
                    "second": vars(change.second),
                    "ratio": None if change.ratio is None else vars(change.ratio),
                    "verdict": change.verdict.value,
                }
                for change in self.changes
            ],
            "only_first": [_setting(setting) for setting in self.only_first],
            "only_second": [_setting(setting) for setting in self.only_second],
        }


def compare_runs(first: Analysis, second: Analysis) -> RunComparison:
    """By the first run's objective, confidence and margin; of valid trials."""
    values = [_values(analysis, first.objective) for analysis in (first, second)]
    common = [setting for setting in values[0] if setting in values[1]]
    each = 1 - (1 - first.confidence) / max(1, len(common))
    everything = [value for run in values for setting in common for value in run[setting]]
    log = on_log_scale(everything, METRICS[first.objective].unit)
    scale = _Scale(log, each)
    return RunComparison(
        objective=first.objective,
        direction=first.direction,
        confidence=first.confidence,
        margin=first.margin,
        changes=tuple(_change(setting, values[0][setting], values[1][setting], first, scale) for setting in common),
        only_first=tuple(setting for setting in values[0] if setting not in values[1]),
        only_second=tuple(setting for setting in values[1] if setting not in values[0]),
    )


def _values(analysis: Analysis, metric: str) -> dict[Setting, list[float]]:
    """The metric of every valid trial, by setting, in the order of the analysis' settings."""
    found: dict[Setting, list[float]] = {result.setting: [] for result in analysis.settings}
    for trial in analysis.trials:
        if trial.valid and metric in trial.metrics:
            found.setdefault(trial.setting, []).append(trial.metrics[metric])
    return {setting: values for setting, values in found.items() if values}


@dataclass(frozen=True)
class _Scale:
    """Logs or plain values, and the confidence of one interval."""

    log: bool
    confidence: float


def _change(setting: Setting, a: Sequence[float], b: Sequence[float], analysis: Analysis, scale: _Scale) -> Change:
    arrays = [np.log(x) if scale.log else np.array(x, dtype=float) for x in (a, b)]
    difference = _difference(arrays[0], arrays[1], scale.confidence)
    base = float(np.mean(a))
    return Change(
        setting,
        estimate(a, analysis.confidence, log=scale.log),
        estimate(b, analysis.confidence, log=scale.log),
        _ratio(difference, None if scale.log else base),
        _verdict(difference, _margin(analysis, scale, base), analysis.direction),
    )


def _difference(a: Array, b: Array, confidence: float) -> Estimate:
    """Second less first, with Welch's interval."""
    difference = float(b.mean() - a.mean())
    n = min(len(a), len(b))
    if n < 2:
        return Estimate(difference, None, None, confidence, n)
    parts = [float(x.var(ddof=1)) / len(x) for x in (a, b)]
    spread = sum(parts)
    freedom = spread**2 / sum(part**2 / (len(x) - 1) for part, x in zip(parts, (a, b), strict=True)) if spread else 1.0
    half = student_t(confidence, freedom) * math.sqrt(spread)
    return Estimate(difference, difference - half, difference + half, confidence, n)


def _ratio(difference: Estimate, base: float | None) -> Estimate | None:
    """`base`: the first run's mean, where the difference is of plain values; None: of logs."""
    if base == 0:
        return None

    def ratio(value: float) -> float:
        return math.exp(value) if base is None else 1 + value / base

    if difference.low is None or difference.high is None:
        return Estimate(ratio(difference.value), None, None, difference.confidence, difference.n)
    low, high = sorted((ratio(difference.low), ratio(difference.high)))
    return Estimate(ratio(difference.value), low, high, difference.confidence, difference.n)


def _margin(analysis: Analysis, scale: _Scale, base: float) -> float:
    """On the scale of the difference; shares: percentage points (see docs/methods/comparing-settings.md)."""
    if scale.log:
        return math.log1p(analysis.margin)
    share = METRICS[analysis.objective].unit == "ratio"
    return analysis.margin * (1.0 if share else abs(base) or 1.0)


def _verdict(difference: Estimate, margin: float, direction: str) -> Verdict:
    if difference.low is None or difference.high is None:
        return Verdict.INCONCLUSIVE
    if -margin < difference.low and difference.high < margin:
        return Verdict.EQUIVALENT
    if difference.low <= 0 <= difference.high:
        return Verdict.INCONCLUSIVE
    rose = difference.low > 0
    return Verdict.BETTER if rose == (direction == "maximise") else Verdict.WORSE


def _setting(setting: Setting) -> dict[str, Any]:
    return {"id": setting.id, "levels": setting.as_dict()}
