"""Names bottlenecks that show if other numbers of users were tried: the load itself, a limit that no thread shows, and
delayed acknowledgements; also one thread that has no time left, which may be such a limit."""

from __future__ import annotations

from powerband.analyze.stats.slots import LIMITED_GAIN, ONE_AT_A_TIME
from powerband.analyze.trial.bottleneck.clauses import (
    count,
    cpu_used,
    of_cpus,
    outgoing_open,
    served_twice,
    slots_served,
    verdict,
)
from powerband.analyze.trial.bottleneck.loop_rules import OTHERS_RUN, busy_thread, stand_in
from powerband.analyze.trial.bottleneck.scene import CPU_SHORT_LEAST, Scene
from powerband.analyze.trial.bottleneck.thread_rules import ASKED_TOO_MUCH, calls_no_more, is_passed_by
from powerband.analyze.trial.tried_slots import DELAYED_ACK_LEAST_NS
from powerband.base.units import format_duration, plural
from powerband.model.bottlenecks import BottleneckName
from powerband.model.results import Bottleneck
from powerband.readings.pools import WatchedPool

ALL_TAKEN = 1.1  # threads for each request in flight: twice the requests would wait for threads
DELAYED_ACK_SHARE = 0.3  # of an answer's time under load: less of it is not what users wait for


def none(scene: Scene) -> Bottleneck | None:
    """Says that nothing is short if a look with more load showed it: twice the users got clearly more, or there is a
    slot for each user. If that was not tried, or requests are turned away, or threads use or want most of the CPUs that
    the load engine needs as well, to name nothing is better than this."""
    if scene.tried is None or not scene.tried.slots.load_is_limit:
        return None
    if "subject_cpu_share" not in scene.metrics or not scene.rate_per_s or scene.turns_away:
        return None
    if scene.shares_cpus and scene.demand >= CPU_SHORT_LEAST:
        return None
    if not scene.shows_waits:
        return None
    slots, serving = scene.tried.slots, (pool for pool in scene.workers if not is_passed_by(pool.use.threads, scene))
    workers = max(serving, key=lambda pool: pool.use.threads, default=None)
    evidence, look = [cpu_used(scene)], served_twice(slots)
    more = slots.more_is_served or slots.gain >= LIMITED_GAIN
    users = plural(slots.users, "user")
    if workers is not None:
        mean = workers.use.threads  # a look that misses one of them takes a part of one off
        threads = f"{count(max(mean, min(workers.alive_max, scene.present)))} `{workers.name}` threads"
        if not more and mean <= ALL_TAKEN * scene.present <= ALL_TAKEN**2 * mean:
            look = f"its {threads} are just enough for {users}: {look}"
        else:
            evidence.append(f"it has {threads} for {count(scene.present)} requests in flight")
    evidence.append(look)
    keep = (
        f"this setting is enough for {users}. More users would only wait longer: if you expect more than "
        f"{slots.users:,}, measure again with that many (load.users) and with larger settings"
    )
    return verdict(BottleneckName.NONE, evidence, advice="" if more else keep)


def hidden_limit(scene: Scene) -> Bottleneck | None:
    """Names a hidden limit if only some of the users are served at once, twice as many get no more, and no thread shows
    what holds them. With connections of its own open, the server may also wait for what is at their other end."""
    if scene.tried is None or not scene.queues or not scene.pools or scene.turns_away:
        return None
    if (busy := one_thread(scene)) is not None:
        return busy
    if not scene.shows_waits:
        return None  # a pool whose threads all wait for something would look the same
    slots, outgoing = scene.tried.slots, scene.outgoing or 0
    if not calls_no_more(scene):
        return verdict(
            BottleneckName.DOWNSTREAM,
            [
                slots_served(slots),
                f"{outgoing_open(outgoing)}, so more requests can wait there than are served at once",
                cpu_used(scene),
            ],
            advice=f"{ASKED_TOO_MUCH}. Or, if the server opens connections early, look for a semaphore in it",
        )
    evidence = [
        slots_served(slots),
        served_twice(slots),
        f"no thread shows what the other requests wait for, and {cpu_used(scene)}",
    ]
    advice = ""
    if outgoing:
        evidence[2] = f"{outgoing_open(outgoing)}, and uses {of_cpus(scene.cpu_share, scene.cpus)}"
    elif slots.one_at_a_time:
        advice = (
            "look for what only one request at a time may hold (a lock in the code, a single connection), or for a "
            "limit on the rate"
        )
    return verdict(BottleneckName.HIDDEN_LIMIT, evidence, advice=advice)


def delayed_ack(scene: Scene) -> Bottleneck | None:
    """Names delayed acknowledgements if the kernel holds back the rest of an answer until its first part is
    acknowledged (Nagle's algorithm), which the user's kernel does some 40 ms later. The proof is that a user who
    acknowledges at once does not wait for that."""
    if scene.tried is None or scene.tried.prompt_ns is None or scene.queues:
        return None
    waits_ns, mean_ns = scene.tried.delayed_ack_ns, scene.value("response_time_ns_mean")
    if waits_ns < DELAYED_ACK_LEAST_NS or waits_ns < DELAYED_ACK_SHARE * mean_ns:
        return None
    alone, prompt = format_duration(scene.tried.alone_ns), format_duration(scene.tried.prompt_ns)
    return verdict(
        BottleneckName.DELAYED_ACK,
        [
            f"one user alone waits {alone} for a response, and {prompt} if each part of it is acknowledged at once",
            f"with {scene.tried.slots.users} users a response takes {format_duration(mean_ns)}",
            cpu_used(scene),
        ],
    )


def one_thread(scene: Scene) -> Bottleneck | None:
    """Names one thread if it has no time left while CPUs have: all else can go no faster than it. Not if others of its
    pool run as well, and several requests are served at once."""
    known = (pool for pool in scene.pools if not (pool.busiest_at_most or _several_run(pool, scene)))
    working = (pool for pool in known if not (pool.collects or pool.compiles or stand_in(pool, scene)))
    pool = max(working, key=lambda pool: pool.busiest, default=None)
    if pool is None or scene.fills_its_cpus:
        return None
    return busy_thread(BottleneckName.ONE_THREAD, pool, scene)


def _several_run(pool: WatchedPool, scene: Scene) -> bool:
    others = pool.use.on_cpu - pool.busiest - scene.go_collecting_cores
    return others >= OTHERS_RUN and scene.tried is not None and scene.tried.slots.low > ONE_AT_A_TIME
