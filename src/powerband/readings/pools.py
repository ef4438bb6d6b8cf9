"""Sums up the subject's threads over a stretch of time, by pool: `PoolUse` for reports, and more figures for the rules.

In: the probe's `threads` events, some in each window, whose counters are interpolated at the stretch's edges. Not here:
conclusions (`analyze/trial/bottleneck/rules.py`), series over time (`analyze/trial/series.py`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from powerband.model.results import PoolUse
from powerband.readings.fleet import SECOND_NS
from powerband.readings.probe_samples import Counters
from powerband.readings.thread_groups import FREE, REST, ThreadGroup, group_name, groups_of
from powerband.wire.probe_events import PoolSample, Threads, ThreadSample

SUMS = ("on_cpu_ns", "run_wait_ns", "blocked_ns", "voluntary_switches", "involuntary_switches")
# For trees with many threads, events come once a second at most: in the worst case they cover half of a window of 2 s.
COVERED_LEAST = 0.25
COVERS = 0.8  # of the time between two looks: what they saw is little else than the stretch
NEAR_NS = 1_000_000_000  # the time between two events
# A pool that spent at least this share of all its waits in poll, the idle time before the load included, is one of
# event loops: a worker pool waits for its tasks on a condition, a thread that serves one connection waits in recv.
LOOP_POLL_SHARE = 0.05
ABOUT = 0.15  # of a number of processes: so many threads that wait for events are about one of each
BEHIND_EACH = 2  # threads of a process with a loop, at the least: with fewer there is none behind it
# Each HotSpot JVM has one such thread. It works while all others stand still, and collects by itself without helpers.
VM_THREAD = "VM Thread"
# Threads that collect garbage, by their names in HotSpot (G1, Parallel, Serial's VM Thread, ZGC, Shenandoah), OpenJ9,
# .NET and Ruby; the kernel cuts names at 15 bytes. Compilers (C1, C2) are not collectors.
COLLECTORS = re.compile(
    r"^(GC Thread|GC Slave|G1 |ParGC|Parallel GC|CMS |VM Thread$|ZGC|Z(Driver|Director|Worker|Stat)|XWorker|Shenan|"
    r"\.NET (SVR |Server )?GC|\.NET BGC|gc[ -]|GC$)",
    re.IGNORECASE,
)
# Collectors that work while the program's own threads go on.
BESIDE = re.compile(r"^(G1 |CMS |Z(Driver|Director|Worker|Stat)|XWorker|Shenan|\.NET BGC)", re.IGNORECASE)
# Threads of a runtime that serve no request: compilers and other services of HotSpot and .NET, the thread of .NET's
# startup hook, and threads that only accept (Tomcat's is cut to `http-nio-8080-A`). Newer JDKs cut long names in the
# middle (`C2 Com..hread4`).
HOUSEKEEPERS = re.compile(
    r"^(C[12] Com|VM Per|Signal ?(Disp|\.\.)|Common-Cleaner|Finalizer|Referen?(ce Handl|\.\.)|Sweeper|"
    r"Monitor? ?(Deflati|\.\.)|Service Thread|Notifi(cation|c?\.\.)|Attach Listener|JFR |"
    r"\.NET (TP Gate|TP Timer|Sig|Tiered|Event|Finalizer|Timer)|powerband$|http-nio2?-\d+-A$)|accept",
    re.IGNORECASE,
)
# Threads that compile a program while it runs: they take CPU, but nothing waits for them.
COMPILERS = re.compile(r"^(C[12] Com|JVMCI|\.NET Tiered)", re.IGNORECASE)
# Names of event loops: a loop that is always busy is never seen to wait.
LOOPS = re.compile(r"event.?loop|^loop\b|^loop-|reactor|nio-?loop|^ev-", re.IGNORECASE)


@dataclass(frozen=True)
class WatchedPool:
    """A pool of threads over a stretch of time. `use`: the figures that reports show. `busiest`: CPU share of its
    busiest thread. `switches_per_s`: voluntary context switches; `preemptions_per_s`: involuntary ones. `polled`: the
    share of epoll and select in all waits of its threads since they began, 1 for threads that were recognised as event
    loops. `alive_max`: the most threads alive at an event of the stretch; the mean over a short stretch misses threads
    that end early. `busiest_at_most`: True if `busiest` may be the share of several threads that ran in turns."""

    use: PoolUse
    busiest: float
    switches_per_s: float
    preemptions_per_s: float
    polled: float
    alive_max: int = 0
    busiest_at_most: bool = False

    @property
    def name(self) -> str:
        """The name that its threads share."""
        return self.use.pool

    @property
    def collects(self) -> bool:
        """True if its threads collect garbage, judged by their name."""
        return COLLECTORS.search(self.name) is not None

    @property
    def collects_beside(self) -> bool:
        """True for a collector that works while all other threads go on."""
        return BESIDE.search(self.name) is not None

    @property
    def compiles(self) -> bool:
        """True if its threads compile the program while it runs, judged by their name."""
        return COMPILERS.search(self.name) is not None

    @property
    def housekeeping(self) -> bool:
        """True if its threads serve no request, judged by their name: compilers, timers, acceptors."""
        return HOUSEKEEPERS.search(self.name) is not None

    @property
    def rests(self) -> bool:
        """True if its threads were told apart from those that serve requests, by what they do."""
        return self.name.endswith(f" ({REST})")

    @property
    def loops(self) -> bool:
        """True if its threads are event loops, judged by what they wait on, or by their name."""
        return self.polled >= LOOP_POLL_SHARE or LOOPS.search(self.name) is not None

    def blocked_on(self, *kinds: str) -> float:
        """The mean number of its threads that were blocked on any of these kinds."""
        return self.use.blocked * sum(self.use.blocked_on.get(kind, 0.0) for kind in kinds)


def watched_pools(
    events: Sequence[Threads], start_ns: int, end_ns: int, names: Mapping[str, str] | None = None
) -> tuple[WatchedPool, ...]:
    """The subject's pools over a stretch of time, the busiest first; those without a thread in it are left out.
    `names`: full names of threads by their ids, as far as they are known."""
    groups = groups_of(events, start_ns, end_ns, names)
    instants = [event["at_ns"] for event in events]
    pools = [_pool(name, group, instants, start_ns, end_ns) for name, group in groups.items()]
    whole = [pool for pool in pools if pool is not None and pool.use.threads > 0]
    looks = [event for event in events if start_ns <= event["at_ns"] <= end_ns]
    found = [part for pool in whole for part in _without_free_loops(pool, looks)]
    return tuple(sorted(found, key=lambda pool: (-pool.use.on_cpu - pool.use.run_wait, -pool.use.threads)))


def watched_share(events: Sequence[Threads], start_ns: int, end_ns: int) -> float:
    """The share of a stretch of time, 0 to 1, that lies between the first and the last look at the subject's threads in
    it. In this part their counters are known; at the edges they are interpolated with looks outside the stretch. 1 if
    the looks just outside lie so close that at least `COVERS` of the time between them is the stretch."""
    at_ns = [event["at_ns"] for event in events]
    before, after = [at for at in at_ns if at <= start_ns], [at for at in at_ns if at >= end_ns]
    if before and after and end_ns - start_ns >= COVERS * (after[0] - before[-1]):
        return 1.0
    inside = [at for at in at_ns if start_ns <= at <= end_ns]
    return (inside[-1] - inside[0]) / (end_ns - start_ns) if len(inside) > 1 else 0.0


def process_cores(events: Sequence[Threads], start_ns: int, end_ns: int) -> tuple[float, ...]:
    """The CPUs that each of the subject's processes used in a stretch of time, by its threads: each counts from the
    first look in the stretch that lists it to the last. Empty without two looks."""
    looks = [event for event in events if start_ns <= event["at_ns"] <= end_ns]
    if len(looks) < 2:
        return ()
    begun: dict[int, int] = {}
    ended: dict[int, ThreadSample] = {}
    for look in looks:
        for thread in look.get("threads", []):
            begun.setdefault(thread["tid"], thread["on_cpu_ns"])
            ended[thread["tid"]] = thread
    used = Counter[int]()
    for tid, thread in ended.items():
        used[thread.get("pid", 0)] += max(0, thread["on_cpu_ns"] - begun[tid])
    return tuple(cpu_ns / (looks[-1]["at_ns"] - looks[0]["at_ns"]) for cpu_ns in used.values())


def _pool(name: str, group: ThreadGroup, instants: Sequence[int], start_ns: int, end_ns: int) -> WatchedPool | None:
    rows = _with_like_edges(group.rows, start_ns, end_ns)
    counters = _counters(rows, instants, start_ns, end_ns)

    def gain(field: str) -> float:
        return counters.growth(field, start_ns, end_ns, COVERED_LEAST) or 0.0

    if counters.growth("on_cpu_ns", start_ns, end_ns, COVERED_LEAST) is None:
        return None
    on_cpu, run_wait, blocked, slept, preempted = (gain(field) / (end_ns - start_ns) for field in SUMS)
    kinds = [field for field in counters.fields if field not in SUMS]
    waits = {kind: gain(kind) for kind in kinds}
    seen = sum(waits.values())
    use = PoolUse(
        pool=name,
        threads=on_cpu + run_wait + blocked,
        on_cpu=on_cpu,
        run_wait=run_wait,
        blocked=blocked,
        blocked_on={kind: count / seen for kind, count in sorted(waits.items()) if count > 0},
    )
    alive_max = max(
        (pool["threads_now"] for at, pool in rows if start_ns - NEAR_NS <= at <= end_ns + NEAR_NS), default=0
    )
    busiest = _busiest_listed(group, rows, start_ns, end_ns)
    return WatchedPool(
        use=use,
        busiest=_busiest_in_turns(rows, instants, start_ns, end_ns) if busiest is None else busiest,
        switches_per_s=slept * SECOND_NS,
        preemptions_per_s=preempted * SECOND_NS,
        polled=_polled(rows) if group.loops is None else float(group.loops),
        alive_max=alive_max,
        busiest_at_most=busiest is None and alive_max > 1,
    )


def _without_free_loops(pool: WatchedPool, looks: Sequence[Threads]) -> tuple[WatchedPool, ...]:
    """The pool; or, if its threads could not be told apart and at all times one thread of each of its processes waits
    for events, these, and all others by themselves: they are the threads behind a loop that is free. A parent may wait
    for events, too."""
    loops, each = pool.blocked_on("poll"), _processes(pool.name, looks)
    mixed = LOOP_POLL_SHARE <= pool.polled < 1 and pool.use.threads >= BEHIND_EACH * loops
    if not (mixed and each > 1 and (1 - ABOUT) * each <= loops <= (1 + ABOUT) * each + 1):
        return (pool,)
    behind = {kind: part for kind, part in pool.use.blocked_on.items() if kind != "poll"}
    seen = sum(behind.values())
    rest = replace(
        pool.use,
        threads=pool.use.threads - loops,
        blocked=pool.use.blocked - loops,
        blocked_on={kind: part / seen for kind, part in behind.items()},
    )
    free = PoolUse(group_name(pool.name, FREE), loops, 0.0, 0.0, loops, {"poll": 1.0})
    return replace(pool, use=rest, polled=0.0), WatchedPool(free, 0.0, 0.0, 0.0, 1.0, round(loops))


def _processes(pool: str, looks: Sequence[Threads]) -> float:
    """The mean number of processes with several threads in the pool, of those threads that the looks list; 0 without a
    look."""
    found = []
    for look in looks:
        threads = Counter(thread.get("pid", 0) for thread in look.get("threads", []) if thread.get("pool") == pool)
        found.append(sum(1 for count in threads.values() if count > 1))
    return sum(found) / max(1, len(found))


def _with_like_edges(
    rows: Sequence[tuple[int, PoolSample]], start_ns: int, end_ns: int
) -> Sequence[tuple[int, PoolSample]]:
    """The rows without a look just outside the stretch at which the pool had less than half of the threads that it had
    in the stretch: it grew or shrank at some time in between, and its counters between the two say nothing of the
    stretch. All rows if fewer than two looks lie inside."""
    inside = [index for index, (at, _) in enumerate(rows) if start_ns <= at <= end_ns]
    if len(inside) < 2:
        return rows
    first, last = inside[0], inside[-1]

    def is_like(index: int, within: int) -> bool:
        return 2 * rows[index][1]["threads_now"] >= rows[within][1]["threads_now"]

    begin = 0 if first and is_like(first - 1, first) else first
    end = len(rows) if last + 1 < len(rows) and is_like(last + 1, last) else last + 1
    return rows[begin:end]


def _counters(
    rows: Sequence[tuple[int, Mapping[str, Any]]], instants: Sequence[int], start_ns: int, end_ns: int
) -> Counters:
    """The pool's counters at its events. If these cover too little of the stretch because the pool is new, its counters
    are taken as 0 at the event before its first one; otherwise they are not, since its threads began at some time in
    between."""
    fields = {field: [float(pool[field]) for _, pool in rows] for field in SUMS}
    for kind in {kind for _, pool in rows for kind in pool.get("blocked_on_samples", {})}:
        fields[kind] = [float(pool["blocked_on_samples"].get(kind, 0)) for _, pool in rows]
    at = [float(instant) for instant, _ in rows]
    earlier = [instant for instant in instants if instant < at[0]]
    if earlier and min(at[-1], end_ns) - max(at[0], start_ns) < COVERED_LEAST * (end_ns - start_ns):
        at = [float(earlier[-1]), *at]
        fields = {field: [0.0, *values] for field, values in fields.items()}
    return Counters(np.array(at), {field: np.array(values) for field, values in fields.items()})


def _polled(rows: Sequence[tuple[int, PoolSample]]) -> float:
    ever = rows[-1][1].get("blocked_on_samples", {})
    return 0.0 if _polls_single(rows) else ever.get("poll", 0) / max(1, sum(ever.values()))


def _polls_single(rows: Sequence[tuple[int, PoolSample]]) -> bool:
    """True if most polls are by poll(2): runtimes use it to wait for one socket with a time limit; loops use epoll."""
    channels: Counter[str] = Counter()
    for _, pool in rows:
        channels.update(pool["wait_channels_now"])
    loops = [count for name, count in channels.items() if "epoll" in name or name.startswith("ep_") or "select" in name]
    polls = [count for name, count in channels.items() if "poll" in name]
    return sum(polls) > 2 * sum(loops)


def _busiest_listed(
    group: ThreadGroup, rows: Sequence[tuple[int, PoolSample]], start_ns: int, end_ns: int
) -> float | None:
    """The CPU share of the thread that ran longest, from the first row in the stretch to the last; None if the events
    list no thread of the group twice. Events that list a part of the threads list those that ran longest."""
    first, last = max(rows[0][0], start_ns), min(rows[-1][0], end_ns)
    if last <= first:
        return None
    grown = []
    for history in group.listed:
        if len(history) > 1 and history[0][0] < last and history[-1][0] > first:
            used = [thread["on_cpu_ns"] for _, thread in history]
            begun, ended = np.interp([first, last], [at for at, _ in history], used)
            grown.append(max(0.0, float(ended - begun)))
    return max(grown) / (last - first) if grown else None


def _busiest_in_turns(
    rows: Sequence[tuple[int, PoolSample]], instants: Sequence[int], start_ns: int, end_ns: int
) -> float:
    """The CPU share of the busiest thread if it was the same at each event, which counts for its time since the event
    before; else the busiest one used less."""
    before = {later: earlier for earlier, later in pairwise(instants)}
    shares: list[tuple[float, float]] = []
    for at, pool in rows:
        begun = before.get(at)
        overlap = 0 if begun is None else min(at, end_ns) - max(begun, start_ns)
        if begun is not None and overlap > 0:
            shares.append((overlap, pool.get("on_cpu_ns_max", 0) / (at - begun)))
    weight = sum(overlap for overlap, _ in shares)
    return sum(overlap * share for overlap, share in shares) / weight if weight else 0.0
