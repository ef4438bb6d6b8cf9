"""Counts how many of a setting's fresh starts failed by the server's own fault, and judges whether that is allowed:
failed starts are outcomes, too.

In: the trials of a run. Out: `Starts` of a setting; whether too many failed, also in words; which of two fails more.
A trial that the load engine or the machine spoilt says nothing of the server and counts as no start, nor does an
excused first start.
Method: docs/methods/failed-starts.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from math import comb

from powerband.analyze.stats.shares import share_least, share_most
from powerband.analyze.trial.faults import (
    fatal_codes,
    is_excused,
    is_failed_start,
    is_first_start,
    subjects_own,
    tried,
)
from powerband.base.units import plural
from powerband.model.plan import Setting, Stage
from powerband.model.results import Starts, TrialResult, Verdict

LUCK = 0.5
"""Up to this share of bad starts, one setting may show some and an equally bad one none: they are not told apart."""


def starts_of(
    results: Iterable[TrialResult], setting: Setting, confidence: float, codes: Collection[str] = ()
) -> Starts:
    """Counts the fresh starts of a setting, over every stage and attempt, and those of them that failed. `codes`: the
    problems that make a start a failed one; empty: all that are the server's own fault."""
    return _starts(tried(results, setting), confidence, codes)


def begun_in(whole: Iterable[TrialResult], results: Iterable[TrialResult]) -> list[TrialResult]:
    """Those of the results whose starts count, where only the `whole` blocks are compared: that a start failed is a
    fact in any block, but for a first start, which a later one may still excuse."""
    compared = {result.number for result in whole}
    return [result for result in results if result.number in compared or not is_first_start(result)]


def _starts(mine: Sequence[TrialResult], confidence: float, codes: Collection[str] = ()) -> Starts:
    bad = [result for result in mine if is_failed_start(result) and not is_excused(result, mine)]
    made = len(bad) + sum(result.valid for result in mine)
    bad = [result for result in bad if not codes or fatal_codes(result).intersection(codes)]
    wrong = sum("invariant" in fatal_codes(result) for result in bad)
    return Starts(made, len(bad), wrong, share_most(len(bad), made, 1 - confidence))


def only_fails(trials: Sequence[TrialResult]) -> bool:
    """True if a setting without a figure fails by its own fault: in some of its full trials, while the machine or the
    load engine spoilt the others, or in all of them. Where it had none, its short trials and first looks count."""
    full = [trial for trial in trials if trial.stage not in (Stage.SCREEN, Stage.EXPLORE)] or trials
    if any(map(is_failed_start, full)):
        return not any(trial.valid for trial in full)
    return bool(full) and all(map(subjects_own, full))


def failed_words(starts: Starts) -> str:
    """Words failed starts: `failed 5 of 8 starts`, or `computed wrongly in 5 of 8 starts` if all of these broke an
    invariant."""
    what = "computed wrongly in" if 0 < starts.wrong == starts.failed else "failed"
    return f"{what} {starts.failed} of {plural(starts.made, 'start')}"


def allowed_words(allowed: float) -> str:
    """The condition on failed starts, as the text of a constraint."""
    return "all starts must succeed" if allowed == 0 else f"at most {allowed:.3g} of the starts failed"


def is_allowed(bad: int, of: int, allowed: float, error: float) -> bool:
    """True if no start was bad, or the share of bad ones is certainly no more than `allowed` (a share from 0 to 1).
    `error`: the chance of a false answer that the judgement may take."""
    return bad == 0 or share_most(bad, of, error) <= allowed


def fails_more(first: Starts, second: Starts, error: float) -> bool:
    """True if the first certainly fails more of its starts than the second, by Fisher's exact test, one-sided (Fisher
    1935, "The logic of inductive inference", J. R. Statist. Soc. 98). `error`: its chance of a false answer."""
    failed, made = first.failed + second.failed, first.made + second.made
    if not failed or not first.made or not second.made:
        return False
    tail = sum(comb(first.made, k) * comb(second.made, failed - k) for k in range(first.failed, failed + 1))
    return tail / comb(made, failed) <= error


def verdict_by_starts(starts: Sequence[Starts], error: float) -> Verdict:
    """The verdict on the second of two by their failed starts: the one that certainly fails more is worse; inconclusive
    if neither does. `error`: the chance of a false answer that both directions take together."""
    for index, verdict in ((1, Verdict.WORSE), (0, Verdict.BETTER)):
        if fails_more(starts[index], starts[1 - index], error / 2):
            return verdict
    return Verdict.INCONCLUSIVE


def by_starts(starts: Sequence[Starts], names: Sequence[str], error: float) -> tuple[Verdict, str]:
    """The verdict of `verdict_by_starts`, and its reason, which is empty if neither certainly fails more."""
    verdict = verdict_by_starts(starts, error)
    told = (f"{name} {failed_words(each)}" for name, each in zip(names, starts, strict=True))
    return verdict, "" if verdict is Verdict.INCONCLUSIVE else ", ".join(told)


def unmeasured_pair(
    trials: Sequence[Sequence[TrialResult]], measured: Sequence[bool], words: Sequence[str], error: float
) -> tuple[Verdict, str]:
    """The verdict on the second of two against the first, and its reason, if at least one has no figure: one that fails
    by its own fault while the other serves is worse; where the other fails starts, too, or some of its own worked, as
    in short trials, only if it certainly fails more of them. `trials`: the trials of each. `measured`: True for each
    that has a figure. `words`: what to say of each that has none; the reason names only these. `error`: the chance of a
    false answer that it may take."""
    verdict, clauses = Verdict.INCONCLUSIVE, []
    for index in (0, 1):
        if measured[index]:
            continue
        mine = trials[index]
        told = [p for p in chain.from_iterable(trial.problems for trial in mine) if p.fatal or p.code == "few_requests"]
        message = max(told, key=lambda problem: problem.fatal).message if told else ""
        clauses.append(f"{words[index]}: {message}" if message else words[index])
        if not (measured[1 - index] and mine):
            continue
        own, other = _starts(mine, 1 - error), _starts(trials[1 - index], 1 - error)
        only_fails = all(map(subjects_own, mine))
        if (only_fails and not other.failed) or fails_more(own, other, error if only_fails else error / 2):
            verdict = Verdict.WORSE if index == 1 else Verdict.BETTER
        elif only_fails:
            clauses.append(f"the other {failed_words(other)}")
    return verdict, "; ".join(clauses)


def is_surely_more(bad: int, of: int, allowed: float, error: float) -> bool:
    """True if the share of bad starts is certainly more than `allowed`, and than `LUCK`."""
    return share_least(bad, of, error) > max(allowed, LUCK)
