"""The published experiments on plain Java threads, in their smoke profile, on the real server; and what a JVM that runs
out of memory leaves behind. Needs a JDK of 21 or later: skipped without it, unless POWERBAND_NO_SKIP=1."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes.needs import need_jdk
from fakes.smoke import LONG, measured_by, run

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.usefixtures("engine", "no_process_left")]


@pytest.fixture(autouse=True)
def jdk() -> None:
    need_jdk()


def test_thread_vs_pool(tmp_path: Path) -> None:
    analysis = run("thread-vs-pool", tmp_path)
    found = measured_by(analysis, "pool")
    assert set(found) == {"per-request", "cached", "fixed:16", "fixed:4", "virtual"}
    for pool, metrics in found.items():
        assert metrics["goodput_per_s"] > 0 and metrics["error_rate"] < 0.01, pool
        assert metrics["jvm_heap_committed_bytes_max"] > 1e6 and metrics["jvm_threads_live_max"] >= 5, pool
    started = {pool: metrics["jvm_threads_started_per_s"] for pool, metrics in found.items()}
    assert started["per-request"] > 0.5 * found["per-request"]["goodput_per_s"]
    assert started["virtual"] < 50 and started["fixed:16"] < 50
    assert {claim["id"] for claim in analysis["claims"]} >= {"fixed-is-not-slow", "cached-has-a-thread-for-each-user"}


@pytest.mark.long
def test_fixed_pool_hour(tmp_path: Path) -> None:
    analysis = run("fixed-pool-hour", tmp_path)
    assert len(analysis["settings"]) == 8
    assert all(trial["status"] == "measured" and trial["metrics"]["finish_s"] > 0 for trial in analysis["trials"])


def test_what_the_server_tells_on_its_page_may_be_an_objective(tmp_path: Path) -> None:
    analysis = run(
        "thread-vs-pool", tmp_path,
        "--set", "factors.pool=[fixed:4]", "--set", "claims=[]", *LONG,
        "--set", "measure.metrics={app_thread_share: mean(pool_active_threads / pool_max_threads), "
                 "app_served_per_s: rate(server_requests_total)}",
        "--set", "objective={maximise: app_thread_share}",
    )  # fmt: skip
    trial = analysis["trials"][-1]
    assert 0 < trial["metrics"]["app_thread_share"] <= 1
    assert trial["metrics"]["app_served_per_s"] == pytest.approx(trial["metrics"]["achieved_rate_per_s"], rel=0.5)
    assert trial["metrics"]["bench_cpu_cores"] > 0
