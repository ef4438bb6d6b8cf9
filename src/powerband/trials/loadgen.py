"""Drives a load against a server that runs already (`powerband load URL`), and returns the engines' summaries.

The engines are those of a trial, without subject, probe, warm-up search or run directory. Merging and printing is left
to the callers. Only loopback is driven unless the host is allowed by name.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from powerband.base.errors import MeasurementError, UsageError
from powerband.base.hosts import loadable_host, request_target
from powerband.loads import kind_of_load
from powerband.loads.engine_specs import fleet_specs
from powerband.loads.far_clocks import clock_problems
from powerband.model.clocks import GeneratorNode
from powerband.model.load import Load, Step
from powerband.processes.engine_fleet import EngineFleet, FleetInterval, find_engine, fleet_up
from powerband.processes.engine_process import Pump
from powerband.processes.engines import Engines, EnginesHere
from powerband.processes.failures import TrialFailed, TrialInterrupted
from powerband.processes.line_file import LineFile
from powerband.processes.stop_request import StopRequest
from powerband.readings.crowd import Joined
from powerband.trials.driving import REPORT_SLACK_S, DriveLoop
from powerband.wire.load_events import Summary
from powerband.wire.specs import Drain

_DEFAULT_SCENARIO = Load(users=1).scenario


@dataclass(frozen=True)
class LoadResult:
    """The outcome of a load. `summaries`: one `summary` event per engine process (protocol/load-event.schema.json);
    `interrupted`: a stop request cut it short, so that they are empty if it came before the load began; `generators`:
    the other machines that made the load, with their clocks; `tls_failure`: why TLS handshakes failed, as far as it is
    known; `joined`: the WebSocket users of all engines that had joined, over time."""

    summaries: tuple[Summary, ...]
    interrupted: bool
    generators: tuple[GeneratorNode, ...] = ()
    tls_failure: str = ""
    joined: tuple[Joined, ...] = ()


def run_load(
    url: str,
    load: Load,
    *,
    stop: StopRequest,
    allow_hosts: Collection[str] = (),
    warmup_ns: int = 0,
    seed: int = 0,
    on_interval: Callable[[FleetInterval], None] = lambda interval: None,
    engines: Engines | None = None,
) -> LoadResult:
    """Drives `load` for `warmup_ns`, at least for its ramp, and then its duration; the users of a WebSocket load join
    before. A load without a scenario requests the URL's path. `engines`: the machines that the engines run on, by
    default this one.

    A request to stop ends the measured window early and drains. Raises UsageError for an invalid URL or a host that is
    not allowed, MeasurementError if the engine is missing or fails."""
    host = check_url(url, allow_hosts)
    load = _with_path(load, url)
    warmup_ns += kind_of_load(load).joining_ns(load)
    if load.requests_per_user is None:  # as in a trial, the ramp is no part of the window
        warmup_ns = max(warmup_ns, load.joining_ns)
    engines = engines or EnginesHere(find_engine())
    with tempfile.TemporaryDirectory(prefix="powerband-load-") as folder:
        stderr_file = Path(folder) / "engine.log"
        try:
            specs = fleet_specs(
                load,
                url=url,
                environment=os.environ,
                seed=seed,
                descriptor_limit=engines.descriptor_limit,
                local_ports=engines.local_ports,
                machines=engines.machines,
                allow_remote=host in allow_hosts,
                warmup_ns=warmup_ns,
            )
            with (
                Pump(stop) as pump,
                LineFile(Path(os.devnull)) as events,
                fleet_up(engines, specs, events, stderr_file, pump) as fleet,
            ):
                interrupted = _drive(pump, fleet, load, warmup_ns, on_interval)
            tls_failure = fleet.tls_failure
        except TrialInterrupted:
            return LoadResult((), interrupted=True)
        except TrialFailed as failed:
            words = stderr_file.read_text(errors="replace").strip() if stderr_file.is_file() else ""
            raise MeasurementError(f"{failed}\n{words}" if words else str(failed)) from failed
    clocks = tuple(GeneratorNode.from_json(each) for each in fleet.record().get("generators", ()))
    if problem := next(clock_problems(clocks, fleet.summaries, load.duration_ns), None):
        raise MeasurementError(problem.message)
    joined = tuple(Joined(each.end_ns, each.joined) for each in fleet.intervals if each.joined is not None)
    return LoadResult(fleet.summaries, interrupted, clocks, tls_failure, joined)


def check_url(url: str, allow_hosts: Collection[str]) -> str:
    """The host of a URL that may be driven. Raises UsageError."""
    try:
        return loadable_host(url, allow_hosts)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _with_path(load: Load, url: str) -> Load:
    path = request_target(url)
    if path == "/" or load.scenario != _DEFAULT_SCENARIO:
        return load
    return load.model_copy(update={"scenario": (Step(name=f"GET {path}", path=path),)})


def _drive(
    pump: Pump, fleet: EngineFleet, load: Load, warmup_ns: int, on_interval: Callable[[FleetInterval], None]
) -> bool:
    """Drives the load from go to the last summary. True if it was interrupted."""
    loop = DriveLoop(pump, fleet, on_intervals=lambda intervals: on_interval(intervals[0]))
    loop.go()
    drain_s = load.drain_ns / 1e9 + REPORT_SLACK_S
    interrupted = False
    try:
        done = loop.wait_for_end((warmup_ns + load.duration_ns) / 1e9 + drain_s)
    except TrialInterrupted:
        interrupted = True
        fleet.send(Drain())
        done = loop.wait_for_end(drain_s, stoppable=False)
    if not done:
        raise MeasurementError("the load generator did not report the end of the run in time")
    return interrupted
