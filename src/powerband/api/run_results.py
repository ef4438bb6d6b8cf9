"""The results of a run, or of a comparison, in Python: the values of the analysis, its tables as data frames, its
figures.

The results are immutable, and nothing is started here. A notebook shows the answer and the table of settings, with
every name escaped."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from powerband.analyze.runs.changes import Change, RunComparison
from powerband.base.errors import UsageError
from powerband.model.experiment import Experiment
from powerband.model.metrics import metric_words
from powerband.model.plan import Level, Setting, number_of
from powerband.model.results import Analysis, Answer, ClaimResult, SettingResult, TrialResult, Verdict
from powerband.report.documents.json import to_document
from powerband.report.documents.markdown import render_changes, render_markdown
from powerband.report.html.report import write_report
from powerband.report.tables.export import export
from powerband.report.tables.frames import frame
from powerband.report.tables.rows import Row, Table, What, changes_table, run_table
from powerband.report.wording.comparison import change_cells, headings
from powerband.report.wording.findings import state_words
from powerband.report.wording.numbers import format_estimate, format_interval
from powerband.report.wording.standings import best_ranked
from powerband.report.wording.words import change_words, short_id
from powerband.store import RunDir

if TYPE_CHECKING:
    import pandas
    import polars
    from matplotlib.figure import Figure

_ROWS_SHOWN = 12  # arbitrary: a notebook's screen; frame() has all


@dataclass(frozen=True, repr=False)
class Run:
    """One run with its results. `directory`: its run directory; `experiment`: as it was run; `analysis`: all estimates
    and verdicts, which the properties below hand on."""

    directory: RunDir
    experiment: Experiment
    analysis: Analysis

    @property
    def path(self) -> Path:
        """The run directory."""
        return self.directory.path

    @property
    def answer(self) -> Answer:
        """The recommended setting, with confidence and reason."""
        return self.analysis.answer

    @property
    def settings(self) -> tuple[SettingResult, ...]:
        """Every setting with its estimates and its verdict, in the order of the plan."""
        return self.analysis.settings

    @property
    def trials(self) -> tuple[TrialResult, ...]:
        """Every trial in the order of execution, including excluded ones."""
        return self.analysis.trials

    @property
    def claims(self) -> tuple[ClaimResult, ...]:
        """Every claim of the experiment with its verdict, in the experiment's order."""
        return self.analysis.claims

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons to trust the results less, one sentence each."""
        return self.analysis.warnings

    def setting(self, **levels: Level) -> SettingResult:
        """The one setting that has these levels: `run.setting(threads=8)`; a number is also found as the text that it
        was written as (`1.0`). Raises UsageError if no setting has them, or more than one."""
        found = [row for row in self.settings if levels.items() <= row.setting.as_dict().items()] or [
            row for row in self.settings if _numbers(levels).items() <= _numbers(row.setting.as_dict()).items()
        ]
        if len(found) == 1:
            return found[0]
        wanted = Setting(tuple(levels.items())).id
        some = ", ".join(row.setting.id for row in (found or self.settings)[:4])
        raise UsageError(
            f"{len(found) or 'no'} settings have {wanted}; name all parameters of one, for example of {some}"
        )

    @overload
    def frame(self, what: What = "trials", *, library: Literal["pandas"]) -> pandas.DataFrame: ...
    @overload
    def frame(self, what: What = "trials", *, library: Literal["polars"]) -> polars.DataFrame: ...
    @overload
    def frame(self, what: What = "trials", *, library: None = None) -> Any: ...
    def frame(self, what: What = "trials", *, library: Literal["pandas", "polars"] | None = None) -> Any:
        """A table as a data frame: `settings`, `trials`, `estimates`, `series` or `intervals`; docs/reference/tables.md
        describes its columns. `library` None: pandas if it is installed, else polars.

        Raises UsageError for an unknown table, if the library is not installed, or if the run directory is no more."""
        return frame(self._table(what), library)

    def rows(self, what: What = "trials") -> Iterator[dict[str, Any]]:
        """The rows of the same tables without any library, each as a mapping by column; they are made as they are
        read."""
        table = self._table(what)
        names = [column.name for column in table.columns]
        return (dict(zip(names, row, strict=True)) for row in table.rows)

    def export(self, what: What, file: str | Path) -> Path:
        """Writes a table as csv or Parquet, by the suffix of the file's name, and returns the file; the table may be
        larger than the memory. Raises UsageError like `frame`, and if the file cannot be written."""
        return export(self._table(what), Path(file))

    def figure(self, metric: str = "goodput") -> Figure:
        """Draws a metric of every setting with its interval, by matplotlib. `metric`: `throughput`, `p99`, `cpu`,
        `memory`, or any metric by its name. Raises UsageError for an unknown metric, or if matplotlib is missing."""
        try:
            from powerband.api.matplotlib_figures import metric_figure  # noqa: PLC0415 - matplotlib is an extra
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "matplotlib":
                raise
            raise UsageError(
                "figures are drawn by matplotlib, which is not installed: pip install 'powerband[notebook]'; "
                "report() writes all charts without it"
            ) from None
        return metric_figure(self.analysis, metric)

    def report(self) -> Path:
        """Writes the HTML report into the run directory, and returns its path. Raises UsageError if the run directory
        is no more."""
        return write_report(RunDir.open(self.path), self.analysis)

    def markdown(self) -> str:
        """The answer for a pull request, as `--format md` prints it."""
        return render_markdown(self.analysis, self.directory)

    def to_json(self) -> dict[str, Any]:
        """The answer as `--format json` prints it, as plain values."""
        document: dict[str, Any] = json.loads(json.dumps(to_document(self.analysis, self.path)))
        return document

    def _table(self, what: str) -> Table:
        return run_table(what, RunDir.open(self.path), self.experiment, lambda: self.analysis)

    def __repr__(self) -> str:
        return "\n".join([f"Run({str(self.path)!r})", *self.answer.sentences])

    def _repr_html_(self) -> str:
        objective = self.analysis.objective
        heads = ["setting", metric_words(objective), "interval", "p99", "change", "verdict"]
        rows = [
            [
                short_id(row.setting, self.analysis),
                format_estimate(row.shown.get(objective), objective),
                format_interval(row.shown.get(objective), objective),
                format_estimate(row.estimates.get("response_time_ns_p99"), "response_time_ns_p99", digits=3),
                change_words(row, self.analysis),
                state_words(row, self.analysis),
            ]
            for row in best_ranked(self.analysis, _ROWS_SHOWN)
        ]
        more = len(self.settings) - len(rows)
        return _html(self.answer.sentences, heads, rows, f"and {more} more" if more else "", str(self.path))


@dataclass(frozen=True, repr=False)
class Comparison:
    """Two runs, or two revisions of a server, setting by setting. `result`: the comparison as values; `run`: the run in
    which the revisions were measured, None for two runs."""

    result: RunComparison
    run: Run | None = None

    @property
    def verdict(self) -> Verdict:
        """The verdict on the second run or revision as a whole."""
        return self.result.verdict

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        return self.result.sentence

    @property
    def changes(self) -> tuple[Change, ...]:
        """Every setting that was compared, with both estimates, their ratio and its verdict."""
        return self.result.changes

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons to trust the comparison less, one sentence each."""
        return self.result.warnings

    @overload
    def frame(self, *, library: Literal["pandas"]) -> pandas.DataFrame: ...
    @overload
    def frame(self, *, library: Literal["polars"]) -> polars.DataFrame: ...
    @overload
    def frame(self, *, library: None = None) -> Any: ...
    def frame(self, *, library: Literal["pandas", "polars"] | None = None) -> Any:
        """A row for each setting that was compared: the table `changes` of docs/reference/tables.md."""
        return frame(changes_table(self.result), library)

    def export(self, file: str | Path) -> Path:
        """Writes this table as csv or Parquet, by the suffix of the file's name, and returns the file."""
        return export(changes_table(self.result), Path(file))

    def markdown(self) -> str:
        """The comparison for a pull request, as `powerband compare --format md` prints it."""
        return render_changes(self.result, None if self.run is None else self.run.directory)

    def __repr__(self) -> str:
        return f"Comparison: {self.sentence}"

    def _repr_html_(self) -> str:
        rows = [change_cells(change, self.result) for change in self.changes]
        more = len(rows) - _ROWS_SHOWN
        return _html([self.sentence], headings(self.result), rows[:_ROWS_SHOWN], f"and {more} more" if more > 0 else "")


def _numbers(levels: Mapping[str, Level]) -> dict[str, Level]:
    return {name: level if (number := number_of(level)) is None else number for name, level in levels.items()}


def _html(
    sentences: Sequence[str], heads: Sequence[str], rows: Iterable[Row | Sequence[str]], more: str, foot: str = ""
) -> str:
    """A few lines for a notebook: no style of its own, everything escaped."""
    first, *rest = sentences or ("No answer.",)
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    parts = [
        f"<p><strong>{escape(first)}</strong> {escape(' '.join(rest))}</p>",
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if body else "",
        *(f"<p><small>{escape(text)}</small></p>" for text in (more, foot) if text),
    ]
    return f"<div>{''.join(parts)}</div>"
