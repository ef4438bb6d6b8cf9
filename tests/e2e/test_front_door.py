"""The commands as a person types them, against real servers: every shipped experiment in its `smoke` profile, a server
of one's own through `tune`, and what follows a run: report, resume, compare.

A busy machine may make trials invalid, and that is right; so these tests look at what must hold all the same: every
trial was measured, and nothing but the machine was found wrong with it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
# What a busy machine may cause; anything else would be a defect of the bench or of the experiment.
MACHINE = {"host_foreign", "host_steal", "generator_lag", "generator_cpu", "generator_starved"}

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("no_process_left")]


def powerband(*arguments: object, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "powerband", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout_s, cwd=ROOT, env=os.environ, check=False
    )


def answer_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The JSON answer; exit codes 0, 1 (a claim or constraint failed) and 5 (nothing valid) come with one."""
    assert done.returncode in (0, 1, 5), done.stderr
    assert "Traceback" not in done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def check_measured(document: dict[str, Any]) -> None:
    assert document["trials"]
    for trial in document["trials"]:
        assert trial["status"] == "measured", trial
        fatal = {problem["code"] for problem in trial["problems"] if problem["fatal"]}
        assert fatal <= MACHINE, trial
        assert trial["metrics"]["goodput_per_s"] > 0
        assert trial["metrics"]["subject_cpu_cores"] > 0
        assert trial["metrics"]["threads_max"] >= 1


def is_valid(trial: dict[str, Any]) -> bool:
    return trial["status"] == "measured" and not any(problem["fatal"] for problem in trial["problems"])


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "experiments").glob("*.yaml")))
def test_every_experiment_runs_in_its_smoke_profile(name: str, tmp_path: Path, engine: Path) -> None:
    done = powerband("run", name, "--profile", "smoke", "--runs", tmp_path, "--format", "json")
    document = answer_of(done)
    check_measured(document)
    report = Path(document["run"]) / "report.html"
    assert "<html" in report.read_text()


def test_a_server_of_ones_own_is_tuned_reported_resumed_and_compared(tmp_path: Path, engine: Path) -> None:
    def tune() -> dict[str, Any]:
        return answer_of(
            powerband(
                "tune", "-P", "threads=1,8", "--users", 8, "--duration", "1s", "--repeats", 2, "--warmup", "200ms",
                "--runs", tmp_path, "--format", "json",
                "--", sys.executable, "examples/threads_server.py", "--port", "{port}", "--threads", "{threads}",
            )
        )  # fmt: skip

    first, second = tune(), tune()
    check_measured(first)
    by_setting = {
        threads: [
            t["metrics"]["goodput_per_s"] for t in first["trials"] if t["setting"]["levels"]["threads"] == threads
        ]
        for threads in (1, 8)
    }
    # One thread that waits 20 ms a request cannot serve more than 50 a second, whatever the machine; eight can.
    assert max(by_setting[1]) < 55
    assert max(by_setting[8]) > max(by_setting[1])

    reported = powerband("report", first["run"], "--format", "json")
    again = json.loads(reported.stdout)
    assert again["trials"] == first["trials"]
    resumed = json.loads(powerband("resume", first["run"], "--format", "json").stdout)
    assert len(resumed["trials"]) == len(first["trials"])
    compared = powerband("compare", first["run"], second["run"], "--format", "json")
    valid = [{t["setting"]["id"] for t in run["trials"] if is_valid(t)} for run in (first, second)]
    if common := valid[0] & valid[1]:
        assert compared.returncode in (0, 1), compared.stderr
        assert {row["setting"]["id"] for row in json.loads(compared.stdout)["settings"]} == common
    else:
        assert compared.returncode == 5
        assert "nothing to compare" in compared.stderr


def test_load_prints_rates_times_and_outcomes(engine: Path, tmp_path: Path) -> None:
    server = subprocess.Popen(
        [engine, "serve", "--port", "0", "--model", "event-loop"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        port = server.stdout.readline().rsplit(":", 1)[1].strip()
        done = powerband("load", f"http://127.0.0.1:{port}/", "-c", 4, "-d", "500ms")
        assert done.returncode == 0, done.stderr
        assert all(word in done.stdout for word in ("goodput", "p99", "outcomes", "send lag")), done.stdout
        as_json = powerband("load", f"http://127.0.0.1:{port}/", "-c", 4, "-d", "500ms", "--format", "json")
        assert json.loads(as_json.stdout)
    finally:
        server.terminate()
        server.wait(timeout=10)
        assert server.stdout is not None
        server.stdout.close()
