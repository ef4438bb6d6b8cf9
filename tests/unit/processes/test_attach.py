"""Thread names from dumps of old and new JVMs, what is not asked, and answers as they come."""

from __future__ import annotations

import os
import socket

import pytest

from powerband.processes.jvm_attach import JvmAnswer, NotAnsweredError, asked, parse_dump, thread_names

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


def test_who_is_gone_has_no_names() -> None:
    assert thread_names(2**22 + os.getpid()) == {}


def test_who_is_gone_cannot_be_asked() -> None:
    with pytest.raises(NotAnsweredError, match="cannot be asked: No such file"), asked(2**22 + os.getpid(), "jcmd"):
        pass


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
