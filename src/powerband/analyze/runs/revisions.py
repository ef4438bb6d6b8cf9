"""Compares two revisions of a server that one run has measured in the same blocks: NEW against OLD, setting by setting.

The factor `revision` has the two as its levels. Each pair is a contest of two (`paired.py`), paired within blocks so
that drift of the machine cancels, at a confidence that holds for all pairs together (Bonferroni). In: the experiment
and the trials of its `Analysis`. Nothing is run or read here.
"""

from __future__ import annotations

from powerband.analyze.runs.changes import RunComparison
from powerband.analyze.runs.paired import at_confidence_for_all, compared_trials, pair_change
from powerband.model.experiment import Experiment
from powerband.model.plan import REVISION, Setting, format_level, grid
from powerband.model.results import Analysis


def holds_revisions(experiment: Experiment) -> bool:
    """True if the experiment has a factor `revision` of two levels."""
    return len(experiment.factors.get(REVISION, ())) == 2


def compare_revisions(experiment: Experiment, analysis: Analysis) -> RunComparison:
    """Compares the two revisions at each setting of the other factors; needs `holds_revisions`. Never raises for what
    trials hold."""
    old, new = map(format_level, experiment.factors[REVISION])
    others = grid({name: levels for name, levels in experiment.factors.items() if name != REVISION})
    judged = at_confidence_for_all(experiment, len(others))
    trials = compared_trials(experiment, analysis.trials, analysis.race)
    pairs = [(of, [_with(experiment, of, index) for index in (0, 1)]) for of in others]
    changes = (
        pair_change(judged, of, pair, (old, new), trials=trials, confidence=analysis.confidence) for of, pair in pairs
    )
    return RunComparison.of(analysis, changes, names=(old, new), paired=True, warnings=analysis.warnings)


def _with(experiment: Experiment, of: Setting, revision: int) -> Setting:
    """The setting of the experiment that has this revision; factors in the experiment's order."""
    levels = {**of.as_dict(), REVISION: experiment.factors[REVISION][revision]}
    return Setting(tuple((name, levels[name]) for name in experiment.factors))
