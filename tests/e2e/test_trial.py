"""One trial from end to end with the real engine: the files that it writes, and every way in which a subject can
fail."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fakes.stand import (
    FIXED_WARMUP,
    MS,
    Watcher,
    always_steady,
    experiment,
    never_steady,
    reference,
    run_one,
    scripted,
    short_load,
)
from powerband.model.deployed import Deployed
from powerband.model.experiment import Measure, Ready, Subject, SubjectStop
from powerband.model.host_use import HostUse, Pinning
from powerband.model.load import Constant
from powerband.model.warmup import WarmupSeries
from powerband.processes.failures import Code
from powerband.processes.ports import pick_port
from powerband.store import SubjectAddress, TrialDir, TrialRecord

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.usefixtures("engine", "no_process_left")]


def failure_of(record: TrialRecord) -> tuple[str, str]:
    assert record.status == "failed"
    assert record.failure is not None
    return record.failure.code, record.failure.message


def test_a_trial_leaves_everything_that_analysis_needs(tmp_path: Path) -> None:
    watcher = Watcher()
    record = run_one(experiment(reference("--wait", "2ms")), tmp_path, watcher=watcher)
    assert (record.status, record.failure) == ("measured", None)
    assert watcher.phases == ["launch", "ready", "warmup", "measure", "drain", "stop"]
    assert any(rate > 0 and mean and mean >= 2 * MS for rate, mean, _ in watcher.intervals)

    order = ["launched", "ready", "go", "measure", "drain", "end", "stopped"]
    instants = [record.phases[name] for name in order]
    assert instants == sorted(instants)
    assert record.warmup_ended_by == "steady"

    (summary,) = record.engines
    total = summary["total"]
    assert total["scheduled"] == total["sent"] + total["dropped"]
    assert total["sent"] == sum(total["outcomes"].values()) > 0
    assert summary["measure_end_ns"] - summary["measure_start_ns"] >= 300 * MS

    assert record.subject["asked"] is True
    assert record.subject["samples"] >= 3

    directory = TrialDir(tmp_path / "0001")
    assert directory.read_record() == record
    address = SubjectAddress.parse(directory.subject.read_text())
    assert address is not None and address.url.startswith("http://127.0.0.1:") and address.metrics_url is None
    assert {path.name for path in directory.path.iterdir()} == {
        "spec.json",
        "subject.json",
        "events.jsonl",
        "probe.jsonl",
        "subject.log",
        "record.json",
    }
    assert {event["engine"] for event in directory.read_events()} == {0}
    sampled = [event for event in directory.read_probe() if event["type"] == "sample"]
    assert {"subject", "engine"} <= {tree["name"] for tree in sampled[-1]["trees"]}
    assert "listening on" in directory.log.read_text()


def machine_cpus() -> list[int]:
    return sorted(os.sched_getaffinity(0))


def test_subject_and_engine_are_pinned_as_asked(tmp_path: Path) -> None:
    case = experiment(scripted("serve"), host=HostUse(pinning=Pinning(subject="0", engine="0")))
    record = run_one(case, tmp_path)
    assert (record.status, record.failure) == ("measured", None)
    assert record.cpus == {"subject": [0], "engine": [0], "probe": [0], "machine": machine_cpus()}


def test_nothing_is_pinned_when_that_is_off(tmp_path: Path) -> None:
    record = run_one(experiment(scripted("serve"), host=HostUse(pinning="off")), tmp_path)
    assert (record.status, record.failure) == ("measured", None)
    assert record.cpus == {"subject": [], "engine": [], "probe": [], "machine": machine_cpus()}


def test_a_warm_up_that_is_never_steady_ends_at_its_limit(tmp_path: Path) -> None:
    measure = Measure(warmup_min_ns=100 * MS, warmup_max_ns=1500 * MS, slots=False)
    record = run_one(experiment(reference(), measure=measure), tmp_path, steady=never_steady)
    assert (record.status, record.failure) == ("measured", None)
    assert record.warmup_ended_by == "limit"
    assert record.phases["measure"] - record.phases["go"] >= 1500 * MS


def test_no_end_of_the_warm_up_before_everyone_has_paused_once(tmp_path: Path) -> None:
    asked_s = []

    def steady(series: WarmupSeries) -> bool:
        asked_s.append(len(series.rate_per_s) * series.interval_s)
        return True

    load = short_load(ramp_ns=200 * MS, think=Constant(ns=400 * MS), duration_ns=600 * MS)
    assert run_one(experiment(reference(), load), tmp_path, steady=steady).warmup_ended_by == "steady"
    assert min(asked_s) >= 0.6


@pytest.mark.parametrize(
    ("more", "busy"), [({}, True), ({"think": Constant(ns=MS)}, False), ({"ramp_ns": 100 * MS}, False)], ids=str
)
def test_users_are_always_busy_only_if_all_begin_at_once_and_never_pause(
    tmp_path: Path, more: dict[str, Any], busy: bool
) -> None:
    seen = []

    def steady(series: WarmupSeries) -> bool:
        seen.append(series.busy_users)
        return True

    run_one(experiment(reference(), short_load(**more)), tmp_path, steady=steady)
    assert seen == [busy]


def test_a_fixed_warm_up_is_kept(tmp_path: Path) -> None:
    case = experiment(reference(), measure=Measure(warmup_ns=200 * MS, slots=False))
    record = run_one(case, tmp_path, steady=never_steady)
    assert record.warmup_ended_by == "fixed"
    assert record.phases["measure"] - record.phases["go"] >= 200 * MS


def test_an_open_load_is_driven(tmp_path: Path) -> None:
    case = experiment(reference(), short_load(users=None, rate_per_s=500, max_in_flight=50))
    record = run_one(case, tmp_path)
    assert (record.status, record.failure) == ("measured", None)
    total = record.engines[0]["total"]
    assert total["scheduled"] == total["sent"] + total["dropped"] >= 150
    assert total["outcomes"]["ok"] > 0


def test_users_with_a_set_number_of_requests_send_exactly_those(tmp_path: Path) -> None:
    case = experiment(reference(), short_load(users=5, requests_per_user=7, duration_ns=20_000 * MS))
    record = run_one(case, tmp_path)
    assert (record.status, record.failure) == ("measured", None)
    assert record.engines[0]["cohort"]["outcomes"] == {"ok": 35}
    assert record.engines[0]["ended_by"] == "work"


def test_a_load_that_is_over_before_it_is_measured(tmp_path: Path) -> None:
    case = experiment(
        reference(), short_load(users=2, requests_per_user=3), measure=Measure(warmup_ns=2000 * MS, slots=False)
    )
    code, message = failure_of(run_one(case, tmp_path))
    assert code == Code.ENDED_IN_WARMUP
    assert "requests_per_user" in message


@pytest.mark.parametrize(
    ("ready", "how"),
    [
        (Ready(http="/health", timeout_ns=20_000 * MS), "serve"),
        (Ready(log=r"^Started in", timeout_ns=20_000 * MS), "log-ready"),
    ],
)
def test_readiness_by_http_and_by_log(tmp_path: Path, ready: Ready, how: str) -> None:
    assert run_one(experiment(scripted(how, ready=ready)), tmp_path).failure is None


# Each worker takes 0.2 s of a CPU and some memory to load it, as an application does; gunicorn listens before that.
SLOW_TO_LOAD = """
import os, time
loaded, begun = [], time.process_time()
while time.process_time() - begun < 0.2:
    loaded.append(bytearray(4096))
with open(f"{os.getpid()}.loaded", "w") as file:
    file.write(str(time.monotonic_ns()))
def app(environ, start_response):
    start_response("200 OK", [("Content-Length", "3")])
    return [b"ok\\n"]
"""


def slow_gunicorn(folder: Path, port: str, workers: str) -> list[str]:
    (folder / "slow.py").write_text(SLOW_TO_LOAD)
    serves = ["-k", "gthread", "-b", f"127.0.0.1:{port}", "--chdir", str(folder), "slow:app"]
    return [sys.executable, "-m", "gunicorn", "-w", workers, *serves]


def check_that_all_had_loaded(record: TrialRecord, folder: Path) -> None:
    assert record.failure is None
    loaded_ns = [int(file.read_text()) for file in folder.glob("*.loaded")]
    assert len(loaded_ns) == 4 and max(loaded_ns) < record.phases["go"]


def test_the_load_waits_for_workers_that_load_after_the_server_listens(tmp_path: Path) -> None:
    """Else kept connections all go to the first."""
    subject = Subject(name="gunicorn", command=tuple(slow_gunicorn(tmp_path, "{port}", "4")))
    record = run_one(experiment(subject), tmp_path / "run")
    check_that_all_had_loaded(record, tmp_path)


def test_the_load_waits_for_workers_of_a_server_that_a_command_has_just_restarted(tmp_path: Path) -> None:
    """The user's own script ends the server, and returns before the new one listens."""
    port, script, pid_file = str(pick_port()), tmp_path / "restart.sh", tmp_path / "pid"
    serve = shlex.join([*slow_gunicorn(tmp_path, port, "WORKERS"), "--daemon", "--pid", str(pid_file)])
    stop = f"kill $(cat {pid_file}); while test -e {pid_file}; do sleep 0.02; done; rm -f {tmp_path}/*.loaded"
    script.write_text(f"if test -e {pid_file}; then {stop}; fi\ntest $1 = 0 || {serve.replace('WORKERS', '$1')}\n")
    subprocess.run(["sh", str(script), "1"], check=True)
    try:
        restarted = Deployed(command=("sh", str(script), "{workers}"))
        subject = Subject(name="gunicorn", url=f"http://127.0.0.1:{port}/", deployed=restarted)
        record = run_one(experiment(subject, factors={"workers": (4,)}), tmp_path / "run")
        check_that_all_had_loaded(record, tmp_path)
    finally:
        subprocess.run(["sh", str(script), "0"], check=True)


def test_a_command_that_does_not_exist(tmp_path: Path) -> None:
    subject = reference().model_copy(update={"command": ("no-such-server", "{port}")})
    code, message = failure_of(run_one(experiment(subject), tmp_path))
    assert code == Code.COMMAND_NOT_FOUND
    assert "no-such-server" in message
    assert "PATH" in message


def test_a_command_that_is_not_executable(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text("print('never runs')")
    subject = reference().model_copy(update={"command": (str(script), "{port}")})
    code, message = failure_of(run_one(experiment(subject), tmp_path))
    assert code == Code.NOT_EXECUTABLE
    assert "chmod +x" in message


def test_a_command_that_the_kernel_refuses(tmp_path: Path) -> None:
    program = tmp_path / "server"
    program.write_bytes(b"\x7fELF this is no program")
    program.chmod(0o755)
    subject = reference().model_copy(update={"command": (str(program), "{port}")})
    code, message = failure_of(run_one(experiment(subject), tmp_path))
    assert code == Code.LAUNCH_FAILED
    assert str(program) in message


def test_a_subject_that_never_gets_ready(tmp_path: Path) -> None:
    subject = reference("--misbehave", "never-ready", ready=Ready(timeout_ns=300 * MS))
    code, message = failure_of(run_one(experiment(subject), tmp_path))
    assert code == Code.NOT_READY
    assert "0.3 s" in message
    assert "accepts no connection" in message


def test_a_subject_that_dies_before_it_is_ready_is_noticed_at_once_with_its_last_words(tmp_path: Path) -> None:
    subject = scripted("exit:3", ready=Ready(timeout_ns=60_000 * MS))
    code, message = failure_of(run_one(experiment(subject), tmp_path))
    assert code == Code.DIED_BEFORE_READY
    assert "exit code 3" in message
    assert "configuration error: no such pool" in message


def test_a_subject_that_dies_in_the_middle(tmp_path: Path) -> None:
    case = experiment(scripted("crash-on-load"), short_load(duration_ns=60_000 * MS))
    record = run_one(case, tmp_path)
    code, message = failure_of(record)
    assert code == Code.DIED
    assert "by itself under load (exit code 9" in message
    assert record.phases["stopped"] - record.phases["launched"] < 60_000 * MS  # less than the load's duration
    assert record.subject["exit_code"] == 9


def test_a_subject_that_listens_and_ends_before_it_answers_is_not_said_to_have_been_loaded(tmp_path: Path) -> None:
    code, message = failure_of(run_one(experiment(scripted("listen-and-exit:3")), tmp_path))
    assert code == Code.DIED
    assert "ended by itself before it answered a request of the load (exit code 3)" in message
    assert "configuration error: no such pool" in message


@pytest.mark.parametrize("how", ["garbage", "close"])
def test_a_subject_that_answers_nothing_right(tmp_path: Path, how: str) -> None:
    code, message = failure_of(run_one(experiment(reference("--misbehave", how), measure=FIXED_WARMUP), tmp_path))
    assert code == Code.NO_VALID_RESPONSE
    assert ("bad_response" if how == "garbage" else "closed_early") in message or "reset" in message


@pytest.mark.parametrize("measure", [FIXED_WARMUP, Measure(warmup_max_ns=5_000 * MS)])
def test_a_subject_that_answers_only_errors(tmp_path: Path, measure: Measure) -> None:
    """A warm-up that waits for the first right answer ends at its limit: on a busy machine errors may be late, too."""
    load = short_load(think=Constant(ns=50 * MS))
    code, message = failure_of(run_one(experiment(scripted("error-500"), load, measure=measure), tmp_path))
    assert code == Code.NO_VALID_RESPONSE
    assert "status_rejected; status 500" in message


def test_a_subject_that_never_answers(tmp_path: Path) -> None:
    case = experiment(reference("--misbehave", "silent"), short_load(timeout_ns=200 * MS), measure=FIXED_WARMUP)
    code, message = failure_of(run_one(case, tmp_path, steady=always_steady))
    assert code == Code.NO_RESPONSE
    assert "timeout" in message


def test_a_subject_that_ignores_sigterm_is_killed_after_its_grace(tmp_path: Path) -> None:
    subject = reference("--misbehave", "ignore-sigterm", stop=SubjectStop(grace_ns=200 * MS))
    record = run_one(experiment(subject), tmp_path)
    assert (record.status, record.failure) == ("measured", None)
    assert record.subject["signal"] == 9
    assert record.subject["killed"] >= 1


def test_children_that_are_deaf_to_sigterm_are_killed(tmp_path: Path) -> None:
    record = run_one(experiment(scripted("many-children", stop=SubjectStop(grace_ns=200 * MS))), tmp_path)
    assert (record.status, record.failure) == ("measured", None)
    assert record.subject["killed"] >= 3


def test_a_child_that_has_detached_itself_is_ended_too(tmp_path: Path) -> None:
    record = run_one(experiment(reference("--misbehave", "fork-escape")), tmp_path)
    assert (record.status, record.failure) == ("measured", None)
    escaped = re.search(r"escaped process (\d+)", (tmp_path / "0001" / "subject.log").read_text())
    assert escaped is not None
    assert not Path("/proc", escaped[1]).exists()


def test_a_port_that_another_program_holds(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        subject = reference().model_copy(
            update={"command": ("{engine}", "serve", "--port", str(port)), "url": f"http://127.0.0.1:{port}/"}
        )
        code, message = failure_of(run_one(experiment(subject), tmp_path))
    assert code == Code.PORT_IN_USE
    assert str(port) in message
    assert "{port}" in message


def test_another_program_on_the_urls_port_is_never_measured(tmp_path: Path) -> None:
    """The subject's URL has a port that another program holds; the command gets a port that powerband picks."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        subject = reference().model_copy(update={"url": f"http://127.0.0.1:{other.getsockname()[1]}/"})
        code, message = failure_of(run_one(experiment(subject), tmp_path))
    assert code == Code.PORT_IN_USE
    assert "another program already listens" in message


def test_a_port_that_turns_out_to_be_another_programs_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first check for a listener misses the other program, and the subject says that it is ready."""
    monkeypatch.setattr("powerband.processes.subject_process.someone_listens", lambda host, port: False)
    with socket.create_server(("127.0.0.1", 0)) as other:
        url = f"http://127.0.0.1:{other.getsockname()[1]}/"
        ready = Ready(log="Started", timeout_ns=20_000 * MS)
        code, message = failure_of(run_one(experiment(scripted("log-ready", url=url, ready=ready)), tmp_path))
    assert code == Code.PORT_IN_USE
    assert f"(pid {os.getpid()})" in message


def test_a_port_that_was_taken_meanwhile_is_replaced_by_another(tmp_path: Path) -> None:
    state = tmp_path / "starts"
    record = run_one(experiment(scripted("port-taken:2", str(state))), tmp_path)
    assert (record.status, record.failure) == ("measured", None)
    assert state.read_text() == "3"


def test_a_port_that_is_always_taken_is_given_up(tmp_path: Path) -> None:
    code, message = failure_of(run_one(experiment(scripted("port-taken")), tmp_path))
    assert code == Code.PORT_IN_USE
    assert "Address already in use" in message


def test_a_port_in_use_that_is_not_the_one_it_is_given_is_its_own_mistake(tmp_path: Path) -> None:
    code, message = failure_of(run_one(experiment(scripted("port-held:9")), tmp_path))
    assert code == Code.PORT_IN_USE
    assert "port 9, which it wants, is in use" in message and message.count("EADDRINUSE") == 1, "one start"


def test_a_fixed_port_works_when_it_is_free(tmp_path: Path) -> None:
    port = pick_port()
    subject = reference().model_copy(
        update={"command": ("{engine}", "serve", "--port", str(port)), "url": f"http://127.0.0.1:{port}/"}
    )
    case = experiment(subject)
    assert run_one(case, tmp_path).failure is None
    assert run_one(case, tmp_path, number=2).status == "measured"


def test_what_a_killed_attempt_left_is_replaced(tmp_path: Path) -> None:
    leftover = tmp_path / "0001" / "events.jsonl"
    leftover.parent.mkdir()
    leftover.write_text("half a li")
    assert run_one(experiment(reference()), tmp_path).failure is None
    assert json.loads(leftover.read_text().splitlines()[0])["type"] == "hello"
