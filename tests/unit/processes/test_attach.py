"""Thread names from dumps of old and new JVMs, processes that are not asked, and answers that come in pieces."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from powerband.processes import jvm_attach
from powerband.processes.jvm_attach import JvmAnswer, NotAnsweredError, command_sent, parse_dump, thread_names

JDK_17 = """
2026-11-21 07:39:21
Full thread dump OpenJDK 64-Bit Server VM (17.0.15+6 mixed mode, sharing):

"main" #1 prio=5 os_prio=0 cpu=51.1ms elapsed=9.09s tid=0x00007f nid=0x1a2b waiting on condition  [0x00007f]
   java.lang.Thread.State: TIMED_WAITING (sleeping)
"vert.x-eventloop-thread-0" #14 prio=5 os_prio=0 cpu=1.0ms elapsed=8.2s tid=0x00 nid=0x1a3c runnable  [0x0]
"a \\"quoted\\" name" #15 daemon prio=5 os_prio=0 tid=0x0 nid=0x10 runnable
"VM Thread" os_prio=0 cpu=3.2ms elapsed=9.0s tid=0x00007f nid=0x1a2f runnable
"""
JDK_25 = (
    '"vert.x-eventloop-thread-3" #33 [22981] prio=5 os_prio=0 cpu=0.5ms elapsed=3s tid=0x0 nid=22981 runnable [0x0]\n'
)


def test_ids_are_hexadecimal_or_decimal() -> None:
    assert parse_dump(JDK_17) == {
        0x1A2B: "main",
        0x1A3C: "vert.x-eventloop-thread-0",
        0x10: 'a \\"quoted\\" name',
        0x1A2F: "VM Thread",
    }
    assert parse_dump(JDK_25) == {22981: "vert.x-eventloop-thread-3"}
    assert parse_dump("nothing of the kind") == {}


@given(st.text(alphabet='"x =nid0123\n'))
def test_no_dump_is_too_odd(text: str) -> None:
    assert all(isinstance(tid, int) for tid in parse_dump(text))


def test_a_dump_is_read_in_one_pass() -> None:
    assert parse_dump('"' + '" ' * 1_000_000 + "\n" + JDK_25) == {22981: "vert.x-eventloop-thread-3"}


def soon() -> float:
    return time.monotonic() + 1.0


def test_who_is_gone_has_no_names() -> None:
    assert thread_names([2**22 + os.getpid()]) == {}


def test_who_is_gone_cannot_be_asked() -> None:
    gone = 2**22 + os.getpid()
    with (
        pytest.raises(NotAnsweredError, match="cannot be asked: No such file"),
        command_sent(gone, "x", deadline_s=soon()),
    ):
        pass


def test_nobody_is_asked_when_no_time_is_left() -> None:
    with pytest.raises(NotAnsweredError, match="no time was left"), command_sent(os.getpid(), "jcmd", deadline_s=0.0):
        pass


@pytest.fixture(params=["", "signal.signal(signal.SIGQUIT, lambda *_: os._exit(3)); "], ids=["dies", "handles"])
def stranger(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is no JVM, and that SIGQUIT would end."""
    code = f"import os, signal, time; {request.param}print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_what_is_no_jvm_gets_no_signal(stranger: subprocess.Popen[bytes]) -> None:
    why = "leaves signals to the system|no HotSpot JVM"
    with pytest.raises(NotAnsweredError, match=why), command_sent(stranger.pid, "jcmd", deadline_s=soon()):
        pass
    time.sleep(0.1)
    assert stranger.poll() is None
    assert not Path(f"/tmp/.attach_pid{stranger.pid}").exists()


@pytest.fixture
def planted(stranger: subprocess.Popen[bytes]) -> Iterator[Path]:
    """The path of the attach socket of that process."""
    path = Path(f"/tmp/.java_pid{stranger.pid}")
    yield path
    path.unlink(missing_ok=True)


def test_only_the_jvm_itself_may_listen_on_its_socket(stranger: subprocess.Popen[bytes], planted: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(planted))
        listener.listen()
        with (
            pytest.raises(NotAnsweredError, match="another process listens on the JVM's attach socket"),
            command_sent(stranger.pid, "jcmd", deadline_s=soon()),
        ):
            pass
        connection, _ = listener.accept()
        assert connection.recv(100) == b"", "nothing was put to it"
        connection.close()


@pytest.mark.parametrize("kind", ["file", "fifo", "link"])
def test_what_is_no_socket_is_not_touched(kind: str, stranger: subprocess.Popen[bytes], planted: Path) -> None:
    if kind == "file":
        planted.touch()
    elif kind == "fifo":
        os.mkfifo(planted)
    else:
        planted.symlink_to("/dev/null")
    with (
        pytest.raises(NotAnsweredError, match="is in the place of the JVM's attach socket"),
        command_sent(stranger.pid, "jcmd", deadline_s=soon()),
    ):
        pass


def test_an_answer_without_end_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jvm_attach, "ANSWER_BYTES_MAX", 100_000)
    jvm, ours = socket.socketpair()
    with ours, jvm:
        jvm.setblocking(False)
        answer = JvmAnswer(ours)
        with pytest.raises(NotAnsweredError, match="longer than"):
            for _ in range(100):
                jvm.send(bytes(60_000))
                answer.arrived()


def test_an_answer_is_whole_once_the_jvm_has_closed() -> None:
    jvm, ours = socket.socketpair()
    with ours:
        answer = JvmAnswer(ours)
        assert not answer.arrived()
        jvm.sendall(b"0\nfirst ")
        assert not answer.arrived()
        with pytest.raises(NotAnsweredError, match="did not answer in time"):
            answer.text()
        jvm.sendall(b"second")
        jvm.close()
        assert answer.arrived() and answer.arrived()
        assert answer.text() == "first second"


@pytest.mark.parametrize(("said", "why"), [(b"", "it said nothing"), (b"1\nUnknown\ncommand\n", "Unknown command")])
def test_a_jvm_may_refuse_or_end_meanwhile(said: bytes, why: str) -> None:
    jvm, ours = socket.socketpair()
    with ours:
        jvm.sendall(said)
        jvm.close()
        answer = JvmAnswer(ours)
        assert answer.arrived()
        with pytest.raises(NotAnsweredError, match=why):
            answer.text()
