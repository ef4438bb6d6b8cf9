"""Two candidates are named if a trial's evidence ties, and one if it is clear."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from fakes.scenes import MS, POLLER, pool, scene, tried
from powerband.analyze.settings.why import commonest
from powerband.analyze.trial.bottleneck.rules import bottleneck_of
from powerband.analyze.trial.bottleneck.scene import Scene
from powerband.model.bottlenecks import BottleneckName
from powerband.model.plan import Setting
from powerband.model.results import Bottleneck, Candidate, TrialResult
from powerband.readings.pools import WatchedPool

B = BottleneckName
LOOP = pool("loop", 0.05, 0.02, poll=0.93)
CALLING = pool("pool", 0.02, 0.1, lock=27.8, socket=4.0)
SLEEPERS = pool("pool", 0.02, 0.1, sleep=7.8)


def named(seen: Scene) -> tuple[BottleneckName, BottleneckName | None]:
    found = bottleneck_of(seen)
    assert found is not None
    return found.name, None if found.second is None else found.second.name


@pytest.mark.parametrize(
    ("pools", "looks", "outgoing", "names"),
    [
        pytest.param((LOOP,), tried(4), 4, (B.HIDDEN_LIMIT, B.DOWNSTREAM), id="a loop with 4 connections"),
        pytest.param((CALLING,), tried(4), 4, (B.HIDDEN_LIMIT, B.DOWNSTREAM), id="a pool of 4 connections"),
        pytest.param((CALLING,), tried(4), 32, (B.DOWNSTREAM, B.HIDDEN_LIMIT), id="connections that may idle"),
        pytest.param((CALLING,), tried(4), 0, (B.HIDDEN_LIMIT, None), id="nobody is called"),
        pytest.param((LOOP,), tried(4), 0, (B.HIDDEN_LIMIT, None), id="a loop that calls nobody"),
        pytest.param((LOOP,), None, None, (B.DOWNSTREAM, B.HIDDEN_LIMIT), id="a loop, and nobody looked"),
        pytest.param((LOOP,), None, 4, (B.DOWNSTREAM, B.HIDDEN_LIMIT), id="a loop with 4 connections, without slots"),
        pytest.param((CALLING,), None, None, (B.DOWNSTREAM, B.HIDDEN_LIMIT), id="threads that wait on sockets"),
        pytest.param((CALLING,), None, 0, (B.HIDDEN_LIMIT, None), id="nobody is called, without slots"),
    ],
)
def test_a_connection_pool_and_what_it_leads_to_look_the_same(
    pools: tuple[Any, ...], looks: Any, outgoing: int | None, names: tuple[BottleneckName, BottleneckName | None]
) -> None:
    assert named(scene(*pools, POLLER, tried=looks, outgoing=outgoing)) == names


def test_those_that_wait_for_their_turn_inside_the_server_may_wait_for_its_own_connection_pool() -> None:
    """Spring: 5 connections to another server, all in use, beside 10 idle ones to a database."""
    calling = pool("http-nio", 0.05, 0.05, lock=59, socket=4.9)
    found = bottleneck_of(scene(calling, POLLER, tried=tried(5), outgoing=15))
    assert found is not None and found.second is not None
    assert (found.name, found.second.name) == (B.DOWNSTREAM, B.HIDDEN_LIMIT)
    assert found.second.evidence[0].startswith("59 others wait for their turn inside the server")
    assert found.second.advice.startswith("enlarge the server's connection pool first")
    asked = scene(pool("pool", 0.1, 0.03, lock=33, socket=30.9), POLLER, tried=tried(1), outgoing=32)
    assert named(asked) == (B.DOWNSTREAM, None), "31 wait at the other end, which serves one at a time"


HELD_BY_ONE = pool("http-nio", 0.05, 0.02, lock=63, socket=0.93)
NOBODY_HOLDS = pool("http-nio", 0.05, 0.02, lock=63.9)


@pytest.mark.parametrize(
    ("threads", "changes", "second"),
    [
        pytest.param(HELD_BY_ONE, {"tried": tried(1), "outgoing": 1}, B.HIDDEN_LIMIT, id="a connection pool of 1"),
        pytest.param(HELD_BY_ONE, {"tried": tried(1), "outgoing": 0}, None, id="the holder waits on a socket"),
        pytest.param(
            pool("http-nio", 0.05, 0.02, lock=63, sleep=0.93), {"tried": tried(1), "outgoing": 1}, None, id="it sleeps"
        ),
        pytest.param(NOBODY_HOLDS, {"tried": tried(1), "outgoing": 0}, B.HIDDEN_LIMIT, id="a limit on the rate"),
        pytest.param(
            pool("http-nio", 0.05, 0.02, lock=200), {"present": 200.0, "empty_ns": 2 * MS}, B.DOWNSTREAM,
            id="parked until a dependency answers",
        ),
        pytest.param(
            pool("http-nio", 0.05, 0.02, lock=200), {"present": 200.0, "empty_ns": 2 * MS, "outgoing": 0},
            B.HIDDEN_LIMIT, id="the same of a server that calls nobody",
        ),
    ],
)  # fmt: skip
def test_a_lock_whose_holder_is_not_seen_may_be_something_else(
    threads: WatchedPool, changes: dict[str, Any], second: BottleneckName | None
) -> None:
    seen = scene(threads, POLLER, **changes)
    assert named(seen) == (B.LOCK, second)
    found = bottleneck_of(seen)
    assert found is not None
    unseen = threads is not HELD_BY_ONE and not threads.blocked_on("sleep")
    assert found.evidence[1].startswith("no thread is seen to hold it" if unseen else "1 thread at a time") is True


@pytest.mark.parametrize(
    ("threads", "first_ms", "changes", "second", "told"),
    [
        pytest.param(pool("http-nio", 0.1, 0.1, socket=19.8), 5, {}, B.DOWNSTREAM, "", id="20 threads"),
        pytest.param(
            pool("gunicorn (event loop)", 0.1, 0.1, socket=19.8, poll=0.1), 5, {"held": {"gunicorn": 25}},
            B.DOWNSTREAM, "", id="20 processes",
        ),
        pytest.param(
            pool("http-nio", 0.1, 0.1, socket=19.8), 90, {}, None, ": the offered rate needs at least 50",
            id="a call that always takes as long",
        ),
        pytest.param(
            pool("http-nio", 0.1, 0.1, sleep=19.8), 5, {}, None, ": the offered rate needs at least 50", id="no call"
        ),
        pytest.param(
            pool("http-nio", 0.1, 0.1, socket=19.8), 5, {"tried": tried(20), "users": 500}, None,
            ": with 500, no request would queue", id="where slots were tried",
        ),
    ],
)  # fmt: skip
def test_a_dependency_that_gives_way_is_named_beside_the_pool_that_waits_for_it(
    threads: WatchedPool, first_ms: float, changes: dict[str, Any], second: BottleneckName | None, told: str
) -> None:
    """500/s are offered to 20 threads, and 200/s served: each waits 100 ms for its database."""
    rates = {"offered_rate_per_s": 500.0, "goodput_per_s": 200.0}
    times: dict[str, Any] = {"rate_per_s": 200.0, "empty_ns": first_ms * MS, "loaded_ns": 900 * MS}
    seen = scene(threads, POLLER, metrics=rates, **{"users": None, "present": 500.0, **times, **changes})
    assert named(seen) == (B.POOL_TOO_SMALL, second)
    found = bottleneck_of(seen)
    assert found is not None
    if not threads.loops:
        assert found.advice == f"give `http-nio` more threads{told}"
    if found.second is not None:
        assert found.second.evidence == ("a request holds its thread for 99.0 ms; the first one took 5.00 ms in all",)


@pytest.mark.parametrize(
    ("held", "names"),
    [
        ({}, (B.EVENT_LOOP_BLOCKED, B.POOL_TOO_SMALL)),
        ({"server": 130}, (B.EVENT_LOOP_BLOCKED, None)),
        ({"server": 7}, (B.POOL_TOO_SMALL, None)),
    ],
)
def test_connections_tell_a_worker_from_a_loop_though_the_rates_of_the_look_do_not_suffice(
    held: Mapping[str, int], names: tuple[BottleneckName, BottleneckName | None]
) -> None:
    """PHP-FPM's processes take their connections from a socket of the file system, whose queue is not seen."""
    seen = scene(LOOP, pool("server (event loop)", 0.02, 0.02, sleep=3.6, poll=0.4), held=held)
    assert named(seen) == names
    found = bottleneck_of(seen)
    assert found is not None and ("waiting for events" in found.evidence[0]) == (names[0] is B.EVENT_LOOP_BLOCKED)


@pytest.mark.parametrize(("cpu", "second"), [(0.30, None), (0.70, None), (0.80, B.SUBJECT_CPU), (0.88, B.SUBJECT_CPU)])
def test_a_pool_that_is_too_small_beside_a_cpu_that_is_nearly_full(cpu: float, second: BottleneckName | None) -> None:
    full = pool("pool", cpu, 0.1, sleep=7.9 - cpu)
    seen = scene(full, POLLER, metrics={"subject_cpu_share": cpu})
    assert named(seen) == (B.POOL_TOO_SMALL, second)
    found = bottleneck_of(seen)
    if second is not None and found is not None and found.second is not None and cpu == 0.80:
        assert found.second.evidence == (
            "the server uses 80 % of its 1 CPU",
            "at 100 % it would serve at most 1.25 times as much",
        )


def test_a_full_cpu_has_no_second() -> None:
    assert named(scene(pool("pool", 0.97, 3.0), POLLER)) == (B.SUBJECT_CPU, None)


@pytest.mark.parametrize(("cpus", "second"), [(1.0, B.SUBJECT_CPU), (2.0, None)])
def test_one_thread_that_computes_under_a_lock_fills_one_cpu(cpus: float, second: BottleneckName | None) -> None:
    """Python's and Ruby's threads: where CPUs idle, more processes use them; one CPU that is full serves no more."""
    figures = {"subject_cpu_share": 0.97 / cpus}
    seen = scene(pool("python", 0.97, 0.05, lock=15), present=16, empty_ns=2 * MS, cpus=cpus, metrics=figures)
    assert named(seen) == (B.LOCK, second)
    found = bottleneck_of(seen)
    assert found is not None and ("start more processes" in found.advice) is (second is None)


def test_a_lock_whose_holder_waits_is_no_interpreters() -> None:
    found = bottleneck_of(scene(pool("pool", 0.03, lock=15, sleep=0.97), present=16, empty_ns=2 * MS, cpus=2.0))
    assert found is not None and found.name is B.LOCK and "Python" not in found.advice and found.second is None


@pytest.mark.parametrize(
    ("slots", "names"),
    [(8.0, (B.POOL_TOO_SMALL, None)), (8.6, (B.POOL_TOO_SMALL, None)), (20.0, (B.POOL_TOO_SMALL, B.HIDDEN_LIMIT))],
)
def test_as_many_at_once_as_threads_make_a_pool_certain(
    slots: float, names: tuple[BottleneckName, BottleneckName | None]
) -> None:
    assert named(scene(SLEEPERS, POLLER, tried=tried(slots))) == names


def test_fewer_at_once_than_busy_threads_are_not_for_want_of_threads() -> None:
    """16 threads call a server that answers four requests at once: a seventeenth thread would wait there too."""
    calling = pool("pool", 0.1, 0.1, socket=15.8)
    assert named(scene(calling, POLLER, tried=tried(4), outgoing=16)) == (B.DOWNSTREAM, None)
    assert named(scene(calling, POLLER, tried=tried(16), outgoing=16)) == (B.POOL_TOO_SMALL, None)


def test_threads_that_are_parked_with_a_connection_each_may_be_idle() -> None:
    parked = pool("http-nio", 0.1, 0.05, lock=7.85)
    threads = (parked, pool("http-nio (event loop)", 0.01, 0.01, poll=0.98), pool("VM Thread", lock=1.0))
    assert named(scene(*threads, tried=tried(8), outgoing=8)) == (B.POOL_TOO_SMALL, B.HIDDEN_LIMIT)
    assert named(scene(*threads, tried=tried(8), outgoing=0)) == (B.POOL_TOO_SMALL, None)


@pytest.mark.parametrize(
    ("slots", "outgoing", "second"),
    [
        pytest.param(8, 0, B.POOL_TOO_SMALL, id="one for each thread"),
        pytest.param(4, 0, None, id="one for every other thread"),
        pytest.param(8, 8, B.DOWNSTREAM, id="one for each connection"),
    ],
)
def test_threads_that_run_tasks_may_be_blocked_by_them(
    slots: float, outgoing: int, second: BottleneckName | None
) -> None:
    """Eight threads for eight CPUs: tasks sleep on them, or wait for one of eight permits without a thread."""
    carriers, collector = pool("ForkJoinPool", 0.15, 0.02, lock=7.8), pool("VM Thread", lock=1.0)
    figures = {"subject_cpu_share": 0.02}
    seen = scene(carriers, collector, POLLER, cpus=8.0, metrics=figures, tried=tried(slots), outgoing=outgoing)
    assert named(seen) == (B.HIDDEN_LIMIT, second)


@pytest.mark.parametrize(
    ("cpu", "looks", "reported", "second"),
    [
        pytest.param(0.97, None, {}, B.LOCK, id="about one CPU"),
        pytest.param(0.5, None, {}, None, id="less than one"),
        pytest.param(1.5, None, {}, None, id="more than one"),
        pytest.param(0.97, tried(8), {}, None, id="eight are served at once"),
        pytest.param(0.97, None, {"dotnet_lock_contentions_per_s": 0.0}, None, id="the runtime reports locks"),
    ],
)
def test_parked_threads_that_use_one_cpu_may_compute_one_at_a_time(
    cpu: float, looks: Any, reported: dict[str, float], second: BottleneckName | None
) -> None:
    """Eight threads, each with a request for 20 ms. The first answer took 20 ms, too."""
    parked = pool("http-nio", cpu, 0.02, lock=7.98 - cpu)
    figures = {"subject_cpu_share": cpu / 8, **reported}
    times: dict[str, Any] = {"rate_per_s": 400.0, "empty_ns": 20 * MS, "loaded_ns": 130 * MS}
    seen = scene(parked, POLLER, cpus=8.0, metrics=figures, tried=looks, **times)
    assert named(seen) == (B.POOL_TOO_SMALL, second)


@pytest.mark.parametrize(("collector", "second"), [(0.15, B.SUBJECT_CPU), (0.60, None)])
def test_a_collector_that_has_a_small_part_of_a_full_cpu(collector: float, second: BottleneckName | None) -> None:
    gc = pool("GC Thread#", collector, 0.1, lock=0.9 - collector)
    found = scene(pool("pool", 0.98 - collector, 5.0), gc, POLLER)
    assert named(found) == (B.GARBAGE_COLLECTION, second)


@pytest.mark.parametrize(("collector", "second"), [(0.15, B.SUBJECT_CPU), (0.30, None)])
def test_a_thread_that_stops_the_others_takes_their_time_too(collector: float, second: BottleneckName | None) -> None:
    """0.30 of two CPUs are 15 % of their time, but 30 % of the program's."""
    alone = pool("VM Thread", collector, lock=1.0 - collector)
    seen = scene(pool("pool", 1.65, 5.0), alone, POLLER, cpus=2.0, metrics={"subject_cpu_share": 0.92})
    assert named(seen) == (B.GARBAGE_COLLECTION, second)


def test_a_setting_whose_trials_are_divided_has_both() -> None:
    def trial(number: int, name: BottleneckName) -> TrialResult:
        found = Bottleneck(name, (f"trial {number}",), "advice")
        return TrialResult(number, 0, 1, Setting(()), "measured", (), {"goodput_per_s": 9.0}, bottleneck=found)

    def of(*names: BottleneckName) -> Candidate | None:
        found = commonest([trial(number, name) for number, name in enumerate(names, 1)])
        assert found is not None and found.name is B.LOCK
        return found.second

    assert of(B.LOCK, B.DISK) == Candidate(B.DISK, ("1 of 2 trials name it", "trial 2"), "advice")
    assert of(B.LOCK, B.DISK, B.LOCK, B.DISK, B.LOCK) == Candidate(
        B.DISK, ("2 of 5 trials name it", "trial 4"), "advice"
    )
    assert of(B.LOCK) is None
    assert of(B.LOCK, B.DISK, B.LOCK) is None
    assert of(B.LOCK, B.DISK, B.LOCK, B.DISK, B.LOCK, B.LOCK) is None
