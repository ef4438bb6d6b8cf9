"""Finds the engine binary, and runs a fleet of `powerband-engine load` processes as if they were one.

In: specs (`engine_specs.py`). Out: raw lines in `events.jsonl`, with the engine's index added, and the few facts that
steer a trial: which engines are armed, the merged intervals, the summaries. Nothing is judged.
"""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from powerband.base.errors import MeasurementError
from powerband.processes.answered import (
    check_answered,
    check_joined,
    check_measured,
    lost_connections,
    tls_failure,
)
from powerband.processes.engine_process import Pump, describe_status
from powerband.processes.engines import Engine, Engines
from powerband.processes.failures import Code, TrialFailed, understood
from powerband.processes.line_file import LineFile
from powerband.wire.load_events import LOAD_EVENT, Interval, PhaseBegan, Summary
from powerband.wire.message import ErrorEvent, Wire, kind_of
from powerband.wire.specs import LoadSpec

BINARY = "powerband-engine"
ARMED_TIMEOUT_S = 20.0  # arbitrary: it takes ms; longer on a busy machine
GO_LEAD_NS = 2_000_000  # see `go_lead_ns`
GO_LEAD_PER_ENGINE_NS = 500_000  # likewise


def go_lead_ns(engines: int) -> int:
    """Returns the time from a command to the instant that it names. Engines get a command one after the other, and the
    last one must have read it before that instant: one engine on a busy machine needs 2 ms, each further one 0.5 ms
    more."""
    return GO_LEAD_NS + GO_LEAD_PER_ENGINE_NS * engines


def find_engine() -> Path:
    """Returns the engine binary: that of $POWERBAND_ENGINE, then beside this Python, then where its scripts are
    installed.

    Raises MeasurementError, which lists every path tried."""
    asked = os.environ.get("POWERBAND_ENGINE")
    candidates = [Path(asked)] if asked else _installed_candidates()
    for path in candidates:
        if path.is_file() and os.access(path, os.X_OK):
            return path.resolve()
    tried = ", ".join(str(path) for path in candidates)
    raise MeasurementError(
        f"the engine ({BINARY}) was not found; tried: {tried}; "
        "install powerband again (it builds the engine), or set POWERBAND_ENGINE to the binary"
    )


def _installed_candidates() -> list[Path]:
    folders = [Path(sys.prefix) / "bin"]
    for scheme in (sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user")):
        folders.append(Path(sysconfig.get_path("scripts", scheme)))
    return [folder / BINARY for folder in dict.fromkeys(folders)]


@dataclass(frozen=True)
class FleetInterval:
    """One interval over the whole fleet. `start_ns`, `end_ns`: on the monotonic clock. `ok`: requests that ended ok in
    it; `ended`: those that ended with any outcome. `response_time_ns_mean`: of the ok ones; NaN if there are none.
    `in_flight`: requests without an answer at its end. `joined`: users who hold a WebSocket then; None for a load
    without WebSockets."""

    start_ns: int
    end_ns: int
    ok: int
    ended: int
    response_time_ns_mean: float
    in_flight: int
    joined: int | None = None

    @property
    def rate_per_s(self) -> float:
        """Requests that ended ok, per second."""
        return self.ok * 1e9 / max(1, self.end_ns - self.start_ns)


class IntervalMerger:
    """Adds up the intervals of a fleet by their place on the common grid, without waiting for engines that have
    ended."""

    def __init__(self, engines: int) -> None:
        self._queues: list[list[Interval]] = [[] for _ in range(engines)]
        self._ended = [False] * engines

    def add(self, engine: int, interval: Interval) -> Iterator[FleetInterval]:
        """Takes an interval; yields the merged intervals that it completes."""
        self._queues[engine].append(interval)
        return self._complete()

    def end(self, engine: int) -> Iterator[FleetInterval]:
        """Waits for this engine no longer; yields the merged intervals that lacked only its part."""
        self._ended[engine] = True
        return self._complete()

    def _complete(self) -> Iterator[FleetInterval]:
        while any(self._queues) and all(queue or ended for queue, ended in zip(self._queues, self._ended, strict=True)):
            yield merge_intervals([queue.pop(0) for queue in self._queues if queue])


def merge_intervals(intervals: Sequence[Interval]) -> FleetInterval:
    """Adds up the intervals at one place on the grid, one from each engine."""
    ok = sum(interval["outcomes"].get("ok", 0) for interval in intervals)
    time_ns = sum(interval["response_time_ns_sum"] for interval in intervals)
    return FleetInterval(
        start_ns=min(interval["start_ns"] for interval in intervals),
        end_ns=max(interval["end_ns"] for interval in intervals),
        ok=ok,
        ended=sum(sum(interval["outcomes"].values()) for interval in intervals),
        response_time_ns_mean=time_ns / ok if ok else float("nan"),
        in_flight=sum(interval["in_flight_now"] for interval in intervals),
        joined=sum(joined) if (joined := [i["joined_now"] for i in intervals if "joined_now" in i]) else None,
    )


class EngineFleet:
    """A started fleet; make one with `fleet_up`. `intervals`: the merged ones so far. `phases`: when each phase began,
    by the first engine that reported it. `seen`: requests by outcome so far."""

    begun_ns: int | None = None
    """None, since a fleet waits for go."""

    def __init__(self, size: int, events: LineFile, engines: Engines, stderr_file: Path) -> None:
        self.engines = engines
        self.intervals: list[FleetInterval] = []
        self.phases: dict[str, int] = {}
        self.seen: Counter[str] = Counter()
        self._events = events
        self._stderr_file = stderr_file
        self._merger = IntervalMerger(size)
        self._processes: list[Engine] = []
        self._added: dict[str, Any] = {}
        self._armed = [False] * size
        self._ended = [False] * size
        self._summaries: list[Summary | None] = [None] * size

    def attach(self, process: Engine, spec: LoadSpec, pump: Pump) -> None:
        """Adds a started engine: sends it its spec, and takes its lines from the pump."""
        index = len(self._processes)
        self._processes.append(process)
        process.send(spec)
        pump.add(process, lambda line: self._line(index, line), lambda: self._end(index))

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes if process.pid is not None]

    @property
    def lead_ns(self) -> int:
        return go_lead_ns(len(self._processes)) + self.engines.lead_ns

    @property
    def armed(self) -> bool:
        """True once every engine has reported that it is ready to go."""
        return all(self._armed)

    @property
    def finished(self) -> bool:
        """True once every process has written its last line."""
        return all(self._ended)

    @property
    def summaries(self) -> tuple[Summary, ...]:
        """The `summary` events so far, in engine order."""
        return tuple(summary for summary in self._summaries if summary is not None)

    @property
    def tls_failure(self) -> str:
        """Why TLS handshakes failed, and what to do; empty if none did, or only those of other machines' engines."""
        return tls_failure(self._stderr_file)

    def check_begun(self) -> None:
        """Raises TrialFailed if no request was answered so far."""
        check_answered(self.seen, {}, self._stderr_file)

    def check_ended(self) -> None:
        """Raises TrialFailed if the run has nothing to measure."""
        check_joined(self.summaries, self._stderr_file)
        total: Counter[str] = Counter()
        statuses: Counter[str] = Counter()
        for summary in self.summaries:
            total.update(summary["total"]["outcomes"])
            statuses.update(summary.get("rejected_statuses", {}))
        check_answered(total, statuses, self._stderr_file, lost=lost_connections(self.summaries))
        check_measured(self.summaries)

    def overdue(self, what: str) -> TrialFailed:
        return TrialFailed(Code.ENGINE_FAILED, f"the load generator did not {what} in time")

    def look(self) -> None:
        """Does nothing, since the engines' lines arrive through the pump."""

    def record(self) -> dict[str, Any]:
        """The fields that the engines add; the summaries have the rest."""
        return self._added

    def ended(self) -> None:
        """Called once all engines have ended by themselves."""
        self._added = self.engines.after()

    def send(self, command: Wire) -> None:
        for process in self._processes:
            process.send(command)

    def _line(self, index: int, line: bytes) -> None:
        self._events.write(b'{"engine":%d,' % index + line[1:])
        with understood(line, Code.ENGINE_FAILED, "the load generator"):
            self._take(index, line)

    def _take(self, index: int, line: bytes) -> None:
        match kind_of(line):
            case "interval":
                interval: Interval = json.loads(line)
                self.seen.update(interval["outcomes"])
                self.intervals.extend(self._merger.add(index, interval))
            case "armed":
                self._armed[index] = True
            case "phase":
                phase = LOAD_EVENT.validate_json(line)
                assert isinstance(phase, PhaseBegan)
                self.phases.setdefault(phase.phase, phase.at_ns)
            case "summary":
                self._summaries[index] = json.loads(line)
            case "error":
                error = LOAD_EVENT.validate_json(line)
                assert isinstance(error, ErrorEvent)
                code = Code.DESCRIPTOR_LIMIT if error.kind == "limit" else Code.ENGINE_FAILED
                raise TrialFailed(code, f"the load generator gave up: {error.message}")

    def _end(self, index: int) -> None:
        self._ended[index] = True
        self.intervals.extend(self._merger.end(index))
        if self._summaries[index] is None:
            status = self._processes[index].wait(1.0)
            raise TrialFailed(
                Code.ENGINE_FAILED,
                f"load generator process {index} ended without a summary ({describe_status(status)}); its last log "
                "lines are in engine.log of the trial",
            )


@contextmanager
def fleet_up(
    engines: Engines, specs: Iterable[LoadSpec], events: LineFile, stderr_file: Path, pump: Pump
) -> Iterator[EngineFleet]:
    """Starts one process for each spec, and yields the fleet once all are armed; on leaving, all have ended.

    Raises TrialFailed(engine_failed, descriptor_limit), MeasurementError if no engine can be started."""
    specs = list(specs)
    fleet = EngineFleet(len(specs), events, engines, stderr_file)
    engines.before()
    with ExitStack() as processes:
        for index, spec in enumerate(specs):
            process = processes.enter_context(engines.start(index, stderr_file))
            fleet.attach(process, spec, pump)
            processes.callback(pump.remove, process)
        if not pump.wait(lambda: fleet.armed, ARMED_TIMEOUT_S):
            raise TrialFailed(Code.ENGINE_FAILED, f"the load generator was not ready within {ARMED_TIMEOUT_S:.0f} s")
        yield fleet
    if fleet.finished:
        fleet.ended()
