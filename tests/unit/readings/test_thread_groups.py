"""Threads with one name are divided by what each of them does."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from powerband.readings.pools import watched_pools
from powerband.readings.thread_groups import groups_of
from powerband.wire.probe_events import Threads

SECOND = 1_000_000_000
END = 5 * SECOND


@dataclass
class Thread:
    """A thread, by its figures for a second of load: looks by what it waits on, CPU in ms, switches. `idle`: its looks
    in a second before the load. `name`: of its pool. `called`: its own name, if that is another."""

    tid: int
    pid: int
    looks: dict[str, int]
    cpu_ms: int = 1
    switches: int = 100
    idle: dict[str, int] = field(default_factory=lambda: {"lock": 10})
    name: str = "python"
    called: str = ""


def events(threads: list[Thread], seconds: int = 5, **left_out: Any) -> list[Threads]:
    """One event a second: two of idle times, then of the load. `left_out`: fields that older engines lack."""
    told = []
    for second in range(seconds + 1):
        rows = []
        for thread in threads:
            loaded, looks = max(0, second - 2), {}
            for kinds, times in ((thread.idle, min(second, 2)), (thread.looks, loaded)):
                for kind, count in kinds.items():
                    looks[kind] = looks.get(kind, 0) + count * times
            rows.append(
                {
                    "tid": thread.tid,
                    "pid": thread.pid,
                    "pool": thread.name,
                    "name": thread.called or thread.name,
                    "on_cpu_ns": thread.cpu_ms * 1_000_000 * loaded,
                    "run_wait_ns": 0,
                    "blocked_ns": second * SECOND - thread.cpu_ms * 1_000_000 * loaded,
                    "switches": thread.switches * loaded,
                    "preemptions": 0,
                    "blocked_on_samples": looks,
                }
            )
        pools = [
            {
                "pool": name,
                "threads_now": sum(row["pool"] == name for row in rows),
                **{
                    key: sum(cast(int, row[key]) for row in rows if row["pool"] == name)
                    for key in ("on_cpu_ns", "run_wait_ns", "blocked_ns")
                },
                "voluntary_switches": sum(cast(int, row["switches"]) for row in rows if row["pool"] == name),
                "involuntary_switches": 0,
                "states_now": {},
                "wait_channels_now": {},
                "blocked_on_samples": {},
            }
            for name in {thread.name for thread in threads}
        ]
        told.append({"type": "threads", "at_ns": second * SECOND, "tree": "subject", "pools": pools, "threads": rows})
    return cast(list[Threads], told)


def sizes(threads: list[Thread], start_ns: int = 3 * SECOND) -> dict[str, int]:
    found = groups_of(events(threads), start_ns, END)
    return {name: group.rows[-1][1]["threads_now"] for name, group in found.items()}


PARENT = Thread(1, 1, {"poll": 10}, switches=1, idle={"poll": 10})
LOOP = Thread(2, 2, {"poll": 9}, idle={"poll": 10})


def test_an_event_loop_its_workers_and_a_parent_are_three_groups() -> None:
    workers = [Thread(tid, 2, {"sleep": 9, "lock": 1}) for tid in (3, 4, 5, 6)]
    found = groups_of(events([PARENT, LOOP, *workers]), 3 * SECOND, END)
    assert {name: group.loops for name, group in found.items()} == {
        "python (at rest)": False,
        "python (event loop)": True,
        "python": False,
    }
    pools = {pool.name: pool for pool in watched_pools(events([PARENT, LOOP, *workers]), 3 * SECOND, END)}
    assert pools["python"].use.threads == pytest.approx(4)
    assert pools["python"].blocked_on("sleep") == pytest.approx(3.6, rel=0.01)
    assert pools["python"].switches_per_s == pytest.approx(400)
    assert pools["python (event loop)"].loops and not pools["python"].loops


def test_a_process_whose_first_thread_does_its_work_and_never_waits_for_events_is_a_loop_that_hangs() -> None:
    main = Thread(2, 2, {"lock": 10}, cpu_ms=90)
    helpers = [Thread(tid, 2, {"lock": 10}, cpu_ms=1, switches=2) for tid in (3, 4)]
    timer = Thread(5, 2, {"poll": 10}, cpu_ms=0, switches=0, idle={"poll": 10})
    assert sizes([main, *helpers, timer]) == {"python (event loop)": 1, "python (at rest)": 3}


def test_a_first_thread_that_waited_for_events_before_it_hangs_is_no_worker_of_the_loop_that_hands_it_requests() -> (
    None
):
    reader = Thread(3, 2, {"poll": 10}, idle={"poll": 10}, name="reader")
    others = [Thread(4, 2, {"lock": 10}), Thread(5, 2, {"lock": 10}, switches=1)]
    first = Thread(2, 2, {"sleep": 100}, idle={"poll": 3})
    assert sizes([first, reader, *others]) == {"python (event loop)": 1, "python": 2, "reader": 1}
    worker = Thread(6, 2, {"sleep": 100}, idle={"poll": 3})  # it waited for its first request
    assert sizes([reader, *others, worker]) == {"python (at work)": 1, "python": 2, "reader": 1}


def test_a_parent_that_hands_on_connections_stands_apart_from_loops_that_hang() -> None:
    parent = Thread(1, 1, {"poll": 10}, switches=20, idle={"poll": 10})
    assert sizes([parent, Thread(2, 2, {"sleep": 10}), Thread(3, 3, {"sleep": 10})]) == {
        "python (event loop, free)": 1,
        "python (event loop)": 2,
    }


def test_processes_that_another_one_hands_all_requests_do_not_rest() -> None:
    front = Thread(9, 9, {"poll": 10}, switches=1000, idle={"poll": 10}, name="proxy")
    parent = replace(PARENT, switches=1)
    workers = [Thread(tid, tid, {"sleep": 10}, switches=40) for tid in range(2, 8)]
    assert sizes([front, parent, *workers]) == {"proxy": 1, "python (at rest)": 1, "python (event loop)": 6}


def test_a_pool_behind_threads_that_wait_for_its_results_is_one_of_its_own() -> None:
    behind = [Thread(tid, 2, {"sleep": 10}) for tid in (3, 4)]
    waiting = [Thread(tid, 2, {"lock": 9, "sleep": 1}) for tid in range(5, 15)]
    assert sizes([LOOP, *behind, *waiting]) == {"python (event loop)": 1, "python (at work)": 2, "python": 10}
    in_turns = [Thread(tid, 2, {"lock": 7, "sleep": 3}) for tid in range(3, 15)]
    assert sizes([LOOP, *in_turns]) == {"python (event loop)": 1, "python": 12}


@pytest.mark.parametrize(
    ("computing", "cpu_ms", "looks", "apart"),
    [
        pytest.param(4, 950, {}, True, id="never seen to wait"),
        pytest.param(4, 900, {"lock": 3}, True, id="seen between two tasks"),
        pytest.param(4, 600, {}, False, id="much of the time"),
        pytest.param(1, 950, {}, False, id="a single one"),
    ],
)
def test_threads_that_compute_all_the_time_are_a_pool_of_their_own(
    computing: int, cpu_ms: int, looks: dict[str, int], apart: bool
) -> None:
    """Node's loop, the threads of libuv, which have requests in hand, and idle ones of V8."""
    busy = [Thread(10 + number, 2, looks, cpu_ms=cpu_ms) for number in range(computing)]
    idle = [Thread(tid, 2, {"lock": 10}, switches=1) for tid in range(3, 8)]
    others = {"python (at work)": computing, "python": 5} if apart else {"python": computing + 5}
    assert sizes([LOOP, *busy, *idle]) == {"python (event loop)": 1, **others}


def test_a_first_thread_that_watches_over_workers_holds_no_request() -> None:
    watches = Thread(2, 2, {"other": 10}, cpu_ms=0, switches=1, idle={"other": 10})
    workers = [Thread(tid, 2, {"socket": 9, "lock": 1}) for tid in (4, 5, 6)]
    assert sizes([watches, replace(LOOP, tid=3), *workers]) == {
        "python (event loop)": 1,
        "python (at rest)": 1,
        "python": 3,
    }
    sleeps_long = replace(watches, tid=7)  # as one that waits for a lock of SQLite
    assert sizes([replace(LOOP, tid=2), sleeps_long, *workers]) == {"python (event loop)": 1, "python": 4}
    seldom_woken = replace(watches, switches=20)  # as one that serves the longest requests
    assert sizes([seldom_woken, replace(LOOP, tid=3), *workers]) == {"python (event loop)": 1, "python": 4}


@pytest.mark.parametrize(
    ("accepts", "works"),
    [
        (Thread(2, 2, {"socket": 10}, switches=400), {"sleep": 9, "lock": 1}),
        (Thread(2, 2, {"socket": 6, "lock": 4}, switches=400), {"sleep": 6, "lock": 4}),  # it waits for Python's lock
        (Thread(2, 2, {"socket": 10}, switches=2), {"sleep": 10}),  # connections are kept, and none is new
        (Thread(2, 2, {"socket": 10}, switches=2), {"socket": 10}),  # the others wait for a database
        (Thread(2, 2, {"socket": 10}, switches=800), {"socket": 10}),
    ],
)
def test_a_first_thread_that_accepts_connections_is_no_worker(accepts: Thread, works: dict[str, int]) -> None:
    """It waits in accept or poll, which look like a read from a socket."""
    workers = [Thread(tid, 2, works, switches=100 + tid) for tid in range(3, 11)]
    assert sizes([accepts, *workers]) == {"python (accepts)": 1, "python": 8}
    pools = {pool.name: pool for pool in watched_pools(events([accepts, *workers]), 3 * SECOND, END)}
    assert pools["python (accepts)"].housekeeping and not pools["python"].housekeeping


@pytest.mark.parametrize(
    "first",
    [
        Thread(2, 2, {"socket": 10}, switches=150),  # like the others, which accept by themselves
        Thread(2, 2, {"socket": 10}, cpu_ms=600, switches=800),  # it does the work
        Thread(2, 2, {"sleep": 10}, switches=800),
    ],
)
def test_a_first_thread_that_may_serve_stays_with_the_others(first: Thread) -> None:
    others = [Thread(tid, 2, {"socket": 10}, cpu_ms=20, switches=100 + tid) for tid in range(3, 11)]
    assert sizes([first, *others]) == {"python": 9}


def test_a_first_thread_whose_others_come_and_go_accepts_and_does_not_do_all() -> None:
    """Each connection has a thread of its own, which ends with it: what it did between two looks is not seen."""
    first = Thread(2, 2, {"socket": 10}, cpu_ms=80, switches=700)
    brief = [[Thread(100 + 10 * second + n, 2, {"sleep": 1}, switches=2) for n in range(4)] for second in range(6)]
    told = [events([first, *brief[second]])[second] for second in range(6)]
    groups = groups_of(told, 3 * SECOND, END)
    assert set(groups) == {"python", "python (accepts)"} and not any(group.loops for group in groups.values())
    stay = events([first, *brief[5]])
    assert set(groups_of(stay, 3 * SECOND, END)) == {"python (event loop)", "python (at rest)"}


def test_threads_of_which_any_may_wait_for_events_stay_together() -> None:
    mixed = [
        Thread(2, 2, {"poll": 10}),
        Thread(3, 2, {"lock": 10}, idle={"poll": 4, "lock": 6}),
        Thread(4, 2, {"sleep": 9}),
    ]
    assert sizes(mixed) == {"python": 3}
    crowd = [PARENT, *mixed, *(Thread(tid, 2, {"sleep": 9}) for tid in range(5, 35))]
    pools = {pool.name: pool for pool in watched_pools(events(crowd), 3 * SECOND, END)}
    assert pools["python (poller and workers)"].use.threads == 33 and not pools["python (poller and workers)"].loops


def test_pools_stay_whole_where_not_every_thread_is_told_or_an_older_engine_tells_less() -> None:
    made = events([PARENT, LOOP, Thread(3, 2, {"sleep": 9})])
    for event in made:
        event["threads"] = event["threads"][:2]
    assert list(groups_of(made, 3 * SECOND, END)) == ["python"]
    made = events([PARENT, LOOP, Thread(3, 2, {"sleep": 9})])
    for event in made:
        for thread in event["threads"]:
            del thread["pool"]
    assert list(groups_of(made, 3 * SECOND, END)) == ["python"]


def test_a_thread_that_ended_keeps_what_it_did() -> None:
    made = events([LOOP, Thread(3, 2, {"sleep": 9}, cpu_ms=50), Thread(4, 2, {"sleep": 9}, cpu_ms=50)])
    made[-1]["threads"] = made[-1]["threads"][:2]
    made[-1]["pools"][0]["threads_now"] = 2
    rows = groups_of(made, 3 * SECOND, END)["python"].rows
    assert [pool["on_cpu_ns"] for _, pool in rows] == [0, 0, 0, 100_000_000, 200_000_000, 250_000_000]
    assert rows[-1][1]["threads_now"] == 1


def test_a_thread_that_ended_before_the_stretch_hides_no_group() -> None:
    behind = [Thread(tid, 2, {"sleep": 10}) for tid in (3, 4)]
    waiting = [Thread(tid, 2, {"lock": 9, "sleep": 1}) for tid in range(5, 15)]
    made = events([LOOP, *behind, *waiting, Thread(99, 2, {"sleep": 10})])
    for event in made[2:]:
        del event["threads"][-1]
        event["pools"][0]["threads_now"] -= 1
    found = groups_of(made, 3 * SECOND, END)
    sized = {name: group.rows[-1][1]["threads_now"] for name, group in found.items()}
    assert sized == {"python (event loop)": 1, "python (at work)": 2, "python": 10}


@pytest.mark.parametrize(("second", "groups"), [(1, 3), (2, 1), (4, 1), (6, 3)])
def test_only_the_events_that_a_stretch_needs_must_list_every_thread(second: int, groups: int) -> None:
    """An event lists only some of many new threads; the next one lists all. The stretch begins at 3 s."""
    workers = [Thread(tid, 2, {"sleep": 9, "lock": 1}) for tid in (3, 4, 5, 6)]
    made = events([PARENT, LOOP, *workers], seconds=6)
    made[second]["threads"] = made[second]["threads"][:3]
    pools = {pool.name: pool for pool in watched_pools(made, 3 * SECOND, END)}
    assert len(pools) == groups
    assert pools["python"].use.threads == pytest.approx(4 if groups == 3 else 6)


POLLER = Thread(4, 2, {"poll": 10}, idle={"poll": 10}, name="http-n..r", called="http-n..Poller")


@pytest.mark.parametrize(
    ("pool", "called", "name"),
    [
        ("http-n..r", "http-n..ceptor", "http-n..r (accepts)"),
        ("http-ni..r", "http-ni..ceptor", "http-ni..r (accepts)"),
        ("http-n..r", "http-n..ptor-0", "http-n..r (accepts)"),
        ("http-nio-8080-A", "http-nio-8080-A", "http-nio-8080-A (accepts)"),
        ("XNIO-1 Accept", "XNIO-1 Accept", "XNIO-1 Accept"),
    ],
)
def test_a_thread_whose_own_name_says_that_it_accepts_is_no_worker(pool: str, called: str, name: str) -> None:
    """Tomcat's: the kernel or the JDK cuts its name, so that it may share a pool with the poller, or with nothing."""
    acceptor = Thread(3, 2, {"socket": 10}, name=pool, called=called)
    workers = [Thread(tid, 2, {"sleep": 10}, name="http-n..c", called=f"http-n..exec-{tid}") for tid in (5, 6)]
    for others in ([], [POLLER]):
        pools = {found.name: found for found in watched_pools(events([acceptor, *others, *workers]), 3 * SECOND, END)}
        assert pools[name].housekeeping and not pools[name].loops
        assert pools["http-n..c"].use.threads == pytest.approx(2) and not pools["http-n..c"].housekeeping
        assert len(pools) == 2 + len(others)


def test_a_full_name_says_more_than_that_of_the_kernel() -> None:
    """On a port of five digits all of Tomcat's threads have one name there."""
    acceptor = Thread(3, 2, {"socket": 10}, name="http-nio", called="http-nio-45678-")
    workers = [Thread(tid, 2, {"lock": 10}, name="http-nio", called="http-nio-45678-") for tid in (5, 6)]
    told = events([acceptor, *workers])
    assert "http-nio (accepts)" not in groups_of(told, 3 * SECOND, END)
    pools = {pool.name for pool in watched_pools(told, 3 * SECOND, END, {"3": "http-nio-45678-Acceptor"})}
    assert pools == {"http-nio", "http-nio (accepts)"}
