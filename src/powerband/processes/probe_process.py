"""Runs one `powerband-engine probe` process, which starts, watches and ends the subject.

Its lines go to `probe.jsonl` unchanged; only the rare ones (launched, exited, end, error) are decoded.
"""

from __future__ import annotations

import json
import os
import re
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from powerband.processes.engine_process import EngineProcess, Pump, describe_status
from powerband.processes.failures import Code, TrialFailed, understood
from powerband.processes.line_file import LineFile
from powerband.processes.orphans import orphans_adopted
from powerband.wire.message import Cpus, ErrorEvent, kind_of
from powerband.wire.probe_events import PROBE_EVENT, End, Exited, Jvm, Launched, Threads
from powerband.wire.specs import Launch, ProbeSpec, Stop, WatchAlso

LAUNCH_TIMEOUT_S = 20.0  # arbitrary: exec takes ms, for a large program on a cold disk some seconds
SERIES = {"scrape", "scrape_failed", "statsd"}
MEASURED = {"sample", "threads", "jvm", *SERIES}
JVMS_MAX = 64  # `jvm` lines that are kept: 16 s of one JVM, or the last line of each of 64
THREADS_MAX = 16  # `threads` lines that are kept: one or two a second of each tree
THREADS_SLACK = 1.1  # of a stretch: they come a little late, and two seconds should hold three
# Threads that compile. The kernel keeps 15 bytes of a name, and newer JDKs cut it in the middle (`C2 Com..hread4`).
COMPILERS = re.compile(r"C[12] Com|JVMCI|\.NET Tiered Com")
JVM_GONE_NS = 2_500_000_000  # each JVM is read four times a second
COMMAND_SAMPLE_NS = 2_000_000_000  # nobody reads these samples
KILL_SLACK_S = 5.0  # time for the probe, beyond the subject's grace, to kill what is left and to report


class RunningProbe:
    """A started probe; make one with `probe_up`. `launched`, `exited`, `end`, `error`: its event of that kind; None
    until it has come."""

    def __init__(self, process: EngineProcess, lines: LineFile, grace_s: float) -> None:
        self.launched: Launched | None = None
        self.exited: Exited | None = None
        self.end: End | None = None
        self.error: ErrorEvent | None = None
        self._process = process
        self._lines = lines
        self._grace_s = grace_s
        self._ended = False
        self._jvm_lines: deque[bytes] = deque(maxlen=JVMS_MAX)
        self._threads_lines: deque[bytes] = deque(maxlen=THREADS_MAX)
        self.on_series: Callable[[bytes], None] = lambda line: None
        """Called with each reading of the subject's own series, unchanged; may raise to end the wait."""

    @property
    def pid(self) -> int:
        """The process from which all of the subject descends."""
        return self._process.pid

    def jvms(self) -> list[Jvm]:
        """Returns the last `jvm` event of each JVM of the subject, the latest last. A JVM that was silent while others
        were reported is considered gone."""
        latest: dict[int, Jvm] = {}
        for line in self._jvm_lines:
            told: Jvm = json.loads(line)
            latest.pop(told["pid"], None)
            latest[told["pid"]] = told
        newest_ns = max((told["at_ns"] for told in latest.values()), default=0)
        return [told for told in latest.values() if told["at_ns"] > newest_ns - JVM_GONE_NS]

    def compile_share(self, over_ns: int) -> float:
        """Returns the time that the compilers of the subject's runtimes worked lately, per second of `over_ns`: what
        JVMs tell, or the time in which compiling threads ran or waited for a CPU, if that is more. A JVM counts a
        method only once it is compiled, which takes seconds where others have the CPU. 0 if nothing compiles."""
        return max(self._reported_compile_share(over_ns), self._sampled_compile_share(over_ns))

    def _sampled_compile_share(self, over_ns: int) -> float:
        recent: list[Threads] = []  # the latest first; older lines, which may be long, are not decoded
        for line in reversed(self._threads_lines):
            event: Threads = json.loads(line)
            if recent and event["at_ns"] < recent[0]["at_ns"] - over_ns * THREADS_SLACK:
                break
            if event["tree"] == "subject":
                recent.append(event)
        worked = [
            sum(pool["on_cpu_ns"] + pool["run_wait_ns"] for pool in event["pools"] if COMPILERS.match(pool["pool"]))
            for event in recent
        ]
        return (worked[0] - worked[-1]) / (recent[0]["at_ns"] - recent[-1]["at_ns"]) if len(recent) > 1 else 0.0

    def _reported_compile_share(self, over_ns: int) -> float:
        rows: list[Jvm] = [json.loads(line) for line in self._jvm_lines]
        newest_ns = max((row["at_ns"] for row in rows), default=0)
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for row in rows:
            spent = row.get("compile_ns")
            if spent is not None and row["at_ns"] >= newest_ns - over_ns:
                first.setdefault(row["pid"], spent)
                last[row["pid"]] = spent
        return sum(last[pid] - first[pid] for pid in last) / over_ns

    def watch(self, name: str, pid: int) -> None:
        """Samples one more process tree from now on, whose lines get this name. `pid`: its root."""
        self._process.send(WatchAlso(name=name, pid=pid))

    def stop(self, pump: Pump) -> None:
        """Ends the subject and everything it forked, and waits for the report. Raises TrialFailed(probe_failed)."""
        if self._ended:
            return
        self._process.send(Stop())
        if not pump.wait(lambda: self._ended, self._grace_s + KILL_SLACK_S, stoppable=False):
            raise TrialFailed(
                Code.PROBE_FAILED,
                "the monitor did not report the end of the server in time (root alone can end what sudo started); see "
                "engine.log of the trial",
            )

    def facts(self) -> dict[str, Any]:
        """Returns what is known of the subject's life: the launched, exited and end events, merged."""
        events = (self.launched, self.exited, self.end)
        return {
            f"{event.type}_ns" if key == "at_ns" else key: value
            for event in events
            if event is not None
            for key, value in event.model_dump(exclude={"type"}).items()
        }

    def on_line(self, line: bytes) -> None:
        """Writes a line of the probe to the file, and keeps what steers the trial. Raises TrialFailed(probe_failed) if
        it is no event."""
        self._lines.write(line)
        with understood(line, Code.PROBE_FAILED, "the monitor"):
            self._take(line)

    def _take(self, line: bytes) -> None:
        kind = kind_of(line)
        if kind == "jvm":
            self._jvm_lines.append(line)
        elif kind == "threads":
            self._threads_lines.append(line)
        if kind in SERIES:
            self.on_series(line)
        if kind in MEASURED:
            return
        match PROBE_EVENT.validate_json(line):
            case Launched() as event:
                self.launched = event
            case Exited() as event:
                self.exited = event
            case End() as event:
                self.end = event
            case ErrorEvent() as event:
                self.error = event

    def on_end(self) -> None:
        """Takes note that the probe has ended. Raises TrialFailed(probe_failed) if it gave neither report nor error."""
        self._ended = True
        if self.end is None and self.error is None:
            status = self._process.wait(1.0)
            raise TrialFailed(
                Code.PROBE_FAILED,
                f"the monitor ended without a report ({describe_status(status)}); its last log lines are in engine.log "
                "of the trial",
            )


@contextmanager
def probe_up(binary: Path, spec: ProbeSpec, lines: LineFile, stderr_file: Path, pump: Pump) -> Iterator[RunningProbe]:
    """Starts the probe, and through it the subject if `spec` launches one; yields once it is launched. On leaving, the
    probe has asked the subject to stop and has ended. After an error of powerband's own, it ends the subject at once,
    because its stdin closes. Nothing that was launched is left, even if the probe does not end or is killed.

    Raises TrialFailed(launch_failed, probe_failed), MeasurementError if the binary cannot be run."""
    grace_s = spec.launch.grace_ns / 1e9 if spec.launch else 0.0
    process = EngineProcess([str(binary), "probe"], stderr_file, end_timeout_s=grace_s + KILL_SLACK_S)
    with orphans_adopted(lambda: (process.wait(0) or 0) < 0), process:
        probe = RunningProbe(process, lines, grace_s)
        process.send(spec)
        pump.add(process, probe.on_line, probe.on_end)
        try:
            if spec.launch is not None:
                _wait_launched(probe, pump)
            yield probe
        except TrialFailed:
            with suppress(TrialFailed):
                probe.stop(pump)
            raise
        else:
            probe.stop(pump)
        finally:
            pump.remove(process)


@contextmanager
def command_up(binary: Path, launch: Launch, stderr_file: Path, pump: Pump, cpus: Cpus = ()) -> Iterator[RunningProbe]:
    """Runs a command that is no subject under a probe of its own, so that it ends, with all that it forked, when the
    block or powerband ends. `cpus`: those of the probe. Raises like `probe_up`."""
    spec = ProbeSpec(launch=launch, interval_ns=COMMAND_SAMPLE_NS, exact_counts=False, cpus=cpus)
    with LineFile(Path(os.devnull)) as unread, probe_up(binary, spec, unread, stderr_file, pump) as probe:
        yield probe


def _wait_launched(probe: RunningProbe, pump: Pump) -> None:
    launched = pump.wait(lambda: probe.launched is not None or probe.error is not None, LAUNCH_TIMEOUT_S)
    if probe.error is not None:
        code = Code.LAUNCH_FAILED if probe.error.kind == "launch" else Code.PROBE_FAILED
        raise TrialFailed(code, probe.error.message)
    if not launched:
        raise TrialFailed(Code.PROBE_FAILED, f"the monitor did not launch the server within {LAUNCH_TIMEOUT_S:.0f} s")
