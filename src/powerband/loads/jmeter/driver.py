"""Runs a user's plan in the real JMeter, in place of a fleet of engines. The plan is not changed: properties on the
command line set what powerband needs.

In: an experiment whose load is a plan, a subject that is ready. Out: the reports of a fleet, made from the results that
JMeter appends (`sample_events.py`). A probe of its own starts JMeter, pins it, and ends it with all that it forked,
whatever becomes of powerband; the trial's own probe watches JMeter's CPU like that of an engine.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from powerband.base.errors import ExperimentError
from powerband.base.logs import end_of, out_of_memory, remedy_beside_the_heap
from powerband.loads.driver import DriverSetup, StandIn
from powerband.loads.jmeter.checks import check_plan_file
from powerband.loads.jmeter.install import VERSION, JMeter, installed_jmeter, jar_left_out
from powerband.loads.jmeter.jtl import JtlReader
from powerband.loads.jmeter.plan_file import Plan, check_hosts, read_plan
from powerband.loads.jmeter.sample_events import Account
from powerband.model.experiment import Experiment
from powerband.model.plan import Setting
from powerband.model.subjects import render_text
from powerband.processes.answered import check_answered
from powerband.processes.engine_fleet import merge_intervals
from powerband.processes.failures import Code, TrialFailed
from powerband.processes.line_file import LineFile
from powerband.processes.ports import pick_udp_port
from powerband.processes.probe_process import RunningProbe, command_up
from powerband.processes.stop_request import StopRequest
from powerband.processes.subject_process import RunningSubject
from powerband.store import TrialDir
from powerband.wire.load_events import Interval
from powerband.wire.message import Wire
from powerband.wire.probe_events import Exited
from powerband.wire.specs import Go, Launch, StartMeasure

STARTS_WITHIN_S = 60.0  # arbitrary: JMeter starts in seconds; a plan may ramp up or wait first
LATE_NS = 300_000_000
"""The longest time from a sample's end until its result is in the file."""
LEAVES_WITHIN_NS = 6_000_000_000
"""After StopTestNow, JMeter waits 5 s for its threads."""
CLOCK_SET_NS = 50_000_000  # NTP slews at most 0.5 ms a second, 30 ms in a minute: more is a step
_GRACE_NS = 2_000_000_000  # arbitrary: JMeter's results are in the file by then, so that nothing is lost
_WORDS_BYTES = 1 << 16  # arbitrary: some stack traces; the error is among the last
_WORDS_LINES = 3  # arbitrary: the first errors are the cause, and the log has the rest
_SAVED = (
    *("time", "label", "response_code", "response_message", "successful", "bytes", "sent_bytes", "thread_counts"),
    *("thread_name", "idle_time"),
)
_NOT_SAVED = (
    *("data_type", "assertion_results_failure_message", "url", "filename", "latency", "connect_time"),
    *("encoding", "sample_count", "hostname", "subresults", "assertions", "response_data"),
    *("response_data.on_error", "samplerData", "responseHeaders", "requestHeaders"),
)
_RESULTS = {
    "output_format": "csv",
    "timestamp_format": "ms",
    "default_delimiter": ",",
    "print_field_names": "true",
    "assertion_results": "none",
    "autoflush": "true",  # otherwise the results of a slow plan would arrive in blocks of 8 KiB
    **dict.fromkeys(_SAVED, "true"),
    **dict.fromkeys(_NOT_SAVED, "false"),
}
# The arguments that JMeter's own start script gives to its JVM.
_HEAP = ("-Xms1g", "-Xmx1g")
_HEAP_SIZE = ("-Xms", "-Xmx", "-XX:MaxHeapSize", "-XX:InitialHeapSize", "-XX:MaxRAMPercentage")
_COLLECTOR = ("-XX:+UseG1GC", "-XX:MaxGCPauseMillis=100", "-XX:G1ReservePercent=20")
_OPENED = ("java.lang", "java.lang.invoke", "java.lang.reflect", "java.util", "java.text")
_ERROR = re.compile(r"\bERROR\b|\bError\b|An error|Exception|Unrecognized")
_UNRESOLVED = "CannotResolveClassException"


def jmeter_command(
    jmeter: JMeter, plan: Path, properties: Mapping[str, str], jvm_args: Iterable[str], files: TrialDir, *, port: int
) -> tuple[str, ...]:
    """Returns the command that runs a plan. `jvm_args` come after those of JMeter's own start script, and replace its
    heap size if they name one. `port`: where JMeter listens for the command to end."""
    jvm_args = tuple(jvm_args)
    heap = () if any(arg.startswith(_HEAP_SIZE) for arg in jvm_args) else _HEAP
    ours = {
        **{f"jmeter.save.saveservice.{name}": value for name, value in _RESULTS.items()},
        "sampleresult.timestamp.start": "true",
        "summariser.name": "",
        "jmeterengine.nongui.port": str(port),
        "jmeterengine.nongui.maxport": str(port),
        "jmeterengine.force.system.exit": "true",
    }
    return (
        str(jmeter.jdk.java),
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
        *heap,
        "-XX:MaxMetaspaceSize=256m",
        *_COLLECTOR,
        *(
            "-Djava.awt.headless=true",
            "-Djava.security.egd=file:/dev/urandom",
            "-Duser.language=en",
            "-Duser.region=EN",
        ),
        *jvm_args,
        *("-cp", str(jmeter.jar), "org.apache.jmeter.NewDriver"),
        *("-n", "-t", str(plan), "-l", str(files.samples.absolute()), "-j", str(files.jmeter_log.absolute())),
        *(f"-J{name}={value}" for name, value in {**properties, **ours}.items()),
    )


def own_jvm_args() -> list[str]:
    """Returns the words of $JVM_ARGS, as JMeter's start script takes them. Raises TrialFailed if they cannot be
    split."""
    try:
        return shlex.split(os.environ.get("JVM_ARGS", ""))
    except ValueError as error:
        raise TrialFailed(Code.JMETER_FAILED, f"the environment's JVM_ARGS cannot be read: {error}") from None


def prepare_plan(experiment: Experiment, stop: StopRequest) -> None:
    """Checks that the plan can be run, and installs JMeter if it is not installed yet.

    Raises ExperimentError for a plan that cannot be run, and whatever `installed_jmeter` raises."""
    try:
        check_plan_file(experiment)
    except ValueError as error:
        raise ExperimentError(str(error), key="load.jmeter") from None
    installed_jmeter(stop)


@contextmanager
def jmeter_up(setup: DriverSetup, subject: RunningSubject) -> Iterator[JMeterLoad]:
    """Starts the plan, and yields once its first request was answered; on leaving, JMeter has ended. A fixed warm-up
    counts from the first request on.

    Raises TrialFailed(jmeter_failed, no_samples, plan_ended), and whatever `installed_jmeter` raises."""
    trial, pump = setup.trial, setup.pump
    experiment, directory = trial.experiment, trial.directory
    load = experiment.load_for(trial.spec.setting)
    assert load.jmeter is not None
    jmeter, file = installed_jmeter(pump.stop), Path(load.jmeter)
    properties = filled(experiment, trial.spec.setting, subject)
    try:
        plan = read_plan(file)
        check_hosts(plan, properties, experiment.allow_hosts)
    except ValueError as error:
        raise TrialFailed(Code.JMETER_FAILED, str(error)) from None
    port = pick_udp_port()
    argv = jmeter_command(jmeter, file, properties, (*own_jvm_args(), *(load.jvm_args or ())), directory, port=port)
    launch = Launch(
        name="jmeter",
        argv=argv,
        cwd=str(file.parent),
        log_file=str(directory.jmeter_output.absolute()),
        cpus=trial.cpus.engine,
        stop_signal=signal.SIGTERM,
        grace_ns=_GRACE_NS,
    )
    with command_up(trial.engine, launch, directory.engine_log, pump, trial.cpus.probe) as keeper:
        running = JMeterLoad(
            keeper,
            jmeter,
            plan,
            setup.events,
            directory,
            port=port,
            warmup_ns=setup.warmup.driver_ns,
            duration_ns=load.duration_ns,
            drain_ns=load.drain_ns,
        )

        def begun() -> bool:
            subject.check_alive(lambda: False)  # the wait ends with the first answer that is seen
            running.look()
            return running.begun_ns is not None

        if not pump.wait(begun, STARTS_WITHIN_S):
            raise running.no_sample(f"JMeter reported no answered request within {STARTS_WITHIN_S:.0f} s")
        yield running


def filled(experiment: Experiment, setting: Setting, subject: RunningSubject) -> dict[str, str]:
    """Returns the properties of a setting, filled in with its levels and with where the subject listens."""
    at = subject.rendered
    given = {"port": str(at.port), "host": at.host, "url": at.url}
    wanted = experiment.load_for(setting).properties or {}
    return {name: render_text(experiment.subject, setting, given, text) for name, text in wanted.items()}


class JMeterLoad(StandIn):
    """The driver that is a running JMeter; make one with `jmeter_up`."""

    def __init__(
        self,
        keeper: RunningProbe,
        jmeter: JMeter,
        plan: Plan,
        events: LineFile,
        directory: TrialDir,
        *,
        port: int,
        warmup_ns: int | None,
        duration_ns: int,
        drain_ns: int,
    ) -> None:
        super().__init__(events)
        self._keeper = keeper
        self._jmeter = jmeter
        self._plan = plan
        self._directory = directory
        self._port = port
        self._warmup_ns = warmup_ns
        self._duration_ns = duration_ns
        self._drain_ns = drain_ns
        self._reader = JtlReader(directory.samples)
        self._ahead_ns = _wall_ahead_ns()
        self._account = Account(
            self._ahead_ns, duration_ns, plan.stands_alone, plan.replaces_samples, plan.groups_apart
        )
        self._told: set[str] = set()

    @property
    def begun_ns(self) -> int | None:
        """When the first request was sent; None before that."""
        return self._account.begun_ns

    @property
    def pids(self) -> list[int]:
        assert self._keeper.launched is not None
        return [self._keeper.launched.pid]

    def record(self) -> dict[str, Any]:
        """Returns the versions of JMeter and its JVM, and how the plan's samples were counted."""
        facts = {
            "version": VERSION,
            "java": str(self._jmeter.jdk.home),
            "java_version": self._jmeter.jdk.version,
            "thread_groups": self._plan.thread_groups,
            "transactions_alone": self._account.transactions_alone,
            "sent_nothing": dict(self._account.sent_nothing) if self._account.sends_bytes else {},
        }
        return {"jmeter": facts}

    def send(self, command: Wire) -> None:
        """Takes a command: `measure` begins the window, and `go` the warm-up. The plan itself has begun already."""
        if isinstance(command, Go):
            self.phases["warmup"] = command.at_ns
            if self._warmup_ns is not None:
                self._account.measure_ns = command.at_ns + self._warmup_ns
        elif isinstance(command, StartMeasure):
            self._account.measure_ns = command.at_ns

    def look(self) -> None:
        """Takes in JMeter's new results, and ends JMeter when its time is over. Raises TrialFailed if it is of no more
        use."""
        if self.finished:
            return
        now_ns, ended = time.monotonic_ns(), self._keeper.exited
        self._read()
        if self.begun_ns is None:
            if ended is not None:
                raise self.no_sample("JMeter ended without one sample")
            return
        window_end_ns = self._account.measure_end_ns
        if ended is not None and (window_end_ns is None or ended.at_ns < window_end_ns):
            raise self._ended_early(ended)
        self._take(self._account.advance(now_ns - LATE_NS))
        if window_end_ns is None or now_ns < window_end_ns:
            return
        self._tell("Shutdown")
        self._account.told_to_end = True
        if now_ns >= window_end_ns + self._drain_ns and self._tell("StopTestNow"):
            self._account.cut_ns = now_ns
        if ended is not None or now_ns >= window_end_ns + self._drain_ns + LEAVES_WITHIN_NS:
            self._end()

    def check_begun(self) -> None:
        """Raises TrialFailed if no request was answered so far."""
        self._check_answered(self.seen)

    def check_ended(self) -> None:
        """Raises TrialFailed if the run has nothing to measure, or if what it measured is of no use."""
        self._check_answered(self._account.outcomes)
        if said := out_of_memory(self._words()):
            remedy = remedy_beside_the_heap(said) or (
                "give it more, for example load.jvm_args: -Xmx4g, or take listeners that keep results out of the plan"
            )
            raise TrialFailed(
                Code.JMETER_FAILED,
                f"JMeter ran out of memory ({said}), so that some of its threads are gone: {remedy}",
            )
        moved_ns = abs(_wall_ahead_ns() - self._ahead_ns)
        if moved_ns > CLOCK_SET_NS:
            raise TrialFailed(
                Code.CLOCK_SET,
                f"this machine's clock was set by {moved_ns / 1e6:.0f} ms meanwhile, and JMeter's results carry its "
                "time: run again once the clock is steady",
            )

    def _check_answered(self, outcomes: Counter[str]) -> None:
        said = self._account.exception
        check_answered(outcomes, self._account.rejected, said=f"JMeter said: {said[:300]}" if said else "")

    def overdue(self, what: str) -> TrialFailed:
        return TrialFailed(Code.JMETER_FAILED, f"JMeter did not {what} in time{self._said()}")

    def no_sample(self, what: str) -> TrialFailed:
        """Returns the failure of a plan that produced no sample. `what` begins its sentence."""
        ended = self._keeper.exited
        if ended is not None and ended.exit_code != 0:
            return TrialFailed(Code.JMETER_FAILED, f"JMeter could not run the plan{self._said()}")
        return TrialFailed(
            Code.NO_SAMPLES,
            f"{what}: see that a thread group has threads (a property that the plan reads and load.properties does not "
            f"give may stand for none), that its samplers are enabled (not in setUp groups alone), and that the server "
            f"answers{self._said()}",
        )

    def _read(self) -> None:
        try:
            self._account.add(self._reader.read())
        except ValueError as error:
            raise TrialFailed(
                Code.JMETER_FAILED,
                f"JMeter's results, {self._directory.samples.name} of the trial, cannot be read: {error}",
            ) from None

    def _take(self, intervals: Iterable[Interval]) -> None:
        for interval in intervals:
            self._report(interval)
            self.intervals.append(merge_intervals([interval]))
        opened_ns, closed_ns = self._account.measure_ns, self._account.measure_end_ns
        for phase, at_ns in (("measure", opened_ns), ("drain", closed_ns)):
            if at_ns is not None and self._account.passed_ns >= at_ns:
                self.phases.setdefault(phase, at_ns)

    def _end(self) -> None:
        ended = self._keeper.exited
        if ended is not None and "Command: Shutdown" not in self._words():  # it ended before it was told to
            raise self._ended_early(ended)
        self._take(self._account.end())
        self._report(self._account.summary())

    def _ended_early(self, ended: Exited) -> TrialFailed:
        if ended.exit_code != 0:
            return TrialFailed(Code.JMETER_FAILED, f"JMeter ended by itself with an error{self._said()}")
        begun_ns, opened_ns = self.begun_ns or 0, self._account.measure_ns
        lasted_s = (self._account.last_end_ns - begun_ns) / 1e9
        window = f"the measured window of {self._duration_ns / 1e9:g} s"
        before = f"before {window} began" if opened_ns is None else (
            f"before {window} was over, which began {(opened_ns - begun_ns) / 1e9:.1f} s after the first request"
        )  # fmt: skip
        return TrialFailed(
            Code.PLAN_ENDED,
            f"the plan ended after {lasted_s:.1f} s, {before}: give its thread groups a longer duration, or let them "
            "loop forever (powerband ends the plan), or shorten the warm-up and load.duration",
        )

    def _tell(self, command: str) -> bool:
        """Sends a command to the port on which JMeter listens, unless it was sent before; returns True if it was sent
        now."""
        if command in self._told:
            return False
        self._told.add(command)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender, suppress(OSError):
            sender.sendto(command.encode(), ("127.0.0.1", self._port))
        return True

    def _words(self) -> str:
        """Returns the end of JMeter's output and of its log."""
        return "\n".join(
            end_of(file, _WORDS_BYTES) for file in (self._directory.jmeter_output, self._directory.jmeter_log)
        )

    def _said(self) -> str:
        """Returns the errors that JMeter reported, as the end of a sentence."""
        lines = [line for line in self._words().splitlines() if _ERROR.search(line) and " INFO " not in line]
        if not lines:
            return "; see jmeter.out and jmeter.log of the trial"
        shown = "\n".join(f"  {line.strip()[:300]}" for line in dict.fromkeys(lines[:_WORDS_LINES]))
        where = _where_missing_class_is(lines)
        return f"{where}; it said (more in jmeter.out and jmeter.log of the trial):\n{shown}"


def _where_missing_class_is(lines: Iterable[str]) -> str:
    """Returns where a class that JMeter could not resolve is to be had, as a part of a sentence; empty if it resolved
    all."""
    missing = [line for line in lines if _UNRESOLVED in line]
    if not missing:
        return ""
    named = re.search(rf"{_UNRESOLVED}: ([\w.$]+)", "\n".join(missing))
    if named and (jar := jar_left_out(named[1])):
        return (
            f"; {named[1]} is in JMeter's own {jar}, which powerband does not install: copy that, and the jars that it "
            f"needs, from JMeter {VERSION} to a folder, and name it in load.properties: {{search_paths: FOLDER}}"
        )
    return (
        "; a class that it cannot resolve is part of a plugin: name the folder of its jars in "
        "load.properties: {search_paths: FOLDER}"
    )


def _wall_ahead_ns() -> int:
    """Returns the wall clock minus the monotonic one, which is the middle of two readings."""
    before_ns, wall_ns, after_ns = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
    return wall_ns - (before_ns + after_ns) // 2
