"""The published experiments on plain Java threads run in their smoke profile on the real server; and the trial of a JVM
that runs out of memory. Needs a JDK of 21 or later: skipped without it, unless POWERBAND_NO_SKIP=1."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from pathlib import Path

import pytest

from fakes.dashboards import Watch, check_dashboard
from fakes.needs import need_jdk
from fakes.smoke import COUNTED_ALIKE, LONG, SOME, failed_share, measured, measured_by, run
from powerband.processes.jdk import find_jdk

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.usefixtures("engine", "no_process_left")]


@pytest.fixture(autouse=True)
def jdk() -> None:
    need_jdk()


def test_thread_vs_pool(tmp_path: Path) -> None:
    """The heap begins small: its collector tells what is in use at its first collection only, and the few requests of a
    smoke run on a busy machine would not fill a large one."""
    pools = ("per-request", "cached", "fixed:16", "virtual")  # a fixed pool of 4 is in the test of an objective
    options = ("--set", "subject.set.heap_start=32m", "--set", f"factors.pool={json.dumps(pools)}")
    analysis = run("thread-vs-pool", tmp_path, *options)
    found = measured_by(analysis, "pool")
    assert set(found) == set(pools)
    for pool, metrics in found.items():
        assert metrics["goodput_per_s"] > 0 and failed_share(metrics) < 0.01, pool
        assert metrics["jvm_heap_committed_bytes_max"] > 1e6 and metrics["jvm_threads_live_max"] >= 5, pool
        assert 25e6 < metrics["jvm_heap_committed_bytes_before"] < 40e6, "as heap_start says"
    started = {pool: metrics["jvm_threads_started_per_s"] for pool, metrics in found.items()}
    assert started["per-request"] > 0.5 * found["per-request"]["goodput_per_s"]
    assert started["virtual"] < 50 and started["fixed:16"] < 50
    assert {claim["id"] for claim in analysis["claims"]} >= {"fixed-is-not-slow", "cached-has-five-times-the-threads"}


def test_the_server_goes_on_once_there_are_descriptors_again(tmp_path: Path) -> None:
    """More users connect than it may open files."""
    jdk = find_jdk(21, compiles=True).home / "bin"
    sources = sorted((Path(__file__).parents[2] / "subjects" / "threads" / "src").glob("*.java"))
    subprocess.run([jdk / "javac", "-d", tmp_path, *sources], check=True)
    options = ["--host", "127.0.0.1", "--port", "0", "--metrics-port", "0", "--idle-timeout", "60s", "--wait", "0ms"]
    command = ["prlimit", "--nofile=60", str(jdk / "java"), "-Xmx64m", "-cp", str(tmp_path), "ThreadsServer", *options]
    with (
        (tmp_path / "stderr").open("w") as told,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=told, text=True) as server,
    ):
        assert server.stdout is not None
        deadline_s = time.monotonic() + 60
        try:
            port = int(server.stdout.readline().rsplit(maxsplit=1)[1])
            held = [socket.create_connection(("127.0.0.1", port), 30) for _ in range(80)]
            while "no connection is accepted: Too many open files" not in (tmp_path / "stderr").read_text():
                assert time.monotonic() < deadline_s
                time.sleep(0.05)
            for connection in held:
                connection.close()
            answer = b""
            while not answer and time.monotonic() < deadline_s:
                with socket.create_connection(("127.0.0.1", port), 30) as connection:
                    connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                    answer = connection.recv(100)
            assert answer.startswith(b"HTTP/1.1 200 OK")
        finally:
            server.kill()


@pytest.mark.long
def test_fixed_pool_hour(tmp_path: Path) -> None:
    analysis = run("fixed-pool-hour", tmp_path)
    assert len(analysis["settings"]) == 8
    assert all(trial["status"] == "measured" and trial["metrics"]["finish_s"] > 0 for trial in analysis["trials"])


@pytest.mark.long
def test_cached_threads_idle(tmp_path: Path) -> None:
    """Each of 200 simultaneous users holds a thread for half a second; some ask again before the thread that answered
    them is idle. The pool keeps idle threads for a minute, which no test waits for."""
    ((_, metrics),) = measured(run("cached-threads-idle", tmp_path))
    assert 50 < metrics["app_pool_threads_max"] <= 210
    assert metrics["app_pool_threads_last"] == metrics["app_pool_threads_max"]


def test_what_the_server_tells_on_its_page_may_be_an_objective(watch: Watch) -> None:
    """50 users keep 4 threads busy, which sleep for 10 ms in each request: the whole pool is in use, except at moments
    at which a busy machine brings it no connection. Each metric of the page has its panel."""
    seen = watch.run(
        "thread-vs-pool",
        "--set", "factors.pool=[fixed:4]", "--set", "claims=[]", *LONG, "--set", "subject.set.wait=10ms",
        "--set", "measure.metrics={app_thread_share: mean(pool_active_threads / pool_max_threads), "
                 "app_served_per_s: rate(server_requests_total)}",
        "--set", "objective={maximise: app_thread_share}",
    )  # fmt: skip
    metrics = seen.analysis["trials"][-1]["metrics"]
    assert 0.7 < metrics["app_thread_share"] <= 1
    assert metrics["app_served_per_s"] == pytest.approx(metrics["achieved_rate_per_s"], rel=COUNTED_ALIKE)
    assert metrics["bench_cpu_cores"] > 0
    check_dashboard("threads", [seen])


@pytest.mark.long
@pytest.mark.parametrize("policy", ["abort", "caller-runs"])
def test_a_bounded_pool_refuses_what_finds_its_queue_full_or_lets_the_acceptor_serve_it(
    tmp_path: Path, policy: str
) -> None:
    """The pool has two threads and a queue of two, for 50 users whose requests sleep for 10 ms."""
    analysis = run(
        "thread-vs-pool", tmp_path, "--set", "factors.pool=['bounded:1,2,2']", "--set", f"subject.set.policy={policy}",
        "--set", "subject.set.wait=10ms", "--set", "claims=[]", *SOME,
        "--set", "measure.metrics={app_refused_per_s: rate(server_connections_refused_total), "
                 "app_threads_most: max(pool_max_threads)}",
    )  # fmt: skip
    ((_, metrics),) = measured(analysis)
    assert metrics["app_threads_most"] == 2
    assert metrics["app_refused_per_s"] > 0
    assert (metrics["error_rate"] > 0.1) == (policy == "abort")
    # The acceptor serves at most as much as a third thread.
    assert 0 < metrics["goodput_per_s"] < 1.1 * 1000 / 10 * (2 if policy == "abort" else 3)


@pytest.mark.long
def test_an_idle_connection_gives_its_thread_back_after_its_timeout(tmp_path: Path) -> None:
    """One thread serves two users who pause longer than a connection may idle. Without an idle timeout the second user
    waits as long as the first one stays connected."""
    unserved = {}
    for idle in ("100ms", "60s"):
        analysis = run(
            "thread-vs-pool", tmp_path / idle, "--set", "factors.pool=['fixed:1']", "--set", "claims=[]",
            "--set", "subject.set={connection: keep-alive, cpu: 0ms, idle_timeout: " + idle + "}",
            "--set", "load.keep_alive=true", "--set", "load.users=2", "--set", "load.think=400ms", "--set",
            "load.duration=6s", "--set", "load.drain=500ms", "--set", "objective={maximise: rate}",
        )  # fmt: skip
        ((_, metrics),) = measured(analysis)
        unserved[idle] = metrics["users_unserved"]
    assert unserved == {"100ms": 0, "60s": 1}
