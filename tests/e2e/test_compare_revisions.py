"""A race of two revisions of a real server finds the slower one, and ends before its last block."""

import json
from pathlib import Path

import pytest

from fakes.stand import CALM
from fakes.tuned import tune_experiment
from powerband.analyze.runs.revisions import compare_revisions
from powerband.cli import invoke
from powerband.files.resolved import resolved_yaml
from powerband.model.results import Verdict
from powerband.processes.stop_request import StopRequest
from powerband.search.observer import Observer
from powerband.search.session import run_session, with_seed
from powerband.store import RunDir

pytestmark = pytest.mark.e2e


@pytest.mark.crowded
def test_a_revision_that_is_many_times_slower_is_worse(
    engine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Users wait 60 ms at least, so that a load engine which other tests hold up for some ms is not too late."""
    command = [str(engine), "serve", "--port", "{port}", "--model", "fixed", "--threads", "4", "--wait", "{revision}"]
    options = {"--users": "12", "--duration": "1s", "--warmup": "100ms", "--repeats": "6", "--seed": "1"}
    experiment = with_seed(tune_experiment(command, (), options=options, revisions=("20ms", "100ms")))
    busy_machine = experiment.measure.model_copy(update={**CALM, "slots": False})
    experiment = experiment.model_copy(update={"measure": busy_machine})
    run = RunDir.create(tmp_path, experiment.name, resolved_yaml(experiment), {})
    analysis = run_session(experiment, run, Observer(), StopRequest())
    found = compare_revisions(experiment, analysis)
    (change,) = found.changes
    assert change.verdict is Verdict.WORSE, found.sentence
    assert change.ratio is not None and change.ratio.value < 0.5
    assert analysis.race is not None and analysis.race.ended_by == "decided"
    assert analysis.race.blocks < experiment.measure.repeats
    assert invoke(["compare", str(run.path), "--format", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["verdict"] == "worse"


@pytest.mark.crowded
@pytest.mark.parametrize("mistyped", ["old", "new"])
def test_a_revision_that_is_not_there_is_a_mistake_and_no_failing_server(
    mistyped: str, engine: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    names = {"old": str(engine), "new": str(engine), mistyped: str(engine.with_name("misspelt"))}
    code = invoke(
        ["compare", names["old"], names["new"], "--runs", str(tmp_path), "--duration", "300ms", "--warmup", "100ms",
         "--users", "2", "--repeats", "2", "--no-progress", "--", "{revision}", "serve", "--port", "{port}", "--model",
         "fixed", "--threads", "2"]
    )  # fmt: skip
    said = capfd.readouterr().err
    assert code == 4, said
    assert "misspelt" in said and "Traceback" not in said
