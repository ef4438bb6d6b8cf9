"""The published experiments on Spring Boot's executor run in their smoke profile on the real server: the metrics of its
page, the check of acknowledged writes, and each kind of failure by its status. Needs a JDK of 21 or later and Maven:
skipped without them, unless POWERBAND_NO_SKIP=1."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes.dashboards import Watch, check_dashboard
from fakes.needs import need_jdk, need_postgresql
from fakes.smoke import ALL_CPUS, COUNTED_ALIKE, LONG, SOME, failed_share, measured, measured_by, run

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("engine", "no_process_left")]


@pytest.fixture(autouse=True)
def tools() -> None:
    need_jdk(maven=True)


@pytest.mark.crowded
def test_spring_executor(tmp_path: Path) -> None:
    """Writes that sleep for two seconds arrive faster than the 4 core threads serve them, and never fill the queue, so
    the share of threads in use is core / max."""
    analysis = run(
        "spring-executor", tmp_path,
        "--set", "factors={core: [4], max: [20], queue: [1000]}", "--set", "subject.set.insert_delay=4ms",
        "--set", "load={users: 4, think: 400ms, scenario: [{post: /random}]}",
    )  # fmt: skip
    ((setting, metrics),) = measured(analysis)
    assert setting == {"core": 4, "max": 20, "queue": 1000}
    assert metrics["achieved_rate_per_s"] > 0 and failed_share(metrics) == pytest.approx(0)
    # A thread is started, and is in use, as soon as a write arrives, which a busy machine delays.
    assert 0.5 * 4 / 20 < metrics["app_thread_use"] <= 1.01 * 4 / 20 and 2 < metrics["app_threads"] <= 4.01
    assert metrics["jvm_threads_live_max"] > 4


@pytest.mark.crowded
@pytest.mark.long
def test_spring_sync_async(watch: Watch) -> None:
    """This test runs mode `sync` alone; the test with PostgreSQL runs `async`."""
    seen = watch.run("spring-sync-async", "--set", "factors.mode=[sync]", *LONG, *ALL_CPUS)
    metrics = measured_by(seen.analysis, "mode")["sync"]
    served = metrics["app_server_requests_per_s"]
    assert served == pytest.approx(metrics["achieved_rate_per_s"], rel=COUNTED_ALIKE)
    assert metrics["app_tasks_per_s"] == 0
    # Metrics of the page that say nothing about concurrency.
    others = "application_|jdbc_|tomcat_|hikaricp_connections_(creation|usage|min|timeout)|http_server_requests_active"
    check_dashboard("spring", [seen], others)


@pytest.mark.crowded
@pytest.mark.long
def test_requests_on_virtual_threads_are_not_bound_by_tomcat_max(tmp_path: Path) -> None:
    """Each of 8 users writes, and holds a connection to the database for half a second or more: on Tomcat's own two
    threads at most two at a time, and nearly all on virtual threads."""
    analysis = run(
        "spring-sync-async-io", tmp_path, "--set", "factors={mode: [sync], virtual_threads: [false, true]}",
        "--set", "subject.set={tomcat_max: 2, insert_delay: 1ms}", "--set", "measure.acknowledged=null",
        "--set", "claims=[]", "--set", "published=[]", "--set", "load.users=8", "--set", "load.think=0s",
        *SOME, *ALL_CPUS,
    )  # fmt: skip
    found = measured_by(analysis, "virtual_threads")
    assert 0 < found[False]["app_connections"] <= 2
    assert found[True]["app_connections"] > 4


@pytest.mark.crowded
@pytest.mark.long
def test_an_async_write_is_acknowledged_before_it_is_done(tmp_path: Path) -> None:
    """A request makes 500 inserts of at least two milliseconds each, so that even a late read, beside other tests,
    comes before they are done."""
    options = ("--set", "subject.set.insert_delay=2ms", *ALL_CPUS)
    found = measured_by(run("spring-sync-async-io", tmp_path, *options), "mode")
    assert found["sync"]["missing_at_acknowledgement_max"] == 0
    assert found["async"]["missing_at_acknowledgement_mean"] > 100
    assert found["async"]["visible_delay_ns_p50"] > 500 * 2e6 * 0.5
    assert found["async"]["response_time_ns_mean"] < 0.5 * found["sync"]["response_time_ns_mean"]


@pytest.mark.crowded
@pytest.mark.long
@pytest.mark.parametrize(
    ("load", "setting", "exception"),
    [
        ("{users: 20}", "rows: 2000, policy: abort", "TaskRejectedException"),
        # Tomcat checks for timed-out requests once a second: with few users it finds some, and never all.
        ("{users: 2, think: 0s}", "rows: 6000, async_timeout: 5ms", "AsyncRequestTimeoutException"),
    ],
)
def test_each_kind_of_failure_is_told_apart(tmp_path: Path, load: str, setting: str, exception: str) -> None:
    counter = f'http_server_requests_seconds_count{{exception=\\"{exception}\\"}}'
    analysis = run(
        "spring-executor", tmp_path,
        "--set", "factors={core: [1], max: [1], queue: [2]}", "--set", f"load={load}",
        "--set", f"subject.set={{mode: async, {setting}}}",
        "--set", f'measure.metrics={{app_failed_per_s: "rate({counter})"}}',
        "--set", "objective={maximise: rate}", *SOME, *ALL_CPUS,
    )  # fmt: skip
    metrics = analysis["trials"][-1]["metrics"]
    assert metrics["error_rate"] > 0 and metrics["app_failed_per_s"] > 0


@pytest.mark.crowded
@pytest.mark.long
def test_a_short_accept_queue_overflows_in_the_burst(tmp_path: Path) -> None:
    """The accept queue has room for one connection, so a burst of 300 fills it at times, even on a busy machine."""
    # The requests are short, so a busy machine completes some too.
    options = (
        "--set",
        "factors.accept_count=[1]",
        "--set",
        "subject.set.rows=200",
        "--set",
        "load.duration=3s",
        "--set",
        "load.drain=1s",
        *ALL_CPUS,
    )
    found = measured_by(run("spring-accept-count", tmp_path, *options), "accept_count")
    assert found[1]["burst_accept_overflows"] > 0


@pytest.mark.crowded
@pytest.mark.long
def test_postgresql_in_the_place_of_h2(tmp_path: Path) -> None:
    need_postgresql()
    analysis = run(
        "spring-sync-async", tmp_path, "--set", "factors={mode: [async]}",
        "--set", "subject.set.database=postgresql", *SOME,
    )  # fmt: skip
    metrics = analysis["trials"][-1]["metrics"]
    assert metrics["goodput_per_s"] > 0 and metrics["services_cpu_cores"] > 0
    assert failed_share(metrics) == pytest.approx(0)
    assert metrics["app_tasks_per_s"] > 0
