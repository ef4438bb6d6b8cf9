"""Locks, pools and downstreams: what is said of them, and what only looks like them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fakes.scenes import MORE, MS, POLLER, SLEEPERS, pool, scene, tried
from fakes.trials import Figures, experiment, record_of, spec, summary
from powerband.analyze.trial.bottleneck.rules import bottleneck_of
from powerband.analyze.trial.bottleneck.scene import Scene, scene_of
from powerband.model.bottlenecks import BottleneckName
from powerband.model.load import Load
from powerband.model.results import Bottleneck
from powerband.readings.evidence import Evidence
from powerband.readings.fleet import merge_fleet
from powerband.readings.pools import WatchedPool

B = BottleneckName


def interpreted(*pools: WatchedPool, used: tuple[float, ...] = (1.05, 0.0), **changes: Any) -> Scene:
    """Processes that use so many CPUs each, of twice as many."""
    figures = {"subject_cpu_share": 0.5, "subject_cpu_cores": sum(used), "run_wait_cores": 0.7}
    fields: dict[str, Any] = {"present": 32.0, "outgoing": 32, **changes}
    return scene(*pools, metrics=figures, cpus=2 * sum(used), process_cores=used, **fields)


COMPUTES_AND_CALLS = pool("python", 1.05, 0.1, lock=13, socket=1.75)
BESIDE_A_LOOP = replace(pool("uvicorn", 1.05, 0.1, lock=20, socket=1.9, poll=0.4), polled=0.5)


@pytest.mark.parametrize(
    ("seen", "name"),
    [
        pytest.param(interpreted(COMPUTES_AND_CALLS), B.LOCK, id="threads compute and call a database"),
        pytest.param(interpreted(BESIDE_A_LOOP, tried=tried(2)), B.LOCK, id="behind an event loop"),
        pytest.param(
            interpreted(pool("puma srv tp", 2.0, 0.1, lock=11, socket=3.5), used=(1.0, 1.0, 0.0)),
            B.LOCK,
            id="in two processes",
        ),
        pytest.param(
            interpreted(pool("http-nio", 1.05, 0.1, lock=13, socket=1.75)), B.DOWNSTREAM, id="no interpreter's name"
        ),
        pytest.param(
            interpreted(pool("puma srv tp", 1.05, 0.1, lock=13, socket=1.75), pool("VM Thread", lock=1.0)),
            B.DOWNSTREAM,
            id="Ruby in a JVM",
        ),
        pytest.param(
            interpreted(pool("python", 1.05, 0.1, lock=13, socket=1.75), used=(0.55, 0.5)),
            B.DOWNSTREAM,
            id="no process is full",
        ),
        pytest.param(
            interpreted(replace(pool("python", 1.0, 0.02, lock=16, poll=0.01, busiest=0.97), polled=1.0), used=(1.0,)),
            B.EVENT_LOOP_BLOCKED,
            id="a loop computes by itself, beside idle threads",
        ),
    ],
)
def test_threads_that_compute_one_at_a_time_are_not_held_by_whom_they_call(seen: Scene, name: BottleneckName) -> None:
    found = bottleneck_of(seen)
    assert found is not None and found.name is name
    assert found.advice.startswith("start more processes") is (name is B.LOCK)


def test_an_interpreters_lock_is_told_by_the_cpu_that_its_threads_share() -> None:
    one, two = (bottleneck_of(interpreted(COMPUTES_AND_CALLS, used=used)) for used in ((1.05, 0.0), (1.0, 1.0)))
    assert one is not None and one.evidence[0] == "its threads use 1.05 of 2.1 CPUs together, one at a time"
    assert two is not None and two.evidence[0].endswith(
        "use 2.00 of 4 CPUs together, one at a time in each of 2 processes"
    )


CLUSTER = pool("puma srv tp", 1.0, 3.0, lock=16)
STOPPED = {"cpu_throttled_share": 0.9, "cpu_quota_cores": 1.0}


@pytest.mark.parametrize(
    ("threads", "cores", "cpus", "figures", "name"),
    [
        pytest.param(CLUSTER, (0.25,) * 4, 1.0, {}, B.SUBJECT_CPU, id="each process has a lock of its own"),
        pytest.param(CLUSTER, (0.0, *(0.25,) * 4), 1.0, STOPPED, B.CPU_QUOTA, id="under a quota"),
        pytest.param(CLUSTER, (0.0, 1.0), 1.0, {}, B.LOCK, id="one process has one lock"),
        pytest.param(CLUSTER, (0.25,) * 4, 2.0, {}, B.LOCK, id="the CPU is not full"),
        pytest.param(
            pool("worker", 1.0, 0.1, lock=18.9), (0.25,) * 4, 1.0, {}, B.LOCK, id="one lock for all processes"
        ),
        pytest.param(pool("python", 0.7, 0.3, lock=15), (0.7,), 0.7, STOPPED, B.CPU_QUOTA, id="one that a quota stops"),
        pytest.param(
            pool("python", 1.0, 0.1, lock=15), (1.0,), 1.0, STOPPED, B.LOCK, id="a quota of all that one can use"
        ),
    ],
)
def test_a_full_cpu_lets_the_holders_of_several_locks_wait(
    threads: WatchedPool, cores: tuple[float, ...], cpus: float, figures: dict[str, float], name: BottleneckName
) -> None:
    full = {"subject_cpu_share": threads.use.on_cpu / cpus, **figures}
    found = bottleneck_of(scene(threads, cpus=cpus, metrics=full, process_cores=cores))
    assert found is not None and found.name is name


def test_threads_that_sleep_are_in_no_call_to_a_dependency() -> None:
    found = bottleneck_of(scene(pool("pool", 0.05, 0.03, lock=12, sleep=3.9), POLLER, present=32, empty_ns=6 * MS))
    assert found is not None and found.evidence[0] == "only 4 `pool` threads are let in at once, sleeping"


def test_the_limit_of_a_connection_pool_is_not_the_databases() -> None:
    found = bottleneck_of(scene(pool("pool", 0.1, 0.03, lock=56, socket=7.9), tried=tried(8.2), outgoing=8))
    assert found is not None and found.advice.startswith("give the connection pool more connections")
    assert found.evidence[:2] == (
        "only 8 `pool` threads have a connection at once, of the 8 that the server has open",
        "56 others wait for their turn",
    )


def test_the_evidence_is_in_figures() -> None:
    found = bottleneck_of(scene(SLEEPERS, POLLER))
    assert found == Bottleneck(
        B.POOL_TOO_SMALL,
        (
            "all 8 `pool` threads are holding a request, 7.8 of them sleeping",
            "56 requests queue",
            "the server uses 4 % of its 1 CPU",
        ),
        "give `pool` more threads: with 64, no request would queue",
    )


def test_a_pool_without_a_queue_turns_away_what_finds_it_full() -> None:
    """2,000/s of 20 ms each need 40 threads (by Erlang's loss formula 16 threads turn 61 % away)."""
    full = pool("pool", 0.1, 0.1, sleep=15.2)
    given = {"offered_rate_per_s": 2000.0, "goodput_per_s": 770.0, "error_rate": 0.615}
    seen = scene(
        full, POLLER, metrics=given, users=None, present=15.4, rate_per_s=2000.0, loaded_ns=10 * MS,
        turned_away_share=0.615,
    )  # fmt: skip
    assert bottleneck_of(seen) == Bottleneck(
        B.POOL_TOO_SMALL,
        (
            "all 15 `pool` threads are holding a request, all of them sleeping",
            "62 % of requests are turned away (status 429 or 503)",
            "the server uses 12 % of its 1 CPU",
        ),
        "give `pool` more threads: the offered rate needs at least 40",
    )
    users = bottleneck_of(replace(seen, users=48, present=48.0))
    assert users is not None and users.name is B.POOL_TOO_SMALL
    assert users.evidence[1] == "33 requests queue and 62 % of requests are turned away (status 429 or 503)"
    assert users.advice == "give `pool` more threads: with 48, no request would be turned away"
    idle = replace(seen, pools=(pool("pool", 0.1, 0.1, lock=15.2), POLLER))
    assert bottleneck_of(idle) is None, "who turns requests away is short of something, whatever it is"


@pytest.mark.parametrize(
    ("waits", "present", "name"),
    [
        pytest.param({"socket": 9.85}, 1.5, None, id="threads that wait for the next request of their connection"),
        pytest.param({"socket": 9.85}, 9.5, B.POOL_TOO_SMALL, id="threads that call somebody"),
        pytest.param({"sleep": 9.85}, 1.5, B.POOL_TOO_SMALL, id="threads that sleep"),
        pytest.param({"socket": 7.9, "lock": 1.95}, 8.0, B.POOL_TOO_SMALL, id="two idle on a condition"),
    ],
)
def test_idle_threads_of_open_connections_hold_no_request_while_others_are_turned_away(
    waits: dict[str, float], present: float, name: BottleneckName | None
) -> None:
    """A server with a thread for each of 10 connections, and a limiter of its own, which turns 40 % away."""
    given = {"offered_rate_per_s": 200.0, "goodput_per_s": 120.0}
    away: dict[str, Any] = {"users": None, "rate_per_s": 200.0, "turned_away_share": 0.4, "loaded_ns": 10 * MS}
    found = bottleneck_of(scene(pool("python", 0.1, 0.05, **waits), metrics=given, present=present, **away))
    assert (found and found.name) is name


def test_a_pool_that_computes_is_not_said_to_sleep_and_is_given_no_more_threads_than_cpus() -> None:
    computes = pool("http-nio", 7.6, 0.1, lock=0.3)
    found = bottleneck_of(scene(computes, POLLER, cpus=16.0, metrics={"subject_cpu_share": 0.48}, tried=tried(8)))
    assert found is not None and found.name is B.POOL_TOO_SMALL
    assert found.evidence[0] == "on average 7.7 of the 8 `http-nio` threads are holding a request, 7.6 of them on a CPU"
    assert found.advice.endswith("with 64, no request would queue; from about 17 on, CPU is the limit")


COMPUTING = pool("libuv-worker", 3.96, 0.02, busiest=0.99)


@pytest.mark.parametrize(
    ("seen", "name"),
    [
        pytest.param(scene(COMPUTING, POLLER, cpus=8.0, tried=tried(4)), B.POOL_TOO_SMALL, id="four of eight CPUs"),
        pytest.param(scene(COMPUTING, POLLER, cpus=8.0), B.POOL_TOO_SMALL, id="where no slots were tried"),
        pytest.param(scene(COMPUTING, POLLER, cpus=4.0, tried=tried(4)), B.SUBJECT_CPU, id="all CPUs"),
        pytest.param(
            scene(pool("writer", 0.97, 0.02, busiest=0.97), POLLER, cpus=8.0, tried=tried(1.1)),
            B.ONE_THREAD,
            id="a single one",
        ),
        pytest.param(
            scene(
                pool("spinner", 3.96, 0.02, busiest=0.99),
                POLLER,
                cpus=8.0,
                users=6,
                present=6.0,
                tried=tried(6, 2.0, users=6),
            ),
            B.NONE,
            id="threads that spin while nobody waits",
        ),
        pytest.param(
            scene(
                pool("ForkJoinPool (at work)", 3.92, 0.02, busiest=0.98, lock=0.05),
                pool("ForkJoinPool", 0.05, lock=3.9),
                pool("VM Thread", lock=1.0),
                POLLER,
                cpus=8.0,
                tried=tried(4),
            ),
            B.HIDDEN_LIMIT,
            id="idle threads could run what computes in virtual threads",
        ),
        pytest.param(
            scene(
                pool("server (at work)", 8.0, 0.1, busiest=0.97, sleep=0.95),
                pool("server", 0.05, lock=2.9),
                pool("server (event loop)", 0.05, poll=0.95),
                cpus=16.0,
                go_runs=16,
                tried=tried(8),
            ),
            B.HIDDEN_LIMIT,
            id="so could Go's",
        ),
    ],
)
def test_threads_that_compute_and_never_wait_are_a_pool_like_others(seen: Scene, name: BottleneckName) -> None:
    """A few of libuv's threads hash passwords, and more CPUs idle."""
    used = seen.value("subject_cpu_cores") / (seen.cpus or 1.0)
    found = bottleneck_of(replace(seen, metrics={**seen.metrics, "subject_cpu_share": used}))
    assert found is not None and found.name is name
    if name is B.POOL_TOO_SMALL:
        assert found.evidence[0] == "all 4 `libuv-worker` threads are holding a request, all of them on a CPU"
        assert found.advice.endswith("with 64, no request would queue; from about 8 on, CPU is the limit")


def test_threads_that_compute_may_be_loops_where_the_kernel_does_not_show_what_threads_wait_for() -> None:
    """A container of another user."""
    unseen = replace(POLLER, polled=0.0, use=replace(POLLER.use, blocked_on={}))
    figures = {"subject_cpu_share": 0.5}
    assert bottleneck_of(scene(COMPUTING, unseen, cpus=8.0, metrics=figures, tried=tried(4))) is None


TO_MORE_PROCESSES = "in more processes, since the interpreter's lock lets one thread of each compute at a time"
UP_TO_SIX = f"up to about 6 in each process, and then {TO_MORE_PROCESSES}"
ALL_OF_THEM = "with 64, no request would queue"


@pytest.mark.parametrize(
    ("threads", "cores", "cpus", "advised"),
    [
        pytest.param(pool("puma srv tp", 0.67, 0.03, socket=3.3), (0.67, 0.0), 4.0, UP_TO_SIX, id="one process"),
        pytest.param(pool("puma srv tp", 1.34, 0.06, socket=6.6), (0.67, 0.67), 4.0, UP_TO_SIX, id="two processes"),
        pytest.param(pool("python", 0.95, 0.05, socket=3.0), (0.95,), 4.0, TO_MORE_PROCESSES, id="its lock is full"),
        pytest.param(
            pool("puma srv tp", 1.34, 0.06, socket=6.6),
            (0.67, 0.67),
            2.0,
            f"{ALL_OF_THEM}; from about 12 on, CPU is the limit",
            id="no CPU for a third process",
        ),
        pytest.param(pool("puma srv tp", 0.1, 0.03, socket=3.87), (0.1,), 4.0, ALL_OF_THEM, id="little use"),
        pytest.param(pool("gunicorn", 1.34, 0.06, socket=2.6), (0.33,) * 4, 16.0, ALL_OF_THEM, id="a thread each"),
        pytest.param(pool("http-nio", 0.67, 0.03, socket=3.3), (0.67,), 4.0, ALL_OF_THEM, id="no interpreter"),
        pytest.param(pool("puma srv tp", 0.67, 0.03, socket=3.3), (), 4.0, ALL_OF_THEM, id="no process was seen"),
    ],
)
def test_an_interpreters_lock_ends_what_more_threads_gain(
    threads: WatchedPool, cores: tuple[float, ...], cpus: float, advised: str
) -> None:
    figures = {"subject_cpu_share": threads.use.on_cpu / cpus}
    seen = scene(threads, POLLER, cpus=cpus, metrics=figures, process_cores=cores)
    found, in_jvm = bottleneck_of(seen), bottleneck_of(replace(seen, pools=(*seen.pools, pool("VM Thread", lock=1.0))))
    assert found is not None and found.name is B.POOL_TOO_SMALL
    assert found.advice == f"give `{threads.name}` more threads: {advised}"
    assert in_jvm is not None and ALL_OF_THEM in in_jvm.advice


def test_a_thread_that_writes_beside_requests_is_not_what_users_with_a_slot_each_wait_for() -> None:
    """It syncs a log for most of the time, and twice the users are served twice as much."""
    loops, log = pool("server (event loop)", 0.2, 0.05, poll=1.75), pool("audit-log", 0.05, 0.05, disk=0.7, lock=0.2)
    beside, held_up = (bottleneck_of(scene(loops, log, tried=each)) for each in (MORE, tried(1)))
    assert beside is not None and beside.name is B.NONE
    assert held_up is not None and held_up.name is B.DISK


def of_runtimes(*runtimes: str) -> Scene:
    """The scene of a trial whose server has a process of each runtime, empty for one that is not known."""
    seen = {"processes": 1, "call": "", "cpus": 2, "source": "", "usable": 2.0}
    views = tuple({"runtime": each, **seen} for each in runtimes)
    record = replace(record_of(spec(), Figures(users=64)), runtimes=views)
    fleet = merge_fleet([summary(Figures(users=64))])
    assert fleet is not None
    return scene_of(Evidence.read(record, experiment(), fleet, (), None), {}, ())


@pytest.mark.parametrize(
    ("runtimes", "name"), [(("Python",), B.LOCK), (("Python", "JVM"), B.DOWNSTREAM), (("Python", ""), B.DOWNSTREAM)]
)
def test_threads_of_python_are_known_whatever_they_are_called(runtimes: tuple[str, ...], name: BottleneckName) -> None:
    """From Python 3.14 on threads have names of their own: `Thread-7 (process_request_thread)`."""
    only = of_runtimes(*runtimes).only_python
    found = bottleneck_of(interpreted(pool("Thread", 1.05, 0.1, lock=13, socket=1.75), only_python=only))
    assert found is not None and found.name is name


@pytest.mark.parametrize(("runtimes", "runs"), [(("Go",), 2), (("Go", ""), None), (("Go", "Python"), None)])
def test_a_launcher_in_go_makes_no_go_program_of_what_it_starts(runtimes: tuple[str, ...], runs: int | None) -> None:
    assert of_runtimes(*runtimes).go_runs == runs


def test_the_threads_of_a_jmeter_plan_are_users_and_no_open_load() -> None:
    plan, record = experiment(load=Load(jmeter="plan.jmx")), record_of(spec(), Figures(users=64))
    fleet = merge_fleet(record.engines)
    assert fleet is not None
    users = scene_of(Evidence.read(record, plan, fleet, (), None), {}, ()).users
    found = bottleneck_of(scene(SLEEPERS, POLLER, users=users, metrics={"offered_rate_per_s": 800.0}))
    assert found is not None and found.advice == "give `pool` more threads: with 64, no request would queue"


@pytest.mark.parametrize(
    ("outgoing", "bits_per_s", "name"), [(0, 1e6, B.HIDDEN_LIMIT), (64, 1e6, B.DOWNSTREAM), (0, None, B.DOWNSTREAM)]
)
def test_a_server_that_calls_nobody_may_wait_for_its_callers_on_another_node(
    outgoing: int, bits_per_s: float | None, name: BottleneckName
) -> None:
    """Each request has its thread, which waits on a socket: that of its caller, or of a database without TCP."""
    threads = pool("pool", 0.05, 0.05, socket=63.9)
    found = bottleneck_of(scene(threads, POLLER, tried=tried(1), outgoing=outgoing, far_bits_per_s=bits_per_s))
    assert found is not None and found.name is name


@pytest.mark.parametrize(("nodes", "bits_per_s"), [(0, None), (1, 800_000)])
def test_the_traffic_between_nodes_is_what_all_engines_received(nodes: int, bits_per_s: float | None) -> None:
    clock = {"offset_ns": 0, "uncertainty_ns": 1, "after_offset_ns": 0, "after_uncertainty_ns": 1}
    far: dict[str, Any] = {"node": "b", "engines": [0, 1], **clock}
    record = replace(record_of(spec(), Figures(engines=2)), generators=(far,) * nodes)
    fleet = merge_fleet(record.engines)
    assert fleet is not None
    found = scene_of(Evidence.read(record, experiment(), fleet, (), None), {}, ())
    assert found.far_bits_per_s == pytest.approx(bits_per_s) and found.is_far is bool(nodes)


def test_little_use_does_not_tell_how_many_threads_fill_the_cpu() -> None:
    """One process of gunicorn sleeps 49 ms a request; its parent and the accepting of connections use CPU as well."""
    found = bottleneck_of(scene(pool("gunicorn", 0.02, 0.01, sleep=0.97), POLLER, metrics={"subject_cpu_share": 0.023}))
    assert found is not None and found.advice == "give `gunicorn` more threads: with 64, no request would queue"


@pytest.mark.parametrize(("first_ms", "name"), [(3, B.LOCK), (20, B.POOL_TOO_SMALL), (50, B.POOL_TOO_SMALL)])
def test_who_holds_a_thread_no_longer_than_the_first_requests_waits_for_no_lock(
    first_ms: int, name: BottleneckName
) -> None:
    """Eight threads of Tomcat: a request computes 2 ms and is parked 18 ms for a result. No slots were tried."""
    parked = pool("http-nio", 0.8, 0.02, lock=7.18)
    times: dict[str, Any] = {"rate_per_s": 400.0, "empty_ns": first_ms * MS, "loaded_ns": 130 * MS}
    found = bottleneck_of(scene(parked, POLLER, cpus=8.0, metrics={"subject_cpu_share": 0.1}, **times))
    assert found is not None and found.name is name


@pytest.mark.parametrize(("outside_ms", "threads"), [(0, 2), (0, 8), (3, 5)])
def test_a_lock_for_which_half_of_the_threads_wait_makes_requests_hold_them_longer(
    outside_ms: int, threads: int
) -> None:
    """One at a time computes 2 ms under the lock, and each waits outside of it as well. The first answer took as long
    as both, and 64 users queue for the threads."""
    outside = outside_ms / 2
    held = pool("pool", 0.98, lock=threads - 1.0 - outside, sleep=outside)
    times: dict[str, Any] = {"rate_per_s": 500.0, "empty_ns": (2 + outside_ms) * MS, "loaded_ns": 100 * MS}
    found = bottleneck_of(scene(held, POLLER, cpus=8.0, metrics={"subject_cpu_share": 0.12}, **times))
    assert found is not None and found.name is B.LOCK


VM = pool("VM Thread", lock=1.0)
CARRIERS = pool("ForkJoinPool", 0.15, 0.02, lock=7.8)


@pytest.mark.parametrize(
    ("threads", "slots", "name"),
    [
        pytest.param((CARRIERS, VM), 1, B.HIDDEN_LIMIT, id="a lock of virtual threads"),
        pytest.param((pool("ForkJo..r", 0.15, 0.02, lock=7.8), VM), 1, B.HIDDEN_LIMIT, id="by a name that is cut"),
        pytest.param((pool("DefaultDispatch", 0.5, 0.02, lock=7.5), VM), 1, B.HIDDEN_LIMIT, id="coroutines, busier"),
        pytest.param((CARRIERS,), 1, B.LOCK, id="no JVM"),
        pytest.param((pool("http-nio", 0.15, 0.02, lock=7.8), VM), 1, B.LOCK, id="other threads of a JVM"),
        pytest.param((pool("ForkJoinPool", 0.95, 0.02, lock=7.0), VM), 1, B.LOCK, id="one computes under it"),
        pytest.param((CARRIERS, VM), 8, B.HIDDEN_LIMIT, id="a semaphore of as many as there are CPUs"),
        pytest.param((pool("ForkJoinPool", 0.15, 0.02, lock=31.8), VM), 32, B.POOL_TOO_SMALL, id="far more threads"),
    ],
)
def test_threads_that_run_virtual_threads_idle_whatever_these_wait_for(
    threads: tuple[WatchedPool, ...], slots: float, name: BottleneckName
) -> None:
    """As many as the eight CPUs."""
    seen = scene(*threads, POLLER, cpus=8.0, metrics={"subject_cpu_share": 0.02}, tried=tried(slots))
    found = bottleneck_of(seen)
    assert found is not None and found.name is name
    unseen = bottleneck_of(replace(seen, tried=None))
    assert name is not B.HIDDEN_LIMIT or unseen is None, "nor where no slots were tried"


NETWORK_NS = 50e6 / 3  # of the 20 ms of a request alone


def test_requests_on_the_network_neither_queue_nor_hide_a_pool_that_is_too_small() -> None:
    """40 of the 64 requests are on the network between two nodes, and 8 of the others are served at once."""
    far = tried(48, network_ns=NETWORK_NS)
    found = bottleneck_of(scene(SLEEPERS, POLLER, rate_per_s=2400.0, tried=far))
    assert found is not None and found.name is B.POOL_TOO_SMALL
    assert found.evidence[1] == "16 requests queue" and found.advice.endswith("with 24, no request would queue")
    assert found.evidence[-1] == (
        "the server serves 2,400/s, and a request alone takes 20.0 ms (16.7 ms of it on the network): about 8 at once"
    )


def test_the_network_does_not_hide_a_lock() -> None:
    waiting = pool("pool", 0.05, 0.05, lock=30.9, sleep=0.95)
    found = bottleneck_of(scene(waiting, POLLER, rate_per_s=300.0, tried=tried(6, network_ns=NETWORK_NS)))
    assert found is not None and found.name is B.LOCK
