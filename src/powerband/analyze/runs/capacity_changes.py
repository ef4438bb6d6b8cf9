"""Compares two capacities of one setting, the second with the first: of two revisions of a server, or of two runs.

In: the searches of both. Out: a `Change`. The two edges are independent posteriors, so that the quantiles of their
difference are exact; the error is shared among all settings that are compared (Bonferroni)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from powerband.analyze.runs.changes import TWO_RUNS, Change, RunComparison, smallest_difference
from powerband.analyze.runs.sessions import ASSUMED, SessionSpread
from powerband.analyze.settings.capacities import gap_between
from powerband.analyze.settings.capacity import Search, capacity_of, search_of
from powerband.analyze.settings.starts import by_starts, failed_words, is_allowed, unmeasured_pair
from powerband.analyze.trial.faults import tried
from powerband.model.experiment import Experiment
from powerband.model.plan import Setting
from powerband.model.results import Analysis, Capacity, Verdict


def compare_capacities(
    experiments: tuple[Experiment, Experiment],
    analyses: tuple[Analysis, Analysis],
    warnings: Sequence[str] = (),
    sessions: SessionSpread = ASSUMED,
) -> RunComparison:
    """Compares two runs whose objective is capacity, by the first one's direction, confidence and margin."""
    first, second = (
        {
            row.setting: search_of(experiment, row.setting, analysis.trials)
            for row in analysis.settings
            if tried(analysis.trials, row.setting)
        }
        for experiment, analysis in zip(experiments, analyses, strict=True)
    )
    common = [setting for setting in first if setting in second]
    error = (1 - analyses[0].confidence) / max(1, len(common))
    session_half = sessions.half_width(analyses[0].confidence)
    return RunComparison.of(
        analyses[0],
        (capacity_change(of, first[of], second[of], TWO_RUNS, error, session_half=session_half) for of in common),
        only_first=tuple(setting for setting in first if setting not in second),
        only_second=tuple(setting for setting in second if setting not in first),
        warnings=tuple(warnings),
        sessions=sessions,
    )


def capacity_change(
    of: Setting, first: Search, second: Search, names: Sequence[str], error: float, *, session_half: float = 0.0
) -> Change:
    """The change of a setting's capacity from the first search to the second, judged by the first one's margin; no
    verdict by rates if they have different conditions. Failed starts come first, as under one load; but a second that
    holds its conditions nowhere, or fails more starts than it may, is not better, nor are two equivalent if either
    fails more than it may. `error`: the chance that the interval of the ratio may miss. `session_half`: by how much
    sessions may differ besides, on the log scale."""
    change = _by_rates(of, first, second, names, error, session_half=session_half)
    asked_first, asked_second = ({each.asked for each in side.objective.constraints} for side in (first, second))
    if change.comparable and asked_first != asked_second:
        because = "; ".join(filter(None, (change.because, "the two were asked to meet different conditions")))
        change = replace(change, verdict=Verdict.INCONCLUSIVE, because=because)
    starts = first.starts, second.starts
    allowed = [search.objective.allow_failed_starts for search in (first, second)]
    verdict, because = by_starts(starts, names, error)
    if verdict is Verdict.BETTER and second.nowhere:
        return change
    found = replace(change, verdict=verdict, because=because) if because else change
    judged = {Verdict.BETTER: (1,), Verdict.EQUIVALENT: (0, 1)}.get(found.verdict, ())
    barred = [side for side in judged if not is_allowed(starts[side].failed, starts[side].made, allowed[side], error)]
    if not barred:
        return found
    because = because or ", ".join(f"{names[side]} {failed_words(starts[side])}" for side in barred)
    return replace(change, verdict=Verdict.INCONCLUSIVE, because=because)


def _by_rates(
    of: Setting, first: Search, second: Search, names: Sequence[str], error: float, *, session_half: float
) -> Change:
    both = (first, second)
    found = [capacity_of(search) for search in both]
    estimates = [None if capacity is None else capacity.shown for capacity in found]
    before, after = estimates
    if before is None or after is None or first.open_above or second.open_above:
        words = [
            f"{name}: {'nothing was tried' if capacity is None else capacity.note}"
            for name, capacity in zip(names, found, strict=True)
        ]
        verdict = _without_estimates(first, second, found, error, session_half)
        shown = [known is not None and not known.at_least for known in estimates]
        because = "; ".join(said for said, known in zip(words, shown, strict=True) if not known)
        if None in found:  # a server that fails at every load is worse than one that holds some rate
            held = [capacity is not None and not search.nowhere for search, capacity in zip(both, found, strict=True)]
            verdict, because = unmeasured_pair([tried(each.trials, each.setting) for each in both], held, words, error)
        return Change(of, before, after, None, verdict, None, because, by_ranges=None not in found)
    gap = gap_between(second, first, error).widened(session_half)
    ratio = gap.ratio(1 - error, min(before.n, after.n))
    verdict = gap.verdict(math.log1p(first.objective.margin))
    smallest = smallest_difference(ratio, before, first.objective.metric, log=True)
    return Change(of, before, after, ratio, verdict, smallest)


def _without_estimates(
    first: Search, second: Search, found: Sequence[Capacity | None], error: float, session_half: float
) -> Verdict:
    """The verdict by the ranges in which the capacities lie: it may be certain even if the conditions hold at no rate,
    or at all that were tried."""
    a, b = (_range(search, capacity, error) for search, capacity in zip((first, second), found, strict=True))
    if a is None or b is None:
        return Verdict.INCONCLUSIVE
    allowed = (1 + first.objective.margin) * math.exp(session_half)
    if b[0] > a[1] * allowed:
        return Verdict.BETTER
    return Verdict.WORSE if a[0] > b[1] * allowed else Verdict.INCONCLUSIVE


def _range(search: Search, capacity: Capacity | None, error: float) -> tuple[float, float] | None:
    """The range in which the capacity lies, per second; None if nothing is known."""
    if capacity is None or not search.answers:
        return None
    if search.nowhere:
        return 0.0, search.floor_per_s
    if search.everywhere:
        return search.offered_per_s, math.inf
    low, high = search.edge.interval(1 - error)
    return 0.0 if search.unseen else math.exp(low), math.inf if search.open_above else math.exp(high)
