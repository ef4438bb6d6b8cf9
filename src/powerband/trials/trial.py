"""Runs one trial: subject up, ready, probed, driver ready, go, warm-up until steady, measure, drain, stop.

Each resource is a context manager inside the one before, so that everything ends in reverse order whatever happens. A
trial that fails is data: it becomes a record with a failure. Only obstacles on powerband's side raise (a full disk, no
engine). Nothing is computed from measurements here: `steady` decides when the warm-up has lasted long enough, a load
kind drives the trial (`loads/`), and instruments make further observations (`instruments/`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from powerband.base.procfs import all_processes, tree_of
from powerband.loads import kind_of
from powerband.loads.driver import Driver, DriverSetup, TrialSetup, WarmUp
from powerband.model.experiment import Experiment
from powerband.model.plan import TrialSpec
from powerband.model.subjects import ADDRESS
from powerband.model.warmup import COMPILE_WINDOW_NS, COMPILES, WarmupSeries
from powerband.processes.answered import ANSWERS
from powerband.processes.cgroups import Limits, limited, limits_of, quota_of
from powerband.processes.cpus import CpuSplit, cpu_split
from powerband.processes.deployed_subject import deployed_up
from powerband.processes.engine_fleet import find_engine
from powerband.processes.engine_process import Pump
from powerband.processes.engines import Engines, EnginesHere
from powerband.processes.failures import Code, TrialFailed, TrialInterrupted
from powerband.processes.host import usable_cores
from powerband.processes.line_file import LineFile
from powerband.processes.places import Place, place_of
from powerband.processes.ports import serving
from powerband.processes.probe_process import RunningProbe
from powerband.processes.stop_request import StopRequest
from powerband.processes.subject_process import Rendered, RunningSubject, SubjectFiles, subject_up
from powerband.processes.toolchain import given_values
from powerband.store import Failure, TrialDir, TrialRecord
from powerband.trials.driving import REPORT_SLACK_S, DriveLoop, falls_behind, load_over, series_of
from powerband.trials.instruments import instruments_of
from powerband.trials.services import Services
from powerband.wire.specs import Drain, Stop

STEADY_EVERY_NS = 500_000_000  # arbitrary: a warm-up may last longer than needed by so much; each look costs CPU
REPORTED_WITHIN_S = 5.0  # two intervals, and what a busy machine adds, or one that stands still for a second or two
OBSERVE_EVERY_INTERVALS = 2  # 0.2 s: the terminal draws twice a second
BEHIND_S = 10.0  # arbitrary: an answer to a request that waited so long in a queue misses any usual condition

NOT_YET = ("status_rejected", "connect_refused", "reset", "closed_early")
"""The outcomes of requests to a server that still starts, by itself or by a proxy before it."""


class TrialObserver(Protocol):
    """Follows a trial while it runs, for the terminal and the log."""

    def phase(self, name: str) -> None:
        """Called when a phase of the trial begins, such as `launch`, `warmup` or `measure`."""

    def interval(self, rate_per_s: float, response_time_ns_mean: float | None, in_flight: int) -> None:
        """Gets the load of the last 0.2 s: `ok` requests per second, their mean response time in ns (None if not
        known), and requests in flight at the end."""


def run_trial(
    experiment: Experiment,
    spec: TrialSpec,
    directory: TrialDir,
    *,
    steady: Callable[[WarmupSeries], bool],
    observer: TrialObserver,
    stop: StopRequest,
    services: Services | None = None,
    node: str = "",
    engines: Engines | None = None,
) -> TrialRecord:
    """Runs a trial, writes its `directory` and returns its record. `steady`: ends an automatic warm-up by returning
    True. It gets the series so far about twice a second, of users who are always busy at each interval, once there are
    answers and the minimum is over: `warmup_min`, and the ramp with one think time. `node`: the name of this machine if
    it is a node of a cluster. `engines`: the machines that the load engines run on; None: this one.

    A request to stop ends the trial with status `interrupted`. Raises MeasurementError (no engine, disk full) and
    ExperimentError (a template or a CPU list that cannot be filled); then nothing is recorded."""
    experiment = experiment.as_in(spec)
    engine = find_engine()
    engines = engines or EnginesHere(engine)
    setup = TrialSetup(experiment, spec, directory, engine, _cpus(experiment, spec), engines)
    services = services or Services(experiment.subject, given_values(experiment.subject, engine))
    trial = _Trial(setup, services, steady, observer)
    directory.begin(spec)
    status, failure = trial.run(stop)
    record = replace(trial.record(status, failure), node=node)
    if directory.engine_log.is_file() and directory.engine_log.stat().st_size == 0:
        directory.engine_log.unlink()
    directory.write_record(record)
    return record


def _cpus(experiment: Experiment, spec: TrialSpec) -> CpuSplit:
    """The CPUs of server, engine and probe. A deployed server keeps the CPUs that it has, so none are set aside; a
    container has those that its engine gives it."""
    if experiment.subject.deployed is not None:
        return CpuSplit()
    cores, load = usable_cores(), experiment.load_for(spec.setting, spec.rate_per_s)
    split = cpu_split(cores, experiment.host_dealt, kind_of(experiment).threads_here(experiment, load))
    if not experiment.subject.container_client:
        return split
    return replace(split, subject=(), machine=tuple(sorted(cpu for core in cores for cpu in core)))


class _Trial:
    def __init__(
        self,
        setup: TrialSetup,
        services: Services,
        steady: Callable[[WarmupSeries], bool],
        observer: TrialObserver,
    ) -> None:
        self.setup = setup
        self.services = services
        self.steady = steady
        self.observer = observer
        self.deployed = setup.experiment.subject.deployed is not None
        # The CPUs of a deployed server and their limits are not known, nor are those of a container.
        own = setup.experiment.subject.is_own_process
        self.machine = sorted(cpu for core in usable_cores() for cpu in core) if own else []
        self.kind = kind_of(setup.experiment)
        self.phases: dict[str, int] = {}
        linked = partial(services.linked, setup.spec.setting, setup.engine, setup.directory.engine_log)
        self.instruments = instruments_of(setup, linked, self.phases, observer.phase)
        self.warmup = WarmUp.of(
            setup.experiment,
            setup.spec.stage,
            setup.load,
            joining_ns=self.kind.joining_ns(setup.load),
            pause_ns=sum(instrument.pause_ns for instrument in self.instruments),
        )
        self.wall_ns, self.monotonic_ns = time.time_ns(), time.monotonic_ns()
        self.warmup_ended_by: str | None = None
        self.probe: RunningProbe | None = None
        self.facts: dict[str, Any] = {}
        self.driver: Driver | None = None
        self.control_cpu_ns: int | None = None
        self.memory_kills: int | None = None

    def run(self, stop: StopRequest) -> tuple[str, Failure | None]:
        """Runs the trial and returns its status and failure. Raises only what `run_trial` raises."""
        cpus, directory = self.setup.cpus, self.setup.directory
        try:
            with (
                pinned_to(cpus.engine + cpus.probe),
                Pump(stop) as pump,
                LineFile(directory.events) as events,
                LineFile(directory.probe) as probe_lines,
                ExitStack() as around,
            ):
                for instrument in self.instruments:
                    around.enter_context(instrument.around_trial(pump))
                self._measure(pump, events, probe_lines)
        except TrialInterrupted as interrupted:
            return "interrupted", interrupted.failure
        except TrialFailed as failed:
            return "failed", failed.failure
        finally:
            self.phases["stopped"] = time.monotonic_ns()
        return "measured", None

    def record(self, status: str, failure: Failure | None) -> TrialRecord:
        added: dict[str, Any] = {} if self.driver is None else self.driver.record()
        for instrument in self.instruments:
            added |= instrument.record()
        return TrialRecord(
            spec=self.setup.spec,
            status=status,
            failure=failure,
            wall_ns=self.wall_ns,
            monotonic_ns=self.monotonic_ns,
            phases=self.phases,
            warmup_ended_by=self.warmup_ended_by,
            engines=self.driver.summaries if self.driver else (),
            subject=(self.probe.facts() if self.probe else {}) | self.facts,
            cpus={name: list(cpus) for name, cpus in vars(self.setup.cpus).items()}
            | ({"subject": []} if "served_by" in self.facts else {})
            | {"machine": self.machine if self.facts.get("here", True) else []}
            | self._kept_awake,
            cpu_quota=None if self.deployed else quota_of(),
            memory_kills=self.memory_kills,
            control_cpu_ns=self.control_cpu_ns,
            **added,
        )

    @property
    def _kept_awake(self) -> dict[str, list[int]]:
        return {"kept awake": list(self.setup.awake_cpus)} if self.setup.awake_cpus else {}

    def _measure(self, pump: Pump, events: LineFile, probe_lines: LineFile) -> None:
        with limited(self.setup.experiment.host_for(self.setup.spec.setting)) as limits:
            try:
                self._serve(pump, events, probe_lines, limits)
            finally:
                if self.memory_kills is None:
                    self.memory_kills = limits.memory_kills()

    def _serve(self, pump: Pump, events: LineFile, probe_lines: LineFile, limits: Limits) -> None:
        setup, setting, directory = self.setup, self.setup.spec.setting, self.setup.directory
        driving = DriverSetup(setup, self.warmup, pump, events)
        given = self.services.given(setting) | {ADDRESS: setup.engines.address}
        for instrument in self.instruments:
            given |= instrument.given()
        files = SubjectFiles(
            directory.log, directory.engine_log, probe_lines, directory.apply_log, directory.write_address
        )
        with self._subject_up(driving, files, given, limits) as subject:
            self.phases["ready"] = subject.ready_ns
            self.observer.phase("ready")
            if subject.served_by:
                place = place_of(subject.rendered.host, subject.rendered.port)
                self.facts |= {"served_by": subject.served_by, **place.record()}
            if not self.deployed:
                self._await_workers(subject, pump)
            if (setup.cpus.subject or setup.cpus.machine) and subject.root_pid is not None:
                own = cpus_below(subject.root_pid)
                self.facts |= {"own_cpus": sorted(own)} if own - {*setup.cpus.subject} else {}
            counted = limits if limits.oom_files else limits_of(subject.pids())
            for name, pid in self.services.watched(setting).items():
                subject.probe.watch(name, pid)
            for instrument in self.instruments:
                instrument.when_ready(subject)
            with self.kind.driver(driving, subject) as driver:
                self.driver = driver
                for index, pid in enumerate(driver.pids):
                    subject.probe.watch("engine" if len(driver.pids) == 1 else f"engine-{index}", pid)
                with ExitStack() as around:
                    for instrument in self.instruments:
                        around.enter_context(instrument.around_load(subject, pump))
                    self._drive(pump, driver, subject)
            driver.check_ended()
            self.memory_kills = counted.memory_kills()  # those of longer or larger loads that follow do not count
            for instrument in self.instruments:
                instrument.after_load(subject, pump)
            self.observer.phase("stop")

    def _await_workers(self, subject: RunningSubject, pump: Pump) -> None:
        """Waits until all processes of a server that powerband started are there. If several serve, and requests gave
        it its setting, of which each reached one process, their number becomes a fact of the trial."""
        described = self.setup.experiment.subject
        subject.await_workers(pump, described.ready.timeout_ns / 1e9)
        if subject.rendered.apply and described.is_own_process and not subject.served_by:
            count = serving(subject.rendered.port)
            self.facts |= {"serving": count} if count > 1 else {}

    def _subject_up(
        self, driving: DriverSetup, files: SubjectFiles, given: dict[str, str], limits: Limits
    ) -> AbstractContextManager[RunningSubject]:
        setup, setting = self.setup, self.setup.spec.setting
        subject, scraped = setup.experiment.subject, setup.experiment.scraped
        if self.deployed:
            self.observer.phase("apply")
            return deployed_up(
                subject,
                setting,
                engine=setup.engine,
                files=files,
                pump=driving.pump,
                on_applied=self._applied,
                on_watched=self._watched,
                scraped=scraped,
                given=given,
                may_be_down=setup.spec.number > 1,
            )
        self.observer.phase("launch")
        self.services.renew(setting)
        return subject_up(
            subject,
            setting,
            engine=setup.engine,
            cpus=setup.cpus,
            files=files,
            pump=driving.pump,
            on_launched=self._launched,
            scraped=scraped,
            given=given,
            counter=self.kind.counter(driving),
            added=self._environment,
            window_ns=setup.experiment.load.duration_ns,
            limits=limits,
        )

    def _applied(self) -> None:
        self.phases["applied"] = time.monotonic_ns()

    def _watched(self, probe: RunningProbe, place: Place) -> None:
        self.probe, self.facts = probe, place.record()

    def _environment(self, rendered: Rendered) -> dict[str, str]:
        added: dict[str, str] = {}
        for instrument in self.instruments:
            added |= instrument.environment(rendered)
        return added

    def _launched(self, probe: RunningProbe) -> None:
        assert probe.launched is not None
        self.probe = probe
        self.phases["launched"] = probe.launched.at_ns

    def _drive(self, pump: Pump, driver: Driver, subject: RunningSubject) -> None:
        """Drives the load from go to the last summary."""
        load, warmup = self.setup.load, self.warmup
        loop = DriveLoop(
            pump,
            driver,
            on_intervals=lambda intervals: self.observer.interval(*load_over(intervals)),
            intervals_at_once=OBSERVE_EVERY_INTERVALS,
            check=partial(subject.check_alive, partial(_has_answered, driver, pump)),
        )

        def before_window() -> None:
            for instrument in self.instruments:
                instrument.before_window(subject, pump)

        if warmup.fixed_ns == 0:
            before_window()
        go_ns = self.phases["go"] = loop.go()
        cpu_at_go_ns = time.process_time_ns()
        if warmup.joining_ns and warmup.fixed_ns != 0:
            self.observer.phase("join")
            loop.wait_until(go_ns + warmup.joining_ns)
        self.observer.phase("warmup")
        self._warm_up(loop, go_ns)
        if warmup.by_command:
            before_window()
            loop.start_window()
        self._enter(loop, "measure", REPORT_SLACK_S)
        self._enter(loop, "drain", load.duration_ns / 1e9 + REPORT_SLACK_S)
        if not self._await_end(loop):
            raise driver.overdue("report the end of the run")
        self.phases["end"] = max((summary["end_ns"] for summary in driver.summaries), default=time.monotonic_ns())
        self.control_cpu_ns = time.process_time_ns() - cpu_at_go_ns

    def _await_end(self, loop: DriveLoop) -> bool:
        """Waits for the last summary; returns False if none comes. A server that falls behind its rate would answer
        what is left over for as long as anyone waits, which changes no verdict: unless `load.drain` says how long, the
        load ends after `BEHIND_S`."""
        load = self.setup.load
        given = "drain_ns" in load.model_fields_set
        bounded = load.rate_per_s is not None and not given and load.drain_ns > BEHIND_S * 1e9
        if bounded and falls_behind(loop.driver, (load.rate_per_s or 0.0) * len(load.scenario)):
            if loop.wait_for_end(BEHIND_S):
                return True
            loop.driver.send(Stop())
        return loop.wait_for_end(load.drain_ns / 1e9 + REPORT_SLACK_S)

    def _warm_up(self, loop: DriveLoop, go_ns: int) -> None:
        """Waits until the fixed time is over, `steady` returns True, or the limit is reached."""
        warmup, driver = self.warmup, loop.driver
        if warmup.fixed_ns is not None:
            self.warmup_ended_by = "fixed"
            end_ns = go_ns + warmup.fixed_ns
            if warmup.by_command:
                loop.wait_until(end_ns)
                if warmup.renews:
                    self._warm_up_anew(loop, go_ns + warmup.first_ns)
            else:
                left_s = (end_ns - time.monotonic_ns()) / 1e9
                loop.wait(lambda: "measure" in driver.phases, left_s + REPORT_SLACK_S)
            return
        least_ns = next_ns = go_ns + warmup.least_ns
        asked_ns = compiled_ns = go_ns
        load = self.setup.load
        keep_busy = load.never_pauses and load.websocket is None and not load.joining_ns

        def is_steady() -> bool:
            nonlocal asked_ns, next_ns, compiled_ns
            now_ns = driver.intervals[-1].end_ns if driver.intervals else 0
            if now_ns < least_ns or now_ns <= asked_ns or not driver.seen["ok"]:
                return False
            asked_ns, between = now_ns, now_ns < next_ns
            busy = keep_busy and set(driver.seen) == {"ok"}
            if between and not busy:
                return False
            next_ns = next_ns if between else now_ns + STEADY_EVERY_NS
            if compiles():
                compiled_ns = now_ns
                return False
            # What was measured while it compiled says nothing of how it serves from then on.
            since = [interval for interval in driver.intervals if interval.start_ns >= compiled_ns]
            return bool(since) and self.steady(series_of(since, busy, between))

        def compiles() -> bool:
            return self.probe is not None and self.probe.compile_share(COMPILE_WINDOW_NS) >= COMPILES

        left_s = (go_ns + warmup.most_ns - time.monotonic_ns()) / 1e9
        steady = loop.wait(is_steady, left_s)
        if not steady and compiles():
            left_s = (go_ns + warmup.compiling_ns - time.monotonic_ns()) / 1e9
            steady = loop.wait(is_steady, left_s)
        if not steady and self._may_answer_late(driver):
            loop.wait(lambda: any(driver.seen.values()), (go_ns + warmup.first_ns - time.monotonic_ns()) / 1e9)
        if not steady:
            self._check_begun(loop)
        self.warmup_ended_by = "steady" if steady else "limit"

    def _warm_up_anew(self, loop: DriveLoop, until_ns: int) -> None:
        """Waits for the first right answer if the server gave only wrong ones so far, since it still starts behind a
        port that is open, and then for the fixed time."""
        seen = loop.driver.seen
        if seen["ok"] or not any(seen[outcome] for outcome in NOT_YET):
            return
        if loop.wait(lambda: seen["ok"] > 0, (until_ns - time.monotonic_ns()) / 1e9):
            loop.wait_until(time.monotonic_ns() + (self.warmup.fixed_ns or 0))

    def _may_answer_late(self, driver: Driver) -> bool:
        """True if a first answer, or the first growth of a counter, may still come: of users who join, some are
        there."""
        return not self.kind.users_join or (bool(driver.intervals) and bool(driver.intervals[-1].joined))

    def _check_begun(self, loop: DriveLoop) -> None:
        """Raises TrialFailed if there is nothing to measure: no request was answered, or no user joined. Only the
        summaries of engines, which wait for go, say why nobody could join, how users lost their connections and with
        which statuses requests were answered, so the load is ended in order to get them."""
        driver = loop.driver
        try:
            driver.check_begun()
        except TrialFailed as failed:
            rejected = driver.begun_ns is None and driver.seen["status_rejected"]
            if not rejected and not self.kind.users_join:
                raise
            driver.send(Drain())
            loop.wait_for_end(self.setup.load.drain_ns / 1e9 + REPORT_SLACK_S)
            driver.check_ended()
            raise TrialFailed(
                Code.NO_RESPONSE,
                "the first right answers came after the warm-up: raise measure.warmup_max, and load.timeout if it is "
                "that slow",
            ) from failed

    def _enter(self, loop: DriveLoop, phase: str, timeout_s: float) -> None:
        began_ns = loop.wait_for_phase(phase, timeout_s)
        if began_ns is not None:
            self.phases[phase] = began_ns
            self.observer.phase(phase)


def _has_answered(driver: Driver, pump: Pump) -> bool:
    """True if the server answered any request. Waits for the intervals that cover now."""
    known = len(driver.intervals)

    def has() -> bool:
        driver.look()
        return any(driver.seen[outcome] for outcome in ANSWERS)

    pump.wait(lambda: has() or driver.finished or len(driver.intervals) > known + 1, REPORTED_WITHIN_S)
    return has()


def cpus_below(root: int) -> set[int]:
    """Returns the CPUs on which the processes below one may run, except those that have children: they may be a shell
    that waits, or the parent of workers that serve."""
    processes = all_processes()
    found: set[int] = set()
    for pid in tree_of(root, processes) - {process.parent for process in processes}:
        with suppress(OSError):  # it has ended
            for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
                with suppress(OSError):  # this thread alone has
                    found |= os.sched_getaffinity(int(thread))
    return found


@contextmanager
def pinned_to(cpus: tuple[int, ...]) -> Iterator[None]:
    """Keeps this thread, and processes started meanwhile, on these CPUs, off the server's. Empty: no change."""
    if not cpus:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
