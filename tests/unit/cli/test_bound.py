"""`--regret` ends a race at a bound. The tests run the command line with made-up trials."""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

from fakes.trials import Figures, record_of, write_trial
from powerband.cli import invoke
from powerband.model.experiment import Experiment
from powerband.model.plan import Stage, TrialSpec
from powerband.processes.stop_request import StopRequest
from powerband.search import session
from powerband.store import TrialDir, TrialRecord

FILE = """\
name: made
subject: {use: reference, set: {model: fixed}}
factors: {threads: [1, 2, 4]}
load: {users: 10, duration: 5s}
measure: {repeats: 5, warmup_min: 1s}
design: {order: race, seed: 7}
"""

Said = Callable[..., tuple[int, dict[str, Any], str]]
Rate = Callable[[TrialSpec], float]


def doubling(spec: TrialSpec) -> float:
    return 100.0 * int(spec.setting.as_dict()["threads"]) + spec.block


def alike(spec: TrialSpec) -> float:
    return 1000 * random.Random(f"{spec.block}/{spec.setting.id}").gauss(1, 0.04)


@pytest.fixture
def said(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Said:
    """A function that runs a race, and returns the exit code, `answer` of the JSON, and stderr. `stop_in`: the run is
    stopped in the first trial of this stage and block."""
    monkeypatch.setattr("powerband.processes.engine_fleet.find_engine", lambda: Path("/no/engine"))
    monkeypatch.setattr("powerband.processes.host.host_facts", lambda _engine, command: {})
    real = getattr(session.run_session, "func", session.run_session)

    def run(rate: Rate, *options: str, stop_in: tuple[Stage, int] | None = None) -> tuple[int, dict[str, Any], str]:
        def trial(
            _experiment: Experiment, spec: TrialSpec, directory: TrialDir, *, stop: StopRequest, **_: Any
        ) -> TrialRecord:
            if stop_in == (spec.stage, spec.block) and not stop.requested:
                stop.request()
            value, threads = rate(spec), int(spec.setting.as_dict()["threads"])
            figures = Figures(goodput_per_s=value, response_ns=10 / value * 1e9, threads=threads)
            return write_trial(directory, record_of(spec, figures), figures)

        monkeypatch.setattr(session, "run_session", partial(real, trial=trial))
        file = tmp_path / "made.yaml"
        file.write_text(FILE)
        code = invoke(["run", str(file), "--runs", str(tmp_path / "runs"), "--format", "json", *options])
        captured = capsys.readouterr()
        return code, json.loads(captured.out)["answer"] if captured.out else {}, captured.err

    return run


def test_a_race_ends_at_the_bound_and_its_exit_code_is_0(said: Said) -> None:
    code, answer, errors = said(doubling, "--regret", "5%", "--set", "design.confirm=0")
    assert (code, answer["regret"], answer["regret_asked"]) == (0, 0, 0.05)
    assert "after 6 trials threads=4 leads: goodput 400/s; no other is better" in errors
    assert "[6] " in errors and "[7] " not in errors, "two blocks of three"


def test_a_bound_that_is_not_met_is_exit_code_1_and_told(said: Said) -> None:
    code, answer, _ = said(alike, "--regret", "1%")
    assert (code, answer["kind"]) == (1, "bounded")
    assert answer["regret"] > 0.01 and "The bound asked for, 1 % (design.regret), is not met." in answer["sentences"][1]


def test_who_stops_a_race_gets_its_answer_with_its_bound(said: Said) -> None:
    code, answer, errors = said(alike, stop_in=(Stage.COMPARE, 4))
    assert (code, answer["kind"]) == (130, "bounded") and 0 < answer["regret"] < 1
    assert "no other setting is better by more than" in answer["sentences"][0]
    assert "interrupted; finished trials are kept" in errors


def test_who_stops_a_race_whose_bound_is_met_has_what_was_asked_for(said: Said) -> None:
    code, answer, errors = said(doubling, "--regret", "5%", stop_in=(Stage.CONFIRM, 2))
    assert (code, answer["regret"]) == (0, 0) and "interrupted" not in errors


@pytest.mark.parametrize(
    "place",
    [
        "powerband.search.session.at_rest",
        "powerband.report.html.report.write_report",
        "powerband.cli.answering.print_analysis",
    ],
)
def test_ctrl_c_after_the_last_trial_takes_no_answer_away(
    said: Said, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    real = resolve_name(place)

    def interrupted(*arguments: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return real(*arguments)

    monkeypatch.setattr(place, interrupted)
    code, answer, errors = said(doubling)
    assert (code, answer["kind"]) == (0, "best") and "interrupted" not in errors


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--regret", "0%"], "--set design.regret=0%: '0%' must be above 0"),
        (["--regret", "5%", "--set", "design.order=blocks"], "it ends a race, and this plan is fixed beforehand"),
    ],
)
def test_a_bound_that_means_nothing_is_refused(said: Said, options: list[str], error: str) -> None:
    code, _, errors = said(doubling, *options)
    assert code == 3 and error in errors
