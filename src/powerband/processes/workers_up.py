"""Waits until a server of several processes has started them all.

A server may listen before its workers do: gunicorn and Puma bind, then fork workers, each of which loads the
application. Users who keep their connections stay with the workers that were there when these were opened, so that
workers which come later get nothing to do.

In: the kernel's list of processes. Out: only the wait. Not here: whether the server is ready (`subject_process.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from powerband.base.procfs import TICKS_PER_S, all_processes, tree_of

ALONE_S = 0.03  # a server that has not forked by then has one process: a fork takes some ms
REST_S = 0.11  # gunicorn pauses for up to 0.1 s between two workers
BUSY = 0.25  # arbitrary, of a CPU or the quota: what loads an application uses all of it; what waits for work, none
PERIOD_S = 0.1  # of a quota: once that is used up, a server stands still until the period ends
STALLED_S = 2.0  # what uses a CPU but neither grows nor forks for so long is no start: it spins
GROWTH_PAGES = 16  # of memory, of 4 KiB in most kernels: any import takes more in so long
POLL_S = 0.02


class Processes(NamedTuple):
    """The processes of a server at one instant, and the sums of their CPU time and memory."""

    pids: frozenset[int]
    cpu_ticks: int
    rss_pages: int


def processes_below(root: int, generations: int) -> Processes:
    """Reads all that descends from a process, but for the process itself and others of the first `generations`."""
    found = {process.pid: process for process in all_processes()}
    above = {root} if generations else set()
    for _ in range(generations - 1):
        above |= {process.pid for process in found.values() if process.parent in above}
    own = [found[pid] for pid in tree_of(root, found.values()) - above if pid in found]
    return Processes(
        frozenset(process.pid for process in own),
        sum(process.cpu_ticks for process in own),
        sum(process.rss_pages for process in own),
    )


def await_workers(
    look: Callable[[], Processes],
    pause: Callable[[float], bool],
    timeout_s: float,
    cores: float = 1.0,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Waits until a server of several processes has none new, and uses little CPU, for `REST_S`. A server of one
    process is not waited for, nor one that spins; gives up after `timeout_s`. `pause`: waits for so many seconds, and
    returns True to end the wait. `cores`: the CPU time per second that loading may use, if that is less than one."""
    began_s, alone_s = clock(), ALONE_S if cores >= 1 else PERIOD_S + ALONE_S
    last = look()
    while len(last.pids) < 2:
        if clock() - began_s > alone_s or pause(POLL_S / 2):
            return
        last = look()
    rested = largest = last
    rested_s = grew_s = clock()
    while not pause(POLL_S):
        now, now_s = look(), clock()
        busy = now.cpu_ticks - rested.cpu_ticks >= BUSY * cores * REST_S * TICKS_PER_S
        if busy or now.pids != rested.pids:
            rested, rested_s = now, now_s
        if now.pids != largest.pids or now.rss_pages > largest.rss_pages + GROWTH_PAGES:
            largest, grew_s = now, now_s
        if now_s - rested_s >= REST_S or now_s - grew_s >= STALLED_S or now_s - began_s >= timeout_s:
            return
