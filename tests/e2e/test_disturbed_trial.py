"""Another program that takes the trial's CPUs: the trial does not count, and is repeated."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fakes.stand import MS, experiment, reference, short_load
from powerband.model.experiment import Design, HostUse, Measure
from powerband.model.plan import TrialSpec
from powerband.model.results import TrialResult
from powerband.processes.cpus import cpu_split
from powerband.processes.host import usable_cores
from powerband.processes.stop_request import StopRequest
from powerband.search.observer import Observer
from powerband.search.session import run_session
from powerband.store import RunDir, TrialRecord

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("engine", "no_process_left")]

SPIN = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"


class Burner(Observer):
    """Spins on each of the trial's CPUs while the first trial runs."""

    def __init__(self) -> None:
        self.results: list[TrialResult] = []
        self._spinning: list[subprocess.Popen[bytes]] = []

    def trial_started(self, spec: TrialSpec, planned_total: int) -> None:
        if spec.number == 1:
            split = cpu_split(usable_cores(), HostUse())
            cpus = {*split.subject, *split.engine} or {cpu for core in usable_cores() for cpu in core}
            self._spinning = [subprocess.Popen([sys.executable, "-c", SPIN, str(cpu)]) for cpu in sorted(cpus)]

    def trial_ended(self, record: TrialRecord, result: TrialResult) -> None:
        self.results.append(result)
        self.end()

    def end(self) -> None:
        for process in self._spinning:
            process.kill()
            process.wait()
        self._spinning = []


def test_a_trial_beside_a_busy_program_does_not_count_and_is_repeated(tmp_path: Path) -> None:
    """What the second attempt finds depends on the machine; that there is one does not."""
    case = experiment(
        reference("--threads", "2", "--wait", "5ms"),
        short_load(duration_ns=1000 * MS),
        measure=Measure(warmup=200 * MS, repeats=1, retries=1),
        design=Design(seed=5),
    )
    (tmp_path / "trials").mkdir()
    (tmp_path / "experiment.yaml").touch()
    burner = Burner()
    stop = StopRequest()
    try:
        analysis = run_session(case, RunDir.open(tmp_path), burner, stop)
    finally:
        burner.end()
        stop.close()
    first, second = burner.results
    assert (first.valid, second.attempt, second.block, second.setting) == (False, 2, first.block, first.setting)
    assert "host_foreign" in {problem.code for problem in first.problems if problem.fatal}
    assert first.metrics["host_foreign_cores"] > 0.1
    (row,) = analysis.settings
    assert row.trials == int(second.valid), "the disturbed trial counts for nothing"
