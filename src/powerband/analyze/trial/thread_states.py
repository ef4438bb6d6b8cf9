"""Shows what a subject's threads did from second to second, in all its pools or in one: bands that add up to the
number of threads.

In: the probe's `threads` events, whose counters only grow. Out: numbers of threads (thread-seconds per second) by what
they did. Not here: means over the measured window (`pools.py`), what follows from them (`rules.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from powerband.readings.fleet import SECOND_NS
from powerband.wire.probe_events import PoolSample, Threads, WaitKind

ON_CPU, RUN_WAIT, BLOCKED = "on_cpu", "run_wait", "blocked"
_COUNTED = (ON_CPU, RUN_WAIT, BLOCKED)


@dataclass(frozen=True)
class ThreadStates:
    """The activity of threads over time. `bands`: a value at each of `t_s`, over the time since the instant before, for
    `on_cpu`, `run_wait`, each kind that blocked threads were seen to wait on (`lock`, `socket`, ...), and `blocked` if
    that is not known. A band that is 0 throughout is left out."""

    t_s: tuple[float, ...] = ()
    bands: tuple[tuple[str, tuple[float, ...]], ...] = ()


def thread_states(events: Iterable[Threads], origin_ns: int, only: str | None = None) -> ThreadStates:
    """The states over time, in seconds since the origin. `only`: the pool of this name; None: all of the subject's."""
    kept = [(event["at_ns"], _pools(event, only)) for event in events]
    # Kinds that blocked threads were seen to wait on until the end, for seconds in which none was looked at.
    ever = {name: pool.get("blocked_on_samples", {}) for _, pools in kept for name, pool in pools.items()}
    last: dict[str, PoolSample] = {}
    times: list[float] = []
    rows: list[dict[str, float]] = []
    for index, (at_ns, pools) in enumerate(kept):
        passed = at_ns - kept[index - 1][0] if index else 0
        if passed > 0:
            times.append((at_ns - origin_ns) / SECOND_NS)
            rows.append(_sum(_grown(name, pool, last.get(name), passed, ever) for name, pool in pools.items()))
        last.update(pools)
    names = dict.fromkeys([*_COUNTED[:2], *(name for row in rows for name in sorted(row) if name != BLOCKED), BLOCKED])
    bands = tuple((name, tuple(row.get(name, 0.0) for row in rows)) for name in names)
    return ThreadStates(tuple(times), tuple(band for band in bands if any(band[1])))


def _pools(event: Threads, only: str | None) -> dict[str, PoolSample]:
    return {pool["pool"]: pool for pool in event["pools"] if only in (None, pool["pool"])}


def _grown(
    name: str,
    now: Mapping[str, Any],
    before: Mapping[str, Any] | None,
    passed: int,
    ever: Mapping[str, Mapping[WaitKind, int]],
) -> dict[str, float]:
    """The mean number of threads of one pool by what they did since the event before. A pool that is new starts from 0.
    A thread that was given its name late brings its whole past with it: no more than all of the pool's threads for all
    of the time is taken."""
    grown = {f: max(0.0, now[f"{f}_ns"] - (before[f"{f}_ns"] if before else 0)) / passed for f in _COUNTED}
    most = max(now["threads_now"], before["threads_now"] if before else 0, 1)
    whole = sum(grown.values())
    if whole > most:
        grown = {field: value * most / whole for field, value in grown.items()}
    seen = _waits(now, before) or ever.get(name, {})
    total = sum(seen.values())
    if total:
        blocked = grown.pop(BLOCKED)
        grown |= {kind: blocked * count / total for kind, count in seen.items()}
    return grown


def _waits(now: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, int]:
    earlier = before.get("blocked_on_samples", {}) if before else {}
    counts = {kind: count - earlier.get(kind, 0) for kind, count in now.get("blocked_on_samples", {}).items()}
    return {kind: count for kind, count in counts.items() if count > 0}


def _sum(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total.get(name, 0.0) + value
    return total
