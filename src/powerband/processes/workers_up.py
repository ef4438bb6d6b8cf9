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

from powerband.base.procfs import all_processes, tree_of

ALONE_S = 0.03  # a process that rests for so long after it listens forks no workers: a fork takes some ms
REST_S = 0.11  # gunicorn pauses for up to 0.1 s between two workers
STALLED_S = 2.0  # what runs, but neither grows nor forks for so long is no start: it spins
GROWTH_PAGES = 16  # of memory, of 4 KiB in most kernels: any import takes more in so long
POLL_S = 0.02
RUNNING = {"R", "D"}  # on a CPU, waiting for one (throttled by a quota, too), or for a disk


class Processes(NamedTuple):
    """The processes of a server at one instant, by `pids`. `running`: the first thread of one of them runs or is ready
    to. `rss_pages`: their memory."""

    pids: frozenset[int]
    running: bool
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
        any(process.state in RUNNING for process in own),
        sum(process.rss_pages for process in own),
    )


def await_workers(
    look: Callable[[], Processes],
    pause: Callable[[float], bool],
    timeout_s: float,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Waits until a server of several processes has none that is new or runs, for `REST_S`; one of a single process for
    `ALONE_S`. What spins is not waited for; gives up after `timeout_s`. `pause`: waits for so many seconds, and returns
    True to end the wait."""
    last, rested_s = look(), 0.0
    began_s = looked_s = grew_s = clock()
    while not pause(poll_s := POLL_S / 2 if len(last.pids) < 2 else POLL_S):
        now, now_s = look(), clock()
        forked = now.pids != last.pids
        # Of a longer time between two looks no rest was seen: the machine may have stood still.
        rested_s = 0.0 if now.running or forked else rested_s + min(now_s - looked_s, 2 * poll_s)
        looked_s = now_s
        if forked or now.rss_pages > last.rss_pages + GROWTH_PAGES:
            last, grew_s = now, now_s
        rest_s = ALONE_S if len(now.pids) < 2 else REST_S
        if rested_s >= rest_s or now_s - grew_s >= STALLED_S or now_s - began_s >= timeout_s:
            return
