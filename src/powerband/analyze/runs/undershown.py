"""Finds the side of a comparison that may be better than its trials show, and takes back a verdict that rests on them.

In: the trials of a setting, and a change. Out: why its figure is only a lower bound, and the change. Of settings of one
run `settings/compare.py` decides the same.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from powerband.analyze.runs.changes import Change
from powerband.analyze.settings.no_answer import BEYOND_GENERATOR, RISING
from powerband.analyze.settings.unsettled import may_catch_up
from powerband.analyze.trial.faults import beyond_generator, tried
from powerband.model.plan import Setting
from powerband.model.results import Estimate, TrialResult, Verdict


def undershown(
    setting: Setting, trials: Sequence[TrialResult], rising: Collection[Setting], ratio: Estimate | None
) -> str:
    """Why a setting may be better than its trials show; empty if it is not. `rising`: the settings that still got
    faster; `ratio`: of the two sides, either way round."""
    if beyond_generator(tried(trials, setting)):
        return BEYOND_GENERATOR
    return RISING if setting in rising and may_catch_up(ratio) else ""


def where_shown(change: Change, undershown: Sequence[str], names: Sequence[str]) -> Change:
    """The change without a verdict by figures that the side behind may not deserve. `undershown`: why the first and the
    second may be better than was measured; empty: they are not. `names`: what the two are called."""
    behind = {Verdict.BETTER: (0,), Verdict.WORSE: (1,), Verdict.EQUIVALENT: (0, 1)}.get(change.verdict, ())
    told = "; ".join(f"{names[side]}: {undershown[side]}" for side in behind if undershown[side])
    return change if change.because or not told else replace(change, verdict=Verdict.INCONCLUSIVE, because=told)
