"""Ray's look for signals: which timer it is, and that a call still wakes the thread that waits for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

# The main thread waits as Ray's does: in an epoll with a timer, set 0.2 s ahead, and with a descriptor for calls.
WAITING = """
import ctypes, os, select, struct, sys, threading
from powerband.cluster.ray_look import put_off, timer_of_main_thread

libc = ctypes.CDLL(None)
timer, call, told = libc.timerfd_create(1, 0), os.eventfd(0), os.eventfd(0)
epoll = select.epoll()
for descriptor in (call, timer):
    epoll.register(descriptor, select.EPOLLIN)

def beside():
    while (found := timer_of_main_thread()) is None:
        pass
    assert found == timer
    put_off(found, 3600)
    left = ctypes.create_string_buffer(32)
    libc.timerfd_gettime(timer, left)
    assert struct.unpack("4l", left.raw)[2] > 3000
    os.eventfd_write(call, 1)

assert timer_of_main_thread() is None
libc.timerfd_settime(timer, 0, struct.pack("4l", 0, 0, 600, 0), None)
threading.Thread(target=beside).start()
assert [descriptor for descriptor, _ in epoll.poll(20)] == [call]
"""


def test_the_look_is_put_off_and_a_call_wakes_at_once() -> None:
    subprocess.run([sys.executable, "-c", WAITING], check=True, timeout=30)


OTHERWISE = """
import select, threading
from powerband.cluster.ray_look import timer_of_main_thread

def beside():
    seen.append(timer_of_main_thread())
    done.set()

seen, done = [], threading.Event()
threading.Thread(target=beside).start()
%s
done.wait()
assert seen == [None]
"""


@pytest.mark.parametrize("wait", ["done.wait()", "select.epoll().poll(0.2)"])
def test_a_main_thread_that_waits_otherwise_has_no_such_timer(wait: str) -> None:
    subprocess.run([sys.executable, "-c", OTHERWISE % wait], check=True, timeout=30)
