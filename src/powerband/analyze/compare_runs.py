"""Two runs of the same settings against each other: what became better or worse from A to B?

In: the analyses of two runs. Out: a `RunComparison`. The runs were made at different times: nothing is paired, and the
machine's drift between them is part of the difference: a verdict here says that the runs differ, not why. What the two
runs do not share (settings, objective, load) is said in `warnings`, never averaged away.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from powerband.analyze.intervals import SD_FLOOR, estimate
from powerband.analyze.results import Analysis, Estimate, Verdict
from powerband.analyze.special import student_t
from powerband.metrics import METRICS
from powerband.plan import Setting


@dataclass(frozen=True)
class RunPair:
    """One setting in both runs. `effect`: ratio objective(B) / objective(A), its interval holding for all settings at
    once; the verdict is on B."""

    setting: Setting
    before: Estimate
    after: Estimate
    effect: Estimate
    verdict: Verdict


@dataclass(frozen=True)
class RunComparison:
    before: str
    after: str
    objective: str
    direction: str
    confidence: float
    margin: float
    pairs: tuple[RunPair, ...]
    only_before: tuple[Setting, ...]
    only_after: tuple[Setting, ...]
    warnings: tuple[str, ...]


def compare_runs(before: Analysis, after: Analysis) -> RunComparison:
    """Compares every setting that both runs measured, by A's objective, margin and confidence.

    Welch's t interval (Welch 1947) on log values, each setting at the error (1 - confidence) / settings (Bonferroni).
    Settings with fewer than two trials in either run get a ratio without an interval, and no verdict."""
    metric, sign = before.objective, 1.0 if before.direction == "maximise" else -1.0
    values_before, values_after = _values(before, metric), _values(after, metric)
    common = [row.setting for row in before.settings if values_before.get(row.setting) and row.setting in values_after]
    common = [setting for setting in common if values_after[setting]]
    level = 1 - (1 - before.confidence) / max(1, len(common))
    pairs = tuple(
        _pair(setting, values_before[setting], values_after[setting], before, sign=sign, level=level)
        for setting in common
    )
    return RunComparison(
        before=before.name,
        after=after.name,
        objective=metric,
        direction=before.direction,
        confidence=before.confidence,
        margin=before.margin,
        pairs=pairs,
        only_before=tuple(row.setting for row in before.settings if row.setting not in common),
        only_after=tuple(row.setting for row in after.settings if row.setting not in common),
        warnings=tuple(_warnings(before, after, common)),
    )


def _values(analysis: Analysis, metric: str) -> dict[Setting, list[float]]:
    """Values above zero of the objective by setting, from the valid trials."""
    values: dict[Setting, list[float]] = {}
    for trial in analysis.trials:
        if trial.valid and trial.metrics.get(metric, 0.0) > 0:
            values.setdefault(trial.setting, []).append(trial.metrics[metric])
    return values


def _pair(
    setting: Setting, before: Sequence[float], after: Sequence[float], analysis: Analysis, *, sign: float, level: float
) -> RunPair:
    logs_before, logs_after = np.log(before), np.log(after)
    difference = float(logs_after.mean() - logs_before.mean())
    n = min(len(before), len(after))
    half, half_tost = math.nan, math.nan
    if n >= 2:
        half = _welch_half(logs_before, logs_after, level)
        half_tost = _welch_half(logs_before, logs_after, 2 * level - 1)
    known = not math.isnan(half)
    effect = Estimate(
        value=math.exp(difference),
        low=math.exp(difference - half) if known else None,
        high=math.exp(difference + half) if known else None,
        confidence=analysis.confidence,
        n=n,
    )
    return RunPair(
        setting=setting,
        before=estimate(before, analysis.confidence, log=True),
        after=estimate(after, analysis.confidence, log=True),
        effect=effect,
        verdict=_verdict(sign * difference, half, half_tost, math.log1p(analysis.margin)),
    )


def _verdict(gain: float, half: float, half_tost: float, allowed: float) -> Verdict:
    if math.isnan(half):
        return Verdict.INCONCLUSIVE
    if abs(gain) + half_tost <= allowed:
        return Verdict.EQUIVALENT
    if abs(gain) > half:
        return Verdict.BETTER if gain > 0 else Verdict.WORSE
    return Verdict.INCONCLUSIVE


def _welch_half(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], level: float) -> float:
    """Half-width of Welch's interval, with Satterthwaite's degrees of freedom."""
    variances = [max(float(x.var(ddof=1)), SD_FLOOR**2) / x.size for x in (a, b)]
    df = sum(variances) ** 2 / sum(v**2 / (x.size - 1) for v, x in zip(variances, (a, b), strict=True))
    return student_t(level, df) * math.sqrt(sum(variances))


def _warnings(before: Analysis, after: Analysis, common: Sequence[Setting]) -> list[str]:
    warnings = []
    if not common:
        warnings.append("the two runs have no measured setting in common: there is nothing to compare")
    if (before.objective, before.direction) != (after.objective, after.direction):
        warnings.append(
            f"the runs have different objectives ({before.objective}, {after.objective}): the first one's is used"
        )
    if before.name != after.name:
        warnings.append(f"the runs are of different experiments ({before.name}, {after.name})")
    if METRICS[before.objective].unit == "ratio":
        warnings.append(
            "the objective is a share; trials in which it is 0 cannot be compared by ratio and are left out"
        )
    return warnings
