"""The command line in processes of its own: everything that a run depends on lies in its directory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from powerband.processes.engine_fleet import find_engine
from powerband.store import RunDir

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.usefixtures("engine", "no_process_left")]

SHORT = ("--no-progress", "--duration", "300ms", "--warmup", "100ms", "--repeats", "2", "--users", "4")


def powerband(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from powerband.cli import main; main()", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def tune(folder: Path, *command: str) -> tuple[subprocess.CompletedProcess[str], RunDir]:
    done = powerband(folder, "tune", "-P", "threads=2", *SHORT, "--", *command)
    (path,) = (folder / "runs").iterdir()
    return done, RunDir(path)


def test_a_run_goes_on_from_another_folder(tmp_path: Path) -> None:
    here, elsewhere = tmp_path / "here {threads}", tmp_path / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    (here / "server").write_text(f'#!/bin/sh\nexec {find_engine()} serve --port "$1" --threads "$2"\n')
    (here / "server").chmod(0o755)
    done, run = tune(here, "./server", "{port}", "{threads}")
    last = run.records()[-1].spec.number
    run.trial(last).record.unlink()
    resumed = powerband(elsewhere, "resume", str(run.path), "--no-progress")
    # A busy machine may make trials invalid (5), which is allowed here.
    assert {done.returncode, resumed.returncode} <= {0, 5}, resumed.stderr
    assert run.records()[last - 1].status == "measured", run.records()[last - 1].failure


def test_a_command_that_does_not_exist_ends_the_run_at_once(tmp_path: Path) -> None:
    done, run = tune(tmp_path, "./server", "{port}", "{threads}")
    assert done.returncode == 4
    assert "the command ./server does not exist" in done.stderr
    assert f"`powerband resume runs/{run.path.name}`" in done.stderr
    assert len(run.planned()) == 1
    assert run.records() == []
