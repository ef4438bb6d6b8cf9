"""What each change of one factor costs: every changed setting towards the baseline, the dearest first.

In: an experiment whose factors vary one at a time, and its trials. Out: `ChangeCost`s, each paired with the baseline
within blocks, at a confidence that holds for all of them together. What factors do to each other is not seen this way.
"""

from __future__ import annotations

from collections.abc import Sequence

from powerband.analyze.runs.paired import at_confidence_for_all, compared_trials, pair_change
from powerband.model.experiment import Experiment
from powerband.model.plan import Level, Setting
from powerband.model.results import ChangeCost, Race, TrialResult


def costs_of_changes(
    experiment: Experiment, trials: Sequence[TrialResult], race: Race | None = None
) -> tuple[ChangeCost, ...]:
    """Nothing unless the design says one-at-a-time. Changes that could not be compared come last."""
    if experiment.design.vary != "one-at-a-time":
        return ()
    base, *changed = experiment.settings()
    judged = at_confidence_for_all(experiment, len(changed))
    compared = compared_trials(experiment, trials, race)
    costs = [_cost(judged, base, setting, compared, experiment.objective.confidence) for setting in changed]
    dearest = 1.0 if experiment.objective.direction == "maximise" else -1.0
    return tuple(sorted(costs, key=lambda cost: (cost.ratio is None, dearest * cost.ratio.value if cost.ratio else 0)))


def _cost(
    experiment: Experiment, base: Setting, setting: Setting, trials: Sequence[TrialResult], confidence: float
) -> ChangeCost:
    factor, level, before = _change(base, setting)
    names = ("the baseline", setting.id)
    found = pair_change(experiment, setting, (base, setting), names, trials=trials, confidence=confidence)
    return ChangeCost(setting, factor, level, before, found.ratio, found.verdict, found.because)


def _change(base: Setting, setting: Setting) -> tuple[str, Level, Level]:
    """The factor in which they differ, its level here, and in the baseline."""
    return next(
        (name, level, before)
        for (name, level), (_, before) in zip(setting.levels, base.levels, strict=True)
        if type(level) is not type(before) or level != before
    )
