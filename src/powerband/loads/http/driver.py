"""Opens the fleet of engine processes that drives an HTTP or WebSocket load."""

from __future__ import annotations

import os
import string
from contextlib import AbstractContextManager
from urllib.parse import quote, urlsplit

from powerband.base.hosts import request_target
from powerband.loads.driver import DriverSetup, TrialSetup
from powerband.loads.engine_specs import fleet_specs
from powerband.model.load import Load
from powerband.processes.engine_fleet import EngineFleet, fleet_up
from powerband.processes.engine_process import Pump
from powerband.processes.line_file import LineFile
from powerband.processes.subject_process import RunningSubject


def engines_up(setup: DriverSetup, subject: RunningSubject) -> AbstractContextManager[EngineFleet]:
    """Yields the fleet once all of it is armed; on leaving, all engines have ended. Raises TrialFailed."""
    trial, warmup = setup.trial, setup.warmup
    return fleet_for(
        trial.load,
        trial,
        subject,
        setup.events,
        setup.pump,
        warmup_ns=warmup.driver_ns,
        warmup_max_ns=warmup.longest_ns + warmup.pause_ns,
        fixed_ns=warmup.fixed_ns,
    )


def fleet_for(
    load: Load,
    trial: TrialSetup,
    subject: RunningSubject,
    events: LineFile,
    pump: Pump,
    *,
    warmup_ns: int | None,
    warmup_max_ns: int = 0,
    fixed_ns: int | None = None,
    acknowledge_at_once: bool = False,
) -> AbstractContextManager[EngineFleet]:
    """Returns the fleet of any load against the subject of a trial. `warmup_ns` None: the warm-up lasts until the
    command, which comes at `fixed_ns` or once the load is built up. `acknowledge_at_once`: no part of an answer waits
    for its acknowledgement. Raises TrialFailed."""
    url, engines = subject.rendered.url, trial.engines
    host = urlsplit(url).hostname
    specs = fleet_specs(
        at_url(load, trial.experiment.subject.url, url),
        url=url,
        environment=os.environ,
        seed=trial.spec.seed,
        descriptor_limit=engines.descriptor_limit,
        local_ports=engines.local_ports,
        machines=engines.machines,
        cpus=() if engines.apart else trial.cpus.engine,
        allow_remote=host in trial.experiment.allow_hosts or (engines.apart and host == engines.address),
        warmup_ns=warmup_ns,
        warmup_max_ns=warmup_max_ns,
        fixed_ns=fixed_ns,
        acknowledge_at_once=acknowledge_at_once,
        at_once=trial.experiment.measure.burst_ns > 0,
        under_way=0.0 if trial.spec.rate_per_s is None else trial.experiment.in_flight_allowed(load),
    )
    return fleet_up(engines, specs, events, trial.directory.engine_log, pump)


def at_url(load: Load, template: str, url: str) -> Load:
    """Returns the load with the path of the server's url, in which placeholders are filled, in each step that has the
    path of its `template`. What a path cannot hold, such as a blank of a level, is percent-encoded."""
    written, path = request_target(template), quote(request_target(url), safe=string.punctuation)
    if written == path:
        return load
    steps = (step.model_copy(update={"path": path}) if step.path == written else step for step in load.scenario)
    return load.model_copy(update={"scenario": tuple(steps)})
