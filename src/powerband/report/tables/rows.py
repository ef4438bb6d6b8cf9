"""A run, or a comparison, as tidy tables: one row for each trial, setting, estimate, second or interval.

In: values of `analyze` and lines of a run directory. Out: typed rows, which `csv.py`, `parquet.py` and `frames.py`
write. Numbers are unrounded, in the base units given by the columns' names; unknown values are None, never 0. Long
tables are generators: no more than one trial is held at once. Nothing is computed here.

docs/reference/tables.md describes each column; a test compares it with this module."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any, Literal, TypeVar

from powerband.analyze.runs.changes import Change, RunComparison
from powerband.analyze.stats.intervals import noise_of
from powerband.analyze.trial.series import TrialSeries, seconds_of_load, series_of
from powerband.analyze.trial.threads import is_counter
from powerband.base.errors import UsageError, did_you_mean
from powerband.model.experiment import Experiment, Measure
from powerband.model.host_facts import host_fact
from powerband.model.metrics import METRICS, OWN
from powerband.model.plan import Setting, Stage, format_level
from powerband.model.results import Analysis, Estimate, SettingResult, TrialResult, value_and_ends
from powerband.readings.fleet import SECOND_NS
from powerband.readings.probe_samples import read_probe
from powerband.report.wording.words import effect_of
from powerband.store import NOT_AS_WRITTEN, DamagedError, RunDir, TrialDir, TrialRecord, read_host

Cell = str | int | float | bool | None
Row = tuple[Cell, ...]
_T = TypeVar("_T")
What = Literal["settings", "trials", "estimates", "series", "intervals", "history"]

WHOLE_MAX = 2**63 - 1  # the largest value of a column of whole numbers


class Kind(StrEnum):
    """Type of the cells of a column, apart from None."""

    TEXT = "text"
    WHOLE = "whole"
    NUMBER = "number"
    TRUTH = "truth"


@dataclass(frozen=True)
class Column:
    """A column of a table, by its `name`. `kind`: the type of its cells. `unit`: as in `powerband.model.metrics`; empty
    for texts and booleans, and if the rows have different units."""

    name: str
    kind: Kind = Kind.TEXT
    unit: str = ""


@dataclass(frozen=True)
class Table:
    """A table, by its `name`, with `columns`. `rows` can be read once; each has a cell for every column."""

    name: str
    columns: tuple[Column, ...]
    rows: Iterator[Row] = field(compare=False)


def _columns(kind: Kind, unit: str, *names: str) -> tuple[Column, ...]:
    return tuple(Column(name, kind, unit) for name in names)


_texts, _wholes = partial(_columns, Kind.TEXT, ""), partial(_columns, Kind.WHOLE, "count")
_numbers, _truths = partial(_columns, Kind.NUMBER), partial(_columns, Kind.TRUTH, "")

# The columns of each table before and after those of the parameters. Metrics follow, in the order of `METRICS`.
LEADING: dict[str, tuple[Column, ...]] = {
    "settings": _texts("run", "setting"),
    "trials": (*_texts("run"), *_wholes("trial", "block", "attempt"), *_texts("stage", "setting")),
    "estimates": _texts("run", "setting"),
    "series": (*_texts("run"), *_wholes("trial", "block"), *_texts("setting")),
    "intervals": (*_texts("run"), *_wholes("trial", "block"), *_texts("setting")),
    "changes": _texts("first", "second", "setting"),
    "history": _texts("run", "commit", "date", "host", "cpu", "powerband", "setting"),
}
_HOST = ("host name", "CPU", "powerband")
_EQUAL = (Stage.COMPARE, Stage.CONFIRM)  # stages whose trials determine a setting's noise
_BOUNDS = ("objective_value", "objective_low", "objective_high")
_ENDS = ("value", "low", "high")
FOLLOWING: dict[str, tuple[Column, ...]] = {
    "settings": (
        *_truths("answer"),
        *_texts("verdict"),
        *_truths("feasible"),
        *_wholes("trials", "invalid"),
        *_texts("objective"),
        *_numbers("", *_BOUNDS),
        *_numbers("ratio", "effect", "effect_low", "effect_high"),
        *_texts("bottleneck", "infeasible_because", "uncertain_because"),
        *_wholes("starts", "failed_starts"),
    ),
    "trials": (
        *_texts("status"),
        *_truths("valid"),
        *_texts("problems"),
        *_numbers("s", "warmup_s"),
        *_texts("warmup_ended_by"),
        *_truths("steady"),
        *_numbers("s", "took_s"),
        *_numbers("per_s", "rate_per_s"),
        *_texts("bottleneck"),
    ),
    "estimates": (*_texts("metric", "unit"), *_numbers("", *_ENDS, "confidence"), *_wholes("n"), *_truths("at_least")),
    "series": (*_numbers("s", "t_s"), *_texts("phase", "series", "label"), *_numbers("", "value")),
    "intervals": (
        *_wholes("engine"),
        *_texts("phase"),
        *_numbers("s", "start_s", "end_s"),
        *_wholes("scheduled", "sent", "dropped", "ok", "failed"),
        *_wholes("in_flight_now", "connections_now", "users_now"),
        *_wholes("response_time_ns_sum", "response_time_ns_max", "service_time_ns_sum", "send_lag_ns_max", "cpu_ns"),
        *_wholes("joined_now", "drops", "joins_failed", "delivered"),
    ),
    "changes": (
        *_texts("objective", "verdict"),
        *_numbers("", *(f"{which}_{end}" for which in ("first", "second") for end in _ENDS)),
        *_numbers("ratio", "ratio", "ratio_low", "ratio_high"),
        *_numbers("", "smallest_difference"),
        *_texts("because"),
    ),
}
FOLLOWING["history"] = (*FOLLOWING["settings"], *_numbers("ratio", "noise"))
RUN_TABLES: tuple[What, ...] = ("settings", "trials", "estimates", "series", "intervals", "history")


def run_table(
    what: str, run: RunDir, experiment: Experiment, analysis: Callable[[], Analysis], commit: str | None = None
) -> Table:
    """One table of a run. `analysis` is called only if the table needs it. `commit`: of the server, in the table
    `history`; None: the one that the run was started in. Raises UsageError for an unknown table, and
    while its rows are read if a file of the run is damaged."""
    name = run.path.resolve().name
    match what:
        case "settings":
            return settings_table(analysis(), name)
        case "trials":
            return trials_table(analysis(), name)
        case "estimates":
            return estimates_table(analysis(), name)
        case "series":
            return series_table(run, experiment)
        case "intervals":
            return intervals_table(run)
        case "history":
            return history_table(analysis(), name, read_host(run.host), commit)
    raise UsageError(f"there is no table {what}; {did_you_mean(what, RUN_TABLES)}")


def settings_table(analysis: Analysis, run: str) -> Table:
    """A row for each setting, in plan order: its verdict, its objective with its interval, and the estimate of every
    metric."""
    return _settings("settings", analysis, (run,))


def history_table(analysis: Analysis, run: str, host: Mapping[str, Any], commit: str | None = None) -> Table:
    """The table of settings, with the columns in which runs of different commits differ. `host`: the run's
    host.json."""
    began_s = host_fact(host, "began")
    date = None if not isinstance(began_s, int | float) else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began_s))
    lead = (commit or host_fact(host, "commit"), date, *(host_fact(host, name) for name in _HOST))

    def noise(row: SettingResult) -> float | None:
        trials = (trial for trial in analysis.trials if trial.setting == row.setting and trial.valid)
        equal = [trial.metrics.get(analysis.objective) for trial in trials if trial.stage in _EQUAL]
        return noise_of([value for value in equal if value is not None])

    return _settings("history", analysis, (run, *(None if cell is None else str(cell) for cell in lead)), noise)


def _settings(
    table: str, analysis: Analysis, lead: Row, noise: Callable[[SettingResult], float | None] | None = None
) -> Table:
    factors = _Factors(table, (row.setting for row in analysis.settings))
    metrics = _metric_names(row.shown for row in analysis.settings)

    def cells(row: SettingResult) -> Row:
        return (
            *lead, row.setting.id, *factors.cells(row.setting),
            row.setting == analysis.answer.setting, row.verdict.value, row.feasible, row.trials, row.invalid,
            analysis.objective, *_known(row.shown.get(analysis.objective)), *_known(effect_of(row, analysis)),
            None if row.bottleneck is None else row.bottleneck.name.value,
            _joined(row.infeasible_because), _joined(row.uncertain_because),
            *((None, None) if row.starts is None else (row.starts.made, row.starts.failed)),
            *(() if noise is None else (noise(row),)),
            *(None if (found := row.shown.get(name)) is None else found.value for name in metrics),
        )  # fmt: skip

    return _table(table, factors, map(cells, analysis.settings), metrics)


def _known(found: Estimate | None) -> tuple[float | None, float | None, float | None]:
    """The value and the ends of its interval; a lower bound has none."""
    value, low, high = value_and_ends(found)
    return (value, None, None) if found is not None and found.at_least else (value, low, high)


def trials_table(analysis: Analysis, run: str) -> Table:
    """A row for each trial in the order of execution, including excluded ones: see `valid`."""
    factors = _Factors("trials", (trial.setting for trial in analysis.trials))
    metrics = _metric_names(trial.metrics for trial in analysis.trials)

    def cells(trial: TrialResult) -> Row:
        return (
            run, trial.number, trial.block, trial.attempt, trial.stage.value, trial.setting.id,
            *factors.cells(trial.setting),
            trial.status, trial.valid, _joined(problem.message for problem in trial.problems),
            trial.warmup_s, trial.warmup_ended_by, trial.steady, trial.took_s, trial.rate_per_s,
            None if trial.bottleneck is None else trial.bottleneck.name.value,
            *(trial.metrics.get(name) for name in metrics),
        )  # fmt: skip

    return _table("trials", factors, map(cells, analysis.trials), metrics)


def estimates_table(analysis: Analysis, run: str) -> Table:
    """A row for each setting and metric: the estimate with its interval."""
    factors = _Factors("estimates", (row.setting for row in analysis.settings))
    metrics = _metric_names(row.shown for row in analysis.settings)
    rows: Iterator[Row] = (
        (
            run, row.setting.id, *factors.cells(row.setting),
            name, METRICS[name].unit, *value_and_ends(found), found.confidence, found.n, found.at_least,
        )
        for row in analysis.settings
        for name in metrics
        if (found := row.shown.get(name)) is not None
    )  # fmt: skip
    return _table("estimates", factors, rows)


def series_table(run: RunDir, experiment: Experiment) -> Table:
    """All time series, one value a row: the load per second, and the probe's samples."""
    records = run.records()
    factors = _Factors("series", (record.spec.setting for record in records))

    def rows() -> Iterator[Row]:
        for lead, record, directory in _recorded(run, records, factors):
            phase = _Phases(record)
            for t_s, *point in _up_to_damage(_points(directory, record, experiment)):
                yield (*lead, t_s, phase.at(t_s), *point)

    return _table("series", factors, _explained(rows(), run))


def intervals_table(run: RunDir) -> Table:
    """Counters of each load generator about ten times a second, as reported; times are relative to `go`."""
    records = run.records()
    factors = _Factors("intervals", (record.spec.setting for record in records))
    told = [column.name for column in FOLLOWING["intervals"]]
    told = told[told.index("in_flight_now") :]

    def rows() -> Iterator[Row]:
        for lead, record, directory in _recorded(run, records, factors):
            origin_ns = record.origin_ns
            for event in _up_to_damage(directory.read_events()):
                if event.get("type") != "interval":
                    continue
                ok = event["outcomes"].get("ok", 0)
                yield (
                    *lead, event.get("engine", 0), event["phase"],
                    (event["start_ns"] - origin_ns) / SECOND_NS, (event["end_ns"] - origin_ns) / SECOND_NS,
                    event["scheduled"], event["sent"], event["dropped"], ok, sum(event["outcomes"].values()) - ok,
                    *(event.get(name) for name in told),
                )  # fmt: skip

    return _table("intervals", factors, _explained(rows(), run))


def changes_table(comparison: RunComparison) -> Table:
    """A row for each setting that was compared: both estimates, their ratio, the verdict on the second."""
    factors = _Factors("changes", (change.setting for change in comparison.changes))

    def cells(change: Change) -> Row:
        return (
            *comparison.names, change.setting.id, *factors.cells(change.setting),
            comparison.objective, change.verdict.value,
            *_known(change.first), *_known(change.second), *value_and_ends(change.ratio),
            change.smallest_difference, change.because or None,
        )  # fmt: skip

    return _table("changes", factors, map(cells, comparison.changes))


_Point = tuple[float, str, str | None, float]
"""Seconds, series, label, value."""


def _points(directory: TrialDir, record: TrialRecord, experiment: Experiment) -> Iterator[_Point]:
    """The series of one trial, one after the other; unknown values have no row."""
    for second in seconds_of_load(directory.read_events(), record.origin_ns):
        for name, value in second.values.items():
            if value is not None:
                yield second.t_s, name, None, value
    sampled = _sampled(directory, record, experiment.measure)
    for prefix, part in (
        ("subject_", sampled.subject),
        ("host_", sampled.host),
        ("jvm_", sampled.jvm),
        ("dotnet_", sampled.dotnet),
        ("rate_counter_", sampled.counter),
    ):
        columns = {name: values for name, values in vars(part).items() if name != "t_s"}
        for name, values in columns.items():
            yield from _line(part.t_s, f"{prefix}{name}", None, values)
    for name, values in sampled.states.bands:
        yield from _line(sampled.states.t_s, f"threads_{name}", None, values)
    for pool in sampled.pools:
        for name, values in pool.states.bands:
            yield from _line(pool.states.t_s, f"pool_threads_{name}", pool.pool, values)
    for own in sampled.own:
        yield from _line(own.t_s, own.name, None, own.values)
    for labelled in sampled.labelled:
        name = f"{labelled.name}_per_s" if is_counter(labelled.name) else labelled.name
        for label, values in labelled.lines:
            yield from _line(labelled.t_s, name, label or None, values)


def _sampled(directory: TrialDir, record: TrialRecord, measured: Measure) -> TrialSeries:
    """All series except those of the load. Data that could fill the memory in hours is skipped: single threads, and the
    intervals of the load unless a rate counter needs them."""
    probe = read_probe(_without(directory.read_probe(), "threads"))
    counted = _without(directory.read_events(), "response_time_ns") if measured.rate_counter else ()
    return series_of(record, [event for event in counted if event.get("type") == "interval"], probe, measured)


def _without(events: Iterable[Mapping[str, Any]], key: str) -> Iterator[Mapping[str, Any]]:
    for event in events:
        yield {name: value for name, value in event.items() if name != key} if key in event else event


def _line(t_s: Sequence[float], series: str, label: str | None, values: Sequence[float | None]) -> Iterator[_Point]:
    for at, value in zip(t_s, values, strict=True):
        if value is not None:
            yield at, series, label, float(value)


class _Phases:
    """The phase of a trial at an instant; a phase includes its last instant."""

    def __init__(self, record: TrialRecord) -> None:
        at = {name: (ns - record.origin_ns) / SECOND_NS for name, ns in record.phases.items()}
        names = (("warmup", "go", "measure"), ("measure", "measure", "drain"), ("drain", "drain", "end"))
        self._spans = [(phase, at[begin], at.get(end, math.inf)) for phase, begin, end in names if begin in at]

    def at(self, t_s: float) -> str | None:
        return next((phase for phase, begin, end in self._spans if begin < t_s <= end), None)


def _recorded(
    run: RunDir, records: Sequence[TrialRecord], factors: _Factors
) -> Iterator[tuple[Row, TrialRecord, TrialDir]]:
    """Each trial that took place, with its leading cells."""
    name = run.path.resolve().name
    for record in records:
        spec = record.spec
        directory = run.trial(spec.number)
        yield (name, spec.number, spec.block, spec.setting.id, *factors.cells(spec.setting)), record, directory


def _up_to_damage(rows: Iterator[_T]) -> Iterator[_T]:
    """The rows of one trial; those after a damaged line are missing. `powerband report` names such a trial."""
    with suppress(DamagedError):
        yield from rows


def _explained(rows: Iterator[Row], run: RunDir) -> Iterator[Row]:
    """Raises UsageError for lines that are complete but not in the format of this version's engine and probe."""
    try:
        yield from rows
    except NOT_AS_WRITTEN as error:
        raise UsageError(
            f"cannot read the trials of {run.path}: their files are damaged, or another version of powerband wrote "
            f"them ({type(error).__name__}: {error})"
        ) from error


class _Factors:
    """The columns of the parameters. A parameter whose name is already taken in its table becomes `factor_NAME`; values
    of different types become texts."""

    def __init__(self, table: str, settings: Iterable[Setting]) -> None:
        levels: dict[str, dict[Any, None]] = {}
        for setting in settings:
            for name, level in setting.levels:
                levels.setdefault(name, {})[(type(level), level)] = None
        taken = {column.name for column in (*LEADING[table], *FOLLOWING[table])} | set(METRICS)
        self.columns: tuple[Column, ...] = ()
        for name, found in levels.items():
            shown = name
            while shown in taken or shown.startswith(OWN):
                shown = f"factor_{shown}"
            taken.add(shown)
            self.columns += (Column(shown, _kind_of(level for _, level in found)),)
        self._names = tuple(levels)

    def cells(self, setting: Setting) -> Row:
        of = setting.as_dict()
        return tuple(
            None if name not in of else format_level(of[name]) if column.kind is Kind.TEXT else of[name]
            for name, column in zip(self._names, self.columns, strict=True)
        )


def _kind_of(levels: Iterable[Any]) -> Kind:
    kinds = set()
    for level in levels:
        if isinstance(level, bool):
            kinds.add(Kind.TRUTH)
        elif isinstance(level, int) and abs(level) <= WHOLE_MAX:
            kinds.add(Kind.WHOLE)
        elif isinstance(level, float) and math.isfinite(level):
            kinds.add(Kind.NUMBER)
        else:
            kinds.add(Kind.TEXT)
    if kinds == {Kind.WHOLE, Kind.NUMBER}:
        return Kind.NUMBER
    return kinds.pop() if len(kinds) == 1 else Kind.TEXT


def _metric_names(found: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """The metrics present: in the order of `METRICS`, then the server's own by name."""
    present = {name for each in found for name in each}
    known = [name for name in METRICS if name in present]
    return (*known, *sorted(present - set(known)))


def _table(name: str, factors: _Factors, rows: Iterator[Row], metrics: Sequence[str] = ()) -> Table:
    measured = tuple(Column(metric, Kind.NUMBER, METRICS[metric].unit) for metric in metrics)
    return Table(name, (*LEADING[name], *factors.columns, *FOLLOWING[name], *measured), rows)


def _joined(texts: Iterable[str]) -> str | None:
    return "; ".join(texts) or None
