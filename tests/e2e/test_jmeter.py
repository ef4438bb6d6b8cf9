"""The real JMeter on the reference server: the measurements of a plan, and every way in which one can fail. Skipped
without Maven or a JDK."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

import pytest

from fakes.needs import need_jmeter
from fakes.stand import CALM, MS, Watcher, experiment, reference, run_one
from powerband.analyze.trial.measure import measure
from powerband.model.experiment import Experiment, Measure
from powerband.model.load import Load
from powerband.processes.failures import Code
from powerband.processes.stop_request import StopRequest
from powerband.readings.fleet import merge_fleet
from powerband.store import TrialDir

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.usefixtures("engine", "no_process_left", "jmeter")]

PLAN = Path(__file__).parents[2] / "examples" / "jmeter" / "plan.jmx"
WARMUP = Measure(warmup_min_ns=500 * MS, warmup_max_ns=20_000 * MS, **CALM)


@pytest.fixture(scope="module")
def jmeter(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Fetches JMeter once, into the cache that all tests of this session share."""
    cache = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.getbasetemp() / "cache")
    try:
        need_jmeter()
    finally:
        if cache is None:
            del os.environ["XDG_CACHE_HOME"]
        else:
            os.environ["XDG_CACHE_HOME"] = cache


def case(plan: Path = PLAN, measured: Measure = WARMUP, **properties: str) -> Experiment:
    given = {"host": "{host}", "port": "{port}", "users": "4", "think_ms": "5", **properties}
    load = Load(jmeter=str(plan), properties=given, duration_ns=1_500 * MS, drain_ns=2_000 * MS, jvm_args=("-Xms256m",))
    return experiment(reference("--model", "fixed", "--wait", "20ms"), load, measure=measured)


def failure_of(of: Experiment, folder: Path, **options: Any) -> tuple[str, str]:
    record = run_one(of, folder, **options)
    assert record.status == "failed" and record.failure is not None, record
    return record.failure.code, record.failure.message


def test_a_plan_is_measured_as_a_load_of_our_own(tmp_path: Path) -> None:
    watcher, of = Watcher(), case()
    before = PLAN.read_bytes()
    record = run_one(of, tmp_path, watcher=watcher)
    assert (record.status, record.failure) == ("measured", None)
    assert PLAN.read_bytes() == before
    assert watcher.phases == ["launch", "ready", "warmup", "measure", "drain", "stop"]
    assert watcher.intervals and record.warmup_ended_by == "steady"
    assert record.jmeter["version"] == "5.6.3" and 11 <= record.jmeter["java_version"] <= 21
    (summary,) = record.engines
    assert [step["name"] for step in summary["steps"]] == ["Front page"]
    directory = TrialDir(tmp_path / "0001")
    assert directory.read_record() == record
    assert {event["type"] for event in directory.read_events()} == {"interval", "summary"}
    metrics = measure(directory, record, of).metrics
    assert metrics["error_rate"] == 0
    # Four users wait 20 ms and read for 5 ms: at most 160 a second; a busy machine makes fewer.
    assert 0 < metrics["goodput_per_s"] <= 165
    assert metrics["response_time_ns_p50"] >= 19 * MS
    assert metrics["users_mean"] == 4
    # Little's law, but for the requests that an edge of the window cuts: four at either.
    cut = 2 * 4 * metrics["response_time_ns_max"] / of.load.duration_ns
    at_once = metrics["goodput_per_s"] * metrics["response_time_ns_mean"] / 1e9
    assert metrics["in_flight_mean"] == pytest.approx(at_once, abs=cut)
    assert 0 < metrics["in_flight_mean"] <= 4.1
    assert metrics["engine_cpu_cores"] > 0 and metrics["engine_cpu_ns_per_request"] > 0
    assert "send_lag_ns_p99" not in metrics and "littles_law_deviation" not in metrics
    assert len(directory.samples.read_text().splitlines()) > 30
    assert directory.jmeter_log.is_file()


def test_a_transaction_is_placed_by_its_end_and_left_out_if_the_end_cuts_it(tmp_path: Path) -> None:
    plan = tmp_path / "plan.jmx"
    plan.write_text(PLAN.read_text().replace('parent">false', 'parent">true'))
    of = case(plan, Measure(warmup_ns=1_500 * MS, **CALM), think_ms="500")
    record = run_one(of, tmp_path)
    assert (record.status, record.failure) == ("measured", None)
    fleet = merge_fleet(record.engines)
    assert fleet is not None and fleet.times("response_time_ns").quantile(0.01) >= 19 * MS
    with TrialDir(tmp_path / "0001").samples.open(newline="") as file:
        idle_ms = [int(row["IdleTime"]) for row in csv.DictReader(file)]
    assert sum(each >= 490 for each in idle_ms) == record.jmeter["transactions_alone"] < len(idle_ms)


def test_a_plan_that_ends_too_early(tmp_path: Path) -> None:
    code, message = failure_of(case(loops="5"), tmp_path)
    assert code == Code.PLAN_ENDED
    assert "before the measured window of 1.5 s" in message and "loop forever" in message


def test_a_plan_without_threads(tmp_path: Path) -> None:
    code, message = failure_of(case(users="0"), tmp_path)
    assert code == Code.NO_SAMPLES
    assert "see that a thread group has threads" in message


def test_a_plan_with_a_class_that_nobody_has(tmp_path: Path) -> None:
    plan = tmp_path / "plan.jmx"
    plan.write_text(
        PLAN.read_text()
        .replace("UniformRandomTimer ", "org.example.NoSuchTimer ")
        .replace("</UniformRandomTimer", "</org.example.NoSuchTimer")
    )
    code, message = failure_of(case(plan), tmp_path)
    assert code == Code.JMETER_FAILED
    assert "NoSuchTimer" in message and "search_paths" in message


def test_pages_that_are_refused(tmp_path: Path) -> None:
    code, message = failure_of(case(measured=Measure(warmup_ns=300 * MS), path="/nowhere"), tmp_path)
    assert code == Code.NO_VALID_RESPONSE
    assert "status_rejected; status 404" in message


def test_a_stop_ends_jmeter_as_well(tmp_path: Path) -> None:
    stop = StopRequest()

    class Impatient(Watcher):
        def phase(self, name: str) -> None:
            super().phase(name)
            if name == "warmup":
                stop.request()

    try:
        record = run_one(case(), tmp_path, watcher=Impatient(), stop=stop)
    finally:
        stop.close()
    assert record.status == "interrupted"
