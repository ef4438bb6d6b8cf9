"""Loops of idle priority keep the trial's CPUs awake. Their CPU time counts as the host's idle time, and they end with
the control plane."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from fakes.burner import burning
from fakes.disturbance import stood_still, undisturbed
from fakes.stand import CALM, MS, experiment, reference, run_one, short_load
from powerband.analyze.trial.measure import measure
from powerband.base.procfs import all_processes
from powerband.model.experiment import HostUse, Measure
from powerband.model.results import TrialResult
from powerband.processes.host import usable_cores
from powerband.store import TrialDir, TrialRecord

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("engine", "no_process_left")]


def measured(folder: Path) -> tuple[TrialRecord, TrialResult]:
    """A trial in which the machine did not stand still: the loops run on no CPU meanwhile. Its window is so long that
    beside other tests a late reading of one counter moves no share by much."""
    return undisturbed(partial(trial, folder), lambda found: stood_still(found[1]))


def trial(folder: Path, attempt: int) -> tuple[TrialRecord, TrialResult]:
    case = experiment(
        reference("--threads", "2", "--wait", "5ms"),
        short_load(duration_ns=2500 * MS),
        measure=Measure(warmup=300 * MS, repeats=1, slots=False, **CALM),
        host=HostUse(awake=True),
    )
    record = run_one(case, folder / str(attempt))
    assert record.cpus["kept awake"]
    return record, measure(TrialDir(folder / str(attempt) / "0001"), record, case)


@pytest.mark.crowded
def test_what_the_loops_ran_is_neither_the_servers_nor_foreign(tmp_path: Path) -> None:
    record, result = measured(tmp_path)
    metrics, cpus = result.metrics, len(record.cpus["kept awake"])
    awake = metrics["host_awake_cores"]
    assert metrics["subject_cpu_cores"] < 0.5, "its own CPU is a few percent"
    assert metrics["host_foreign_cores"] <= cpus - awake + 0.1, "what the loops had nobody else had"
    taken = metrics["host_busy_share"] + metrics["host_steal_share"]
    assert awake / cpus == pytest.approx(1 - taken, abs=0.1), "what nobody used they did"
    assert "psi_cpu_share" not in metrics, "the loops themselves wait all the time"


def test_another_program_is_foreign_beside_them(tmp_path: Path) -> None:
    with burning(1.8):  # with less, a short window may fall between its bursts
        metrics = measured(tmp_path)[1].metrics
    assert metrics["host_foreign_cores"] > 0.1


STARTS = """
import sys, time
from powerband.trials.instruments.awake import _loop
with _loop(int(sys.argv[1])) as loop:
    loop.stdout.read(1)
    print(loop.pid, flush=True)
    time.sleep(60)
"""


@pytest.mark.crowded
def test_they_end_with_the_control_plane_even_if_it_is_killed() -> None:
    cpu = min(cpu for core in usable_cores() for cpu in core)
    with subprocess.Popen([sys.executable, "-c", STARTS, str(cpu)], stdout=subprocess.PIPE) as control:
        assert control.stdout is not None
        loop = int(control.stdout.readline())
        assert any(each.pid == loop and each.state != "Z" for each in all_processes())
        control.send_signal(signal.SIGKILL)
    deadline_s = time.monotonic() + 20
    while any(each.pid == loop and each.state != "Z" for each in all_processes()):
        assert time.monotonic() < deadline_s, "the loop still runs"
        time.sleep(0.02)
