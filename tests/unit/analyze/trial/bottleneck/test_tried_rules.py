"""Other numbers of users show whether the load itself, a hidden limit or one busy thread is the bottleneck."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fakes.scenes import MORE, MS, POLLER, SLEEPERS, pool, scene, tried
from powerband.analyze.trial.bottleneck.rules import bottleneck_of
from powerband.analyze.trial.bottleneck.scene import Scene
from powerband.model.bottlenecks import BottleneckName
from powerband.model.results import Bottleneck
from powerband.readings.pools import WatchedPool

B = BottleneckName


def test_the_load_is_named_only_where_more_was_tried() -> None:
    nothing_short = scene(pool("loop", 0.02, 0.02, poll=0.96), loaded_ns=10 * MS)
    assert bottleneck_of(nothing_short) is None
    found = bottleneck_of(replace(nothing_short, tried=MORE))
    assert found is not None
    assert found.evidence[-1] == "a short look with twice the users (128) served 2.00 times as much"


def test_threads_that_are_all_taken_are_the_limit_only_beyond_the_load() -> None:
    found = bottleneck_of(scene(pool("pool", 0.7, 0.1, sleep=63), POLLER, tried=tried(64)))
    assert found == Bottleneck(
        B.NONE,
        (
            "the server uses 72 % of its 1 CPU",
            "its 64 `pool` threads are just enough for 64 users: a short look with twice the users (128) served 1.00 "
            "times as much",
        ),
        "this setting is enough for 64 users. More users would only wait longer: if you expect more than 64, measure "
        "again with that many (load.users) and with larger settings",
    )


@pytest.mark.parametrize(("slots", "names"), [(48.0, None), (64.0, B.NONE)])
def test_a_pool_of_connections_that_varying_times_hide_is_not_called_enough(
    slots: float, names: BottleneckName | None
) -> None:
    """48 connections to a database for 64 threads of Tomcat. The times of one user vary so much that its 40 answers
    allow 35 to 65 slots."""
    looks = tried(slots)
    unsure = replace(looks, slots=replace(looks.slots, low=slots / 1.36, high=slots * 1.36))
    threads = pool("http-nio", 0.2, 0.1, lock=15.9, socket=47.8)
    found = bottleneck_of(scene(threads, tried=unsure, outgoing=48))
    assert (found and found.name) is names
    assert found is None or "just enough for 64 users" in found.evidence[1]


def test_a_limit_that_was_tried_says_how_many_it_serves() -> None:
    found = bottleneck_of(scene(SLEEPERS, POLLER, tried=tried(8)))
    assert found is not None
    assert found.evidence[-1] == "the server serves 400/s, and a request alone takes 20.0 ms: about 8 at once"


def test_one_at_a_time_without_threads_that_wait() -> None:
    found = bottleneck_of(scene(pool("loop", 0.02, 0.02, poll=0.96), tried=tried(1.1)))
    assert found is not None and found.name is B.HIDDEN_LIMIT and "a lock in the code" in found.advice


@pytest.mark.parametrize("beside", [(), (replace(pool("sudo", poll=1.0), switches_per_s=0.0),)])
def test_no_limit_is_hidden_where_the_kernel_does_not_show_what_threads_wait_for(
    beside: tuple[WatchedPool, ...],
) -> None:
    """A container of another user, whose pool of 8 threads may be too small; or such a server below one of our own."""
    seen = scene(SLEEPERS, *beside, tried=tried(8))
    unseen = replace(SLEEPERS, use=replace(SLEEPERS.use, blocked_on={}))
    assert bottleneck_of(replace(seen, pools=(unseen, *beside), outgoing=None)) is None
    assert (found := bottleneck_of(seen)) is not None and found.name is B.POOL_TOO_SMALL


def test_threads_that_want_the_cpus_of_the_load_engine_are_not_all_well() -> None:
    """Threads hand work to each other on two CPUs, which the load generator shares. They use or wait for three quarters
    of the CPUs."""
    wanted = pool("worker", 0.55, 0.30, lock=63)
    alone, shared = (scene(wanted, POLLER, tried=MORE, shares_cpus=shares) for shares in (False, True))
    assert (found := bottleneck_of(alone)) is not None and found.name is B.NONE
    assert bottleneck_of(shared) is None


def go(*, on_cpu: float, busiest: float, **changes: Any) -> Scene:
    """A Go program on 16 CPUs, which calls nobody: one of its threads waits for events, others are parked."""
    threads = pool("server", on_cpu, 0.2, lock=6.0, poll=0.9, sleep=0.9, busiest=busiest)
    figures = {"subject_cpu_share": on_cpu / 16}
    return scene(threads, cpus=16.0, metrics=figures, **{"go_runs": 16, "tried": tried(8), **changes})


def test_threads_that_stand_in_for_each_other_are_no_limit_because_one_always_runs() -> None:
    """Eight goroutines are let in at once, and compute. Their eight threads never stop, and eight more could run."""
    found = bottleneck_of(go(on_cpu=8.1, busiest=0.97))
    assert found is not None and found.name is B.HIDDEN_LIMIT
    tokio = pool("tokio-runtime-w", 8.1, 0.2, lock=6.8, poll=0.9, busiest=0.97)
    found = bottleneck_of(scene(tokio, cpus=16.0, metrics={"subject_cpu_share": 0.51}, tried=tried(8)))
    assert found is not None and found.name is B.HIDDEN_LIMIT
    paused = bottleneck_of(go(on_cpu=8.1, busiest=0.97, tried=None, outgoing=0))
    assert paused is None, "nor where no other number of users was tried"
    alone = bottleneck_of(go(on_cpu=3.2, busiest=0.96, tried=tried(1), go_collecting_cores=2.1))
    assert alone is not None and "thread is on a CPU 96 %" in alone.evidence[0], "one goroutine, and the collector"
    loops = replace(pool("nginx (event loop)", 3.1, poll=4.9, busiest=0.97), polled=1.0)
    found = bottleneck_of(scene(loops, cpus=16.0, metrics={"subject_cpu_share": 0.19}, tried=tried(8)))
    assert found is not None and found.name is B.EVENT_LOOP_BLOCKED, "each loop has connections of its own"


def test_one_full_loop_is_seen_beside_threads_that_stand_in_for_each_other() -> None:
    parked = pool("proxy", 3.0, lock=5.0, poll=0.9, busiest=0.98)
    single = pool("writer", 0.95, lock=0.05, busiest=0.95)
    found = bottleneck_of(scene(parked, single, cpus=16.0, metrics={"subject_cpu_share": 0.25}, tried=tried(8)))
    assert found is not None and found.name is B.ONE_THREAD and "`writer`" in found.evidence[0]


@pytest.mark.parametrize(("slots", "name"), [(1.1, B.ONE_THREAD), (4, B.HIDDEN_LIMIT)])
def test_no_single_thread_is_the_limit_where_others_of_its_pool_run_and_several_requests_are_served(
    slots: float, name: BottleneckName
) -> None:
    """Four threads of Node compute. Their name is that of others, which take turns, so that they were not told
    apart."""
    threads = pool("node", 3.9, lock=3.5, busiest=0.97), pool("node (event loop)", 0.1, poll=0.9)
    found = bottleneck_of(scene(*threads, cpus=8.0, metrics={"subject_cpu_share": 0.5}, tried=tried(slots)))
    assert found is not None and found.name is name


@pytest.mark.parametrize(("gain", "only_wait"), [(1.0, True), (1.3, False), (2.0, False)])
def test_more_users_only_wait_if_they_got_no_more(gain: float, only_wait: bool) -> None:
    found = bottleneck_of(scene(pool("pool", 0.1, 0.1, sleep=63.8), POLLER, tried=tried(64, gain)))
    assert found is not None and found.name is B.NONE
    assert ("More users would only wait" in found.advice) is only_wait


CLOCK = pool("quanta-upkeep", 0.005, sleep=0.995)


def test_a_thread_that_keeps_time_is_no_pool_of_requests() -> None:
    """It sleeps a millisecond at a time, and wakes more often than requests come."""
    loops = pool("server (event loop)", 0.3, 0.1, poll=1.6)
    served = bottleneck_of(scene(loops, CLOCK, tried=MORE))
    assert served is not None and served.name is B.NONE
    assert not any("quanta-upkeep" in clause for clause in served.evidence)
    limited = bottleneck_of(scene(loops, CLOCK, tried=tried(20)))
    assert limited is not None and limited.name is B.HIDDEN_LIMIT


@pytest.mark.parametrize(
    ("threads", "bits_per_s", "name"),
    [
        pytest.param(32, None, B.LOCK, id="a load of the same node"),
        pytest.param(32, 941e6, B.HIDDEN_LIMIT, id="a full link"),
        pytest.param(200, 941e6, B.HIDDEN_LIMIT, id="a full link, and many threads"),
        pytest.param(32, 1e6, B.HIDDEN_LIMIT, id="an idle link"),
    ],
)
def test_idle_threads_behind_a_full_link_wait_for_no_lock(
    threads: int, bits_per_s: float | None, name: BottleneckName
) -> None:
    idle = pool("pool", 0.05, 0.02, lock=threads - 0.1)
    users: dict[str, Any] = {"present": 256.0, "users": 256, "tried": tried(1, users=256)}
    found = bottleneck_of(scene(idle, POLLER, far_bits_per_s=bits_per_s, **users))
    assert found is not None and found.name is name
    told = "the network carries 941 Mbit/s of responses" in found.evidence
    assert told is (bits_per_s == 941e6)
    assert found.advice.endswith("; if the link between the nodes carries no more, it is the limit") is told
