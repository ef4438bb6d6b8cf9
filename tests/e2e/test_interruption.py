"""Ctrl-C, a second Ctrl-C and SIGKILL of the control plane at any moment of a run leave no process behind and a
consistent run directory, and the run can be resumed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fakes.stand import FAKES
from powerband.store import RunDir

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.usefixtures("engine", "no_process_left")]

TRIALS = 3
# The moments lie between the announcements of the first and the third trial. Each run of the tests draws a new seed,
# which all of its workers share and the tests' names show: POWERBAND_TEST_SEED=1234 draws the moments of `seed1234`
# again.
NEW_SEED = random.Random(os.environ.get("PYTEST_XDIST_TESTRUNUID")).randrange(10_000)
SEED = int(os.environ.get("POWERBAND_TEST_SEED", NEW_SEED))
DICE = random.Random(SEED)
MOMENTS_S = [pytest.param(at := round(DICE.uniform(0.0, 2.2), 3), id=f"seed{SEED}-{at}s") for _ in range(5)]


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(FAKES / "run_trials.py"), str(folder), f"trials={TRIALS}", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(process: subprocess.Popen[str], said: str) -> None:
    """Waits until the program announces a trial (`trial 1`), a phase, or that it received a Ctrl-C (`stopping`)."""
    assert process.stdout is not None
    assert any(line == f"{said}\n" for line in process.stdout), "it ended before that"


def check_consistent(folder: Path) -> None:
    """Checks that every record is complete, and holds the spec of its trial."""
    for record in RunDir.open(folder).records():
        spec = json.loads((folder / "trials" / f"{record.spec.number:04d}" / "spec.json").read_text())
        assert spec == record.spec.to_json()
        assert record.status in ("measured", "interrupted")
        assert (record.failure is None) == (record.status == "measured")


def finish(folder: Path) -> None:
    """Resumes the run, and checks that all trials are then measured."""
    resumed = start(folder)
    _, errors = resumed.communicate(timeout=120)
    assert resumed.returncode == 0, errors
    records = RunDir.open(folder).records()
    assert [(record.spec.number, record.status) for record in records] == [
        (n, "measured") for n in range(1, TRIALS + 1)
    ]


@pytest.mark.parametrize("after_s", MOMENTS_S)
def test_ctrl_c_at_any_moment(tmp_path: Path, after_s: float) -> None:
    process = start(tmp_path / "run")
    wait_for(process, "trial 1")
    time.sleep(after_s)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    # After the last trial nothing handles Ctrl-C any more: Python itself may end with a KeyboardInterrupt.
    statuses = [record.status for record in RunDir.open(tmp_path / "run").records()]
    done = statuses == ["measured"] * TRIALS
    assert process.returncode in ((0, 130, 1, -signal.SIGINT) if done else (130,)), errors
    check_consistent(tmp_path / "run")
    finish(tmp_path / "run")


def test_the_first_ctrl_c_records_the_trial_as_interrupted(tmp_path: Path) -> None:
    process = start(tmp_path / "run", "pace=20")
    wait_for(process, "measure")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    (record,) = RunDir.open(tmp_path / "run").records()
    assert record.status == "interrupted"
    assert record.failure is not None
    assert record.failure.code == "interrupted"
    assert record.subject["asked"] is True
    finish(tmp_path / "run")


def test_the_second_ctrl_c_quits_without_waiting_for_the_subject(tmp_path: Path) -> None:
    process = start(tmp_path / "run", "pace=20", "ignore-sigterm", "grace=60")
    wait_for(process, "measure")
    process.send_signal(signal.SIGINT)
    wait_for(process, "stopping")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "stopped at once" in errors
    assert RunDir.open(tmp_path / "run").records() == []


@pytest.mark.parametrize("after_s", MOMENTS_S)
def test_sigkill_at_any_moment(tmp_path: Path, after_s: float) -> None:
    process = start(tmp_path / "run")
    wait_for(process, "trial 1")
    time.sleep(after_s)
    process.kill()
    process.communicate(timeout=120)
    check_consistent(tmp_path / "run")
    finish(tmp_path / "run")


def test_sigkill_leaves_nothing_even_of_a_stubborn_subject(tmp_path: Path) -> None:
    process = start(tmp_path / "run", "pace=20", "ignore-sigterm", "grace=1")
    wait_for(process, "measure")
    process.kill()
    process.communicate(timeout=120)
    assert RunDir.open(tmp_path / "run").records() == []


def test_sigterm_is_as_good_as_ctrl_c(tmp_path: Path) -> None:
    process = start(tmp_path / "run", "pace=20")
    wait_for(process, "launch")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    assert process.returncode == 130
