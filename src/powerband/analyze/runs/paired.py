"""Compares one setting with another that was measured in the same blocks, by a contest of the two.

In: the trials of a run, the two settings. Out: a `Change` from the first to the second, with a ratio paired within
blocks and a verdict, or the reason why there is none; also what each change of one factor costs, compared with the
baseline. Callers choose which other pairs are compared (`revisions.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from powerband.analyze.runs.capacity_changes import capacity_change
from powerband.analyze.runs.changes import Change, by_bound, smallest_difference, with_ends
from powerband.analyze.runs.undershown import undershown, where_shown
from powerband.analyze.settings.capacity import search_of
from powerband.analyze.settings.constraints import Compliance, by_clock
from powerband.analyze.settings.contest import Contest, ResponseTable, compliance_of, hold_contest, scale_of
from powerband.analyze.settings.standing import verb
from powerband.analyze.settings.starts import by_starts, unmeasured_pair
from powerband.analyze.settings.unsettled import still_rising
from powerband.analyze.stats.intervals import estimate, mean_of
from powerband.analyze.trial.faults import ran_out, tried
from powerband.base.units import format_value, joined
from powerband.model.experiment import Experiment
from powerband.model.metrics import METRICS, metric_words
from powerband.model.plan import Level, Setting, Stage
from powerband.model.results import ChangeCost, Race, TrialResult, Verdict

_SEEN_FROM_THE_OTHER = {Verdict.BETTER: Verdict.WORSE, Verdict.WORSE: Verdict.BETTER}


def compared_trials(experiment: Experiment, trials: Sequence[TrialResult], race: Race | None) -> list[TrialResult]:
    """The trials that pairs are judged by: those of blocks (in a race under way, of whole ones) and confirming starts,
    which may fail; in a capacity search, all."""
    half = () if race is None else race.half
    capacity = experiment.objective.is_capacity
    return [trial for trial in trials if capacity or (trial.stage is not Stage.EXPLORE and trial.block not in half)]


def at_confidence_for_all(experiment: Experiment, pairs: int) -> Experiment:
    """The experiment with a confidence for each pair at which all of them hold together (Bonferroni)."""
    each = 1 - (1 - experiment.objective.confidence) / max(1, pairs)
    return experiment.model_copy(update={"objective": experiment.objective.model_copy(update={"confidence": each})})


def pair_change(
    experiment: Experiment,
    of: Setting,
    pair: Sequence[Setting],
    names: Sequence[str],
    *,
    trials: Sequence[TrialResult],
    started: Sequence[TrialResult],
    confidence: float,
) -> Change:
    """The change from the first of the pair to the second, as that of the setting `of`. `names`: what the two are
    called. `trials`: those of whole blocks; `started`: all. The experiment's own confidence is that of the comparison,
    `confidence` that of each figure alone. Never raises for what trials hold."""
    mine, error = [trial for trial in trials if trial.setting in pair], 1 - experiment.objective.confidence
    if experiment.objective.is_capacity:
        searches = [search_of(experiment, setting, mine) for setting in pair]
        return capacity_change(of, searches[0], searches[1], list(names), error)
    table = ResponseTable(experiment, pair, mine, started=started)
    scale = scale_of(table)
    first, second = (
        estimate(values, confidence, log=scale.log) if values else None
        for values in (list(map(table.value, table.valid(setting))) for setting in pair)
    )
    if first is None or second is None:
        verdict, because = _unmeasured(pair, names, mine, error, measured=(first is not None, second is not None))
        return Change(of, first, second, None, verdict, None, because)
    compliance = compliance_of(table)
    contest = hold_contest(experiment, table, scale, compliance)
    unmet = contest.leader is None  # neither was seen to meet the SLO
    if unmet:
        contest = hold_contest(experiment, table, scale, compliance, against=pair[0])
    other = pair[1] if contest.leader == pair[0] else pair[0]
    towards_new = contest.sign * (1 if other == pair[1] else -1)
    ratio = contest.ratio(other, towards_new, first.value) if other in contest.difference else None
    verdict, because = by_starts([table.starts[setting] for setting in pair], names, error)
    if not because or (unmet and verdict is Verdict.BETTER):
        verdict, because = _verdict(contest, pair, [compliance[setting] for setting in pair], names)
    if unmet and verdict is Verdict.INCONCLUSIVE and (worse := _worse_at_slo(experiment, pair, mine, names[1])):
        verdict, because = Verdict.WORSE, worse
    if over := ran_out(mine):
        verdict, because = Verdict.INCONCLUSIVE, over
    smallest = smallest_difference(ratio, first, table.metric, log=scale.log)
    found = Change(of, first, second, ratio, verdict, smallest, because)
    if not because:
        found = with_ends(found, [table.is_endless(setting) for setting in pair], names, table.metric)
        rising = still_rising(table.metric, trials)
        found = where_shown(found, [undershown(setting, mine, rising, ratio) for setting in pair], names)
    for index in (0, 1):
        if table.is_bounded(pair[index]):
            _, why = _unmeasured(pair, names, mine, error, measured=(index != 0, index != 1))
            bounded = by_bound(found, index, verdict, table.metric, why)
            return replace(bounded, verdict=verdict, because=because) if because else bounded
    return found


def _unmeasured(
    pair: Sequence[Setting],
    names: Sequence[str],
    trials: Sequence[TrialResult],
    error: float,
    *,
    measured: tuple[bool, bool],
) -> tuple[Verdict, str]:
    ran = [tried(trials, setting) for setting in pair]
    states = ["could not be measured" if some else "was not tried" for some in ran]
    words = [f"{name} {state}" for name, state in zip(names, states, strict=True)]
    return unmeasured_pair(ran, measured, words, error)


def _verdict(
    contest: Contest, pair: Sequence[Setting], compliance: Sequence[Compliance], names: Sequence[str]
) -> tuple[Verdict, str]:
    """The verdict on the second and its reason. Constraints and failed starts come first: the one that certainly breaks
    one while the other was seen to meet all is worse, whatever it serves. While it is not certain that both meet all,
    neither is better, nor are they equivalent."""
    for index, verdict in ((1, Verdict.WORSE), (0, Verdict.BETTER)):
        if because := _violation(compliance[index], compliance[1 - index], names[index]):
            return verdict, because
    if contest.leader == pair[0]:
        verdict = contest.verdict(pair[1])
    else:
        seen = contest.verdict(pair[0])
        verdict = _SEEN_FROM_THE_OTHER.get(seen, seen)
    if verdict is not Verdict.WORSE and (doubts := _doubts(compliance, names)):
        return Verdict.INCONCLUSIVE, doubts
    return verdict, ""


def _violation(its: Compliance, others: Compliance, name: str) -> str:
    """Why the one called `name` is worse by the constraints, whatever it serves; empty if it is not."""
    return f"{name} violates the SLO ({'; '.join(its.missed)})" if its.missed and others.seen_to_meet else ""


def _doubts(compliance: Sequence[Compliance], names: Sequence[str]) -> str:
    """Which of the two violate the SLO or may do so, with the figures; empty if both certainly meet it."""
    who: dict[tuple[bool, str], list[str]] = {}
    for name, each in zip(names, compliance, strict=True):
        if not each.certain:
            who.setdefault((bool(each.missed), "; ".join((*each.barred, *each.open))), []).append(name)
    clauses = [
        f"{joined(them)} {verb(them, 'violates', 'violate')} the SLO ({what})"
        if missed
        else f"it is not certain whether {joined(them)} {verb(them, 'meets', 'meet')} the SLO ({what})"
        for (missed, what), them in who.items()
    ]
    if clauses and not any(each.barred or by_clock(each.open) for each in compliance):
        clauses.append("more rounds or longer trials would decide that")
    return "; ".join(clauses)


def _worse_at_slo(experiment: Experiment, pair: Sequence[Setting], trials: Sequence[TrialResult], name: str) -> str:
    """Why the second, called `name`, is worse by one metric of the SLO, though neither was seen to meet all of it: it
    certainly breaks the constraint, which the first was seen to meet, or is certainly worse by more than the margin.
    Empty if it is not. The constraints share the error (Bonferroni)."""
    constraints = experiment.objective.constraints
    judged = at_confidence_for_all(experiment, len(constraints))
    for constraint in constraints:
        metric, direction = constraint.metric, "maximise" if constraint.op.startswith(">") else "minimise"
        asked = {"metric": metric, "direction": direction, "constraints": (constraint,)}
        alone = judged.model_copy(update={"objective": judged.objective.model_copy(update=asked)})
        table = ResponseTable(alone, pair, trials)
        if not all(map(table.valid, pair)):
            continue
        compliance = compliance_of(table)
        if because := _violation(compliance[pair[1]], compliance[pair[0]], name):
            return because
        contest = hold_contest(alone, table, scale_of(table), compliance, against=pair[0])
        if constraint.op != "==" and contest.below(pair[1]):
            unit = METRICS[metric].unit
            means = [mean_of(list(map(table.value, table.valid(setting))), unit) for setting in pair]
            before, after = (format_value(mean, unit) for mean in means)
            least = "at least " if table.is_endless(pair[1]) else ""
            return f"{metric_words(metric)} {least}{after} instead of {before}"
    return ""


def costs_of_changes(
    experiment: Experiment, trials: Sequence[TrialResult], race: Race | None = None
) -> tuple[ChangeCost, ...]:
    """The cost of every changed setting compared with the baseline, the dearest first, with intervals that hold for all
    of them together. Changes that could not be compared come last. Empty unless the design says one-at-a-time."""
    if experiment.design.vary != "one-at-a-time":
        return ()
    base, *changed = experiment.settings()
    judged = at_confidence_for_all(experiment, len(changed))
    compared = compared_trials(experiment, trials, race)
    confidence = experiment.objective.confidence

    def cost(setting: Setting) -> ChangeCost:
        pair, names = (base, setting), ("the baseline", setting.id)
        found = pair_change(judged, setting, pair, names, trials=compared, started=trials, confidence=confidence)
        found = by_short(experiment, found, pair, names, trials=compared, race=race)
        return ChangeCost(setting, *_changed(base, setting), found.ratio, found.verdict, found.because)

    dearest = 1.0 if experiment.objective.direction == "maximise" else -1.0
    costs = map(cost, changed)
    return tuple(sorted(costs, key=lambda cost: (cost.ratio is None, dearest * cost.ratio.value if cost.ratio else 0)))


def by_short(
    experiment: Experiment,
    found: Change,
    pair: Sequence[Setting],
    names: Sequence[str],
    *,
    trials: Sequence[TrialResult],
    race: Race | None,
) -> Change:
    """The change from the first of the pair to the second by the short trials of a race, if one of them left before its
    full ones. It is that by which the second left while the first led, or else of a contest of all settings, since two
    short trials of a pair hardly show their noise. `found`: by all their trials; `names`: what the two are called."""
    short = [trial for trial in trials if trial.stage is Stage.SCREEN]
    full = {trial.setting for trial in trials if trial.stage is Stage.COMPARE}
    if not short or found.verdict is not Verdict.INCONCLUSIVE or full.issuperset(pair):
        return found
    first, second = pair
    led = {look.block for look in race.looks if look.leader == first} if race else set()
    for left in race.departures if race else ():
        if left.worse and left.setting == second and left.block in led:
            return replace(found, ratio=left.effect, verdict=Verdict.WORSE, because="")
    if found.because:
        return found
    table = ResponseTable(experiment, experiment.settings(), short)
    scale = scale_of(table)
    contest = hold_contest(experiment, table, scale, compliance_of(table), against=first, of_full=True)
    verdict, ratio = contest.verdict(second), contest.effect(second)
    because = f"only short trials compare it with {names[0]}" if verdict is Verdict.INCONCLUSIVE else ""
    smallest = smallest_difference(ratio, found.first, table.metric, log=scale.log)
    return replace(found, ratio=ratio, verdict=verdict, smallest_difference=smallest, because=because)


def _changed(base: Setting, setting: Setting) -> tuple[str, Level, Level]:
    """The factor in which they differ, its level here, and in the baseline."""
    return next(
        (name, level, before)
        for (name, level), (_, before) in zip(setting.levels, base.levels, strict=True)
        if type(level) is not type(before) or level != before
    )
