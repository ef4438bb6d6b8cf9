"""Pools whose threads do different work under one name, told apart by what each thread does.

Many runtimes give all their threads, and all their processes, one name: an event loop, the threads behind it, and a
parent that only watches over its children. In: the probe's `threads` events, with counters of each thread. Out: the
pools' rows as the probe gives them, but for a pool of mixed work a row for each group. Pure.

- A process **rests** where its threads are woken far less often than those of the busiest one.
- A thread **waits for events** where it was seen in epoll or select in one look of twenty or more since it began, idle
  times included: a worker waits for its tasks on a condition.
- Of the others some may be **at work** (three looks of four) while all the rest wait on conditions: those at work are
  a pool of their own, for whose results the rest may wait. Threads that take turns are seen in both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from powerband.wire.probe_events import PoolSample, Threads, ThreadSample, WaitKind

# A pool that waited in poll for so large a share of all its waits, the idle time before the load included, is one of
# event loops: a pool of workers waits for its tasks on a condition, a thread of a connection in recv.
LOOP_POLL_SHARE = 0.05
RESTS = 0.05  # of the switches of the busiest process
AT_WORK = 0.75  # of the looks in the stretch: on average a thread of a busy pool is between two requests in a few
LOOKS_LEAST = 6  # at one thread in the stretch; with fewer, nothing is concluded from them

Rows = list[tuple[int, PoolSample]]
Seen = dict[int, list[tuple[int, ThreadSample]]]


def rows_by_group(events: Sequence[Threads], start_ns: int, end_ns: int) -> dict[str, Rows]:
    """The rows of each pool of the subject, over all events; of a pool of mixed work those of each of its groups.
    Where events do not tell of every thread, pools stay whole."""
    events = [event for event in events if event["tree"] == "subject"]
    rows: dict[str, Rows] = {}
    for event in events:
        for pool in event["pools"]:
            rows.setdefault(pool["pool"], []).append((event["at_ns"], pool))
    seen = _seen(events)
    if not seen:
        return rows
    resting = _resting(seen, start_ns, end_ns)
    for name in list(rows):
        members = {tid: told for tid, told in seen.items() if told[-1][1]["pool"] == name}
        groups = _groups(members, resting, start_ns, end_ns)
        if len(groups) < 2:
            continue
        whole = rows.pop(name)
        for suffix, tids in groups.items():
            group = f"{name} ({suffix})" if suffix else name
            rows[group] = list(_summed(group, {tid: members[tid] for tid in tids}, whole, polls=suffix == LOOP))
    return rows


LOOP, REST, WORK = "event loop", "at rest", "at work"


def _seen(events: Iterable[Threads]) -> Seen:
    """What was told of each thread; nothing where an event leaves some out, or is of an older engine."""
    seen: Seen = {}
    for event in events:
        threads = event.get("threads", [])
        if len(threads) < sum(pool["threads_now"] for pool in event["pools"]):
            return {}
        for thread in threads:
            if "pool" not in thread:
                return {}
            seen.setdefault(thread["tid"], []).append((event["at_ns"], thread))
    return seen


def _groups(members: Seen, resting: set[int], start_ns: int, end_ns: int) -> dict[str, list[int]]:
    """Thread ids by what the pool's name is followed by."""
    groups: dict[str, list[int]] = {}
    others = {}
    for tid, told in members.items():
        if told[-1][1].get("pid") in resting:
            groups.setdefault(REST, []).append(tid)
        elif _polled(told) >= LOOP_POLL_SHARE:
            groups.setdefault(LOOP, []).append(tid)
        else:
            others[tid] = _growth(told, start_ns, end_ns)
    at_work = [tid for tid, looks in others.items() if _share_at_work(looks) >= AT_WORK]
    waiting = [tid for tid, looks in others.items() if _share_at_work(looks) <= 1 - AT_WORK]
    if at_work and waiting and len(at_work) + len(waiting) == len(others):
        groups[WORK], groups[""] = at_work, waiting
    elif others:
        groups[""] = list(others)
    return groups


def _resting(seen: Seen, start_ns: int, end_ns: int) -> set[int]:
    switches: dict[int, int] = {}
    for told in seen.values():
        inside = _inside(told, start_ns, end_ns)
        grown = inside[-1]["switches"] - inside[0]["switches"] if inside else 0
        pid = told[-1][1].get("pid", 0)
        switches[pid] = switches.get(pid, 0) + grown
    most = max(switches.values(), default=0)
    return {pid for pid, count in switches.items() if count < RESTS * most}


def _inside(told: Sequence[tuple[int, ThreadSample]], start_ns: int, end_ns: int) -> list[ThreadSample]:
    """The thread's events in the stretch, with the one before it: a stretch of two seconds holds two."""
    before = [thread for at, thread in told if at < start_ns][-1:]
    return before + [thread for at, thread in told if start_ns <= at <= end_ns]


def _growth(told: Sequence[tuple[int, ThreadSample]], start_ns: int, end_ns: int) -> dict[WaitKind, int]:
    """Looks at a blocked thread in the stretch, by what it waited on."""
    inside = [thread.get("blocked_on_samples", {}) for thread in _inside(told, start_ns, end_ns)]
    if not inside:
        return {}
    return {kind: count - inside[0].get(kind, 0) for kind, count in inside[-1].items()}


def _share_at_work(looks: Mapping[WaitKind, int]) -> float:
    """The share of the looks at which it waited for something else than a condition; neither one nor the other where
    it was hardly looked at."""
    every = sum(looks.values())
    return 0.5 if every < LOOKS_LEAST else 1 - looks.get("lock", 0) / every


def _polled(told: Sequence[tuple[int, ThreadSample]]) -> float:
    looks = told[-1][1].get("blocked_on_samples", {})
    return looks.get("poll", 0) / max(1, sum(looks.values()))


def _summed(name: str, members: Seen, whole: Rows, *, polls: bool) -> Iterator[tuple[int, PoolSample]]:
    """The group's rows at the events of the whole pool. A thread that has ended keeps its last counters. Wait channels
    are known of the whole pool alone: those that wait for events have them."""
    by_event = {tid: dict(told) for tid, told in members.items()}
    last: dict[int, ThreadSample] = {}
    for at_ns, pool in whole:
        now = {tid: told[at_ns] for tid, told in by_event.items() if at_ns in told}
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
                wait_channels_now=pool["wait_channels_now"] if polls else {},
                blocked_on_samples=samples,
                on_cpu_ns_max=max(gains, default=0),
            ),
        )
