"""Runs one trial: subject up, ready, probed, engines armed, go, warm-up until steady, measure, drain, stop.

Each resource is a context manager inside the one before, so whatever happens, everything ends in reverse order. A trial
that fails is data: it becomes a record with a failure. Only our own impossibilities (a full disk, no engine) raise.
Nothing is computed from what was measured; when the warm-up has lasted long enough is decided by `steady`.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from powerband import protocol as wire
from powerband.experiment import Experiment
from powerband.plan import Stage, TrialSpec
from powerband.protocol import WarmupSeries
from powerband.run.acknowledged import Round, check_acknowledged
from powerband.run.cpus import CpuSplit, cpu_split
from powerband.run.engine import Fleet, FleetInterval, descriptor_limit, find_engine, fleet_up
from powerband.run.failures import Code, TrialFailed, TrialInterrupted
from powerband.run.files import LineFile
from powerband.run.host import cpu_quota, usable_cores
from powerband.run.loadspec import fleet_specs
from powerband.run.ports import local_ports
from powerband.run.probe import Probe
from powerband.run.process import Pump
from powerband.run.services import Services
from powerband.run.stop import StopRequest
from powerband.run.subject import RunningSubject, SubjectFiles, subject_up
from powerband.run.toolchain import given_values
from powerband.run.visitor import NoVisitorError, Visit, visitor_up
from powerband.store import Failure, TrialDir, TrialRecord

GO_LEAD_NS = 2_000_000  # from the go command to the common start: long enough to reach one engine
GO_LEAD_PER_ENGINE_NS = 500_000
STEADY_EVERY_NS = 500_000_000
OBSERVE_EVERY_INTERVALS = 2
REPORT_SLACK_S = 10.0
GATHER_S = 0.02
SILENT = {"timeout", "unfinished", "connect_timeout"}


class TrialObserver(Protocol):
    """The part of an observer that a trial talks to."""

    def phase(self, name: str) -> None: ...

    def interval(self, rate_per_s: float, response_time_ns_mean: float | None, in_flight: int) -> None: ...


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
    split = cpu_split(usable_cores(), experiment.host, load.engine_threads)
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
        self.probe: Probe | None = None
        self.fleet: Fleet | None = None
        self.observed = 0
        self.control_cpu_ns: int | None = None
        self.acknowledged: list[Round] = []
        self.thread_names: dict[int, str] = {}
        self.visits: list[Visit] = []
        self.no_visitor = ""

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
            engines=self.fleet.summaries if self.fleet else (),
            subject=self.probe.facts() if self.probe else {},
            cpus=self.split.to_json(),
            cpu_quota=cpu_quota(),
            control_cpu_ns=self.control_cpu_ns,
            acknowledged=tuple(row.to_json() for row in self.acknowledged),
            thread_names={str(tid): name for tid, name in self.thread_names.items()},
            visits=tuple(visit.to_json() for visit in self.visits),
            no_visitor=self.no_visitor,
        )

    def _measure(self, pump: Pump, events: LineFile, probe_lines: LineFile) -> None:
        files = SubjectFiles(self.directory.log, self.directory.engine_log, probe_lines)
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
            scraped=self.experiment.measure.scraped,
            given=self.services.given(self.spec.setting),
        ) as subject:
            self.phases["ready"] = time.monotonic_ns()
            self.observer.phase("ready")
            for name, pid in self.services.watched(self.spec.setting).items():
                subject.probe.watch(name, pid)
            specs = self._specs(subject.rendered.url)
            with fleet_up(self.engine, specs, events, self.directory.engine_log, pump) as fleet:
                self.fleet = fleet
                for index, pid in enumerate(fleet.pids):
                    subject.probe.watch("engine" if len(specs) == 1 else f"engine-{index}", pid)
                with self._visited(subject):
                    self._drive(pump, fleet, subject)
            check_joined(fleet.summaries)
            check_answered(fleet.outcomes())
            check_measured(fleet.summaries)
            self._check_acknowledged(subject)
            self.thread_names = subject.thread_names()
            self.observer.phase("stop")

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
        if wanted is None or self.spec.stage not in (Stage.COMPARE, Stage.CONFIRM):
            return

        def go_on() -> None:
            subject.check_alive()
            if self.stop.requested:
                raise TrialInterrupted

        self.observer.phase("acknowledged")
        self.acknowledged = check_acknowledged(wanted, subject.rendered.url, go_on)

    def _launched(self, probe: Probe) -> None:
        assert probe.launched is not None
        self.probe = probe
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
    def _warmup_max_ns(self) -> int:
        return max(self._joining_ns + self.experiment.measure.warmup_max_ns, self.load.joining_ns)

    def _specs(self, url: str) -> list[wire.LoadSpec]:
        return fleet_specs(
            self.load,
            url=url,
            seed=self.spec.seed,
            descriptor_limit=descriptor_limit(),
            local_ports=local_ports(),
            cpus=self.split.engine,
            allow_remote=urlsplit(url).hostname in self.experiment.allow_hosts,
            warmup_ns=self._warmup_ns,
            warmup_max_ns=self._warmup_max_ns,
        )

    def _drive(self, pump: Pump, fleet: Fleet, subject: RunningSubject) -> None:
        """From go to the last summary."""

        def passed(done: Callable[[], bool]) -> Callable[[], bool]:
            def check() -> bool:
                subject.check_alive()
                self._observe(fleet)
                return fleet.finished or done()

            return check

        go_ns = time.monotonic_ns() + GO_LEAD_NS + GO_LEAD_PER_ENGINE_NS * len(fleet.pids)
        fleet.send(wire.Go(at_ns=go_ns))
        self.phases["go"] = go_ns
        cpu_at_go_ns = time.process_time_ns()
        if self._joining_ns and self._warmup_ns != 0:
            self.observer.phase("join")
            pump.wait(passed(lambda: time.monotonic_ns() >= go_ns + self._joining_ns), self._joining_ns / 1e9)
        self.observer.phase("warmup")
        self._warm_up(pump, fleet, go_ns, passed)
        self._enter(pump, fleet, "measure", REPORT_SLACK_S, passed)
        duration_s = self.load.duration_ns / 1e9
        self._enter(pump, fleet, "drain", duration_s + REPORT_SLACK_S, passed)
        drain_s = self.load.drain_ns / 1e9
        if not pump.wait(passed(lambda: fleet.finished), drain_s + REPORT_SLACK_S):
            raise TrialFailed(Code.ENGINE_FAILED, "the engine did not report the end of the run in time")
        self.phases["end"] = max((summary["end_ns"] for summary in fleet.summaries), default=time.monotonic_ns())
        self.control_cpu_ns = time.process_time_ns() - cpu_at_go_ns

    def _warm_up(
        self, pump: Pump, fleet: Fleet, go_ns: int, passed: Callable[[Callable[[], bool]], Callable[[], bool]]
    ) -> None:
        """Until the fixed time is over, `steady` says so, or the limit is reached."""
        if self._warmup_ns is not None:
            self.warmup_ended_by = "fixed"
            fixed_s = self._warmup_ns / 1e9 + REPORT_SLACK_S
            pump.wait(passed(lambda: "measure" in fleet.phases), fixed_s, gather_s=GATHER_S)
            return
        # Before each user has sent and paused once, a closed load is still building up, which no series shows.
        built_up_ns = self.load.joining_ns + self.load.longest_pause_ns
        least_ns = max(self._joining_ns + self.experiment.measure.warmup_min_ns, built_up_ns)
        next_ns = go_ns + least_ns

        def is_steady() -> bool:
            nonlocal next_ns
            if not fleet.intervals or fleet.intervals[-1].end_ns < next_ns or not fleet.seen["ok"]:
                return False
            next_ns = fleet.intervals[-1].end_ns + STEADY_EVERY_NS
            return self.steady(series_of(fleet.intervals, go_ns))

        limit_s = (self._warmup_max_ns - (time.monotonic_ns() - go_ns)) / 1e9
        steady = pump.wait(passed(is_steady), limit_s, gather_s=GATHER_S)
        if not steady:
            self._check_begun(pump, fleet, passed)
        self.warmup_ended_by = "steady" if steady else "limit"
        fleet.send(wire.StartMeasure(at_ns=time.monotonic_ns() + GO_LEAD_NS + GO_LEAD_PER_ENGINE_NS * len(fleet.pids)))

    def _check_begun(
        self, pump: Pump, fleet: Fleet, passed: Callable[[Callable[[], bool]], Callable[[], bool]]
    ) -> None:
        """Raises TrialFailed where there is nothing to measure: nobody was answered, or nobody joined. Why nobody could
        join is in the engines' last words, for which they are asked."""
        if self.load.websocket is not None and not fleet.seen:
            fleet.send(wire.Drain())
            pump.wait(passed(lambda: fleet.finished), self.load.drain_ns / 1e9 + REPORT_SLACK_S)
            check_joined(fleet.summaries)
        check_answered(fleet.seen)

    def _enter(
        self,
        pump: Pump,
        fleet: Fleet,
        phase: str,
        timeout_s: float,
        passed: Callable[[Callable[[], bool]], Callable[[], bool]],
    ) -> None:
        if not pump.wait(passed(lambda: phase in fleet.phases), timeout_s, gather_s=GATHER_S):
            raise TrialFailed(Code.ENGINE_FAILED, f"the engine did not enter the phase {phase} in time")
        if phase in fleet.phases:  # else the engines have ended already
            self.phases[phase] = fleet.phases[phase]
            self.observer.phase(phase)

    def _observe(self, fleet: Fleet) -> None:
        while len(fleet.intervals) - self.observed >= OBSERVE_EVERY_INTERVALS:
            recent = fleet.intervals[self.observed : self.observed + OBSERVE_EVERY_INTERVALS]
            self.observed += OBSERVE_EVERY_INTERVALS
            self.observer.interval(*over(recent))


def over(intervals: list[FleetInterval]) -> tuple[float, float | None, int]:
    """Rate of ok requests per second, their mean response time in ns (None without any), in flight at the end."""
    length_ns = intervals[-1].end_ns - intervals[0].start_ns
    ok = sum(interval.ok for interval in intervals)
    time_ns = sum(interval.response_time_ns_mean * interval.ok for interval in intervals if interval.ok)
    return ok * 1e9 / max(1, length_ns), time_ns / ok if ok else None, intervals[-1].in_flight


def series_of(intervals: list[FleetInterval], go_ns: int) -> WarmupSeries:
    last = intervals[-1]
    return WarmupSeries(
        interval_s=(last.end_ns - last.start_ns) / 1e9,
        rate_per_s=tuple(interval.rate_per_s for interval in intervals),
        response_time_ns_mean=tuple(interval.response_time_ns_mean for interval in intervals),
        elapsed_s=(last.end_ns - go_ns) / 1e9,
    )


def check_answered(outcomes: Counter[str]) -> None:
    """Raises TrialFailed where not one request ended ok: there is nothing to measure then."""
    if outcomes["ok"]:
        return
    ended = ", ".join(f"{count} {name}" for name, count in outcomes.most_common() if count) or "none ended"
    if set(outcomes) <= SILENT:
        raise TrialFailed(
            Code.NO_RESPONSE,
            f"the subject never answered a request ({ended}): check load.scenario and subject.url, or raise "
            "load.timeout and measure.warmup_max if it is that slow",
        )
    raise TrialFailed(
        Code.NO_VALID_RESPONSE,
        f"not one request was answered as it should be ({ended}): check the path, the checks and the server's log",
    )


def check_joined(summaries: Sequence[Mapping[str, Any]]) -> None:
    """Raises TrialFailed where not one user of a WebSocket load could join."""
    joins = [summary["websocket"] for summary in summaries if summary.get("websocket")]
    if not joins or any(part["joined"] for part in joins):
        return
    failed: Counter[str] = sum((Counter(part["joins_failed"]) for part in joins), Counter())
    ended = ", ".join(f"{count} {name}" for name, count in failed.most_common() if count) or "none ended"
    raise TrialFailed(
        Code.NOT_JOINED,
        f"not one user could join ({ended}): check the path of subject.url, load.websocket (headers, subprotocols, "
        "dialect) and the server's log, or raise load.connect_timeout if it is that slow",
    )


def check_measured(summaries: Sequence[Mapping[str, Any]]) -> None:
    """Raises TrialFailed where all users had left before the measured window began."""
    if all(summary["ended_by"] == "work" and not summary["cohort"]["scheduled"] for summary in summaries):
        raise TrialFailed(
            Code.ENDED_IN_WARMUP,
            "the load was over before the measured window began: shorten measure.warmup, or raise "
            "load.requests_per_user",
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
