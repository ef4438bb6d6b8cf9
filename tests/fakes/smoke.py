"""Shipped experiments in their smoke profile, run as a user runs them; a busy machine spoils no trial."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

# A busy machine, or a busy host of it, must not spoil what a test is about.
CALM = ("--set", "measure.foreign_cpu_max=100%", "--set", "measure.steal_max=100%")
# So long a window that even of a slow server's pages, read once a second, a rate can be told.
LONG = ("--set", "load.duration=8s")


def powerband(experiment: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """The first one on a machine may have to fetch what a subject is built from."""
    command = [
        sys.executable, "-m", "powerband", "run", experiment, "--profile", "smoke", "--format", "json",
        "--runs", str(folder), *CALM, "--set", "measure.retries=0", *options,
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)


def run(experiment: str, folder: Path, *options: str) -> dict[str, Any]:
    """The analysis."""
    done = powerband(experiment, folder, *options)
    # 1: a claim does not hold, which so short a run may well say; 5: on a busy machine no trial counts.
    assert done.returncode in (0, 1, 5), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measured(analysis: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, float]]]:
    """Levels and metrics of every measured trial, whether or not the machine let it count."""
    return [
        (trial["setting"]["levels"], trial["metrics"]) for trial in analysis["trials"] if trial["status"] == "measured"
    ]


def measured_by(analysis: dict[str, Any], factor: str) -> dict[Any, dict[str, float]]:
    """The metrics of a measured trial of each level."""
    return {levels[factor]: metrics for levels, metrics in measured(analysis)}
