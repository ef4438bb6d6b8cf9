"""CPU and its quota, collectors, descriptors and connections: what is said of them, and what only looks like them."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fakes.scenes import IDLE, MS, POLLER, SLEEPERS, pool, scene, tried
from fakes.trials import Figures, experiment, probe_lines, record_of, spec, summary
from powerband.analyze.trial.bottleneck.rules import bottleneck_of
from powerband.analyze.trial.bottleneck.scene import _served, scene_of
from powerband.model.bottlenecks import BottleneckName
from powerband.model.load import Load
from powerband.readings.evidence import Evidence
from powerband.readings.fleet import MergedFleet, merge_fleet
from powerband.readings.pools import WatchedPool
from powerband.readings.probe_samples import read_probe

B = BottleneckName


def test_a_thread_that_stops_all_others_is_told_by_its_time() -> None:
    threads = (pool("VM Thread", 0.6, lock=0.4), pool("pool", 6.4, sleep=8))
    found = bottleneck_of(scene(*threads, cpus=16.0, metrics={"subject_cpu_share": 0.44}))
    assert found is not None
    assert found.evidence[0] == "collections stop all other threads 60 % of the time"


DIRTY = replace(pool("dirty_cpu_sch", lock=4.0), switches_per_s=0.0)
NEWER = replace(pool("erts_dcpus", lock=4.0), switches_per_s=0.0)


@pytest.mark.parametrize(
    ("threads", "mean_ms", "named", "unsure"),
    [
        pytest.param((pool("scheduler", 3.9, 0.1), DIRTY), 11.0, False, False, id="nobody waits"),
        pytest.param((pool("erts_sched", 3.9, 0.1), NEWER), 11.0, False, False, id="nobody waits, by newer names"),
        pytest.param((pool("scheduler", 3.9, 0.1), DIRTY), 80.0, True, True, id="users wait, for whatever it is"),
        pytest.param((pool("scheduler", 3.9, 0.1),), 11.0, True, False, id="another runtime's scheduler"),
        pytest.param(
            (pool("scheduler", 0.4, 3.6), pool("port", 3.5, 0.5), DIRTY), 11.0, True, False, id="others fill the CPUs"
        ),
    ],
)
def test_a_cpu_that_erlangs_schedulers_fill_may_be_idle(
    threads: tuple[WatchedPool, ...], mean_ms: float, named: bool, unsure: bool
) -> None:
    figures = {"subject_cpu_share": 0.975, "response_time_ns_mean": mean_ms * MS}
    found = bottleneck_of(scene(*threads, cpus=4.0, metrics=figures))
    assert (found is not None and found.name is B.SUBJECT_CPU) is named
    assert (found is not None and "+sbwt none" in found.advice) is unsure


def test_collectors_that_stop_a_jvm_are_told_by_the_time_it_stands_still() -> None:
    """On many CPUs two of them use little."""
    figures = {"subject_cpu_share": 0.3, "jvm_gc_share": 0.4, "jvm_safepoint_share": 0.41}
    usual = (pool("pool", 2.8, lock=0.2, sleep=61), pool("VM Thread", 0.01, lock=0.99))
    found = bottleneck_of(scene(pool("GC Thread", 0.8, lock=1.2), *usual, cpus=12.0, metrics=figures))
    assert found is not None and found.name is B.GARBAGE_COLLECTION
    assert found.evidence[0] == "collections stop all other threads 40 % of the time"
    beside = bottleneck_of(scene(pool("ZWorker", 0.8, lock=1.2), *usual, cpus=12.0, metrics=figures))
    assert beside is None or beside.name is not B.GARBAGE_COLLECTION


@pytest.mark.parametrize(("cpus", "name"), [(3.0, B.EVENT_LOOP_BLOCKED), (1.0, B.SUBJECT_CPU)])
def test_a_thread_from_which_the_hypervisor_takes_a_part_has_no_time_left(cpus: float, name: B) -> None:
    loop = pool("node", 0.86, busiest=0.86, poll=0.14)
    stolen = {"subject_cpu_share": 0.86 / cpus, "host_busy_share": 0.35, "host_steal_share": 0.03}
    found = bottleneck_of(scene(loop, cpus=cpus, metrics=stolen))
    assert found is not None and found.name is name and found.second is None
    idle = bottleneck_of(scene(loop, cpus=cpus, metrics={**stolen, "host_steal_share": 0.0}))
    assert idle is None or idle.name is not name


@pytest.mark.parametrize(("cpus", "name"), [(3.0, B.EVENT_LOOP_BLOCKED), (1.0, B.SUBJECT_CPU)])
def test_a_thread_that_interrupts_stop_for_a_part_of_the_time_has_none_left(cpus: float, name: B) -> None:
    """A kernel that counts them apart has them in no thread's account."""
    loop = pool("node", 0.86, busiest=0.86, poll=0.14)
    seen = scene(loop, cpus=cpus, metrics={"subject_cpu_share": 0.86 / cpus})
    found = bottleneck_of(replace(seen, interrupted=0.1))
    assert found is not None and found.name is name and found.second is None
    assert "interrupts take 10 % of the time in which its CPUs work" in found.evidence
    idle = bottleneck_of(seen)
    assert idle is None or idle.name is not name


def test_collectors_use_a_share_of_the_cpus_not_of_the_cpu_time() -> None:
    """The rest of the server uses less than they do."""
    found = bottleneck_of(scene(pool("GC Thread", 0.3, 0.1, lock=0.6), SLEEPERS, POLLER, cpus=2.0, present=9.0))
    assert found is not None and found.evidence[0] == "GC Thread used 0.3 cores, 15 % of the server's 2 CPUs"


def test_where_other_programs_are_allowed_the_advice_is_not_just_to_stop_them() -> None:
    seen = scene(pool("pool", 0.33, 3.6), POLLER, metrics={"host_foreign_cores": 0.66})
    clause = "; if postgres is the server's own database, allow for it"
    usual, allowed = (
        bottleneck_of(replace(seen, of_own_service=clause, allows_others=allows)) for allows in (False, True)
    )
    assert usual is not None and usual.advice.startswith("stop the other programs") and usual.advice.endswith(clause)
    assert allowed is not None and allowed.name is B.HOST_CPU and allowed.advice.startswith("give the server and")


@pytest.mark.parametrize(("cpus", "more"), [(2.0, 2), (4.0, 4), (1.5, 2)])
def test_go_code_that_may_not_run_on_all_cpus_is_given_them(cpus: float, more: int) -> None:
    busy = pool("server", 0.98, 0.02, lock=3.9, poll=0.1)
    figures = {"subject_cpu_share": 0.98 / cpus}
    seen = scene(busy, cpus=cpus, metrics=figures, tried=tried(1), go_runs=1)
    found, alone, other = (
        bottleneck_of(each) for each in (seen, replace(seen, present=1.0), replace(seen, go_runs=math.ceil(cpus)))
    )
    assert found is not None and found.advice.startswith(f"raise GOMAXPROCS to {more}, ")
    for each in (alone, other):
        assert each is None or "GOMAXPROCS" not in each.advice


def test_a_quota_that_load_and_bench_share_is_used_up_by_all_of_them() -> None:
    figures = {
        "subject_cpu_share": 0.61,
        "cpu_throttled_share": 0.95,
        "cpu_quota_cores": 2.0,
        "host_busy_share": 0.25,
    }
    threads = pool("pool", 1.2, 3.0, sleep=11)
    seen = scene(threads, metrics=figures, cpus=2.0, host_cpus=8.0, beside_in_quota=0.8)
    found, alone = bottleneck_of(seen), bottleneck_of(replace(seen, beside_in_quota=0.0))
    assert found is not None and found.name is B.CPU_QUOTA
    used = "it used 1.20 cores of the 2.00 that its cgroup may use, load generator and powerband 0.8"
    assert found.evidence[1] == used
    assert "from another machine" in found.advice
    assert alone is not None and alone.name is B.POOL_TOO_SMALL
    others = {**figures, "host_foreign_cores": 0.5}
    beside = bottleneck_of(scene(pool("pool", 1.2, 3.0, sleep=4), metrics=others, cpus=2.0, beside_in_quota=0.8))
    assert beside is not None and beside.name is B.CPU_QUOTA, "the quota stops it, whatever others use"


def test_more_cpus_alone_do_not_help_where_one_thread_runs_at_a_time() -> None:
    loop, threads = (bottleneck_of(scene(each, POLLER)) for each in (pool("loop", 0.97, 0.02), pool("pool", 0.97, 3.0)))
    assert loop is not None and loop.name is B.SUBJECT_CPU and "processes" in loop.advice
    assert threads is not None and threads.name is B.SUBJECT_CPU and "processes" not in threads.advice


@pytest.mark.parametrize(
    ("waiting", "present", "words"),
    [
        pytest.param({"poll": 0.5}, 200.0, "a few for each CPU serve as much", id="hardly any"),
        pytest.param({"poll": 20.4}, 200.0, "about 23 serve as much", id="for events"),
        pytest.param({"lock": 20.4}, 200.0, "about 23 serve as much", id="parked, as in a JVM"),
        pytest.param({"lock": 10.4, "socket": 10.0}, 200.0, "about 23 serve as much", id="both"),
        pytest.param({"lock": 20.4}, 179.0, "a few for each CPU serve as much", id="idle"),
    ],
)
def test_fewer_threads_are_still_as_many_as_wait_beside_those_that_run(
    waiting: dict[str, float], present: float, words: str
) -> None:
    crowd = pool("http-nio", 0.97, 178.0, **waiting)
    found = bottleneck_of(scene(replace(crowd, polled=0.0), present=present))
    assert found is not None and found.name is B.TOO_MANY_RUNNABLE_THREADS and words in found.advice


def test_parked_threads_of_a_crowd_are_not_said_to_be_too_many() -> None:
    """200 threads of Tomcat on four CPUs: a request computes 5 ms and is parked 50 ms. 12 threads would serve a
    quarter of them."""
    crowd = pool("http-nio", 4.0, 156.0, lock=40.0)
    found = bottleneck_of(scene(crowd, POLLER, cpus=4.0, metrics={"subject_cpu_share": 1.0}, present=256.0))
    assert found is not None and found.name is B.TOO_MANY_RUNNABLE_THREADS
    assert found.advice.startswith("use fewer threads: about 48 serve as much")


@pytest.mark.parametrize(
    ("name", "go_runs", "words"),
    [
        pytest.param("http-nio", None, "about 32 serve as much", id="parked, as in a JVM"),
        pytest.param("puma srv tp", None, "a few for each CPU serve as much", id="in turns under Ruby's lock"),
        pytest.param("gunicorn", None, "a few for each CPU serve as much", id="in turns under Python's lock"),
        pytest.param("server", 21, "a few for each CPU serve as much", id="idle threads of Go"),
    ],
)
def test_threads_that_wait_for_their_turn_or_for_work_are_not_needed_in_a_crowd(
    name: str, go_runs: int | None, words: str
) -> None:
    """21 processes, or a GOMAXPROCS of 21, on one CPU."""
    found = bottleneck_of(scene(pool(name, 0.97, 20.0, lock=30.0), go_runs=go_runs))
    assert found is not None and found.name is B.TOO_MANY_RUNNABLE_THREADS and words in found.advice


def test_the_limit_of_open_files_that_is_enough_is_named() -> None:
    short = scene(
        SLEEPERS, POLLER, descriptors_left=2.0, accept_queue=20.0, metrics={"descriptors_max": 62.0}, users=64
    )
    found = bottleneck_of(short)
    assert found is not None and found.name is B.DESCRIPTORS
    assert found.advice.startswith("raise the server's limit of open files to 128: `ulimit -n 128` in the shell ")


def test_a_limit_of_open_files_is_never_raised_to_less_than_it_is() -> None:
    """At a rate, failed connections leave hardly any request under way; four processes at a limit of 64 have 253 files
    open together."""
    alone = scene(SLEEPERS, POLLER, descriptors_left=3.0, failed_connections=9, metrics={"descriptors_max": 61.0})
    found = bottleneck_of(replace(alone, present=0.2, users=None))
    assert found is not None and "to 65:" in found.advice
    several = scene(SLEEPERS, POLLER, descriptors_left=1.0, accept_queue=9.0, metrics={"descriptors_max": 253.0})
    found = bottleneck_of(several)
    assert found is not None and "254" not in found.advice, "their limit is 64"
    assert found.evidence[0] == "253 file descriptors are open, and a process of the server may open 1 more"


def test_who_keeps_connections_and_takes_no_more_is_not_told_to_accept_faster() -> None:
    threads = pool("pool", sleep=7.8, lock=56.2)
    kept = scene(threads, accept_queue=56.0, tried=tried(8), connections_per_request=0.05)
    limit, slow = bottleneck_of(kept), bottleneck_of(replace(kept, connections_per_request=1.0))
    assert limit is not None and slow is not None and limit.name is slow.name is B.ACCEPT_BACKLOG
    assert limit.evidence[1] == "8 connections were accepted and are kept" and "number of connections" in limit.advice
    assert slow.advice.startswith("accept faster")


def test_connections_that_nobody_counted_are_not_said_to_be_kept_or_to_open_at_once() -> None:
    plan = experiment(load=Load(jmeter="plan.jmx"))
    record = record_of(spec(), Figures(users=64))
    none = {"opened": 0, "failed": 0, "closed_by_peer": 0, "open_max": 0, "connect_time_ns": ""}
    fleet = merge_fleet([summary(Figures(users=64, summary={"connections": none}))])
    assert fleet is not None
    uncounted = scene_of(Evidence.read(record, plan, fleet, (), None), {}, ()).connections_per_request
    found = bottleneck_of(scene(IDLE, POLLER, accept_queue=30.0, connections_per_request=uncounted))
    assert found is not None and found.name is B.ACCEPT_BACKLOG and "accept faster" in found.advice
    assert not any("connecting took" in clause or "kept" in clause for clause in found.evidence)


def test_where_the_kernel_counts_no_starts_those_of_the_whole_host_are_the_most() -> None:
    lines = [line | {"host": {**line["host"], "forks": line["at_ns"] // 2**20}} if "host" in line else line for line in
             probe_lines(Figures())]  # fmt: skip
    record = record_of(spec(), Figures())
    fleet = merge_fleet(record.engines)
    assert fleet is not None
    seen = scene_of(Evidence.read(record, experiment(), fleet, (), read_probe(lines)), {}, ())
    assert seen.starts_per_s_most == pytest.approx(953.7)
    assert replace(seen, metrics={"threads_started_per_s": 3.0}).starts_per_s_most == 3
    assert scene_of(Evidence.read(record, experiment(), fleet, (), None), {}, ()).starts_per_s_most is None


@pytest.mark.parametrize(("share", "named"), [(0.3, True), (0.9, False)])
def test_a_cpu_that_may_only_turn_requests_away_is_not_the_limit(share: float, named: bool) -> None:
    found = bottleneck_of(scene(pool("http", 0.97, 3.0, sleep=8), POLLER, turned_away_share=share))
    assert (found is not None and found.name is B.SUBJECT_CPU) is named


def test_what_was_turned_away_in_the_warm_up_alone_says_nothing_of_the_window() -> None:
    counts = summary(Figures())["cohort"]
    total = {**counts, "sent": counts["sent"] + 9000, "outcomes": {**counts["outcomes"], "status_rejected": 9000}}
    window = {**counts, "outcomes": {"ok": counts["sent"] // 2, "status_rejected": counts["sent"] // 2}}
    for changed, share in (({}, 0.0), ({"cohort": window}, 0.5)):
        figures = Figures(summary={"total": total, "rejected_statuses": {"503": 9000}, **changed})
        fleet = merge_fleet([summary(figures)])
        assert fleet is not None
        seen = scene_of(Evidence.read(record_of(spec(), figures), experiment(), fleet, (), None), {}, ())
        assert seen.turned_away_share == pytest.approx(share, abs=0.001)


def test_cpus_that_a_database_fills_are_full_for_the_server_too() -> None:
    """A request takes 0.4 ms in the server and 0.6 in the database that was started beside it."""
    threads = pool("pool", 0.4, 0.2, socket=3.4)
    beside, alone = (bottleneck_of(scene(threads, POLLER, database_cores=used)) for used in (0.58, 0.0))
    assert beside is not None and beside.name is B.SUBJECT_CPU and "its database 0.58 cores" in beside.evidence[0]
    assert beside.second is None
    assert alone is not None and alone.name is B.POOL_TOO_SMALL


def test_where_a_program_that_the_server_calls_has_the_cpus_the_load_generator_is_not_blamed() -> None:
    """32 of 40 threads wait for PostgreSQL, which waits for a CPU as they do."""
    threads = pool("http-nio", 0.75, 7.2, socket=32)
    taken = {"subject_cpu_share": 0.19, "host_busy_share": 0.97, "host_foreign_cores": 3.0, "engine_cpu_cores": 0.03}
    found = bottleneck_of(scene(threads, POLLER, cpus=4.0, metrics=taken, shares_cpus=True, allows_others=True))
    assert found is not None and found.name is B.HOST_CPU and "the server and the programs" in found.advice


def test_few_faults_of_dear_requests_are_not_what_the_kernel_is_busy_with() -> None:
    """A request copies 10 MB from pages that it maps: 160 faults in 5 ms of CPU time."""
    mapped = {
        "page_faults_per_s": 32_000.0, "subject_cpu_system_share": 0.9, "threads_started_per_s": 0.0,
        "subject_cpu_ns_per_request": 5 * MS,
    }  # fmt: skip
    names = [
        bottleneck_of(scene(pool("httpd", 0.97, 6.0), POLLER, metrics=mapped | changed, rate_per_s=200.0))
        for changed in ({}, {"subject_cpu_ns_per_request": 0.5 * MS})
    ]
    assert [found and found.name for found in names] == [B.SUBJECT_CPU, B.MEMORY]


def test_where_one_thread_runs_the_runtimes_that_gain_from_cpus_alone_are_named() -> None:
    """A JVM runs as many virtual threads at once as it counts CPUs."""
    found = bottleneck_of(scene(pool("ForkJoinPool", 0.97, 0.02, poll=0.01, busiest=0.97)))
    assert found is not None and found.name is B.SUBJECT_CPU
    assert found.advice.startswith("give the server more CPUs") and found.advice.endswith("(Go, .NET, the JVM)")


@pytest.mark.parametrize(("waiting", "words"), [(0.0, "no other waits"), (0.3, "on average 0.3 others wait")])
def test_nobody_waits_is_said_without_a_figure(waiting: float, words: str) -> None:
    found = bottleneck_of(scene(pool("nginx", 0.97, waiting, poll=0.01, busiest=0.97)))
    assert found is not None and found.evidence[-1] == f"one thread at a time fills the CPU; {words} for it"


@pytest.mark.parametrize(("instances", "cpu", "wait", "engine"), [(2, 1.36, 0.71, 0.56), (4, 1.32, 2.74, 0.62)])
def test_cpus_shared_with_the_load_engine_are_the_limit_where_nothing_of_them_is_left(
    instances: int, cpu: float, wait: float, engine: float
) -> None:
    """Vert.x event loops have 8,000 requests in flight; server and generator share two CPUs."""
    loops = pool("vert.x-eventloo", cpu, wait, poll=max(0.0, instances - cpu - wait))
    shared = {"subject_cpu_share": cpu / 2, "host_busy_share": 0.98, "engine_cpu_cores": engine}
    on_two: dict[str, Any] = {"cpus": 2.0, "present": 8000.0, "users": 400, "rate_per_s": 880_000.0}
    found = bottleneck_of(scene(loops, metrics=shared, **on_two, shares_cpus=True))
    assert found is not None and found.name is B.SUBJECT_CPU
    assert "98 %" in found.evidence[0] and "the load generator" in found.evidence[1] and "host.pinning" in found.advice
    apart = bottleneck_of(scene(loops, metrics=shared, **on_two))
    assert apart is None or apart.name is not B.SUBJECT_CPU
    idle = bottleneck_of(scene(loops, metrics={**shared, "host_busy_share": 0.8}, **on_two, shares_cpus=True))
    assert idle is None or idle.name is not B.SUBJECT_CPU


@pytest.mark.parametrize(
    ("foreign", "steal", "said"),
    [
        (0.66, 0.0, "other programs used 0.66 cores of the trial's CPUs"),
        (0.02, 0.64, "the hypervisor took 0.64 cores of the server's CPUs"),
        (0.4, 0.3, "other programs used 0.4 cores of the trial's CPUs and the hypervisor took 0.3 cores of the"),
    ],
)
def test_what_the_hypervisor_took_is_not_laid_to_other_programs(foreign: float, steal: float, said: str) -> None:
    taken = {"host_foreign_cores": foreign, "host_steal_share": steal}
    found = bottleneck_of(scene(pool("pool", 0.33, 3.6), POLLER, metrics=taken))
    assert found is not None and found.name is B.HOST_CPU and found.evidence[0].startswith(said)
    assert found.advice.startswith("stop the other programs") is (foreign > steal)


def test_fewer_threads_are_as_many_as_wait_if_they_take_connections_by_select() -> None:
    """64 processes of gunicorn on one CPU: a third of them wait for a database."""
    workers = replace(pool("gunicorn", 0.97, 20.0, socket=20.4, poll=22.6), polled=0.35)
    found = bottleneck_of(scene(workers))
    assert found is not None and found.name is B.TOO_MANY_RUNNABLE_THREADS and "about 23 serve as much" in found.advice


@pytest.mark.parametrize(("cores", "more_runners"), [(1.0, True), (0.5, False)])
def test_a_higher_quota_alone_gives_a_single_loop_little(cores: float, more_runners: bool) -> None:
    """Node in a container: its loop uses nine tenths of one CPU, and of half a CPU it could use twice as much."""
    loop = replace(pool("node (event loop)", 0.9 * cores, 0.1, busiest=0.9 * cores), polled=1.0)
    figures = {"subject_cpu_share": 1.0, "cpu_throttled_share": 0.97, "cpu_quota_cores": cores, "host_busy_share": 0.3}
    seen = scene(loop, pool("node", 0.1 * cores, 0.05, lock=3.9), metrics=figures, cpus=cores, host_cpus=4.0)
    found = bottleneck_of(seen)
    assert found is not None and found.name is B.CPU_QUOTA
    assert found.advice.startswith("raise the quota (host.cpu_quota, ")
    assert ("processes, event loops" in found.advice) is more_runners
    assert found.evidence[2].startswith("one thread at a time" if more_runners else "2.80 cores of the trial's CPUs")


def test_collectors_that_use_the_cpu_are_all_named_and_no_others() -> None:
    collectors = (pool("G1 Conc", 0.2), pool("G1 Refine", 0.15), pool("GC Thread", 0.1), pool("VM Thread", 0.005))
    found = bottleneck_of(scene(*collectors, pool("pool", 0.52, 3.0), POLLER))
    assert found is not None and found.name is B.GARBAGE_COLLECTION
    assert found.evidence[0].startswith("G1 Conc, G1 Refine and GC Thread used 0.455 cores, ")


def test_what_the_hypervisor_took_was_not_idle() -> None:
    figures = {"cpu_throttled_share": 0.97, "cpu_quota_cores": 0.5, "host_busy_share": 0.3, "host_steal_share": 0.2}
    seen = scene(pool("pool", 0.49, 60.0), metrics={**figures, "subject_cpu_share": 0.98}, cpus=0.5, host_cpus=4.0)
    found = bottleneck_of(seen)
    assert found is not None and found.evidence[2] == "2.00 cores of the trial's CPUs were idle"


@pytest.mark.parametrize("answered", [True, False])
@pytest.mark.parametrize("pause", [{"pace": {"constant": 10_000_000}}, {"think": {"constant": 9_500_000}}])
def test_messages_that_nobody_answers_do_not_show_that_all_is_served(answered: bool, pause: dict[str, Any]) -> None:
    said = {"name": "say", "message": "hello", "answered": answered}
    load = Load.model_validate({"users": 10, "websocket": {}, "scenario": [said], **pause})
    figures = Figures(response_ns=0.5 * MS, think_ns=9.5 * MS)
    record = record_of(spec(), figures)
    fleet = merge_fleet(record.engines)
    assert fleet is not None
    seen = scene_of(Evidence.read(record, experiment(load=load), fleet, (), None), {}, ())
    assert seen.load_served is answered


@pytest.mark.parametrize(("goodput", "served"), [(365.0, False), (391.5, True)])
def test_a_scenario_is_served_only_if_its_later_steps_are_too(goodput: float, served: bool) -> None:
    """Of 400 requests a second asked for, 392 are offered, since later steps wait for the answers to earlier ones."""
    load = Load.model_validate({"rate": 50, "scenario": [{"name": str(n)} for n in range(8)]})
    fleet = SimpleNamespace(goodput_per_s=goodput, offered_per_s=392.0, window_s=10.0)
    assert _served(cast(MergedFleet, fleet), load, {"response_time_ns_mean": 50 * MS}) is served
