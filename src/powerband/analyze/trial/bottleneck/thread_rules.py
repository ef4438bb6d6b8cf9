"""Names bottlenecks that show in what threads wait on: locks, pools, event loops, a downstream.

An idle thread of a pool waits on a condition, which the kernel cannot tell from a lock. Arithmetic can: with T threads
and N requests in the system, at least T - N threads are idle, and none need be if N > T. That many waits on conditions
are taken off before anything is concluded from them.
"""

from __future__ import annotations

import re

from powerband.analyze.trial.bottleneck.clauses import (
    KINDS,
    MORE_PROCESSES,
    count,
    cpu_used,
    held_longer,
    slots_served,
    threads_at,
    verdict,
)
from powerband.analyze.trial.bottleneck.scene import Scene
from powerband.analyze.trial.laws import active_threads, time_in_pool_ns
from powerband.base.units import format_duration, share, significant
from powerband.loads.measured import THROTTLED
from powerband.model.bottlenecks import BottleneckName
from powerband.model.results import Bottleneck
from powerband.readings.pools import VM_THREAD, WatchedPool
from powerband.readings.thread_groups import LOOP, WORK, group_name

# As in rules.py: thresholds without another reason were chosen by the planted cases.
OFF_POLL_SHARE = 0.5  # of a loop's threads: if more wait for something else than events, it is blocked
LOOP_BUSY = 0.90  # of the time, one thread is on a CPU: it has none left
POOL_BUSY = 0.75  # of a pool's threads, at work: on average a few are between two requests
QUEUED_LEAST = 0.10  # requests without a thread, for each thread of the pool
LOCKED_SHARE = 0.5  # of the threads that hold requests wait for a lock
HOLDER_LEAST, HOLDER_MOST = 0.6, 1.6  # threads past the lock: one, as far as samples count it
COMPUTES = 0.85  # of a CPU, used by the one that holds a lock: it computes, and hardly waits for anything
MORE_THAN_ONE = 1.5  # CPUs: where one thread computes at a time, others idle
BUSY_PROCESS = 0.1  # of the CPU that all processes use: one that uses less only watches over the others
# Threads of a process of Python or Ruby, by their names, or their process's, which threads have unless they get one of
# their own (from Python 3.14 on all do, such as `Thread-7 (serve)` and `asyncio_0`): one computes at a time, by the
# interpreter's lock. Beside it they use some CPU without the lock, as for system calls or compression.
INTERPRETED = re.compile(
    r"^(python|pypy|gunicorn|uvicorn|hypercorn|granian|waitress|uwsgi|flask|AnyIO|ThreadPoolExec|puma|ruby)",
    re.IGNORECASE,
)
ONE_COMPUTES = 1.2  # CPUs that the threads of such a process use at the most
# Threads of a JVM that run virtual threads or Kotlin's coroutines, by their names, which newer JDKs cut in the middle.
RUNS_TASKS = re.compile(r"^(ForkJoi?(nPool|\.\.)|Default?(Dispatch|\.\.))")
# Threads of .NET, tokio and Erlang, by their names, which run tasks as well. Such runtimes wake the one that idled
# last, so that a few compute all the time where only so many tasks are let in.
RUNS_OTHERS = re.compile(r"^(\.NET TP Worker|tokio-r|scheduler|erts_sched)")
HALF_A_CPU = 0.5  # beyond one for each thread: with less, one more thread has none
# With more threads, what they wait on is looked at only once a second: the one that holds the lock may not be seen.
UNSEEN_AMONG = 64.0
CONGESTION = 1.5  # of the time that the first answers took: beyond it requests wait at the other end
# Requests served at once, for each thread that is seen past the lock or on a CPU: some threads past it look like those
# that wait for it, e.g. those that sleep in Java.
UNSEEN_PAST = 1.5
OTHERS_WAIT = 0.5  # runnable threads for each that waits for the lock: then the CPU is short, not the lock
# The least time that a request spends past the lock, as a share of what the first answers took: with less, the threads
# are parked until others have done the work, and these others are not among them. The first answers of all users at
# once take up to ten times what one alone would.
EXPLAINED = 0.05
WOKEN = 0.75  # times for each request, whose thread was parked until its result came
NOBODY = 0.3  # threads past a lock: fewer count as none
FEW_WAIT = 3.0  # threads: so few show no queue for a lock that nobody is past, as the two that run virtual threads
EACH_HOLDS_ONE = 0.5  # of the requests: if so many threads wait, each request holds a thread
ALONE = 0.9  # of the time, one thread is busy, and does nine tenths of its pool's work
# A loop that hangs on a lock neither runs nor waits for events. Idle threads of a runtime wait on conditions as well,
# but then one of their siblings runs or waits for events.
STANDS_STILL = 0.5
# Connections of the server's own, for each request that it serves at once: proxies keep one or two more than they use.
CALLS_NO_MORE = 2.5
CALLS = 0.9  # connections of the server's own, for each thread that waits on a socket
# As `CALLS_NO_MORE`, for threads that each have a connection to themselves while they wait: all are then in use.
ALL_CONNECTIONS_USED = 1.25
AT_THE_OTHER_END = 2.0  # threads that wait there, for each request that is served at once: the others queue there
OUTSIDE_A_POOL = 2.0  # requests served at once, for each thread of a pool: with more, requests do not pass it
FAR_OUTSIDE = 4.0  # the same where twice the users got no more, which a pool with a queue would explain: arbitrary
PARKED = 0.9  # of the threads of a runtime beside its loop wait on conditions: they are idle
ABOUT = 0.15  # of a number of threads: another number this near is about the same
KEPT = 0.2  # connections opened for each request: the users keep theirs, and an acceptor has little to do
ACCEPT_QUEUE_SHARE = 0.20  # of all requests in the system wait in the accept queue
ENGINE_NEARLY_FULL = 0.75  # of the busiest engine thread's time: answers may lie unread in the engine
CALLING = ("socket", "poll")  # waits of a thread that has called another server
OUTSIDE = ("sleep", "socket", "poll", "disk", "other", "memory")
# Of the server's CPUs, or of the one of an interpreter's lock, used: from less it is not concluded how many threads
# would fill them.
TELLS_OF_MORE = 0.25
IN_HAND = ("sleep", "socket", "disk")  # waits in the midst of work, for others; threads in turns wait otherwise
NEVER_IDLE = ("sleep", "poll", "disk", "other")  # waits of a worker with a request in hand, besides "lock" and "socket"
ONE_LOOP = 1.5  # threads
DISK_SHARE = 0.5  # of the threads that wait neither for a lock nor for a caller wait for the disk
SLOWED = 2.0  # times what the first request took in all, that a later one is in a call: its other end gives way
SLOWS_DOWN = "look at the dependency: the more requests it gets at once, the more slowly it answers"
ASKED_TOO_MUCH = (
    "look at the dependency: a lock, a row that all requests change, or its CPU keeps it from serving so many at once; "
    "more connections or threads only wait longer"
)


def lock(scene: Scene) -> Bottleneck | None:
    """Names a lock if all but about one of the threads that hold requests wait for it. If that one uses a whole CPU, a
    short CPU would look the same, except that the others would be runnable. If it is always the same one that computes,
    the others are idle. Where slots were not tried, requests must hold their threads for longer than the first answers
    took."""
    pool = most_locked(scene)
    if pool is None or not scene.queues or scene.go_runs is not None or _hold_no_longer(pool, scene):
        # Threads that are parked until a result comes look the same, but do not wait for each other. Neither do Go's:
        # goroutines wait for a lock without a thread.
        return None
    waiting, past = _locked(pool, scene), past_lock(pool, scene)
    holder = "" if past >= HOLDER_LEAST else f"no thread is seen to hold it: on average {count(past)} are past it"
    idle = past < NOBODY and (waiting < FEW_WAIT or _idles_beside_others(pool, scene))
    idle = idle or (past < HOLDER_LEAST and runs_tasks(pool, scene))
    one_at_a_time = scene.tried is not None and scene.tried.slots.one_at_a_time
    if one_at_a_time and _nobody_is_called(scene) and not scene.is_far:  # a full link lets one at a time through, too
        past = 1.0  # threads that read or write outside of the lock were counted as past it
    more_are_past = past > HOLDER_MOST or _serves_more_than(UNSEEN_PAST * (max(past, 1.0) + pool.use.on_cpu), scene)
    always_the_same = pool.use.on_cpu >= HOLDER_LEAST and pool.busiest >= ALONE * pool.use.on_cpu
    if idle or more_are_past or always_the_same or scene.value("run_wait_cores") >= OTHERS_WAIT * max(1.0, waiting):
        return None
    unseen = waiting >= UNSEEN_AMONG and not scene.link_may_limit
    if past < HOLDER_LEAST and (not unseen or pool_too_small(scene) is not None):
        return None
    if not _explained(max(past, 1.0), scene) or _waits_for_one_thread(pool, scene):
        return None
    if _waits_for_the_cpu(pool, scene):
        return None
    computes = pool.use.on_cpu >= COMPUTES and (scene.cpus or 0.0) >= MORE_THAN_ONE
    interpreter = f"; if the threads compute in Python or Ruby, it is the interpreter's lock: {MORE_PROCESSES}"
    return verdict(
        BottleneckName.LOCK,
        [
            f"{count(waiting)} `{pool.name}` threads wait for a lock",
            holder or _holders(max(past, 1.0)),
            cpu_used(scene),
        ],
        more=interpreter if computes else "",
    )


def interpreters_lock(scene: Scene) -> Bottleneck | None:
    """Names an interpreter's lock if several threads share one CPU in each busy process, while CPUs idle and others
    wait for a lock. Those that are in a call meanwhile look as if the dependency let no more in, or as if a pool behind
    an event loop had no more threads."""
    pools = scene.workers + scene.loops
    mine = (pool for pool in pools if _has_interpreters_lock(pool, scene))
    pool = max(mine, key=lambda pool: _locked(pool, scene), default=None)
    full = [used for used in scene.process_cores if COMPUTES <= used <= ONE_COMPUTES]
    used = scene.value("subject_cpu_cores")
    if pool is None or not full or not scene.queues or (scene.cpus or 0.0) < MORE_THAN_ONE:
        return None
    if sum(full) < ALONE * used or max(each.busiest for each in scene.pools) >= ALONE * max(full):
        return None  # others compute as well, or one thread by itself
    waiting = _locked(pool, scene)
    if waiting < 1 or scene.value("run_wait_cores") >= OTHERS_WAIT * waiting:
        return None
    each = "" if len(full) == 1 else f" in each of {len(full)} processes"
    return verdict(
        BottleneckName.LOCK,
        [
            f"its threads use {significant(used)} of {scene.cpus:.3g} CPUs together, one at a time{each}",
            f"{count(waiting)} `{pool.name}` threads wait for a lock",
        ],
        advice=f"{MORE_PROCESSES}: the interpreter's lock lets one thread of each compute at a time (Python, Ruby); "
        "more threads only wait longer",
    )


def _waits_for_the_cpu(pool: WatchedPool, scene: Scene) -> bool:
    """True if the CPU is full and not with the work of one holder: with something else, with the holders of several
    locks, as each process of Python or Ruby has its own, or with one that a CPU quota stops most of the time. One lock
    of several processes lets only one of their threads be on a CPU or ready for it."""
    if pool.use.on_cpu < HOLDER_LEAST:
        return scene.cpu_share >= LOOP_BUSY
    several = len(_busy_processes(scene)) > 1 and pool.use.on_cpu + pool.use.run_wait > HOLDER_MOST
    halted = scene.value("cpu_throttled_share") >= THROTTLED and (scene.cpus or 0.0) < COMPUTES
    return scene.fills_its_cpus and (several or halted)


def _busy_processes(scene: Scene) -> list[float]:
    """The CPUs used by each of the subject's processes that does a notable part of the work."""
    least = BUSY_PROCESS * sum(scene.process_cores)
    return [used for used in scene.process_cores if used > 0 and used >= least]


def past_lock(pool: WatchedPool, scene: Scene) -> float:
    """The mean number of the pool's threads that are past the lock for which most of them wait, as far as it shows:
    they are on a CPU, or wait for the same thing."""
    return max(pool.use.on_cpu, *_blocked_past(pool, scene).values())


def _holders(past: float) -> str:
    number = count(past)
    return "1 thread at a time holds the lock" if number == "1" else f"on average {number} threads are past the lock"


def disk(scene: Scene) -> Bottleneck | None:
    """Names the disk if most threads that could go on wait for it, and requests queue for a thread or for a lock that
    one of these holds. A queue shows by the number of requests, too: the fastest answer does not show it if a lock can
    be had out of turn, as in Go. A loop of one thread is left out: if it waits for the disk it is blocked, since other
    threads could serve meanwhile."""
    pools = [*scene.workers, *(pool for pool in scene.loops if pool.use.threads > ONE_LOOP)]
    pool = max(pools, key=lambda pool: pool.blocked_on("disk"), default=None)
    if pool is None or scene.only_users_limit or not (scene.queues or _more_than_threads(pool, scene)):
        return None
    waiting = pool.blocked_on("disk")
    elsewhere = sum(waits for kind, waits in _blocked_past(pool, scene).items() if kind not in ("disk", "poll"))
    going_on = waiting + elsewhere + pool.use.on_cpu + pool.use.run_wait
    if waiting < HOLDER_LEAST or waiting < DISK_SHARE * going_on:
        return None
    evidence = [threads_at(pool, waiting, KINDS["disk"])]
    if pool in scene.workers and (locked := _locked(pool, scene)) >= 1:
        evidence.append(f"{count(locked)} others wait for a lock that one of these holds")
    if stalled := scene.value("psi_io_share"):
        evidence.append(f"something on this machine waited for a disk {share(stalled)} of the time")
    return verdict(BottleneckName.DISK, [*evidence, cpu_used(scene)])


def downstream(scene: Scene) -> Bottleneck | None:
    """Names a dependency if at most K threads at once are past a point at which the others wait, or if event loops
    idle while requests queue."""
    return few_are_let_in(scene) or _loop_waits_for_downstream(scene)


def few_are_let_in(scene: Scene) -> Bottleneck | None:
    """Names a dependency if at most K threads at once are past a point at which the others wait. If the server calls
    nobody, that point is a semaphore; if all its own connections are in use, it is a connection pool."""
    pool = most_locked(scene)
    if pool is not None and scene.queues:
        past = _blocked_past(pool, scene)
        if _nobody_is_called(scene):
            del past["poll"]  # events of their callers
        kind = max(past, key=lambda kind: past[kind])
        if past[kind] > HOLDER_MOST:
            name, where = BottleneckName.DOWNSTREAM, "in a call to the dependency" if kind in CALLING else "let in"
            if _nobody_is_called(scene):
                name, where = BottleneckName.HIDDEN_LIMIT, "let in"
            elif scene.outgoing is not None and all_connections_are_used(scene):
                return _connections_too_few(pool, past[kind], scene.outgoing, scene)
            return verdict(
                name,
                [
                    f"only {count(past[kind])} `{pool.name}` threads are {where} at once, {KINDS[kind]}",
                    f"{count(_locked(pool, scene))} others wait for their turn",
                    cpu_used(scene),
                ],
            )
    return None


def _connections_too_few(pool: WatchedPool, past: float, connections: int, scene: Scene) -> Bottleneck:
    return verdict(
        BottleneckName.HIDDEN_LIMIT,
        [
            f"only {count(min(past, connections))} `{pool.name}` threads have a connection at once, of the "
            f"{connections:,} that the server has open",
            f"{count(_locked(pool, scene))} others wait for their turn",
            cpu_used(scene),
        ],
        advice="give the connection pool more connections, unless the dependency serves no more at once; more threads "
        "only wait longer",
    )


def queues_at_the_other_end(scene: Scene) -> Bottleneck | None:
    """Names a dependency if threads wait for answers on connections of the server's own, each on one, and they are far
    more than the requests served at once: it is the other end that lets them wait."""
    if scene.tried is None or not scene.queues or not scene.outgoing:
        return None
    slots, outgoing = scene.tried.slots, scene.outgoing
    for pool in sorted(scene.workers + scene.loops, key=lambda pool: -pool.use.threads):
        past = _blocked_past(pool, scene)
        waiting = min(past["socket"] + (0.0 if pool.loops else past["poll"]), float(outgoing))
        if waiting >= max(AT_THE_OTHER_END, AT_THE_OTHER_END * slots.value):
            return verdict(
                BottleneckName.DOWNSTREAM,
                [
                    f"{count(waiting)} `{pool.name}` threads wait for responses on the server's own {outgoing:,} "
                    "connections",
                    slots_served(slots),
                    cpu_used(scene),
                ],
                advice=ASKED_TOO_MUCH,
            )
    return None


def slow_downstream(scene: Scene) -> Bottleneck | None:
    """Names a dependency if every request has its thread, all of these wait on sockets, and answers take a multiple of
    what the first ones took, before anything queued: it is the other end that queues them. From another node the other
    end may be the caller, behind a full link, unless the server has connections of its own."""
    if scene.is_far and _nobody_is_called(scene):
        return None
    for pool in scene.workers:
        waiting = pool.blocked_on("socket", "poll") - _idle(pool, scene)
        queued = _queued(pool, scene)
        if waiting < 2 or waiting < POOL_BUSY * min(pool.use.threads, scene.present) or not scene.rate_per_s:
            continue
        if (scene.outgoing or 0) >= CALLS * waiting and serves_fewer(waiting, scene):
            own = f"they use {scene.outgoing:,} connections of the server's own, and few are answered at once"
            return verdict(BottleneckName.DOWNSTREAM, [threads_at(pool, waiting, KINDS["socket"]), own])
        took_ns = time_in_pool_ns(waiting, scene.rate_per_s)
        if queued > QUEUED_LEAST * pool.use.threads or not scene.queues or scene.empty_ns is None:
            continue
        if took_ns >= CONGESTION * scene.empty_ns:
            return verdict(
                BottleneckName.DOWNSTREAM,
                [
                    threads_at(pool, waiting, KINDS["socket"]),
                    held_longer(took_ns, scene.empty_ns),
                    cpu_used(scene),
                ],
                advice=SLOWS_DOWN,
            )
    return None


def slower_calls_ns(pool: WatchedPool, scene: Scene) -> float | None:
    """The time in ns that a request holds a thread of the pool in a call, if that is twice what the first one took in
    all: what is called may give way, not the pool. None if most threads are in no call, or if slots were tried, which
    tell more."""
    calling = pool.blocked_on("socket") if pool.loops else pool.blocked_on(*CALLING)
    if scene.tried is not None or not scene.empty_ns or calling < OFF_POLL_SHARE * pool.use.threads:
        return None
    took_ns = time_in_pool_ns(calling, max(scene.rate_per_s, 1e-9))
    return took_ns if took_ns >= SLOWED * scene.empty_ns else None


def pool_too_small(scene: Scene, queue: float = QUEUED_LEAST) -> Bottleneck | None:
    """Names a pool if all its threads are busy, but not for want of a CPU or a lock, and requests queue or are turned
    away. `queue`: the least requests without a thread, for each thread."""
    for pool in sorted(scene.workers, key=lambda pool: pool.use.threads):
        threads, queued = pool.use.threads, _queued(pool, scene)
        waits = {kind: pool.blocked_on(kind) for kind in OUTSIDE}
        # Idle threads that do not wait on conditions wait for the next request of their connection.
        waits["socket"] -= min(waits["socket"], max(0.0, _idle(pool, scene) - pool.blocked_on("lock")))
        busy = pool.use.on_cpu + pool.use.run_wait + sum(waits.values())
        without_thread = []
        if _more_than_threads(pool, scene, queue):
            without_thread.append(f"{count(queued)} requests queue")
        if scene.turns_away:
            without_thread.append(f"{share(scene.turned_away_share)} of requests are turned away (status 429 or 503)")
        seen = bool(pool.use.blocked_on) or _computes_beside_idle_cpus(pool, scene)
        if not seen or busy < POOL_BUSY * threads or not without_thread:
            continue
        if scene.go_runs is not None and threads < ONE_LOOP:
            continue  # the thread by which Go watches over the others, which sleeps
        if serves_fewer(threads, scene) or is_passed_by(threads, scene) or _others_stand_in(pool, scene):
            continue  # the threads wait for each other, or for something else; or requests need none of them, or others
        kind = max(waits, key=lambda kind: waits[kind])
        part, state = max((waits[kind], KINDS[kind]), (pool.use.on_cpu, "on a CPU"))
        of_them = "all" if count(part) == count(busy) else count(part)
        doing = f" ({share(part)} {state})" if count(threads) == "1" else f", {of_them} of them {state}"
        return verdict(
            BottleneckName.POOL_TOO_SMALL,
            [
                threads_at(pool, busy, "holding a request") + doing,
                " and ".join(without_thread),
                cpu_used(scene),
            ],
            pool=f"`{pool.name}`",
            more="" if slower_calls_ns(pool, scene) else f": {_enough_threads(pool, busy, queued, scene)}",
        )
    return None


def _computes_beside_idle_cpus(pool: WatchedPool, scene: Scene) -> bool:
    """True if several threads compute so much that none was seen to wait for anything, and a CPU is left for another
    one. A single one is told by `one_thread`. Threads that spin for want of work look the same: requests must queue, or
    be turned away. So do event loops if the kernel shows of no thread what it waits for."""
    threads, shown = pool.use.threads, any(each.use.blocked_on for each in scene.pools)
    if threads < ONE_LOOP or not shown or not (scene.queues or scene.turns_away):
        return False
    return pool.use.on_cpu >= POOL_BUSY * threads and (scene.cpus or 0.0) >= threads + HALF_A_CPU


def _others_stand_in(pool: WatchedPool, scene: Scene) -> bool:
    """True if the pool's threads compute, and idle threads of their runtime would take what waits, if it were let in:
    those of Go, or those from which they were told apart by what they do."""
    computes = pool.blocked_on(*OUTSIDE) < POOL_BUSY * pool.use.threads
    of_tasks = RUNS_TASKS.search(pool.name) or RUNS_OTHERS.search(pool.name)
    told_apart = of_tasks is not None and pool.name == group_name(pool.name.partition(" (")[0], WORK)
    return computes and (scene.go_runs is not None or told_apart)


def enough_for_rate(busy: float, threads: float, scene: Scene) -> float | None:
    """How many threads an open load needs: arrival rate x time that a request holds a thread (Little's law), and more
    than there are. None with users, or if a rate is not known."""
    offered, done = scene.value("offered_rate_per_s"), scene.value("goodput_per_s")
    return max(busy * offered / done, threads + 1) if scene.users is None and offered and done else None


def _enough_threads(pool: WatchedPool, busy: float, queued: float, scene: Scene) -> str:
    """Says how many threads would be enough. With an open load: as many as its rate needs. With users: one for each
    request that they have under way, or would have if none were turned away. Also, where that is less, how many fill
    the server's CPUs, if each uses as much as one does now; but not from little use, much of which is no thread's of
    the pool. If an interpreter's lock ends that sooner, it says where instead."""
    threads = pool.use.threads
    enough, told = queued + threads, "with {}, no request would queue"
    if (needed := enough_for_rate(busy, threads, scene)) is not None:
        enough, told = needed, "the offered rate needs at least {}"
    elif scene.users is not None and scene.turns_away:
        enough, told = float(scene.users), "with {}, no request would be turned away"
    if more_processes := _then_more_processes(pool, enough, scene):
        return more_processes
    fill_cpu = threads / scene.cpu_share if scene.cpu_share >= TELLS_OF_MORE else enough
    beyond = f"; {cpu_is_full_from(fill_cpu)}" if fill_cpu < enough else ""
    return told.format(count(enough)) + beyond


def _then_more_processes(pool: WatchedPool, enough: float, scene: Scene) -> str:
    """Says up to how many threads each process has use for, if its interpreter's lock lets it use one CPU, which fewer
    than `enough` threads in all fill, and the server has CPUs for more processes; else empty. Each thread is taken to
    use as much as one does now."""
    cores = _busy_processes(scene)
    if not cores or not _has_interpreters_lock(pool, scene):
        return ""
    each, used = pool.use.threads / len(cores), sum(cores) / len(cores)
    cpus_are_left = (scene.cpus or 0.0) >= MORE_THAN_ONE * len(cores)
    if each < ONE_LOOP or used < TELLS_OF_MORE or not cpus_are_left or each / used * len(cores) >= enough:
        return ""
    more = round(each / used) > round(each)
    first = f"up to about {round(each / used)} in each process, and then in more processes" if more else ""
    return f"{first or 'in more processes'}, since the interpreter's lock lets one thread of each compute at a time"


def _has_interpreters_lock(pool: WatchedPool, scene: Scene) -> bool:
    """True if the pool's threads run Python or Ruby, by their names. Ruby in a JVM has no such lock."""
    return not _in_jvm(scene) and (scene.only_python or INTERPRETED.search(pool.name) is not None)


def parked_pool(scene: Scene) -> Bottleneck | None:
    """Names a pool if all its threads wait on conditions with requests in hand, for results or timers, and more
    requests queue: some runtimes sleep so. No thread is past a lock that they could wait for. Threads that run virtual
    threads are left out, and those of Go: what waits holds none of them."""
    if scene.go_runs is not None:
        return None
    for pool in sorted(scene.workers, key=lambda pool: pool.use.threads):
        threads = pool.use.threads
        parked = pool.blocked_on("lock")
        if _idles_beside_a_loop(pool, scene) or _serves_more_than(OUTSIDE_A_POOL * threads, scene):
            continue
        if _waits_for_one_thread(pool, scene) or runs_tasks(pool, scene):
            continue
        if max(_blocked_past(pool, scene).values()) >= NOBODY or pool.switches_per_s < WOKEN * scene.rate_per_s:
            continue
        if parked < POOL_BUSY * threads or not _more_than_threads(pool, scene) or not scene.queues:
            continue
        if scene.tried is not None and not serves_about(threads, scene):
            continue  # idle threads of a runtime, whose requests wait without one
        return verdict(
            BottleneckName.POOL_TOO_SMALL,
            [
                threads_at(pool, parked, "waiting for results or timers"),
                f"{count(_queued(pool, scene))} requests queue",
                cpu_used(scene),
            ],
            pool=f"`{pool.name}`",
            more=", or wait without holding a thread",
        )
    return None


def stands_still(loop: WatchedPool) -> bool:
    """True if no thread of the loop runs or waits for events half of the time."""
    return loop.use.on_cpu + loop.use.run_wait + loop.blocked_on("poll") < STANDS_STILL


def never_waits(pool: WatchedPool, scene: Scene) -> bool:
    """True if the pool's threads run, or are ready to run, nearly all the time."""
    return pool.use.on_cpu + pool.use.run_wait >= ALONE * scene.given * pool.use.threads


def accepts_too_late(scene: Scene) -> bool:
    """True if a fifth of all requests in the system, and at least one, wait in the accept queue, on average."""
    return scene.accept_queue >= max(1.0, ACCEPT_QUEUE_SHARE * scene.present)


def _loop_waits_for_downstream(scene: Scene) -> Bottleneck | None:
    """Names a dependency if event loops wait for events while requests queue: neither the loops nor the CPU are the
    limit."""
    pool = max(scene.loops, key=lambda pool: pool.switches_per_s, default=None)
    at_work = [each for each in scene.workers if scene.tried is None or not _idles_beside_a_loop(each, scene)]
    if pool is None or at_work or not scene.queues or scene.empty_ns is None or scene.loaded_ns is None:
        return None
    if scene.value("engine_cpu_share_max") >= ENGINE_NEARLY_FULL:
        return None  # answers may well lie unread in the load engine
    if _nobody_is_called(scene) or calls_no_more(scene):
        return None
    idle = pool.blocked_on("poll")
    if scene.tried is not None and idle >= STANDS_STILL:
        idle += pool.blocked_on("lock")  # if threads take turns to wait for events, all but one are parked
    if idle < OFF_POLL_SHARE * pool.use.threads or scene.present < 2:
        return None
    return verdict(
        BottleneckName.DOWNSTREAM,
        [
            f"the fastest response takes {format_duration(scene.loaded_ns)} under load; the first took "
            f"{format_duration(scene.empty_ns)}",
            f"`{pool.name}` waits for events {share(idle / pool.use.threads)} of the time",
            cpu_used(scene),
        ],
        advice="requests queue at a dependency that is called without a thread: give it more capacity",
    )


def _idles_beside_others(pool: WatchedPool, scene: Scene) -> bool:
    """True if threads of the same name serve requests and were told apart from this pool by what they do, as in Go,
    Node and Granian: if no thread of the pool is seen past a lock, its threads wait for work. Not if about as many of
    them wait as there are requests: then each request holds one, as in Tomcat, whose holder may sleep as they wait."""
    beside = any(other.name.startswith(f"{pool.name} (") for other in scene.workers + scene.loops)
    return beside and _locked(pool, scene) < EACH_HOLDS_ONE * scene.present


def runs_tasks(pool: WatchedPool, scene: Scene) -> bool:
    """True if the pool's threads, by their names, run virtual threads or coroutines in a JVM, and hardly more of them
    wait on conditions than there are CPUs, for each of which there is one: they are idle, since what they run waits for
    locks and results without a thread."""
    few = pool.blocked_on("lock") < max(FEW_WAIT, (1 + ABOUT) * (scene.cpus or 0.0))
    return few and _in_jvm(scene) and RUNS_TASKS.search(pool.name) is not None


def _in_jvm(scene: Scene) -> bool:
    return any(each.name == VM_THREAD for each in scene.pools)


def _idles_beside_a_loop(pool: WatchedPool, scene: Scene) -> bool:
    """True if the pool is of idle threads that share an event loop's name and were told apart from it by what they do,
    as in Go: all are parked. They are not idle if as many requests are served at once as there are of them (Tomcat's),
    unless the server has about as many connections of its own and is no JVM: a thread of Tomcat that waits for the
    result of an asynchronous call holds one, while Go has a few idle threads whatever it serves."""
    threads, tried = pool.use.threads, scene.tried
    beside = any(loop.name == f"{pool.name} ({LOOP})" for loop in scene.loops)
    if not beside or pool.blocked_on("lock") < PARKED * threads:
        return False
    as_many = tried is not None and abs(tried.slots.value - threads) <= ABOUT * threads
    return not as_many or (all_connections_are_used(scene) and not _in_jvm(scene))


def _serves_more_than(threads: float, scene: Scene) -> bool:
    return scene.tried is not None and scene.queues and scene.tried.slots.low > threads


def _nobody_is_called(scene: Scene) -> bool:
    """True if the server was loaded with twice the users and had no TCP connection of its own: what holds the requests
    is in it."""
    return scene.outgoing == 0


def calls_no_more(scene: Scene) -> bool:
    """True if the server has hardly more connections of its own than it serves at once: the limit may be its own."""
    return scene.tried is not None and scene.queues and (scene.outgoing or 0) <= CALLS_NO_MORE * scene.tried.slots.value


def without_a_thread_each(scene: Scene) -> float | None:
    """The number of threads of the largest pool, if no pool, nor all together, has about as many as requests are served
    at once; else None."""
    if scene.tried is None or not scene.workers:
        return None
    sizes = [pool.use.threads for pool in scene.workers + scene.loops]
    return None if any(serves_about(size, scene) for size in (*sizes, sum(sizes))) else max(sizes)


def serves_about(threads: float, scene: Scene) -> bool:
    """True if as many requests are served at once as there are threads, within the interval."""
    if scene.tried is None:
        return False
    slots = scene.tried.slots
    return (1 - ABOUT) * slots.low <= threads <= (1 + ABOUT) * slots.high


def all_connections_are_used(scene: Scene) -> bool:
    """True if the server serves about as many requests at once as it has connections of its own: if requests waited at
    the other end, it would have more connections than that. The limit is their number, whatever the other end could
    do."""
    return scene.tried is not None and 0 < (scene.outgoing or 0) <= ALL_CONNECTIONS_USED * scene.tried.slots.value


def has_request_in_each(scene: Scene) -> bool:
    """True if all threads of a pool have a request in hand: about as many requests are served at once as it has
    threads, or about as many are in the system without waiting to be accepted."""
    if scene.tried is None or not scene.queues:
        return False
    inside = (scene.tried.slots.value, scene.present - scene.accept_queue)
    pools = (pool for pool in scene.workers if pool.switches_per_s >= WOKEN * scene.rate_per_s)
    return any(abs(count - pool.use.threads) <= ABOUT * pool.use.threads for pool in pools for count in inside)


def cpu_is_full_from(threads: float) -> str:
    """Words the number of threads that fill the server's CPUs."""
    return f"from about {round(threads):,} on, CPU is the limit"


def is_passed_by(threads: float, scene: Scene) -> bool:
    """True if far more requests are served at once than there are busy threads, so that they do not need one: these do
    other work, such as a clock or a profiler, whose thread sleeps and wakes all the time."""
    if scene.tried is None or scene.turns_away:
        return False
    slots = scene.tried.slots
    return slots.low > (OUTSIDE_A_POOL if slots.more_is_served else FAR_OUTSIDE) * threads


def serves_fewer(threads: float, scene: Scene) -> bool:
    """True if certainly fewer requests are served at once than there are busy threads: more threads would gain
    nothing."""
    if scene.tried is None or not scene.queues or scene.turns_away:
        return False
    return scene.tried.slots.high < POOL_BUSY * threads


def most_locked(scene: Scene) -> WatchedPool | None:
    """The pool with the most threads that hold requests and wait for a lock, if that is most of those threads."""
    pool = max(scene.workers, key=lambda pool: _locked(pool, scene), default=None)
    if pool is None:
        return None
    waiting = _locked(pool, scene)
    serving = min(pool.use.threads, scene.at_server)
    return pool if waiting >= 1 and waiting >= LOCKED_SHARE * serving else None


def _locked(pool: WatchedPool, scene: Scene) -> float:
    return max(0.0, pool.blocked_on("lock") - _idle(pool, scene))


def _blocked_past(pool: WatchedPool, scene: Scene) -> dict[str, float]:
    """The mean number of threads that wait for something else than a lock, by what it is: threads past a lock, or in a
    call to a downstream, all wait for the same thing. Idle threads that each serve a connection wait on their sockets,
    and are taken off. If users never pause there are none of these: idle threads then wait on conditions."""
    found = {kind: pool.blocked_on(kind) for kind in OUTSIDE}
    idle = _idle(pool, scene)
    on_conditions = scene.tried is not None and pool.blocked_on("lock") >= idle
    return found if on_conditions else {**found, "socket": max(0.0, found["socket"] - idle)}


def waits_in_hand(scene: Scene) -> float:
    """The mean number of threads that have a request in hand and wait for something else than a CPU or memory: also on
    conditions, on which a JVM and .NET park those that sleep or await a result, less those that are idle for certain.
    Of event loops, which workers that take their next connection by select look like, without waits for events and on
    conditions."""
    of_loops = sum(pool.blocked_on(*IN_HAND) for pool in scene.loops)
    return of_loops + sum(_waiting_in_hand(pool, scene) for pool in scene.workers)


def _waiting_in_hand(pool: WatchedPool, scene: Scene) -> float:
    """Like `waits_in_hand`, of one pool of workers. Not on conditions where that is mostly the turn of an interpreter's
    lock, or an idle thread of Go."""
    if scene.go_runs is not None or _has_interpreters_lock(pool, scene):
        return sum(waits for kind, waits in _blocked_past(pool, scene).items() if kind != "memory")
    idle_too = max(0.0, pool.blocked_on("lock", "socket") - _idle(pool, scene))
    return idle_too + pool.blocked_on(*NEVER_IDLE)


def _queued(pool: WatchedPool, scene: Scene) -> float:
    """The number of requests that are neither with a thread of this pool nor, for certain, with one of another."""
    others = sum(active_threads(other.use) for other in scene.workers + scene.loops if other is not pool)
    return scene.at_server - max(pool.use.threads, pool.alive_max) - others


def _more_than_threads(pool: WatchedPool, scene: Scene, queue: float = QUEUED_LEAST) -> bool:
    """True if requests have no thread: at least one, and `queue` for each thread of the pool."""
    return _queued(pool, scene) >= max(1.0, queue * pool.use.threads)


def _explained(threads: float, scene: Scene) -> bool:
    """True if a request spends a notable share of the time that it takes when nothing queues with so many threads. That
    time is one user's, if one was tried: the first answer of a JVM may take thirty times as long."""
    alone_ns = scene.empty_ns if scene.tried is None else scene.tried.alone_ns - scene.tried.slots.network_ns
    if alone_ns is None or not scene.rate_per_s:
        return True
    return time_in_pool_ns(threads, scene.rate_per_s) >= EXPLAINED * alone_ns


def _hold_no_longer(pool: WatchedPool, scene: Scene) -> bool:
    """True if requests hold the pool's threads little longer than the first answers took, before anything queued, so
    that these threads hardly wait for each other (Little's law). Where half of them wait for a lock, a request holds
    its thread for twice the time that it takes alone, or longer. Slots, where they were tried, tell more."""
    if scene.tried is not None or scene.empty_ns is None or not scene.rate_per_s:
        return False
    holding = min(pool.use.threads, scene.present)
    return time_in_pool_ns(holding, scene.rate_per_s) < CONGESTION * scene.empty_ns


def _waits_for_one_thread(pool: WatchedPool, scene: Scene) -> bool:
    """True if one thread of another pool does all of that pool's work, and has no time left, or only waits for a CPU in
    the rest of it: the threads wait for its results, not for a lock."""
    others = [other for other in scene.pools if other is not pool and not other.compiles]
    busy = any(other.busiest >= ALONE * scene.given and other.busiest >= ALONE * other.use.on_cpu for other in others)
    full = (other for other in others if other.use.threads < ONE_LOOP and never_waits(other, scene))
    return busy or any(other.use.on_cpu > pool.use.on_cpu for other in full)


def _idle(pool: WatchedPool, scene: Scene) -> float:
    return max(0.0, pool.use.threads - scene.at_server)
