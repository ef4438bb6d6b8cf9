"""Two runs side by side, for a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from powerband.analyze.between import Change, RunComparison
from powerband.metrics import METRICS
from powerband.plan import Setting
from powerband.report.numbers import ABSENT, format_estimate
from powerband.report.words import gap_words, margin_words


def render_comparison(comparison: RunComparison) -> RenderableType:
    """A row for each setting that both runs measured, and the names of the others."""
    table = Table(box=None, pad_edge=False)
    for heading in ("setting", f"{comparison.objective}, first", "second", "change", "interval", "verdict"):
        table.add_column(heading, justify="left" if heading in ("setting", "verdict") else "right")
    for change in comparison.changes:
        table.add_row(*_row(change, comparison))
    direction = "more" if comparison.direction == "maximise" else "less"
    notes = [
        f"Verdicts are the second run's towards the first, at {comparison.confidence:.0%} confidence for all settings "
        f"together; {direction} {METRICS[comparison.objective].name} is better; differences within "
        f"{margin_words(comparison.margin, comparison.objective)} count as none. "
        "What the machine did meanwhile counts as a difference too.",
        *_absent("first", comparison.only_first),
        *_absent("second", comparison.only_second),
    ]
    return Group(table, Text(), *(Text(note) for note in notes))


def _row(change: Change, comparison: RunComparison) -> list[str]:
    return [
        change.setting.id,
        format_estimate(change.first, comparison.objective),
        format_estimate(change.second, comparison.objective),
        gap_words(change.ratio, change.first, change.second, comparison.objective),
        _interval(change, comparison.objective),
        change.verdict.value,
    ]


def _interval(change: Change, objective: str) -> str:
    """Of the change, in percent or percentage points; a dash where there are too few trials, or no ratio, for one."""
    ratio = change.ratio
    if ratio is None or ratio.low is None or ratio.high is None:
        return ABSENT
    share = METRICS[objective].unit == "ratio"
    scale = 100 * (change.first.value if share else 1.0)
    ends = " to ".join(f"{(end - 1) * scale:+.1f}".replace("-", "−") for end in (ratio.low, ratio.high))
    return f"{ends} {'pts' if share else '%'}"


def _absent(which: str, settings: Iterable[Setting]) -> list[str]:
    names = [setting.id for setting in settings]
    return [f"Measured in the {which} run only: {'; '.join(names)}"] if names else []
