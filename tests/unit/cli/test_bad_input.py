"""A run without an answer ends with a sentence that says what to change, and keeps its measurements. The tests run the
command line with made-up trials."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fakes.trials import Figures, record_of, write_trial
from powerband.cli import invoke
from powerband.model.experiment import Experiment
from powerband.model.plan import TrialSpec
from powerband.search import session
from powerband.store import RunDir, TrialDir, TrialRecord

FILE = """\
name: made
subject: {use: reference, set: {model: fixed}}
factors: {threads: [1, 2, 4]}
load: {users: 10, duration: 5s}
measure: {repeats: 4, warmup_min: 1s}
design: {order: race, seed: 7}
"""
TRIAL_S = 14.0  # the duration of a made-up trial: see `record_of`

Said = Callable[..., tuple[int, str, str]]


def by_threads(_experiment: Experiment, spec: TrialSpec, directory: TrialDir, **_: Any) -> TrialRecord:
    threads = int(spec.setting.as_dict()["threads"])
    rate = 100.0 * threads + spec.block
    figures = Figures(goodput_per_s=rate, response_ns=10 / rate * 1e9, threads=threads)
    return write_trial(directory, record_of(spec, figures), figures)


def without_probe(experiment: Experiment, spec: TrialSpec, directory: TrialDir, **_: Any) -> TrialRecord:
    record = by_threads(experiment, spec, directory)
    directory.probe.write_text("")
    return record


@pytest.fixture(autouse=True)
def no_real_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    made_up(monkeypatch, by_threads)
    monkeypatch.setattr("powerband.processes.engine_fleet.find_engine", lambda: Path("/no/engine"))
    monkeypatch.setattr("powerband.processes.host.host_facts", lambda _engine, command: {})


def made_up(monkeypatch: pytest.MonkeyPatch, trial: Callable[..., TrialRecord]) -> None:
    real = getattr(session.run_session, "func", session.run_session)
    monkeypatch.setattr(session, "run_session", partial(real, trial=trial))


@pytest.fixture
def said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Said:
    """A function that runs a file with `--set` options, and returns the exit code, the answer in one line, and
    stderr."""

    def run(*overrides: str, text: str = FILE) -> tuple[int, str, str]:
        file = tmp_path / "made.yaml"
        file.write_text(text)
        sets = [part for override in overrides for part in ("--set", override)]
        code = invoke(["run", str(file), "--runs", str(tmp_path / "runs"), "--format", "json", *sets])
        captured = capsys.readouterr()
        answer = json.loads(captured.out)["answer"]["sentences"] if captured.out else []
        return code, " ".join(answer), captured.err

    return run


def trials(tmp_path: Path) -> int:
    (folder,) = (tmp_path / "runs").iterdir()
    return len(RunDir.open(folder).records())


def test_one_setting_is_measured_and_told_to_be_alone(said: Said, tmp_path: Path) -> None:
    code, answer, errors = said("factors.threads=[2]")
    assert code == 0
    assert answer.startswith("Use threads=2: goodput 20")
    assert (
        "It is the only setting, so there was nothing to compare: name more values of a parameter "
        "(-P threads=1..64, factors in a file)." in answer
    )
    assert "There is one setting, so nothing can be compared: name more values to compare" in errors
    assert trials(tmp_path) == 4


def test_a_budget_that_is_plainly_too_small_is_refused_before_anything_starts(said: Said, tmp_path: Path) -> None:
    code, answer, errors = said("design.budget=17s")
    assert (code, answer) == (3, "")
    assert (
        "--set design.budget=17s: 17.0 s is too little for one round: 3 settings of at least 6.00 s each take 18.0 s, "
        "and a comparison needs two rounds: allow more time, name fewer values, or shorten load.duration"
    ) in errors
    assert not (tmp_path / "runs").exists()


def test_a_soak_of_an_experiment_is_asked_for_by_its_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "made.yaml"
    file.write_text(FILE)
    assert invoke(["run", str(file), "--runs", str(tmp_path / "runs"), "--soak", "1s"]) == 3
    assert "--set design.soak=1s: 1.00 s is no long run" in capsys.readouterr().err
    assert invoke(["plan", str(file), "--soak", "10m"]) == 0
    assert ", and a soak of 10 min" in capsys.readouterr().out
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(("order", "needed"), [("race", "168 s"), ("blocks", "84.0 s")])
def test_a_budget_that_the_first_trials_show_to_be_too_small_ends_the_run(
    order: str, needed: str, said: Said, tmp_path: Path
) -> None:
    code, answer, _ = said("design.budget=30s", f"design.order={order}")
    assert code == 0
    assert answer.startswith("Not enough data to name a setting: threads=")
    assert (
        f"The budget of 30.0 s was too little: one trial of every setting takes about 42.0 s, and at least 2 of each "
        f"are needed; allow {needed}, name fewer values, or shorten load.duration (there was no time for threads="
    ) in answer
    assert trials(tmp_path) == 1, "the first showed it, and is kept"


def test_a_budget_for_one_block_and_no_more_says_so_too(said: Said, tmp_path: Path) -> None:
    _, answer, _ = said("design.budget=50s", "design.order=blocks")
    assert trials(tmp_path) == 3
    assert (
        "The budget of 50.0 s was too little: " in answer and "allow 84.0 s" in answer and "no time for" not in answer
    )


@pytest.mark.parametrize(
    ("metric", "load", "why"),
    [
        (
            "memory",
            "load.users=10",
            "This machine does not report it: see `powerband doctor`.",
        ),
        (
            "finish_s",
            "load={users: 10, requests_per_user: 9}",
            "Only users with a set number of requests (load.requests_per_user) finish, and some did not.",
        ),
        ("users_mean", "load={rate: 100, users: null}", "Only a load with users has it, and this load has a rate."),
    ],
)
def test_an_objective_that_no_trial_measured(
    metric: str, load: str, why: str, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_up(monkeypatch, without_probe)
    code, answer, _ = said(f"objective.minimise={metric}", load, "design.order=blocks")
    assert code == 5
    assert answer.startswith("No trial measured the objective, ")
    assert why in answer
    assert "The trials are kept; run again with an objective that they have, for example goodput, " in answer


def test_an_slo_that_nothing_meets_names_the_nearest(said: Said, tmp_path: Path) -> None:
    code, answer, _ = said("objective.subject_to=[p99 < 1ms]")
    assert code == 1
    first = "No setting meets the SLO (p99 < 1ms), with 10 users that never pause. "
    assert answer.startswith(f"{first}threads=4 comes nearest. It violates the SLO: p99 < 1ms (it was ")
    assert trials(tmp_path) == 6, "two blocks show it"


def test_an_slo_on_what_no_trial_measured(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    made_up(monkeypatch, without_probe)
    _, answer, _ = said("objective.subject_to=[memory < 1GiB]", "design.order=blocks")
    assert answer.startswith("Not enough data to name a setting: none was seen to meet memory < 1GiB.")
    assert "memory was not measured" in answer
