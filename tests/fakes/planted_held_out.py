"""Held-out cases: planted bottlenecks and healthy trials on which no rule was tuned, each with the arithmetic behind
it. The subject has one CPU. A case that is named wrongly stays as it is, since one that is fitted to the rules proves
nothing. `confusion.py` scores them apart from those of `planted.py`."""

from __future__ import annotations

from fakes.planted import EACH, ENGINE_CPU, FIXED, LOOP, SUBJECT_CPU, Case, rate, users
from fakes.stand import MS
from powerband.model.bottlenecks import BottleneckName

B = BottleneckName
BOUNDED, CACHED = "--model bounded --queue 500", "--model cached"
EXP_WAIT, EXP_CPU = "--wait-distribution exponential", "--cpu-distribution exponential"
TCP = "--downstream-kind tcp"
CLOSED = {"keep_alive": False}
BURSTS = {"precision_ns": 25 * MS}  # all that arrives within 25 ms is sent together

HELD_OUT: tuple[Case, ...] = (
    # 3 / 12.5 ms = 240/s; the CPU could serve 2000/s.
    Case("pool: 3 threads, CPU and waits", f"{FIXED} 3 --cpu 500us --wait 12ms", users(20), B.POOL_TOO_SMALL),
    # 24 / 40 ms = 600/s of the 750/s that are offered.
    Case("pool: 24 threads, random, open", f"{FIXED} 24 --wait 40ms {EXP_WAIT}", rate(750), B.POOL_TOO_SMALL),
    # 6 / 25 ms = 240/s; the users ask for 15 / (5 + 25) ms = 500/s.
    Case(
        "pool: bounded, users pause",
        f"{BOUNDED} --core 6 --max 6 --wait 25ms",
        users(15, think="5ms", precision_ns=3 * MS),
        B.POOL_TOO_SMALL,
    ),
    # 5 / 15 ms = 333/s to 5 connections; the other 7 have no thread.
    Case("pool: 5 connections", f"{FIXED} 5 --unit connection --wait 15ms {EXP_WAIT}", users(12), B.POOL_TOO_SMALL),
    # 6 / 25.3 ms = 237/s; the downstream could serve 40 / 25 ms = 1600/s.
    Case(
        "pool: 6 threads before a database",
        f"{FIXED} 6 --cpu 300us {TCP} --downstream-limit 40 --downstream-wait 25ms",
        users(30),
        B.POOL_TOO_SMALL,
    ),
    # 1 / 3 ms = 333/s whatever the threads; they never wait.
    Case("CPU: random", f"{FIXED} 3 --cpu 3ms {EXP_CPU}", users(9), B.SUBJECT_CPU),
    # 1 / 1.5 ms = 667/s; 10 users with a thread each could have 10 / 4.5 ms = 2222/s.
    Case("CPU: a thread for each, waits", f"{EACH} --cpu 1500us --wait 3ms", users(10), B.SUBJECT_CPU),
    # 1 / 2 ms = 500/s of the 650/s that are offered; the waits are timers.
    Case("CPU: two loops, open", f"{LOOP} --instances 2 --cpu 2ms --wait 4ms", rate(650), B.SUBJECT_CPU),
    # 1 / 5 ms = 200/s; the users ask for 6 / (2 + 5) ms = 857/s.
    Case(
        "CPU: cached, users pause",
        f"{CACHED} --cpu 5ms {EXP_CPU}",
        users(6, think="2ms", precision_ns=3 * MS),
        B.SUBJECT_CPU,
    ),
    # 333/s by the CPU keep 333 x 5 ms = 2 threads waiting: 118 want one CPU.
    Case("crowd: 120, CPU and waits", f"{FIXED} 120 --cpu 3ms --wait 5ms", users(120), B.TOO_MANY_RUNNABLE_THREADS),
    # 100 runnable threads on one CPU, 300 switches in each millisecond of work.
    Case("crowd: 100 that switch", f"{EACH} --cpu 1ms --yields 300", users(100), B.TOO_MANY_RUNNABLE_THREADS),
    # No thread waits: all 90 want one CPU.
    Case(
        "crowd: bounded, random",
        f"{BOUNDED} --core 90 --max 90 --cpu 4ms {EXP_CPU}",
        users(90),
        B.TOO_MANY_RUNNABLE_THREADS,
    ),
    # 1 / 4 ms = 250/s, of which 250 x 2 ms = 0.5 threads wait elsewhere: the others want the lock.
    Case("lock: and a wait", f"{FIXED} 24 --lock 4ms --wait 2ms", users(24), B.LOCK),
    # 1 / 8 ms = 125/s; without the lock 12 / 8 ms = 1500/s.
    Case("lock: bounded", f"{BOUNDED} --core 12 --max 12 --lock 8ms", users(30), B.LOCK),
    # 1 / 4 ms = 250/s of the 320/s that are offered.
    Case("lock: open load", f"{FIXED} 40 --lock 4ms --cpu 200us", rate(320), B.LOCK),
    # 1 / 6 ms = 167/s; the CPU could serve 1000/s.
    Case("lock: CPU outside of it", f"{CACHED} --lock 6ms --cpu 1ms", users(18), B.LOCK),
    # 3 / 15 ms = 200/s; 20 threads could have 20 / 15.4 ms = 1299/s.
    Case(
        "hidden: 3 permits, CPU",
        f"{FIXED} 20 --cpu 400us --downstream-limit 3 --downstream-wait 15ms",
        users(20),
        B.HIDDEN_LIMIT,
    ),
    # 6 / 30 ms = 200/s of the 260/s that are offered; 30 threads could have 1000/s.
    Case(
        "downstream: open load",
        f"{BOUNDED} --core 30 --max 30 --downstream-limit 6 --downstream-wait 30ms",
        rate(260),
        B.DOWNSTREAM,
    ),
    # 8 / 25 ms = 320/s, at 0.16 of the CPU.
    Case(
        "hidden: three loops",
        f"{LOOP} --instances 3 --cpu 500us --downstream-limit 8 --downstream-wait 25ms",
        users(60),
        B.HIDDEN_LIMIT,
    ),
    # 5 / 20 ms = 250/s; every user has a thread.
    Case(
        "downstream: a database, a thread for each",
        f"{EACH} {TCP} --downstream-limit 5 --downstream-wait 20ms",
        users(40),
        B.DOWNSTREAM,
    ),
    # 6 connections / 18 ms = 333/s; the database could serve 64 / 18 ms = 3556/s.
    Case(
        "hidden: few connections, cached",
        f"{CACHED} {TCP} --downstream-limit 64 --downstream-connections 6 --downstream-wait 18ms",
        users(36),
        B.HIDDEN_LIMIT,
    ),
    # Collections stop the world for a third of the time; every user has a thread, and nothing else is saturated.
    Case(
        "collector: a thread for each",
        f"{EACH} --wait 20ms --gc-every 150ms --gc-for 50ms",
        users(24),
        B.GARBAGE_COLLECTION,
    ),
    # Collections take 40 % of a CPU that is full.
    Case(
        "collector: random CPU",
        f"{FIXED} 6 --cpu 2ms {EXP_CPU} --gc-every 250ms --gc-for 100ms",
        users(30),
        B.GARBAGE_COLLECTION,
    ),
    # A request is 512 page faults, and no other work.
    Case("memory: bounded", f"{BOUNDED} --core 6 --max 6 --memory 2097152", users(20), B.MEMORY),
    # A request is 768 page faults, and no other work.
    Case("memory: a thread for each", f"{EACH} --memory 3145728", users(12), B.MEMORY),
    # 1 / 15 ms = 67 connections/s, one for each request; threads without limit.
    Case("accept: cached", f"{CACHED} --backlog 8 --accept-delay 15ms", users(24, **CLOSED), B.ACCEPT_BACKLOG),
    # 1 / 8 ms = 125 connections/s; 16 threads could have 16 / 5 ms = 3200/s.
    Case("accept: a pool", f"{FIXED} 16 --wait 5ms --accept-delay 8ms", users(50, **CLOSED), B.ACCEPT_BACKLOG),
    # 50 descriptors for 90 connections; a thread for each that gets one.
    Case("descriptors: 50, a pool", f"{FIXED} 64 --wait 8ms --descriptors 50", users(90), B.DESCRIPTORS),
    # 48 descriptors for 80 connections.
    Case(
        "descriptors: 48, two loops",
        f"{LOOP} --instances 2 --wait 15ms --descriptors 48",
        users(80, think="10ms", precision_ns=3 * MS),
        B.DESCRIPTORS,
    ),
    # 3 / 8 ms = 375/s; with timers 40 / 8 ms = 5000/s.
    Case(
        "loop: three block, random",
        f"{LOOP} --instances 3 --loop-waits block --wait 8ms {EXP_WAIT}",
        users(40),
        B.EVENT_LOOP_BLOCKED,
    ),
    # One loop sleeps 3 ms of each 3.2 ms; nobody competes for its lock.
    Case("loop: sleeps with a lock", f"{LOOP} --lock 3ms --cpu 200us", users(20), B.EVENT_LOOP_BLOCKED),
    # 2 / 6 ms = 333/s; the downstream could serve 50 / 6 ms = 8333/s.
    Case(
        "loop: two block downstream",
        f"{LOOP} --instances 2 --loop-waits block --downstream-limit 50 --downstream-wait 6ms",
        users(24),
        B.EVENT_LOOP_BLOCKED,
    ),
    # The load asks for 1 CPU (6 threads, 1 of each 3 ms), which three others share.
    Case(
        "host: bounded, waits",
        f"{BOUNDED} --core 6 --max 6 --cpu 1ms --wait 2ms",
        users(24),
        B.HOST_CPU,
        burners=(SUBJECT_CPU,) * 3,
    ),
    # Six threads want the CPU all the time, and so do two others.
    Case("host: a thread for each", f"{EACH} --cpu 3ms", users(6), B.HOST_CPU, burners=(SUBJECT_CPU,) * 2),
    # 60 / 15 ms = 4000/s are asked of an engine that shares its CPU with six others.
    Case("generator: a thread for each", f"{EACH} --wait 15ms", users(60), B.GENERATOR, burners=(ENGINE_CPU,) * 6),
    # 900/s on time to 0.1 ms, of an engine that waits for three others.
    Case(
        "generator: late, a loop",
        f"{LOOP} --wait 8ms",
        rate(900, precision_ns=MS // 10),
        B.GENERATOR,
        burners=(ENGINE_CPU,) * 3,
    ),
)

HELD_OUT_HEALTHY: tuple[Case, ...] = (
    # 500/s of 20 / 20 ms = 1000/s.
    Case("pool at half, random waits", f"{FIXED} 20 --wait 20ms {EXP_WAIT}", rate(500), B.NONE),
    # 250/s of 1 / 2 ms = 500/s.
    Case("CPU at half, random", f"{FIXED} 6 --cpu 2ms {EXP_CPU}", rate(250), B.NONE),
    # 290/s of 10 / 20.5 ms = 488/s, at 0.15 of the CPU.
    Case("bounded at 60 %, CPU and waits", f"{BOUNDED} --core 10 --max 10 --cpu 500us --wait 20ms", rate(290), B.NONE),
    # At most 20 / 41 ms = 488/s of the CPU's 1000/s.
    Case(
        "cached, users that pause",
        f"{CACHED} --cpu 1ms --wait 10ms",
        users(20, think="30ms", precision_ns=3 * MS),
        B.NONE,
    ),
    # At most 16 / 20.5 ms = 780/s of the CPU's 2000/s.
    Case("a thread for each, users that pause", f"{EACH} --cpu 500us", users(16, think="20ms"), B.NONE),
    # 450/s of the CPU's 1000/s.
    Case("event loop at 45 %", f"{LOOP} --cpu 1ms --wait 8ms", rate(450), B.NONE),
    # 200/s of 10 / 20 ms = 500/s.
    Case(
        "two loops, downstream at 40 %",
        f"{LOOP} --instances 2 --downstream-limit 10 --downstream-wait 20ms",
        rate(200),
        B.NONE,
    ),
    # 150/s of 1 / 3 ms = 333/s.
    Case("lock at 45 %, bounded", f"{BOUNDED} --core 24 --max 24 --lock 3ms", rate(150), B.NONE),
    # 230/s of 12 / 25 ms = 480/s.
    Case("database at half", f"{FIXED} 24 {TCP} --downstream-limit 12 --downstream-wait 25ms", rate(230), B.NONE),
    # 800/s of 32 / 15 ms = 2133/s: a burst of 20 finds 32 threads.
    Case("bursts on a pool", f"{FIXED} 32 --wait 15ms", rate(800, **BURSTS), B.NONE),
    # A burst of 7 x 1.5 = 10.5 ms of work each 25 ms: 42 % of the CPU.
    Case("bursts on the CPU", f"{FIXED} 5 --cpu 1500us", rate(280, **BURSTS), B.NONE),
    # At most 20 / 80 ms = 250/s of 10 / 20 ms = 500/s.
    Case("pool at half, users that pause", f"{FIXED} 10 --wait 20ms", users(20, think="60ms"), B.NONE),
    # 500/s of 16 / 10 ms = 1600/s; collections take 10 ms of each 400 ms.
    Case("small collections", f"{FIXED} 16 --wait 10ms --gc-every 400ms --gc-for 10ms", rate(500), B.NONE),
    # 200/s of 1 / 2 ms = 500 connections/s.
    Case("accepts at 40 %", f"{EACH} --accept-delay 2ms", rate(200, **CLOSED), B.NONE),
)

# The five cases that `make test` has the time for, with the names that are most alike.
SAMPLE_NAMES = (
    "pool: 3 threads, CPU and waits",
    "crowd: 120, CPU and waits",
    "lock: bounded",
    "hidden: 3 permits, CPU",
    "bursts on a pool",
)
SAMPLE = tuple(case for case in (*HELD_OUT, *HELD_OUT_HEALTHY) if case.name in SAMPLE_NAMES)
