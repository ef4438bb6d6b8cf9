"""Measures the CPU that programs other than the bench and its subject used between two readings of /proc, by name.

In: /proc, twice. Out: names and CPU seconds. The files are read below a root folder, so that tests can plant them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from powerband.base.procfs import TICKS_PER_S, ProcessStat, all_processes, tree_of

NAMED = 5  # how many programs are kept: those that used most


def processes(root: Path = Path("/")) -> dict[int, ProcessStat]:
    """Returns all visible processes, by pid, without those that end meanwhile. Each takes some 20 us."""
    return {process.pid: process for process in all_processes(root / "proc")}


def used_by_others(
    before: Mapping[int, ProcessStat], after: Mapping[int, ProcessStat], *roots: int
) -> list[tuple[str, float]]:
    """Returns names and CPU seconds of other programs, the largest first; processes of one name are added up.

    Without the processes `roots` and all their descendants. A process that ended in between counts for the parent that
    waited for it, as a compiler does for `make`; one that nobody waited for is not seen."""
    known = {**before, **after}.values()
    ours = {pid for root in roots for pid in tree_of(root, known)}
    # CPU, up to the first reading, of processes that have ended since, by the nearest ancestor that has not.
    ended = defaultdict[int, int](int)
    for pid, process in before.items():
        if pid not in after:
            ancestor = process.parent
            while ancestor not in after and ancestor in before:
                ancestor = before[ancestor].parent
            ended[ancestor] += process.cpu_ticks + process.reaped_ticks
    used = defaultdict[str, int](int)
    for pid, process in after.items():
        if pid in ours:
            continue
        grown = process.cpu_ticks + process.reaped_ticks
        earlier = before.get(pid)
        if earlier is not None and earlier.started == process.started:
            counted_before = min(ended[pid], process.reaped_ticks - earlier.reaped_ticks)
            grown -= earlier.cpu_ticks + earlier.reaped_ticks + counted_before
        used[process.name] += max(0, grown)
    order = sorted(((ticks, name) for name, ticks in used.items() if ticks), reverse=True)
    return [(name, ticks / TICKS_PER_S) for ticks, name in order[:NAMED]]
