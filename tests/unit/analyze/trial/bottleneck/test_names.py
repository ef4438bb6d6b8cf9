"""Each name of a bottleneck on figures from real trials, at least once, and cases that look alike."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from fakes.scenes import IDLE, MORE, MS, POLLER, SLEEPERS, pool, scene, tried
from powerband.analyze.trial.bottleneck.rules import bottleneck_of
from powerband.analyze.trial.bottleneck.scene import Scene
from powerband.analyze.trial.tried_slots import Tried
from powerband.model.bottlenecks import BottleneckName

B = BottleneckName


def prompt(of: Tried, share: float) -> Tried:
    """Adds a user who acknowledges at once, and is answered in this share of the time of the user alone."""
    return replace(of, prompt_ns=share * of.slots.alone_ns)


LOCKED = pool("pool", 0.03, 0.05, lock=30.8, sleep=0.8)
IDLE_VM = pool("VM Thread", 0.001, lock=0.999)
FAULTS = {"page_faults_per_s": 200_000.0, "subject_cpu_system_share": 0.6}
HANGS = replace(pool("loop", 0.01, 0.01, sleep=0.98), polled=1.0)
CASES: list[tuple[str, Scene, BottleneckName]] = [
    ("all of 8 threads sleep, 56 requests queue", scene(SLEEPERS, POLLER), B.POOL_TOO_SMALL),
    (
        "a second pool that is full behind a first that waits for it",
        scene(pool("outer", 0.05, 0.02, lock=64), pool("inner", 0.02, 0.02, sleep=7.9), POLLER),
        B.POOL_TOO_SMALL,
    ),
    (
        "half a CPU of two, and many threads that wait for it",
        scene(
            pool("pool", 0.49, 60.0),
            POLLER,
            metrics={
                "subject_cpu_share": 0.98,
                "cpu_throttled_share": 0.97,
                "cpu_quota_cores": 0.5,
                "host_busy_share": 0.4,
            },
            cpus=0.5,
            host_cpus=2.0,
        ),
        B.CPU_QUOTA,
    ),
    ("one syncs a file under a lock", scene(pool("pool", 0.02, 0.02, disk=0.96, lock=15.0), POLLER), B.DISK),
    ("each of 8 threads syncs a file", scene(pool("pool", 0.1, 0.1, disk=7.7), POLLER), B.DISK),
    (
        "one syncs a file under a lock that may be had out of turn: the fastest answer waits for nobody",
        scene(
            pool("server (at work)", 0.01, disk=0.99),
            pool("server", lock=3.99),
            pool("server (event loop)", poll=1.0),
            empty_ns=3.6 * MS,
            loaded_ns=4.5 * MS,
        ),
        B.DISK,
    ),
    ("4 processes sync a file", scene(pool("python (event loop)", 0.03, 0.1, disk=3.8)), B.DISK),
    (
        "a few of 8 sleeping threads read a file",
        scene(pool("pool", 0.02, 0.1, sleep=6.0, disk=1.8), POLLER),
        B.POOL_TOO_SMALL,
    ),
    (
        "a quota that is used up now and then",
        scene(SLEEPERS, POLLER, metrics={"cpu_throttled_share": 0.2, "cpu_quota_cores": 0.5, "subject_cpu_share": 0.5}),
        B.POOL_TOO_SMALL,
    ),
    (
        "as many threads as users",
        scene(pool("pool", 0.1, 0.1, sleep=63.8), POLLER, tried=MORE),
        B.NONE,
    ),
    (
        "more threads than requests: the rest is idle",
        scene(pool("pool", 0.1, 0.1, sleep=15, lock=49), POLLER, present=16, tried=MORE),
        B.NONE,
    ),
    ("one past the lock", scene(LOCKED, POLLER, present=32, empty_ns=2 * MS), B.LOCK),
    (
        "the holder was not seen among hundreds",
        scene(pool("pool", 0.02, 0.02, lock=381), POLLER, present=381, empty_ns=2 * MS),
        B.LOCK,
    ),
    ("the same, but all of them idle", scene(LOCKED, POLLER, present=1.0, tried=MORE), B.NONE),
    (
        "the holder burns the only CPU",
        scene(pool("pool", 0.97, 0.05, lock=15), POLLER, present=16, empty_ns=2 * MS),
        B.LOCK,
    ),
    (
        "the same, and a poller waits for that CPU",
        scene(pool("pool", 0.8, 0.05, lock=15), pool("poller", 0.02, 0.93, poll=0.05), present=16, empty_ns=2 * MS),
        B.LOCK,
    ),
    (
        "a poller and idle workers share a busy CPU",
        scene(pool("pool", 0.45, 0.3, lock=7.2), pool("poller", 0.5, 0.4, poll=0.1)),
        B.SUBJECT_CPU,
    ),
    (
        "four past the permits",
        scene(pool("pool", 0.05, 0.03, lock=28, sleep=3.9), POLLER, present=48, empty_ns=6 * MS),
        B.DOWNSTREAM,
    ),
    ("connections of a database", scene(pool("pool", 0.1, 0.03, lock=24, socket=7.9), POLLER), B.DOWNSTREAM),
    (
        "each of the server's own connections is in use",
        scene(pool("pool", 0.1, 0.03, lock=56, socket=7.9), POLLER, tried=tried(8.2), outgoing=8),
        B.HIDDEN_LIMIT,
    ),
    (
        "32 connections, of which the other end serves one at a time",
        scene(pool("pool", 0.1, 0.03, lock=33, socket=30.9), POLLER, tried=tried(1), outgoing=32),
        B.DOWNSTREAM,
    ),
    (
        "half of the threads wait for a connection, the others at its other end; and one thread opens connections",
        scene(
            pool("http-nio", 0.14, 0.36, lock=42.0, socket=40.4),
            pool("helper", 0.01, 0.02, lock=0.97),
            tried=tried(1.1),
            outgoing=32,
        ),
        B.DOWNSTREAM,
    ),
    (
        "all of 4 connections in use, more threads than requests, and one thread that opens connections",
        scene(
            pool("http-nio", 0.14, 0.32, lock=75.2, socket=6.3, poll=1.2),
            pool("helper", 0.01, 0.01, lock=0.98),
            tried=tried(4.1),
            outgoing=4,
        ),
        B.HIDDEN_LIMIT,
    ),
    (
        "one thread that is woken for each request, of which four are served at once",
        scene(pool("http-nio", 0.2, 0.1, lock=63.7), pool("helper", 0.01, 0.01, lock=0.98), tried=tried(4)),
        B.HIDDEN_LIMIT,
    ),
    (
        "a full database, and one thread that opens connections",
        scene(
            pool("http-nio", 0.13, 0.6, lock=51.7, socket=30.0),
            pool("helper", 0.01, 0.03, socket=0.96),
            tried=tried(0.9),
            outgoing=32,
        ),
        B.DOWNSTREAM,
    ),
    (
        "4 threads call over a connection each",
        scene(pool("pool", 0.1, 0.1, socket=3.8), POLLER, tried=tried(4), outgoing=4),
        B.POOL_TOO_SMALL,
    ),
    (
        "threads that sleep past a semaphore look like those that wait for it: four are served at once",
        scene(pool("qtp", 0.1, 0.2, lock=61.0, poll=1.2), tried=tried(4)),
        B.HIDDEN_LIMIT,
    ),
    (
        "idle threads of Go beside the one that polls, and 4 connections",
        scene(
            pool("server (event loop)", 0.01, 0.01, poll=0.98),
            pool("server", 0.01, 0.01, lock=2.98),
            loaded_ns=300 * MS,
            tried=tried(4),
            outgoing=4,
        ),
        B.HIDDEN_LIMIT,
    ),
    (
        "4 threads of Tomcat sleep beside its poller of the same name",
        scene(
            pool("http-nio (event loop)", 0.01, 0.01, poll=0.98),
            pool("http-nio", 0.05, 0.05, lock=3.9),
            loaded_ns=300 * MS,
            tried=tried(3.98),
        ),
        B.POOL_TOO_SMALL,
    ),
    (
        "8 threads of Tomcat wait for the results of asynchronous calls, each of which has a connection",
        scene(
            pool("http-nio (event loop)", 0.01, 0.01, poll=0.98),
            pool("http-nio", 0.1, 0.05, lock=7.85),
            pool("reactor-http-nio", 0.1, 0.05, poll=1.85),
            IDLE_VM,
            loaded_ns=160 * MS,
            tried=tried(8),
            outgoing=8,
        ),
        B.POOL_TOO_SMALL,
    ),
    (
        "8 processes that wait for the lock of a file, which one of them holds",
        scene(
            replace(pool("python", 0.25, 0.11, lock=6.13, poll=0.28, sleep=0.93, socket=0.31), polled=1.0),
            accept_queue=56.0,
            tried=tried(1),
            held={"python": 12},
        ),
        B.LOCK,
    ),
    (
        "the same, where other programs disturbed the look with twice the users",
        scene(
            replace(pool("python", 0.26, 0.39, lock=6.33, poll=0.27, sleep=0.64, socket=0.1), polled=1.0),
            accept_queue=56.1,
            tried=tried(1.05, 1.23),
            held={"python": 12},
        ),
        B.LOCK,
    ),
    (
        "4 processes of uWSGI behind its router, which has a connection to them for each request",
        scene(
            replace(pool("python (event loop)", 0.03, 0.22, sleep=3.75), polled=1.0),
            replace(pool("python (event loop, free)", 0.02, 0.06, poll=0.92), switches_per_s=140.0),
            rate_per_s=187.0,
            tried=tried(4),
            inside={"python": 122},
            held={"python": 274},
            connections_per_request=0.1,
        ),
        B.POOL_TOO_SMALL,
    ),
    (
        "the same, recorded when its connections counted as the server's own",
        scene(
            replace(pool("python (event loop)", 0.03, 0.22, sleep=3.75), polled=1.0),
            replace(pool("python (event loop, free)", 0.02, 0.06, poll=0.92), switches_per_s=140.0),
            rate_per_s=187.0,
            tried=tried(4),
            outgoing=122,
            held={"python": 274},
            connections_per_request=0.1,
        ),
        B.POOL_TOO_SMALL,
    ),
    (
        "8 processes that each keep five connections to a database that the same command starts",
        scene(
            replace(pool("gunicorn", 0.2, 0.2, socket=7.4, poll=0.2), polled=1.0),
            tried=tried(8),
            held={"gunicorn": 49, "redis-server": 41},
            inside={"gunicorn": 40},
        ),
        B.POOL_TOO_SMALL,
    ),
    (
        "4 loops that hang behind a proxy that the same command starts",
        scene(
            replace(pool("node (event loop)", 0.03, 0.22, sleep=3.75), polled=1.0),
            pool("nginx (event loop)", 0.05, 0.01, poll=0.94),
            tried=tried(4),
            held={"nginx": 130, "node": 70},
            inside={"nginx": 64},
        ),
        B.EVENT_LOOP_BLOCKED,
    ),
    (
        "4 loops that hang beside their parent, which gave them the connections, and have some to a database",
        scene(
            replace(pool("node (event loop)", 0.03, 0.22, sleep=3.75), polled=1.0),
            replace(pool("node (event loop, free)", 0.01, poll=0.99), switches_per_s=5.0),
            rate_per_s=187.0,
            tried=tried(4),
            outgoing=80,
            held={"node": 210},
            connections_per_request=0.1,
        ),
        B.EVENT_LOOP_BLOCKED,
    ),
    (
        "a worker thread of Node computes, beside idle threads of its name",
        scene(
            pool("node", 0.97, 0.02, lock=5.0, busiest=0.96),
            pool("node (event loop)", 0.14, 0.04, poll=0.82),
            cpus=2.0,
            metrics={"subject_cpu_share": 0.56},
            tried=tried(1.1),
        ),
        B.ONE_THREAD,
    ),
    (
        "8 processes that wait for results, one at a time",
        scene(replace(pool("loop", 0.02, 0.02, lock=7.96), polled=1.0), tried=tried(1), held={"loop": 10}),
        B.HIDDEN_LIMIT,
    ),
    (
        "collections take 15 % of a CPU, and 56 requests queue for 8 threads",
        scene(pool("GC Thread", 0.15, 0.05, lock=0.8), SLEEPERS, POLLER),
        B.POOL_TOO_SMALL,
    ),
    (
        "the same with a short queue: without collections more would be served than with more threads",
        scene(pool("GC Thread", 0.15, 0.05, lock=0.8), SLEEPERS, POLLER, present=9.5),
        B.GARBAGE_COLLECTION,
    ),
    (
        "the same where collections take 30 %",
        scene(pool("GC Thread", 0.30, 0.05, lock=0.65), SLEEPERS, POLLER),
        B.GARBAGE_COLLECTION,
    ),
    (
        "Go code runs on one of two CPUs, by GOMAXPROCS",
        scene(
            pool("server", 0.98, 0.02, busiest=0.7, lock=3.9, poll=0.1),
            cpus=2.0,
            metrics={"subject_cpu_share": 0.49},
            tried=tried(1),
            go_runs=1,
        ),
        B.SUBJECT_CPU,
    ),
    (
        "the same with a collector, which could run on the other CPU",
        scene(
            pool("server", 1.0, 0.01, busiest=0.99, lock=2.01, sleep=0.99),
            cpus=2.0,
            metrics={"subject_cpu_share": 0.5},
            tried=tried(1),
            go_runs=1,
            go_collecting_cores=0.22,
        ),
        B.SUBJECT_CPU,
    ),
    (
        "the server has no CPU left, and the load generator on the same CPUs waits for its turn",
        scene(
            pool("pool", 1.85, 6.0, lock=8.0),
            POLLER,
            cpus=2.0,
            metrics={"subject_cpu_share": 0.93, "engine_run_wait_ns_mean": 3e6, "host_busy_share": 0.99},
            engine_wait_share=0.4,
            shares_cpus=True,
        ),
        B.SUBJECT_CPU,
    ),
    (
        "idle threads of Go, and a database that serves one at a time",
        scene(
            pool("server (event loop)", 0.01, 0.01, poll=0.98),
            pool("server", 0.01, 0.01, lock=2.98),
            loaded_ns=300 * MS,
            tried=tried(1),
            outgoing=32,
        ),
        B.DOWNSTREAM,
    ),
    (
        "as many idle threads of Go as its dependency serves at once",
        scene(
            pool("server (event loop)", 0.03, poll=0.97),
            pool("server", 0.01, lock=3.99),
            loaded_ns=300 * MS,
            tried=tried(4),
            outgoing=128,
            go_runs=1,
        ),
        B.DOWNSTREAM,
    ),
    (
        "threads of Go that take turns to poll, and a database that serves one at a time",
        scene(pool("server", 0.02, 0.05, lock=2.9, poll=0.98), loaded_ns=300 * MS, tried=tried(1), outgoing=32),
        B.DOWNSTREAM,
    ),
    (
        "8 connections are taken, and the others wait outside",
        scene(
            pool("pool", 0.1, 0.1, sleep=7.8, lock=56.2),
            POLLER,
            tried=tried(8),
            accept_queue=56.0,
            connections_per_request=0.05,
        ),
        B.ACCEPT_BACKLOG,
    ),
    (
        "idle threads beside a loop that lets one through at a time",
        scene(
            pool("node", 0.03, 0.02, lock=4.95),
            pool("node (event loop)", 0.1, 0.03, poll=0.87),
            empty_ns=20 * MS,
            tried=tried(1),
            outgoing=0,
        ),
        B.HIDDEN_LIMIT,
    ),
    (
        "threads that each hold a request, beside a loop of their name, as in Tomcat",
        scene(
            pool("http-nio", 0.05, 0.08, lock=62.9),
            pool("http-nio (event loop)", 0.1, 0.03, poll=0.87),
            empty_ns=20 * MS,
            tried=tried(1),
            outgoing=0,
        ),
        B.LOCK,
    ),
    (
        "threads that run virtual threads, none of which is past a lock",
        scene(pool("ForkJoinPool", 0.15, 0.02, lock=1.8), POLLER, empty_ns=20 * MS, tried=tried(1), outgoing=0),
        B.HIDDEN_LIMIT,
    ),
    (
        "a monitor of a JVM, whose first answer was slow",
        scene(pool("pool", 0.05, 0.08, lock=31.9), POLLER, empty_ns=144 * MS, tried=tried(1), outgoing=0),
        B.LOCK,
    ),
    ("loops idle while requests queue", scene(pool("loop", 0.02, 0.02, poll=0.96), loaded_ns=58 * MS), B.DOWNSTREAM),
    ("loops idle, nothing queues", scene(pool("loop", 0.02, 0.02, poll=0.96), tried=MORE), B.NONE),
    (
        "threads that park for results",
        scene(pool("pool", 0.5, 0.3, lock=63), POLLER, tried=MORE),
        B.NONE,
    ),
    (
        "hundreds that park",
        scene(pool("pool", 0.2, 0.1, lock=200), POLLER, present=200, tried=MORE),
        B.NONE,
    ),
    ("eight that park, and a queue", scene(pool("pool", 0.05, 0.02, lock=7.9), POLLER), B.POOL_TOO_SMALL),
    (
        "a database that queues what every thread asks",
        scene(pool("pool", 0.1, 0.1, socket=63.8), POLLER, empty_ns=5 * MS, loaded_ns=75 * MS),
        B.DOWNSTREAM,
    ),
    (
        "a database that is only slow",
        scene(pool("pool", 0.1, 0.1, socket=63.8), POLLER, empty_ns=78 * MS, loaded_ns=79 * MS, tried=MORE),
        B.NONE,
    ),
    ("CPU", scene(pool("pool", 0.97, 3.0), POLLER), B.SUBJECT_CPU),
    ("CPU, interrupts hide some", scene(pool("pool", 0.85, 3.0), POLLER), B.SUBJECT_CPU),
    (
        "threads that wake together on a CPU with time left: no answer takes longer for it",
        scene(
            pool("pool", 0.78, 0.9, sleep=62.3),
            POLLER,
            metrics={"response_time_ns_mean": 10.2e6},
            loaded_ns=10 * MS,
            tried=MORE,
        ),
        B.NONE,
    ),
    ("CPU of an event loop on one CPU", scene(pool("loop", 0.97, 0.02, poll=0.01, busiest=0.97)), B.SUBJECT_CPU),
    ("hundreds runnable", scene(pool("connection", 0.97, 240.0), present=250), B.TOO_MANY_RUNNABLE_THREADS),
    (
        "six a CPU, whose switches are cheap",
        scene(replace(pool("pool", 0.97, 6.0, sleep=5), preemptions_per_s=1000.0), POLLER),
        B.SUBJECT_CPU,
    ),
    (
        "eight a CPU that preempt each other",
        scene(replace(pool("pool", 0.97, 8.0), preemptions_per_s=200_000.0), POLLER),
        B.TOO_MANY_RUNNABLE_THREADS,
    ),
    ("others have the CPU", scene(pool("pool", 0.33, 3.6), POLLER, metrics={"host_foreign_cores": 0.66}), B.HOST_CPU),
    (
        "others have the CPU, but it is not what is waited for",
        scene(pool("pool", 0.17, 2.2, sleep=13.6), POLLER, metrics={"host_foreign_cores": 1.7}),
        B.POOL_TOO_SMALL,
    ),
    ("others spoilt it", scene(SLEEPERS, POLLER, codes=("host_foreign",)), B.HOST_CPU),
    ("the engine was late", scene(SLEEPERS, POLLER, codes=("generator_lag",)), B.GENERATOR),
    (
        "idle threads, and an engine without a CPU",
        scene(
            pool("pool", 0.03, 1.3, lock=62),
            POLLER,
            metrics={"host_foreign_cores": 1.9, "engine_run_wait_ns_mean": 2e6},
            engine_wait_share=0.5,
        ),
        B.GENERATOR,
    ),
    (
        "busy threads, and an engine that waits a little each of many times",
        scene(SLEEPERS, POLLER, metrics={"engine_run_wait_ns_mean": 15e3}, engine_wait_share=0.3),
        B.POOL_TOO_SMALL,
    ),
    (
        "four let in by a semaphore of the server itself",
        scene(pool("pool", 0.05, 0.03, lock=28, sleep=3.9), POLLER, present=48, tried=tried(4)),
        B.HIDDEN_LIMIT,
    ),
    ("a semaphore on an event loop", scene(pool("loop", 0.02, 0.02, poll=0.96), tried=tried(4)), B.HIDDEN_LIMIT),
    (
        "an event loop that calls somebody",
        scene(pool("loop", 0.02, 0.02, poll=0.96), loaded_ns=58 * MS, tried=tried(4), outgoing=32),
        B.DOWNSTREAM,
    ),
    (
        "an event loop that calls somebody by no more connections than it serves",
        scene(pool("loop", 0.02, 0.02, poll=0.96), loaded_ns=58 * MS, tried=tried(4), outgoing=4),
        B.HIDDEN_LIMIT,
    ),
    (
        "processes that take the next connection when they are done",
        scene(pool("loop", 0.02, 0.02, sleep=3.9), tried=tried(4), held={"loop": 7}),
        B.POOL_TOO_SMALL,
    ),
    (
        "loops that hang, and hold the connections of all users",
        scene(pool("loop", 0.02, 0.02, sleep=3.9), tried=tried(4), held={"loop": 130}),
        B.EVENT_LOOP_BLOCKED,
    ),
    (
        "threads that take the next connection when they are done, of which the first of each process was told apart",
        scene(
            pool("uwsgi", 0.02, 0.56, sleep=5.2, lock=0.2),
            replace(pool("uwsgi (event loop)", 0.01, 0.18, sleep=1.7, poll=0.05), polled=1.0),
            present=32.0,
            accept_queue=22.9,
            tried=tried(8, users=32),
            held={"uwsgi": 15},
        ),
        B.POOL_TOO_SMALL,
    ),
    (
        "processes of which each also has two connections of its own to a database",
        scene(pool("loop", 0.1, 0.1, socket=3.7, poll=0.1), tried=tried(4), held={"loop": 16}, outgoing=8),
        B.POOL_TOO_SMALL,
    ),
    (
        "processes with a connection each to a database that serves three at once",
        scene(
            pool("loop", 0.1, 0.4, socket=11.2, poll=0.3),
            accept_queue=52.0,
            tried=tried(3.2),
            held={"loop": 40},
            outgoing=24,
        ),
        B.DOWNSTREAM,
    ),
    (
        "processes that sleep until a file is free, one at a time",
        scene(pool("loop", 0.03, 0.1, sleep=7.8), tried=tried(1), held={"loop": 11}, outgoing=0),
        B.HIDDEN_LIMIT,
    ),
    (
        "processes that reach their databases by sockets of the machine, each with a request while all others wait",
        scene(
            pool("loop", 0.1, 0.2, socket=3.6, poll=0.1),
            accept_queue=60.0,
            tried=tried(4),
            held={"loop": 24},
            outgoing=0,
        ),
        B.POOL_TOO_SMALL,
    ),
    (
        "a loop that hangs, and takes connections now and then",
        scene(HANGS, accept_queue=40.0, tried=tried(1), held={"loop": 45}, outgoing=0),
        B.EVENT_LOOP_BLOCKED,
    ),
    (
        "one of two CPUs is full of a loop, though other programs take a part of it",
        scene(replace(pool("loop", 0.8, 0.2, busiest=0.8), polled=1.0), cpus=2.0, metrics={"subject_cpu_share": 0.4}),
        B.EVENT_LOOP_BLOCKED,
    ),
    (
        "threads that hang from the first request on, to which nobody hands requests",
        scene(pool("worker", 0.02, 0.02, sleep=1.96), tried=tried(2), held={"server": 130}),
        B.EVENT_LOOP_BLOCKED,
    ),
    (
        "the same of a runtime that parks who sleeps",
        scene(pool("I/O", 0.05, 0.05, lock=0.9), tried=tried(1), held={"java": 131}),
        B.EVENT_LOOP_BLOCKED,
    ),
    (
        "threads to which another one hands requests",
        scene(pool("worker", 0.02, 0.02, sleep=1.96), POLLER, tried=tried(2), held={"server": 130}),
        B.POOL_TOO_SMALL,
    ),
    (
        "threads that hang, to which the first thread of their process hands the connections that it accepts",
        scene(
            pool("python", 0.02, 0.02, sleep=7.96),
            pool("python (accepts)", 0.02, 0.02, socket=0.96),
            tried=tried(8),
            held={"python": 130},
        ),
        B.POOL_TOO_SMALL,
    ),
    (
        "eight threads that end together, so that one wake-up of another one hands them eight requests",
        scene(
            pool("worker", 0.02, 0.02, sleep=7.96),
            replace(POLLER, use=replace(POLLER.use, on_cpu=0.001), switches_per_s=100.0),
            tried=tried(8),
            held={"server": 130},
        ),
        B.POOL_TOO_SMALL,
    ),
    (
        "threads that hang, beside one that wakes for a timer",
        scene(
            pool("worker", 0.02, 0.02, sleep=7.96),
            replace(POLLER, use=replace(POLLER.use, on_cpu=0.001), switches_per_s=20.0),
            tried=tried(8),
            held={"server": 130},
        ),
        B.EVENT_LOOP_BLOCKED,
    ),
    (
        "a loop that hangs from the first request on, beside a thread that gives memory back now and then",
        scene(
            pool("bun", 0.01, 0.01, sleep=0.98),
            replace(pool("mi-scavenger", lock=1.0), switches_per_s=11.0),
            rate_per_s=49.0,
            tried=tried(1),
            held={"bun": 130},
        ),
        B.EVENT_LOOP_BLOCKED,
    ),
    (
        "threads of which each keeps its connection",
        scene(
            pool("worker", 0.02, 0.02, sleep=1.96),
            tried=tried(2),
            held={"server": 130},
            codes=("starved_users",),
        ),
        B.POOL_TOO_SMALL,
    ),
    (
        "threads of one name: one waits for events at all times, as many sleep as are served at once",
        scene(pool("runtime", 0.05, 0.0, poll=0.95, lock=1.0, sleep=4.0), tried=tried(4)),
        B.POOL_TOO_SMALL,
    ),
    (
        "the same of loops that each wait for their own events",
        scene(replace(pool("loop", 0.05, 0.0, poll=0.95, sleep=4.0), polled=1.0), tried=tried(4)),
        B.EVENT_LOOP_BLOCKED,
    ),
    (
        "loops of one name of which none waits for events",
        scene(replace(pool("loop", 0.1, 0.1, poll=0.2, sleep=3.6), polled=0.1), tried=tried(4)),
        B.EVENT_LOOP_BLOCKED,
    ),
    (
        "a pool that is full, whose server accepts only when a thread is free",
        scene(pool("pool", 0.05, 0.05, lock=3.9), POLLER, accept_queue=45.0, tried=tried(4)),
        B.POOL_TOO_SMALL,
    ),
    (
        "threads that wait for a lock, whose server accepts only when one is free",
        scene(pool("pool", 0.05, 0.05, lock=15.9), POLLER, accept_queue=48.0, tried=tried(1.1)),
        B.LOCK,
    ),
    (
        "an unfair lock: the fastest answer is as fast as ever, and some threads read beside it",
        scene(pool("pool", 0.05, 0.05, lock=50, socket=2.3), present=64, loaded_ns=10 * MS, tried=tried(1.17)),
        B.LOCK,
    ),
    (
        "a pool of sleepers whose fastest answer is as fast as ever",
        scene(SLEEPERS, POLLER, loaded_ns=10 * MS, tried=tried(8)),
        B.POOL_TOO_SMALL,
    ),
    (
        "a loop that is always busy, on one of two CPUs",
        scene(
            pool("loop", 0.97, 0.02, poll=0.01, busiest=0.97),
            cpus=2.0,
            metrics={"subject_cpu_share": 0.48},
            tried=tried(1),
        ),
        B.EVENT_LOOP_BLOCKED,
    ),
    (
        "an answer waits until its first half is acknowledged",
        scene(
            pool("pool", 0.1, 0.1, poll=63.8), POLLER, metrics={"response_time_ns_mean": 20e6}, tried=prompt(MORE, 0.0)
        ),
        B.DELAYED_ACK,
    ),
    (
        "an answer takes as long, however it is acknowledged",
        scene(
            pool("pool", 0.1, 0.1, sleep=63.8), POLLER, metrics={"response_time_ns_mean": 20e6}, tried=prompt(MORE, 0.9)
        ),
        B.NONE,
    ),
    (
        "acknowledgements are delayed, and that is little of what 64 users wait in front of 8 slots",
        scene(SLEEPERS, POLLER, metrics={"response_time_ns_mean": 160e6}, tried=prompt(tried(8), 0.0)),
        B.POOL_TOO_SMALL,
    ),
    ("as many slots as users", scene(pool("pool", 0.1, 0.1, sleep=63.8), POLLER, tried=tried(64)), B.NONE),
    ("all is served", scene(LOCKED, POLLER, load_served=True), B.NONE),
    ("collector", scene(pool("GC Thread", 0.3, 0.1, lock=0.6), SLEEPERS, POLLER), B.GARBAGE_COLLECTION),
    (
        "one thread collects while all others stand still, with sixteen CPUs",
        scene(pool("VM Thread", 0.6, lock=0.4), SLEEPERS, POLLER, cpus=16.0, metrics={"subject_cpu_share": 0.44}),
        B.GARBAGE_COLLECTION,
    ),
    (
        "the same thread, where the JVM says that little stands still",
        scene(
            pool("VM Thread", 0.6, lock=0.4),
            SLEEPERS,
            POLLER,
            cpus=16.0,
            metrics={"subject_cpu_share": 0.44, "jvm_safepoint_share": 0.05, "jvm_gc_share": 0.04},
        ),
        B.POOL_TOO_SMALL,
    ),
    (
        "a compiler is no collector",
        scene(pool("C2 CompilerThre", 0.3, 0.1, lock=0.6), SLEEPERS, POLLER),
        B.POOL_TOO_SMALL,
    ),
    ("page faults", scene(pool("pool", 0.97, 6.0), POLLER, metrics={**FAULTS, "threads_started_per_s": 0.0}), B.MEMORY),
    (
        "page faults of a server whose starts nobody counted, where hardly anything began on the host",
        scene(pool("pool", 0.97, 6.0), POLLER, metrics=FAULTS, host_starts_per_s=5.0),
        B.MEMORY,
    ),
    (
        "page faults of a process that is started for each request",
        scene(pool("cgi", 0.97, 6.0), POLLER, metrics={**FAULTS, "threads_started_per_s": 800.0}),
        B.SUBJECT_CPU,
    ),
    (
        "the same, where only the host's starts are counted",
        scene(pool("cgi", 0.97, 6.0), POLLER, metrics=FAULTS, host_starts_per_s=820.0),
        B.SUBJECT_CPU,
    ),
    (
        "the same, where no starts are counted",
        scene(pool("cgi", 0.97, 6.0), POLLER, metrics=FAULTS),
        B.SUBJECT_CPU,
    ),
    (
        "some page faults",
        scene(pool("pool", 0.97, 6.0), POLLER, metrics={"page_faults_per_s": 8_000.0, "subject_cpu_system_share": 0.2}),
        B.SUBJECT_CPU,
    ),
    ("pages from disk", scene(SLEEPERS, POLLER, major_faults_per_s=4000.0), B.MEMORY),
    (
        "a page from a slow disk now and then, for few requests that wait for it",
        scene(pool("pool", 0.1, 0.0, memory=0.5, sleep=7.4), POLLER, rate_per_s=20.0, major_faults_per_s=40.0),
        B.MEMORY,
    ),
    (
        "a page from disk for each of few slow requests, which hardly wait for it",
        scene(pool("pool", 0.97, 6.0), POLLER, rate_per_s=2.0, major_faults_per_s=2.0),
        B.SUBJECT_CPU,
    ),
    (
        "a full accept queue",
        scene(IDLE, POLLER, accept_queue=2.0, accept_queue_limit=2.0, metrics={"accept_overflows": 40}),
        B.ACCEPT_BACKLOG,
    ),
    (
        "connections that found a short queue full at first, and are kept",
        scene(
            SLEEPERS,
            POLLER,
            accept_queue_limit=5.0,
            connections_per_request=0.03,
            metrics={"accept_overflows": 34, "connect_time_ns_p99": 1.01e9},
        ),
        B.POOL_TOO_SMALL,
    ),
    (
        "the same, and some users never got one",
        scene(
            IDLE,
            POLLER,
            accept_queue_limit=5.0,
            connections_per_request=0.03,
            metrics={"accept_overflows": 34, "connect_time_ns_p99": 1.01e9},
            codes=("starved_users",),
        ),
        B.ACCEPT_BACKLOG,
    ),
    ("most connections wait to be accepted", scene(IDLE, POLLER, accept_queue=30.0), B.ACCEPT_BACKLOG),
    (
        "a thread for each connection, and they are accepted slowly",
        scene(pool("connection", 0.05, 0.01, sleep=0.9), accept_queue=30.0, metrics={"threads_started_per_s": 800.0}),
        B.ACCEPT_BACKLOG,
    ),
    (
        "such threads, where only the host's starts are counted",
        scene(pool("connection", 0.05, 0.01, sleep=0.9), accept_queue=30.0, host_starts_per_s=820.0),
        B.ACCEPT_BACKLOG,
    ),
    (
        "eight workers that last beside other programs, where only the host's starts are counted",
        scene(pool("worker", 0.02, 0.1, sleep=7.8), accept_queue=56.0, host_starts_per_s=120.0),
        B.POOL_TOO_SMALL,
    ),
    (
        "a poller that takes connections slowly, for threads that have little to do",
        scene(pool("pool", 0.01, 0.01, lock=15.5, sleep=0.5), HANGS, accept_queue=62.0, tried=tried(1.6)),
        B.ACCEPT_BACKLOG,
    ),
    (
        "the same with a thread for each request that is served at once, and a short queue",
        scene(pool("pool", 0.01, 0.01, lock=1.0), HANGS, accept_queue=8.2, accept_queue_limit=8.0, tried=tried(1)),
        B.ACCEPT_BACKLOG,
    ),
    (
        "a loop that blocks, beside threads that it gives other work",
        scene(
            replace(pool("log", 0.01, 0.01, other=2.0), switches_per_s=100.0),
            HANGS,
            accept_queue=20.0,
            tried=tried(1),
            held={"loop": 45},
        ),
        B.EVENT_LOOP_BLOCKED,
    ),
    (
        "a server without CPU to accept with",
        scene(pool("loop", 0.97, 0.02, poll=0.01), accept_queue=30.0),
        B.SUBJECT_CPU,
    ),
    (
        "eight workers that accept for themselves, all with a request in hand",
        scene(pool("worker", 0.02, 0.1, sleep=7.8), accept_queue=56.0),
        B.POOL_TOO_SMALL,
    ),
    (
        "workers that wait for their next connection in select",
        scene(replace(pool("gunicorn", 0.02, 0.1, sleep=3.8), polled=0.1), accept_queue=60.0),
        B.POOL_TOO_SMALL,
    ),
    (
        "overflows of another server",
        scene(SLEEPERS, POLLER, metrics={"accept_overflows": 40, "connect_time_ns_p99": 1e6}),
        B.POOL_TOO_SMALL,
    ),
    ("no descriptor left", scene(SLEEPERS, POLLER, descriptors_left=0.0, accept_queue=20.0), B.DESCRIPTORS),
    (
        "descriptors kept to turn callers away",
        scene(SLEEPERS, POLLER, descriptors_left=2.0, accept_queue=20.0),
        B.DESCRIPTORS,
    ),
    ("no descriptor left, and none wanted", scene(SLEEPERS, POLLER, descriptors_left=0.0), B.POOL_TOO_SMALL),
    ("a loop that sleeps", scene(replace(pool("loop", 0.02, 0.02, sleep=0.95), polled=0.1)), B.EVENT_LOOP_BLOCKED),
    (
        "Node: one loop and its idle pool of threads share a name, and a database answers in 20 ms",
        scene(
            pool("node", 0.1, 0.02, poll=1.88, lock=5.0),
            users=32,
            present=32.0,
            empty_ns=20 * MS,
            loaded_ns=20 * MS,
            tried=MORE,
        ),
        B.NONE,
    ),
    (
        "Go, half busy: one thread polls or works, others stand by, one sleeps",
        scene(pool("server", 0.6, 0.1, poll=0.4, lock=6.0, sleep=0.9), empty_ns=20 * MS, loaded_ns=20 * MS, tried=MORE),
        B.NONE,
    ),
    (
        "tokio: sixteen workers, one of them polls for all",
        scene(pool("tokio-runtime-w", 0.2, 0.1, poll=0.7, lock=15.0), empty_ns=20 * MS, loaded_ns=20 * MS, tried=MORE),
        B.NONE,
    ),
    (
        "nginx: the master waits for a signal, its workers for events",
        scene(pool("nginx", 0.3, 0.1, poll=1.6, other=1.0), present=20.0, empty_ns=MS, loaded_ns=MS, tried=MORE),
        B.NONE,
    ),
    (
        "threads that park until one thread of another pool has done the work",
        scene(
            pool("http-nio", 0.2, 0.1, lock=61.0, sleep=1.0),
            pool("writer", 0.95, 0.02, lock=0.03, busiest=0.95),
            cpus=2.0,
            metrics={"subject_cpu_share": 0.58},
        ),
        B.POOL_TOO_SMALL,
    ),
    (
        "ten connections of a pool, in Java: the others are parked",
        scene(pool("http-nio", 0.15, 0.05, lock=54.0, socket=9.8), POLLER, empty_ns=13 * MS, loaded_ns=60 * MS),
        B.DOWNSTREAM,
    ),
    (
        "a short window that tells of fewer threads than there were",
        scene(replace(pool("pool", 0.07, 0.8, sleep=54.8), alive_max=64), POLLER, tried=MORE),
        B.NONE,
    ),
    (
        "requests on the threads of another pool do not queue for this one",
        scene(pool("io", 0.1, 0.1, sleep=9.8), pool("pool", 0.1, 0.1, sleep=53.8), POLLER, tried=MORE),
        B.NONE,
    ),
    (
        "a collector that works beside, with CPUs to spare",
        scene(pool("G1 Conc", 0.3, 0.0, lock=0.7), SLEEPERS, POLLER, cpus=2.0, metrics={"subject_cpu_share": 0.17}),
        B.POOL_TOO_SMALL,
    ),
    ("Go's collector on a full CPU", scene(pool("server", 0.98, 1.0), go_collecting_cores=0.4), B.GARBAGE_COLLECTION),
    ("Go's collector, which has a little of it", scene(pool("server", 0.98), go_collecting_cores=0.05), B.SUBJECT_CPU),
    (
        "Go's collector beside sleepers, and a CPU for both",
        scene(pool("pool", 0.4, 0.1, sleep=7.5), POLLER, go_collecting_cores=0.3),
        B.POOL_TOO_SMALL,
    ),
    ("the same where CPU is short", scene(pool("G1 Conc", 0.3, 0.5), pool("pool", 0.68, 3.0)), B.GARBAGE_COLLECTION),
    (
        "a compiler that is always busy is not what the others wait for",
        scene(
            pool("C2 CompilerThre", 0.95, 0.0, busiest=0.95, lock=0.05),
            pool("loop", 0.05, 0.0, poll=0.95),
            cpus=4.0,
            metrics={"subject_cpu_share": 0.25},
            tried=tried(8),
        ),
        B.HIDDEN_LIMIT,
    ),
    (
        "a lock beside a compiler that is always busy",
        scene(
            pool("C2 CompilerThre", 0.95, 0.0, busiest=0.95, lock=0.05),
            pool("pool", 0.1, 0.0, lock=30.0, sleep=0.9),
            cpus=4.0,
            metrics={"subject_cpu_share": 0.26},
        ),
        B.LOCK,
    ),
    ("names cut in the middle", scene(pool("C2 Com..d", 0.3, 0.1, lock=0.6), SLEEPERS, POLLER), B.POOL_TOO_SMALL),
    (
        "pressure of memory that others make",
        scene(SLEEPERS, POLLER, metrics={"psi_memory_share": 0.3}),
        B.POOL_TOO_SMALL,
    ),
    (
        "pressure of memory that the subject suffers from",
        scene(SLEEPERS, POLLER, metrics={"psi_memory_share": 0.3}, major_faults_per_s=20.0),
        B.MEMORY,
    ),
    ("a loop known by its name", scene(pool("vert.x-eventloop-thread", 0.1, 0.0, lock=1.9)), B.EVENT_LOOP_BLOCKED),
    (
        "one loop computes, seven CPUs idle",
        scene(pool("loop", 1.0, 0.0, poll=7.0, busiest=0.98), cpus=8.0, metrics={"subject_cpu_share": 0.125}),
        B.EVENT_LOOP_BLOCKED,
    ),
]


# Requests queue, but the reason cannot be seen.
UNNAMED: list[tuple[str, Scene]] = [
    (
        "parked threads beside a loop of their name, where nobody tried: they may be idle",
        scene(
            pool("server (event loop)", 0.01, 0.01, poll=0.98),
            pool("server", 0.05, 0.05, lock=2.9),
            loaded_ns=300 * MS,
        ),
    ),
    (
        "threads that take turns to poll, where nobody tried",
        scene(pool("server", 0.02, 0.05, lock=2.9, poll=0.98), loaded_ns=300 * MS),
    ),
    (
        "the thread by which Go watches over the others sleeps, while other programs take a part of its CPUs",
        scene(
            replace(pool("server", 0.66, 0.33, busiest=0.48, lock=3.01), switches_per_s=5.0),
            pool("server (at work)", 0.01, 0.03, sleep=0.96),
            cpus=2.0,
            metrics={"subject_cpu_share": 0.33},
            go_runs=1,
        ),
    ),
    (
        "loops idle below a generator that is nearly full",
        scene(pool("loop", 0.3, 0.02, poll=0.68), loaded_ns=58 * MS, metrics={"engine_cpu_share_max": 0.9}),
    ),
    (
        "processes that hang in their loops beside idle threads of their name, and call nobody",
        scene(pool("node", 0.3, 0.4, lock=116.0, poll=2.5), outgoing=0),
    ),
    (
        "a loop that idles and calls nobody, where the rates of the looks do not suffice",
        scene(pool("loop", 0.02, 0.02, poll=0.96), loaded_ns=58 * MS, outgoing=0),
    ),
    (
        "connections that idle on their sockets beside a database that is only slow",
        scene(pool("pool", 0.1, 0.1, socket=99.8), POLLER, present=40, empty_ns=50 * MS, loaded_ns=76 * MS),
    ),
    (
        "threads that wait for the results of a loop that has no time left, of which other programs take most",
        scene(
            replace(pool("loop", 0.35, 0.65), polled=1.0),
            replace(pool("helper", 0.01, 0.3, lock=1.7), switches_per_s=1000.0),
            cpus=2.0,
            metrics={"subject_cpu_share": 0.18},
        ),
    ),
    (
        "the same, whose helpers are kept apart from what serves",
        scene(
            replace(pool("loop", 0.68, 0.32), polled=1.0, busiest=0.4),
            pool("loop (at rest)", 0.01, 0.25, lock=2.7, other=1.0),
            cpus=2.0,
            metrics={"subject_cpu_share": 0.35},
        ),
    ),
    (
        "threads that park for results: what they do themselves is little of what a request takes",
        scene(pool("http-nio", 0.4, 0.1, lock=61.0, socket=0.7), POLLER, empty_ns=40 * MS, loaded_ns=80 * MS),
    ),
]


@pytest.mark.parametrize(("seen", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_bottleneck_of(seen: Scene, expected: BottleneckName) -> None:
    found = bottleneck_of(seen)
    assert found is not None
    assert found.name is expected
    assert 1 <= len(found.evidence) <= 4 and found.advice
    none = ("message", "no other waits for it")
    assert all(re.search(r"\d", clause) or any(words in clause for words in none) for clause in found.evidence)


@pytest.mark.parametrize("seen", [case[1] for case in UNNAMED], ids=[case[0] for case in UNNAMED])
def test_what_queues_for_something_unseen_has_no_name(seen: Scene) -> None:
    assert seen.queues and bottleneck_of(seen) is None


def test_who_takes_the_cpu_may_be_the_servers_own_database() -> None:
    taken = [bottleneck_of(replace(seen, of_own_service="; or it is")) for _, seen, name in CASES if name is B.HOST_CPU]
    assert len(taken) > 1 and all(found is not None and found.advice.endswith("; or it is") for found in taken)


def test_a_window_with_one_look_at_its_threads_names_only_what_counters_prove() -> None:
    """The load lasts 1 s with a look a second, so a pool that was idle before the load seemed to have threads to spare:
    a hidden limit was once named instead of the pool."""
    named = {found.name for _, seen, _ in CASES if (found := bottleneck_of(replace(seen, watched_share=0.1)))}
    assert B.SUBJECT_CPU in named and B.GENERATOR in named
    assert not named & {B.POOL_TOO_SMALL, B.HIDDEN_LIMIT, B.LOCK, B.DOWNSTREAM, B.EVENT_LOOP_BLOCKED}


def test_every_name_is_told_from_the_others() -> None:
    of_the_self_driven = {B.WAKE_UPS}  # tested in test_self_driven.py
    of_a_capacity = {B.SLOW_ANSWERS}  # tested in settings/test_capacity.py
    named = {found.name for _, seen, _ in CASES if (found := bottleneck_of(seen))}
    assert named == set(B) - of_the_self_driven - of_a_capacity


def test_without_a_warm_up_nobody_can_tell_whether_requests_queue() -> None:
    assert bottleneck_of(scene(pool("worker", 0.05, 0.02, lock=16), POLLER, loaded_ns=None)) is None


def test_nothing_is_named_where_too_little_was_seen() -> None:
    assert bottleneck_of(scene()) is None
    blind = replace(SLEEPERS, use=replace(SLEEPERS.use, blocked_on={}))
    assert bottleneck_of(scene(blind)) is None
