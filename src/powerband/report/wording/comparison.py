"""A comparison of two runs, or two revisions of a server, for a terminal. In: values. Out: rich renderables."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from powerband.analyze.runs.changes import Change, RunComparison
from powerband.base.units import RATIO_SHOWN_MAX, percent, signed_percent, span
from powerband.model.metrics import margin_words, metric_words
from powerband.model.plan import Setting
from powerband.model.results import Verdict
from powerband.report.wording.numbers import ABSENT, format_estimate
from powerband.report.wording.words import gap_words


def render_comparison(comparison: RunComparison, *further: RenderableType) -> RenderableType:
    """The verdict, a row for each setting measured in both runs, `further` tables, names of the others, warnings."""
    table = Table(box=None, pad_edge=False)
    for heading in headings(comparison):
        name = heading == "setting"  # only this column folds on a narrow terminal: no figure may be cut
        justify: JustifyMethod = "left" if name or heading == "verdict" else "right"
        table.add_column(heading, justify=justify, no_wrap=not name, overflow="fold")
    for change in comparison.changes:
        table.add_row(*map(Text, change_cells(change, comparison)))
    warnings = [Text.assemble(("Warning: ", "yellow"), warning) for warning in comparison.warnings]
    style = {Verdict.WORSE: "bold red", Verdict.INCONCLUSIVE: "bold yellow"}.get(comparison.verdict, "bold green")
    notes = map(Text, comparison_notes(comparison))
    verdict = [Text(comparison.sentence, style=style), *map(Text, comparison.further)]
    return Group(*verdict, Text(), table, *further, Text(), *notes, *warnings)


def headings(comparison: RunComparison) -> tuple[str, ...]:
    """The heads of the columns that `change_cells` fills."""
    first, second = ("old", "new") if comparison.paired else ("first", "second")
    return "setting", first, second, "change", "interval", "smallest", "verdict"


def comparison_notes(comparison: RunComparison) -> list[str]:
    """The basis and meaning of the verdicts, and the settings that were not compared."""
    return [
        *change_reasons(comparison),
        comparison_note(comparison),
        *_absent("first", comparison.only_first),
        *_absent("second", comparison.only_second),
    ]


def change_reasons(comparison: RunComparison) -> list[str]:
    """Reasons for verdicts that do not rest on an interval, unless the sentence already gives them."""
    return [
        f"{change.setting.id}: {change.because}"
        for change in comparison.changes
        if change.because and change.because not in comparison.sentence
    ]


def comparison_note(comparison: RunComparison) -> str:
    """The meaning of the verdicts: what is compared, the confidence, the margin, and how drift was dealt with."""
    direction = "more" if comparison.direction == "maximise" else "less"
    drift = (
        "Both were measured in the same rounds, so drift of the machine cancels."
        if comparison.paired
        else comparison.sessions.sentence(comparison.confidence)
    )
    corrected = ", corrected for multiple comparisons" if len(comparison.changes) > 1 else ""
    return (
        f"{comparison.names[1]} is compared with {comparison.names[0]}, at {percent(comparison.confidence)} "
        f"confidence{corrected}. They are judged by {metric_words(comparison.objective)}: {direction} is better. "
        f"Differences within {margin_words(comparison.margin, comparison.objective)} count as none; those below "
        f"`smallest` would most likely stay inconclusive. {drift}"
    )


def change_cells(change: Change, comparison: RunComparison) -> list[str]:
    """Setting, first, second, change, its interval, the smallest detectable difference, and the verdict."""
    return [
        change.setting.id,
        format_estimate(change.first, comparison.objective),
        format_estimate(change.second, comparison.objective),
        gap_words(change.ratio, change.first, change.second, comparison.objective),
        _interval(change, comparison),
        _smallest(change, comparison),
        change.verdict.value,
    ]


def _smallest(change: Change, comparison: RunComparison) -> str:
    found = change.smallest_difference
    if found is None:
        return ABSENT
    most = RATIO_SHOWN_MAX - 1
    shown = f"over {100 * most:.3g}" if found > most else f"{100 * found:.{comparison.places_of(change)}f}"
    return f"{shown} {'pts' if comparison.shares else '%'}"


def _interval(change: Change, comparison: RunComparison) -> str:
    """The interval of the change, in percent or percentage points; a dash if there are too few trials or no ratio."""
    ratio = change.ratio
    if ratio is None or ratio.low is None or ratio.high is None:
        return ABSENT
    base, places = comparison.base_of(change), comparison.places_of(change)
    ends = span(signed_percent(end, base, places) for end in (ratio.low, ratio.high))
    return f"{ends} {'pts' if comparison.shares else '%'}"


def _absent(which: str, settings: Iterable[Setting]) -> list[str]:
    names = [setting.id for setting in settings]
    return [f"Measured in the {which} run only: {'; '.join(names)}"] if names else []
