"""The findings behind the answer, for a terminal: race, bottleneck, capacities, rules of thumb. In: an Analysis. Out:
rich renderables, worded by `findings`. The tables fit any width from 80 columns on by folding their last column."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from powerband.analyze.settings.found import published_sentences
from powerband.analyze.settings.why import bottleneck_sentences
from powerband.base.units import capital
from powerband.model.metrics import metric_words
from powerband.model.results import Analysis
from powerband.report.html.memory import GROWTH_HEADS, growth_cells, growth_sentence, snapshot_trial
from powerband.report.wording.findings import (
    CHANGE_HEADS,
    NODE_COST_HEADS,
    NODE_HEADS,
    VISITOR_HEADS,
    capacity_trials,
    capacity_words,
    change_rows,
    changes_lead,
    clock_sentences,
    node_cost_rows,
    node_rows,
    proposal_words,
    published_cells,
    race_words,
    rates_tried,
    rule_cost,
    rule_nearest,
    visitor_rows,
    what_to_do,
)
from powerband.report.wording.words import about_revisions

LAST_COLUMN = 16  # characters: longer texts fold at words, and longer words are rare
TYPES_SHOWN = 8  # arbitrary: what leaks is among the first; the report has more


def behind_the_answer(analysis: Analysis) -> Iterator[RenderableType]:
    """Lines on how the answer was found and what limits it, without a heading. Nothing that the answer's own sentences
    already say is repeated; yields nothing if there is nothing to add."""
    told = " ".join(analysis.answer.sentences)
    lines = []
    race = analysis.race
    if race is not None:
        if f"(the full grid: {race.grid_trials})" not in told:
            lines.append(race_words(race))
        if race.confirmation is not None and race.confirmation.sentence not in told:
            lines.append(race.confirmation.sentence)
    if said := _bottleneck(analysis, told):
        lines.append(said)
    if lines:
        yield Text()
    for line in lines:
        yield Text(line)


def capacities(analysis: Analysis) -> Iterator[RenderableType]:
    """Each setting's capacity and the number of trials that found it; nothing if capacity was not the objective."""
    found = [(result.setting, result.capacity) for result in analysis.settings if result.capacity is not None]
    if not found:
        return
    table = _table("capacity", "holds up to", "tried", "trials", "")
    for setting, capacity in found:
        table.add_row(
            Text(setting.id),
            capacity_words(capacity),
            rates_tried(capacity),
            str(capacity_trials(capacity)),
            Text(capacity.note),
            style="bold" if setting == analysis.answer.setting else "",
        )
    yield Text()
    yield table


def rules_of_thumb(analysis: Analysis) -> Iterator[RenderableType]:
    """Each rule's proposal and the effect of following it; nothing if no parameter counts threads."""
    if not analysis.rules:
        return
    against = "vs leader" if analysis.answer.setting is None else "vs answer"
    table = _table("rule of thumb", "proposes", "nearest tried", f"that one {against}", "formula", folds=2)
    for rule in analysis.rules:
        table.add_row(
            rule.name,
            proposal_words(rule),
            Text(rule_nearest(rule)),
            rule_cost(rule, analysis),
            Text(f"not applicable: {rule.refused}" if rule.refused else rule.formula),
        )
    yield Text()
    yield table


def changes(analysis: Analysis) -> Iterator[RenderableType]:
    """The cost of each change; nothing unless parameters vary one at a time."""
    rows = change_rows(analysis)
    if not rows:
        return
    table = _table("what each change costs", *CHANGE_HEADS[1:])
    for change, ratio, verdict in rows:
        table.add_row(Text(change), Text(ratio), Text(verdict))
    yield Text()
    yield table
    yield Text(changes_lead(analysis), style="dim")


def nodes(analysis: Analysis) -> Iterator[RenderableType]:
    """Tables of the nodes: how fast each is, what is best there, and what Ray cost; nothing for a single machine."""
    rows = node_rows(analysis)
    if not rows:
        return
    for heads, shown in ((NODE_HEADS, rows), (NODE_COST_HEADS, node_cost_rows(analysis))):
        if shown:
            table = _table(*heads)
            for row in shown:
                table.add_row(*map(Text, row))
            yield Text()
            yield table
    for sentence in clock_sentences(analysis):
        yield Text(sentence, style="dim")


def published(analysis: Analysis) -> Iterator[RenderableType]:
    """A publication's figures beside the measured ones, and how well both agree; nothing if none are cited."""
    for cited in analysis.published:
        table = bare_table()
        table.add_column(f"published: {metric_words(cited.metric)}", overflow="fold")
        for heading in ("published", "here", "x published", "x here"):
            table.add_column(heading, justify="right", no_wrap=True)
        for row in cited.rows:
            table.add_row(Text(row.name), *published_cells(row, cited))
        base = f"Ratios (x) are to {cited.base}. " if cited.base else ""
        yield Text()
        yield table
        yield Text(f"{base}{f'Published: {cited.note}.' if cited.note else ''}".strip(), style="dim")
    if agreed := " ".join(published_sentences(analysis.published)):
        yield Text(agreed)


def visited(analysis: Analysis) -> Iterator[RenderableType]:
    """Response times of the browser user under load; nothing if there was none."""
    rows = visitor_rows(analysis)
    if not rows:
        return
    table = bare_table()
    table.add_column("real browser under load", overflow="fold")
    for heading in VISITOR_HEADS[1:]:
        table.add_column(heading, justify="right", overflow="fold")
    for name, *cells in rows:
        table.add_row(Text(name), *cells)
    yield Text()
    yield table


def grown(analysis: Analysis) -> Iterator[RenderableType]:
    """The types that grew most in memory; nothing if no snapshots were taken."""
    found = snapshot_trial(analysis)
    if found is None:
        return
    _, growth = found
    yield Text()
    yield Text(growth_sentence(*found))
    if not growth.types:
        return
    table = bare_table()
    table.add_column(GROWTH_HEADS[0], overflow="fold")
    for heading in GROWTH_HEADS[1:]:
        table.add_column(heading, justify="right", no_wrap=True)
    for each in growth.types[:TYPES_SHOWN]:
        name, *cells = growth_cells(each)
        table.add_row(Text(name), *cells)
    yield table


def bare_table() -> Table:
    """A table without lines and without columns; the caller adds the columns."""
    return Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim", show_edge=False)


def _bottleneck(analysis: Analysis, told: str) -> str:
    """The bottleneck of the answer, or of the leader if there is no answer. Only the advice if `told` already contains
    its figures."""
    answer = analysis.answer
    chosen = next((row for row in analysis.settings if row.setting == (answer.setting or answer.leader)), None)
    if chosen is None or chosen.bottleneck is None or about_revisions(analysis):
        return ""
    found = chosen.bottleneck
    figures = [figure for each in found.candidates for figure in each.evidence]
    if figures and all(figure in told or capital(figure) in told for figure in figures):
        return f"What to do: {advice}" if (advice := what_to_do(found)) else ""
    return bottleneck_sentences(chosen.setting, found, advised=True)


def _table(*headings: str, folds: int | None = None) -> Table:
    """A table with the first and last column left-aligned, the last one folding, and numbers right-aligned between
    them. `folds`: position of another column of names, which may be long."""
    table = bare_table()
    for place, heading in enumerate(headings):
        last = place == len(headings) - 1
        table.add_column(
            heading, justify="left" if place == 0 or last else "right", no_wrap=not last and place != folds,
            overflow="fold", ratio=1 if last else None, min_width=LAST_COLUMN if last else None,
        )  # fmt: skip
    return table
