"""Writes one paragraph on what was found, from the figures by rules: which claims of a publication stand, how much
settings differ, what limits each, and how the published figures compare.

In: an `Analysis` without it. Out: sentences; none for an experiment that claims nothing and cites no figures. Nothing
is judged here: every verdict was made elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from powerband.analyze.settings.standing import names, sentence, verb
from powerband.base.units import format_value, joined, plural, significant
from powerband.model.metrics import METRICS, metric_words
from powerband.model.plan import Setting
from powerband.model.results import (
    Analysis,
    ClaimResult,
    ClaimVerdict,
    Estimate,
    PublishedTable,
)

_RATIO_SHOWN_MAX = 100.0  # times the ratio itself: an end beyond it says nothing
_WHOLE_FROM = 100.0  # a ratio has no decimals
_LISTED = 3  # claims of one kind that are listed one by one


def found_sentences(analysis: Analysis) -> tuple[str, ...]:
    """Returns the paragraph, one sentence each; empty without claims and published figures."""
    if not analysis.claims and not analysis.published:
        return ()
    if not any(trial.valid for trial in analysis.trials):
        return ("No trial counts, so nothing was found.",)
    return (*_tally(analysis.claims), *_spread(analysis), *_limits(analysis), *published_sentences(analysis.published))


def _tally(claims: Sequence[ClaimResult]) -> Iterator[str]:
    """Says how many claims are confirmed; each refuted one is given with what was measured."""
    if not claims:
        return
    kinds = {verdict: [claim for claim in claims if claim.verdict is verdict] for verdict in ClaimVerdict}
    parts = [f"{len(found)} {verdict.words}" for verdict, found in kinds.items() if found]
    yield f"Claims: {joined(parts)}."
    if confirmed := kinds[ClaimVerdict.HELD]:
        yield f"Confirmed: {_listed(confirmed)}."
    for claim in kinds[ClaimVerdict.REFUTED]:
        published = f" (published: {claim.published})" if claim.published else ""
        yield f"Refuted: {_lower(claim.says)}{published}; {_lower(claim.sentence.rstrip('.'))}."
    if open_ones := kinds[ClaimVerdict.UNDECIDED]:
        yield f"Inconclusive: {_listed(open_ones)}."


def _spread(analysis: Analysis) -> Iterator[str]:
    """The most and the least of the objective, and by what factor they differ; nothing if the least time is only a
    lower bound."""
    metric = analysis.objective
    rows = [row for row in analysis.settings if metric in row.shown and row.feasible]
    if len(rows) < 2:
        return
    order = sorted(rows, key=lambda row: row.estimates[metric].value, reverse=analysis.direction == "maximise")
    best, worst = order[0], order[-1]
    if best.estimates[metric].at_least:
        return
    ends, unit = [row.estimates[metric] for row in (best, worst)], METRICS[metric].unit
    most, least = (f"{'at least ' if end.at_least else ''}{format_value(end.value, unit)}" for end in ends)
    text = f"{best.setting.id} had the best {metric_words(metric)}, {most}, and {worst.setting.id} the worst, {least}"
    low, high = sorted(end.value for end in ends)
    has_ratio = low > 0 and unit != "ratio" and not any(end.at_least for end in ends)
    factor = f": a factor of {short_ratio(high / low)}" if has_ratio else ""
    both = {best.setting, worst.setting} <= set(analysis.answer.equivalent)
    yield f"{text}{factor}{' (still equivalent)' if both else ''}."


def _limits(analysis: Analysis) -> Iterator[str]:
    """Settings by what limits them."""
    by_name: dict[str, list[Setting]] = {}
    for row in analysis.settings:
        if row.bottleneck is not None:
            by_name.setdefault(row.bottleneck.name.words, []).append(row.setting)
    if not by_name:
        return
    if len(by_name) == 1 and len(next(iter(by_name.values()))) == len(analysis.settings) > 1:
        yield sentence(f"With every setting {next(iter(by_name))}")
        return
    yield sentence("; ".join(f"with {names(settings)} {words}" for words, settings in by_name.items()))


def published_sentences(tables: Sequence[PublishedTable]) -> Iterator[str]:
    """Says for each table how many of the published ratios lie within our intervals, and which is farthest off."""
    for table in tables:
        judged = [
            (row, row.published_ratio, row.our_ratio)
            for row in table.rows
            if row.name != table.base and row.published_ratio is not None and row.our_ratio is not None
        ]
        judged = [(row, theirs, ours) for row, theirs, ours in judged if ours.low is not None]
        if not judged or table.base is None:
            continue
        within = [row for row, theirs, ours in judged if _holds(ours, theirs)]
        text = (
            f"As ratios to {table.base}, {len(within)} of {plural(len(judged), 'published figure')} for "
            f"{metric_words(table.metric)} {verb(judged, 'lies', 'lie')} within the measured intervals"
        )
        if outside := [(row, theirs, ours) for row, theirs, ours in judged if row not in within]:
            row, theirs, ours = max(outside, key=lambda found: _distance(found[1], found[2].value))
            text += f"; farthest off is {row.name}: published {short_ratio(theirs)}, here {ratio_words(ours)}"
        yield f"{text}."


def ratio_words(ratio: Estimate) -> str:
    """Words a ratio: `1.02 (0.98 to 1.06)`; a far end of few noisy trials is not written in full, if the low one shows
    that it is by far more than 0."""
    if ratio.low is None or ratio.high is None:
        return short_ratio(ratio.value)
    far = ratio.low > 0 and ratio.high >= _RATIO_SHOWN_MAX * ratio.value
    low, high = short_ratio(ratio.low), "any" if far else short_ratio(ratio.high)
    return short_ratio(ratio.value) + (f" ({low} to {high})" if low != high else "")


def short_ratio(ratio: float) -> str:
    """Three significant digits without zeros at the end, or all digits of a large one's whole part: `1.2`, `1,234`."""
    return significant(ratio) if abs(ratio) >= _WHOLE_FROM else f"{ratio:.3g}"


def _holds(ours: Estimate, published: float) -> bool:
    return ours.low is not None and ours.high is not None and ours.low <= published <= ours.high


def _distance(theirs: float, ours: float) -> float:
    return float("inf") if theirs <= 0 or ours <= 0 else max(ours / theirs, theirs / ours)


def _listed(claims: Sequence[ClaimResult]) -> str:
    shown = [_lower(claim.says) for claim in claims[:_LISTED]]
    return "; ".join([*shown, *([f"and {len(claims) - _LISTED} more"] if len(claims) > _LISTED else [])])


def _lower(text: str) -> str:
    """The text as it is written within a sentence; names such as `JVM` and `core=30` stay as they are."""
    named = (text[:2].isalpha() and text[:2].isupper()) or "=" in text.partition(" ")[0]
    return text if named else text[:1].lower() + text[1:]
