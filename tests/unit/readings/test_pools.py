from __future__ import annotations

from typing import Any

import pytest

from powerband.readings.pools import WatchedPool, process_cores, watched_pools, watched_share

SECOND = 1_000_000_000


def event(at_s: float, *pools: dict[str, Any]) -> dict[str, Any]:
    return {"type": "threads", "at_ns": round(at_s * SECOND), "tree": "subject", "pools": list(pools)}


def sample(
    pool: str, on_cpu_s: float, run_wait_s: float, blocked_s: float, waits: dict[str, int] | None = None, **more: Any
) -> dict[str, Any]:
    return {
        "pool": pool,
        "threads_now": 1,
        "on_cpu_ns": round(on_cpu_s * SECOND),
        "run_wait_ns": round(run_wait_s * SECOND),
        "blocked_ns": round(blocked_s * SECOND),
        "voluntary_switches": 0,
        "involuntary_switches": 0,
        "states_now": {},
        "wait_channels_now": {},
        "blocked_on_samples": waits or {},
        **more,
    }


def one(*events: dict[str, Any], start_s: float, end_s: float) -> WatchedPool:
    (pool,) = watched_pools(events, round(start_s * SECOND), round(end_s * SECOND))
    return pool


def test_a_pool_s_use_is_what_its_counters_grew_by_over_the_window() -> None:
    pool = one(
        event(0, sample("pool", 0, 0, 0)),
        event(1, sample("pool", 0.1, 0.2, 3.7, {"sleep": 10})),
        event(2, sample("pool", 0.6, 0.7, 6.7, {"sleep": 20, "lock": 30}, voluntary_switches=500)),
        start_s=1,
        end_s=2,
    )
    assert (pool.name, pool.use.threads) == ("pool", pytest.approx(4.0))
    assert (pool.use.on_cpu, pool.use.run_wait, pool.use.blocked) == pytest.approx((0.5, 0.5, 3.0))
    assert pool.use.blocked_on == pytest.approx({"sleep": 0.25, "lock": 0.75})
    assert pool.blocked_on("lock") == pytest.approx(2.25)
    assert pool.switches_per_s == pytest.approx(500)


def test_a_pool_that_began_between_two_events_is_counted_from_the_first_that_shows_it() -> None:
    """The pool begins half a second before the window, which would otherwise seem to contain fewer threads."""
    rows = [
        event(0, sample("main", 0, 0, 0)),
        event(1, sample("pool", 0, 0, 4.0)),
        event(2, sample("pool", 0, 0, 12.0)),
    ]
    assert one(*rows, start_s=0.6, end_s=2.1).use.threads == pytest.approx(8.0)


def test_a_pool_that_fills_before_the_window_and_empties_after_it_is_counted_whole() -> None:
    """32 threads wait from the start of the load until its end at 3.6 s. The looks before and after see one thread."""
    waits = [event(at, sample("pool", 0, 0, 32 * at, threads_now=32)) for at in (0.7, 1.5, 2.3, 3.1)]
    rows = [event(-0.1, sample("pool", 0, 0, 0)), *waits, event(3.9, sample("pool", 0, 0, 32 * 3.1 + 0.8))]
    assert one(*rows, start_s=0.5, end_s=3.5).use.threads == pytest.approx(32)


def test_a_pool_seen_once_had_nothing_at_the_event_before() -> None:
    rows = [
        event(0, sample("main", 0, 0, 0)),
        event(1, sample("main", 0, 0, 1)),
        event(2, sample("main", 0, 0, 2), sample("pool", 0, 0, 4.0)),
    ]
    found = watched_pools(rows, SECOND, 2 * SECOND)
    assert [(pool.name, pool.use.threads) for pool in found] == [("pool", 4.0), ("main", 1.0)]


def test_nothing_is_told_where_the_events_cover_too_little() -> None:
    rows = [event(0, sample("pool", 0, 0, 0)), event(1, sample("pool", 0, 0, 4))]
    assert watched_pools(rows, round(0.9 * SECOND), 3 * SECOND) == ()
    assert watched_pools([], 0, SECOND) == ()


@pytest.mark.parametrize(
    ("looks", "share"),
    [((), 0), ((1.5,), 0), ((0.9, 1.2, 1.7, 2.3), 0.5), ((1, 2), 1), ((0.9, 1.5, 2.1), 1), ((0.8, 1.5, 2.1), 0)],
)
def test_what_is_watched_of_a_window_lies_between_its_looks(looks: tuple[float, ...], share: float) -> None:
    assert watched_share([event(at) for at in looks], SECOND, 2 * SECOND) == pytest.approx(share)


def test_each_process_used_what_its_threads_did() -> None:
    def look(at_s: float, **used_s: float) -> dict[str, Any]:
        threads = [
            {"tid": ord(name), "pid": 2 if name == "c" else 1, "on_cpu_ns": round(used * SECOND)}
            for name, used in used_s.items()
        ]
        return {**event(at_s), "threads": threads}

    looks: list[Any] = [look(0, a=0, b=0, c=0), look(1, a=1, c=0.5), look(2, a=1.5, b=7, c=0.5), look(3, a=2, b=7.4)]
    assert process_cores(looks, SECOND, 3 * SECOND) == pytest.approx((0.7, 0.0))
    assert process_cores(looks[:2], SECOND, 3 * SECOND) == () == process_cores([], 0, SECOND)


def test_the_busiest_thread_is_the_mean_over_the_window_s_events() -> None:
    rows = [
        event(0, sample("loop", 0, 0, 0)),
        event(1, sample("loop", 0, 0, 1, on_cpu_ns_max=SECOND // 2)),
        event(2, sample("loop", 0, 0, 2, on_cpu_ns_max=SECOND)),
    ]
    assert one(*rows, start_s=1, end_s=2).busiest == pytest.approx(1.0)
    assert one(*rows, start_s=0, end_s=2).busiest == pytest.approx(0.75)
    assert one(*rows, start_s=0.5, end_s=2).busiest == pytest.approx((0.5 * 0.5 + 1.0) / 1.5)


def of_threads(at_s: float, *, alive: int = 2, pool: str = "worker", **used_s: float) -> dict[str, Any]:
    """An event that lists these of the pool's threads, with the CPU time of each so far; one ran all the time since the
    event before."""
    threads = [
        {
            "tid": ord(name),
            "pid": 1,
            "pool": pool,
            "name": pool,
            "on_cpu_ns": round(used * SECOND),
            "run_wait_ns": 0,
            "switches": 0,
        }
        for name, used in used_s.items()
    ]
    whole = sample(pool, at_s, 0, at_s, threads_now=alive, on_cpu_ns_max=SECOND)
    return {**event(at_s, whole), "threads": threads}


@pytest.mark.parametrize(
    ("looks", "share"),
    [
        ([of_threads(0, a=0, b=0), of_threads(1, a=1, b=0), of_threads(2, a=1, b=1)], 0.5),
        ([of_threads(0, a=0, b=0), of_threads(1, a=0.9, b=0), of_threads(2, a=1.8, b=0.1)], 0.9),
        # Of hundreds of threads only those are listed that ran longest since the event before.
        ([of_threads(0, alive=300, a=0), of_threads(1, alive=300, a=1, b=0), of_threads(2, alive=300, a=1, b=1)], 0.5),
        ([of_threads(0, alive=300, a=0), of_threads(1, alive=300, b=5), of_threads(2, alive=300, a=1.2)], 0.6),
        ([of_threads(0, a=0), of_threads(1, a=1), of_threads(2, b=1)], 0.5),
    ],
    ids=["in turns", "always the same", "not all listed", "listed now and then", "one ended"],
)
def test_the_busiest_thread_is_one_and_the_same_all_along(looks: list[dict[str, Any]], share: float) -> None:
    pool = one(*looks, start_s=0, end_s=2)
    assert pool.busiest == pytest.approx(share) and not pool.busiest_at_most


@pytest.mark.parametrize(("alive", "at_most"), [(1, False), (2, True)])
def test_where_no_thread_is_listed_the_busiest_one_of_several_is_only_bounded(alive: int, at_most: bool) -> None:
    looks = [{**of_threads(at, alive=alive), "threads": []} for at in range(3)]
    pool = one(*looks, start_s=0, end_s=2)
    assert (pool.busiest, pool.busiest_at_most) == (1.0, at_most)


@pytest.mark.parametrize(
    ("pool", "waits", "channels", "loops"),
    [
        ("workers", {"poll": 50, "sleep": 50}, {"ep_poll": 1}, True),
        ("workers", {"poll": 50}, {}, True),  # the kernel gives no wait channels
        ("http-nio-exec", {"poll": 50, "lock": 50}, {"do_poll.constprop.0": 2}, False),  # one socket, with a time limit
        ("workers", {"lock": 100}, {"futex_wait_queue": 1}, False),
        ("vert.x-eventloop-thread", {"sleep": 100}, {}, True),
        ("nioEventLoopGroup", {"lock": 100}, {}, True),
        ("loop", {"sleep": 100}, {}, True),
        ("ForkJoinPool", {"lock": 100}, {}, False),
    ],
)
def test_event_loops_are_known_by_what_they_wait_on_or_by_their_names(
    pool: str, waits: dict[str, int], channels: dict[str, int], loops: bool
) -> None:
    rows = [
        event(0, sample(pool, 0, 0, 0)),
        event(1, sample(pool, 0, 0, 1, waits, wait_channels_now=channels)),
    ]
    assert one(*rows, start_s=0, end_s=1).loops is loops


@pytest.mark.parametrize(
    ("pool", "collects", "housekeeping"),
    [
        ("GC Thread", True, False),
        ("G1 Conc", True, False),
        ("VM Thread", True, False),
        ("ZWorkerYoung", True, False),
        ("C2 CompilerThre", False, True),
        ("VM Periodic Tas", False, True),
        ("acceptor", False, True),
        ("http-nio-8080-Acceptor", False, True),
        ("http-nio-8080-A", False, True),
        ("http-nio-8080-e", False, False),
        ("http-nio-exec", False, False),
        ("pool-1-thread", False, False),
    ],
)
def test_collectors_and_housekeepers_are_known_by_their_names(pool: str, collects: bool, housekeeping: bool) -> None:
    rows = [event(0, sample(pool, 0, 0, 0)), event(1, sample(pool, 0, 0, 1))]
    found = one(*rows, start_s=0, end_s=1)
    assert (found.collects, found.housekeeping) == (collects, housekeeping)


@pytest.mark.parametrize(
    ("processes", "polls", "parts"),
    [
        (3, 3, [("gunicorn", 27, {"sleep": 1}), ("gunicorn (event loop, free)", 3, {"poll": 1})]),
        (3, 4, [("gunicorn", 26, {"sleep": 1}), ("gunicorn (event loop, free)", 4, {"poll": 1})]),
        pytest.param(6, 3, [("gunicorn", 30, {"poll": 0.1, "sleep": 0.9})], id="half of the loops do not poll"),
        pytest.param(3, 9, [("gunicorn", 30, {"poll": 0.3, "sleep": 0.7})], id="threads that poll now and then"),
        pytest.param(14, 16, [("gunicorn", 30, {"poll": 8 / 15, "sleep": 7 / 15})], id="no threads behind the loops"),
        pytest.param(1, 2, [("gunicorn", 30, {"poll": 1 / 15, "sleep": 14 / 15})], id="loops of one process"),
    ],
)
def test_threads_behind_free_loops_are_told_apart_where_not_all_are_listed(
    processes: int, polls: int, parts: list[tuple[str, float, dict[str, float]]]
) -> None:
    """30 threads, of each process two are listed. The rest lies behind loops if one of each process always polls."""

    def look(at_s: int) -> dict[str, Any]:
        waits = {"poll": polls * at_s, "sleep": (30 - polls) * at_s}
        listed = [
            {"tid": tid, "pid": tid // 2, "pool": "gunicorn", "name": "gunicorn", "on_cpu_ns": 0, "switches": 0}
            for tid in range(2 * processes)
        ]
        return {**event(at_s, sample("gunicorn", 0, 0, 30 * at_s, waits, threads_now=30)), "threads": listed}

    found = watched_pools([look(at_s) for at_s in range(4)], 0, 3 * SECOND)
    assert [(pool.name, pool.use.threads, dict(pool.use.blocked_on)) for pool in found] == [
        (name, pytest.approx(threads), pytest.approx(kinds)) for name, threads, kinds in parts
    ]
    assert found[0].loops is (len(parts) == 1)
