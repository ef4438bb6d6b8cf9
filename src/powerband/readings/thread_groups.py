"""Splits pools whose threads do different work under one name, by what each thread does.

Many runtimes give all their threads, and all their processes, one name: an event loop, the threads behind it, and a
parent that only watches over its children. In: the probe's `threads` events, with counters of each thread. Out: the
pools' rows as the probe gives them, except that a pool of mixed work becomes several groups with rows of their own.
Pure.

- A process **rests** if its threads are woken far less often than those of the busiest process that has such threads.
- A thread **waits for events** if at least one look in twenty since it began, idle times included, found it in epoll or
  select; a worker waits for its tasks on a condition instead. For the first thread of a process it suffices that this
  was so at some time: it is no worker that another thread started, and a loop that hangs under load did not before. It
  also counts as one if it does all the work of the process and is busy, or blocked by something else: it is the loop,
  or the only worker, even if it never comes to rest. A thread that is woken far less often than the busiest of them
  rests: runtimes keep loops for timers of their own. Loops of a process that hardly wait for events are kept apart from
  **free** ones, such as those of a parent that only accepts.
- The first thread of a process **accepts** connections for its other threads if it does little work and nearly always
  waits on a socket (accept and poll look like a read), while the others do not, or are woken far more or less often. So
  does any thread whose own name says so. Where the others **come and go**, each for a request or a connection, most of
  their work is never seen, and the first thread is not taken for the one that does it.
- Of the other threads some may be **at work** (in three looks of four, or several of them on a CPU three quarters of
  the time) while all the rest wait on conditions: those at work are a pool of their own, for whose results the rest may
  wait. Threads that take turns are seen in both states.
  A first thread that is at work but hardly ever woken rests: it watches over the others.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from powerband.wire.probe_events import PoolSample, Threads, ThreadSample, WaitKind

POLLED = 0.05  # of the looks at one thread; a loop under full load still polls now and then, a worker never
PARKS = 0.1  # of the looks in the stretch, a thread that waits for events in other looks waits on a condition
ALONE = 0.8  # of the CPU time and the switches of its process: one thread does its work
MOST = 0.5  # of the CPU time of its process, where it is woken for nearly all of its work
BUSY = 0.5  # of the time, a thread is on a CPU: arbitrary, more often at work than not
FREE_LEAST = 0.25  # of the looks at a process's event loops, they wait for events: arbitrary
RESTS = 0.05  # of the switches of the busiest process, event loop, or other thread
# Of the looks in the stretch, or of its time: on average a thread of a busy pool is between two requests in a few.
AT_WORK = 0.75
LOOKS_LEAST = 6  # at one thread in the stretch; with fewer, nothing is concluded from them
ACCEPTS_SHARE = 0.9  # of the looks that did not find it waiting for a lock, a thread that accepts waits on a socket
BRIEF = 2.0  # times as many threads as at any one look: those of one look are gone by the next: arbitrary
APART = 2.0  # times the switches of each other thread, or one part in so many: arbitrary, equal workers differ less

# `readings/pools.py` knows loops and housekeepers by such words in a name: the suffixes of others hold none of them.
LOOP, FREE, REST, WORK, MIXED = "event loop", "event loop, free", "at rest", "at work", "poller and workers"
ACCEPTS = "accepts"  # among the housekeepers of `readings/pools.py`, which serve no request
# Threads whose own names say that they accept connections. The kernel keeps 15 bytes of a name: Tomcat's is cut there
# (`http-nio-8080-A`), or by the JDK in the middle (`http-n..ceptor`, once `http-n..ptor-0`).
ACCEPTOR = re.compile(r"(?i:accept)|\.\.\w*ceptor$|^http.*\.\.ptor-\d$|^http-nio2?-\d+-A")

Rows = list[tuple[int, PoolSample]]
Seen = dict[int, list[tuple[int, ThreadSample]]]


@dataclass(frozen=True)
class ThreadGroup:
    """A pool, or those of its threads that do the same work. `rows`: the time in ns and the counters at each event.
    `loops`: True if the threads wait for events between their work; None if that is not known. `listed`: the samples of
    those of its threads that the events list, with their pools."""

    rows: Rows
    loops: bool | None = None
    listed: tuple[Sequence[tuple[int, ThreadSample]], ...] = ()


def group_name(pool: str, suffix: str) -> str:
    """The name of a group of a pool's threads: `python (accepts)`."""
    return f"{pool} ({suffix})"


def groups_of(
    events: Sequence[Threads], start_ns: int, end_ns: int, names: Mapping[str, str] | None = None
) -> dict[str, ThreadGroup]:
    """The subject's pools by name; a pool of mixed work is replaced by its groups. Pools stay whole if an event that
    the stretch needs does not list every thread. `names`: full names of threads by their ids, as far as they are known:
    those of the kernel are cut."""
    rows: dict[str, Rows] = {}
    for event in events:
        for pool in event["pools"]:
            rows.setdefault(pool["pool"], []).append((event["at_ns"], pool))
    complete = _complete(events, start_ns, end_ns)
    seen = samples_by_thread(complete)
    listed = samples_by_thread(events)
    of_pool: dict[str, list[int]] = {}
    for tid, history in listed.items():
        of_pool.setdefault(history[-1][1].get("pool", ""), []).append(tid)

    def histories(tids: Iterable[int]) -> tuple[Sequence[tuple[int, ThreadSample]], ...]:
        return tuple(listed[tid] for tid in tids)

    found = {name: ThreadGroup(pool, listed=histories(of_pool.get(name, ()))) for name, pool in rows.items()}
    if not seen:
        return found
    accepting = _accepting(seen, names or {})
    instants = {event["at_ns"] for event in complete}
    for name in list(rows):
        members = {tid: history for tid, history in seen.items() if history[-1][1]["pool"] == name}
        resting = _resting(members, start_ns, end_ns)
        groups = _groups(members, seen, resting, start_ns, end_ns, accepting=accepting)
        if len(groups) < 2 and (ACCEPTS not in groups or "accept" in name.lower()):
            found[name] = replace(found[name], loops=True if {LOOP, FREE} & set(groups) else None)
            continue
        whole = [row for row in found.pop(name).rows if row[0] in instants]
        for suffix, tids in groups.items():
            group, threads = group_name(name, suffix) if suffix else name, {tid: members[tid] for tid in tids}
            loops = None if suffix == MIXED else suffix in (LOOP, FREE)
            found[group] = ThreadGroup(list(_summed(group, threads, whole)), loops, histories(tids))
    return found


def _complete(events: Sequence[Threads], start_ns: int, end_ns: int) -> list[Threads]:
    """The events that list every thread; empty if one that the stretch needs does not. It needs those in it, and the
    last one before it. Any other may leave out threads that are new: counters are cumulative, so the next one has all
    of them."""
    first_ns = max((event["at_ns"] for event in events if event["at_ns"] < start_ns), default=start_ns)
    if not all(_lists_all(event) for event in events if first_ns <= event["at_ns"] <= end_ns):
        return []
    return [event for event in events if _lists_all(event)]


def _lists_all(event: Threads) -> bool:
    """True if the event lists every thread; not if it is of an older engine."""
    threads = event.get("threads", [])
    return len(threads) >= sum(pool["threads_now"] for pool in event["pools"]) and all("pool" in it for it in threads)


def samples_by_thread(events: Iterable[Threads]) -> Seen:
    """The samples of each thread by its id."""
    seen: Seen = {}
    for event in events:
        for thread in event.get("threads", []):
            seen.setdefault(thread["tid"], []).append((event["at_ns"], thread))
    return seen


def _groups(
    members: Seen, seen: Seen, resting: set[int], start_ns: int, end_ns: int, *, accepting: set[int]
) -> dict[str, list[int]]:
    """The thread ids of each group, by the suffix that the pool's name gets. A thread that no event of the stretch
    lists, such as one that ended before, shows nothing of its work: it goes with those that have no suffix."""
    groups: dict[str, list[int]] = {REST: [], LOOP: [], FREE: [], WORK: [], MIXED: [], ACCEPTS: [], "": []}
    seen_in_it = {
        tid: history for tid, history in members.items() if any(start_ns <= at <= end_ns for at, _ in history)
    }
    watched = seen_in_it or members
    processes: dict[int, list[int]] = {}
    for tid, history in watched.items():
        if tid in accepting:
            groups[ACCEPTS].append(tid)
        else:
            processes.setdefault(history[-1][1].get("pid", 0), []).append(tid)
    for pid, tids in processes.items():
        stretch = {tid: _Stretch.of(members[tid], start_ns, end_ns) for tid in tids}
        loops = [tid for tid in tids if stretch[tid].polls]
        brief = _come_and_go([members[tid] for tid in tids if tid != pid], start_ns, end_ns)
        if pid in resting:
            groups[REST] += tids
        elif (
            pid in stretch
            and not brief
            and _does_all(stretch[pid], _of_process(pid, seen, start_ns, end_ns), end_ns - start_ns)
        ):
            groups[LOOP].append(pid)
            groups[REST] += [tid for tid in tids if tid != pid]
        elif any(stretch[tid].share("lock") >= PARKS for tid in loops):
            groups[MIXED] += tids  # any of them may wait for events while others are parked
        else:
            most = max((stretch[tid].switches for tid in loops), default=0)
            awake = [tid for tid in loops if stretch[tid].switches >= RESTS * most]
            looks = sum(stretch[tid].looks for tid in awake)
            polled = sum(stretch[tid].share("poll") * stretch[tid].looks for tid in awake)
            groups[FREE if polled >= FREE_LEAST * looks else LOOP] += awake
            groups[REST] += [tid for tid in loops if tid not in awake]
            others = [tid for tid in tids if tid not in loops]
            rest = [tid for tid in others if tid != pid]
            if pid in others and _accepts(stretch[pid], [stretch[tid] for tid in rest], end_ns - start_ns, brief=brief):
                groups[ACCEPTS].append(pid)
                others = rest
            most = max((stretch[tid].switches for tid in others), default=0)
            if pid in others and stretch[pid].works >= AT_WORK and stretch[pid].switches < RESTS * most:
                groups[REST].append(pid)
                others = rest
            at_work, others = _told_apart(others, stretch)
            groups[WORK] += at_work
            groups[""] += others
    if not groups[LOOP]:
        groups[LOOP], groups[FREE] = groups[FREE], []
    if len(found := {suffix: tids for suffix, tids in groups.items() if tids}) > 1 and len(watched) < len(members):
        found[""] = groups[""] + [tid for tid in members if tid not in watched]
    return found


@dataclass(frozen=True)
class _Stretch:
    """The activity of one thread in the stretch. `polls`: True if it waits for events, judged by all looks at it until
    the stretch ends (later ones see it being stopped). `lasted_ns`: the time over which the others are counted.
    `waited`: the number of looks that found it blocked, by what it waited on."""

    polls: bool
    on_cpu_ns: int
    lasted_ns: int
    switches: int
    waited: Mapping[WaitKind, int]

    @classmethod
    def of(cls, history: Sequence[tuple[int, ThreadSample]], start_ns: int, end_ns: int) -> _Stretch:
        """Counts from the event before the stretch on, since two seconds hold only two events."""
        before = [look for look in history if look[0] < start_ns][-1:]
        inside = before + [look for look in history if start_ns <= look[0] <= end_ns]
        if not inside:
            return cls(False, 0, 0, 0, {})
        (first_ns, first), (last_ns, last) = inside[0], inside[-1]
        looks, looks_before = last.get("blocked_on_samples", {}), first.get("blocked_on_samples", {})
        ever = [looks]
        if last["tid"] == last.get("pid"):
            ever += [thread.get("blocked_on_samples", {}) for at, thread in history if at <= end_ns]
        return cls(
            polls=any(seen.get("poll", 0) >= max(1, POLLED * sum(seen.values())) for seen in ever),
            on_cpu_ns=last["on_cpu_ns"] - first["on_cpu_ns"],
            lasted_ns=last_ns - first_ns,
            switches=last["switches"] - first["switches"],
            waited={kind: count - looks_before.get(kind, 0) for kind, count in looks.items()},
        )

    @property
    def looks(self) -> int:
        return sum(self.waited.values())

    def share(self, kind: WaitKind) -> float:
        return self.waited.get(kind, 0) / max(1, self.looks)

    @property
    def works(self) -> float:
        """The share of the looks at which it waited for something else than a condition; 0.5 if it was hardly looked
        at."""
        return 0.5 if self.looks < LOOKS_LEAST else 1 - self.share("lock")

    @property
    def computes(self) -> bool:
        """True if it is on a CPU most of the time, so that few looks find it blocked."""
        return self.lasted_ns > 0 and self.on_cpu_ns >= AT_WORK * self.lasted_ns


def _told_apart(others: list[int], stretch: Mapping[int, _Stretch]) -> tuple[list[int], list[int]]:
    """The threads that are at work, and all the rest if these wait on conditions; else none, and all of them. A single
    thread that computes stays with the rest: it is no pool."""
    computing = {tid for tid in others if stretch[tid].computes}
    if len(computing) == 1:
        computing = set()
    at_work = [tid for tid in others if tid in computing or stretch[tid].works >= AT_WORK]
    waiting = [tid for tid in others if tid not in computing and stretch[tid].works <= 1 - AT_WORK]
    return (at_work, waiting) if waiting and len(at_work) + len(waiting) == len(others) else ([], others)


def _of_process(pid: int, seen: Seen, start_ns: int, end_ns: int) -> list[_Stretch]:
    return [_Stretch.of(history, start_ns, end_ns) for history in seen.values() if history[-1][1].get("pid") == pid]


def _does_all(main: _Stretch, process: Collection[_Stretch], lasted_ns: int) -> bool:
    """True if the first thread of a process does all its work, and is on a CPU or blocked by something else than
    events."""
    used = sum(each.on_cpu_ns for each in process)
    woken = main.looks >= LOOKS_LEAST and main.switches >= ALONE * sum(each.switches for each in process)
    # In a process that mostly waits, a runtime's own helpers may use a fifth of the CPU.
    blocked = woken and main.on_cpu_ns >= MOST * used
    busy = main.on_cpu_ns >= max(ALONE * used, BUSY * lasted_ns)
    return (blocked or busy) and main.share("poll") < FREE_LEAST


def _come_and_go(histories: Collection[Sequence[tuple[int, ThreadSample]]], start_ns: int, end_ns: int) -> bool:
    """True if threads are new at most looks in the stretch: each serves a request, or a connection, and ends."""
    at_once = Counter(at for history in histories for at, _ in history if start_ns <= at <= end_ns)
    return bool(at_once) and len(histories) >= BRIEF * max(at_once.values())


def _accepts(first: _Stretch, others: Sequence[_Stretch], lasted_ns: int, *, brief: bool) -> bool:
    """True if the first thread of a process waits for connections, which it hands to the other threads of its pool.
    `brief`: these come and go, so that the CPU time that they use is hardly seen."""
    used = first.on_cpu_ns + sum(each.on_cpu_ns for each in others)
    most = BUSY * lasted_ns if brief else min(MOST * used, BUSY * lasted_ns)
    if not others or first.looks < LOOKS_LEAST or first.on_cpu_ns > most:
        return False
    if first.waited.get("socket", 0) < max(1.0, ACCEPTS_SHARE * (first.looks - first.waited.get("lock", 0))):
        return False
    switches = [each.switches for each in others]
    woken_apart = first.switches >= APART * max(switches) or APART * first.switches <= min(switches)
    return woken_apart or max(each.share("socket") for each in others) < MOST


def _resting(seen: Seen, start_ns: int, end_ns: int) -> set[int]:
    switches: dict[int, int] = {}
    for history in seen.values():
        pid = history[-1][1].get("pid", 0)
        switches[pid] = switches.get(pid, 0) + _Stretch.of(history, start_ns, end_ns).switches
    most = max(switches.values(), default=0)
    return {pid for pid, count in switches.items() if count < RESTS * most}


def _accepting(seen: Seen, names: Mapping[str, str]) -> set[int]:
    """The threads whose names say that they accept connections."""
    return {tid for tid, history in seen.items() if ACCEPTOR.search(names.get(str(tid), history[-1][1]["name"]))}


def _summed(name: str, members: Seen, whole: Rows) -> Iterator[tuple[int, PoolSample]]:
    """The group's rows at the events of the whole pool. A thread that has ended keeps its last counters. States and
    wait channels are known only for the whole pool, and are left empty."""
    by_event = {tid: dict(history) for tid, history in members.items()}
    last: dict[int, ThreadSample] = {}
    for at_ns, _ in whole:
        now = {tid: history[at_ns] for tid, history in by_event.items() if at_ns in history}
        gains = [thread["on_cpu_ns"] - last[tid]["on_cpu_ns"] if tid in last else 0 for tid, thread in now.items()]
        last.update(now)
        threads = last.values()
        samples: dict[WaitKind, int] = {}
        for thread in threads:
            for kind, count in thread.get("blocked_on_samples", {}).items():
                samples[kind] = samples.get(kind, 0) + count
        preempted = sum(thread.get("preemptions", 0) for thread in threads)
        yield (
            at_ns,
            PoolSample(
                pool=name,
                threads_now=len(now),
                on_cpu_ns=sum(thread["on_cpu_ns"] for thread in threads),
                run_wait_ns=sum(thread["run_wait_ns"] for thread in threads),
                blocked_ns=sum(thread.get("blocked_ns", 0) for thread in threads),
                voluntary_switches=sum(thread["switches"] for thread in threads) - preempted,
                involuntary_switches=preempted,
                states_now={},
                wait_channels_now={},
                blocked_on_samples=samples,
                on_cpu_ns_max=max(gains, default=0),
            ),
        )
