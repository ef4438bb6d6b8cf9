"""The subject `socketcluster`: its own tests, with the real clients, and the published experiments in their smoke
profiles. Needs Node 18 or later and npm: skipped without them, unless POWERBAND_NO_SKIP=1."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from conftest import MARK, marked_processes
from fakes.dashboards import Watch, check_dashboard
from fakes.disturbance import spoilt, undisturbed
from fakes.needs import need_browser, need_node
from fakes.reflection import built
from fakes.smoke import COUNTED_ALIKE, SOME, measured, measured_by, run
from powerband.files.experiment_file import load_subject

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("engine", "no_process_left")]

SOURCES = Path(__file__).parents[2] / "subjects" / "socketcluster"


@pytest.fixture(autouse=True)
def node_and_npm() -> None:
    need_node()


@pytest.mark.long
@pytest.mark.crowded
def test_the_subject_by_its_own_tests(engine: Path) -> None:
    build = built(load_subject("socketcluster"), engine).given["build"]
    done = subprocess.run(
        ["node", "--test", "--test-reporter=spec", *sorted(str(path) for path in (SOURCES / "test").glob("*.test.js"))],
        env={**os.environ, "SUBJECT_BUILD": build},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    passed = re.search(r"^ℹ pass (\d+)$", done.stdout, re.MULTILINE)
    assert passed and int(passed[1]) > 0


@pytest.mark.long
def test_socketcluster_throughput(watch: Watch) -> None:
    """Only valid trials show the server from inside: if a trial was discarded and the machine was disturbed meanwhile,
    the run is repeated up to a limit."""
    # A busy machine too keeps so coarse a schedule.
    options = ("--set", "load.precision=50ms", *SOME)
    seen = undisturbed(lambda _: watch.run("socketcluster-throughput", *options), lambda seen: spoilt(seen.analysis))
    found = measured_by(seen.analysis, "version")
    assert set(found) == {14, 20}
    for version, metrics in found.items():
        assert metrics["goodput_per_s"] > 0 and metrics["error_rate"] < 0.01
        assert metrics["app_pings_per_s"] == pytest.approx(metrics["achieved_rate_per_s"], rel=COUNTED_ALIKE)
        assert metrics["tally_missing"] == 0
        assert metrics["app_worker_cpu_ratio"] > 0
        assert ("app_balancer_cpu_ratio" in metrics) == (version == 14)
        assert metrics["app_fewest_to_most_pings_ratio"] > 0.5
    logs = [path.read_text() for path in seen.path.rglob("subject.log")]
    assert len(logs) == 2 and all("listening on port" in log for log in logs)
    page = next(seen.path.rglob("report.html")).read_text()
    assert "sc_pings_total/s" in page and "balancer" in page
    check_dashboard("socketcluster", [seen])


@pytest.mark.long
def test_socketcluster_concurrency(tmp_path: Path) -> None:
    """A browser among the users checks the server's answer at each visit. Beside other tests the server may get no CPU
    for seconds; then pings of its users are never sent, which counts as errors."""
    need_browser()
    # The warm-up lasts until all users have joined and the browser has started.
    options = ("measure.warmup=5s", "load.duration=4s", "factors.version=[20]")
    words = (word for option in options for word in ("--set", option))
    found = measured_by(run("socketcluster-concurrency", tmp_path, *words), "version")
    assert set(found) == {20}
    for metrics in found.values():
        assert metrics["tally_missing"] == 0 and metrics["join_error_rate"] == 0 and metrics["drops"] == 0
        assert metrics["app_users"] == pytest.approx(200, rel=0.1)
        assert metrics["error_rate"] < 0.01 and metrics["goodput_per_s"] > 0
        assert metrics["visits"] > 1 and metrics["visits_failed"] == 0


@pytest.mark.long
@pytest.mark.crowded
def test_socketcluster_workers(tmp_path: Path) -> None:
    found = measured(run("socketcluster-workers", tmp_path))
    assert {(levels["workers"], levels["balancers"]) for levels, _ in found} == {(1, 0), (1, 1), (2, 0), (2, 1)}
    assert all(metrics["goodput_per_s"] > 0 for _, metrics in found)


@pytest.mark.crowded
@pytest.mark.parametrize("version", [pytest.param(14, marks=pytest.mark.long), 20])
def test_users_of_a_worker_that_is_killed(tmp_path: Path, version: int) -> None:
    killed: list[int] = []
    killer = threading.Thread(target=kill_a_worker_once_measured, args=(tmp_path, killed), daemon=True)
    killer.start()
    analysis = run(
        "socketcluster-throughput", tmp_path, "--set", f"factors.version=[{version}]", "--set", "claims=[]",
        "--set", "load.websocket.rejoin_after=200ms", "--set", "load.duration=5s",
    )  # fmt: skip
    killer.join(10)
    assert len(killed) == 1
    (trial,) = analysis["trials"]
    assert trial["status"] == "measured"
    problems = {problem["code"] for problem in trial["problems"]}
    # Half of the users were on that worker. Its successor counts from 1 again, which counts by process allow for.
    assert "users_dropped" in problems and "tally_differs" not in problems
    assert trial["metrics"]["drops"] >= trial["metrics"]["rejoins"] > 0
    (log,) = tmp_path.rglob("subject.log")
    assert re.search(r"worker 0\b.*(respawned|started again)", log.read_text(), re.IGNORECASE)


def kill_a_worker_once_measured(runs: Path, killed: list[int]) -> None:
    """Kills worker 0 in the middle of the measured window, and appends its pid to `killed`."""
    until = time.monotonic() + 300
    while not any('"phase":"measure"' in path.read_text() for path in runs.rglob("events.jsonl")):
        if time.monotonic() > until:
            return
        time.sleep(0.05)
    time.sleep(1)
    for pid in marked_processes(f"{MARK}={os.environ[MARK]}"):
        with suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text() == "worker-0\n":
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
