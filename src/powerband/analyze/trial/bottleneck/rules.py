"""Names the one resource that limits a trial's throughput, from its figures: a name, the figures that prove it, advice.

Rules are asked in the order of `RULES`, and the first that has positive evidence answers: first for what spoils any
other evidence (the load engine, other programs), then whether anything is short at all, then for the causes that look
like others from afar, and only then for the plain ones. docs/methods/bottlenecks.md has each rule in words. Not here:
the reading of files (`scene.py`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import replace

from powerband.analyze.trial.bottleneck.clauses import (
    cores,
    count,
    cpu_used,
    network_carries,
    of_cpus,
    per_second,
    slots_served,
    stolen,
    verdict,
)
from powerband.analyze.trial.bottleneck.dotnet_rules import PAUSED, contended, pauses, starved_pool
from powerband.analyze.trial.bottleneck.loop_rules import BLOCKS_LOOP, event_loop_blocked, waits_for_locks
from powerband.analyze.trial.bottleneck.outside_rules import (
    OF_THE_HYPERVISOR,
    disturbed,
    engine_starves,
    generator,
    starved_generator,
)
from powerband.analyze.trial.bottleneck.scene import CPU_SHORT, CPU_SHORT_LEAST, LEAST_CORES, ONE_RUNS, Scene
from powerband.analyze.trial.bottleneck.thread_rules import (
    IN_HAND,
    KEPT,
    POOL_BUSY,
    WOKEN,
    accepts_too_late,
    disk,
    downstream,
    has_request_in_each,
    interpreters_lock,
    lock,
    parked_pool,
    pool_too_small,
    queues_at_the_other_end,
    slow_downstream,
    stands_still,
    waits_in_hand,
)
from powerband.analyze.trial.bottleneck.ties import GC_CLEAR, second_of
from powerband.analyze.trial.bottleneck.tried_rules import delayed_ack, hidden_limit, none, one_thread
from powerband.analyze.trial.laws import active_threads
from powerband.base.units import format_duration, joined, share, significant, with_article
from powerband.loads import SELF_DRIVEN
from powerband.loads.kind import LoadKind
from powerband.loads.measured import THROTTLED
from powerband.model.bottlenecks import BottleneckName
from powerband.model.results import Bottleneck
from powerband.readings.fleet import SECOND_NS
from powerband.readings.pools import WatchedPool

# Where no other reason stands beside a threshold, it was chosen so that the planted cases of
# docs/methods/bottlenecks.md are named, and healthy trials are not.
# Threads that wait for a CPU show a shortage even if interrupts hide a part of the use.
CPU_SHORT_DEMAND = 1.5  # used and waited for, of the subject's CPUs
# If the load engine runs on the same CPUs, the subject cannot get them all.
SHARED_BUSY = 0.95  # of all these CPUs in use
SHARED_WAITING = 0.25  # threads of the subject that wait, for each CPU
DELAYED = 1.2  # the mean response time over the first answer's: from here on answers take longer than they did
WORKERS_BUSY = 0.5  # of the threads that could have a request in hand: fewer are idle for want of requests
TAKEN_BY_OTHERS = 0.10  # of the trial's CPUs, used by other programs: the default of `measure.foreign_cpu_max`
OF_WHAT_IT_LACKS = 0.5  # of the CPU that the subject did not get, used by others: with less they are not the cause
WAITS_MUCH = 0.3  # of the time of active threads, spent waiting for a CPU
FEW_WAIT = 0.5  # threads that wait for a CPU: with fewer, one more CPU would have nothing to run
GC_SHARE = 0.10  # of the subject's CPUs, used by collectors
SOME_OF_THEM = 0.05  # of what all collectors use: one that uses less is not named
# Requests without a thread, for each thread of a pool: without collections that take less than `GC_CLEAR` of the time,
# at most a third more would be served, and with more threads at least a third.
OUTWEIGHS = GC_CLEAR / (1 - GC_CLEAR)
# Waiting threads for each CPU. They are a crowd if their switches cost `SWITCHING_SHARE` of the CPU time, and a great
# crowd, which nobody can have planned, whatever they cost.
CROWD = 4.0
GREAT_CROWD = 16.0  # arbitrary: four times a crowd
SWITCH_NS = 2000.0  # a thread leaves its CPU unfinished and another runs on: an estimate of the CPU time that it costs
# The least CPU time that it costs for a thread to go to sleep and be woken: more than a switch, as an idle CPU must
# come back and caches are cold. Two processes that only pass a byte to and fro used 18 us of CPU each time; at 2 us
# they would be on the edge.
TURN_NS = 5000.0
SWITCHING_SHARE = 0.10  # of the subject's CPU time, spent on switches
FOR_OTHERS_MOST = 0.75  # of a pool's waits: an idle thread at its socket beside two in turns makes 0.5 to 0.65
MEMORY_PRESSURE = 0.10  # of the time, somebody on the host waited for memory (PSI)
WAITS_FOR_MEMORY = 0.1  # threads of the subject wait: pressure is the whole host's, so it must be seen to suffer
MAJOR_FAULTS_PER_REQUEST = 0.5  # every other request waits for the disk
MAJOR_FAULT_NS = 100_000.0  # one takes this long on a fast disk; where it takes longer, threads are seen to wait
FAULTS_PER_REQUEST = 16.0  # 64 KiB of fresh pages for each request
FAULT_NS = 1_000.0  # the least CPU time that a fault and its page cost
FAULTS_SHARE = 0.10  # of a request's CPU time, spent on faults: with less the kernel is busy with something else
FAULT_KERNEL_SHARE = 0.40  # of the subject's CPU time in the kernel, which clears and maps these pages
FAULTS_WAIT = 0.25  # threads that wait for the memory map, for each CPU that the subject uses
QUEUE_FULL = 0.5  # of the accept queue's limit, on average
CONNECT_SLOW_NS = 0.2e9  # to connect, at p99: if the queue was full, the kernel tries again only after a second
DESCRIPTORS_LEFT = 3  # servers keep one or two back to turn callers away with
MOSTLY_AWAY = 0.5  # of the requests, answered by 429 or 503: the CPU may be busy with that alone
STARTED_EACH = 0.5  # threads started for each request: a process for many of them
STARTED_SHARE = 0.1  # threads started for each request: if they come and go, all are busy for their short lives
# Erlang's threads, by their older and newer names without numbers: its schedulers, which busy-wait for a while when
# they run out of work (`erl +sbwt`), and the dirty ones, which only Erlang has.
SCHEDULERS = re.compile(r"^(scheduler|erts_sched)\b")
DIRTY_SCHEDULERS = re.compile(r"^(dirty_(cpu|io)_s|erts_d(cpus|ios)\b)")
SPINS_MOST = 0.5  # of the CPU that the subject uses, by its schedulers

Rule = Callable[[Scene], Bottleneck | None]
SPOILT = (BottleneckName.GENERATOR, BottleneckName.HOST_CPU)  # with these, other figures say nothing of the server
# Bottlenecks that are proved by counters which are read ten times a second, or which the load engine keeps itself.
BY_COUNTERS = frozenset(
    {
        *SPOILT,
        BottleneckName.SUBJECT_CPU,
        BottleneckName.CPU_QUOTA,
        BottleneckName.TOO_MANY_RUNNABLE_THREADS,
        BottleneckName.DESCRIPTORS,
        BottleneckName.ACCEPT_BACKLOG,
        BottleneckName.MEMORY,
        BottleneckName.NONE,
    }
)
WATCHED_LEAST = 0.4  # of the window: figures of threads at its edges are partly of the time before and after it


def rules_of(kind: LoadKind, *, sees_inside: bool = True) -> Iterable[Rule]:
    """The rules for a kind of load. `sees_inside`: True if the subject's processes were watched."""
    if not sees_inside:
        return OUTSIDE_RULES
    return COUNTED_RULES if kind is SELF_DRIVEN else RULES


def bottleneck_of(scene: Scene, rules: Iterable[Rule] | None = None) -> Bottleneck | None:
    """The first bottleneck that a rule names, with a second candidate if the evidence ties; None if too little was seen
    to tell. If the looks at threads cover too little of the window, only a bottleneck that counters prove is named.
    `rules`: those of `rules_of`."""
    for rule in RULES if rules is None else rules:
        if (found := rule(scene)) is not None:
            if scene.watched_share < WATCHED_LEAST and found.name not in BY_COUNTERS:
                return None
            return replace(_with_slots(_with_link(found, scene), scene), second=second_of(found, scene))
    return None


def _with_link(found: Bottleneck, scene: Scene) -> Bottleneck:
    """Adds what the network between two nodes carries, if requests wait for what no thread of the server shows: a full
    link looks the same."""
    unseen = found.name in (BottleneckName.HIDDEN_LIMIT, BottleneckName.DOWNSTREAM)
    if scene.far_bits_per_s is None or not (unseen and scene.queues and scene.link_may_limit):
        return found
    advice = f"{found.advice}; if the link between the nodes carries no more, it is the limit"
    return replace(found, evidence=(*found.evidence, network_carries(scene.far_bits_per_s)), advice=advice)


def _with_slots(found: Bottleneck, scene: Scene) -> Bottleneck:
    """Adds to the evidence how many requests are served at once, if that is what the others wait for."""
    if scene.tried is None or not scene.tried.slots.limited or found.name in (*SPOILT, BottleneckName.CPU_QUOTA):
        return found
    served = slots_served(scene.tried.slots)
    return found if served in found.evidence else replace(found, evidence=(*found.evidence, served))


def _host_cpu(scene: Scene) -> Bottleneck | None:
    """Names the host's CPU if the subject wants more CPU than it got, others used what it lacks, and its requests spend
    much of their time waiting for it: on a busy machine every thread waits a little, whatever the limit is. If a CPU
    quota stops it most of the time, its threads wait for that."""
    if scene.load_served or scene.cpu_share >= CPU_SHORT or scene.demand < CPU_SHORT or not scene.cpus:
        return None
    if scene.value("cpu_throttled_share") >= THROTTLED:
        return None
    active = sum(active_threads(pool.use) for pool in scene.workers + scene.loops)
    idle = scene.workers and active < WORKERS_BUSY * min(scene.present, sum(pool.use.threads for pool in scene.workers))
    if scene.value("run_wait_cores") < WAITS_MUCH * active or (idle and engine_starves(scene)):
        return None
    return _taken_from_it(scene)


def _taken_from_it(scene: Scene) -> Bottleneck | None:
    """Names the host's CPU if others used most of what the subject's CPUs did not give it."""
    if not scene.cpus:
        return None
    steal = scene.value("host_steal_share") * scene.cpus
    others = scene.value("host_foreign_cores") + steal
    if others < TAKEN_BY_OTHERS * scene.cpus or others < OF_WHAT_IT_LACKS * (1 - scene.cpu_share) * scene.cpus:
        return None
    return verdict(
        BottleneckName.HOST_CPU,
        [
            _taken_by_others(scene.value("host_foreign_cores"), steal),
            f"the server got {of_cpus(scene.cpu_share, scene.cpus)}",
            _without_a_cpu(scene),
        ],
        more=scene.of_own_service,
        advice=OF_THE_HYPERVISOR
        if steal > others / 2
        else "give the server and the programs that measure.foreign_cpu_max allows more CPUs, or stop those that it "
        "does not need"
        if scene.allows_others
        else "",
    )


def _taken_by_others(foreign: float, steal: float) -> str:
    """Words the CPUs that others used: those of other programs, those that the hypervisor took, or both. One that is
    less than a tenth of the other is left out."""
    words = []
    if foreign >= steal / 10:
        words.append(f"other programs used {cores(foreign)} of the trial's CPUs")
    if steal > foreign / 10:
        words.append(f"the hypervisor took {cores(steal)} of the server's CPUs")
    return " and ".join(words)


def _served(scene: Scene) -> Bottleneck | None:
    if not scene.load_served:
        return None
    evidence = [f"the whole offered load was served: {per_second(scene.value('goodput_per_s'))}"]
    if "subject_cpu_share" in scene.metrics:
        evidence.append(cpu_used(scene))
    return verdict(BottleneckName.NONE, evidence)


def _descriptors(scene: Scene) -> Bottleneck | None:
    left, used = scene.descriptors_left, scene.value("descriptors_max")
    if left is None or left > DESCRIPTORS_LEFT:
        return None
    if not (scene.failed_connections or scene.accept_queue >= 1 or "starved_users" in scene.problems):
        return None
    evidence = [f"{used:,.0f} file descriptors are open, and a process of the server may open {left:,.0f} more"]
    if scene.accept_queue >= 1:
        evidence.append(f"{count(scene.accept_queue)} connections wait to be accepted")
    if scene.failed_connections:
        evidence.append(f"{scene.failed_connections:,} requests found no connection or lost it")
    # Of several processes `used` is the sum, and `left` that of one: its limit is below `used + left`.
    enough = math.ceil(used + left + max(1, scene.present, scene.users or 0))
    advice = (
        f"raise the server's limit of open files to {enough:,}: `ulimit -n {enough}` in the shell before powerband, "
        f"LimitNOFILE={enough} in the server's systemd unit, or docker's --ulimit nofile={enough}"
    )
    return verdict(BottleneckName.DESCRIPTORS, evidence, advice=advice)


def _accept_backlog(scene: Scene) -> Bottleneck | None:
    """Names the accept queue if connections wait in it, or find it full, while the threads that serve them have time
    left. If all users got the connection that they keep, it no longer matters that they found the queue full at
    first."""
    limit, waiting = scene.accept_queue_limit, scene.accept_queue
    full = limit > 0 and waiting >= QUEUE_FULL * limit
    overflows, connect_ns = scene.value("accept_overflows"), scene.value("connect_time_ns_p99")
    comes_again = scene.connections_per_request > KEPT or "starved_users" in scene.problems
    refused = overflows >= 1 and comes_again and (connect_ns >= CONNECT_SLOW_NS or full)
    if not (refused or full or accepts_too_late(scene)) or _too_busy_to_accept(scene):
        return None
    evidence = [f"{count(waiting)} connections wait to be accepted, in a queue for {limit:,.0f}"]
    longer = "; a longer backlog only lets more of them wait"
    if overflows >= 1:
        evidence.append(f"{overflows:,.0f} connections found the queue full")
        longer = (
            "; lengthen the backlog as well (listen() and net.core.somaxconn): a connection that finds it full waits a "
            "second"
        )
    if connect_ns:
        evidence.append(f"connecting took {format_duration(connect_ns)} at p99")
    if scene.connections_per_request <= KEPT and accepts_too_late(scene):
        taken = f"{count(scene.present - waiting)} connections were accepted and are kept"
        return verdict(
            BottleneckName.ACCEPT_BACKLOG,
            [evidence[0], taken, *evidence[1:]],
            advice="raise the number of connections that the server accepts (its setting, or what it keeps for each)",
        )
    return verdict(BottleneckName.ACCEPT_BACKLOG, evidence, more=longer)


def _too_busy_to_accept(scene: Scene) -> bool:
    """True if the CPU is short, a loop stands still, or all threads have a request in hand: connections would then wait
    behind these anywhere."""
    serving = scene.workers + scene.loops
    threads = sum(pool.use.threads for pool in serving)
    busy = sum(map(_at_work, serving))
    if _hands_over_too_late(scene):
        return _short_of_cpu(scene)
    all_busy = threads > 0 and busy >= POOL_BUSY * threads
    hangs = any(stands_still(pool) for pool in scene.loops)
    return _short_of_cpu(scene) or (_threads_last(scene) and (all_busy or hangs or has_request_in_each(scene)))


def _threads_last(scene: Scene) -> bool:
    """False if threads come and go with the requests. Of those that begin on the whole host, where only these are
    counted, others start some: there must be more of them."""
    least = STARTED_SHARE if "threads_started_per_s" in scene.metrics else STARTED_EACH
    return (scene.starts_per_s_most or 0.0) < least * scene.rate_per_s


def _hands_over_too_late(scene: Scene) -> bool:
    """True if a loop that stands still, though not for a lock, gives each new connection to a thread of a pool that has
    little to do: connections then wait for the loop to take them, not for anything behind it."""
    still = [loop for loop in scene.loops if stands_still(loop)]
    taking = any(loop.blocked_on(*BLOCKS_LOOP) >= loop.use.threads / 2 for loop in still)
    idle = [pool for pool in scene.workers if _at_work(pool) < POOL_BUSY * pool.use.threads]
    woken = any(pool.switches_per_s >= WOKEN * scene.rate_per_s for pool in idle)
    return taking and woken and len(idle) == len(scene.workers) and scene.connections_per_request > KEPT


def _at_work(pool: WatchedPool) -> float:
    """The mean number of threads that run, or wait for something else than events, a lock or work; of event loops also
    those that wait for a lock."""
    return pool.use.on_cpu + pool.use.run_wait + pool.blocked_on(*BLOCKS_LOOP) + waits_for_locks(pool)


def _garbage_collection(scene: Scene) -> Bottleneck | None:
    """Names garbage collection if collectors use much of the CPU. Those that stop the program take time from every
    request, whatever CPUs idle meanwhile if a single thread collects. Those that run beside it, as Go's does, take time
    only if no CPU is left for both."""
    short = _short_of_cpu(scene) and (scene.fills_its_cpus or not scene.go_is_full)
    collectors = [pool for pool in scene.pools if pool.collects and (short or not pool.collects_beside)]
    cores_of = {pool.name: pool.use.on_cpu for pool in collectors}
    if short and scene.go_collecting_cores:
        cores_of["Go's collector"] = scene.go_collecting_cores
    used, stopped = sum(cores_of.values()), scene.stopped_to_collect
    many = used >= GC_SHARE * (scene.cpus or 0.0)
    if not scene.cpus or not (many or stopped >= PAUSED):
        return None
    names = joined([name for name, own in cores_of.items() if own >= SOME_OF_THEM * used]) if many else ""
    part = of_cpus(used / scene.cpus, scene.cpus, "the server's")
    rest = cores(max(0.0, scene.value("subject_cpu_cores") - used))
    return verdict(
        BottleneckName.GARBAGE_COLLECTION,
        [
            f"{names} used {cores(used)}, {part}"
            if many
            else f"collections stop all other threads {share(stopped)} of the time",
            f"the rest of the server used {rest}",
        ],
        noun=scene.noun,
    )


def _unless_outweighed(rule: Rule) -> Rule:
    """The rule for collections, unless they take little, CPUs idle, and a pool without a free thread costs more."""

    def named(scene: Scene) -> Bottleneck | None:
        found = rule(scene)
        if found is None or scene.turns_away or _short_of_cpu(scene):
            return found
        using = sum(pool.use.on_cpu for pool in scene.pools if pool.collects) / (scene.cpus or 1.0)
        taken = max(using, scene.stopped_to_collect, scene.value("dotnet_gc_share"))
        items, busy = scene.value("dotnet_pool_queue_mean"), scene.value("dotnet_pool_busy_mean")
        queues = pool_too_small(scene, OUTWEIGHS) or (items >= OUTWEIGHS * busy and starved_pool(scene))
        return None if taken < GC_CLEAR and queues else found

    return named


def _memory(scene: Scene) -> Bottleneck | None:
    """Names memory if pages come from disk or are scarce, or if so many new ones are needed that the kernel takes much
    of the CPU. Those of processes that are started for single requests (CGI, a fork for each) do not count: they cost
    CPU. Nor do any where it is not known how many are started."""
    rate = max(scene.rate_per_s, 1e-9)
    pressure = scene.value("psi_memory_share")
    major = scene.major_faults_per_s / rate
    faults = scene.value("page_faults_per_s") / rate
    waiting = sum(pool.blocked_on("memory") for pool in scene.workers + scene.loops)
    kernel, starts = scene.value("subject_cpu_system_share"), scene.starts_per_s_most
    storm = (
        faults >= FAULTS_PER_REQUEST
        and kernel >= FAULT_KERNEL_SHARE
        and faults * FAULT_NS >= FAULTS_SHARE * scene.value("subject_cpu_ns_per_request")
        and starts is not None
        and starts < STARTED_EACH * rate
        and (_short_of_cpu(scene) or waiting >= FAULTS_WAIT * max(1.0, scene.value("subject_cpu_cores")))
    )
    pressed = pressure >= MEMORY_PRESSURE and (scene.major_faults_per_s >= 1 or waiting >= WAITS_FOR_MEMORY)
    reading = max(waiting, scene.major_faults_per_s * MAJOR_FAULT_NS / SECOND_NS)
    from_disk = major >= MAJOR_FAULTS_PER_REQUEST and reading >= WAITS_FOR_MEMORY
    if not (storm or pressed or from_disk):
        return None
    evidence = [f"{significant(faults)} page faults per {scene.noun} ({per_second(scene.value('page_faults_per_s'))})"]
    if from_disk:
        evidence.append(f"{significant(major)} of them from disk")
    if pressed:
        evidence.append(f"something on this machine waited for memory {share(pressure)} of the time")
    evidence.append(_in_the_kernel(scene))
    return verdict(BottleneckName.MEMORY, evidence, noun=scene.noun)


def _cpu_quota(scene: Scene) -> Bottleneck | None:
    """Names the CPU quota if the kernel stops the subject in most periods because it has used up what its cgroup may
    use, whatever CPUs are idle. Its threads then wait for a CPU as if they were too many. If load engine and bench are
    under the same quota, as in a container, all that they use counts. Where one thread at a time runs and uses nearly a
    whole CPU, a higher quota alone gives little."""
    throttled, quota = scene.value("cpu_throttled_share"), scene.value("cpu_quota_cores")
    own, beside = scene.value("subject_cpu_cores"), scene.beside_in_quota
    together = beside > 0 and own + beside >= CPU_SHORT_LEAST * quota
    if throttled < THROTTLED or (scene.cpu_share < CPU_SHORT_LEAST and not together):
        return None
    idle = (1 - scene.value("host_busy_share") - scene.value("host_steal_share")) * (scene.host_cpus or 0.0)
    used = f"it used {cores(own)} of the {significant(quota)} that its cgroup may use"
    alone = not together and own >= CPU_SHORT_LEAST and _one_runs(scene)
    runners = (
        "raise the quota (host.cpu_quota, docker's --cpus, Kubernetes' limits.cpu, systemd's CPUQuota=) and let as "
        f"many threads run at once (processes, event loops, GOMAXPROCS), or make {with_article(scene.noun)} cheaper; "
        "the quota alone helps only a runtime that counts CPUs (Go, .NET, the JVM)"
    )
    return verdict(
        BottleneckName.CPU_QUOTA,
        [
            f"the quota was used up in {share(throttled)} of periods, and the server was stopped for the rest of each",
            f"{used}, load generator and powerband {significant(beside)}" if together else used,
            _one_fills_the_cpu(scene) if alone else f"{cores(idle)} of the trial's CPUs were idle",
        ],
        noun=scene.noun,
        more="; load from another machine would leave all of it to the server" if together else "",
        advice=runners if alone else "",
    )


def _subject_cpu(scene: Scene) -> Bottleneck | None:
    """Names the CPU if the subject's CPUs are full; not if it turns most requests away, which may be all that the CPU
    does, for want of something else."""
    if not _short_of_cpu(scene) or not scene.cpus or scene.turned_away_share >= MOSTLY_AWAY:
        return None
    waiting = scene.value("run_wait_cores") / scene.cpus
    preempted = sum(pool.preemptions_per_s for pool in scene.pools) / max(scene.rate_per_s, 1e-9)
    used = cpu_used(scene)
    switching = preempted * SWITCH_NS >= SWITCHING_SHARE * scene.value("subject_cpu_ns_per_request")
    crowded = waiting >= GREAT_CROWD or (waiting >= CROWD and switching)
    if crowded:
        return verdict(
            BottleneckName.TOO_MANY_RUNNABLE_THREADS,
            [
                _waiting_for_each_cpu(waiting),
                f"{significant(preempted)} preemptions per {scene.noun}",
                used,
            ],
            advice=_fewer_threads(waits_in_hand(scene), scene.cpus),
        )
    each = format_duration(scene.value("subject_cpu_ns_per_request"))
    if scene.go_is_full and not scene.fills_its_cpus:
        return verdict(
            BottleneckName.SUBJECT_CPU,
            [
                f"GOMAXPROCS lets Go code run on {scene.go_runs} of the server's {scene.cpus:.3g} CPUs at once",
                f"it uses {cores(scene.value('subject_cpu_cores'))}, {with_article(scene.noun)} {each} of CPU time",
            ],
            advice=f"raise GOMAXPROCS to {math.ceil(scene.cpus)}, or make {with_article(scene.noun)} cheaper",
        )
    if not scene.fills_its_cpus and (beside := _full_with_others(scene)) is not None:
        return beside
    evidence = [used, *stolen(scene), f"{with_article(scene.noun)} uses {each} of CPU time"]
    if waiting >= 1:
        evidence.append(_waiting_for_each_cpu(waiting))
    elif _one_runs(scene):
        evidence.append(_one_fills_the_cpu(scene))
        return verdict(
            BottleneckName.SUBJECT_CPU,
            evidence,
            advice="give the server more CPUs and let as many threads run at once (processes, event loops, "
            f"GOMAXPROCS), or make {with_article(scene.noun)} cheaper; CPUs alone help only a runtime that counts them "
            "(Go, .NET, the JVM)",
        )
    return verdict(BottleneckName.SUBJECT_CPU, evidence, noun=scene.noun)


def _full_cpu(scene: Scene) -> Bottleneck | None:
    """Returns what `_subject_cpu` names, unless Erlang's schedulers may fill the CPU while they wait for work: if
    answers take no longer than the first ones, nothing; else the advice says how to be sure."""
    found = _subject_cpu(scene)
    used = sum(pool.use.on_cpu for pool in scene.pools if SCHEDULERS.search(pool.name))
    in_erlang = any(DIRTY_SCHEDULERS.search(pool.name) for pool in scene.pools)
    if found is None or not in_erlang or used < SPINS_MOST * scene.value("subject_cpu_cores"):
        return found
    if _undelayed(scene):
        return None
    sure = "unless it runs with +sbwt none, try that first: Erlang's schedulers also use CPUs while they wait for work"
    return replace(found, advice=f"{found.advice}; {sure}")


def _full_with_others(scene: Scene) -> Bottleneck | None:
    """The verdict if the subject fills its CPUs together with its database, with the load engine, or with programs on
    which its threads may wait while these wait for a CPU as well."""
    used = cpu_used(scene)
    if scene.full_with_database:
        return verdict(
            BottleneckName.SUBJECT_CPU,
            [f"{used}, its database {cores(scene.database_cores)} of the same CPUs"],
            advice="give the server and its database more CPUs, or make what they do cheaper; more threads do not help",
        )
    if not _shared_cpus_full(scene):
        return None
    engine = cores(scene.value("engine_cpu_cores"))
    return _taken_from_it(scene) or verdict(
        BottleneckName.SUBJECT_CPU,
        [
            f"all CPUs together were in use {share(scene.value('host_busy_share'))} of the time",
            f"{used}, the load generator {engine} of the same CPUs",
            _without_a_cpu(scene),
        ],
        advice=f"give the load generator CPUs of its own ({scene.apart}), or both more; more threads do not help",
    )


def _fewer_threads(waits: float, cpus: float) -> str:
    """Advises how many threads suffice where many wait for something else than the CPU: as many as wait, and two for
    each CPU. Empty if fewer wait than there are CPUs."""
    if waits < cpus:
        return ""
    enough = math.ceil(waits + 2 * cpus)
    return f"use fewer threads: about {enough:,} serve as much, with fewer switches and less memory"


def _one_runs(scene: Scene) -> bool:
    """True if one thread at a time has the CPU, and no other waits for it: more CPUs would idle."""
    return scene.value("run_wait_cores") < FEW_WAIT and scene.value("subject_cpu_cores") < ONE_RUNS


def _one_fills_the_cpu(scene: Scene) -> str:
    number = count(scene.value("run_wait_cores"))
    others = "no other waits" if number == "0.0" else f"on average {number} others wait"
    return f"one thread at a time fills the CPU; {others} for it"


def _without_a_cpu(scene: Scene) -> str:
    return f"on average {count(scene.value('run_wait_cores'))} of its threads were runnable without a CPU"


def _in_the_kernel(scene: Scene) -> str:
    return f"{share(scene.value('subject_cpu_system_share'))} of the server's CPU time is spent in the kernel"


def _waiting_for_each_cpu(threads: float) -> str:
    number = count(threads)
    return f"{number} {'thread waits' if number == '1' else 'threads wait'} for each CPU"


def _short_of_cpu(scene: Scene) -> bool:
    """True if the subject has too little CPU. Threads that wake together wait for each other a little even on a CPU
    that has time left: that is no shortage as long as answers take no longer than the first ones, before which nothing
    queued."""
    hidden = scene.cpu_share >= CPU_SHORT_LEAST and scene.demand >= CPU_SHORT_DEMAND and not _undelayed(scene)
    together = _shared_cpus_full(scene) or scene.full_with_database
    return scene.fills_its_cpus or hidden or together or scene.go_is_full


def _shared_cpus_full(scene: Scene) -> bool:
    """True if the CPUs that subject and load engine share have nothing left, and threads of the subject wait for
    them."""
    full = scene.shares_cpus and scene.value("host_busy_share") >= SHARED_BUSY
    return full and scene.demand >= CPU_SHORT and scene.value("run_wait_cores") >= SHARED_WAITING * (scene.cpus or 1)


def _undelayed(scene: Scene) -> bool:
    mean_ns = scene.value("response_time_ns_mean")
    return scene.empty_ns is not None and 0 < mean_ns < DELAYED * scene.empty_ns


def _with_cpu_left(rule: Rule) -> Rule:
    return lambda scene: None if _short_of_cpu(scene) else rule(scene)


def _wake_ups(scene: Scene) -> Bottleneck | None:
    """Names wake-ups if threads work in turns: each goes to sleep, and is woken for the next piece of work. That costs
    more than it seems to: the caches of another CPU are cold, and an idle CPU must come back. While CPUs idle, threads
    that wait for others than themselves are not too many: with more of them more is under way."""
    slept = sum(pool.switches_per_s for pool in scene.pools)
    used = scene.value("subject_cpu_cores")
    if not scene.rate_per_s or used < LEAST_CORES or slept * TURN_NS < SWITCHING_SHARE * used * SECOND_NS:
        return None
    each = slept / scene.rate_per_s
    pool = max(scene.pools, key=lambda pool: pool.switches_per_s)
    if pool.blocked_on(*IN_HAND) > FOR_OTHERS_MOST * pool.use.blocked and not _short_of_cpu(scene):
        return None
    return verdict(
        BottleneckName.WAKE_UPS,
        [
            f"threads sleep and are woken {per_second(slept)}, {significant(each)} times per {scene.noun}, most of "
            f"them `{pool.name}`",
            _in_the_kernel(scene),
            cpu_used(scene),
        ],
    )


# Rules for a subject that drives itself: nobody waits for its answers, so the rules about requests have no evidence.
COUNTED_RULES: Iterable[Rule] = (
    _host_cpu,
    disturbed,
    _garbage_collection,
    pauses,
    _memory,
    _wake_ups,
    _cpu_quota,
    _full_cpu,
    one_thread,
)
# Rules for a subject of which only its answers are seen.
OUTSIDE_RULES: Iterable[Rule] = (generator, disturbed, starved_generator, _served)
RULES: Iterable[Rule] = (
    _host_cpu,
    _descriptors,
    generator,
    disturbed,
    _with_cpu_left(starved_generator),
    _served,
    _accept_backlog,
    _unless_outweighed(_garbage_collection),
    _unless_outweighed(pauses),
    _memory,
    _with_cpu_left(disk),
    _with_cpu_left(contended),
    lock,
    _cpu_quota,
    _full_cpu,
    _with_cpu_left(starved_pool),
    _with_cpu_left(delayed_ack),
    _with_cpu_left(interpreters_lock),
    _with_cpu_left(event_loop_blocked),
    _with_cpu_left(queues_at_the_other_end),
    _with_cpu_left(slow_downstream),
    _with_cpu_left(pool_too_small),
    _with_cpu_left(downstream),
    _with_cpu_left(parked_pool),
    _with_cpu_left(hidden_limit),
    none,
)
