"""The answer for a terminal or a pipe. In: an Analysis. Out: rich renderables; nothing is computed here.

The table adapts to the given width: if one table does not fit, a second one shows the remaining metrics of the server,
so that no cell is cut off.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from powerband.model.metrics import metric_words
from powerband.model.results import Analysis, ClaimVerdict, SettingResult
from powerband.report.terminal.text_findings import (
    bare_table,
    behind_the_answer,
    capacities,
    changes,
    grown,
    nodes,
    published,
    rules_of_thumb,
    visited,
)
from powerband.report.wording.findings import bottleneck_short, state_words, table_legend
from powerband.report.wording.names import level_words
from powerband.report.wording.numbers import format_estimate, format_interval
from powerband.report.wording.words import (
    MetricColumn,
    Unusable,
    any_failed_start,
    change_words,
    counted,
    error_rows,
    factor_names,
    failed_starts,
    footnote,
    not_allowed,
    present_columns,
    short_id,
    start_noun,
    tone,
    trials_of,
    unusable_trials,
)

_UNUSABLE_SHOWN = 8  # reasons. Arbitrary: a few lines; the report has all
_ERRORS_SHOWN = 8  # likewise
_FACTOR_COLUMNS = 3  # more would leave no room for figures in 80 columns
_FIRST_COLUMNS = 3  # metrics of the server beside the verdict, if not all fit


def print_answer(console: Console, analysis: Analysis, report: Path | None = None) -> None:
    """Prints the answer, then the path of the report. The path is never wrapped, so that it stays clickable."""
    console.print(render_answer(analysis))
    if report is not None:
        console.print(Text(f"\nReport: {report}"), soft_wrap=True)


def render_answer(analysis: Analysis) -> RenderableType:
    """The answer in words, how it was found, the table of settings, capacities, rules of thumb, claims, excluded trials
    with reasons, warnings."""
    parts: list[RenderableType] = [Text(), *_sentences(analysis), *behind_the_answer(analysis)]
    if analysis.settings:
        parts += [Text(), SettingsTable(analysis), Text(), Text(_footnote(analysis), style="dim")]
        parts += [_bullet(f"{words}: {meaning}", style="dim") for words, meaning in table_legend(analysis)]
        switches = (each for each in present_columns(analysis) if each.metric == "context_switches_per_request")
        parts += [_bullet(f"{each.short}: {each.heading}", style="dim") for each in switches]
        parts += [_bullet(f"{name} violates the SLO: {why}") for name, why in not_allowed(analysis)]
    for part in (changes, nodes, capacities, rules_of_thumb, _claims, published, visited, grown):
        parts += part(analysis)
    return Group(*parts, *_errors(analysis), *_unusable(analysis), *_warnings(analysis))


def figures_table(analysis: Analysis) -> SettingsTable:
    """The metrics of the server and the bottleneck of every setting, beside a comparison that has the objective."""
    return SettingsTable(replace(analysis, answer=replace(analysis.answer, setting=None)), answer=False)


class SettingsTable:
    """Every setting, in plan order, as one table or several depending on the width. `answer`: with the objective and
    the verdicts."""

    def __init__(self, analysis: Analysis, *, answer: bool = True) -> None:
        self.analysis = analysis
        self.answer = answer

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        columns = present_columns(self.analysis)
        named = any(result.bottleneck is not None for result in self.analysis.settings)

        def fits(table: Table) -> bool:
            return Measurement.get(console, options.update(max_width=1_000), table).maximum <= options.max_width

        rest, interval, placed = columns, True, False
        if self.answer:
            if fits(whole := self._table(columns, answer=True, bottleneck=named)):
                yield whole
                return
            first = list(columns[:_FIRST_COLUMNS])
            while first and not fits(self._table(first, answer=True, bottleneck=False)):
                first.pop()
            interval = bool(first) or fits(self._table(first, answer=True, bottleneck=False))
            named_first = named and fits(self._table(first, answer=True, interval=interval, bottleneck=True))
            yield self._table(first, answer=True, interval=interval, bottleneck=named_first)
            rest, named = columns[len(first) :], named and not named_first
        while not placed:
            taken = len(rest)
            while taken > 1 and not fits(self._further(rest, taken, interval=not interval, bottleneck=named)):
                taken -= 1
            yield Text()
            yield self._further(rest, taken, interval=not interval, bottleneck=named)
            rest, interval, placed = rest[taken:], True, taken == len(rest)

    def _further(self, rest: Sequence[MetricColumn], taken: int, *, interval: bool, bottleneck: bool) -> Table:
        """A table below the first, with the next `taken` of `rest`; only the last table has the bottleneck and the
        valid trials."""
        last = taken == len(rest)
        return self._table(rest[:taken], answer=False, interval=interval, bottleneck=bottleneck and last, valid=last)

    def _table(
        self,
        columns: Iterable[MetricColumn],
        *,
        answer: bool,
        bottleneck: bool,
        interval: bool = True,
        valid: bool | None = None,
    ) -> Table:
        columns, valid = tuple(columns), not answer if valid is None else valid
        objective = self.analysis.objective
        table = bare_table()
        for name in _setting_columns(self.analysis):
            # The only columns that fold, and only if figures would otherwise be cut off.
            table.add_column(Text(name), justify="right", overflow="fold")
        if answer:
            table.add_column(metric_words(objective).removesuffix(" rate"), justify="right", no_wrap=True)
        if interval:
            table.add_column("interval", justify="right", no_wrap=True)
        for column in columns:
            table.add_column(column.short, justify="right", no_wrap=True)
        failed = answer and any_failed_start(self.analysis)
        judged = [
            *([f"failed {start_noun(self.analysis)}s"] if failed else []),
            *(["vs leader", "verdict"] if answer else []),
        ]
        for name in judged:
            table.add_column(name, justify="left" if name == "verdict" else "right", no_wrap=True)
        if bottleneck:
            table.add_column("bottleneck", no_wrap=True)
        if valid:
            table.add_column("trials", justify="right")
        for result in self.analysis.settings:
            cells: list[str | Text] = [*_name(result, self.analysis)]
            estimate = result.shown.get(objective)
            cells += [format_estimate(estimate, objective)] if answer else []
            cells += [format_interval(estimate, objective)] if interval else []
            cells += [
                format_estimate(result.estimates.get(column.metric), column.metric, digits=3) for column in columns
            ]
            cells += [failed_starts(result)] if failed else []
            if answer:
                cells += [change_words(result, self.analysis), _verdict(result, self.analysis)]
            if bottleneck:
                cells.append(bottleneck_short(result.bottleneck))
            if valid:
                cells.append(trials_of(result))
            table.add_row(*cells, style="bold" if result.setting == self.analysis.answer.setting else "")
        return table


def _sentences(analysis: Analysis) -> Iterator[RenderableType]:
    first, *rest = analysis.answer.sentences or ("No answer.",)
    yield Text(first, style="bold")
    for sentence in rest:
        yield Text(sentence)


def _setting_columns(analysis: Analysis) -> tuple[str, ...]:
    """One column per parameter while that stays narrow, otherwise one column of whole ids."""
    names = factor_names(analysis)
    return names if 0 < len(names) <= _FACTOR_COLUMNS and not analysis.changes else ("setting",)


def _name(result: SettingResult, analysis: Analysis) -> list[Text]:
    """Text, not markup: a value may contain brackets."""
    levels = [level_words(level) for _, level in result.setting.levels]
    by_factor = _setting_columns(analysis) == factor_names(analysis)
    # An id folds between its values.
    cells = levels if by_factor else [short_id(result.setting, analysis).replace(",", ", ")]
    marker = "* " if result.setting == analysis.answer.setting else "  "
    return [Text(marker + cells[0]), *map(Text, cells[1:])]


_TONES = {"good": "green", "bad": "red", "unsure": "yellow"}


def _verdict(result: SettingResult, analysis: Analysis) -> Text:
    return Text(state_words(result, analysis), style=_TONES[tone(result, analysis)])


def _footnote(analysis: Analysis) -> str:
    answer = "* the answer. " if analysis.answer.setting else ""
    return f"{answer}{footnote(analysis)}"


_CLAIM_STYLES = {ClaimVerdict.HELD: "green", ClaimVerdict.REFUTED: "red", ClaimVerdict.UNDECIDED: "yellow"}


def _claims(analysis: Analysis) -> Iterator[RenderableType]:
    if analysis.claims:
        yield Text()
        yield Text("Claims:")
    for claim in analysis.claims:
        published = f" (published: {claim.published})" if claim.published else ""
        said = Text.assemble((claim.verdict.words, _CLAIM_STYLES[claim.verdict]), f": {claim.says}{published}")
        yield Padding(said, (0, 0, 0, 2))
        yield Padding(Text(claim.sentence, style="dim"), (0, 0, 0, 4))


def _errors(analysis: Analysis) -> Iterator[RenderableType]:
    rows = error_rows(analysis)
    if rows:
        yield Text()
        yield Text("Requests that failed, in all valid trials with their warm-ups:")
    told = {""}
    for row in rows[:_ERRORS_SHOWN]:
        yield _bullet(f"{row.setting}: {row.count:,} {row.kind}" + (f": {row.cause}" if row.cause not in told else ""))
        told.add(row.cause)
    if len(rows) > _ERRORS_SHOWN:
        yield _bullet(f"and {len(rows) - _ERRORS_SHOWN} more kinds, in the report")


def _unusable(analysis: Analysis) -> Iterator[RenderableType]:
    trials = unusable_trials(analysis.trials)
    if not trials:
        return
    yield Text()
    yield Text(f"Excluded ({len(trials)} of {len(counted(analysis.trials))} trials):", style="yellow")
    alike: dict[tuple[str, str], list[Unusable]] = {}
    for trial in trials:
        # Figures of a disturbance differ from trial to trial; that of a failure may be its cause, as an exit code is.
        reasons = trial.reasons if trial.status == "failed" else re.sub(r"\d[\d.,]*", "", trial.reasons)
        alike.setdefault((trial.status, reasons), []).append(trial)
    groups = list(alike.values())
    for first, *others in groups[:_UNUSABLE_SHOWN]:
        more = f" and {len(others)} more like it" if others else ""
        yield _bullet(f"trial {first.number} ({first.setting}){more} {first.status}: {first.reasons}")
    if hidden := sum(map(len, groups[_UNUSABLE_SHOWN:])):
        yield _bullet(f"and {hidden} more, in the report")


def _warnings(analysis: Analysis) -> Iterator[RenderableType]:
    if analysis.warnings:
        yield Text()
    for warning in analysis.warnings:
        yield Text.assemble(("Warning: ", "yellow"), warning)


def _bullet(text: str, style: str = "") -> Padding:
    return Padding(Text(text, style=style), (0, 0, 0, 2))
