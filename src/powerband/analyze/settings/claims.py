"""Judges an experiment's claims by its trials: held, refuted or undecided, with an interval over blocks.

In: an experiment and the results of its trials, in any order. Out: one `ClaimResult` for each claim. The grammar is
`claim_expression.py`; the statistics, their sources, and what they do not say: docs/methods/claims.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from powerband.analyze.settings.contest import compared, window_ns_of
from powerband.analyze.settings.counting import counted_share
from powerband.analyze.settings.starts import begun_in, failed_words, is_allowed, starts_of
from powerband.analyze.stats.intervals import SD_FLOOR, Scale, exp
from powerband.analyze.stats.special import Array, student_t
from powerband.analyze.stats.spending import share_at
from powerband.base.arithmetic import ROUNDING, Arithmetic, Number, value
from powerband.base.units import capital, format_value
from powerband.loads import kind_of
from powerband.loads.measured import is_lower_bound, least_of
from powerband.model.claim_expression import (
    OPERATORS,
    Case,
    ClaimComparison,
    Reference,
    Term,
    parse_claim,
    parts_of,
    unit_of,
)
from powerband.model.experiment import Claim, Experiment
from powerband.model.metrics import METRICS, metric_words
from powerband.model.plan import Setting, Stage
from powerband.model.results import ClaimPart, ClaimResult, ClaimVerdict, Estimate, TrialResult

HELD, REFUTED, UNDECIDED = ClaimVerdict.HELD, ClaimVerdict.REFUTED, ClaimVerdict.UNDECIDED
_OPPOSITE = {HELD: REFUTED, REFUTED: HELD, UNDECIDED: UNDECIDED}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_SIDE_MAX = 1e100  # its square is still a float
_FAR = 1e6  # times a value that may be worse: a verdict that stands there, too, stands wherever the value is

Cells = Mapping[tuple[Setting, int], TrialResult]
Moved = Callable[[Reference, float], float]
"""The value that stands for a measured one."""


def judge_claims(
    experiment: Experiment, results: Sequence[TrialResult], *, started: Sequence[TrialResult] | None = None
) -> tuple[ClaimResult, ...]:
    """Every claim, in the experiment's order; never raises for what results hold.

    Only valid trials count, and of several attempts at one setting in one block the last one; if more starts of a
    setting failed than may, only a verdict that worse figures of it would not change. All intervals of one claim hold
    at once with the experiment's confidence; several claims are not corrected for one another. `started`: also the
    results of blocks that are not whole, if there may be some: their failed starts count (`begun_in`)."""
    cells = compared(experiment, results)
    full = {result.setting for result in results if result.stage is Stage.COMPARE}
    short = {r.setting for r in results if r.valid and r.stage in (Stage.SCREEN, Stage.EXPLORE)} - full
    kept = experiment.kept() if experiment.claims else {}
    begun = begun_in(results, results if started is None else started)
    return tuple(_judge(claim, experiment, kept, cells, short, begun=begun) for claim in experiment.claims)


@dataclass(frozen=True)
class _Rule:
    """How a claim is judged. `error`: that of one interval, so that all intervals of the claim hold together. `short`:
    settings with valid trials, but short ones and first looks alone. `begun`: all trials whose starts count, since
    failed starts are outcomes, too."""

    experiment: Experiment
    error: float
    short: Collection[Setting]
    begun: Sequence[TrialResult]

    @property
    def margin(self) -> float:
        return self.experiment.objective.margin


def _judge(
    claim: Claim,
    experiment: Experiment,
    kept: Mapping[Setting, Setting],
    cells: Cells,
    short: Collection[Setting],
    *,
    begun: Sequence[TrialResult],
) -> ClaimResult:
    wanted = parts_of(parse_claim(claim.holds), kept)
    if not wanted:
        sentence = "No setting of the run has these values, or the server does not read them."
        return ClaimResult(claim.id, claim.says, claim.holds, claim.published, UNDECIDED, sentence, ())
    objective = experiment.objective
    # A race ends when it has seen enough: so its claims, too, spend only their look's share of the error.
    share = share_at(experiment, len({block for _, block in cells}), window_ns=window_ns_of(cells.values()))
    error = share * (1 - objective.confidence) / len(wanted)
    rule = _Rule(experiment, error, short, begun)
    parts = tuple(_part(comparison, where, case, cells, rule) for comparison, where, case in wanted)
    verdicts = {part.verdict for part in parts}
    verdict = REFUTED if REFUTED in verdicts else UNDECIDED if UNDECIDED in verdicts else HELD
    sentence = _summary(parts, verdict)
    return ClaimResult(claim.id, claim.says, claim.holds, claim.published, verdict, sentence, parts)


def _part(comparison: ClaimComparison, where: str, case: Case, cells: Cells, rule: _Rule) -> ClaimPart:
    base = partial(ClaimPart, comparison=comparison.text, where=where)
    balanced = _balanced(comparison)
    unit = _shared_unit(balanced)

    def judged_with(worse: Moved = lambda _, measured: measured) -> tuple[_Judged, int]:
        def sides_with(moved: Moved) -> tuple[Array, Array]:
            def moved_and_worse(reference: Reference, measured: float) -> float:
                return worse(reference, moved(reference, measured))

            return _sides(balanced, case, cells, moved_and_worse, rule.short)

        sides = sides_with(lambda _, measured: measured)
        judged = _against_zero(balanced, sides[0], unit)
        if judged is None:
            counting_error = partial(_counting_error, balanced, case, cells, rule.experiment)
            judged = _measured(balanced, sides, unit, rule, counting_error=counting_error, sides_with=sides_with)
        return judged, len(sides[0])

    try:
        judged, blocks = judged_with()

        def stands(those: Collection[Reference]) -> bool:
            changes = (partial(_worsened, those, more=more) for more in (True, False))
            return all(judged_with(worse)[0].verdict is judged.verdict for worse in changes)

        bounds = _lower_bounds(balanced, case, cells)
        if bounds and (balanced.op in ("==", "!=") or not all(stands([bound]) for bound in bounds)):
            raise _CannotSayError(_bound_words(bounds[0], case, cells), blocks)
        failing = _failing(balanced, case, rule)
        if not all(map(stands, failing.values())):
            raise _CannotSayError(" and ".join(failing), blocks)
    except _CannotSayError as reason:
        return base(verdict=UNDECIDED, left=None, right=None, unit=unit, scale="difference", interval=None,
                    blocks=reason.blocks, sentence=f"{reason}.")  # fmt: skip
    sentences = [_sentence(judged, unit, blocks, reckoned=_reckoned(comparison.text))]
    sentences += [f"{_bound_words(bound, case, cells)}." for bound in bounds]
    sentences += [f"{said}." for said in failing]
    return base(verdict=judged.verdict, left=judged.left, right=judged.right, unit=unit, scale=judged.scale,
                interval=judged.interval, blocks=blocks,
                sentence=" ".join(sentences))  # fmt: skip


class _CannotSayError(Exception):
    """Raised if a comparison has no verdict: the reason, in words without a full stop, and the number of usable
    blocks."""

    def __init__(self, words: str, blocks: int) -> None:
        super().__init__(words)
        self.blocks = blocks


def _balanced(comparison: ClaimComparison) -> ClaimComparison:
    """Turns `a - b > 0` into `a > b`, which says the same and can be judged as a ratio, and puts zeros on the right.
    `a - b == 0` of counts stays: it says that nothing is lost, where `a == b` allows for the margin."""
    if _is_zero(comparison.left) and not _is_zero(comparison.right):
        op, text = _MIRRORED[comparison.op], comparison.text
        comparison = ClaimComparison(op, comparison.right, comparison.left, text)
    match comparison.left:
        case Arithmetic("-", left, right) if _is_zero(comparison.right) and not _is_exact(comparison):
            return replace(comparison, left=left, right=right)
    return comparison


def _is_exact(comparison: ClaimComparison) -> bool:
    """True if counts alone are said to be equal, or not to be: these have no error of measurement."""
    units = {METRICS[reference.metric].unit for reference in comparison.references}
    return comparison.op in ("==", "!=") and units == {"count"}


def _is_zero(term: Term) -> bool:
    return isinstance(term, Number) and term.value == 0


def _worsened(those: Collection[Reference], reference: Reference, measured: float, *, more: bool) -> float:
    """The value of a reference, far worse in those of `those`. `more`: True for a larger one where it is not known
    whether more or less of the metric is better."""
    if reference not in those:
        return measured
    better = METRICS[reference.metric].better
    if better == "minimise" or (better is None and more):
        return measured + _FAR * (abs(measured) or 1.0)
    return measured / _FAR


def _failing(comparison: ClaimComparison, case: Case, rule: _Rule) -> dict[str, list[Reference]]:
    """The references to settings of which more starts failed than may, by what to say of the setting: the rounds that
    count are those in which it worked."""
    objective, found = rule.experiment.objective, dict[str, list[Reference]]()
    for reference in dict.fromkeys(comparison.references):
        setting = case[reference]
        starts = starts_of(rule.begun, setting, objective.confidence)
        if starts.wrong or not is_allowed(starts.failed, starts.made, objective.allow_failed_starts, rule.error):
            found.setdefault(f"{setting.id} {failed_words(starts)}", []).append(reference)
    return found


def _lower_bounds(comparison: ClaimComparison, case: Case, cells: Cells) -> list[Reference]:
    """The references to times that are only lower bounds in some trial, and to metrics that some trial lacks."""

    def is_bound(reference: Reference) -> bool:
        metric, mine = reference.metric, _trials_of(case[reference], cells)
        return any(is_lower_bound(metric, each) for each in mine) or _is_lacking(metric, mine)

    return list(filter(is_bound, dict.fromkeys(comparison.references)))


def _trials_of(setting: Setting, cells: Cells) -> list[Mapping[str, float]]:
    return [result.metrics for (of, _), result in cells.items() if of == setting]


def _is_lacking(metric: str, trials: Sequence[Mapping[str, float]]) -> bool:
    """True if some of the trials lack the metric, but not all: these may be the slowest, with too few requests for a
    percentile, or users that did not finish."""
    return 0 < sum(metric in each for each in trials) < len(trials)


def _bound_words(bound: Reference, case: Case, cells: Cells) -> str:
    what = f"{capital(metric_words(bound.metric))} of {case[bound].id}"
    trials = _trials_of(case[bound], cells)
    if _is_lacking(bound.metric, trials):
        few = any(bound.metric not in each and least_of(bound.metric, each) is not None for each in trials)
        why = "some trials had too few requests for it" if few else "some trials did not measure it"
        return f"{what} is not known of all rounds: {why}"
    return f"{what} is only a lower bound: too many requests got no correct response"


def _sides(
    comparison: ClaimComparison,
    case: Case,
    cells: Cells,
    moved: Moved,
    short: Collection[Setting],
) -> tuple[Array, Array]:
    """The values of both sides in every block that has all their metrics: settings are paired within blocks."""
    references = comparison.references
    usable = [
        block
        for block in sorted({block for _, block in cells})
        if all(
            (found := cells.get((case[reference], block))) and reference.metric in found.metrics
            for reference in references
        )
    ]
    if len(usable) < 2:
        raise _CannotSayError(_lacking(references, case, cells, len(usable), short), len(usable))
    pairs = []
    for block in usable:

        def value_of(reference: Reference, block: int = block) -> float:
            return moved(reference, cells[case[reference], block].metrics[reference.metric])

        try:
            pair = (value(comparison.left, value_of), value(comparison.right, value_of))
        except ZeroDivisionError:
            raise _CannotSayError(f"In round {block + 1} it divides by zero", len(usable)) from None
        if not all(abs(side) < _SIDE_MAX for side in pair):
            raise _CannotSayError(f"In round {block + 1} a side is too large to compute with", len(usable))
        pairs.append(pair)
    left, right = np.array(pairs, dtype=float).T
    return left, right


def _lacking(
    references: Sequence[Reference],
    case: Case,
    cells: Cells,
    usable: int,
    short: Collection[Setting],
) -> str:
    for reference in references:
        setting = case[reference]
        mine = [result for (of, _), result in cells.items() if of == setting]
        if not mine and setting in short:
            return f"No full trial of {setting.id} was run in the race; short ones and first looks do not count"
        if not mine:
            return f"No trial of {setting.id} was valid"
        if not any(reference.metric in result.metrics for result in mine):
            return f"No valid trial of {setting.id} measured {metric_words(reference.metric)}"
    several = len({case[reference] for reference in references}) > 1
    what = "a valid trial of each setting that it compares" if several else "a valid trial of it"
    blocks = f"Only {usable} round has" if usable else "No round has"
    return f"{blocks} {what}; an interval needs two"


@dataclass(frozen=True)
class _Judged:
    verdict: ClaimVerdict
    left: float
    right: float
    scale: str
    interval: Estimate | None
    why: str = ""
    clock: str = ""  # of the load, if it makes half of the interval or more: a clause


def _against_zero(comparison: ClaimComparison, left: Array, unit: str) -> _Judged | None:
    """Judges a comparison of a side that is never below zero with zero: one block that is not zero shows that the mean
    is not, and zero in every block is taken as zero. None for all other comparisons, which an interval decides: also
    those of a metric that was below zero, such as a growth."""
    if not (_is_zero(comparison.right) and _never_negative(comparison.left)) or (left < 0).any():
        return None
    seen = int((left > 0).sum())
    is_zero = HELD if seen == 0 else REFUTED
    verdict = {"==": is_zero, "<=": is_zero, "!=": _OPPOSITE[is_zero], ">": _OPPOSITE[is_zero], ">=": HELD}
    why = f"zero in all {len(left)} rounds" if seen == 0 else f"above zero in {seen} of {len(left)} rounds"
    if seen:
        why += f", {_shown(float(left.mean()), unit)} on average"
    return _Judged(verdict.get(comparison.op, REFUTED), float(left.mean()), 0.0, "count", None, why)


def _never_negative(term: Term) -> bool:
    """True if a term has no minus: few metrics, and no written numbers, are below zero."""
    return not isinstance(term, Arithmetic) or (
        term.op != "-" and _never_negative(term.left) and _never_negative(term.right)
    )


def _counting_error(
    comparison: ClaimComparison,
    case: Case,
    cells: Cells,
    experiment: Experiment,
    confidence: float,
) -> tuple[float, float]:
    """Returns how far the true difference may lie below and above the measured one by the number of requests alone, if
    a share of them is compared with a number; else (0, 0)."""
    match comparison.left, comparison.right:
        case (Reference() as share, Number()) | (Number(), Reference() as share):
            mine = [result for (of, _), result in cells.items() if of == case[share]]
        case _:
            return 0.0, 0.0
    trials = [result.metrics for result in mine if share.metric in result.metrics]
    measured = experiment.loaded_for(case[share]).measured_for(window_ns_of(mine))
    mean = float(np.mean([metrics[share.metric] for metrics in trials]))
    same = Estimate(mean, mean, mean, confidence, len(trials))
    low, high = counted_share(measured, share.metric, same, trials).ends
    return (mean - low, high - mean) if share == comparison.left else (high - mean, mean - low)


def _measured(
    comparison: ClaimComparison,
    sides: tuple[Array, Array],
    unit: str,
    rule: _Rule,
    *,
    counting_error: Callable[[float], tuple[float, float]],
    sides_with: Callable[[Moved], tuple[Array, Array]],
) -> _Judged:
    left, right = sides
    units = {METRICS[reference.metric].unit for reference in comparison.references}
    log = "ratio" not in units and bool((left > 0).all() and (right > 0).all())
    differences = _differences(sides, log=log)
    clock_below, clock_above = _clock_error(comparison, sides_with, differences, rule.experiment, log=log)
    # Counts are exact, so that equal ones prove something; rates and times are read off finite windows and histograms.
    floor = SD_FLOOR if log and units - {"count"} else 0.0
    back = exp if log else float
    middle = [back(float(np.log(side).mean())) if log else float(side.mean()) for side in (left, right)]

    def interval(error: float) -> tuple[float, float, Estimate]:
        mean, half = float(differences.mean()), _half(differences, 1 - error, floor)
        below, above = (0.0, 0.0) if log else counting_error(1 - error)
        low, high = mean - max(half, below) - clock_below, mean + max(half, above) + clock_above
        return low, high, Estimate(back(mean), back(low), back(high), 1 - error, len(left))

    low, high, estimate = interval(rule.error)
    if comparison.op in ("==", "!="):
        margin = math.log1p(rule.margin) if log else rule.margin * (1 if unit == "ratio" else abs(middle[1]))
        inner_low, inner_high, inner = interval(min(2 * rule.error, 0.99))
        same = UNDECIDED
        if low > margin or high < -margin:
            same = REFUTED
        elif -margin <= inner_low and inner_high <= margin:
            same, estimate = HELD, inner
        verdict = same if comparison.op == "==" else _OPPOSITE[same]
    else:
        compare = OPERATORS[comparison.op]
        truths = {compare(end, 0.0) for end in (low, high)}
        verdict = UNDECIDED if len(truths) == 2 else HELD if True in truths else REFUTED
    coarse = clock_below + clock_above >= (high - low) / 2
    clock = _clock_words(comparison, rule.experiment) if coarse else ""
    return _Judged(verdict, middle[0], middle[1], "ratio" if log else "difference", estimate, clock=clock)


def _differences(sides: tuple[Array, Array], *, log: bool) -> Array:
    """The left side less the right one in each block, of logarithms if `log`; a side that is not above zero there is
    taken as the smallest that there is."""
    left, right = (np.log(np.where(side > 0, side, 1 / _SIDE_MAX)) if log else side for side in sides)
    return np.where(np.isclose(*sides, rtol=ROUNDING, atol=0.0), 0.0, left - right)


def _clock_error(
    comparison: ClaimComparison,
    sides_with: Callable[[Moved], tuple[Array, Array]],
    differences: Array,
    experiment: Experiment,
    *,
    log: bool,
) -> tuple[float, float]:
    """Returns how far the true mean difference may lie below and above that of `differences`, since the load's clock is
    coarse: each time that it took may be off, in all rounds alike, by as much as in a contest of settings."""
    scale, below, above = Scale(log=log, relative=True), 0.0, 0.0
    for reference in dict.fromkeys(comparison.references):
        error = kind_of(experiment).clock_error(reference.metric)
        for off in (-error, error) if error else ():
            moved = _differences(sides_with(partial(_off_by, off, reference, scale)), log=log)
            change = float((moved - differences).mean())
            below, above = below - min(0.0, change), above + max(0.0, change)
    return below, above


def _off_by(error: float, which: Reference, scale: Scale, reference: Reference, measured: float) -> float:
    """The value of a reference, as if the clock had been off by `error`, up or down, in those of `which`."""
    if reference != which:
        return measured
    blur = math.copysign(float(scale.blur([measured], abs(error))[0]), error)
    return measured * math.exp(blur) if scale.log else measured + blur


def _clock_words(comparison: ClaimComparison, experiment: Experiment) -> str:
    """A clause on the steps in which the load's clock counts a time of the comparison; empty if it is not coarse."""
    words = (kind_of(experiment).clock_words(reference.metric) for reference in comparison.references)
    return next(filter(None, words), "")


def _half(differences: Array, confidence: float, floor: float) -> float:
    """Half-width of Student's t interval for a mean (Student 1908)."""
    sd = float(differences.std(ddof=1))
    if np.ptp(differences) == 0:
        sd = 0.0  # rounding of the mean must not make equal values differ
    return student_t(confidence, len(differences) - 1) * max(sd, floor) / math.sqrt(len(differences))


def _shared_unit(comparison: ClaimComparison) -> str:
    """The unit of both sides; empty for plain numbers, and where the sides do not agree."""
    units = {unit for unit in map(unit_of, (comparison.left, comparison.right)) if unit is not None}
    return units.pop() if len(units) == 1 else ""


def _summary(parts: Sequence[ClaimPart], verdict: ClaimVerdict) -> str:
    """The sentence of the only part, or of the first part that decides, with the number of parts. Sides that are not
    just measured but computed (`0.9 * goodput[...]`) are shown as their expression."""
    if len(parts) == 1:
        first = parts[0]
        return f"{first.comparison}: {first.sentence}" if _reckoned(first.comparison) else first.sentence
    deciding = [part for part in parts if part.verdict is verdict]
    named = f"{deciding[0].comparison}{f' at {deciding[0].where}' if deciding[0].where else ''}"
    count = f"All {len(parts)}" if verdict is HELD else f"{len(deciding)} of {len(parts)}"
    are = "is" if count.startswith("1 ") else "are"
    return f"{count} comparisons {are} {verdict.words}; {named}: {deciding[0].sentence}"


def _reckoned(comparison: str) -> bool:
    """True if the sides are not just measured but computed."""
    return "*" in comparison or "+" in comparison


def _sentence(judged: _Judged, unit: str, blocks: int, *, reckoned: bool) -> str:
    """The sentence of a comparison. `reckoned`: its sides are computed, so that their ratio needs their names."""
    found = judged.interval
    if found is None or found.low is None or found.high is None:
        return f"It was {judged.why}."
    left, right = _shown(judged.left, unit), _shown(judged.right, unit)
    figures = (found.value, found.low, found.high)
    if judged.scale == "ratio":
        if reckoned:
            left, right = f"the left side, {left},", f"the right side, {right}"
        middle, low, high = map(_digits, figures)
        measured = f"{left} is {middle} times {right}"
    else:
        middle, low, high = (_difference(figure, unit) for figure in figures)
        measured = f"{left} against {right}, a difference of {middle}"
    why = f", since {judged.clock}" if judged.clock else ": more rounds would decide"
    open_ended = f". The interval includes both{why}" if judged.verdict is UNDECIDED else ""
    if found.low == found.high:
        return f"{measured} in each of {blocks} rounds."
    sure = f"{found.confidence * 100:.4g} % interval {low} to {high}, over {blocks} rounds"
    return f"{measured} ({sure}){open_ended}."


def _shown(value: float, unit: str) -> str:
    """The value with its unit; counts have no decimals if they are whole but for the rounding of logarithms."""
    whole = unit == "count" and abs(value - round(value)) < 1e-6 * max(1.0, abs(value))
    return f"{value:,.0f}" if whole else format_value(value, unit)


def _difference(value: float, unit: str) -> str:
    """The difference with its unit; those of shares are in points, since a percentage could be taken for a ratio."""
    return f"{format_value(value, unit).removesuffix('%')}points" if unit == "ratio" else _shown(value, unit)


def _digits(value: float) -> str:
    return f"{value:.4g}" if value < 10_000 or value >= 1e9 else f"{value:,.0f}"
