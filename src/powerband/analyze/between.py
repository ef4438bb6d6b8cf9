"""Compares two runs setting by setting: what changed from the first to the second, and how sure that is.

Runs share no blocks, so trials cannot be paired: Welch's t interval (Welch 1947) on the log of the objective, at a
confidence that holds for all settings together (Bonferroni). Drift of the machine between two runs is not cancelled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from powerband.analyze.intervals import estimate
from powerband.analyze.results import Analysis, Estimate, Verdict
from powerband.analyze.special import student_t
from powerband.plan import Setting


@dataclass(frozen=True)
class Change:
    """One setting in both runs; `ratio` is second / first. The verdict is the second's towards the first."""

    setting: Setting
    first: Estimate
    second: Estimate
    ratio: Estimate
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
                    "ratio": vars(change.ratio),
                    "verdict": change.verdict.value,
                }
                for change in self.changes
            ],
            "only_first": [_setting(setting) for setting in self.only_first],
            "only_second": [_setting(setting) for setting in self.only_second],
        }


def compare_runs(first: Analysis, second: Analysis) -> RunComparison:
    """By the first run's objective, confidence and margin. Only positive values of valid trials count."""
    values = [_values(analysis, first.objective) for analysis in (first, second)]
    common = [setting for setting in values[0] if setting in values[1]]
    each = 1 - (1 - first.confidence) / max(1, len(common))
    return RunComparison(
        objective=first.objective,
        direction=first.direction,
        confidence=first.confidence,
        margin=first.margin,
        changes=tuple(_change(setting, values[0][setting], values[1][setting], first, each) for setting in common),
        only_first=tuple(setting for setting in values[0] if setting not in values[1]),
        only_second=tuple(setting for setting in values[1] if setting not in values[0]),
    )


def _values(analysis: Analysis, metric: str) -> dict[Setting, list[float]]:
    """The metric of every valid trial, by setting, in the order of the analysis' settings."""
    found: dict[Setting, list[float]] = {result.setting: [] for result in analysis.settings}
    for trial in analysis.trials:
        if trial.valid and trial.metrics.get(metric, 0) > 0:
            found.setdefault(trial.setting, []).append(trial.metrics[metric])
    return {setting: values for setting, values in found.items() if values}


def _change(setting: Setting, a: Sequence[float], b: Sequence[float], analysis: Analysis, each: float) -> Change:
    ratio = _ratio(np.log(a), np.log(b), each)
    return Change(
        setting,
        estimate(a, analysis.confidence, log=True),
        estimate(b, analysis.confidence, log=True),
        ratio,
        _verdict(ratio, analysis),
    )


def _ratio(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], confidence: float) -> Estimate:
    difference = float(b.mean() - a.mean())
    n = min(len(a), len(b))
    if n < 2:
        return Estimate(math.exp(difference), None, None, confidence, n)
    parts = [float(x.var(ddof=1)) / len(x) for x in (a, b)]
    spread = sum(parts)
    freedom = spread**2 / sum(part**2 / (len(x) - 1) for part, x in zip(parts, (a, b), strict=True)) if spread else 1.0
    half = student_t(confidence, freedom) * math.sqrt(spread)
    return Estimate(math.exp(difference), math.exp(difference - half), math.exp(difference + half), confidence, n)


def _verdict(ratio: Estimate, analysis: Analysis) -> Verdict:
    if ratio.low is None or ratio.high is None:
        return Verdict.INCONCLUSIVE
    if ratio.low > 1 / (1 + analysis.margin) and ratio.high < 1 + analysis.margin:
        return Verdict.EQUIVALENT
    if ratio.low <= 1 <= ratio.high:
        return Verdict.INCONCLUSIVE
    rose = ratio.low > 1
    return Verdict.BETTER if rose == (analysis.direction == "maximise") else Verdict.WORSE


def _setting(setting: Setting) -> dict[str, Any]:
    return {"id": setting.id, "levels": setting.as_dict()}
