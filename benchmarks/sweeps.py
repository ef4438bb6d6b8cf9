"""Whole runs of the reference subject, as `powerband run` makes them, for benchmarks that time or count them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from powerband.files.experiment_file import parse_experiment
from powerband.files.resolved import resolved_yaml
from powerband.model.results import Analysis
from powerband.processes.engine_fleet import find_engine
from powerband.processes.host import host_facts
from powerband.processes.stop_request import StopRequest
from powerband.search.observer import Observer
from powerband.search.session import run_session, with_seed
from powerband.store import RunDir


@dataclass(frozen=True)
class Sweep:
    """One finished run, and the time it took from its first process to its last analysis."""

    run: RunDir
    analysis: Analysis
    seconds: float

    @property
    def answer(self) -> str:
        """The kind of answer and the setting that it names."""
        answer = self.analysis.answer
        return answer.kind.value if answer.setting is None else f"{answer.kind.value}: {answer.setting.id}"

    @property
    def invalid(self) -> int:
        return sum(not trial.valid for trial in self.analysis.trials)


def sweep(text: str, folder: Path, stop: StopRequest, *, engine: str, seed: int) -> Sweep:
    """Runs the experiment of a YAML text in a new run directory under `folder`."""
    os.environ["POWERBAND_ENGINE"] = engine
    experiment = with_seed(parse_experiment(text, "benchmark", overrides={"design.seed": str(seed)}))
    run = RunDir.create(folder, experiment.name, resolved_yaml(experiment), host_facts(find_engine()))
    begun = time.monotonic()
    analysis = run_session(experiment, run, Observer(), stop)
    return Sweep(run, analysis, time.monotonic() - begun)


def powerband(*words: str, engine: str | None = None) -> str:
    """Runs a command of powerband, with this engine if one is given, and returns its stdout. Raises RuntimeError if
    that is empty."""
    given = {} if engine is None else {"POWERBAND_ENGINE": engine}
    ended = subprocess.run(
        [sys.executable, "-m", "powerband", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **given},
    )
    if not ended.stdout:
        raise RuntimeError(f"powerband {words[0]} ended with {ended.returncode}: {ended.stderr[-500:]}")
    return ended.stdout
