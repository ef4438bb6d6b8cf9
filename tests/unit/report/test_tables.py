"""The tidy tables: the content of a row, the columns that the reference page lists, and the streaming of long runs."""

from __future__ import annotations

import json
import re
import shutil
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from fakes import synthetic
from fakes.trials import (
    START_NS,
    Figures,
    experiment,
    interval_lines,
    probe_lines,
    record_of,
    spec,
    trial_series,
    write_trial,
)
from powerband.analyze.runs.changes import Change, RunComparison
from powerband.analyze.trial.series import seconds_of_load
from powerband.base.errors import UsageError
from powerband.files.experiment_file import load_experiment
from powerband.model.plan import Level, Setting
from powerband.model.results import Estimate, Verdict
from powerband.readings.probe_samples import read_probe
from powerband.report.tables.rows import (
    FOLLOWING,
    LEADING,
    RUN_TABLES,
    Kind,
    Table,
    changes_table,
    estimates_table,
    intervals_table,
    run_table,
    series_table,
    settings_table,
    trials_table,
)
from powerband.search.session import analyse_run
from powerband.store import RunDir

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "tables.md").read_text()
GOLDEN = Path(__file__).parents[2] / "golden" / "run-small"


def rows(table: Table) -> list[dict[str, Any]]:
    names = [column.name for column in table.columns]
    assert len(set(names)) == len(names)
    return [dict(zip(names, row, strict=True)) for row in table.rows]


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    shutil.copytree(GOLDEN, tmp_path / "run-small")
    return RunDir.open(tmp_path / "run-small")


@pytest.mark.parametrize("table", sorted(LEADING))
def test_the_page_lists_every_column_and_no_other(table: str) -> None:
    section = PAGE.split(f"## `{table}`\n")[1].split("\n## ")[0].split("| series |")[0]
    listed = [name for line in section.splitlines() if line.startswith("| `") for name in named(line)]
    assert sorted(listed) == sorted(column.name for column in (*LEADING[table], *FOLLOWING[table]))


def named(line: str) -> list[str]:
    return re.findall(r"`(\w+)`", line.split(" | ", maxsplit=1)[0])


def test_the_page_lists_every_table() -> None:
    overview = PAGE.split("| table |")[1].split("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)`", overview, re.M)) == {*RUN_TABLES, "changes"} == set(LEADING)


def test_a_trial_is_a_row_with_every_digit() -> None:
    analysis = synthetic.analysis()
    found = rows(trials_table(analysis, "run"))
    assert [row["trial"] for row in found] == [trial.number for trial in analysis.trials]
    for row, trial in zip(found, analysis.trials, strict=True):
        assert (row["setting"], row["status"], row["valid"]) == (trial.setting.id, trial.status, trial.valid)
        assert row["threads"] == trial.setting.as_dict()["threads"]
        assert row["goodput_per_s"] == trial.metrics.get("goodput_per_s")
    failed = found[29]
    assert failed["problems"].startswith("the server exited") and failed["response_time_ns_p99"] is None
    kinds = {column.name: (column.kind, column.unit) for column in trials_table(analysis, "run").columns}
    assert kinds["threads"] == (Kind.WHOLE, "")
    assert kinds["rss_bytes_max"] == (Kind.NUMBER, "bytes")


def test_a_setting_is_a_row_and_says_which_is_the_answer() -> None:
    analysis = synthetic.analysis()
    found = rows(settings_table(analysis, "run"))
    assert [row["setting"] for row in found if row["answer"]] == ["threads=32"]
    first = found[0]
    assert (first["feasible"], first["infeasible_because"]) == (False, "error_rate < 1%")
    estimate = analysis.settings[0].estimates["goodput_per_s"]
    ends = (estimate.value, estimate.low, estimate.high)
    assert (first["objective_value"], first["objective_low"], first["objective_high"]) == ends
    assert first["goodput_per_s"] == estimate.value


def test_estimates_are_one_a_row(run: RunDir) -> None:
    of = load_experiment(run.experiment)
    analysis = analyse_run(of, run)
    found = rows(run_table("estimates", run, of, lambda: analysis))
    wanted = {(row.setting.id, name): each for row in analysis.settings for name, each in row.estimates.items()}
    assert {(row["setting"], row["metric"]): row["value"] for row in found} == {
        key: each.value for key, each in wanted.items()
    }
    assert all(row["run"] == "run-small" for row in found)


def settings_of(*levels: dict[str, Level]) -> list[Setting]:
    return [Setting(tuple(each.items())) for each in levels]


def with_settings(*levels: dict[str, Level]) -> Table:
    analysis = synthetic.analysis()
    made = [replace(analysis.settings[1], setting=setting) for setting in settings_of(*levels)]
    return settings_table(replace(analysis, settings=tuple(made)), "run")


def test_a_factor_that_is_called_like_another_column_is_renamed() -> None:
    table = with_settings({"setting": 1, "goodput_per_s": 2, "app_x": 3, "load.users": 4})
    (row,) = rows(table)
    assert (row["factor_setting"], row["factor_goodput_per_s"], row["factor_app_x"], row["load.users"]) == (1, 2, 3, 4)
    assert row["setting"] == "setting=1,goodput_per_s=2,app_x=3,load.users=4"


@pytest.mark.parametrize(
    ("levels", "kind", "cells"),
    [
        ((1, 2), Kind.WHOLE, [1, 2]),
        ((1, 2.5), Kind.NUMBER, [1, 2.5]),
        ((True, False), Kind.TRUTH, [True, False]),
        ((1, "auto"), Kind.TEXT, ["1", "auto"]),
        ((1, True), Kind.TEXT, ["1", "true"]),
        ((2**70, 1), Kind.TEXT, [str(2**70), "1"]),
        ((float("inf"), 1.0), Kind.TEXT, ["inf", "1"]),
    ],
)
def test_the_kind_of_a_factor(levels: tuple[Level, ...], kind: Kind, cells: list[Any]) -> None:
    table = with_settings(*({"x": level} for level in levels))
    assert next(column.kind for column in table.columns if column.name == "x") is kind
    found = [row["x"] for row in rows(table)]
    assert found == cells and [type(cell) for cell in found] == [type(cell) for cell in cells]


def test_series_are_those_of_the_report(run: RunDir) -> None:
    of = load_experiment(run.experiment)
    found = rows(series_table(run, of))
    for record in run.records():
        series = trial_series(run.trial(record.spec.number), record, of.measure)
        mine = [row for row in found if row["trial"] == record.spec.number]
        assert {row["threads"] for row in mine} == {record.spec.setting.as_dict()["threads"]}
        rate = [(row["t_s"], row["value"]) for row in mine if row["series"] == "rate_per_s"]
        assert rate == list(zip(series.load.t_s, series.load.rate_per_s, strict=True))
        rss = [row["value"] for row in mine if row["series"] == "subject_rss_bytes"]
        assert rss == [value for value in series.subject.rss_bytes if value is not None]
        on_cpu = dict(series.states.bands).get("on_cpu", ())
        assert [row["value"] for row in mine if row["series"] == "threads_on_cpu"] == list(on_cpu)
        pools = {pool.pool for pool in series.pools if dict(pool.states.bands).get("on_cpu")}
        assert {row["label"] for row in mine if row["series"] == "pool_threads_on_cpu"} == pools


def test_the_phase_of_an_instant(run: RunDir) -> None:
    of = load_experiment(run.experiment)
    record = run.records()[0]
    origin = record.phases["go"]
    for row in rows(series_table(run, of)):
        if row["trial"] != record.spec.number:
            continue
        at = row["t_s"] * 1e9 + origin
        assert (row["phase"] == "measure") == (record.phases["measure"] < at <= record.phases["drain"])
        assert (row["phase"] is None) == (at <= origin or at > record.phases["end"])


def test_intervals_are_what_the_engine_said(run: RunDir) -> None:
    found = rows(intervals_table(run))
    said = [
        event for record in run.records() for event in run.trial(record.spec.number).read_events()
        if event["type"] == "interval"
    ]  # fmt: skip
    assert [row["sent"] for row in found] == [event["sent"] for event in said]
    assert [row["ok"] + row["failed"] for row in found] == [sum(event["outcomes"].values()) for event in said]
    assert all(row["joined_now"] is None and row["end_s"] > row["start_s"] >= 0 for row in found)


def endless(engines: int = 1) -> Iterator[dict[str, Any]]:
    for engine in range(engines):
        yield {"type": "hello", "engine": engine}
    template = interval_lines(Figures(window_s=1.0))[0]
    number = 0
    while True:
        start = START_NS + number * 100_000_000
        for engine in range(engines):
            yield {**template, "engine": engine, "start_ns": start, "end_ns": start + 100_000_000}
        number += 1


@pytest.mark.parametrize("engines", [1, 3])
def test_a_load_without_end_is_told_second_by_second(engines: int) -> None:
    found = list(islice(seconds_of_load(endless(engines), START_NS), 5))
    assert [second.t_s for second in found] == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert [second.values["rate_per_s"] for second in found] == pytest.approx([1000.0 * engines] * 5)


def test_a_second_waits_for_every_engine_that_lives() -> None:
    """Engine 1 is two seconds late, and its last line comes before those of the other engine."""
    mine = [event | {"engine": 0} for event in interval_lines(Figures(window_s=4.0))]
    late = [event | {"engine": 1} for event in interval_lines(Figures(window_s=2.0))]
    hello = [{"type": "hello", "engine": engine} for engine in (0, 1)]
    events = [*hello, *mine[:25], *late, {"type": "summary", "engine": 1}, *mine[25:]]
    found = list(seconds_of_load(events, START_NS - 2 * 10**9))
    assert [second.t_s for second in found] == [float(t) for t in range(1, 7)]
    assert [second.values["rate_per_s"] for second in found] == pytest.approx([2000.0] * 4 + [1000.0] * 2)


def test_rows_of_a_series_come_before_the_trial_is_read(tmp_path: Path) -> None:
    """The first row needs only the first second of the load. The rest may be damaged, or larger than memory."""
    run = RunDir(tmp_path)
    write_trial(run.trial(1), record_of(spec(), Figures()), Figures())
    with run.trial(1).events.open("a") as file:
        file.write("this is no line of an engine\n")
    table = series_table(run, experiment())
    first = next(table.rows)
    assert first[table.columns.index(next(c for c in table.columns if c.name == "series"))] == "rate_per_s"


def test_lines_of_another_program_are_explained(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    write_trial(run.trial(1), record_of(spec(), Figures()), Figures())
    with run.trial(1).events.open("a") as file:
        file.write('{"type": "interval", "end_ns": 2000000000000}\n')
    for table in (intervals_table(run), series_table(run, experiment())):
        with pytest.raises(UsageError, match=r"cannot read the trials of .*damaged, or another version of powerband"):
            list(table.rows)


def test_changes_are_one_a_row() -> None:
    value, ratio = Estimate(1000, 990, 1010, 0.95, 5), Estimate(0.9, 0.88, 0.92, 0.95, 5)
    (of,) = settings_of({"threads": 4})
    changes = (
        Change(of, value, value, ratio, Verdict.WORSE, 0.02),
        Change(of, None, value, None, Verdict.INCONCLUSIVE),
    )
    comparison = RunComparison("goodput_per_s", "maximise", 0.95, 0.03, changes, (), (), ("a", "b"))
    found = rows(changes_table(comparison))
    assert found[0] | {"first": "a", "threads": 4, "verdict": "worse", "ratio_low": 0.88, "because": None} == found[0]
    assert (found[1]["first_value"], found[1]["ratio"], found[1]["second_high"]) == (None, None, 1010)
    bound = replace(changes[0], first=replace(value, at_least=True), second=replace(value, at_least=True))
    (row,) = rows(changes_table(replace(comparison, changes=(bound,))))
    ends = [row[f"{which}_{end}"] for which in ("first", "second") for end in ("value", "low", "high")]
    assert ends == [1000, None, None, 1000, None, None], "of a lower bound no interval is known"


def test_no_such_table(run: RunDir) -> None:
    with pytest.raises(UsageError, match="there is no table trails; did you mean trials"):
        run_table("trails", run, experiment(), synthetic.analysis)


def test_a_trial_of_an_hour_is_read_within_little_memory(tmp_path: Path) -> None:
    """The probe's samples are kept as arrays of numbers, not as the dictionaries of their lines."""
    lines = [json.dumps(line) for line in probe_lines(Figures(window_s=60.0))]
    tracemalloc.start()
    probe = read_probe(json.loads(line) for line in lines)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert probe is not None and probe.host.at_ns.size == 621
    assert most < 3000 * probe.host.at_ns.size  # bytes a sample; as a dictionary its line takes twice that


def test_an_estimate_that_is_a_lower_bound_is_marked() -> None:
    base = synthetic.analysis()
    first = base.settings[0]
    bound = {name: replace(found, at_least=name == "response_time_ns_p99") for name, found in first.estimates.items()}
    found = rows(estimates_table(replace(base, settings=(replace(first, estimates=bound),)), "run"))
    assert {row["metric"] for row in found if row["at_least"]} == {"response_time_ns_p99"}
    of_p99 = replace(base, settings=(replace(first, estimates=bound),), objective="response_time_ns_p99")
    (row,) = rows(settings_table(of_p99, "run"))
    assert row["objective_value"] is not None and (row["objective_low"], row["objective_high"]) == (None, None)
