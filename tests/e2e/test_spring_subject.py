"""The published experiments on Spring Boot's executor, in their smoke profile, on the real server: what its page tells,
what an acknowledgement is worth, and each kind of failure by its status. Needs a JDK of 21 or later and Maven: skipped
without them, unless POWERBAND_NO_SKIP=1."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from powerband.errors import SubjectError
from powerband.run.jdk import find_jdk
from powerband.run.postgresql import find_binaries

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.usefixtures("engine", "no_process_left")]


@pytest.fixture(autouse=True)
def tools() -> None:
    try:
        find_jdk(21, compiles=True)
        if shutil.which("mvn") is None:
            raise SubjectError("no Maven (mvn) here: Debian's package maven")
    except SubjectError as error:
        if os.environ.get("POWERBAND_NO_SKIP") == "1":
            raise
        pytest.skip(str(error))


def run(experiment: str, folder: Path, *options: str) -> dict[str, Any]:
    """The analysis of a smoke run; a busy machine spoils no trial."""
    command = [
        sys.executable, "-m", "powerband", "run", experiment, "--profile", "smoke", "--format", "json",
        "--runs", str(folder), "--set", "measure.foreign_cpu_max=100%", "--set", "measure.retries=0", *options,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    # 1: a claim does not hold, which so short a run may well say; 5: on a busy machine no trial counts.
    assert done.returncode in (0, 1, 5), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measured(analysis: dict[str, Any], *factors: str) -> dict[tuple[Any, ...], dict[str, float]]:
    """The metrics of a trial of each setting, whether or not the machine let it count."""
    return {
        tuple(trial["setting"]["levels"][factor] for factor in factors): trial["metrics"]
        for trial in analysis["trials"]
        if trial["status"] == "measured"
    }


def test_spring_executor(tmp_path: Path) -> None:
    found = measured(
        run("spring-executor", tmp_path, "--set", "factors.core=[20]", "--set", "factors.queue=[1000]"), "core", "queue"
    )
    assert set(found) == {(20, 1000)}
    for setting, metrics in found.items():
        assert metrics["achieved_rate_per_s"] > 0 and metrics["error_rate"] == 0, setting
        assert 0 <= metrics["app_thread_use"] <= 1 and metrics["jvm_threads_live_max"] > 20, setting


def test_spring_sync_async(tmp_path: Path) -> None:
    """Sync alone; async is what the test with PostgreSQL runs."""
    found = measured(run("spring-sync-async", tmp_path, "--set", "factors.mode=[sync]", "--set", "claims=[]"), "mode")
    served = found["sync",]["app_server_requests_per_s"]
    assert served == pytest.approx(found["sync",]["achieved_rate_per_s"], rel=0.6)
    assert found["sync",]["app_tasks_per_s"] == 0


def test_an_async_write_is_acknowledged_before_it_is_done(tmp_path: Path) -> None:
    found = measured(run("spring-sync-async-io", tmp_path), "mode")
    assert found["sync",]["missing_at_acknowledgement_max"] == 0
    assert found["async",]["missing_at_acknowledgement_mean"] > 100
    assert found["async",]["visible_delay_ns_p50"] > 500 * 1e6 * 0.5, "500 inserts of a millisecond and more"
    assert found["async",]["response_time_ns_p50"] < 0.5 * found["sync",]["response_time_ns_p50"]


@pytest.mark.parametrize(
    ("setting", "exception"),
    [("policy: abort", "TaskRejectedException"), ("async_timeout: 5ms", "AsyncRequestTimeoutException")],
)
def test_each_kind_of_failure_is_told_apart(tmp_path: Path, setting: str, exception: str) -> None:
    counter = f'http_server_requests_seconds_count{{exception=\\"{exception}\\"}}'
    analysis = run(
        "spring-executor", tmp_path,
        "--set", "factors={core: [1], max: [1], queue: [2]}",
        "--set", f"subject.set={{mode: async, rows: 8000, {setting}}}",
        "--set", f'measure.metrics={{app_failed_per_s: "rate({counter})"}}',
        "--set", "load.duration=2500ms", "--set", "objective={maximise: rate}",
    )  # fmt: skip
    metrics = analysis["trials"][-1]["metrics"]
    assert metrics["error_rate"] > 0 and metrics["app_failed_per_s"] > 0


def test_a_short_accept_queue_overflows_in_the_burst(tmp_path: Path) -> None:
    found = measured(run("spring-accept-count", tmp_path, "--set", "factors.accept_count=[100]", "--set", "claims=[]"),
                     "accept_count")  # fmt: skip
    assert found[100,]["burst_accept_overflows"] > 0


def test_postgresql_in_the_place_of_h2(tmp_path: Path) -> None:
    try:
        find_binaries()
    except SubjectError as error:
        if os.environ.get("POWERBAND_NO_SKIP") == "1":
            raise
        pytest.skip(str(error))
    analysis = run(
        "spring-sync-async", tmp_path, "--set", "factors={mode: [async]}", "--set", "claims=[]",
        "--set", "subject.set.database=postgresql",
    )  # fmt: skip
    metrics = analysis["trials"][-1]["metrics"]
    assert metrics["goodput_per_s"] > 0 and metrics["error_rate"] == 0 and metrics["services_cpu_cores"] > 0
    assert metrics["app_tasks_per_s"] > 0
