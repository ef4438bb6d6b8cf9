"""Attacks of other users on a trial: files in the shared temporary folder, and the killing of its probe."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE

import pytest

from fakes.needs import need_root
from powerband.processes import jvm_attach
from powerband.processes.engine_process import Pump
from powerband.processes.failures import TrialFailed
from powerband.processes.jvm_attach import NotAnsweredError, command_sent, thread_names
from powerband.processes.line_file import LineFile
from powerband.processes.ports import pick_ports, someone_listens
from powerband.processes.probe_process import probe_up
from powerband.processes.stop_request import StopRequest
from powerband.wire.message import encode
from powerband.wire.specs import Launch, ProbeSpec

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.usefixtures("no_process_left")]

NOBODY = 65_534
# Two daemons that leave the process tree, each in a session of its own.
DAEMONS = """
import os, time
for _ in range(2):
    if os.fork() == 0:
        os.setsid()
        if os.fork() != 0: os._exit(0)
        os.setsid()
        print("up", flush=True)
        time.sleep(600)
    os.wait()
time.sleep(600)
"""


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.parametrize("how", ["killed", "stuck"])
def test_a_probe_and_its_keeper_that_end_at_once_leave_nothing_behind(how: str, engine: Path, tmp_path: Path) -> None:
    log = tmp_path / "subject.log"
    launch = Launch(
        name="subject",
        argv=(sys.executable, "-c", DAEMONS),
        env=(),
        cwd=None,
        log_file=str(log),
        cpus=(),
        stop_signal=signal.SIGTERM,
        grace_ns=0,
    )
    spec = ProbeSpec(launch=launch, interval_ns=100_000_000, exact_counts=False)
    stop = StopRequest()
    with (
        Pump(stop) as pump,
        LineFile(tmp_path / "probe.jsonl") as lines,
        pytest.raises(TrialFailed, match=r"the monitor ended without a report|did not report the end"),
        probe_up(engine, spec, lines, tmp_path / "engine.log", pump) as probe,
    ):
        assert pump.wait(lambda: log.read_text().count("up") == 2, 30)
        (inner,) = children(probe.pid)
        if how == "killed":
            os.kill(probe.pid, signal.SIGSTOP)  # it must not notice that the other has ended
            os.kill(inner, signal.SIGKILL)
            os.kill(probe.pid, signal.SIGKILL)
            pump.wait(lambda: False, 20)
        else:
            os.kill(inner, signal.SIGSTOP)
    stop.close()


@pytest.fixture
def jvm(classes: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A JVM that is given a minute to answer: beside other tests it may need seconds."""
    for limit in ("_SOCKET_WITHIN_S", "_NAMES_WITHIN_S"):
        monkeypatch.setattr(jvm_attach, limit, 60.0)
    (port,) = pick_ports(1)
    command = ["java", "-Xmx64m", "-XX:+UseSerialGC", "-cp", str(classes), "LeakyServer", str(port), "1"]
    with subprocess.Popen(command) as process:
        deadline = time.monotonic() + 60
        while not someone_listens("127.0.0.1", port) and time.monotonic() < deadline:
            time.sleep(0.05)
        yield process.pid
        process.terminate()  # it removes its socket from /tmp


@contextmanager
def as_nobody(what: Callable[[], None]) -> Iterator[None]:
    """Runs `what` in a process of another user, which lives until the block ends."""
    need_root()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            what()
            os.write(write, b".")
            time.sleep(60)
        finally:
            os._exit(1)
    os.close(write)
    try:
        assert os.read(read, 1) == b"."
        yield
    finally:
        os.close(read)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_jvm_is_asked_through_no_socket_of_others(jvm: int) -> None:
    path = Path(f"/tmp/.java_pid{jvm}")

    def listen() -> None:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        path.chmod(0o777)
        listener.listen()
        kept.append(listener)

    kept: list[socket.socket] = []
    with as_nobody(listen):
        why = "in the place of the JVM's attach socket"
        with (
            pytest.raises(NotAnsweredError, match=why),
            command_sent(jvm, "threaddump", deadline_s=time.monotonic() + 60),
        ):
            pass
        assert thread_names([jvm]) == {}
    path.unlink()
    assert "Finalizer" in thread_names([jvm]).values()


def test_a_request_that_another_user_left_is_not_taken_for_ours(jvm: int) -> None:
    path = Path(f"/tmp/.attach_pid{jvm}")
    with (
        as_nobody(path.touch),
        pytest.raises(NotAnsweredError, match=r"another user's \.attach_pid"),
        command_sent(jvm, "threaddump", deadline_s=time.monotonic() + 60),
    ):
        pass
    assert path.stat().st_uid == NOBODY
    path.unlink()
    assert "Finalizer" in thread_names([jvm]).values()
    assert not path.exists()


def test_one_who_may_not_count_exactly_reports_no_count(engine: Path) -> None:
    """Only perf counts context switches of threads that have ended, and the kernel does not permit perf to every
    user."""
    need_root()
    permitted = int(Path("/proc/sys/kernel/perf_event_paranoid").read_text()) < 2
    counted = {}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        binary = Path(shutil.copy(engine, folder))
        binary.chmod(0o755)
        for user in (0, NOBODY):
            launch = Launch(name="subject", argv=("sleep", "60"), log_file=f"{folder}/log-{user}")
            with subprocess.Popen([binary, "probe"], stdin=PIPE, stdout=PIPE, user=user, cwd="/") as probe:
                assert probe.stdin is not None and probe.stdout is not None
                probe.stdin.write(encode(ProbeSpec(launch=launch, interval_ns=50_000_000)))
                probe.stdin.flush()
                sample = next(line for line in map(json.loads, probe.stdout) if line["type"] == "sample")
                probe.stdin.close()
            (counted[user],) = (tree["context_switches"] for tree in sample["trees"] if tree["name"] == "subject")
    assert counted[0] is not None and (counted[NOBODY] is not None) == permitted, counted
