"""Everything that one trial left, read once: what metrics and problems are made from.

In: a trial's record, the engines' events, the probe's samples. Out: an `Evidence`, and `Source`, the type of everything
that makes metrics of it. Not here: the sources themselves (`loads/` for what depends on the load, `analyze/trial/`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from powerband.model.clocks import GeneratorNode
from powerband.model.experiment import Experiment
from powerband.model.load import Load
from powerband.model.results import HeapGrowth, Problem
from powerband.readings.crowd import Crowd, crowd_of
from powerband.readings.fleet import MergedFleet, MergedTimes
from powerband.readings.pools import WatchedPool, watched_pools
from powerband.readings.probe_samples import ProbeSamples
from powerband.readings.quiet_time import QuietTime, quiet_time_of
from powerband.readings.recorded_looks import RecordedLooks
from powerband.store import TrialRecord
from powerband.wire.load_events import EngineInterval


@dataclass(frozen=True)
class Evidence:
    """One trial, or a stretch of it: metrics are of the time from `fleet.start_ns` to `fleet.end_ns`."""

    experiment: Experiment
    record: TrialRecord
    load: Load
    """The load of this trial's setting."""
    fleet: MergedFleet
    response: MergedTimes
    probe: ProbeSamples | None
    """None: the probe took no sample."""
    intervals: Sequence[EngineInterval]
    """The engines' `interval` events since the start of the load."""
    steady: bool | None = None
    """Whether the measured window was steady; None: too few intervals to say."""
    rising: bool = False
    """Whether the server still got faster in it."""
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
        intervals = [event for event in events if event.get("type") == "interval"]
        response = fleet.times("response_time_ns")
        return cls(experiment, record, load, fleet, response, probe, intervals, looks=RecordedLooks(record.slots))

    @property
    def sees_inside(self) -> bool:
        """False: the subject runs already, and none of its processes was watched."""
        watched = self.probe is not None and "subject" in self.probe.trees
        return watched or self.experiment.subject.deployed is None

    @property
    def is_here(self) -> bool:
        """Whether the subject ran on this machine."""
        return bool(self.record.subject.get("here", True))

    @property
    def foreign_is_known(self) -> bool:
        """Whether other programs can be told from the subject. Of one that ran before, and runs here, one process is
        watched at most, and its database may be among the others; but where `foreign_cpu_max` is set, they count."""
        limited = self.experiment.measure.foreign_cpu_max is not None and self.sees_inside
        return self.experiment.subject.deployed is None or not self.is_here or limited

    @cached_property
    def generators(self) -> tuple[GeneratorNode, ...]:
        """The other nodes that loaded the server; none: the load came from its own."""
        return tuple(GeneratorNode.from_json(each) for each in self.record.generators)

    @property
    def window(self) -> tuple[int, int]:
        return self.fleet.start_ns, self.fleet.end_ns

    @property
    def pinned(self) -> bool:
        """True if subject and engine have CPUs of their own."""
        if self.record.generators:
            return True
        subject, engine = (set(self.record.cpus.get(role, ())) for role in ("subject", "engine"))
        return bool(subject and engine) and not subject & engine

    @cached_property
    def host_cpus(self) -> float | None:
        """CPUs that the trial may use: all CPU time of the host's samples over the time that passed."""
        if self.probe is None:
            return None
        start, end = self.window
        parts = [self.probe.host.growth(f"cpu_{kind}_ns", start, end) for kind in ("busy", "idle", "steal")]
        known = [part for part in parts if part is not None]
        return None if len(known) < len(parts) else round(sum(known) / (end - start), 1)

    @property
    def subject_cpus(self) -> float | None:
        """CPUs that the subject may use: those it is pinned to, else all; no more than a cgroup quota allows."""
        if self.probe is None:
            return None
        cpus = len(self.record.cpus.get("subject", ())) or self.host_cpus
        quotas = [quota for quota in (self.record.cpu_quota, self.subject_quota) if quota]
        return min([cpus, *quotas]) if cpus else cpus

    @property
    def subject_quota(self) -> float | None:
        """CPUs that the narrowest CPU quota of the subject's cgroups allows; None where there is none."""
        tree = None if self.probe is None else self.probe.trees.get("subject")
        levels = None if tree is None else tree.levels("cpu_quota_now", *self.window)
        return None if levels is None else float(levels.min())

    @cached_property
    def go_collecting_cores(self) -> float | None:
        """CPUs that the collectors of the subject's Go programs used: of each program's CPU the part that its
        processors, while they were not idle, spent on collections. That is known of the whole load, and is taken in
        proportion to the subject's CPU in the window. None: no Go program collected, or that of one is not known."""
        found, phases = list(self.record.go_collected.values()), self.record.phases
        tree = None if self.probe is None else self.probe.trees.get("subject")
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
        return self.fleet.times("send_lag_ns")

    @cached_property
    def pools(self) -> tuple[WatchedPool, ...]:
        return () if self.probe is None else watched_pools(self.probe.threads, *self.window)

    @cached_property
    def crowd(self) -> Crowd | None:
        """The users of a WebSocket load; None where no engine has any."""
        return crowd_of(self.record.engines, self.intervals, self.fleet)

    @cached_property
    def quiet_time(self) -> QuietTime | None:
        """The parts of the window in which other programs hardly ran. None in a load that pauses, or comes at a rate:
        what others held up is made up for later."""
        probe = self.probe
        if probe is None or not self.load.keeps_asking or not self.foreign_is_known:
            return None
        if not self.record.generators and not probe.matching("engine"):
            return None
        return quiet_time_of(probe, self.intervals, self.fleet, settle_ns=self.response.moment(1))

    def overflows(self, until_ns: int | None = None) -> float | None:
        """Connections that found an accept queue full since the start of the load, by default until the engines' last
        word; None where nothing counted them."""
        go_ns, until_ns = self.record.phases.get("go"), until_ns or self.record.phases.get("end")
        if self.probe is None or go_ns is None or until_ns is None or not self.is_here:
            return None
        return self.probe.host.growth("listen_overflows", go_ns, until_ns, covered_least=0.0)


Figures = Mapping[str, float] | Iterable[tuple[str, float]]
"""Metrics by name; one that could not be measured is absent, never 0."""


def _nothing(*_: object) -> tuple[()]:
    return ()


@dataclass(frozen=True)
class Source:
    """Makes some of a trial's metrics, and says what is wrong with them. A metric names its source
    (`model/metrics.py`); `problems` looks at the metrics of all sources."""

    name: str
    metrics: Callable[[Evidence], Figures] = _nothing
    problems: Callable[[Evidence, Mapping[str, float]], Iterable[Problem]] = _nothing
