"""The bottleneck of each trial over a run. In: an Analysis. Out: a chart description and its figure as escaped text.
`analyze.timeline` finds the bottlenecks within a trial; templates/limits.js draws both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from powerband.analyze.trial.timeline import LimitSpan
from powerband.model.plan import Setting, Stage
from powerband.model.results import Analysis, TrialResult
from powerband.report.html.charts import Picture
from powerband.report.html.figure_parts import boxed, table
from powerband.report.wording.findings import bottleneck_short
from powerband.report.wording.names import short_names
from powerband.report.wording.numbers import ABSENT, format_number
from powerband.report.wording.standings import ranked
from powerband.report.wording.words import counted, rounds_of

ROWS_MAX = 40  # settings drawn; the table has all
_UNKNOWN = "not known"


@dataclass(frozen=True)
class LimitCell:
    """One trial of `setting`: the k-th (`x`), in the row of that setting (`y`). `number`: that of the trial in the run.
    `name`: a bottleneck's name, or empty; `short`: its words for a narrow place; `text`: the trial's figures and the
    evidence, for the tooltip. `counts`: the trial is valid."""

    x: int
    y: int
    setting: str
    number: int
    name: str
    short: str
    text: str
    counts: bool


@dataclass(frozen=True)
class LimitChart(Picture):
    """The chart. `rows`: the settings' names, the best first. `columns`: the most trials of one setting. `cells`: all
    trials. `shorts`: the bottleneck names that occur, with their words."""

    rows: tuple[str, ...]
    columns: int
    cells: tuple[LimitCell, ...]
    shorts: tuple[tuple[str, str], ...]


def limit_chart(analysis: Analysis) -> LimitChart | None:
    """The chart with the best settings first; None if no trial has a bottleneck."""
    trials = counted(analysis.trials)
    if not any(trial.bottleneck for trial in trials):
        return None
    shown = [row.setting for row in ranked(analysis)][:ROWS_MAX]
    rounds = rounds_of(trials)
    cells = tuple(
        LimitCell(
            x,
            y,
            setting.id,
            trial.number,
            _name(trial),
            bottleneck_short(trial.bottleneck),
            _text(trial, rounds, analysis),
            trial.valid,
        )
        for y, setting in enumerate(shown)
        for x, trial in enumerate(_of(setting, trials))
    )
    if not cells:
        return None
    short = short_names(analysis)
    shorts = {cell.name: cell.short for cell in cells if cell.name}
    if any(not cell.name for cell in cells):
        shorts[""] = _UNKNOWN
    note = "Each setting’s trials in the order in which they ran, the best setting first."
    if len(shown) < len(analysis.settings):
        note += f" Of {len(analysis.settings)} settings the best {len(shown)} are drawn."
    note += short.note
    return LimitChart(
        "limits",
        "limits",
        "The bottleneck, trial by trial",
        note,
        tuple(map(short.row, shown)),
        max(cell.x for cell in cells) + 1,
        cells,
        tuple(shorts.items()),
    )


def limit_figure(chart: LimitChart | None, analysis: Analysis) -> str:
    """The chart's frame and its numbers; empty if there is no chart."""
    if chart is None:
        return ""
    trials = counted(analysis.trials)
    rows = [
        (
            row.setting.id,
            *(
                f"{trial.number}: {bottleneck_short(trial.bottleneck)}"
                for trial in _of(row.setting, trials)[: chart.columns]
            ),
        )
        for row in ranked(analysis)
    ]
    wide = max(len(row) for row in rows)
    heads = ["setting", *(["its trials: number, bottleneck"] if wide > 1 else []), *([""] * (wide - 2))]
    filled = [(*row, *([""] * (wide - len(row)))) for row in rows]
    spoken = f"Chart: {chart.title}. The values are in the table below."
    height = 4.5 + 1.75 * len(chart.rows)
    return boxed(chart, spoken, table(heads, filled), height_rem=height)


def span_words(span: LimitSpan) -> tuple[str, str, str]:
    """A span within a trial: the bottleneck's name (empty: none), its clause, and the evidence."""
    found = span.bottleneck
    if found is None:
        return "", _UNKNOWN, ""
    return found.name, found.name.words, "; ".join(found.evidence)


def _of(setting: Setting, trials: list[TrialResult]) -> list[TrialResult]:
    return [trial for trial in trials if trial.setting == setting]


def _name(trial: TrialResult) -> str:
    return "" if trial.bottleneck is None else str(trial.bottleneck.name)


def _text(trial: TrialResult, rounds: Mapping[int, int], analysis: Analysis) -> str:
    """`Trial 12, block 2, 1,481/s: the pool is too small (98 % of ...)`."""
    parts = [f"trial {trial.number}"]
    if trial.stage is Stage.COMPARE:
        parts.append(f"round {rounds[trial.block]}")
    if trial.rate_per_s is not None:
        parts.append(f"offered {format_number(trial.rate_per_s, 'per_s')}")
    if "goodput_per_s" in trial.metrics:
        parts.append(f"{analysis.noun}s {format_number(trial.metrics['goodput_per_s'], 'per_s')}")
    if not trial.valid:
        parts.append("excluded")
    found = trial.bottleneck
    said = ABSENT if found is None else "; ".join((found.name.words, *found.evidence))
    return f"{', '.join(parts)}: {said}"
