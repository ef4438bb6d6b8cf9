"""A whole run from a file to an exit code, with made-up trials: claims that are confirmed, and one that is refuted."""

from __future__ import annotations

import json
import os
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
from powerband.model.plan import TrialSpec
from powerband.search import session
from powerband.store import TrialDir, TrialRecord

FILE = """\
name: claims
subject: {use: reference, set: {model: fixed}}
factors: {threads: [1, 2]}
load: {users: 10, duration: 5s}
measure: {repeats: 3}
claims:
  - {id: grows, says: Two serve more than one, holds: "goodput[threads=2] > 1.5 * goodput[threads=1]", published: twice}
  - {id: clean, says: Nothing fails, holds: error_rate == 0}
"""
REFUTED = """\
  - {id: triples, says: Two serve three times what one serves, holds: "goodput[threads=2] > 3 * goodput[threads=1]"}
"""
OPEN = """\
  - {id: doubles, says: Two serve more than twice, holds: "goodput[threads=2] > 2 * goodput[threads=1]"}
"""


def by_threads(_experiment: Experiment, spec: TrialSpec, directory: TrialDir, **_: Any) -> TrialRecord:
    """Makes up a trial whose throughput follows the threads, with a little noise."""
    threads = int(spec.setting.as_dict()["threads"])
    rate = 100.0 * threads + spec.block * (1 if threads == 1 else -2)
    figures = Figures(goodput_per_s=rate, response_ns=10 / rate * 1e9, window_s=5, threads=threads)
    return write_trial(directory, record_of(spec, figures), figures)


@pytest.fixture(autouse=True)
def no_real_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "run_session", partial(session.run_session, trial=by_threads))
    monkeypatch.setattr("powerband.processes.engine_fleet.find_engine", lambda: Path("/no/engine"))
    monkeypatch.setattr("powerband.processes.host.host_facts", lambda _engine, command: {})


def run(tmp_path: Path, text: str, *options: str) -> tuple[int, Path]:
    file = tmp_path / "claims.yaml"
    file.write_text(text)
    code = invoke(["run", str(file), "--runs", str(tmp_path / "runs"), "--no-progress", *options])
    (folder,) = (tmp_path / "runs").iterdir()
    return code, folder


def test_claims_that_hold_are_exit_code_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, folder = run(tmp_path, FILE)
    out = " ".join(capsys.readouterr().out.split())
    assert code == 0
    assert "confirmed: Two serve more than one (published: twice)" in out
    assert "confirmed: Nothing fails" in out
    assert invoke(["report", str(folder)]) == 0


@pytest.mark.parametrize("output", ["text", "md", "json"])
def test_the_exit_code_is_that_of_the_answer_also_if_nobody_reads_it_to_its_end(tmp_path: Path, output: str) -> None:
    _, folder = run(tmp_path, FILE + REFUTED)
    reader, stdout = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "powerband", "report", folder, "--format", output]
    done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, check=False)
    os.close(stdout)
    assert (done.returncode, done.stderr) == (1, b"")


def test_a_refuted_claim_is_exit_code_1_in_every_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, folder = run(tmp_path, FILE + REFUTED)
    assert code == 1
    assert "refuted: Two serve three times what one serves" in capsys.readouterr().out
    assert "Two serve three times what one serves" in (folder / "report.html").read_text()
    assert invoke(["resume", str(folder), "--no-progress"]) == 1
    capsys.readouterr()
    assert invoke(["report", str(folder), "--format", "json"]) == 1
    claims = json.loads(capsys.readouterr().out)["claims"]
    assert {claim["id"]: claim["verdict"] for claim in claims} == {
        "grows": "held",
        "clean": "held",
        "triples": "refuted",
    }
    assert claims == json.loads((folder / "analysis.json").read_text())["claims"]


def test_an_undecided_claim_is_exit_code_0_and_is_seen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = run(tmp_path, FILE + OPEN)
    out = " ".join(capsys.readouterr().out.split())
    assert code == 0
    assert "inconclusive: Two serve more than twice" in out
    assert "The interval includes both" in out


def test_who_resumes_on_a_machine_that_changed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun, now = ({"cpu": {"allowed": cpus, "cgroup_cpus_max": quota}} for cpus, quota in (([0, 1], None), ([0], 2.0)))
    monkeypatch.setattr("powerband.processes.host.host_facts", lambda _engine, command: begun)
    _, folder = run(tmp_path, FILE)
    capsys.readouterr()
    assert invoke(["resume", str(folder)]) == 0
    assert "when this run was begun" not in "".join(capsys.readouterr())
    monkeypatch.setattr("powerband.processes.host.host_facts", lambda _engine, command: now)
    changes = (
        "CPUs allowed was [0, 1] when this run was begun, and [0] when it was resumed",
        "CPU limit of the cgroup was none when this run was begun, and 2.0 when it was resumed",
    )
    for lost in (False, True):
        if lost:
            (folder / "trials/0006/record.json").unlink()
        assert invoke(["resume", str(folder)]) == 0
        said = " ".join("".join(capsys.readouterr()).split())
        assert all(text in said for text in changes)
        assert invoke(["report", str(folder), "--format", "json"]) == 0
        warnings = " ".join(json.loads(capsys.readouterr().out)["warnings"])
        assert all((text in warnings) is lost for text in changes), "only if a trial was measured since"
        assert all((text in (folder / "report.html").read_text()) is lost for text in changes)


def test_who_resumes_an_experiment_that_was_edited_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, folder = run(tmp_path, FILE)
    said = "experiment.yaml was changed after this run was begun"
    for users in (10, 20):
        text = (folder / "experiment.yaml").read_text()
        (folder / "experiment.yaml").write_text(text.replace("users: 10", f"users: {users}"))
        (folder / "trials/0006/record.json").unlink()
        assert invoke(["resume", str(folder)]) in (0, 1)
        assert (said in " ".join("".join(capsys.readouterr()).split())) is (users == 20)
    invoke(["report", str(folder), "--format", "json"])
    assert said in " ".join(json.loads(capsys.readouterr().out)["warnings"])
    (folder / "experiment.yaml").write_text(FILE)  # without the seed that was drawn
    assert invoke(["resume", str(folder)]) == 2
    assert "experiment.yaml has no design.seed" in " ".join(capsys.readouterr().err.split())


def test_who_resumes_with_an_edited_jmeter_plan_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("powerband.loads.jmeter.driver.prepare_plan", lambda *_: None)
    shutil.copy(Path(__file__).parents[3] / "examples/jmeter/plan.jmx", tmp_path)
    plan = 'jmeter: plan.jmx, properties: {host: "{host}", port: "{port}", users: 24, think_ms: 20}'
    _, folder = run(tmp_path, FILE.replace("users: 10", plan))
    for edited in (False, True):
        with (tmp_path / "plan.jmx").open("a") as file:
            file.write("\n" * edited)
        (folder / "trials/0006/record.json").unlink()
        capsys.readouterr()
        assert invoke(["resume", str(folder)]) in (0, 1)
        said = " ".join("".join(capsys.readouterr()).split())
        assert ("plan.jmx was changed after this run was begun" in said) is edited
        assert "experiment.yaml was changed" not in said
