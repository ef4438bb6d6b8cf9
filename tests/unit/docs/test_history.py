"""The page on history: its block finds the commit at which a planted series changed, and none in a series without a
change. Runs are exported as the page says."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fakes.trials import Figures, record_of, write_trial
from powerband.cli import invoke
from powerband.files.experiment_file import load_experiment
from powerband.model.experiment import Experiment
from powerband.model.plan import TrialSpec
from powerband.model.results import Analysis
from powerband.report.tables.export import export
from powerband.report.tables.rows import history_table
from powerband.search import session
from powerband.store import RunDir, TrialDir, TrialRecord

PAGE = (Path(__file__).parents[3] / "docs" / "history.md").read_text()
(BLOCK,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)
FILE = """\
name: bench
subject: {use: reference, set: {model: fixed}}
factors: {threads: [8]}
load: {users: 10, duration: 10s}
measure: {repeats: 2}
design: {seed: 7}
"""
RUNS, CHANGED, LOSS, NOISE = 20, 12, 0.06, 0.01


def trial(_: Experiment, spec: TrialSpec, directory: TrialDir, **_more: Any) -> TrialRecord:
    rate = 1000.0 + spec.number
    figures = Figures(goodput_per_s=rate, response_ns=10 / rate * 1e9, threads=8)
    return write_trial(directory, record_of(spec, figures), figures)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("history")
    (folder / "bench.yaml").write_text(FILE)
    host = {"wall_s": 1.8e9, "hostname": "bench-1", "commit": "c00", "cpu": {"model": "a CPU"}}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(session, "run_session", partial(session.run_session, trial=trial))
        patched.setattr("powerband.processes.engine_fleet.find_engine", lambda: Path("/no/engine"))
        patched.setattr("powerband.processes.host.host_facts", lambda *_, **__: host)
        arguments = ["run", str(folder / "bench.yaml"), "--runs", str(folder / "runs"), "--no-progress"]
        assert invoke(arguments) == 0
    (made,) = (folder / "runs").iterdir()
    return made


def scaled(analysis: Analysis, factor: float) -> Analysis:
    (row,) = analysis.settings
    found = {name: replace(each, value=each.value * factor) for name, each in row.estimates.items()}
    return replace(analysis, settings=(replace(row, estimates=found),))


@pytest.mark.parametrize("loss", [LOSS, 0.0], ids=["slower by 6 %", "unchanged"])
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_the_block_names_the_commit(
    loss: float, form: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = RunDir.open(run)
    analysis = session.analyse_run(load_experiment(directory.experiment), directory)
    dice = Random(5)
    monkeypatch.chdir(tmp_path)
    for number in range(RUNS):
        level = (1 - loss if number >= CHANGED else 1) * (1 + dice.gauss(0, NOISE))
        host = {"wall_s": 1.8e9 + 86400 * number, "hostname": "bench-1", "commit": f"c{number:02d}"}
        for _ in range(1 + number % 2):  # a run that is exported twice counts once
            table = history_table(scaled(analysis, level), f"run-{number}", host)
            export(table, Path(f"history.{form}"), beside=f"run-{number}")
    failed = replace(analysis, settings=(replace(analysis.settings[0], estimates={}),))  # a commit that does not start
    table = history_table(failed, "run-x", {"wall_s": 1.8e9, "hostname": "bench-1"})
    export(table, Path(f"history.{form}"), beside="run-x")
    names: dict[str, Any] = {}
    block = BLOCK if form == "csv" else BLOCK.replace('read_csv("history.csv")', 'read_parquet("history.parquet")')
    exec(compile(block, "docs/history.md", "exec"), names)
    assert len(names["history"]) == RUNS and names["history"]["noise"].between(1e-5, 0.1).all()
    if loss == 0:
        assert names["found"] == []
        return
    ((commit, change),) = names["found"]
    assert commit == f"c{CHANGED}" and -8 < change < -4


def test_the_commands_make_the_table(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for commit in ([], ["--commit", "v1.2"]):
        assert invoke(["export", str(run), "--what", "history", "-o", "history.csv", "--append", *commit]) == 0
        head, *rows = Path("history.csv").read_text().splitlines()
        assert head.startswith("run,commit,date,host,cpu,powerband,setting,threads,answer")
        commit_there = commit[1] if commit else "c00"
        assert [row.split(",")[:5] for row in rows] == [
            [run.name, commit_there, "2027-01-15T08:00:00Z", "bench-1", "a CPU"]
        ]


def test_a_file_that_is_no_table_of_ours_is_not_appended_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    golden = Path(__file__).parents[2] / "golden" / "run-small"
    monkeypatch.chdir(tmp_path)
    Path("x.csv").write_text("a,b\n1,2\n")
    Path("x.parquet").write_text("a,b\n1,2\n")
    for file in ("x.csv", "x.parquet"):
        assert invoke(["export", str(golden), "-o", file, "--append"]) == 2
        assert "choose another file" in capsys.readouterr().err
        assert Path(file).read_text() == "a,b\n1,2\n"
    assert invoke(["export", str(golden), str(golden)]) == 2
    assert "add -o FILE --append" in capsys.readouterr().err


def test_other_tables_append_too_and_columns_are_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    golden = Path(__file__).parents[2] / "golden" / "run-small"
    monkeypatch.chdir(tmp_path)
    Path("x.csv").write_text("run,old,trial\nearlier,=1,7\n")
    assert invoke(["export", str(golden), "-o", "x.csv", "--append"]) == 0
    head, first, *rest = Path("x.csv").read_text().splitlines()
    assert head.startswith("run,old,trial,block,") and first.startswith("earlier,=1,7,,")
    assert all(line.startswith("run-small,,") for line in rest) and len(rest) == 6
