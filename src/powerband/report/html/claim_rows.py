"""The claims of an experiment on the HTML page, with findings and published figures. In: results. Out: escaped text.
Nothing is judged here."""

from __future__ import annotations

from html import escape

from powerband.base.units import capital
from powerband.model.metrics import metric_words
from powerband.model.results import Analysis, ClaimPart, ClaimResult, ClaimVerdict, PublishedTable
from powerband.report.html.figure_parts import scrolling, table, wrapping
from powerband.report.wording.findings import published_cells
from powerband.report.wording.numbers import ABSENT

_TONES = {ClaimVerdict.HELD: "good", ClaimVerdict.REFUTED: "bad", ClaimVerdict.UNDECIDED: "unsure"}
_LONG_EXPRESSION = 120  # characters: arbitrary, three lines of its column


def claims_table(analysis: Analysis) -> str:
    """Each claim with the published figure, the measured one, and the verdict; empty if there are no claims."""
    if not analysis.claims:
        return ""
    published = any(claim.published for claim in analysis.claims)
    names = ["claim", *(["published"] if published else []), "measured", "verdict"]
    heads = "".join(f'<th scope="col" class="words">{name}</th>' for name in names)
    rows = "".join(_row(claim, published=published) for claim in analysis.claims)
    shown = f'<table class="claims"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'
    return (
        '<p class="lead">The experiment’s claims, judged by the differences within each round. Confirmed: the '
        "whole interval agrees; refuted: none of it does.</p>" + scrolling("Claims", shown)
    )


def found_section(analysis: Analysis) -> str:
    """One paragraph, and the published figures beside the measured ones; empty if nothing is claimed or cited."""
    if not analysis.found:
        return ""
    return f"<p>{wrapping(' '.join(analysis.found))}</p>{''.join(map(_published, analysis.published))}"


def _published(cited: PublishedTable) -> str:
    heads = ["setting", "published", "here", "published, as a ratio", "here, as a ratio"]
    rows = [(row.name, *published_cells(row, cited)) for row in cited.rows]
    note = f" Published figures: {cited.note}." if cited.note else ""
    base = f"Ratios are to {cited.base}, for machines differ; ours are paired within rounds." if cited.base else ""
    return (
        f'<h3>{escape(capital(metric_words(cited.metric)))}</h3><p class="lead">{escape(base + note)}</p>'
        + scrolling("Published figures", table(heads, rows))
    )


def _row(claim: ClaimResult, *, published: bool) -> str:
    said = f'<td class="words">{escape(claim.published or ABSENT)}</td>' if published else ""
    more = ""
    if len(claim.parts) > 1:
        parts = "".join(f"<li>{_part(part)}</li>" for part in claim.parts)
        more = f"<details><summary>All {len(claim.parts)} comparisons</summary><ul>{parts}</ul></details>"
    return (
        f'<tr><th scope="row">{escape(claim.says)}{_written(claim.holds)}</th>{said}'
        f'<td class="words">{wrapping(claim.sentence)}{more}</td>'
        f'<td class="words {_TONES[claim.verdict]}">{escape(claim.verdict.words)}</td></tr>'
    )


def _written(expression: str) -> str:
    """The expression; a long one is folded away, since it would make the column taller than the rest of its claim."""
    if len(expression) <= _LONG_EXPRESSION:
        return f"<small>{wrapping(expression)}</small>"
    return f"<details><summary>As it is checked</summary><small>{wrapping(expression)}</small></details>"


def _part(part: ClaimPart) -> str:
    where = f" at {part.where}" if part.where else ""
    return (
        f'<b class="{_TONES[part.verdict]}">{escape(part.verdict.words)}</b> '
        f"{wrapping(part.comparison)}{escape(where)}: {wrapping(part.sentence)}"
    )
