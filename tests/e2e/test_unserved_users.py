"""Users whom a real server never answers are reported and exclude its setting; users who pause do not count."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import powerband
from fakes.stand import FAKES
from powerband.analyze.trial import measure
from powerband.analyze.trial.honesty import MACHINE_CODES
from powerband.model.results import AnswerKind, Problem, SettingResult
from powerband.readings.evidence import Evidence, Source

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.usefixtures("engine", "no_process_left")]

ALL = 0  # number of processes; 0: one process that serves all connections in turn


def whatever_the_machine_does(source: Source) -> Source:
    """A source whose problems do not depend on the machine: a busy machine makes requests late, not unanswered."""

    def problems(evidence: Evidence, metrics: Mapping[str, float]) -> Iterator[Problem]:
        for problem in source.problems(evidence, metrics):
            busy = problem.code in MACHINE_CODES or problem.code.startswith("generator_")
            yield replace(problem, fatal=problem.fatal and not busy)

    return replace(source, problems=problems)


@pytest.fixture(autouse=True)
def busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    real = measure.sources_of
    monkeypatch.setattr(measure, "sources_of", lambda kind: tuple(map(whatever_the_machine_does, real(kind))))


def raced(
    folder: Path, processes: list[int], load: dict[str, Any], how: str = "hold", **objective: Any
) -> powerband.Run:
    command = [sys.executable, str(FAKES / "prefork_server.py"), "{port}", "{n}", how]
    case: dict[str, Any] = {
        "name": "unserved",
        "subject": {"command": command},
        "factors": {"n": processes},
        "load": {"duration": "1500ms", "drain": "1s", "scenario": [{"name": "get", "path": "/"}], **load},
        "measure": {"warmup": "500ms", "repeats": 2, "foreign_cpu_max": "100%", "steal_max": "100%"},
        "objective": {"maximise": "goodput", **objective},
    }
    return powerband.run(case, runs=folder)


def value(row: SettingResult, metric: str) -> float:
    return row.estimates[metric].value


def test_a_server_that_holds_8_of_64_connections_is_never_the_answer(tmp_path: Path) -> None:
    run = raced(tmp_path, [8], {"users": 64, "think": "20ms"})
    (row,) = run.analysis.settings
    assert value(row, "users_unserved") == pytest.approx(56)
    assert value(row, "error_rate") == pytest.approx(56 / 64, abs=0.01)
    assert value(row, "response_time_ns_p99") >= 1.4e9
    assert run.answer.kind is AnswerKind.NONE_FEASIBLE
    assert "56 of 64 users were never served" in run.answer.sentences[0]


@pytest.mark.parametrize("how", ["descriptors", "queue", "refuse"])
def test_whoever_is_kept_waiting_not_let_in_or_only_refused_is_left_out(how: str, tmp_path: Path) -> None:
    """The server has a limit on descriptors, a full accept queue (connects time out), or answers 503."""
    run = raced(tmp_path, [8], {"users": 64, "think": "20ms", "connect_timeout": "300ms"}, how)
    (row,) = run.analysis.settings
    assert value(row, "users_unserved") == pytest.approx(56, abs=1)
    assert value(row, "error_rate") >= 55 / 64 - 0.01
    assert value(row, "response_time_ns_p99") >= 1.4e9
    assert run.answer.kind is AnswerKind.NONE_FEASIBLE
    assert " of 64 users were never served" in run.answer.sentences[0]


def test_users_with_several_requests_in_flight_are_left_out_as_well(tmp_path: Path) -> None:
    run = raced(tmp_path, [8], {"users": 64, "pipeline": 3, "think": "20ms"})
    (row,) = run.analysis.settings
    assert value(row, "users_unserved") == pytest.approx(56)
    assert value(row, "error_rate") == pytest.approx(56 / 64, abs=0.01)


# They wait for longer than the machine pauses: a user who is answered must not leave the first three in a pause.
REJOINING = {"timeout": "2s", "join": "20/s", "duration": "5s", "websocket": {"rejoin_after": "300ms"}}


@pytest.mark.parametrize(
    ("how", "load", "left_out", "apart"),
    [("first:3", {}, 9, 0.1), ("first:3", REJOINING, 9, 1), ("count", {}, 0, 0.1)],
)
def test_websocket_users_whose_messages_have_no_answer_are_left_out(
    how: str, load: dict[str, Any], left_out: int, apart: float, tmp_path: Path
) -> None:
    """`apart`: users who join again are without a connection on average, which is sampled."""
    case: dict[str, Any] = {
        "name": "unserved",
        "subject": {
            "command": [sys.executable, str(FAKES / "websocket_server.py"), "{port}", how],
            "url": "ws://127.0.0.1:{port}/",
        },
        "load": {
            "users": 12,
            "think": "20ms",
            "duration": "1500ms",
            "drain": "1s",
            "scenario": [{"message": "hello", "expect": "count"}],
            **load,
        },
        "measure": {"warmup": "500ms", "repeats": 1, "foreign_cpu_max": "100%", "steal_max": "100%"},
    }
    run = powerband.run(case, runs=tmp_path)
    (row,) = run.analysis.settings
    assert value(row, "users_unserved") == pytest.approx(left_out, abs=apart)
    assert value(row, "error_rate") == pytest.approx(left_out / 12, abs=apart / 10)


def test_beside_a_server_of_all_it_does_not_lead(tmp_path: Path) -> None:
    run = raced(tmp_path, [8, ALL], {"users": 64, "think": "20ms"})
    feasible = {row.setting.id: row.feasible for row in run.analysis.settings}
    assert feasible == {"n=8": False, "n=0": True}
    assert run.answer.leader is not None and run.answer.leader.id == "n=0"


def test_where_it_is_allowed_it_is_told_of_beside_the_figure(tmp_path: Path) -> None:
    # With two trials the interval of the share is wide if they differ by a single user.
    run = raced(tmp_path, [8], {"users": 64, "think": "20ms"}, allow_unserved="99%")
    assert run.answer.leader is not None and run.answer.leader.id == "n=8"
    assert " of 64 users were never served" in run.answer.sentences[0]


@pytest.mark.parametrize("think", ["20ms", "10s"])
def test_a_fair_server_and_users_who_pause_raise_no_alarm(think: str, tmp_path: Path) -> None:
    run = raced(tmp_path, [ALL], {"users": 16, "think": think})
    assert run.analysis.trials
    for trial in run.analysis.trials:
        assert trial.metrics.get("users_unserved", 0.0) == 0
        assert "starved_users" not in {problem.code for problem in trial.problems}


def test_an_open_load_has_no_users_to_leave_out(tmp_path: Path) -> None:
    run = raced(tmp_path, [ALL], {"rate": "200/s"})
    (row,) = run.analysis.settings
    assert "users_unserved" not in row.estimates and value(row, "error_rate") == 0


@pytest.mark.parametrize(
    ("load", "measure"),
    [({"users": 16, "duration": "1300ms"}, {}), ({"users": 4, "duration": "2500ms"}, {"warmup_max": "1s"})],
    ids=["longer than the window", "longer than the warm-up"],
)
def test_a_server_that_answers_late_serves_all_users(
    load: dict[str, Any], measure: dict[str, Any], engine: Path, tmp_path: Path
) -> None:
    """Four threads take 1.2 s for each request, so that 16 users wait 4.8 s. The first answer comes after 1.2 s."""
    serve = [str(engine), "serve", "--port", "{port}", "--model", "fixed", "--threads", "{n}", "--wait", "1200ms"]
    case = {
        "name": "late",
        "subject": {"command": serve},
        "factors": {"n": [4]},
        "load": load,
        "measure": {"repeats": 1, "slots": False, "foreign_cpu_max": "100%", "steal_max": "100%", **measure},
        "objective": {"maximise": "goodput", "subject_to": ["errors < 1%"]},
    }
    run = powerband.run(case, runs=tmp_path)
    (row,), (*_, trial) = run.analysis.settings, run.analysis.trials  # a trial that the machine stopped is repeated
    assert row.feasible and value(row, "error_rate") == 0, trial.problems
    assert trial.metrics["users_unserved"] == 0
    assert ("short_window" in {problem.code for problem in trial.problems}) is (load["users"] == 16)
