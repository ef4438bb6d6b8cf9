"""Reports that must stay as they are, and the report of a small recorded run.

`run-small` is a real run of experiments/quickstart.yaml (profile smoke), as recorded but for the host's name and the
command. The machine was busy then, so the honesty gate discards its trials; these tests, which are about drawing alone,
ignore that. After an intended change of the text run them with POWERBAND_UPDATE_GOLDEN=1 and read the difference."""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fakes import synthetic, synthetic_verdicts
from powerband.analyze.settings.compare import analyse
from powerband.files.experiment_file import load_experiment
from powerband.model.results import Analysis
from powerband.report.html.report import write_report
from powerband.report.terminal.text import print_answer
from powerband.search.finished import finished_trials
from powerband.store import RunDir

HERE = Path(__file__).parent


ANSWERS = {
    "answer": synthetic.analysis,
    "answer-race": synthetic_verdicts.race_analysis,
    "answer-capacity": synthetic_verdicts.capacity_analysis,
}


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", list(ANSWERS))
def test_the_printed_answer(name: str, width: int) -> None:
    out = io.StringIO()
    print_answer(Console(file=out, width=width), ANSWERS[name](), Path("runs/20261120-213500-pool-size/report.html"))
    golden = HERE / f"{name}-{width}.txt"
    if os.environ.get("POWERBAND_UPDATE_GOLDEN") == "1":
        golden.write_text(out.getvalue())
    assert out.getvalue() == golden.read_text()


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    shutil.copytree(HERE / "run-small", tmp_path / "run")
    return RunDir.open(tmp_path / "run")


@pytest.fixture
def analysis(run: RunDir) -> Analysis:
    experiment = load_experiment(run.experiment)
    results = [
        replace(result, problems=tuple(replace(problem, fatal=False) for problem in result.problems))
        for result in finished_trials(experiment, run).results.values()
    ]
    return analyse(experiment, results)


@pytest.fixture
def data(run: RunDir, analysis: Analysis) -> dict[str, Any]:
    packed = re.search(r'id="packed-data">([^<]*)<', write_report(run, analysis).read_text())
    assert packed
    loaded = json.loads(gzip.decompress(base64.b64decode(packed[1])))
    assert isinstance(loaded, dict)
    return loaded


def test_a_recorded_run_has_a_whole_report(run: RunDir, analysis: Analysis, data: dict[str, Any]) -> None:
    html = run.report.read_text()
    assert analysis.question in html
    assert all(setting.id in html for setting in (row.setting for row in analysis.settings))
    assert f"seed: {load_experiment(run.experiment).design.seed}" in html
    ids = {chart["id"] for chart in data["charts"]}
    assert {"goodput", "response-time", "cost-subject_cpu_cores", "cost-threads_max", "states"} <= ids


def test_each_trials_series_covers_its_window(analysis: Analysis, data: dict[str, Any]) -> None:
    assert [trial["number"] for trial in data["trials"]] == [trial.number for trial in analysis.trials]
    for trial in data["trials"]:
        panels = {track["panel"] for track in trial["tracks"]}
        assert {"Rate", "Response time", "Server’s CPU", "Memory", "Threads", "Context switches"} <= panels
        start, end = trial["measured_s"]
        assert 0 < start < end
        for track in trial["tracks"]:
            seconds = [s for s, _ in track["points"]]
            assert seconds == sorted(seconds)
            assert seconds[-1] > start or track["panel"].startswith("Threads named")


def test_distributions_hold_every_request_of_the_valid_trials(run: RunDir, analysis: Analysis) -> None:
    html = write_report(run, analysis).read_text()
    for row in analysis.settings:
        mine = [record for record in run.records() if record.spec.setting == row.setting]
        ok = sum(engine["cohort"]["outcomes"].get("ok", 0) for record in mine for engine in record.engines)
        assert f'<th scope="row">{row.setting.id}</th><td>{ok:,}</td>' in html


def test_the_same_run_gives_the_same_bytes(run: RunDir, analysis: Analysis) -> None:
    first = write_report(run, analysis).read_bytes()
    assert write_report(run, analysis).read_bytes() == first
    assert len(first) < 600_000
