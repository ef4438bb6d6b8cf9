"""Runs one trial: subject up, ready, probed, engines armed, go, warm-up until steady, measure, drain, stop. What drives
a trial is a fleet of engines, a JMeter that runs a plan, or the subject itself, of which its counter tells.

Each resource is a context manager inside the one before, so whatever happens, everything ends in reverse order. A trial
that fails is data: it becomes a record with a failure. Only our own impossibilities (a full disk, no engine) raise.
Nothing is computed from what was measured; when the warm-up has lasted long enough is decided by `steady`.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from powerband.base.logs import final_figures
from powerband.loads.counted.driver import Counted
from powerband.loads.engine_specs import fleet_specs
from powerband.loads.jmeter.driver import JMeterLoad, jmeter_up
from powerband.model.experiment import Experiment
from powerband.model.plan import Stage, TrialSpec
from powerband.model.warmup import WarmupSeries
from powerband.processes.cpus import CpuSplit, cpu_split
from powerband.processes.engine_fleet import FleetInterval, descriptor_limit, find_engine, fleet_up
from powerband.processes.engine_process import Pump
from powerband.processes.failures import TrialFailed, TrialInterrupted
from powerband.processes.host import cpu_quota, usable_cores
from powerband.processes.line_file import LineFile
from powerband.processes.ports import local_ports
from powerband.processes.probe_process import RunningProbe
from powerband.processes.stop_request import StopRequest
from powerband.processes.subject_process import RunningSubject, SubjectFiles, subject_up
from powerband.processes.toolchain import given_values
from powerband.store import Failure, TrialDir, TrialRecord
from powerband.trials.instruments.acknowledged_writes import Round, check_acknowledged
from powerband.trials.instruments.heap_snapshots import LONGEST_S, Snapshot, When, take_snapshots
from powerband.trials.instruments.visitor import NoVisitorError, Visit, visitor_up
from powerband.trials.link_service import Link
from powerband.trials.services import Services
from powerband.wire.message import Wire
from powerband.wire.specs import Drain, Go, LoadSpec, StartMeasure

GO_LEAD_NS = 2_000_000  # from the go command to the common start: long enough to reach one engine
GO_LEAD_PER_ENGINE_NS = 500_000
STEADY_EVERY_NS = 500_000_000
OBSERVE_EVERY_INTERVALS = 2
REPORT_SLACK_S = 10.0
GATHER_S = 0.02


class TrialObserver(Protocol):
    """The part of an observer that a trial talks to."""

    def phase(self, name: str) -> None: ...

    def interval(self, rate_per_s: float, response_time_ns_mean: float | None, in_flight: int) -> None: ...


class Driver(Protocol):
    """What a trial is driven by: a fleet of engines, a JMeter (`JMeterLoad`), or a subject that drives itself
    (`Counted`). Told to go and to measure by `send`; all else is what it has said so far, or as of the last `look`.
    `begun_ns`: when it began, if by itself."""

    intervals: list[FleetInterval]
    phases: dict[str, int]
    seen: Counter[str]

    @property
    def begun_ns(self) -> int | None: ...

    @property
    def pids(self) -> list[int]: ...

    @property
    def finished(self) -> bool: ...

    @property
    def summaries(self) -> tuple[Mapping[str, Any], ...]: ...

    def look(self) -> None: ...

    def send(self, command: Wire) -> None: ...

    def check_begun(self) -> None: ...

    def check_ended(self) -> None: ...

    def overdue(self, what: str) -> TrialFailed: ...


def run_trial(
    experiment: Experiment,
    spec: TrialSpec,
    directory: TrialDir,
    *,
    steady: Callable[[WarmupSeries], bool],
    observer: TrialObserver,
    stop: StopRequest,
    services: Services | None = None,
) -> TrialRecord:
    """Writes `directory` and returns its record. `steady` sees the series so far, about twice a second once
    `warmup_min`, and the ramp with one think time, are over and answers have come, and ends the warm-up by saying True.

    A request to stop ends the trial with status `interrupted`. Raises MeasurementError (no engine, disk full) and
    ExperimentError (a template or a CPU list that cannot be filled); then nothing was recorded."""
    engine = find_engine()
    load = experiment.load_for(spec.setting, spec.rate_per_s)
    split = cpu_split(usable_cores(), experiment.host, 0 if experiment.is_self_driven else load.engine_threads)
    trial = _Trial(
        experiment=experiment,
        spec=spec,
        directory=directory,
        engine=engine,
        split=split,
        steady=steady,
        observer=observer,
        stop=stop,
        services=services or Services(experiment.subject, given_values(experiment.subject, engine)),
    )
    directory.begin(spec)
    status, failure = trial.run()
    record = trial.record(status, failure)
    if directory.engine_log.is_file() and directory.engine_log.stat().st_size == 0:
        directory.engine_log.unlink()
    directory.write_record(record)
    return record


class _Trial:
    """The state of one trial while it runs."""

    def __init__(
        self,
        *,
        experiment: Experiment,
        spec: TrialSpec,
        directory: TrialDir,
        engine: Path,
        split: CpuSplit,
        steady: Callable[[WarmupSeries], bool],
        observer: TrialObserver,
        stop: StopRequest,
        services: Services,
    ) -> None:
        self.experiment = experiment
        self.load = experiment.load_for(spec.setting, spec.rate_per_s)
        self.spec = spec
        self.directory = directory
        self.engine = engine
        self.split = split
        self.steady = steady
        self.observer = observer
        self.stop = stop
        self.services = services
        self.wall_ns, self.monotonic_ns = time.time_ns(), time.monotonic_ns()
        self.phases: dict[str, int] = {}
        self.warmup_ended_by: str | None = None
        self.probe: RunningProbe | None = None
        self.driver: Driver | None = None
        self.counted: Counted | None = None
        self.jmeter: JMeterLoad | None = None
        self.observed = 0
        self.control_cpu_ns: int | None = None
        self.acknowledged: list[Round] = []
        self.thread_names: dict[int, str] = {}
        self.visits: list[Visit] = []
        self.no_visitor = ""
        self.snapshots: list[Snapshot] = []
        self.link: Link | None = None

    def run(self) -> tuple[str, Failure | None]:
        """Status and failure. Raises only what `run_trial` raises."""
        try:
            with (
                pinned_to(self.split.engine + self.split.probe),
                Pump(self.stop) as pump,
                LineFile(self.directory.events) as events,
                LineFile(self.directory.probe) as probe_lines,
            ):
                self._measure(pump, events, probe_lines)
        except TrialInterrupted as interrupted:
            return "interrupted", interrupted.failure
        except TrialFailed as failed:
            return "failed", failed.failure
        finally:
            self.phases["stopped"] = time.monotonic_ns()
        return "measured", None

    def record(self, status: str, failure: Failure | None) -> TrialRecord:
        return TrialRecord(
            spec=self.spec,
            status=status,
            failure=failure,
            wall_ns=self.wall_ns,
            monotonic_ns=self.monotonic_ns,
            phases=self.phases,
            warmup_ended_by=self.warmup_ended_by,
            engines=self.driver.summaries if self.driver else (),
            subject=self.probe.facts() if self.probe else {},
            cpus=self.split.to_json(),
            cpu_quota=cpu_quota(),
            control_cpu_ns=self.control_cpu_ns,
            acknowledged=tuple(row.to_json() for row in self.acknowledged),
            thread_names={str(tid): name for tid, name in self.thread_names.items()},
            visits=tuple(visit.to_json() for visit in self.visits),
            no_visitor=self.no_visitor,
            last_words=final_figures(self.directory.log, self.experiment.subject.last_words),
            snapshots=tuple(snapshot.to_json() for snapshot in self.snapshots),
            link={} if self.link is None else self.link.facts(),
            jmeter={} if self.jmeter is None else self.jmeter.facts(),
        )

    def _measure(self, pump: Pump, events: LineFile, probe_lines: LineFile) -> None:
        with self.services.linked(self.spec.setting, self.engine, self.directory.engine_log, pump) as self.link:
            self._measure_here(pump, events, probe_lines)

    def _measure_here(self, pump: Pump, events: LineFile, probe_lines: LineFile) -> None:
        files = SubjectFiles(self.directory.log, self.directory.engine_log, probe_lines, self.directory.write_address)
        if (counts := self.experiment.subject.counts) is not None:
            warmup_ns = None if self._ends_warmup else self._warmup_ns
            self.counted = Counted(counts, events, warmup_ns=warmup_ns, duration_ns=self.load.duration_ns)
        self.observer.phase("launch")
        self.services.renew(self.spec.setting)
        with subject_up(
            self.experiment.subject,
            self.spec.setting,
            engine=self.engine,
            cpus=self.split,
            files=files,
            pump=pump,
            on_launched=self._launched,
            scraped=self.experiment.scraped,
            given={**self.services.given(self.spec.setting), **(self.link.given() if self.link else {})},
            counted=self.counted,
        ) as subject:
            self.phases["ready"] = time.monotonic_ns()
            self.observer.phase("ready")
            for name, pid in self.services.watched(self.spec.setting).items():
                subject.probe.watch(name, pid)
            if self.link is not None:
                subject.probe.watch("link", self.link.pid)
            with self._driven(subject, events, pump) as driver:
                self.driver = driver
                for index, pid in enumerate(driver.pids):
                    subject.probe.watch("engine" if len(driver.pids) == 1 else f"engine-{index}", pid)
                with self._visited(subject):
                    self._drive(pump, driver, subject)
            driver.check_ended()
            self._snapshot("after", pump, subject)
            self._check_acknowledged(subject)
            self.thread_names = subject.thread_names()
            self.observer.phase("stop")

    @contextmanager
    def _driven(self, subject: RunningSubject, events: LineFile, pump: Pump) -> Iterator[Driver]:
        if self.counted is not None:
            yield self.counted
            return
        if self.load.jmeter is not None:
            with jmeter_up(
                self.experiment,
                self.spec.setting,
                engine=self.engine,
                cpus=self.split,
                subject=subject,
                directory=self.directory,
                events=events,
                pump=pump,
                warmup_ns=None if self._ends_warmup else self._warmup_ns,
            ) as self.jmeter:
                yield self.jmeter
            return
        specs = self._specs(subject.rendered.url)
        with fleet_up(self.engine, specs, events, self.directory.engine_log, pump) as fleet:
            yield fleet

    @contextmanager
    def _visited(self, subject: RunningSubject) -> Iterator[None]:
        """A real browser meanwhile, on the CPUs of the load engine, where one is asked for and there is one."""
        page = subject.rendered.visitor_url
        if not self.experiment.measure.visitor or page is None:
            yield
            return
        with ExitStack() as stack:
            try:
                visitor = stack.enter_context(visitor_up(page, self.directory.visitor_log, self.split.engine))
            except NoVisitorError as missing:
                self.no_visitor = str(missing)
                yield
                return
            subject.probe.watch("visitor", visitor.pid)
            yield
            self.visits = visitor.visits()

    def _check_acknowledged(self, subject: RunningSubject) -> None:
        """After the load, so that what is timed is the subject's own work; once for each fresh start that counts."""
        wanted = self.experiment.measure.acknowledged
        if wanted is None or not self._counts:
            return

        def go_on() -> None:
            subject.check_alive()
            if self.stop.requested:
                raise TrialInterrupted

        self.observer.phase("acknowledged")
        self.acknowledged = check_acknowledged(wanted, subject.rendered.url, go_on)

    def _snapshot(self, when: When, pump: Pump, subject: RunningSubject) -> None:
        """Of the heaps of JVMs, where that is asked for."""
        if self._takes_snapshots:
            self.observer.phase("snapshot")
            self.snapshots += take_snapshots(when, subject, self.directory.snapshots, pump)

    @property
    def _counts(self) -> bool:
        """A fresh start that is compared with others, not one that only searches."""
        return self.spec.stage in (Stage.COMPARE, Stage.CONFIRM)

    @property
    def _takes_snapshots(self) -> bool:
        return self.experiment.measure.snapshots and self._counts

    def _launched(self, probe: RunningProbe) -> None:
        assert probe.launched is not None
        self.probe = probe
        if self.counted is not None:
            self.counted.forget()
            probe.on_series = self.counted.on_series
        self.phases["launched"] = probe.launched.at_ns

    @property
    def _joining_ns(self) -> int:
        """What comes before the warm-up: the users of a WebSocket load join first."""
        return self.load.joining_ns if self.load.websocket is not None else 0

    @property
    def _warmup_ns(self) -> int | None:
        """A fixed warm-up, from go on; None: until steady. Where each user sends a set number of requests, none may be
        missed."""
        warmup_ns = self.experiment.warmup_ns_of(self.spec.stage)
        if warmup_ns is None:
            return 0 if self.load.requests_per_user is not None else None
        return self._joining_ns + warmup_ns

    @property
    def _ends_warmup(self) -> bool:
        """Whether the engines wait to be told: until steady, or until a snapshot is taken."""
        return self._warmup_ns is None or (self._takes_snapshots and self._warmup_ns > 0)

    @property
    def _warmup_max_ns(self) -> int:
        return max(self._joining_ns + self.experiment.measure.warmup_max_ns, self.load.joining_ns)

    def _specs(self, url: str) -> list[LoadSpec]:
        return fleet_specs(
            self.load,
            url=url,
            seed=self.spec.seed,
            descriptor_limit=descriptor_limit(),
            local_ports=local_ports(),
            cpus=self.split.engine,
            allow_remote=urlsplit(url).hostname in self.experiment.allow_hosts,
            warmup_ns=None if self._ends_warmup else self._warmup_ns,
            warmup_max_ns=max(self._warmup_max_ns, self._warmup_ns or 0)
            + (round(LONGEST_S * 1e9) if self._takes_snapshots else 0),
        )

    def _drive(self, pump: Pump, driver: Driver, subject: RunningSubject) -> None:
        """From go to the last summary."""

        def passed(done: Callable[[], bool]) -> Callable[[], bool]:
            def check() -> bool:
                subject.check_alive()
                driver.look()
                self._observe(driver)
                return driver.finished or done()

            return check

        if self._warmup_ns == 0:
            self._snapshot("before", pump, subject)
        go_ns = driver.begun_ns
        if go_ns is None:
            go_ns = time.monotonic_ns() + GO_LEAD_NS + GO_LEAD_PER_ENGINE_NS * len(driver.pids)
        driver.send(Go(at_ns=go_ns))
        self.phases["go"] = go_ns
        cpu_at_go_ns = time.process_time_ns()
        if self._joining_ns and self._warmup_ns != 0:
            self.observer.phase("join")
            pump.wait(passed(lambda: time.monotonic_ns() >= go_ns + self._joining_ns), self._joining_ns / 1e9)
        self.observer.phase("warmup")
        self._warm_up(pump, driver, subject, go_ns, passed)
        self._enter(pump, driver, "measure", REPORT_SLACK_S, passed)
        duration_s = self.load.duration_ns / 1e9
        self._enter(pump, driver, "drain", duration_s + REPORT_SLACK_S, passed)
        drain_s = self.load.drain_ns / 1e9
        if not pump.wait(passed(lambda: driver.finished), drain_s + REPORT_SLACK_S):
            raise driver.overdue("report the end of the run")
        self.phases["end"] = max((summary["end_ns"] for summary in driver.summaries), default=time.monotonic_ns())
        self.control_cpu_ns = time.process_time_ns() - cpu_at_go_ns

    def _warm_up(
        self,
        pump: Pump,
        driver: Driver,
        subject: RunningSubject,
        go_ns: int,
        passed: Callable[[Callable[[], bool]], Callable[[], bool]],
    ) -> None:
        """Until the fixed time is over, `steady` says so, or the limit is reached."""
        if self._warmup_ns is not None:
            self.warmup_ended_by = "fixed"
            end_ns = go_ns + self._warmup_ns
            left_s = (end_ns - time.monotonic_ns()) / 1e9
            if self._ends_warmup:
                pump.wait(passed(lambda: time.monotonic_ns() >= end_ns), left_s, gather_s=GATHER_S)
                self._begin_window(pump, driver, subject)
            else:
                pump.wait(passed(lambda: "measure" in driver.phases), left_s + REPORT_SLACK_S, gather_s=GATHER_S)
            return
        # Before each user has sent and paused once, a closed load is still building up, which no series shows.
        built_up_ns = self.load.joining_ns + self.load.longest_pause_ns
        least_ns = max(self._joining_ns + self.experiment.measure.warmup_min_ns, built_up_ns)
        next_ns = go_ns + least_ns

        def is_steady() -> bool:
            nonlocal next_ns
            if not driver.intervals or driver.intervals[-1].end_ns < next_ns or not driver.seen["ok"]:
                return False
            next_ns = driver.intervals[-1].end_ns + STEADY_EVERY_NS
            return self.steady(series_of(driver.intervals, go_ns))

        limit_s = (self._warmup_max_ns - (time.monotonic_ns() - go_ns)) / 1e9
        steady = pump.wait(passed(is_steady), limit_s, gather_s=GATHER_S)
        if not steady:
            self._check_begun(pump, driver, passed)
        self.warmup_ended_by = "steady" if steady else "limit"
        self._begin_window(pump, driver, subject)

    def _begin_window(self, pump: Pump, driver: Driver, subject: RunningSubject) -> None:
        self._snapshot("before", pump, subject)
        lead_ns = GO_LEAD_NS + GO_LEAD_PER_ENGINE_NS * len(driver.pids)
        driver.send(StartMeasure(at_ns=time.monotonic_ns() + lead_ns))

    def _check_begun(
        self, pump: Pump, driver: Driver, passed: Callable[[Callable[[], bool]], Callable[[], bool]]
    ) -> None:
        """Raises TrialFailed where there is nothing to measure: nobody was answered, or nobody joined. Why nobody could
        join is in the engines' last words, for which they are asked."""
        if self.load.websocket is not None and not driver.seen:
            driver.send(Drain())
            pump.wait(passed(lambda: driver.finished), self.load.drain_ns / 1e9 + REPORT_SLACK_S)
            driver.check_ended()
        driver.check_begun()

    def _enter(
        self,
        pump: Pump,
        driver: Driver,
        phase: str,
        timeout_s: float,
        passed: Callable[[Callable[[], bool]], Callable[[], bool]],
    ) -> None:
        if not pump.wait(passed(lambda: phase in driver.phases), timeout_s, gather_s=GATHER_S):
            raise driver.overdue(f"enter the phase {phase}")
        if phase in driver.phases:  # else the engines have ended already
            self.phases[phase] = driver.phases[phase]
            self.observer.phase(phase)

    def _observe(self, driver: Driver) -> None:
        while len(driver.intervals) - self.observed >= OBSERVE_EVERY_INTERVALS:
            recent = driver.intervals[self.observed : self.observed + OBSERVE_EVERY_INTERVALS]
            self.observed += OBSERVE_EVERY_INTERVALS
            self.observer.interval(*over(recent))


def over(intervals: list[FleetInterval]) -> tuple[float, float | None, int]:
    """Rate of ok requests per second, their mean response time in ns (None where none is known), in flight at the
    end."""
    length_ns = intervals[-1].end_ns - intervals[0].start_ns
    ok = sum(interval.ok for interval in intervals)
    timed = [each for each in intervals if each.ok and not math.isnan(each.response_time_ns_mean)]
    time_ns = sum(interval.response_time_ns_mean * interval.ok for interval in timed)
    return ok * 1e9 / max(1, length_ns), time_ns / ok if timed else None, intervals[-1].in_flight


def series_of(intervals: list[FleetInterval], go_ns: int) -> WarmupSeries:
    last = intervals[-1]
    return WarmupSeries(
        interval_s=(last.end_ns - last.start_ns) / 1e9,
        rate_per_s=tuple(interval.rate_per_s for interval in intervals),
        response_time_ns_mean=tuple(interval.response_time_ns_mean for interval in intervals),
        elapsed_s=(last.end_ns - go_ns) / 1e9,
    )


@contextmanager
def pinned_to(cpus: tuple[int, ...]) -> Iterator[None]:
    """Keeps this thread off the subject's CPUs; processes started meanwhile begin there too. Empty: no change."""
    if not cpus:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
