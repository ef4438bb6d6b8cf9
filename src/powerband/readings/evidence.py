"""Gathers everything that one trial left, read once: metrics and problems are made from it.

In: a trial's record, the engines' events, the probe's samples. Out: an `Evidence`, and `Source`, the type of everything
that makes metrics of it. Not here: the sources themselves (`loads/` for what depends on the load, `analyze/trial/`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median_low
from typing import Any

from powerband.model.clocks import GeneratorNode
from powerband.model.experiment import Experiment
from powerband.model.load import Load
from powerband.model.results import HeapGrowth, Problem
from powerband.model.subjects import on_host_network
from powerband.readings.crowd import Crowd, crowd_of, joined_users
from powerband.readings.fleet import MergedFleet, MergedTimes
from powerband.readings.pools import WatchedPool, watched_pools
from powerband.readings.probe_samples import Counters, ProbeSamples
from powerband.readings.quiet_time import QuietTime, quiet_time_of
from powerband.readings.recorded_looks import RecordedLooks
from powerband.store import TrialRecord
from powerband.wire.load_events import EngineInterval


@dataclass(frozen=True)
class Evidence:
    """Everything that one trial left, or a stretch of it: metrics are of the time from `fleet.start_ns` to
    `fleet.end_ns`. `experiment`: as this trial ran it; `record`: what the trial left; `fleet`: the load engines,
    merged; `response`: the response times of the cohort; `heap_growth`: None without snapshots of heaps; `looks`: short
    loads after the trial's own, empty if none was due."""

    experiment: Experiment
    record: TrialRecord
    load: Load
    """The load of this trial's setting."""
    fleet: MergedFleet
    response: MergedTimes
    probe: ProbeSamples | None
    """The probe's samples; None if it took none."""
    intervals: Sequence[EngineInterval]
    """The engines' `interval` events since the start of the load."""
    steady: bool | None = None
    """True if the measured window was steady; None if there were too few intervals to say."""
    rising: bool = False
    """True if the server still got faster in the measured window."""
    heap_growth: HeapGrowth | None = None
    log: str = ""
    """The end of the subject's log."""
    looks: RecordedLooks = field(default_factory=lambda: RecordedLooks({}))

    @classmethod
    def read(
        cls,
        record: TrialRecord,
        experiment: Experiment,
        fleet: MergedFleet,
        events: Iterable[Any],
        probe: ProbeSamples | None,
    ) -> Evidence:
        """The evidence of a whole trial, as far as its record, its events and the probe's samples go."""
        load = experiment.load_for(record.spec.setting, record.spec.rate_per_s)
        if probe is not None and record.subject.get("served_by"):
            probe = probe.without_subject()
        intervals = [event for event in events if event.get("type") == "interval"]
        response = fleet.times("response_time_ns")
        return cls(experiment, record, load, fleet, response, probe, intervals, looks=RecordedLooks(record.slots))

    @property
    def sees_inside(self) -> bool:
        """True if the probe watched a process of the server; False if the server was deployed already, is in a
        container, or was started by another program."""
        if self.probe is None:
            return self.experiment.subject.deployed is None
        return "subject" in self.probe.trees

    @property
    def subject_tree(self) -> Counters | None:
        """The probe's samples of the subject's processes; None if it watched none of them."""
        return None if self.probe is None else self.probe.trees.get("subject")

    @property
    def served_by(self) -> str:
        """The program that served in place of what the subject's command started; empty if none did."""
        return str(self.record.subject.get("served_by", ""))

    @property
    def is_here(self) -> bool:
        """True if the server ran on this machine."""
        return bool(self.record.subject.get("here", True))

    @property
    def queues_here(self) -> bool:
        """True if this machine counts the connections that find the server's accept queue full: not if the server runs
        elsewhere, or in a container that has a network of its own."""
        subject = self.experiment.subject
        apart = subject.container_client and not on_host_network(subject.command or ())
        return self.is_here and not apart and not self.record.subject.get("own_network")

    @property
    def foreign_is_known(self) -> bool:
        """True if the CPU use of other programs is known apart from the server's. Only one process of a deployed server
        on this machine is watched at most, so that its database, say, would count among the others; so would the proxy
        in front of a container. If its process is watched and the experiment sets `foreign_cpu_max`, the others are
        judged all the same."""
        limited = self.experiment.measure.foreign_cpu_max is not None and self.sees_inside
        own = self.experiment.subject.is_own_process and not self.served_by
        return own or not self.is_here or limited

    @cached_property
    def generators(self) -> tuple[GeneratorNode, ...]:
        """The other nodes that loaded the server; empty if the load came from the server's own node."""
        return tuple(GeneratorNode.from_json(each) for each in self.record.generators)

    @property
    def window(self) -> tuple[int, int]:
        """Start and end of the time that metrics are of, in monotonic ns."""
        return self.fleet.start_ns, self.fleet.end_ns

    @property
    def pinned(self) -> bool:
        """True if subject and engine have CPUs of their own."""
        if self.record.generators:
            return True
        given, engine = (set(self.record.cpus.get(role, ())) for role in ("subject", "engine"))
        subject = given or self._container_cpus
        return bool(subject and engine) and not subject & engine and self.own_affinity is None

    @property
    def _container_cpus(self) -> set[int]:
        """The CPUs on which a container might run when it was ready; empty if it might run on more in the window, if
        they are not known, or if the subject is in none."""
        most = self._cpus_most
        if most is None or not self.experiment.subject.container_client:
            return set()
        begun_on = set(self.record.subject.get("own_cpus", ()))
        return begun_on if most <= len(begun_on) else set()

    @cached_property
    def own_affinity(self) -> int | None:
        """The number of CPUs that the subject chose for itself: those on which it may run during most of the window, if
        it got fewer, or others; else None. A kernel before 6.2 lets the threads that it adds for io_uring run on any
        CPU, so a subject that has such threads chose nothing."""
        given = self.record.cpus.get("subject", ())
        tree = self.subject_tree
        levels = None if tree is None or not given else tree.levels("cpus_now", *self.window)
        if levels is None or self._has_kernel_threads:
            return None
        most, begun_on = int(median_low(levels.tolist())), self.record.subject.get("own_cpus", ())
        return most if most > len(given) or most == len(begun_on) else None

    @property
    def cpus_allowed(self) -> float | None:
        """The highest number of CPUs on which the kernel let the subject run at a time in the window; None if it is not
        the process that the command started, or if that is not known."""
        return self._cpus_most if self.experiment.subject.is_own_process else None

    @property
    def _cpus_most(self) -> float | None:
        """The highest number of CPUs on which the kernel let the subject run at a time in the window; None if that is
        not known."""
        tree = self.subject_tree
        return None if tree is None else tree.highest("cpus_now", *self.window)

    @cached_property
    def _has_kernel_threads(self) -> bool:
        """True if the subject has threads that the kernel added for io_uring."""
        return any(pool.name.startswith("iou-") for pool in self.pools)

    @property
    def apart(self) -> str:
        """The key or option that gives subject and engine CPUs of their own: powerband's where it chooses the subject's
        CPUs, else another program's."""
        subject = self.experiment.subject
        if subject.is_own_process:
            return "host.pinning"
        return "docker's --cpuset-cpus, --cpus" if subject.container_client else "taskset"

    @cached_property
    def host_cpus(self) -> float | None:
        """The number of CPUs that the trial may use: the CPU time in the host's samples (busy, idle and stolen),
        divided by the time that passed. None if it is not known."""
        if self.probe is None:
            return None
        start, end = self.window
        parts = [self.probe.host.growth(f"cpu_{kind}_ns", start, end) for kind in ("busy", "idle", "steal")]
        known = [part for part in parts if part is not None]
        return None if len(known) < len(parts) else round(sum(known) / (end - start), 1)

    @property
    def subject_cpus(self) -> float | None:
        """The number of CPUs that the subject may use: those on which the kernel lets it run (in older recordings those
        it is pinned to, else all), but no more than a cgroup quota allows. None if it is not known."""
        if self.probe is None:
            return None
        given, own = len(self.record.cpus.get("subject", ())), self._cpus_most
        if own and given and self._has_kernel_threads:
            own = min(own, given)
        cpus = own or given or self.host_cpus
        # A container is not below powerband's own cgroup, or if it is, the quota of that is among those of the subject.
        whole = self.record.cpu_quota if self.experiment.subject.is_own_process else None
        quotas = [quota for quota in (whole, self.subject_quota) if quota]
        return min([cpus, *quotas]) if cpus else cpus

    def interrupted_share(self, role: str, cores: float, foreign: float | None) -> float:
        """The share of the busy time of a role's CPUs (`subject`, `engine`) that interrupts took, where the kernel
        counts them apart from the threads that they interrupt; else 0. `cores`: CPUs that the role used itself;
        `foreign`: those that other programs used, None if not known.

        The kernel tells the sum over all CPUs. Of the role's own CPUs interrupts took at least what is left if all
        other programs ran there, and that is returned; for a role without CPUs of its own, the mean of all. Packets
        within one machine interrupt their sender's CPU; whom those from another machine interrupt is not known: 0."""
        if self.probe is None or self.generators or not self.is_here:
            return 0.0
        start, end = self.window
        busy, interrupts = (self.probe.host.growth(f"cpu_{kind}_ns", start, end) for kind in ("busy", "interrupts"))
        if not busy or not interrupts:
            return 0.0
        own = self._busy_ns(role)
        if not own or foreign is None:
            return interrupts / busy
        unused = own - (cores + foreign + self.probe.own_cores) * (end - start)
        return min(interrupts, max(0.0, unused)) / own

    def _busy_ns(self, role: str) -> float | None:
        """The busy time in the window, in ns, summed over the CPUs that the role was given; None if it was given none,
        if CPUs were not read apart, or if loops kept them busy. None as well beside a container: all of the machine's
        are read there, and the record does not name them."""
        if self.probe is None or self.probe.awake:
            return None
        host, cpus = self.probe.host, self.record.cpus
        dealt = {cpu for part in ("subject", "engine", "probe") for cpu in cpus.get(part, ())}
        read = sum(name.startswith("cpu_busy_ns_each_") for name in host.fields)
        # Where another program serves, the CPUs that were meant for the server are read, too, and the record has none.
        every = sorted(dealt if read == len(dealt) else dealt.union(cpus.get("machine", ())))
        given = cpus.get(role, ())
        if not given or read != len(every):
            return None
        each = [host.growth(f"cpu_busy_ns_each_{every.index(cpu)}", *self.window) for cpu in given]
        known = [ns for ns in each if ns is not None]
        return None if len(known) < len(each) else sum(known)

    @property
    def subject_quota(self) -> float | None:
        """The number of CPUs that the lowest CPU quota of the subject's cgroups allows; None without a quota."""
        tree = self.subject_tree
        levels = None if tree is None else tree.levels("cpu_quota_now", *self.window)
        return None if levels is None else float(levels.min())

    @property
    def shares_quota(self) -> bool:
        """True if load engine and bench run under the CPU quota that is the narrowest of the subject's: the one that
        holds for the whole trial, such as a container's, where the experiment gave the subject none of its own."""
        whole, subject = self.record.cpu_quota, self.subject_quota
        if whole is None or subject is None or self.experiment.host_for(self.record.spec.setting).cpu_quota is not None:
            return False
        return math.isclose(whole, subject, rel_tol=1e-6)

    @cached_property
    def go_collecting_cores(self) -> float | None:
        """The number of CPUs that the garbage collectors of the subject's Go programs used. Each program contributes
        the share of its CPU time that its processors, while not idle, spent on collections. That share is known only
        for the whole load, so the result is scaled by the subject's CPU use in the window. None if no Go program
        collected, or if the figures of one are not known."""
        found, phases = list(self.record.go_collected.values()), self.record.phases
        tree = self.subject_tree
        if not found or tree is None or "go" not in phases or "end" not in phases:
            return None
        known = [each for each in found if each is not None]
        loaded, window = tree.cores(phases["go"], phases["end"]), tree.cores(*self.window)
        if len(known) < len(found) or not loaded or window is None:
            return None
        used_ns = sum(each["collecting_ns"] / each["busy_ns"] * each["cpu_ns"] for each in known)
        return used_ns / (phases["end"] - phases["go"]) * window / loaded

    @cached_property
    def send_lag(self) -> MergedTimes:
        """The delays of the load engines: from the scheduled to the actual send of each request of the cohort."""
        return self.fleet.times("send_lag_ns")

    @cached_property
    def pools(self) -> tuple[WatchedPool, ...]:
        """The server's pools of threads in the window, the busiest first; empty without a probe."""
        names = self.record.thread_names
        return () if self.probe is None else watched_pools(self.probe.threads, *self.window, names)

    @cached_property
    def crowd(self) -> Crowd | None:
        """The users of a WebSocket load; None where no engine has any."""
        return crowd_of(self.record.engines, joined_users(self.intervals), self.fleet)

    @cached_property
    def quiet_time(self) -> QuietTime | None:
        """The parts of the window in which other programs hardly ran. None for a load that pauses or comes at a rate,
        which makes up later for what others held up."""
        probe = self.probe
        if probe is None or not self.load.never_pauses or not self.foreign_is_known:
            return None
        if not self.record.generators and not probe.matching("engine"):
            return None
        return quiet_time_of(probe, self.intervals, self.fleet, settle_ns=self.response.moment(1))

    def overflows(self, until_ns: int | None = None) -> float | None:
        """The number of connections that found an accept queue full, from the start of the load until `until_ns` (by
        default the end of the load); None if they were not counted."""
        go_ns, until_ns = self.record.phases.get("go"), until_ns or self.record.phases.get("end")
        if self.probe is None or go_ns is None or until_ns is None or not self.queues_here:
            return None
        return self.probe.host.growth("listen_overflows", go_ns, until_ns, covered_least=0.0)


Figures = Mapping[str, float] | Iterable[tuple[str, float]]
"""Metrics by name; one that could not be measured is absent, never 0."""


def _nothing(*_: object) -> tuple[()]:
    return ()


@dataclass(frozen=True)
class Source:
    """A source makes some of a trial's metrics, and reports problems. Each metric names its source (`model/metrics.py`)
    by `name`. `metrics`: returns the figures that the evidence shows; `problems`: is given the metrics of all
    sources."""

    name: str
    metrics: Callable[[Evidence], Figures] = _nothing
    problems: Callable[[Evidence, Mapping[str, float]], Iterable[Problem]] = _nothing
