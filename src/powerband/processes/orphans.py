"""Ends the processes that a probe and its keeper leave behind when both are killed at once.

While the block of `orphans_adopted` runs, this process is a child subreaper (prctl(2)): a process that loses its
parents becomes a child of this one instead of init's. Not here: the usual case, in which the probe itself ends all that
it started.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from powerband.base.procfs import ProcessStat, all_processes, tree_of

_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37
_END_WITHIN_S = 10.0  # a process in an uninterruptible sleep cannot be killed
_POLL_S = 0.005  # arbitrary: a killed process is gone within a few ms


@contextmanager
def orphans_adopted(was_killed: Callable[[], bool]) -> Iterator[None]:
    """Adopts orphans during the block, and kills them at its end if `was_killed` then returns that the keeper was
    killed. Orphans are the children that this process got within the block, in a session of their own, and their
    descendants."""
    libc, before = ctypes.CDLL(None), ctypes.c_int()
    libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    known = {child.pid for child in _children(all_processes())}
    try:
        yield
    finally:
        if was_killed():
            _kill_orphans(known)
        _reap_orphans()
        libc.prctl(_PR_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)


def _kill_orphans(known: set[int]) -> None:
    deadline_s, own = time.monotonic() + _END_WITHIN_S, os.getsid(0)
    while time.monotonic() < deadline_s:
        processes = all_processes()
        orphans = [each for each in _children(processes) if each.pid not in known and each.session != own]
        if not orphans:
            return
        for orphan in orphans:
            for pid in tree_of(orphan.pid, processes):
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        for orphan in orphans:
            with suppress(ChildProcessError):
                os.waitpid(orphan.pid, os.WNOHANG)
        time.sleep(_POLL_S)


def _reap_orphans() -> None:
    """Reaps adopted children that have ended, such as a browser's. A child that this process has started is in its
    session, or leads its own."""
    for child in _children(all_processes()):
        if child.state == "Z" and child.session not in (child.pid, os.getsid(0)):
            with suppress(ChildProcessError):
                os.waitpid(child.pid, os.WNOHANG)


def _children(processes: list[ProcessStat]) -> list[ProcessStat]:
    return [process for process in processes if process.parent == os.getpid()]
