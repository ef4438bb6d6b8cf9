"""The command that changes a setting, and the checks of a server that already runs."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext, suppress
from pathlib import Path
from typing import Any, cast

import pytest

from fakes.trials import experiment
from powerband.base.errors import MeasurementError, SubjectError
from powerband.base.procfs import process_stat
from powerband.model.deployed import Deployed
from powerband.model.experiment import Ready, Subject
from powerband.model.plan import Setting
from powerband.processes import deployed_subject
from powerband.processes.asked_help import help_of
from powerband.processes.deployed_subject import (
    SAID_BYTES,
    check_process,
    deployed_up,
    run_command,
    with_process_start,
)
from powerband.processes.engine_process import Pump
from powerband.processes.failures import Code, TrialFailed, TrialInterrupted
from powerband.processes.ports import listener
from powerband.processes.stop_request import StopRequest
from powerband.processes.subject_process import SubjectFiles, render


@pytest.fixture
def pump(stop: StopRequest) -> Iterator[Pump]:
    with Pump(stop) as waits:
        yield waits


def failure(tmp_path: Path, pump: Pump, *argv: str, limit_s: float = 30.0) -> str:
    with pytest.raises(TrialFailed) as failed:
        run_command(argv, None, tmp_path / "apply.log", limit_s, pump)
    assert failed.value.failure.code == Code.APPLY_FAILED
    return failed.value.failure.message


def test_it_runs_in_its_folder_and_what_it_says_is_kept(tmp_path: Path, pump: Pump) -> None:
    run_command(("sh", "-c", "pwd; echo two >&2; touch here"), str(tmp_path), tmp_path / "apply.log", 30.0, pump)
    assert (tmp_path / "here").exists()
    assert (tmp_path / "apply.log").read_text() == f"{tmp_path}\ntwo\n"
    assert (tmp_path / "apply.log").stat().st_mode & 0o077 == 0


def test_the_last_line_of_its_errors_is_told_whatever_it_printed_after(tmp_path: Path, pump: Pump) -> None:
    said = failure(tmp_path, pump, "sh", "-c", "echo one >&2; echo 'no such unit' >&2; echo out; exit 5")
    assert said.endswith("(sh) failed with exit code 5: no such unit")
    assert failure(tmp_path, pump, "sh", "-c", "exit 1").endswith("exit code 1, and said nothing on stderr")
    assert "failed with signal 9" in failure(tmp_path, pump, "sh", "-c", "kill -9 $$")
    assert "cannot be run: /no/such: No such file" in failure(tmp_path, pump, "/no/such")


def test_one_that_does_not_come_back_is_ended_with_its_group(tmp_path: Path, pump: Pump) -> None:
    said = failure(tmp_path, pump, "sh", "-c", f"sleep 60 & echo $! > {tmp_path}/pid; wait", limit_s=0.3)
    assert "did not come back within 0.3 s" in said
    with pytest.raises(ProcessLookupError):
        _wait_gone(int((tmp_path / "pid").read_text()))


def test_a_stop_ends_it(tmp_path: Path, pump: Pump, stop: StopRequest) -> None:
    threading.Timer(0.2, stop.request).start()
    with pytest.raises(TrialInterrupted):
        run_command(("sleep", "60"), None, tmp_path / "apply.log", 30.0, pump)


def test_one_that_takes_no_signal_is_killed(tmp_path: Path, pump: Pump, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployed_subject, "COMMAND_GRACE_S", 0.1)
    failure(tmp_path, pump, "sh", "-c", "trap '' TERM; while :; do sleep 0.05; done", limit_s=0.3)


def test_what_it_leaves_behind_goes_on(tmp_path: Path, pump: Pump) -> None:
    """A server that the command restarted belongs to the user, and is not ended."""
    script = f"sleep 60 >/dev/null 2>&1 & echo $! > {tmp_path}/pid"
    run_command(("sh", "-c", script), None, tmp_path / "apply.log", 30.0, pump)
    pid = int((tmp_path / "pid").read_text())
    try:
        assert process_stat(pid).state in "SRD"
    finally:
        os.kill(pid, signal.SIGKILL)


def _wait_gone(pid: int) -> None:
    """Waits until the process has ended, and then raises ProcessLookupError."""
    deadline_s = time.monotonic() + 20
    while time.monotonic() < deadline_s:
        os.kill(pid, 0)
        with suppress(OSError):
            if process_stat(pid).state == "Z":
                raise ProcessLookupError
        time.sleep(0.01)


def test_a_process_of_the_same_number_that_began_later_is_another() -> None:
    started = process_stat(os.getpid()).started
    check_process(os.getpid())
    check_process(os.getpid(), started)
    with pytest.raises(TrialFailed, match="is gone"):
        check_process(os.getpid(), started - 1)


def test_a_run_knows_when_its_process_began() -> None:
    server = Subject(name="s", url="http://127.0.0.1:1/", deployed=Deployed(pid=os.getpid()))
    deployed = with_process_start(experiment(subject=server)).subject.deployed
    assert deployed is not None and deployed.pid_started == process_stat(os.getpid()).started
    gone = subprocess.Popen(["true"])
    gone.wait()
    with pytest.raises(SubjectError, match=f"there is no process {gone.pid} to watch"):
        with_process_start(experiment(subject=server.model_copy(update={"deployed": Deployed(pid=gone.pid)})))
    started = experiment()
    assert with_process_start(started) is started


@pytest.mark.parametrize(
    ("command", "may_be_down", "found"),
    [
        (("redeploy", "8"), True, ["not there", "changed", ""]),
        (("redeploy", "8"), False, ["not there", Code.NOT_REACHABLE]),
        (None, True, ["not there", Code.NOT_REACHABLE]),
    ],
    ids=["a later trial", "the first trial", "no command"],
)
def test_a_server_that_a_setting_ended_may_be_started_again_by_the_next_change(
    tmp_path: Path,
    pump: Pump,
    monkeypatch: pytest.MonkeyPatch,
    *,
    command: tuple[str, ...] | None,
    may_be_down: bool,
    found: list[str],
) -> None:
    server = Subject(name="s", url="http://127.0.0.1:1/", deployed=Deployed(command=command))
    files = SubjectFiles(
        tmp_path / "log", tmp_path / "err", cast(Any, None), tmp_path / "apply.log", tell_address=lambda address: None
    )
    happened: list[str] = []

    def unanswered(*_: object, **__: object) -> str:
        reason = "" if "changed" in happened else "not there"
        happened.append(reason)
        return reason

    monkeypatch.setattr(deployed_subject, "_unanswered", unanswered)
    monkeypatch.setattr(deployed_subject, "change", lambda *_: happened.append("changed"))
    monkeypatch.setattr(deployed_subject, "_await_workers", lambda *_: None)
    monkeypatch.setattr(deployed_subject, "probe_up", lambda *_: nullcontext())
    watched: list[bool] = []
    try:
        with deployed_up(
            server,
            Setting(()),
            engine=Path("e"),
            files=files,
            pump=pump,
            on_applied=lambda: None,
            on_watched=lambda probe, place: watched.append(place.here),
            may_be_down=may_be_down,
        ):
            assert happened == found and watched == [True]
    except TrialFailed as failed:
        assert [*happened, failed.failure.code] == found


def test_who_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = listener(port)
        assert found is not None and found[1] == os.getpid()
    assert listener(port) is None


def test_a_secret_in_what_shows_that_it_is_ready_is_hidden(tmp_path: Path, pump: Pump) -> None:
    ready = Ready(http="/health?token=s3cret")
    server = Subject(name="s", url="http://127.0.0.1:1/", ready=ready, deployed=Deployed())
    said = deployed_subject._unanswered(render(server, Setting(()), Path("e")), tmp_path / "log", pump, 0.01)
    assert said.endswith("GET /health?token=(hidden)")


def test_a_proxy_that_closes_what_it_takes_is_no_server_that_is_up_again(
    tmp_path: Path, pump: Pump, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy, ExitStack() as held:
        url = f"http://127.0.0.1:{proxy.getsockname()[1]}/"
        there = render(Subject(name="s", url=url, deployed=Deployed()), Setting(()), Path("e"))
        held.callback(proxy.shutdown, socket.SHUT_RDWR)

        def serve() -> None:
            with suppress(OSError):  # the listener is shut down at the end
                while True:
                    connection = proxy.accept()[0]
                    held.callback(connection.close) if behind.is_set() else connection.close()

        behind = threading.Event()
        threading.Thread(target=serve, daemon=True).start()
        unanswered = deployed_subject._unanswered
        assert unanswered(there, tmp_path / "log", pump, 0.3) == "", "a server that was not restarted may be full"
        monkeypatch.setattr(deployed_subject, "HELD_S", 30)  # the proxy may be slow on a busy machine
        assert "closes each connection" in unanswered(there, tmp_path / "log", pump, 0.3, restarted=True)
        behind.set()
        monkeypatch.setattr(deployed_subject, "HELD_S", 0.01)
        assert unanswered(there, tmp_path / "log", pump, 30, restarted=True) == ""


@pytest.mark.parametrize(
    ("pid", "found", "root"),
    [(None, ("gunicorn", 7), 7), (8, ("gunicorn", 7), 8), (None, ("systemd", 1), None), (None, None, None)],
)
def test_the_workers_waited_for_are_those_of_the_server_itself(
    pump: Pump, monkeypatch: pytest.MonkeyPatch, pid: int | None, found: tuple[str, int] | None, root: int | None
) -> None:
    """systemd listens for a server that it starts at the first connection, and all processes descend from it."""
    there = render(Subject(name="s", url="http://127.0.0.1:1/", deployed=Deployed()), Setting(()), Path("e"))
    looked: list[tuple[int, int]] = []
    monkeypatch.setattr(deployed_subject, "server_at", lambda port: found)
    monkeypatch.setattr(deployed_subject, "processes_below", lambda *what: looked.append(what))
    monkeypatch.setattr(deployed_subject, "await_workers", lambda look, pause, timeout_s: look())
    deployed_subject._await_workers(there, pid, pump, 30.0)
    assert looked == ([] if root is None else [(root, 0)])


def test_of_errors_without_end_only_the_last_are_kept(tmp_path: Path, pump: Pump) -> None:
    said = failure(tmp_path, pump, "sh", "-c", f"head -c {3 * SAID_BYTES} /dev/zero >&2; echo last >&2; exit 1")
    assert said.endswith("last") and (tmp_path / "apply.log").stat().st_size == SAID_BYTES


def test_without_a_temporary_folder_a_sentence_says_what_to_do(
    tmp_path: Path, pump: Pump, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(MeasurementError, match="set TMPDIR"):
        run_command(("true",), None, tmp_path / "apply.log", 30.0, pump)
    with pytest.raises(MeasurementError, match="set TMPDIR"):
        help_of(["true"], Path("/no/engine"))
