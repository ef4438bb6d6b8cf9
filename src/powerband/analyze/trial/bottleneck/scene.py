"""The scene that the rules for bottlenecks judge: one trial's figures, gathered into a value.

In: what `measure.py` has at hand. Out: a `Scene`. Everything is of the measured window, but for the first answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from powerband.analyze.stats.slots import NotExactError
from powerband.analyze.trial.disturbance import foreign_allowed, of_own_service
from powerband.analyze.trial.dotnet_metrics import QUEUED, WORKERS
from powerband.analyze.trial.laws import ERRORS_MAX, in_flight
from powerband.analyze.trial.tried_slots import Tried, tried_of
from powerband.loads import kind_of
from powerband.loads.measured import in_flight_chance_per_s, least_served
from powerband.model.experiment import FOREIGN_CPU_MAX
from powerband.model.load import Load
from powerband.model.results import Problem
from powerband.model.runtime import RuntimeView
from powerband.readings.evidence import Evidence
from powerband.readings.fleet import SECOND_NS, MergedFleet, MergedTimes
from powerband.readings.pools import VM_THREAD, WatchedPool, process_cores, watched_share
from powerband.readings.probe_samples import Counters, ProbeSamples
from powerband.wire.load_events import EngineInterval

CPU_SHORT = 0.90  # of its CPUs, used by the subject
CPU_SHORT_LEAST = 0.75  # of them used, at the least, where threads that wait for them show a shortage
ONE_RUNS = 1.1  # CPUs that one thread uses at the most, its runtime's helpers beside it
SERVED_SHARE = 0.97  # of what was offered: the rest may be on its way when the window ends
# The fastest answer of the window over that of the first second. The very first answers are slow by themselves (threads
# start, connections are opened), so half as much again is due to a queue, not to chance.
QUEUES = 1.5
WARMED_UP_NS = 100_000_000  # of load before the window, so that the first answers are not in it
THINKING_SHARE = 0.90  # of their time, users pause: a faster subject would be asked for at most a tenth more
SERVING_WAKES = 0.2  # wake-ups of a pool for each request: threads that serve several at a time wake less often
SERVING_CPU = 0.1  # of the CPU that the subject uses
LEAST_CORES = 0.01  # used by a pool, at the least: if a subject hardly uses a CPU, a tenth of its use is nothing
NO_ROOM = ("429", "503")
WITH_A_THREAD = 0.75  # of the requests have a thread of .NET's pool: if fewer do, the others wait elsewhere
LINK_LEAST = 50e6  # bits per second: with less, even a slow link between two nodes is hardly the limit (arbitrary)
CONNECT_OUTCOMES = ("connect_refused", "connect_timeout", "connect_failed", "reset", "closed_early", "timeout")


@dataclass(frozen=True)
class Scene:
    """The figures of one trial; one is None if it could not be seen."""

    metrics: Mapping[str, float]
    """The trial's metrics so far, by name; one that was not measured is absent."""
    problems: Mapping[str, Problem]
    """Problems of the trial, by code."""
    pools: tuple[WatchedPool, ...]
    """The subject's threads by pool."""
    cpus: float | None
    """CPUs that the subject may use."""
    users: int | None
    """Users of a closed load, or threads of a JMeter plan; None with an open load."""
    present: float
    """Mean requests in the system."""
    rate_per_s: float
    """Requests that ended, with any outcome."""
    load_served: bool
    """True if the whole offered load was served."""
    turned_away_share: float
    """The share of requests that were answered with status 429 or 503."""
    failed_connections: int
    """Requests, and joins of WebSocket users, that got no connection or lost it, in the whole run."""
    accept_queue: float
    """Mean connections that wait to be accepted."""
    accept_queue_limit: float
    """The limit of that queue; 0: not known."""
    descriptors_left: float | None
    """The fewest descriptors that a process of the subject could still open."""
    major_faults_per_s: float
    """Pages of the subject that had to be read from a disk."""
    empty_ns: float | None
    """The fastest response of the first second, before requests queue."""
    loaded_ns: float | None
    """The fastest response of the window; also None without a warm-up, where the window has the first responses."""
    engine_wait_share: float = 0.0
    """The share of the window that a thread of the load engine waited for a CPU."""
    connections_per_request: float = 1.0
    """Connections that were opened, for each request of the whole run; 1 if they were not counted (JMeter)."""
    host_cpus: float | None = None
    """CPUs that the trial may use, the subject's included."""
    shares_cpus: bool = False
    """True if subject and load engine run on the same CPUs."""
    apart: str = "host.pinning"
    """The key or option that gives each CPUs of its own."""
    noun: str = "request"
    """The word for one of the things that the rate counts."""
    of_own_service: str = ""
    """The clause of `disturbance.of_own_service`."""
    allows_others: bool = False
    """True if the experiment allows other programs more of the CPUs than is allowed by default."""
    go_runs: int | None = None
    """GOMAXPROCS, if a single Go program does the subject's work and no other runtime is among its processes; else
    None."""
    only_python: bool = False
    """True if Python alone does the subject's work and no other runtime is among its processes, whatever its threads
    are called."""
    go_collecting_cores: float = 0.0
    """CPUs that Go's collectors used, which have no threads of their own."""
    beside_in_quota: float = 0.0
    """CPUs that load engine, bench and services used under the CPU quota that limits the subject; 0 if it has a quota
    to itself, or none."""
    watched_share: float = 1.0
    """The share of the window between the first and the last look at the threads in it."""
    process_cores: tuple[float, ...] = ()
    """The CPUs that each process of the subject used; empty if its threads were not seen one by one."""
    tried: Tried | None = None
    """The looks with one user and with twice the users; None if there were none, or they did not suffice."""
    held: Mapping[str, int] = field(default_factory=dict)
    """The number of sockets by the name of the processes that held them, while twice the users asked; empty if nobody
    looked. It can be known where the rates of the looks do not suffice."""
    outgoing: int | None = None
    """The connections of the server's own that were open meanwhile; None if nobody looked."""
    inside: Mapping[str, int] = field(default_factory=dict)
    """The connections from one process of the server to another, as from a proxy, that were open meanwhile, by the name
    of the processes that opened them; empty if that is not known."""
    host_starts_per_s: float | None = None
    """Threads and processes that began on the whole host; None if they were not counted."""
    far_bits_per_s: float | None = None
    """Bits per second of the responses that the network carries to other nodes; None if the load comes from the
    server's own."""
    interrupted: float = 0.0
    """The share of the time in which the subject's CPUs work that interrupts take, where they are counted apart."""

    database_cores: float = 0.0
    """The CPUs used by the database that was started beside the subject; 0 if the subject may use less of their CPUs,
    by a quota or its own affinity."""

    def value(self, metric: str) -> float:
        """A metric; 0 if it was not measured."""
        return self.metrics.get(metric, 0.0)

    @property
    def starts_per_s_most(self) -> float | None:
        """The threads and processes that the subject started, at most: where the kernel did not let them be counted,
        all that began on the host. None if neither is known."""
        return self.metrics.get("threads_started_per_s", self.host_starts_per_s)

    @property
    def is_far(self) -> bool:
        """True if the load comes from another node, so that requests may wait on the network."""
        return self.far_bits_per_s is not None

    @property
    def link_may_limit(self) -> bool:
        """True if the network between two nodes carries so much that it may be what requests wait for."""
        return (self.far_bits_per_s or 0.0) >= LINK_LEAST

    @property
    def at_server(self) -> float:
        """The mean requests in the system without those on the network between two nodes, as far as one user's times
        show these."""
        on_the_way = 0.0 if self.tried is None else self.rate_per_s * self.tried.slots.network_ns / SECOND_NS
        return max(0.0, self.present - on_the_way)

    @property
    def cpu_share(self) -> float:
        """The share of its CPUs that the subject used."""
        return self.value("subject_cpu_share")

    @property
    def demand(self) -> float:
        """CPU used and waited for, as a share of the subject's CPUs: above 1, some of its threads always wait."""
        return self.cpu_share + (self.value("run_wait_cores") / self.cpus if self.cpus else 0.0)

    @property
    def workers(self) -> tuple[WatchedPool, ...]:
        """Pools whose threads serve requests: their threads wake for them, and they are no loops."""
        return tuple(pool for pool in self.pools if self._serves(pool) and not pool.loops)

    @property
    def loops(self) -> tuple[WatchedPool, ...]:
        """Pools whose threads serve requests as event loops."""
        return tuple(pool for pool in self.pools if self._serves(pool) and pool.loops)

    @property
    def shows_waits(self) -> bool:
        """True if it was seen what any thread that serves requests waits for. The kernel tells that of another user's
        processes, as those of a container, to root alone."""
        return any(pool.use.blocked_on for pool in self.workers + self.loops or self.pools)

    def _serves(self, pool: WatchedPool) -> bool:
        """True if the pool wakes for every fifth request, or uses a tenth of the subject's CPU."""
        if (
            pool.collects
            or pool.housekeeping
            or pool.rests
            or (self._dotnet_pool_idles and pool.name.startswith(WORKERS))
        ):
            return False
        wakes = pool.switches_per_s + pool.preemptions_per_s
        used = max(LEAST_CORES, SERVING_CPU * self.value("subject_cpu_cores"))
        return wakes >= max(1.0, SERVING_WAKES * self.rate_per_s) or pool.use.on_cpu >= used

    @property
    def _dotnet_pool_idles(self) -> bool:
        """True if the .NET runtime reports that nothing waits for a thread of its pool, and more than a quarter of the
        requests have none: they await something else, however many of its threads wait on conditions."""
        if "dotnet_pool_queue_mean" not in self.metrics:
            return False
        few = self.value("dotnet_pool_busy_mean") < WITH_A_THREAD * self.present
        return few and self.value("dotnet_pool_queue_mean") < QUEUED

    @property
    def stolen(self) -> float:
        """The share that the hypervisor took of the CPU time that was asked for."""
        busy, steal = self.value("host_busy_share"), self.value("host_steal_share")
        return steal / (busy + steal) if busy > 0 else 0.0

    @property
    def given(self) -> float:
        """The share that the hypervisor, and interrupts that the kernel counts apart, left of the CPU time that was
        asked for. What they take is in no account of a thread or process: one that always runs shows this share."""
        return (1 - self.stolen) * (1 - self.interrupted)

    @property
    def fills_its_cpus(self) -> bool:
        """True if the subject used its CPUs nearly all the time that the hypervisor and interrupts left of them."""
        return self.cpu_share >= CPU_SHORT * self.given

    @property
    def full_with_database(self) -> bool:
        """True if subject and database have nothing left of the CPUs that they share."""
        shared = self.cpu_share + self.database_cores / (self.cpus or 1.0)
        return self.database_cores >= LEAST_CORES and shared >= CPU_SHORT

    @property
    def stopped_to_collect(self) -> float:
        """The share of the time that all threads of a JVM stand still for a collection: as the JVM reports, if it has
        collectors that stop it, whatever CPU these use. Else the time that HotSpot's VM thread works, which it does
        while all others stand still."""
        told = [self.metrics[name] for name in ("jvm_safepoint_share", "jvm_gc_share") if name in self.metrics]
        stop = (pool.collects and not pool.collects_beside and pool.name != VM_THREAD for pool in self.pools)
        if len(told) == 2 and any(stop):
            return min(told)
        works = [pool.use.on_cpu / max(1.0, pool.use.threads) for pool in self.pools if pool.name == VM_THREAD]
        return min(max(works, default=0.0), *told, 1.0)

    @property
    def queues(self) -> bool:
        """True if requests wait for each other somewhere: twice the users got no more, and there is a slot for only
        some of them. If that was not tried, it is True if the fastest answer under load takes much longer than the
        fastest of the first second, before anything queued. Service times that vary, even widely, do not look so: both
        minima are then near 0."""
        if self.tried is not None:
            return self.tried.slots.limited
        return self.empty_ns is not None and self.loaded_ns is not None and self.loaded_ns >= QUEUES * self.empty_ns > 0

    @property
    def only_users_limit(self) -> bool:
        """True if looks with other numbers of users showed that nothing but these is short: twice as many got clearly
        more, or there is a slot for each of them. Then no thread that waits for anything is what others wait for."""
        return self.tried is not None and self.tried.slots.load_is_limit

    @property
    def go_is_full(self) -> bool:
        """True if Go code uses all the CPUs that GOMAXPROCS lets it run on, and more requests are there, while the
        server may use further CPUs."""
        runs, used = self.go_runs or 0, self.value("subject_cpu_cores")
        return 0 < runs < min(self.cpus or 0.0, self.present) and CPU_SHORT * runs <= used <= ONE_RUNS * runs

    @property
    def turns_away(self) -> bool:
        """True if the server says of more than a few requests that it has no room for them."""
        return self.turned_away_share > ERRORS_MAX


def scene_of(evidence: Evidence, metrics: Mapping[str, float], problems: Sequence[Problem]) -> Scene:
    """Gathers the figures of a trial, or of a stretch of it. `metrics`, `problems`: those found in it so far."""
    fleet, load, response = evidence.fleet, evidence.load, evidence.response
    probe, intervals, loaded = evidence.probe, evidence.intervals, kind_of(evidence.experiment).sends_requests
    start, end = evidence.window
    queue = None if probe is None else probe.host.levels("accept_queue_now", start, end)
    limit = None if probe is None else probe.host.levels("accept_queue_limit", start, end)
    tree = evidence.subject_tree
    return Scene(
        metrics=metrics,
        problems={problem.code: problem for problem in problems},
        pools=evidence.pools,
        cpus=evidence.subject_cpus,
        users=load.users if load.jmeter is None else max(1, round(fleet.users_mean)),
        present=_present(fleet, load, metrics),
        rate_per_s=fleet.achieved_per_s,
        load_served=loaded and _served(fleet, load, metrics),
        turned_away_share=_turned_away(fleet),
        failed_connections=_failed_connections(fleet),
        accept_queue=0.0 if queue is None else float(queue.mean()),
        accept_queue_limit=0.0 if limit is None else float(limit.max()),
        descriptors_left=_descriptors_left(tree, start, end),
        major_faults_per_s=_rate(tree, "major_faults", start, end),
        empty_ns=_first_answer_ns(intervals),
        loaded_ns=response.quantile(0.0) if response.count and _warmed_up(intervals, start) else None,
        engine_wait_share=min(1.0, metrics.get("engine_run_wait_cores", 0.0) / max(1, fleet.threads)),
        connections_per_request=fleet.connections_opened / max(1, fleet.total.sent) or 1.0,
        host_cpus=evidence.host_cpus,
        shares_cpus=loaded and evidence.is_here and not evidence.pinned,
        apart=evidence.apart,
        noun=evidence.experiment.noun,
        of_own_service=of_own_service(evidence.record.neighbours, evidence.experiment),
        allows_others=foreign_allowed(evidence.experiment) > FOREIGN_CPU_MAX,
        go_runs=_go_runs(evidence),
        only_python={view.runtime for view in _views(evidence)} == {"Python"},
        go_collecting_cores=evidence.go_collecting_cores or 0.0,
        beside_in_quota=_beside_in_quota(evidence, metrics),
        database_cores=_database_cores(evidence),
        watched_share=0.0 if probe is None else watched_share(probe.threads, start, end),
        process_cores=() if probe is None else process_cores(probe.threads, start, end),
        tried=_tried(evidence),
        held=evidence.looks.recorded.get("held", {}),
        outgoing=evidence.looks.recorded.get("outgoing"),
        inside=evidence.looks.recorded.get("inside", {}),
        host_starts_per_s=_starts(probe, start, end),
        far_bits_per_s=_received_bits_per_s(fleet) if evidence.generators else None,
        interrupted=evidence.interrupted_share(
            "subject", metrics.get("subject_cpu_cores", 0.0), metrics.get("host_foreign_cores")
        ),
    )


def _tried(evidence: Evidence) -> Tried | None:
    try:
        return tried_of(evidence)
    except NotExactError:
        return None


def _views(evidence: Evidence) -> list[RuntimeView]:
    return [RuntimeView.from_json(view) for view in evidence.record.runtimes]


def _go_runs(evidence: Evidence) -> int | None:
    views = _views(evidence)
    return views[0].cpus if [(view.runtime, view.processes) for view in views] == [("Go", 1)] else None


def _database_cores(evidence: Evidence) -> float:
    dealt = len(evidence.record.cpus.get("subject", ())) or evidence.host_cpus
    if evidence.probe is None or evidence.subject_cpus != dealt:
        return 0.0
    return sum(tree.cores(*evidence.window) or 0.0 for tree in evidence.probe.matching("postgresql"))


def _beside_in_quota(evidence: Evidence, metrics: Mapping[str, float]) -> float:
    if not evidence.shares_quota:
        return 0.0
    engine = 0.0 if evidence.generators else metrics.get("engine_cpu_cores", 0.0)
    return engine + metrics.get("bench_cpu_cores", 0.0) + metrics.get("services_cpu_cores", 0.0)


def _turned_away(fleet: MergedFleet) -> float:
    """The share of the window's requests that the server answered by 429 or 503: of those that it rejected there, as
    many as of the whole run's, whose statuses alone are known. If no request was rejected, the statuses are those of
    WebSocket handshakes, and the share is 0."""
    rejected, statuses = fleet.cohort.outcomes.get("status_rejected", 0), fleet.rejected_statuses
    if not rejected:
        return 0.0
    no_room = sum(statuses[status] for status in NO_ROOM) / max(1, statuses.total())
    return no_room * rejected / fleet.cohort.scheduled


def _failed_connections(fleet: MergedFleet) -> int:
    """The number of requests, and of WebSocket users who were to join, that got no connection or lost it."""
    joins = [summary["websocket"]["joins_failed"] for summary in fleet.summaries if summary.get("websocket")]
    return sum(part.get(outcome, 0) for part in (fleet.total.outcomes, *joins) for outcome in CONNECT_OUTCOMES)


def _present(fleet: MergedFleet, load: Load, metrics: Mapping[str, float]) -> float:
    """The mean number of requests in the system. A user without pauses always has a request under way. If an open load
    is not served, more and more requests wait, and the times of those that ended show fewer."""
    keeps_asking = load.pace is None and load.requests_per_user is None and fleet.thinking_users_mean == 0
    if load.users is not None and keeps_asking:
        return fleet.users_mean * load.pipeline
    little = in_flight(metrics) or 0.0
    if load.rate_per_s is not None and not _served(fleet, load, metrics):
        return max(little, metrics.get("in_flight_mean", 0.0))
    return little


def _served(fleet: MergedFleet, load: Load, metrics: Mapping[str, float]) -> bool:
    """True if all that was offered at a rate or a pace was answered rightly; with another closed load, if its users
    spend nearly all their time in pauses, so that a faster subject would not be asked for more. Of messages that are
    not answered nobody knows whether they were served."""
    if metrics.get("error_rate", 0.0) > 1 - SERVED_SHARE or not fleet.goodput_per_s or not load.all_answered:
        return False
    if load.rate_per_s is not None:
        least_per_s = SERVED_SHARE * max(fleet.offered_per_s, load.rate_per_s * SERVED_SHARE)
        if (steps := len(load.scenario)) > 1:
            response_s = metrics.get("response_time_ns_mean", 0.0) / SECOND_NS
            chance_per_s = in_flight_chance_per_s(fleet.offered_per_s, response_s, fleet.window_s)
            least_per_s = least_served(SERVED_SHARE, steps) * fleet.offered_per_s - chance_per_s
        return fleet.goodput_per_s >= least_per_s
    if load.pace is not None:
        return not fleet.unanswered and fleet.goodput_per_s >= SERVED_SHARE * fleet.offered_per_s
    return not fleet.unanswered and fleet.thinking_users_mean >= THINKING_SHARE * fleet.users_mean


def _descriptors_left(tree: Counters | None, start_ns: int, end_ns: int) -> float | None:
    levels = None if tree is None else tree.levels("descriptors_left_now", start_ns, end_ns)
    return None if levels is None else float(levels.min())


def _starts(probe: ProbeSamples | None, start_ns: int, end_ns: int) -> float | None:
    grown = None if probe is None else probe.host.growth("forks", start_ns, end_ns)
    return None if grown is None else grown / (end_ns - start_ns) * SECOND_NS


def _received_bits_per_s(fleet: MergedFleet) -> float:
    """Returns the bits per second that all engines received in their windows."""
    return sum(
        8 * each["window"]["bytes_received"] * SECOND_NS / (each["measure_end_ns"] - each["measure_start_ns"])
        for each in fleet.summaries
    )


def _rate(tree: Counters | None, name: str, start_ns: int, end_ns: int) -> float:
    growth = None if tree is None else tree.growth(name, start_ns, end_ns)
    return (growth or 0.0) / (end_ns - start_ns) * SECOND_NS


def _warmed_up(intervals: Sequence[EngineInterval], start_ns: int) -> bool:
    """True if there was load before the window: without, the fastest answer of the window may be one of the first."""
    return bool(intervals) and start_ns - min(event["start_ns"] for event in intervals) >= WARMED_UP_NS


def _first_answer_ns(intervals: Sequence[EngineInterval]) -> float | None:
    """The fastest answer in the first histogram since `go` that has any."""
    for event in intervals:
        if event.get("response_time_ns"):
            times = MergedTimes([event["response_time_ns"]])
            if times.count:
                return times.quantile(0.0)
    return None
