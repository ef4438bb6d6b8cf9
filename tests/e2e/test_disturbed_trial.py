"""Another program uses the trial's CPUs. The most that it can have cost widens the intervals; above a fixed limit on
its CPU use the trial is discarded and repeated."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fakes.burner import burning
from fakes.stand import MS, experiment, reference, short_load
from powerband.analyze.trial.disturbance import TELLS_NOTHING
from powerband.model.experiment import Design, Measure
from powerband.model.host_use import HostUse
from powerband.model.plan import TrialSpec
from powerband.model.results import Analysis, TrialResult
from powerband.processes.cpus import cpu_split
from powerband.processes.host import usable_cores
from powerband.processes.stop_request import StopRequest
from powerband.search.observer import Observer
from powerband.search.session import run_session
from powerband.store import RunDir, TrialRecord

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("engine", "no_process_left")]

SPIN = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"


class Results(Observer):
    def __init__(self) -> None:
        self.results: list[TrialResult] = []

    def trial_ended(self, record: TrialRecord, result: TrialResult) -> None:
        self.results.append(result)
        self.end()

    def end(self) -> None:
        """Ends the loops, after the first trial or after the run."""


class Burner(Results):
    """An observer that keeps each of the trial's CPUs busy while the first trial runs."""

    def __init__(self) -> None:
        super().__init__()
        self._spinning: list[subprocess.Popen[bytes]] = []

    def trial_started(self, spec: TrialSpec, planned_total: int) -> None:
        if spec.number == 1:
            split = cpu_split(usable_cores(), HostUse())
            cpus = {*split.subject, *split.engine} or {cpu for core in usable_cores() for cpu in core}
            self._spinning = [subprocess.Popen([sys.executable, "-c", SPIN, str(cpu)]) for cpu in sorted(cpus)]

    def end(self) -> None:
        for process in self._spinning:
            process.kill()
            process.wait()
        self._spinning = []


def run_beside(tmp_path: Path, observer: Results, *, work: str = "--wait", **measure: Any) -> Analysis:
    """Runs one setting, with one repeat and one retry. `work`: the server's option for its 5 ms of each request."""
    case = experiment(
        reference("--threads", "2", work, "5ms"),
        short_load(duration_ns=1000 * MS),
        measure=Measure(warmup=200 * MS, repeats=1, retries=1, slots=False, **measure),
        design=Design(seed=5),
    )
    (tmp_path / "trials").mkdir()
    (tmp_path / "experiment.yaml").touch()
    stop = StopRequest()
    try:
        return run_session(case, RunDir.open(tmp_path), observer, stop)
    finally:
        observer.end()
        stop.close()


def test_a_trial_beside_a_busy_program_does_not_count_above_a_fixed_limit_and_is_repeated(tmp_path: Path) -> None:
    """The result of the second attempt depends on the machine; that there is a second attempt does not."""
    burner = Burner()
    analysis = run_beside(tmp_path, burner, foreign_cpu_max=0.1)
    first, second = burner.results
    assert (first.valid, second.attempt, second.block, second.setting) == (False, 2, first.block, first.setting)
    assert "host_foreign" in {problem.code for problem in first.problems if problem.fatal}
    assert first.metrics["host_foreign_cores"] > 0.1
    (row,) = analysis.settings
    assert row.trials == int(second.valid), "the disturbed trial counts for nothing"


def test_what_a_busy_program_can_have_cost_is_bounded_and_its_name_is_told_once(tmp_path: Path) -> None:
    """The machine decides whether the trial is still valid. The server computes, so that it competes for the CPUs."""
    watcher = Results()
    with burning(1.8):
        analysis = run_beside(tmp_path, watcher, work="--cpu")
    first = watcher.results[0]
    assert first.metrics["host_foreign_cores"] > 0.1
    assert 0.01 < first.metrics["held_up_share_max"] <= 1
    assert first.valid is (first.metrics["held_up_share_max"] <= TELLS_NOTHING)
    assert not first.valid or first.held_up == first.metrics["held_up_share_max"]
    spinning = Path(sys.executable).name[:15]  # the kernel cuts names to 15 characters
    assert first.neighbours[spinning] > 0.1
    (said,) = (warning for warning in analysis.warnings if "disturbed" in warning)
    assert spinning in said
