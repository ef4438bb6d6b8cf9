"""The answer for a pull request: `--format md`, GitHub's Markdown. In: values. Out: text; nothing is computed.

Short: the answer with its confidence, the table of settings, the claims, warnings; folded: excluded trials and how to
repeat the run. Every text from outside passes through `markdown_text`."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from powerband.analyze.runs.changes import RunComparison
from powerband.base.units import plural
from powerband.model.host_facts import host_fact
from powerband.model.metrics import metric_words
from powerband.model.results import Analysis, SettingResult
from powerband.report.documents.markdown_text import block, code, prose
from powerband.report.wording.comparison import change_cells, comparison_notes, headings
from powerband.report.wording.findings import (
    NODE_HEADS,
    bottleneck_short,
    capacity_words,
    node_rows,
    state_words,
    table_legend,
)
from powerband.report.wording.names import level_words
from powerband.report.wording.numbers import format_estimate, format_interval
from powerband.report.wording.standings import best_ranked
from powerband.report.wording.words import (
    NARROW,
    any_failed_start,
    change_words,
    factor_names,
    failed_starts,
    footnote,
    not_allowed,
    present_columns,
    short_id,
    start_noun,
    trials_of,
    unusable_trials,
)
from powerband.store import RunDir, read_host

_ROWS_MOST = 20  # arbitrary: what fits a comment on a pull request; the report has all
_UNUSABLE_MOST = 10  # likewise
_FACTOR_COLUMNS = 5  # likewise, beside the columns of figures


def render_markdown(analysis: Analysis, run: RunDir | None) -> str:
    """The answer of a run; `run` None: without the section on how to repeat it."""
    parts = [
        f"### powerband: {prose(analysis.question or analysis.name)}",
        *_answer(analysis.answer.sentences),
        *_settings(analysis),
        *_nodes(analysis),
        *_claims(analysis),
        *_warnings(analysis.warnings),
        *_unusable(analysis),
        *_repeat(run),
    ]
    return "\n\n".join(parts) + "\n"


def render_changes(comparison: RunComparison, run: RunDir | None) -> str:
    """A comparison of two runs, or two revisions of a server; `run`: the run in which the revisions were measured."""
    first, second = comparison.names
    heads = headings(comparison)
    found = (change_cells(change, comparison) for change in comparison.changes)
    rows = [[code(name), *cells] for name, *cells in found]
    parts = [
        f"### powerband: {code(first)} and {code(second)}",
        f"**{prose(comparison.sentence)}**",
        *map(prose, comparison.further),
        *([_table(heads, rows, left=(0, len(heads) - 1))] if rows else []),
        *map(prose, comparison_notes(comparison)),
        *_warnings(comparison.warnings),
        *_repeat(run),
    ]
    return "\n\n".join(parts) + "\n"


def _answer(sentences: Sequence[str]) -> Iterator[str]:
    first, *rest = sentences or ("No answer.",)
    yield f"**{prose(first)}**"
    yield from map(prose, rest)


def _settings(analysis: Analysis) -> Iterator[str]:
    """Every setting in plan order; only the best and the answer if there are many."""
    if not analysis.settings:
        return
    rows: Sequence[SettingResult] = analysis.settings
    if len(rows) > _ROWS_MOST:
        rows = best_ranked(analysis, _ROWS_MOST)
    names = factor_names(analysis)
    whole = not 0 < len(names) <= _FACTOR_COLUMNS or bool(analysis.changes)
    columns = [column for column in present_columns(analysis) if column.metric in NARROW]
    named = any(row.bottleneck is not None for row in rows)
    heads = [
        *(["setting"] if whole else map(code, names)),
        metric_words(analysis.objective), "interval", "change", "verdict",
        *(column.short for column in columns), *(["bottleneck"] if named else []), "trials",
        *([f"failed {start_noun(analysis)}s"] if any_failed_start(analysis) else []),
    ]  # fmt: skip

    def cells(row: SettingResult) -> Iterator[str]:
        levels = [short_id(row.setting, analysis)] if whole else [level_words(level) for _, level in row.setting.levels]
        chosen = row.setting == analysis.answer.setting
        yield from (f"**{code(level)}**" if chosen else code(level) for level in levels)
        estimate = row.shown.get(analysis.objective)
        yield _unbroken(format_estimate(estimate, analysis.objective))
        yield _unbroken(format_interval(estimate, analysis.objective))
        yield _unbroken(change_words(row, analysis))
        yield state_words(row, analysis)
        for column in columns:
            yield _unbroken(format_estimate(row.estimates.get(column.metric), column.metric, digits=3))
        if named:
            yield bottleneck_short(row.bottleneck)
        yield trials_of(row)
        if any_failed_start(analysis):
            yield failed_starts(row)

    factors = 1 if whole else len(names)
    left = [*range(factors), factors + 3, *([heads.index("bottleneck")] if named else [])]
    yield _table(heads, (list(cells(row)) for row in rows), left=left)
    more = len(analysis.settings) - len(rows)
    yield " ".join(
        part for part in (f"And {plural(more, 'setting')} more." if more else "", _footnote(analysis)) if part
    )
    noted = [(row.setting.id, row.capacity) for row in rows if row.capacity is not None and row.capacity.note]
    items = [f"- {code(name)} violates the SLO: {prose(why)}" for name, why in not_allowed(analysis)]
    items += [f"- {code(name)}: {capacity_words(found)}; {prose(found.note)}" for name, found in noted]
    if items:
        yield "\n".join(items)


def _nodes(analysis: Analysis) -> Iterator[str]:
    if rows := node_rows(analysis):
        yield _table(NODE_HEADS, [[prose(cell) for cell in row] for row in rows], left=(0, 4))


def _footnote(analysis: Analysis) -> str:
    bold = "Bold: the answer. " if analysis.answer.setting else ""
    legend = "; ".join(f"*{words}*: {prose(meaning)}" for words, meaning in table_legend(analysis))
    return f"<sub>{bold}{prose(footnote(analysis))} In the table: {legend}.</sub>"


def _claims(analysis: Analysis) -> Iterator[str]:
    if analysis.claims:
        rows = [
            [prose(claim.says), prose(claim.published or ""), f"**{claim.verdict.words}**", prose(claim.sentence)]
            for claim in analysis.claims
        ]
        yield _table(("claim", "published", "here", "measured"), rows, left=range(4))


def _warnings(warnings: Iterable[str]) -> Iterator[str]:
    items = [f"- {prose(warning)}" for warning in warnings]
    if items:
        yield "\n".join(["To mind:", "", *items])


def _unusable(analysis: Analysis) -> Iterator[str]:
    trials = unusable_trials(analysis.trials)
    if not trials:
        return
    items = [
        f"- trial {trial.number} ({code(trial.setting)}) {trial.status}: {prose(trial.reasons)}"
        for trial in trials[:_UNUSABLE_MOST]
    ]
    if len(trials) > _UNUSABLE_MOST:
        items.append(f"- and {len(trials) - _UNUSABLE_MOST} more, in the report")
    yield _folded(f"{plural(len(trials), 'trial')} excluded", "\n".join(items))


def _repeat(run: RunDir | None) -> Iterator[str]:
    """The command that was typed, the one with every default and the seed, and the machine."""
    if run is None:
        return
    host = read_host(run.host)
    typed = host.get("command")
    lines = ["# the same, with every default and the seed", f"powerband run {shlex.quote(str(run.experiment))}"]
    if isinstance(typed, list) and typed:
        program, *arguments = map(str, typed)
        name = "powerband" if Path(program).name in ("powerband", "__main__.py") else program
        lines = ["# as it was started", shlex.join([name, *arguments]), *lines]
    yield _folded("How to repeat this", "\n\n".join([block("\n".join(lines)), prose("; ".join(_facts(host)))]))


def _facts(host: Mapping[str, Any]) -> Iterator[str]:
    if version := host_fact(host, "powerband"):
        yield f"powerband {version}"
    if model := host_fact(host, "CPU"):
        allowed = host_fact(host, "CPUs allowed")
        yield f"{model}{f', {len(allowed)} CPUs allowed' if isinstance(allowed, list) else ''}"
    yield from (str(fact) for name in ("system", "kernel") if (fact := host_fact(host, name)))
    if virtual := host_fact(host, "virtualisation"):
        yield "a virtual machine" if virtual == "yes" else f"a virtual machine ({virtual})"
    if container := host_fact(host, "container"):
        yield f"in a container ({container})"
    yield "another machine may give another answer"


def _unbroken(figure: str) -> str:
    """The figure in one line, however narrow its column."""
    return figure.replace(" ", "\u00a0").replace("–", "\u2060–\u2060")


def _folded(summary: str, content: str) -> str:
    return f"<details><summary>{summary}</summary>\n\n{content}\n\n</details>"


def _table(heads: Iterable[str], rows: Iterable[Sequence[str]], *, left: Iterable[int]) -> str:
    """A table with names left-aligned and figures right-aligned. Cells must be Markdown already."""
    heads, on_left = list(heads), set(left)
    rule = [":--" if place in on_left else "--:" for place in range(len(heads))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rule, *rows))
