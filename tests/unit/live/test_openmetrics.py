"""Runs as a Prometheus sees them, read by prometheus_client's strict parser of OpenMetrics."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as strict
from prometheus_client.parser import text_string_to_metric_families as plain

from powerband.live.openmetrics import FAMILIES, exposition
from powerband.live.state import Figures, RunState, RunStatus, SettingState, TrialPhase, TrialState

PROMETHEUS_2_42 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
FIGURES = Figures(
    t_s=3.0,
    rate_per_s=1000.0,
    errors_per_s=0.0,
    response_time_ns_mean=2e6,
    response_time_ns_p50=1_500_000,
    response_time_ns_p99=9e6,
    in_flight=12,
    users=16,
    cpu_cores={"subject": 0.75, "engine": 0.25},
    rss_bytes={"subject": 5e6},
    threads={"running": 0.75, "blocked": 7.25},
    context_switches_per_s=2000.0,
    gauges={"app_queue": 4.0, "jvm heap used bytes": 1e7},
)
TRIAL = TrialState(
    number=7,
    setting="threads=4",
    block=1,
    stage="compare",
    rate_per_s=None,
    phase=TrialPhase.MEASURE,
    phase_began_s=None,
    began_s=None,
    figures=FIGURES,
)
RUN = RunState(
    path="runs/20260101-120000-quickstart",
    name="quickstart",
    status=RunStatus.RUNNING,
    objective="goodput_per_s",
    unit="per_s",
    planned_total=10,
    done=6,
    valid=5,
    invalid=1,
    eta_s=12.5,
    current=TRIAL,
    settings=(
        SettingState("threads=4", {"threads": 4}, trials=3, estimate=1000.0, low=900.0, high=1100.0),
        SettingState("threads=1", {"threads": 1}, trials=2, estimate=300.0, left_after_block=0),
    ),
)
NAME = "20260101-120000-quickstart"


def told(*runs: RunState, accept: str | None = PROMETHEUS_2_42) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    text, content_type = exposition(runs, accept)
    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in strict(text.decode())
        for sample in family.samples
    }


def value(page: dict[tuple[str, frozenset[tuple[str, str]]], float], name: str, /, **labels: str) -> float | None:
    return page.get((name, frozenset({"run": NAME, **labels}.items())))


def test_every_figure_is_told_in_base_units() -> None:
    page = told(RUN)
    trial = {"trial": "7", "setting": "threads=4"}
    assert value(page, "powerband_run_info", name="quickstart") == 1
    assert value(page, "powerband_run_status", status="running") == 1
    assert value(page, "powerband_run_status", status="finished") == 0
    assert value(page, "powerband_run_trials", state="done") == 6
    assert value(page, "powerband_run_trials", state="planned") == 10
    assert value(page, "powerband_run_eta_seconds") == 12.5
    assert value(page, "powerband_trial_phase", phase="measure", **trial) == 1
    assert value(page, "powerband_trial_phase", phase="warmup", **trial) == 0
    assert value(page, "powerband_rate_per_second", **trial) == 1000
    assert value(page, "powerband_errors_per_second", **trial) == 0
    assert value(page, "powerband_response_time_mean_seconds", **trial) == 0.002
    assert value(page, "powerband_response_time_seconds", quantile="0.5", **trial) == 0.0015
    assert value(page, "powerband_response_time_seconds", quantile="0.99", **trial) == pytest.approx(0.009)
    assert value(page, "powerband_in_flight", **trial) == 12
    assert value(page, "powerband_users", **trial) == 16
    assert value(page, "powerband_cpu_cores", tree="engine", **trial) == 0.25
    assert value(page, "powerband_memory_bytes", tree="subject", **trial) == 5e6
    assert value(page, "powerband_threads", state="blocked", **trial) == 7.25
    assert value(page, "powerband_context_switches_per_second", **trial) == 2000
    assert value(page, "powerband_gauge", name="jvm heap used bytes", **trial) == 1e7
    estimate = {"setting": "threads=4", "metric": "goodput_per_s"}
    assert [value(page, "powerband_setting_estimate", bound=b, **estimate) for b in ("low", "value", "high")] == [
        900, 1000, 1100,
    ]  # fmt: skip
    assert value(page, "powerband_setting_trials", setting="threads=1") == 2
    assert value(page, "powerband_setting_in_race", setting="threads=1") == 0
    of_nodes = {"powerband_node_status"}
    assert {name for name, _ in page} == {"powerband_run_info", *(family.name for family in FAMILIES)} - of_nodes


def test_what_was_not_told_is_left_out() -> None:
    bare = RunState(path="runs/x", name="x", status=RunStatus.UNREADABLE, because="no run directory")
    assert {name for name, _ in told(bare)} == {"powerband_run_info", "powerband_run_status", "powerband_run_trials"}
    page = told(replace(RUN, current=replace(TRIAL, figures=Figures(t_s=0.0, rate_per_s=0.0))))
    names = {name for name, _ in page}
    assert "powerband_rate_per_second" in names and "powerband_trial_phase" in names
    assert not names & {"powerband_response_time_seconds", "powerband_cpu_cores", "powerband_users"}


def test_without_a_run_there_is_a_page_all_the_same() -> None:
    assert told() == {}


def test_an_objective_in_nanoseconds_is_told_in_seconds() -> None:
    setting = SettingState("default", {}, trials=2, estimate=2e9)
    page = told(replace(RUN, objective="response_time_ns_p99", unit="ns", settings=(setting,)))
    labels = {"setting": "default", "metric": "response_time_seconds_p99", "bound": "value"}
    assert value(page, "powerband_setting_estimate", **labels) == 2.0


def test_several_runs_stand_in_one_page() -> None:
    page = told(RUN, replace(RUN, path="runs/other", status=RunStatus.FINISHED, current=None))
    runs = {dict(labels)["run"] for _, labels in page}
    assert runs == {NAME, "other"}
    assert {dict(labels)["run"] for name, labels in page if name == "powerband_rate_per_second"} == {NAME}


@pytest.mark.parametrize("name", ['<script>"\\\n', "\udcff", "백엔드"])
def test_any_name_stands_in_a_label(name: str) -> None:
    page = told(replace(RUN, path=str(Path("runs") / name), name=name, settings=(SettingState(name, {}, trials=1),)))
    shown = name.replace("\udcff", "?")
    assert page["powerband_setting_trials", frozenset({("run", shown), ("setting", shown)})] == 1


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        (PROMETHEUS_2_42, "application/openmetrics-text; version=1.0.0"),
        ("application/openmetrics-text", "application/openmetrics-text; version=1.0.0"),
        ("application/openmetrics-text; version=none", "text/plain; version=0.0.4"),
        ("text/plain;version=0.0.4", "text/plain; version=0.0.4"),
        ("*/*", "text/plain; version=0.0.4"),
        (None, "text/plain; version=0.0.4"),
    ],
)
def test_the_format_is_the_one_that_is_asked_for(accept: str | None, content_type: str) -> None:
    text, told_type = exposition([RUN], accept)
    assert told_type.startswith(content_type)
    is_openmetrics = content_type.startswith("application")
    assert text.endswith(b"# EOF\n") is is_openmetrics
    if not is_openmetrics:
        samples = [sample for family in plain(text.decode()) for sample in family.samples]
        assert {"run": NAME, "name": "quickstart"} in [it.labels for it in samples if it.name == "powerband_run_info"]
