"""Building blocks of end-to-end tests: small experiments against the reference subject or `subject_process.py`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from powerband.model.experiment import Experiment, Measure, Ready, Subject
from powerband.model.host_use import HostUse
from powerband.model.load import Load
from powerband.model.plan import Setting, TrialSpec
from powerband.model.warmup import WarmupSeries
from powerband.processes.stop_request import StopRequest
from powerband.store import TrialDir, TrialRecord
from powerband.trials.trial import run_trial

FAKES = Path(__file__).parent
MS = 1_000_000


def reference(*arguments: str, **fields: Any) -> Subject:
    """The reference subject, the engine's own server, on a port that powerband picks."""
    command = ("{engine}", "serve", "--port", "{port}", *arguments)
    return Subject(name="reference", command=command, **{"ready": Ready(timeout_ns=20_000 * MS), **fields})


def scripted(how: str, *arguments: str, **fields: Any) -> Subject:
    command = (sys.executable, str(FAKES / "subject.py"), "{port}", how, *arguments)
    return Subject(name="scripted", command=command, **{"ready": Ready(timeout_ns=20_000 * MS), **fields})


# Fields of `measure`: neither a busy machine nor a busy host of it may spoil a test.
CALM = {"foreign_cpu_max": 1.0, "steal_max": 1.0}
# For subjects that never answer rightly: an adaptive warm-up would wait for the first right answer.
FIXED_WARMUP = Measure(warmup_ns=100 * MS)


def short_load(**fields: Any) -> Load:
    return Load(**{"users": 4, "duration_ns": 300 * MS, "drain_ns": 20_000 * MS, **fields})


def experiment(subject: Subject, load: Load | None = None, **fields: Any) -> Experiment:
    measure = Measure(warmup_min_ns=100 * MS, warmup_max_ns=20_000 * MS, slots=False)
    host = HostUse(pinning="auto")
    return Experiment(
        **{"name": "test", "subject": subject, "load": load or short_load(), "measure": measure, "host": host, **fields}
    )


class Watcher:
    """An observer that records its calls."""

    def __init__(self) -> None:
        self.phases: list[str] = []
        self.intervals: list[tuple[float, float | None, int]] = []

    def phase(self, name: str) -> None:
        self.phases.append(name)

    def interval(self, rate_per_s: float, response_time_ns_mean: float | None, in_flight: int) -> None:
        self.intervals.append((rate_per_s, response_time_ns_mean, in_flight))


def always_steady(_series: WarmupSeries) -> bool:
    return True


def never_steady(_series: WarmupSeries) -> bool:
    return False


def run_one(
    case: Experiment,
    folder: Path,
    *,
    steady: Any = always_steady,
    watcher: Watcher | None = None,
    stop: StopRequest | None = None,
    number: int = 1,
) -> TrialRecord:
    """Runs one trial of the experiment's first setting in `folder`/0001."""
    setting: Setting = case.settings()[0]
    spec = TrialSpec(number=number, block=0, attempt=1, setting=setting, seed=7)
    directory = TrialDir(folder / f"{number:04d}")
    own = stop or StopRequest()
    try:
        return run_trial(case, spec, directory, steady=steady, observer=watcher or Watcher(), stop=own)
    finally:
        if stop is None:
            own.close()
