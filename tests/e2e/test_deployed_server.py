"""A server that somebody else started is tuned where it runs: the knob gets its value back, and the server survives the
run, however the run ends. What is named: `test_deployed_answer.py`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.deployed import KNOB, OUTLASTING, PAUSES, SHORT, RunningServer, command, knob_server, other_machine, tune
from powerband.processes.engine_fleet import find_engine
from powerband.processes.ports import pick_port, someone_listens

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.usefixtures("engine", "no_process_left")]

INVALID, SUBJECT_FAILED, INTERRUPTED = 3, 4, 130


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with knob_server(n=3) as running:
        yield running


def served(analysis: dict[str, Any], setting: str) -> float:
    """The highest goodput of a setting's trials, which need not be valid: beside other tests the load may be late, and
    the machine may stand still for all of one trial."""
    metrics = [trial["metrics"] for trial in analysis["trials"] if trial["setting"]["id"] == setting]
    return float(max(found["goodput_per_s"] for found in metrics if "goodput_per_s" in found))


def said(analysis: dict[str, Any]) -> str:
    return " ".join(analysis["answer"]["sentences"])


@pytest.mark.long
def test_a_process_of_this_machine_is_watched_and_lives_on(tmp_path: Path, server: RunningServer) -> None:
    _, analysis = tune(
        tmp_path, server.url, "-P", "n=8", *KNOB, "--pid", str(server.process.pid), "--repeats", "1", *OUTLASTING
    )
    *_, trial = analysis["trials"]  # a trial that the machine disturbed was repeated
    assert trial["metrics"]["subject_cpu_cores"] > 0 and trial["metrics"]["threads_max"] >= 8
    assert "from outside" not in said(analysis)
    assert "The server keeps n=8, which was tried last (--restore NAME=VALUE" in said(analysis)
    assert server.is_alive and server.knob() == 8


def test_a_pid_that_is_no_process_is_refused_before_anything_is_changed(tmp_path: Path, server: RunningServer) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    done, _ = tune(tmp_path, server.url, "-P", "n=1,8", *KNOB, "--pid", str(gone.pid))
    assert done.returncode == SUBJECT_FAILED and f"there is no process {gone.pid}" in done.stderr
    assert server.knob() == 3


def interrupted(tmp_path: Path, server: RunningServer, *knob: str, by: signal.Signals = signal.SIGINT) -> None:
    options = ("-P", "n=1,8", *knob, "--restore", "n=3", "--duration", "20s")
    words = ["env", "--default-signal=HUP", *command(tmp_path, server.url, *options)]  # the tests may run under nohup
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while server.knob() == 3:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(by)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == INTERRUPTED, errors
    assert server.is_alive and server.knob() == 3


def test_after_ctrl_c_the_knob_has_its_value_back(tmp_path: Path, server: RunningServer) -> None:
    interrupted(tmp_path, server, *KNOB)


def test_after_the_terminal_was_closed_the_knob_has_its_value_back(tmp_path: Path, server: RunningServer) -> None:
    interrupted(tmp_path, server, *KNOB, by=signal.SIGHUP)


@pytest.mark.long
def test_a_second_ctrl_c_waits_until_the_knob_has_its_value_back(tmp_path: Path, server: RunningServer) -> None:
    script = tmp_path / "set.sh"
    script.write_text(
        f"test $1 = 3 && kill -INT $PPID && sleep 0.1\nexec {sys.executable} -c 'import sys, urllib.request\n"
        f'urllib.request.urlopen("{server.url}knob", sys.argv[1].encode())\' $1\n'
    )
    interrupted(tmp_path, server, "--apply-command", f"sh {script} {{n}}")


@pytest.mark.parametrize(
    ("knob", "reason"),
    [
        (("--apply", "POST /other {n}"), "POST /other: status 404"),
        pytest.param(("--apply", "POST /knob {n}x"), "POST /knob: status 422", marks=pytest.mark.long),
        (
            ("--apply-command", "sh -c 'echo one >&2; echo two >&2; echo out; exit 3' {n}"),
            "failed with exit code 3: two",
        ),
        pytest.param(
            ("--apply-command", "sleep 60 {n}", "--ready-timeout", "300ms"),
            "did not come back within 0.3 s",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_knob_that_fails_at_every_setting_ends_the_run(
    tmp_path: Path, server: RunningServer, knob: tuple[str, ...], reason: str
) -> None:
    done, _ = tune(tmp_path, server.url, "-P", "n=1,8", *knob)
    assert done.returncode == SUBJECT_FAILED, done.stderr
    assert reason in done.stderr and "So ended each of the first 3 trials, at 2 settings" in done.stderr
    assert server.is_alive and server.knob() == 3


def test_a_server_that_is_not_there_is_said_and_nothing_is_set_back(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{pick_port()}/?token=tiger-7"
    done, _ = tune(tmp_path, url, "-P", "n=1,8", *KNOB, "--restore", "n=3", "--ready-timeout", "300ms")
    assert done.returncode == SUBJECT_FAILED
    assert (
        "token=(hidden) was not reached within 0.3 s (Connection refused)" in done.stderr
        and "set back" not in done.stderr
    )


@pytest.mark.long
def test_a_server_that_dies_ends_the_run_and_a_new_one_goes_on_with_it(tmp_path: Path) -> None:
    options = ("-P", "n=1,8", *KNOB, "--restore", "n=3", "--ready-timeout", "500ms", "--duration", "800ms")
    with knob_server(n=3) as server:
        process = subprocess.Popen(
            command(tmp_path, server.url, *options), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        while not list(tmp_path.glob("runs/*/trials/0002/spec.json")):
            assert process.poll() is None
            time.sleep(0.02)
        server.process.kill()
        _, errors = process.communicate(timeout=60)
    assert process.returncode == SUBJECT_FAILED
    assert "was not reached" in errors and "powerband resume" in errors
    (run,) = (tmp_path / "runs").iterdir()
    assert json.loads((run / "left.json").read_text())["reason"]
    with knob_server(n=5, port=server.port) as again:
        resumed = subprocess.run(
            [sys.executable, "-m", "powerband", "resume", str(run), "--format", "json", "--no-progress"],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        analysis = json.loads(resumed.stdout)
        valid = [trial for trial in analysis["trials"] if trial["status"] == "measured"]
        assert {trial["setting"]["id"] for trial in valid} == {"n=1", "n=8"} and again.knob() == 3


@pytest.mark.long
def test_a_server_on_another_machine_is_loaded_where_that_is_allowed(tmp_path: Path) -> None:
    with other_machine() as machine, knob_server(n=3, machine=machine) as server:
        given = ("-P", "n=1,8", *KNOB, "--restore", "n=3", *OUTLASTING)
        done, _ = tune(tmp_path, server.url, *given)
        assert done.returncode == INVALID and f"add --allow-host {server.host}" in done.stderr
        done, _ = tune(tmp_path, server.url, *given, "--allow-host", server.host, "--pid", str(server.process.pid))
        assert done.returncode == SUBJECT_FAILED and f"{server.host} is another machine" in done.stderr
        done, analysis = tune(tmp_path, server.url, *given, "--allow-host", server.host)
        assert served(analysis, "n=8") > 2 * served(analysis, "n=1"), done.stderr
        assert server.knob() == 3 and "from outside" in said(analysis)
        metrics = analysis["trials"][-1]["metrics"]
        assert "accept_overflows" not in metrics and "host_foreign_cores" in metrics


RESTART = """
import pathlib, socket, subprocess, sys
engine, port, threads, pid_file = sys.argv[1:]
file = pathlib.Path(pid_file)
if file.exists():
    subprocess.run(["kill", "-9", file.read_text()], check=True)
    while socket.socket().connect_ex(("127.0.0.1", int(port))) == 0:
        pass
serve = [engine, "serve", "--port", port, "--model", "fixed", "--threads", threads, "--wait", "20ms"]
file.write_text(str(subprocess.Popen(serve, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).pid))
"""


@pytest.mark.long
def test_a_command_may_restart_the_server_which_outlives_it(tmp_path: Path) -> None:
    """The user's own script starts the reference server, which is the script's child and no process of powerband's."""
    script, pid_file, port = tmp_path / "restart.py", tmp_path / "pid", pick_port()
    script.write_text(RESTART)
    start = [sys.executable, str(script), str(find_engine()), str(port)]
    subprocess.run([*start, "4", str(pid_file)], check=True)
    try:
        while not someone_listens("127.0.0.1", port):
            time.sleep(0.02)
        knob = ("--apply-command", " ".join([*start, "{n}", str(pid_file)]))
        _, analysis = tune(tmp_path, f"http://127.0.0.1:{port}/", "-P", "n=1,8", *knob, "--restore", "n=4", *OUTLASTING)
        assert served(analysis, "n=8") > 2 * served(analysis, "n=1"), said(analysis)
        threads = Path(f"/proc/{pid_file.read_text()}/cmdline").read_text().split("\0")
        assert threads[threads.index("--threads") + 1] == "4"
    finally:
        subprocess.run(["kill", "-9", pid_file.read_text()], check=True)


@pytest.mark.long
def test_a_command_that_starts_the_server_anew_leaves_no_process_to_watch(tmp_path: Path) -> None:
    with knob_server(n=3) as server:
        knob = ("--apply-command", f"sh -c 'kill -9 {server.process.pid}' {{n}}", "--pid", str(server.process.pid))
        done, _ = tune(tmp_path, server.url, "-P", "n=1,8", *knob)
    assert done.returncode == SUBJECT_FAILED, done.stderr
    assert "or without any if each change starts it" in done.stderr and "under load" not in done.stderr


@pytest.mark.long
def test_two_revisions_are_put_there_in_turn(tmp_path: Path, server: RunningServer) -> None:
    options = (*SHORT, "--users", "8", *PAUSES, "--restore", "revision=3", "--runs", str(tmp_path), "--format", "json")
    given = ["compare", "2", "8", "--url", server.url, "--apply", "POST /knob {revision}", *options]
    done = subprocess.run(
        [sys.executable, "-m", "powerband", *given], capture_output=True, text=True, timeout=120, check=False
    )
    assert json.loads(done.stdout)["verdict"] != "worse", done.stderr
    (run,) = tmp_path.iterdir()
    specs = [json.loads(file.read_text()) for file in sorted(run.glob("trials/*/spec.json"))]
    # A trial that the machine disturbed is repeated, so a pair may occur twice.
    blocks = {(spec["block"], spec["setting"]["revision"]) for spec in specs}
    assert blocks == {(0, "2"), (0, "8"), (1, "2"), (1, "8")}
    assert server.knob() == 3
