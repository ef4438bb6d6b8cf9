"""Names bottlenecks that a .NET runtime reports: collections that stop all threads, a lock, a thread pool without a
free thread. The kernel sees none of these: .NET parks idle, sleeping and locked-out threads alike, and a collection
without threads of its own runs on the program's.
"""

from __future__ import annotations

from powerband.analyze.trial.bottleneck.clauses import count, cpu_used, per_second, verdict
from powerband.analyze.trial.bottleneck.scene import Scene
from powerband.analyze.trial.bottleneck.thread_rules import enough_for_rate, serves_fewer
from powerband.analyze.trial.dotnet_metrics import starves
from powerband.base.units import share, significant
from powerband.model.bottlenecks import BottleneckName
from powerband.model.results import Bottleneck

PAUSED = 0.10  # of the time: the same as the collectors' share of the CPU (`GC_SHARE` of rules.py)
# The least waits for a lock for each request. A request that finds it held waits once; short locks that are seldom held
# do not come near it. If a pool has few threads, most requests queue before they come to the lock: fewer waits are then
# enough if one request at a time is served.
CONTENDED = 0.5
CONTENDED_ALONE = 0.1
TWO = 2.0  # requests served at once: fewer for certain are served one at a time
ONE_QUEUES = 1.0  # requests in the system beyond the one that holds the lock
POOL = ".NET's thread pool"


def pauses(scene: Scene) -> Bottleneck | None:
    """Names garbage collection if collections stop all threads of a .NET program for much of the time, whatever threads
    they run on. Several programs stop for themselves alone: the metric is of the one that stops longest."""
    paused = scene.value("dotnet_gc_share")
    if paused < PAUSED:
        return None
    old = scene.value("dotnet_gc_gen2_per_s")
    allocated = scene.value("dotnet_allocated_bytes_per_s") / max(scene.rate_per_s, 1e-9)
    return verdict(
        BottleneckName.GARBAGE_COLLECTION,
        [
            f"garbage collections stop all threads {share(paused)} of the time",
            f"{per_second(scene.value('dotnet_gc_per_s'))} collections, {per_second(old)} of them of generation 2",
            f"{significant(allocated / 1024)} KiB are allocated per {scene.noun}",
        ],
        noun=scene.noun,
    )


def contended(scene: Scene) -> Bottleneck | None:
    """Names a lock if many requests find one held that .NET itself keeps (`lock`, `Monitor`), and wait for it; not if
    nothing but the users is short, since what is held for a moment, such as by a logger, costs little."""
    waits = scene.value("dotnet_lock_contentions_per_s")
    alone = scene.tried is not None and scene.tried.slots.high < TWO
    least = CONTENDED_ALONE if alone else CONTENDED
    if not scene.rate_per_s or waits < least * scene.rate_per_s or scene.present < 1 + ONE_QUEUES:
        return None
    if scene.only_users_limit:
        return None
    return verdict(
        BottleneckName.LOCK,
        [
            f"threads find a lock held {significant(waits / scene.rate_per_s)} times per {scene.noun}",
            f"{count(scene.value('dotnet_pool_busy_mean'))} threads of {POOL} are at work or wait for it",
            cpu_used(scene),
        ],
    )


def starved_pool(scene: Scene) -> Bottleneck | None:
    """Names the pool if work items wait for one of its threads while these block: until some come back, or .NET adds
    one. Not if fewer requests are served at once than threads are busy: these wait for each other, or for something
    else."""
    queue, busy = scene.value("dotnet_pool_queue_mean"), scene.value("dotnet_pool_busy_mean")
    if not starves(scene.metrics) or serves_fewer(busy, scene):
        return None
    enough, told = queue + busy, "with {}, no work item would wait"
    if (needed := enough_for_rate(busy, busy, scene)) is not None:
        enough, told = needed, "the offered rate needs at least {}"
    blocked = scene.value("dotnet_pool_blocked_mean")
    grew = scene.value("dotnet_pool_growth_per_s")
    growing = (
        f", and the pool grows by {significant(grew)} threads a second" if "pool_growing" in scene.problems else ""
    )
    return verdict(
        BottleneckName.POOL_TOO_SMALL,
        [
            f"{count(blocked)} of the {count(busy)} threads of {POOL} that have work in hand are blocked",
            f"{count(queue)} work items wait for a thread{growing}",
            cpu_used(scene),
        ],
        advice=f"do not block the threads of {POOL} (use await), or start it with more: {told.format(count(enough))}, "
        f"DOTNET_ThreadPool_ForceMinWorkerThreads={round(enough):X} (hexadecimal)",
    )
