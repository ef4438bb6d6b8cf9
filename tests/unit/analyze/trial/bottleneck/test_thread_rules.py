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


def test_a_pool_that_computes_is_not_said_to_sleep_and_is_given_no_more_threads_than_cpus() -> None:
    computes = pool("http-nio", 7.6, 0.1, lock=0.3)
    found = bottleneck_of(scene(computes, POLLER, cpus=16.0, metrics={"subject_cpu_share": 0.48}, tried=tried(8)))
    assert found is not None and found.name is B.POOL_TOO_SMALL
    assert found.evidence[0] == "on average 7.7 of the 8 `http-nio` threads are holding a request, 7.6 of them on a CPU"
    assert found.advice.endswith("with 64, no request would queue; from about 17 on, CPU is the limit")


def test_a_thread_that_writes_beside_requests_is_not_what_users_with_a_slot_each_wait_for() -> None:
    """It syncs a log for most of the time, and twice the users are served twice as much."""
    loops, log = pool("server (event loop)", 0.2, 0.05, poll=1.75), pool("audit-log", 0.05, 0.05, disk=0.7, lock=0.2)
    beside, held_up = (bottleneck_of(scene(loops, log, tried=each)) for each in (MORE, tried(1)))
    assert beside is not None and beside.name is B.NONE
    assert held_up is not None and held_up.name is B.DISK


@pytest.mark.parametrize(("runtimes", "name"), [(("Python",), B.LOCK), (("Python", "JVM"), B.DOWNSTREAM)])
def test_threads_of_python_are_known_whatever_they_are_called(runtimes: tuple[str, ...], name: BottleneckName) -> None:
    """From Python 3.14 on threads have names of their own: `Thread-7 (process_request_thread)`."""
    seen = {"processes": 1, "call": "", "cpus": 2, "source": "", "usable": 2.0}
    views = tuple({"runtime": each, **seen} for each in runtimes)
    record = replace(record_of(spec(), Figures(users=64)), runtimes=views)
    fleet = merge_fleet([summary(Figures(users=64))])
    assert fleet is not None
    only = scene_of(Evidence.read(record, experiment(), fleet, (), None), {}, ()).only_python
    found = bottleneck_of(interpreted(pool("Thread", 1.05, 0.1, lock=13, socket=1.75), only_python=only))
    assert found is not None and found.name is name


def test_the_threads_of_a_jmeter_plan_are_users_and_no_open_load() -> None:
    plan, record = experiment(load=Load(jmeter="plan.jmx")), record_of(spec(), Figures(users=64))
    fleet = merge_fleet(record.engines)
    assert fleet is not None
    users = scene_of(Evidence.read(record, plan, fleet, (), None), {}, ()).users
    found = bottleneck_of(scene(SLEEPERS, POLLER, users=users, metrics={"offered_rate_per_s": 800.0}))
    assert found is not None and found.advice == "give `pool` more threads: with 64, no request would queue"


def test_little_use_does_not_tell_how_many_threads_fill_the_cpu() -> None:
    """One process of gunicorn sleeps 49 ms a request; its parent and the accepting of connections use CPU as well."""
    found = bottleneck_of(scene(pool("gunicorn", 0.02, 0.01, sleep=0.97), POLLER, metrics={"subject_cpu_share": 0.023}))
    assert found is not None and found.advice == "give `gunicorn` more threads: with 64, no request would queue"
