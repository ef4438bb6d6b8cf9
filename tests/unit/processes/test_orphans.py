"""The processes that a killed keeper leaves behind are ended, and no others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from powerband.processes.orphans import orphans_adopted

FAMILY = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        child = os.fork()
        if child: print(f"{os.getpid()}\\n{child}", flush=True)
        time.sleep(60)
    os._exit(0)
os.wait()
time.sleep(60)
"""


def started() -> tuple[subprocess.Popen[str], list[int]]:
    keeper = subprocess.Popen([sys.executable, "-c", FAMILY], stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert keeper.stdout is not None
    return keeper, [int(keeper.stdout.readline()) for _ in range(2)]


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def end(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)


def test_daemons_of_a_killed_keeper_are_killed() -> None:
    others = [subprocess.Popen(["sleep", "60"], start_new_session=True)]
    with orphans_adopted(lambda: True):
        others.append(subprocess.Popen(["sleep", "60"]))
        keeper, daemons = started()
        with keeper:
            keeper.kill()
        assert all(is_alive(pid) for pid in daemons)
    assert not any(is_alive(pid) for pid in daemons)
    assert all(other.poll() is None for other in others), "what began before, and what is of this session"
    for other in others:
        other.kill()
        other.wait()


def test_nothing_is_killed_where_the_keeper_ended_by_itself() -> None:
    with orphans_adopted(lambda: False):
        keeper, daemons = started()
        with keeper:
            keeper.kill()
    assert all(is_alive(pid) for pid in daemons)
    end(daemons)


def test_orphans_that_have_ended_are_reaped() -> None:
    with orphans_adopted(lambda: False):
        keeper, daemons = started()
        with keeper:
            keeper.kill()
        for pid in daemons:
            os.kill(pid, signal.SIGKILL)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(ChildProcessError):
        os.waitpid(daemons[1], os.WNOHANG)
