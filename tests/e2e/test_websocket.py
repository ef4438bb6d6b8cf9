"""WebSocket loads with real engines, against the reference subject and against a server with planted faults."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from fakes.guides import block_of
from fakes.smoke import failed_share
from fakes.stand import CALM, FAKES, MS, Watcher, reference, run_one
from powerband.analyze.trial.measure import measure
from powerband.loads.engine_specs import DESCRIPTORS_RESERVED
from powerband.model.experiment import Experiment, Measure, Subject
from powerband.model.load import Load
from powerband.model.results import TrialResult
from powerband.processes.ports import pick_port
from powerband.store import TrialDir, TrialRecord

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("engine", "no_process_left")]

ECHO = {"model": "event-loop", "protocol": "websocket"}


def echoing(path: str = "/") -> Subject:
    arguments = [word for name, value in ECHO.items() for word in (f"--{name}", value)]
    return reference(*arguments, url=f"ws://127.0.0.1:{{port}}{path}")


def scripted(how: str) -> Subject:
    command = (sys.executable, str(FAKES / "websocket_server.py"), "{port}", how)
    return Subject(name="scripted", command=command, url="ws://127.0.0.1:{port}/", ready={"http": "/health"})


def crowd(users: int = 20, websocket: dict[str, Any] | None = None, **changes: Any) -> Load:
    return Load.model_validate(
        {
            "users": users,
            "join_per_s": 10 * users,
            "pace": {"constant": 20 * MS},
            "pipeline": 4,
            "scenario": [{"name": "ping", "message": "ping"}],
            "duration_ns": 500 * MS,
            "drain_ns": 5_000 * MS,
            "websocket": websocket or {},
            **changes,
        }
    )


def trial(
    subject: Subject, load: Load, folder: Path, *, watcher: Watcher | None = None, **measured: Any
) -> tuple[TrialRecord, TrialResult]:
    how = Measure(**{"warmup_ns": 200 * MS, "warmup_min_ns": 0, **measured, **CALM})
    experiment = Experiment(name="test", subject=subject, load=load, measure=how)
    record = run_one(experiment, folder, watcher=watcher)
    return record, measure(TrialDir(folder / "0001"), record, experiment)


def codes(result: TrialResult) -> set[str]:
    return {problem.code for problem in result.problems}


def totals(record: TrialRecord) -> dict[str, int]:
    (summary,) = record.engines
    return dict(summary["total"]["outcomes"])


@pytest.mark.crowded
def test_users_join_then_warm_up_then_are_measured(tmp_path: Path) -> None:
    asked = {"name": "echo", "message": '{"id":{id},"user":{user}}', "check": {"contains": '"user":'}}
    # A busy machine takes a second from a watcher, too.
    load = crowd(scenario=[asked], duration_ns=1_500 * MS)
    watcher = Watcher()
    record, result = trial(echoing(), load, tmp_path, watcher=watcher)
    assert record.status == "measured", record.failure
    assert watcher.phases == ["launch", "ready", "join", "warmup", "measure", "drain", "stop"]
    assert set(totals(record)) == {"ok"}
    assert record.phases["measure"] - record.phases["go"] >= load.joining_ns + 200 * MS
    assert result.metrics["joined_users"] == 20 and result.metrics["drops"] == 0
    assert 0 < result.metrics["join_time_ns_p99"] <= result.metrics["join_time_ns_max"]
    assert result.metrics["join_error_rate"] == 0
    # The server holds a descriptor for each of them.
    assert 20 < result.metrics["descriptors_max"] < 60
    assert not codes(result) & {"littles_law", "lost_work", "lost_outcomes", "users_dropped", "not_all_joined"}


@pytest.mark.crowded
def test_users_without_a_pace_keep_little_s_law(tmp_path: Path) -> None:
    record, result = trial(echoing(), crowd(users=4, pace=None, pipeline=1, join_per_s=None), tmp_path)
    assert record.status == "measured", record.failure
    assert result.metrics["littles_law_deviation"] < 0.02


@pytest.mark.crowded
def test_what_the_server_counted_is_held_against_what_was_sent(tmp_path: Path) -> None:
    tally = {"tally": {"count_after": '"count":', "label_after": '"worker":"'}}
    _, right = trial(scripted("count"), crowd(websocket=tally), tmp_path / "right")
    assert "tally_differs" not in codes(right)
    assert right.metrics["tally_missing"] == 0
    _, wrong = trial(scripted("miscount"), crowd(websocket=tally), tmp_path / "wrong")
    assert not wrong.valid and "tally_differs" in codes(wrong)
    assert wrong.metrics["tally_missing"] > 0


@pytest.mark.crowded
def test_the_engines_of_a_fleet_are_told_of_the_same_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("powerband.processes.engines.descriptor_limit", lambda: DESCRIPTORS_RESERVED + 8)
    tally = {"tally": {"count_after": '"count":', "label_after": '"worker":"'}}
    record, result = trial(scripted("count"), crowd(websocket=tally), tmp_path)
    assert [summary["websocket"]["joined"] for summary in record.engines] == [7, 7, 6]
    assert "tally_differs" not in codes(result)
    assert (result.metrics["tally_missing"], result.metrics["joined_users"]) == (0, 20)


@pytest.mark.crowded
def test_users_who_are_dropped_are_told_of_and_join_again(tmp_path: Path) -> None:
    record, result = trial(scripted("drop:5"), crowd(websocket={"rejoin_after_ns": 10 * MS}), tmp_path)
    assert record.status == "measured", record.failure
    assert "users_dropped" in codes(result)
    assert result.metrics["drops"] > 0 and result.metrics["rejoins"] > 0
    lost = next(error for error in result.errors if error.kind == "lost closed")
    assert "close code 1011 (internal error)" in lost.cause


@pytest.mark.crowded
def test_where_nobody_is_let_in_the_trial_fails_and_says_why(tmp_path: Path) -> None:
    record, _ = trial(scripted("refuse"), crowd(), tmp_path)
    assert record.failure is not None and record.failure.code == "not_joined"
    assert "20 handshake_refused" in record.failure.message


@pytest.mark.crowded
def test_an_open_end_to_the_warm_up_does_not_hide_that_nobody_joined(tmp_path: Path) -> None:
    record, _ = trial(scripted("refuse"), crowd(), tmp_path, warmup_ns=None, warmup_max_ns=1_500 * MS)
    assert record.failure is not None and record.failure.code == "not_joined"
    assert "20 handshake_refused" in record.failure.message


@pytest.mark.crowded
def test_an_automatic_warm_up_begins_when_all_have_joined(tmp_path: Path) -> None:
    load = crowd(join_per_s=40)
    record, result = trial(echoing(), load, tmp_path, warmup_ns=None, warmup_min_ns=100 * MS, warmup_max_ns=20_000 * MS)
    assert record.status == "measured", record.failure
    assert record.phases["measure"] - record.phases["go"] >= load.joining_ns + 100 * MS
    assert result.metrics["joined_users"] == 20


@pytest.mark.crowded
def test_every_message_reaches_everybody(tmp_path: Path) -> None:
    """Those of the part of a file that docs/websocket.md shows for fan-out."""
    part = YAML(typ="safe").load(block_of("websocket.md", "stamp_after"))["load"]
    (step,) = part["scenario"]
    load = crowd(users=5, websocket=part["websocket"], scenario=[{"name": "say", **step}])
    record, result = trial(scripted("broadcast"), load, tmp_path)
    assert record.status == "measured", record.failure
    assert result.metrics["delivered_share"] == pytest.approx(1.0, abs=0.02)
    assert 0 < result.metrics["delivery_time_ns_p50"] <= result.metrics["delivery_time_ns_max"]
    assert 0 < result.metrics["delivery_time_ns_mean"] < result.metrics["delivery_time_ns_max"]


@pytest.mark.crowded
def test_tune_with_a_websocket_url(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from powerband.cli import main; main()", "tune", "-P", "instances=1"]
    command += ["--url", "ws://127.0.0.1:{port}/", "--message", "ping", "--expect", "ping", "--users", "10"]
    command += ["--join", "100/s", "--pace", "5/s", "--no-progress", "--duration", "1s", "--warmup", "100ms"]
    command += ["--repeats", "2", "--format", "json", "--", str(engine_path()), "serve", "--port", "{port}"]
    command += ["--model", "event-loop", "--protocol", "websocket", "--instances", "{instances}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (0, 5), done.stderr  # a busy machine may make trials invalid
    trials = json.loads(done.stdout)["trials"]
    assert {row["status"] for row in trials} == {"measured"}
    assert all(row["metrics"]["joined_users"] == 10 for row in trials)
    assert all(failed_share(row["metrics"]) == pytest.approx(0) for row in trials)


@pytest.mark.crowded
def test_a_load_without_trials_misses_users_who_are_lost(tmp_path: Path) -> None:
    """Each user is lost with its fifth message, after about a third of the window. It is so long that a machine which
    stands still for two seconds leaves time for these messages."""
    port = pick_port()
    with subprocess.Popen([sys.executable, FAKES / "websocket_server.py", str(port), "drop:5"]) as server:
        try:
            with socket.socket() as client:
                while client.connect_ex(("127.0.0.1", port)):
                    time.sleep(0.01)
            command = [
                sys.executable,
                "-c",
                "from powerband.cli import main; main()",
                "load",
                f"ws://127.0.0.1:{port}/",
            ]
            command += ["-c", "10", "-d", "4s", "--pace", "300ms", "--message", "ping", "--format", "json"]
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
        finally:
            server.terminate()
    document = json.loads(done.stdout)
    assert document["websocket"]["drops"] == {"closed": 10}
    assert 0.4 < document["error_rate"] < 0.9, "a fifth of what was sent failed, and two thirds of the time nothing was"


def engine_path() -> Path:
    from powerband.processes.engine_fleet import find_engine

    return find_engine()
