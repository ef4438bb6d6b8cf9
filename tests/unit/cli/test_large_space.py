"""A space too large to race, from the command line: its plan, run, resumption and report. Trials are made up."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fakes.trials import Figures, record_of, write_trial
from powerband.cli import invoke
from powerband.model.experiment import Experiment
from powerband.model.plan import Stage, TrialSpec
from powerband.search import session
from powerband.store import RunDir, TrialDir, TrialRecord

FILE = """\
name: large
subject: {use: reference, set: {model: fixed}}
factors: {threads: 1..20 step 1, label.x: [1, 2, 3]}
load: {users: 10, duration: 10s}
measure: {repeats: 3}
design: {order: race, seed: 7, explore_trials: 12, finalists: 4, confirm: 1}
"""


def by_threads(_experiment: Experiment, spec: TrialSpec, directory: TrialDir, **_: Any) -> TrialRecord:
    threads = int(spec.setting.as_dict()["threads"])
    rate = 1000.0 - 40 * abs(threads - 12) + spec.number % 3
    figures = Figures(goodput_per_s=rate, response_ns=10 / rate * 1e9, threads=threads)
    return write_trial(directory, record_of(spec, figures), figures)


def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "run_session", partial(session.run_session, trial=by_threads))
    monkeypatch.setattr("powerband.processes.engine_fleet.find_engine", lambda: Path("/no/engine"))
    monkeypatch.setattr("powerband.processes.host.host_facts", lambda _engine, command: {})


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("large")
    (folder / "large.yaml").write_text(FILE)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        made_up(patched)
        assert invoke(["run", str(folder / "large.yaml"), "--runs", str(folder / "runs"), "--format", "json"]) == 0
    (run,) = (folder / "runs").iterdir()
    return run


@pytest.fixture
def finished(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    """A copy of a finished run, which the test may change."""
    made_up(monkeypatch)
    shutil.copytree(original, tmp_path / "runs" / original.name)
    return RunDir.open(tmp_path / "runs" / original.name)


def test_it_is_explored_and_its_best_race(finished: RunDir) -> None:
    analysis = json.loads(finished.analysis.read_text())
    assert analysis["exploration"] == {"settings": 60, "tried": 12, "raced": 4}
    assert len(analysis["settings"]) == 4
    stages = [record.spec.stage for record in finished.records()]
    assert stages[:12] == [Stage.EXPLORE] * 12 and Stage.EXPLORE not in stages[12:]
    assert stages[-1] is Stage.CONFIRM
    page = (finished.path / "report.html").read_text()
    assert "60 settings" in page


@pytest.mark.parametrize("kept", [0, 5, 12, 14])
def test_a_run_that_was_killed_goes_on_with_the_same_trials(
    kept: int, finished: RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    specs = [record.spec for record in finished.records()]
    before = json.loads(finished.analysis.read_text())["answer"]
    for spec in specs[kept:]:
        finished.trial(spec.number).record.unlink()
    assert invoke(["report", str(finished.path)]) in (0, 5)  # with nothing measured yet: 5
    assert invoke(["resume", str(finished.path), "--no-progress"]) == 0
    assert [record.spec for record in finished.records()] == specs
    assert json.loads(finished.analysis.read_text())["answer"] == before
    assert "12 of 60 settings were tried once, and 4 raced." in " ".join(capsys.readouterr().out.split())


def test_the_plan_says_what_is_certain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "large.yaml").write_text(FILE)
    assert invoke(["plan", str(tmp_path / "large.yaml")]) == 0
    text = capsys.readouterr().out
    assert text.startswith(
        "large: 60 settings, 12 of them tried once, then 4 of these in a race of at most 3 rounds and 2 to confirm the "
        "winner: at most 26 trials, seed 7\n"
    )
    assert text.endswith("What follows depends on what these show.\n")
    assert invoke(["plan", str(tmp_path / "large.yaml"), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["trials_max"] == 26
    assert len(document["trials"]) == 10 and {trial["stage"] for trial in document["trials"]} == {"explore"}


def test_only_an_exploration_imports_what_it_needs() -> None:
    code = (
        "import sys; from powerband.cli import invoke; invoke(['plan', 'quickstart', '--set', 'design.order=race']);"
        "print([m for m in ('optuna', 'sqlalchemy') if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


def test_without_optuna_it_is_refused_before_anything_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)  # as if it were not installed
    (tmp_path / "large.yaml").write_text(FILE)
    assert invoke(["run", str(tmp_path / "large.yaml"), "--runs", str(tmp_path / "runs")]) == 2
    assert "Optuna, which is not installed: pip install 'powerband[explore]'" in capsys.readouterr().err
    assert not list((tmp_path / "runs").glob("*/trials/*"))
