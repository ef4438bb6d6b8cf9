"""The interface of drivers, and what they know of their trial. A driver is a fleet of engines (`loads/http/driver.py`),
a JMeter that runs a plan, or the counter of a program that drives itself.

Not here: the loop that takes a driver from go to its last event (`trials/driving.py`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from powerband.model.experiment import Experiment
from powerband.model.fields import MINUTE_NS
from powerband.model.load import Load
from powerband.model.plan import Stage, TrialSpec
from powerband.model.warmup import COMPILING_MORE
from powerband.processes.cpus import CpuSplit
from powerband.processes.engine_fleet import FleetInterval, go_lead_ns
from powerband.processes.engine_process import Pump
from powerband.processes.engines import Engines
from powerband.processes.failures import TrialFailed
from powerband.processes.host import usable_cores
from powerband.processes.line_file import LineFile
from powerband.store import TrialDir
from powerband.wire.load_events import Interval, Summary
from powerband.wire.message import Wire, encode

SCREEN_WARMUP_NS = 1_100_000_000
"""The longest warm-up of a short trial, enough to check twice whether the server is steady. A queue of users may take
many seconds to fill, but a setting that is far behind shows earlier. A trial that has not settled by then eliminates
its setting only if that cannot catch up (`search/screening.py`)."""


class Driver(Protocol):
    """Drives the subject of one trial. Commands given to `send` begin its load and its measured window; its attributes
    hold everything that it has reported so far, or by the last `look`."""

    intervals: list[FleetInterval]
    """The load since go, in the order of time; each interval covers the whole fleet."""
    phases: dict[str, int]
    """When each phase began, on the monotonic clock."""
    seen: Counter[str]
    """Requests by outcome."""

    @property
    def begun_ns(self) -> int | None:
        """When it began, for a driver that begins by itself; None if it waits for go."""

    @property
    def pids(self) -> list[int]:
        """The processes that the trial's probe watches as engines."""

    @property
    def lead_ns(self) -> int:
        """The time that a command needs, in ns: the instant that it names must be at least so far away."""

    @property
    def finished(self) -> bool:
        """True once every engine has reported its summary."""

    @property
    def summaries(self) -> tuple[Summary, ...]:
        """The `summary` of each engine that has reported one."""

    def look(self) -> None:
        """Takes in reports that do not come through the pump. Raises TrialFailed."""

    def send(self, command: Wire) -> None:
        """Takes `go` or `measure`, each with the instant at which it takes effect, or `drain`, which ends the load; of
        a rate also `stop`, which ends it without waiting for answers."""

    def check_begun(self) -> None:
        """Raises TrialFailed if there is nothing to measure at the end of the warm-up."""

    def check_ended(self) -> None:
        """Raises TrialFailed if the whole run has nothing to measure."""

    def overdue(self, what: str) -> TrialFailed:
        """Returns the failure of a driver that did not do `what` in time."""

    def record(self) -> dict[str, Any]:
        """Returns the fields that the driver adds to the trial's record."""


class StandIn:
    """The part of a driver that reports like the only engine of a fleet: lines in events.jsonl, one summary."""

    lead_ns = go_lead_ns(1)

    def __init__(self, events: LineFile) -> None:
        self.intervals: list[FleetInterval] = []
        self.phases: dict[str, int] = {}
        self.seen: Counter[str] = Counter()
        self.summaries: tuple[Summary, ...] = ()
        self._events = events

    @property
    def finished(self) -> bool:
        return bool(self.summaries)

    def _report(self, event: Interval | Summary) -> None:
        self._events.write(b'{"engine":0,' + encode(event)[1:])
        if event["type"] == "summary":
            self.summaries = (event,)
        else:
            self.seen.update(event["outcomes"])


@dataclass(frozen=True)
class WarmUp:
    """The time from go to the measured window.

    `joining_ns`: the time at its beginning in which users join. `fixed_ns`: the length of a fixed warm-up; None: it
    lasts until the server is steady, at least `least_ns` and at most `most_ns`, or `compiling_ns` while the server's
    runtime still compiles, or `first_ns` while nothing was answered or counted. `pause_ns`: the longest time that
    instruments keep the window from beginning. `renews`: if all answers in a fixed warm-up were wrong, it begins anew
    with the first right one, for which `first_ns` are waited."""

    joining_ns: int
    fixed_ns: int | None
    least_ns: int
    most_ns: int
    compiling_ns: int
    first_ns: int
    pause_ns: int
    renews: bool = False

    @classmethod
    def of(cls, experiment: Experiment, stage: Stage, load: Load, *, joining_ns: int, pause_ns: int) -> WarmUp:
        """Returns the warm-up that `experiment.measure` asks for in a trial of this stage and load."""
        measure, asked_ns = experiment.measure, experiment.warmup_ns_of(stage, load)
        if asked_ns is not None:
            # The ramp is no part of the window, unless the window is to begin with the first request.
            ramp_ns = load.joining_ns if asked_ns and load.requests_per_user is None else 0
            fixed_ns: int | None = max(joining_ns + asked_ns, ramp_ns)
        else:  # if each user sends a set number of requests, none may be missed
            fixed_ns = None if load.requests_per_user is None else 0
        most_ns = max(joining_ns + measure.warmup_max_ns, load.spread_ns + measure.warmup_min_ns, fixed_ns or 0)
        # No series shows that a load builds up. Some time is left in which the server may be seen to be steady.
        built_up_ns = min(load.built_up_ns, most_ns - measure.warmup_min_ns)
        least_ns = max(joining_ns + measure.warmup_min_ns, built_up_ns)
        return cls(
            joining_ns=joining_ns,
            fixed_ns=fixed_ns,
            least_ns=least_ns,
            most_ns=min(most_ns, max(least_ns, SCREEN_WARMUP_NS)) if stage is Stage.SCREEN else most_ns,
            compiling_ns=COMPILING_MORE * most_ns,
            first_ns=0
            if stage is Stage.SCREEN
            else joining_ns + min(load.timeout_ns, measure.warmup_max_ns + MINUTE_NS),
            pause_ns=pause_ns,
            renews=stage is Stage.CAPACITY and bool(fixed_ns),
        )

    @property
    def shortest_ns(self) -> int:
        """The shortest that the warm-up may last, from go on."""
        return self.least_ns if self.fixed_ns is None else self.fixed_ns

    @property
    def longest_ns(self) -> int:
        """The longest that the warm-up may last, from go on."""
        renewed_ns = self.first_ns + (self.fixed_ns or 0) if self.renews else 0
        return max(self.most_ns, self.compiling_ns, self.first_ns, renewed_ns)

    @property
    def by_command(self) -> bool:
        """True if the driver waits for the `measure` command: until the server is steady, until instruments are done,
        or as a fixed warm-up may begin anew."""
        return self.fixed_ns is None or self.renews or (self.pause_ns > 0 and self.fixed_ns > 0)

    @property
    def driver_ns(self) -> int | None:
        """The length of a warm-up that the driver ends by itself, from go on; None: the `measure` command ends it."""
        return None if self.by_command else self.fixed_ns


@dataclass(frozen=True)
class TrialSetup:
    """The facts that are settled before a trial's subject is launched. `spec`: the setting, seed and offered rate of
    this trial of `experiment`; `directory`: where it is recorded; `engine`: the engine's binary; `cpus`: those to which
    subject, engines and probe are pinned; `engines`: the place where the load's engines run."""

    experiment: Experiment
    spec: TrialSpec
    directory: TrialDir
    engine: Path
    cpus: CpuSplit
    engines: Engines

    @cached_property
    def load(self) -> Load:
        """The load of this setting, at the trial's own rate if a search for capacity gave it one."""
        return self.experiment.load_for(self.spec.setting, self.spec.rate_per_s)

    @property
    def awake_cpus(self) -> tuple[int, ...]:
        """The CPUs that must not sleep: those of the trial, or all if nothing is pinned; empty if they may sleep."""
        if not self.experiment.host.awake:
            return ()
        return self.cpus.all or tuple(sorted(cpu for core in usable_cores() for cpu in core))


@dataclass(frozen=True)
class DriverSetup:
    """The arguments with which a driver is opened: once the subject is ready or, for the counter of a subject, before
    it is launched. `trial`, `warmup`: the trial and its warm-up; `pump`: hands over the lines of all processes while
    the trial waits; `events`: gets each line that an engine writes, with the engine's index."""

    trial: TrialSetup
    warmup: WarmUp
    pump: Pump
    events: LineFile
