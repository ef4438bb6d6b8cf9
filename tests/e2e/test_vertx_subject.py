"""The published comparison of verticle instances runs in its smoke profile on the real Vert.x; and a failed build is
reported. Needs a JDK of 21 or later, and Maven: skipped without them, unless POWERBAND_NO_SKIP=1."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from fakes.dashboards import Watch, check_dashboard
from fakes.needs import need_jdk
from fakes.smoke import COUNTED_ALIKE, LONG, failed_share, measured, powerband, run

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.usefixtures("engine", "no_process_left")]

REPOSITORY = Path(__file__).parents[2]
RATE_LINE = re.compile(r"^\d+ Rate: count/sec: \d+ Average rate: \d+$", re.MULTILINE)


@pytest.fixture(autouse=True)
def jdk_and_maven() -> None:
    need_jdk(maven=True)


def test_vertx_instances(tmp_path: Path) -> None:
    options = ("--set", "measure.warmup=4s", "--set", "factors.instances=[1, 8]")
    analysis = run("vertx-instances", tmp_path, *options, *LONG)
    found = measured(analysis)
    assert {levels["instances"] for levels, _ in found} == {1, 8}
    for levels, metrics in found:
        assert metrics["goodput_per_s"] > 0 and failed_share(metrics) < 0.01
        assert metrics["app_event_loops"] == min(4, levels["instances"])
        assert metrics["app_thread_changes"] == 0
        assert metrics["app_loop_wait_to_cpu_ratio"] >= 0
        assert metrics["app_served_per_s"] == pytest.approx(metrics["achieved_rate_per_s"], rel=COUNTED_ALIKE)
    tables = {table["metric"]: table["base"] for table in analysis["published"]}
    assert set(tables) == {"rate_counter_window_per_s_mean", "rate_counter_per_s_last"}
    for path in tmp_path.rglob("record.json"):
        names = json.loads(path.read_text())["thread_names"].values()
        assert any(name.startswith("vert.x-eventloop-thread-") for name in names), "the kernel cuts them"
    page = next(tmp_path.rglob("report.html")).read_text()
    assert "vertx_instance_requests_total/s" in page and "vert.x-eventloop-thread-0" in page
    logs = [path.read_text() for path in tmp_path.rglob("subject.log")]
    assert len(logs) >= 2
    assert all(RATE_LINE.search(log) and "listening on port" in log for log in logs)


@pytest.mark.long
def test_vertx_spread(watch: Watch) -> None:
    seen = watch.run("vertx-spread", *LONG)
    ((_, metrics),) = measured(seen.analysis)
    assert metrics["app_instances_per_loop_min"] == 2 and metrics["app_instances_per_loop_max"] == 3
    assert metrics["app_connections_per_loop_max"] == 100
    assert metrics["app_default_loops_to_cpus_ratio"] == 2 and metrics["app_worker_threads"] == 0
    check_dashboard("vertx", [seen])


@pytest.mark.long
def test_vertx_deployment(tmp_path: Path) -> None:
    found = measured(run("vertx-deployment", tmp_path, "--set", "factors.instances=[4]"))
    loops = {levels["worker"]: metrics["app_event_loops"] for levels, metrics in found}
    changes = {levels["worker"]: metrics["app_thread_changes_per_s"] for levels, metrics in found}
    assert loops == {"event-loop": 4, "worker": 1, "virtual": 1}
    assert changes["event-loop"] == 0 and changes["worker"] > 0 and changes["virtual"] > 0


@pytest.mark.long
def test_vertx_depth(tmp_path: Path) -> None:
    found = measured(run("vertx-depth", tmp_path, "--set", "factors.instances=[2]"))
    assert all(metrics["goodput_per_s"] > 0 for _, metrics in found)
    in_flight = {levels["load.pipeline"]: metrics["in_flight_mean"] for levels, metrics in found}
    # 400 users without a pause, each with one request under way or with 20. The experiment shows which serves more.
    assert 200 < in_flight[1] <= 400 and 4_000 < in_flight[20] <= 8_000


@pytest.mark.long
def test_vertx_short_spike(tmp_path: Path) -> None:
    found = measured(run("vertx-short-spike", tmp_path))
    assert [levels["instances"] for levels, _ in found] in ([4, 8], [8, 4])


@pytest.mark.long
def test_a_build_that_fails_ends_with_what_maven_says(tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "subjects" / "vertx", tmp_path / "vertx", ignore=shutil.ignore_patterns("target"))
    broken = tmp_path / "vertx" / "src" / "main" / "java" / "Tally.java"
    broken.write_text(broken.read_text().replace("final class Tally", "final klass Tally"))
    experiment = (REPOSITORY / "experiments" / "vertx-spread.yaml").read_text()
    file = tmp_path / "broken.yaml"
    file.write_text(experiment.replace("use: vertx", "use: ./vertx"))
    done = powerband(str(file), tmp_path / "runs")
    assert done.returncode == 4
    assert "the server's build failed" in done.stderr and "Tally.java" in done.stderr
    assert "Traceback" not in done.stderr
