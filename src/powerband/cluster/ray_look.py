"""Keeps Ray from waking the actor's main thread a hundred times a second while nothing is asked of it.

That thread waits for calls in an epoll. A timer (timerfd) of the same epoll wakes it every 10 ms to look for signals,
which no option of Ray changes (`CoreWorker::RunTaskExecutionLoop`). If the timer is set further ahead, the next look
comes later. Calls come by another descriptor, and wake the thread at once.
"""

from __future__ import annotations

import ctypes
import os
import struct
from contextlib import suppress
from pathlib import Path

_SELF = Path("/proc/self")


def timer_of_main_thread() -> int | None:
    """The timerfd of the epoll that the main thread waits in; None if it does something else, or if that cannot be
    seen."""
    with suppress(OSError, IndexError, ValueError):
        epoll = str(int((_SELF / f"task/{os.getpid()}/syscall").read_text().split()[1], 16))  # its first argument
        if _is("eventpoll", epoll):
            watched = (_SELF / "fdinfo" / epoll).read_text().splitlines()
            found = [line.split()[1] for line in watched if line.startswith("tfd:")]
            return next((int(each) for each in found if _is("timerfd", each)), None)
    return None


def _is(kind: str, descriptor: str) -> bool:
    return str((_SELF / "fd" / descriptor).readlink()) == f"anon_inode:[{kind}]"


def put_off(timer: int, seconds: int) -> None:
    """Sets a timerfd to go off once, so many seconds from now."""
    ctypes.CDLL(None).timerfd_settime(timer, 0, struct.pack("4l", 0, 0, seconds, 0), None)
