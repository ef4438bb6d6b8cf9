"""Names event loops that are blocked or busy, and pools that look like them from outside: workers that take their next
connection by select or epoll, threads that share a loop's name, and threads that read requests by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from powerband.analyze.stats.slots import ONE_AT_A_TIME
from powerband.analyze.trial.bottleneck.clauses import KINDS, count, cpu_used, stolen, threads_at, verdict
from powerband.analyze.trial.bottleneck.scene import SERVING_WAKES, Scene
from powerband.analyze.trial.bottleneck.thread_rules import (
    ABOUT,
    HOLDER_LEAST,
    HOLDER_MOST,
    KEPT,
    LOCKED_SHARE,
    LOOP_BUSY,
    NOBODY,
    OFF_POLL_SHARE,
    ONE_LOOP,
    POOL_BUSY,
    STANDS_STILL,
    accepts_too_late,
    cpu_is_full_from,
    never_waits,
    serves_about,
    serves_fewer,
    stands_still,
)
from powerband.base.units import share
from powerband.model.bottlenecks import BottleneckName
from powerband.model.results import Bottleneck
from powerband.readings.pools import WatchedPool
from powerband.readings.thread_groups import ACCEPTS, FREE, group_name

# The most sockets of a process that serves one connection at a time, with the one it listens on; its parent's are
# counted too.
HELD_EACH = 3
BLOCKS_LOOP = ("sleep", "socket", "disk", "memory")
WOKEN_AT_ONCE = 0.5  # of the wake-ups if one wake-up handed a request to each thread of a pool: arbitrary
MOSTLY_RUNS = 0.5  # of the time, a thread that never waits is on a CPU
OTHERS_RUN = 0.5  # CPUs used by the other threads of a pool: arbitrary, more than helpers of a runtime use
SOME_WAIT = 2.0  # processes that wait for a lock: a single one may wait for a thread of its own
TOLD_APART = 1.0  # `polled` of threads of which each was seen to be an event loop

_ONE_ANOTHER = (
    "look for what only so many may hold or use at once (a lock, a row, a file, a connection): more event loops would "
    "only wait for it, too"
)


def event_loop_blocked(scene: Scene) -> Bottleneck | None:
    """Names a blocked event loop if one waits for something else than events, or has one CPU to itself and would need
    more. Workers that wait for their next connection by select or epoll look like loops: if connections wait to be
    accepted, or before a proxy's socket, it names a pool with too few workers instead, unless fewer requests are served
    at once."""
    if scene.only_users_limit:
        return None
    for pool in (*scene.loops, *(pool for pool in scene.workers if _reads_for_itself(pool, scene))):
        threads = pool.use.threads
        if (behind := _pool_beside_a_loop(pool, scene)) is not None:
            return behind
        kinds: tuple[str, ...] = BLOCKS_LOOP
        if stands_still(pool) or waits_for_locks(pool) > OFF_POLL_SHARE * threads:
            kinds = (*kinds, "lock")
        off_poll = pool.blocked_on(*kinds)
        if off_poll > OFF_POLL_SHARE * threads and scene.present > threads:
            kind = max(kinds, key=lambda kind: pool.use.blocked_on.get(kind, 0.0))
            waits, used = threads_at(pool, off_poll, KINDS[kind]), cpu_used(scene)
            if _one_connection_each(alike := _beside_each_other(pool, scene), scene):
                return _workers_too_few(alike, kind, scene)
            return verdict(
                BottleneckName.EVENT_LOOP_BLOCKED,
                [f"{waits} instead of waiting for events", f"{count(scene.present)} requests are in flight", used],
                advice=_ONE_ANOTHER if serves_fewer(off_poll, scene) else "",
            )
        spread = "spread the connections over more event loops, or move computations off them"
        if (busy := busy_thread(BottleneckName.EVENT_LOOP_BLOCKED, pool, scene, advice=spread)) is not None:
            return _computing_workers_too_few(pool, scene) or busy
    return None


def _workers_too_few(alike: Sequence[WatchedPool], kind: str, scene: Scene) -> Bottleneck | None:
    """Names a pool of workers that each serve one connection at a time. `kind`: what most of them wait for. None if
    there are more of them than requests are served at once: they wait for each other, or for a dependency. A lock, such
    as that of a file, if no more than one request at a time is served and all but about one wait for it."""
    name, threads = _of_processes(alike[0]), sum(pool.use.threads for pool in alike)
    locked = sum(pool.blocked_on("lock") for pool in alike)
    past = max(sum(pool.blocked_on(each) for pool in alike) for each in BLOCKS_LOOP)
    past = max(past, sum(pool.use.on_cpu for pool in alike))
    alone = scene.tried is None or scene.tried.slots.value < ONE_AT_A_TIME
    if alone and locked >= max(SOME_WAIT, LOCKED_SHARE * threads) and HOLDER_LEAST <= past <= HOLDER_MOST:
        waits = f"{count(locked)} `{name}` threads wait for a lock"
        return verdict(BottleneckName.LOCK, [waits, "1 thread at a time holds the lock", cpu_used(scene)])
    if serves_fewer(threads, scene) or scene.present <= threads:
        return None
    workers = replace(alike[0], use=replace(alike[0].use, pool=name, threads=threads))
    waiting = sum(pool.blocked_on(*{*BLOCKS_LOOP, kind}) for pool in alike)
    return verdict(
        BottleneckName.POOL_TOO_SMALL,
        [
            threads_at(workers, waiting, KINDS[kind]),
            f"{count(scene.present - threads)} requests wait until a thread takes their connection",
            cpu_used(scene),
        ],
        advice=f"start more of `{name}`, since each serves one request at a time; or let it serve others while it "
        "waits",
    )


def _computing_workers_too_few(pool: WatchedPool, scene: Scene) -> Bottleneck | None:
    """Names a pool of workers that look like loops and compute all the time, if it was seen that each holds one
    connection at a time."""
    name, threads = _of_processes(pool), pool.use.threads
    computing = pool.use.on_cpu + pool.use.run_wait
    all_compute = computing >= POOL_BUSY * threads and scene.present > threads and not serves_fewer(threads, scene)
    if not (scene.held and all_compute and scene.cpu_share and _one_connection_each([pool], scene)):
        return None
    return verdict(
        BottleneckName.POOL_TOO_SMALL,
        [
            threads_at(replace(pool, use=replace(pool.use, pool=name)), computing, "computing"),
            f"{count(scene.present - threads)} requests wait until a thread takes their connection",
            cpu_used(scene),
        ],
        advice=f"start more of `{name}`, since each serves one request at a time; "
        f"{cpu_is_full_from(threads / scene.cpu_share)}",
    )


def busy_thread(name: BottleneckName, pool: WatchedPool, scene: Scene, *, advice: str = "") -> Bottleneck | None:
    """The bottleneck of that name if one thread of the pool has no time left, else None; also if other programs take a
    part of its CPU, but not most of it, while the server has others. `advice`: as in `verdict`."""
    if pool.busiest_at_most:
        return None
    if pool.busiest >= LOOP_BUSY * scene.given and not stand_in(pool, scene):
        busy = f"one `{pool.name}` thread is on a CPU {share(pool.busiest)} of the time"
    elif pool.use.threads < ONE_LOOP < (scene.cpus or 0) and pool.busiest >= MOSTLY_RUNS and never_waits(pool, scene):
        busy = f"the only `{pool.name}` thread is on a CPU {share(pool.busiest)} of the time, and else waits for one"
    else:
        return None
    return verdict(name, [busy, cpu_used(scene), *stolen(scene)], advice=advice)


def stand_in(pool: WatchedPool, scene: Scene) -> bool:
    """True if the pool's threads stand in for each other, as Go's and tokio's: any of them waits for events while
    others are parked, and takes what is ready. One that always runs then holds nothing up, if others run as well; what
    Go's collector uses of them is not counted."""
    parks = 0 < pool.polled < TOLD_APART and pool.blocked_on("lock") >= 1
    others = pool.use.on_cpu - pool.busiest - scene.go_collecting_cores
    return (scene.go_runs is not None or parks) and others >= OTHERS_RUN


def waits_for_locks(pool: WatchedPool) -> float:
    """The mean number of threads that wait for a lock, of a pool whose threads were each seen to be an event loop: such
    a one does not idle on a condition. 0 for any other pool."""
    return pool.blocked_on("lock") if pool.polled >= TOLD_APART else 0.0


def _pool_beside_a_loop(pool: WatchedPool, scene: Scene) -> Bottleneck | None:
    """Names a pool that is too small if its threads share a name and a process with an event loop and could not be told
    apart, since any of them may wait for events while others are parked. One of them waits for events at all times, so
    that no request lies unread. As many as requests are served at once wait for something else, with a request each:
    these are the pool behind the loop."""
    if pool.polled >= TOLD_APART or not scene.queues:
        return None
    kind = max(BLOCKS_LOOP, key=lambda kind: pool.use.blocked_on.get(kind, 0.0))
    waiting, reads = pool.blocked_on(*BLOCKS_LOOP), pool.use.on_cpu + pool.use.run_wait + pool.blocked_on("poll")
    if waiting < ONE_LOOP or reads < STANDS_STILL or not serves_about(waiting, scene):
        return None
    return verdict(
        BottleneckName.POOL_TOO_SMALL,
        [
            f"{count(waiting)} `{pool.name}` threads are {KINDS[kind]}, about as many as requests are served at once",
            f"another one waits for events or runs {share(min(1.0, reads))} of the time",
            cpu_used(scene),
        ],
        advice=f"let more `{pool.name}` threads block at once (its runtime's limit of threads for blocking calls)",
    )


def _reads_for_itself(pool: WatchedPool, scene: Scene) -> bool:
    """True if the pool's threads are loops though never seen to wait for events, since they hang from the first request
    on. It shows by three things: no other thread is woken for requests, so none hands them any; all connections are
    taken and all users are served, so each thread serves many in turn; and as many requests are served at once as there
    are threads."""
    if scene.tried is None or not scene.queues or "starved_users" in scene.problems or accepts_too_late(scene):
        return False
    alone = all(other is pool or not _may_hand_to(pool, other, scene) for other in scene.pools)
    taken = sum(scene.held.values()) >= scene.present
    return alone and taken and pool.blocked_on("poll") < NOBODY and serves_about(pool.use.threads, scene)


def _may_hand_to(pool: WatchedPool, other: WatchedPool, scene: Scene) -> bool:
    """True if the other pool may hand requests to this one: it accepts connections for it, it is a loop that serves, or
    it serves or waits for events, and is woken often enough or always runs. If all threads of this pool end at the same
    time, the one that hands them the next requests is woken only once for all of them."""
    if other in scene.loops or other.name == group_name(pool.name, ACCEPTS):
        return True
    once_for_all = scene.rate_per_s / max(1.0, pool.use.threads)
    often = other.switches_per_s >= WOKEN_AT_ONCE * once_for_all or other.busiest >= LOOP_BUSY
    return often and (other in scene.workers or other.blocked_on("poll") > 0)


def _beside_each_other(pool: WatchedPool, scene: Scene) -> list[WatchedPool]:
    """The pool, and the other threads of its processes that wait as it does: if several threads of a process take
    connections, its first one may have been told apart."""
    beside = (each for each in scene.workers + scene.loops if _of_processes(each) == _of_processes(pool))
    return [
        each for each in beside if each is pool or each.blocked_on(*BLOCKS_LOOP) > OFF_POLL_SHARE * each.use.threads
    ]


def _one_connection_each(alike: Sequence[WatchedPool], scene: Scene) -> bool:
    """True if the processes of these pools hold a connection or two for each thread, besides those of their own, and
    take the next one when they are done; or if all other requests wait to be accepted, whatever sockets they have to a
    database; or if a router hands them requests. If it was not seen what they hold, it is True if many connections
    wait to be accepted."""
    if _behind_a_router(_of_processes(alike[0]), scene):
        return True
    # Threads may have other names than their process, as in Java: then all sockets are theirs.
    name, held = _of_processes(alike[0]), scene.held
    names = [of for of in held if of.startswith(name)] or list(held)
    if not names:
        return accepts_too_late(scene)
    of_callers = sum(held[of] - scene.inside.get(of, 0) for of in names) - (scene.outgoing or 0)
    threads = sum(pool.use.threads for pool in alike)
    accepted = scene.present - scene.accept_queue
    return of_callers <= HELD_EACH * (threads + 1) or abs(accepted - threads) <= ABOUT * threads


def _behind_a_router(name: str, scene: Scene) -> bool:
    """True if an idle process of that name keeps the callers' connections, and opens one of its own for each request,
    as uWSGI's does: the processes behind it take a request at a time."""
    idle = (pool for pool in scene.pools if pool.name == group_name(name, FREE))
    passes = any(pool.switches_per_s >= SERVING_WAKES * scene.rate_per_s for pool in idle)
    opened = (scene.outgoing or 0) + sum(scene.inside.values())  # recordings without the second count both as the first
    return passes and scene.connections_per_request <= KEPT and opened >= scene.present


def _of_processes(pool: WatchedPool) -> str:
    """A pool's name is that of its processes without the numbers at the end, with what its threads do in brackets."""
    return pool.name.partition(" (")[0]
