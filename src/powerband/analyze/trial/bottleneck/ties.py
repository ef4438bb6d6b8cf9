"""Finds a second candidate: another cause that a trial's figures would prove as well as the bottleneck that was named.

The rules name the first that has its evidence. In a few cases the figures of two causes are the same, seen from
outside, or both resources are nearly full: then both are named, with what would tell them apart. In: the bottleneck and
its scene. Out: the second candidate, or None, which is what most trials have. What a reader is told of
it: docs/methods/bottlenecks.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from powerband.analyze.trial.bottleneck.clauses import (
    cores,
    count,
    cpu_used,
    held_longer,
    outgoing_open,
    threads_at,
    verdict,
)
from powerband.analyze.trial.bottleneck.loop_rules import BLOCKS_LOOP
from powerband.analyze.trial.bottleneck.scene import CPU_SHORT_LEAST, Scene
from powerband.analyze.trial.bottleneck.thread_rules import (
    COMPUTES,
    HOLDER_LEAST,
    OFF_POLL_SHARE,
    ONE_COMPUTES,
    POOL_BUSY,
    SLOWS_DOWN,
    WOKEN,
    all_connections_are_used,
    calls_no_more,
    few_are_let_in,
    lock,
    most_locked,
    past_lock,
    pool_too_small,
    runs_tasks,
    serves_about,
    slower_calls_ns,
    without_a_thread_each,
)
from powerband.base.units import share, significant, with_article
from powerband.model.bottlenecks import BottleneckName
from powerband.model.results import Bottleneck, Candidate

# Limits beside which the CPU may be nearly full: with less than a third more it would be the next limit.
HOLDS_WITH_CPU_LEFT = (BottleneckName.POOL_TOO_SMALL, BottleneckName.DOWNSTREAM, BottleneckName.HIDDEN_LIMIT)
LARGER_FIRST = "enlarge the server's connection pool first: if no more is served, the dependency is the limit"
GC_CLEAR = 0.25  # of the subject's CPUs, used by collectors: a smaller part of a full CPU is not most of what it lacks

Tie = Callable[[Bottleneck, Scene], Candidate | None]


def second_of(found: Bottleneck, scene: Scene) -> Candidate | None:
    """The second candidate; None if the evidence is clear."""
    for tie in TIES:
        if (second := tie(found, scene)) is not None:
            return Candidate(second.name, second.evidence, second.advice)
    return None


def _own_pool_or_downstream(found: Bottleneck, scene: Scene) -> Candidate | None:
    """A connection pool or a dependency: a server that has about as many connections of its own as it serves requests
    at once may have a pool of that many, or call a dependency that takes no more. Both hold the same requests. Without
    slots, as many requests may be served at once as it has connections."""
    outgoing = scene.outgoing
    if scene.tried is None and found.name is BottleneckName.DOWNSTREAM and not _waits_on_sockets(scene):
        return verdict(BottleneckName.HIDDEN_LIMIT, [_calls(outgoing)])
    if scene.tried is None or not scene.queues or not outgoing:
        return None
    open_now = outgoing_open(outgoing)
    if found.name is BottleneckName.HIDDEN_LIMIT:
        return verdict(
            BottleneckName.DOWNSTREAM,
            [f"{open_now}, and the dependency behind them may serve no more at once"],
            advice="load the dependency directly, beside the server: if it serves no more at once, it is the limit",
        )
    if found.name is BottleneckName.DOWNSTREAM and calls_no_more(scene):
        return verdict(
            BottleneckName.HIDDEN_LIMIT,
            [f"{open_now}, about as many as it serves at once: a connection pool of this size would look the same"],
            advice=LARGER_FIRST,
        )
    if found.name is BottleneckName.POOL_TOO_SMALL and all_connections_are_used(scene) and _all_are_parked(scene):
        return verdict(BottleneckName.HIDDEN_LIMIT, [f"{open_now}: a pool of them may be what its threads idle behind"])
    return None


def _calls(outgoing: int | None) -> str:
    return "whether the server calls anybody was not looked at" if outgoing is None else outgoing_open(outgoing)


def _all_are_parked(scene: Scene) -> bool:
    """True if no thread that serves requests is seen to wait for something of its own."""
    return not any(pool.blocked_on(*BLOCKS_LOOP) >= 1 for pool in scene.workers)


def _waits_on_sockets(scene: Scene) -> bool:
    """True if a thread that serves requests waits on a socket, as in a call to a dependency."""
    return sum(pool.blocked_on("socket") for pool in scene.workers) >= 1


def _own_turn_or_downstream(found: Bottleneck, scene: Scene) -> Candidate | None:
    """A hidden limit, beside a dependency, if all but a few threads wait inside the server: a connection pool that lets
    only so many call would look the same, whatever other connections are open, such as idle ones to somebody else."""
    if found.name is not BottleneckName.DOWNSTREAM or found != few_are_let_in(scene):
        return None
    waits = f"{found.evidence[1]} inside the server: a connection pool, or a limit on calls, would look the same"
    return verdict(BottleneckName.HIDDEN_LIMIT, [waits], advice=LARGER_FIRST)


def _pool_or_slower_dependency(found: Bottleneck, scene: Scene) -> Candidate | None:
    """A dependency, beside a pool, if requests hold their threads in a call for longer than the first one took in all:
    with more threads they might only wait longer. Slots, where they were tried, tell more."""
    if found.name is not BottleneckName.POOL_TOO_SMALL or scene.empty_ns is None:
        return None
    for pool in scene.workers + scene.loops:
        if (took_ns := slower_calls_ns(pool, scene)) is not None:
            return verdict(BottleneckName.DOWNSTREAM, [held_longer(took_ns, scene.empty_ns)], advice=SLOWS_DOWN)
    return None


def _lock_or_limit(found: Bottleneck, scene: Scene) -> Candidate | None:
    """A hidden limit, beside a lock, if all connections of the server's own are in use, unless the holder is seen to do
    something else. Also, if no holder is seen, a hidden limit that is no lock; or a dependency, if the server may call
    one from which more requests await a result than are served at once."""
    if found.name is not BottleneckName.LOCK or found != lock(scene) or (pool := most_locked(scene)) is None:
        return None
    elsewhere = max(pool.use.on_cpu, pool.blocked_on("sleep", "disk")) >= HOLDER_LEAST
    if all_connections_are_used(scene) and scene.outgoing and not elsewhere:
        return verdict(
            BottleneckName.HIDDEN_LIMIT,
            [f"{outgoing_open(scene.outgoing)}: a connection pool of {scene.outgoing:,} would look the same"],
            advice="enlarge the server's connection pool first: if no more is served, look for a lock",
        )
    if past_lock(pool, scene) >= HOLDER_LEAST:
        return None
    if scene.outgoing == 0 or calls_no_more(scene):
        return verdict(
            BottleneckName.HIDDEN_LIMIT,
            ["a limit on the rate, or work for one thread alone, would look the same"],
        )
    parked = "threads that are parked until a result comes look the same"
    return verdict(BottleneckName.DOWNSTREAM, [parked, _calls(scene.outgoing)])


def _blocked_by_tasks(found: Bottleneck, scene: Scene) -> Candidate | None:
    """A pool, beside a hidden limit, if as many requests are served at once as there are parked threads that run
    virtual threads, coroutines or other tasks: these may hold their threads while they wait."""
    if found.name is not BottleneckName.HIDDEN_LIMIT:
        return None
    for pool in scene.workers:
        parked, woken = pool.blocked_on("lock"), pool.switches_per_s >= WOKEN * scene.rate_per_s
        all_parked = parked >= POOL_BUSY * pool.use.threads and serves_about(pool.use.threads, scene)
        if woken and all_parked and runs_tasks(pool, scene):
            return verdict(
                BottleneckName.POOL_TOO_SMALL,
                [f"{threads_at(pool, parked, 'parked')}, and about as many requests are served at once"],
                advice=f"if what `{pool.name}` runs blocks its threads (a sleep, a lock, a call), give it more, or run "
                "that on another pool",
            )
    return None


def _worker_or_loop(found: Bottleneck, scene: Scene) -> Candidate | None:
    """A pool of processes, if it was not looked how many connections each of those that wait for something else than
    events holds: a worker that takes one at a time looks like an event loop that is blocked."""
    waits = any(pool.blocked_on(*BLOCKS_LOOP) > OFF_POLL_SHARE * pool.use.threads for pool in scene.loops)
    if found.name is not BottleneckName.EVENT_LOOP_BLOCKED or scene.held or not waits:
        return None
    return verdict(
        BottleneckName.POOL_TOO_SMALL,
        ["whether each of these threads holds one connection or many was not looked at"],
        advice="if each serves one request at a time, start more of them",
    )


def _computes_under_a_lock(found: Bottleneck, scene: Scene) -> Candidate | None:
    """A lock, if all threads of a pool are parked and use about one CPU together, as those would of which one at a time
    computes, and slots were not tried: the first answers, which were no faster, may have been slow by themselves, as
    those of a JVM are. Not of .NET, which reports its locks."""
    reported = "dotnet_lock_contentions_per_s" in scene.metrics
    if found.name is not BottleneckName.POOL_TOO_SMALL or scene.tried is not None or not scene.queues or reported:
        return None
    for pool in scene.workers:
        parked = pool.blocked_on("lock") >= POOL_BUSY * pool.use.threads and _all_are_parked(scene)
        if parked and COMPUTES <= pool.use.on_cpu <= ONE_COMPUTES:
            used = f"`{pool.name}` threads use {cores(pool.use.on_cpu)} together, as if one at a time computed"
            return verdict(BottleneckName.LOCK, [used])
    return None


def _cpu_nearly_full(found: Bottleneck, scene: Scene) -> Candidate | None:
    """The CPU, if the limit can be widened by less than a third before the CPU is full."""
    if found.name not in HOLDS_WITH_CPU_LEFT or not scene.cpus or scene.fills_its_cpus:
        return None
    if scene.cpu_share < CPU_SHORT_LEAST:
        return None
    return verdict(
        BottleneckName.SUBJECT_CPU,
        [
            cpu_used(scene),
            f"at 100 % it would serve at most {significant(1 / scene.cpu_share)} times as much",
        ],
        noun=scene.noun,
    )


def _cpu_beside_a_lock(found: Bottleneck, scene: Scene) -> Candidate | None:
    """The CPU, if it is full beside a lock: who holds the lock computes, and without it the CPU would serve no more."""
    if found.name is not BottleneckName.LOCK or not scene.fills_its_cpus:
        return None
    return verdict(
        BottleneckName.SUBJECT_CPU,
        [cpu_used(scene), "without the lock, its threads would wait for the CPU"],
        advice="give the server more CPUs (and more processes, if its threads compute in Python or Ruby), or make "
        f"{with_article(scene.noun)} cheaper",
    )


def _pool_beside_cpu(found: Bottleneck, scene: Scene) -> Candidate | None:
    """A pool, if the CPU is short by the threads that wait for it, not by its use, and all threads of the pool are busy
    as well."""
    full = scene.fills_its_cpus or scene.shares_cpus or scene.full_with_database
    if found.name is not BottleneckName.SUBJECT_CPU or full:
        return None
    return pool_too_small(scene)


def _slots_without_threads(found: Bottleneck, scene: Scene) -> Candidate | None:
    """A dependency or a hidden limit, if all threads of a pool are busy, but not as many requests are served at once as
    it has threads."""
    if found.name is not BottleneckName.POOL_TOO_SMALL or scene.tried is None or not scene.queues or scene.turns_away:
        return None
    threads = without_a_thread_each(scene)
    if threads is None:
        return None
    outgoing = scene.outgoing
    name = BottleneckName.DOWNSTREAM if outgoing else BottleneckName.HIDDEN_LIMIT
    evidence = [f"no pool has as many threads as requests are served at once: the largest has {count(threads)}"]
    if outgoing:
        evidence.append(outgoing_open(outgoing))
    return verdict(name, evidence)


def _cpu_and_its_collector(found: Bottleneck, scene: Scene) -> Candidate | None:
    """The CPU, if it is full, and the collector has a part of it that is neither small nor most of what is wanted."""
    if found.name is not BottleneckName.GARBAGE_COLLECTION or not scene.fills_its_cpus or not scene.cpus:
        return None
    collecting = sum(pool.use.on_cpu for pool in scene.pools if pool.collects) + scene.go_collecting_cores
    collected = max(collecting / scene.cpus, scene.stopped_to_collect)
    if collected >= GC_CLEAR:
        return None
    return verdict(
        BottleneckName.SUBJECT_CPU,
        [
            f"{cpu_used(scene)}, its collectors {share(collected)}",
            f"without collections it would serve at most {significant(1 / (1 - collected))} times as much",
        ],
        noun=scene.noun,
    )


TIES: Iterable[Tie] = (
    _own_pool_or_downstream,
    _own_turn_or_downstream,
    _blocked_by_tasks,
    _worker_or_loop,
    _computes_under_a_lock,
    _cpu_nearly_full,
    _cpu_beside_a_lock,
    _lock_or_limit,
    _pool_beside_cpu,
    _pool_or_slower_dependency,
    _slots_without_threads,
    _cpu_and_its_collector,
)
