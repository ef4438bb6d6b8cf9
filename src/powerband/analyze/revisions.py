"""Compares two revisions of a server that one run has measured in the same blocks: NEW against OLD, setting by setting.

The factor `revision` has the two as its levels. Each pair is a contest of two (`contest.py`), paired within blocks so
that drift of the machine cancels, at a confidence that holds for all pairs together (Bonferroni). In: the experiment
and the trials of its `Analysis`. Nothing is run or read here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from powerband.analyze.capacity import search_of
from powerband.analyze.capacity_changes import capacity_change
from powerband.analyze.changes import Change, RunComparison, smallest_difference
from powerband.analyze.constraints import Compliance
from powerband.analyze.contest import Contest, Table, compliance_of, hold_contest, scale_of
from powerband.analyze.faults import unmeasured_pair
from powerband.analyze.intervals import estimate, exp
from powerband.analyze.results import Analysis, Estimate, TrialResult, Verdict
from powerband.experiment import Experiment
from powerband.plan import REVISION, Setting, Stage, format_level, grid

_SEEN_FROM_THE_OTHER = {Verdict.BETTER: Verdict.WORSE, Verdict.WORSE: Verdict.BETTER}


def holds_revisions(experiment: Experiment) -> bool:
    """Whether the experiment has a factor `revision` of two levels."""
    return len(experiment.factors.get(REVISION, ())) == 2


def compare_revisions(experiment: Experiment, analysis: Analysis) -> RunComparison:
    """One change for each setting of the other factors; needs `holds_revisions`. Never raises for what trials hold."""
    names = tuple(format_level(level) for level in experiment.factors[REVISION])
    others = grid({name: levels for name, levels in experiment.factors.items() if name != REVISION})
    each = 1 - (1 - experiment.objective.confidence) / len(others)
    objective = experiment.objective.model_copy(update={"confidence": each})
    judged = experiment.model_copy(update={"objective": objective})
    whole = analysis.race.blocks if analysis.race is not None and analysis.race.under_way else math.inf
    trials = [t for t in analysis.trials if objective.is_capacity or (t.stage is Stage.COMPARE and t.block < whole)]
    return RunComparison(
        objective=analysis.objective,
        direction=analysis.direction,
        confidence=analysis.confidence,
        margin=analysis.margin,
        changes=tuple(_change(judged, setting, trials, analysis.confidence) for setting in others),
        only_first=(),
        only_second=(),
        names=(names[0], names[1]),
        paired=True,
        warnings=analysis.warnings,
    )


def _change(experiment: Experiment, of: Setting, trials: Sequence[TrialResult], confidence: float) -> Change:
    pair = [_with(experiment, of, index) for index in (0, 1)]
    mine = [trial for trial in trials if trial.setting in pair]
    if experiment.objective.is_capacity:
        searches = [search_of(experiment, setting, mine) for setting in pair]
        names = [format_level(level) for level in experiment.factors[REVISION]]
        return capacity_change(of, searches[0], searches[1], names, 1 - experiment.objective.confidence)
    table = Table(experiment, pair, mine)
    scale = scale_of(experiment, table)
    first, second = (
        estimate(values, confidence, log=scale.log) if values else None
        for values in ([trial.metrics[table.metric] for trial in table.valid(setting)] for setting in pair)
    )
    if first is None or second is None:
        verdict, because = _unmeasured(experiment, pair, mine, measured=(first is not None, second is not None))
        return Change(of, first, second, None, verdict, None, because)
    compliance = compliance_of(experiment, table)
    contest = hold_contest(experiment, table, scale, compliance)
    if contest.leader is None:
        missed = (*compliance[pair[0]].missed, *compliance[pair[1]].missed)
        because = f"neither meets the constraints ({'; '.join(dict.fromkeys(missed))})"
        return Change(of, first, second, None, Verdict.INCONCLUSIVE, None, because)
    ratio = _ratio(contest, pair, first.value)
    verdict, because = _verdict(contest, pair, [compliance[setting] for setting in pair], experiment)
    smallest = smallest_difference(ratio, first, table.metric, log=scale.log)
    return Change(of, first, second, ratio, verdict, smallest, because)


def _with(experiment: Experiment, of: Setting, revision: int) -> Setting:
    """The setting of the experiment that has this revision; factors in the experiment's order."""
    levels = {**of.as_dict(), REVISION: experiment.factors[REVISION][revision]}
    return Setting(tuple((name, levels[name]) for name in experiment.factors))


def _unmeasured(
    experiment: Experiment, pair: Sequence[Setting], trials: Sequence[TrialResult], *, measured: tuple[bool, bool]
) -> tuple[Verdict, str]:
    tried = [[t for t in trials if t.setting == setting and t.status != "interrupted"] for setting in pair]
    names = [format_level(level) for level in experiment.factors[REVISION]]
    states = ["could not be measured" if some else "was not tried" for some in tried]
    return unmeasured_pair(tried, measured, [f"{name} {state}" for name, state in zip(names, states, strict=True)])


def _ratio(contest: Contest, pair: Sequence[Setting], base: float) -> Estimate | None:
    """NEW / OLD with its interval; the contest's figures are of its other setting less its leader."""
    other = pair[1] if contest.leader == pair[0] else pair[0]
    if not contest.scale.log and base == 0:
        return None
    towards_new = contest.sign * (1 if other == pair[1] else -1)
    difference, half = towards_new * contest.difference[other], contest.half[other]

    def ratio(value: float) -> float:
        return exp(value) if contest.scale.log else 1 + value / base

    n = contest.shared[other]
    if math.isnan(difference):
        return None
    if math.isnan(half):
        return Estimate(ratio(difference), None, None, contest.confidence, n)
    low, high = sorted((ratio(difference - half), ratio(difference + half)))
    return Estimate(ratio(difference), low, high, contest.confidence, n)


def _verdict(
    contest: Contest, pair: Sequence[Setting], compliance: Sequence[Compliance], experiment: Experiment
) -> tuple[Verdict, str]:
    """Constraints come first: who breaks one for certain where the other does not is worse, whatever it serves."""
    names = [format_level(level) for level in experiment.factors[REVISION]]
    for index, verdict in ((1, Verdict.WORSE), (0, Verdict.BETTER)):
        if compliance[index].missed and not compliance[1 - index].missed:
            return verdict, f"{names[index]} does not meet the constraints ({'; '.join(compliance[index].missed)})"
    if contest.leader == pair[0]:
        verdict = contest.verdict(pair[1])
    else:
        seen = contest.verdict(pair[0])
        verdict = _SEEN_FROM_THE_OTHER.get(seen, seen)
    unsure = next((index for index in (1, 0) if compliance[index].open), None)
    if unsure is not None and verdict is not Verdict.WORSE:
        what = "; ".join(compliance[unsure].open)
        return Verdict.INCONCLUSIVE, f"whether {names[unsure]} meets the constraints is not certain ({what})"
    return verdict, ""
