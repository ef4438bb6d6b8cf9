from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes.edges import capacity_experiment
from fakes.trials import (
    SECOND,
    START_NS,
    Figures,
    experiment,
    failed_record,
    histogram,
    record_of,
    spec,
    summary,
    write_trial,
)
from powerband.analyze.settings.capacity import holds
from powerband.analyze.settings.compare import analyse
from powerband.analyze.trial.faults import is_failed_start
from powerband.analyze.trial.measure import evidence_of, measure, quantile_table
from powerband.loads.measured import as_judged, is_lower_bound
from powerband.model.bottlenecks import BottleneckName
from powerband.model.constraint import Constraint
from powerband.model.cpu_use import CpuUse
from powerband.model.experiment import Measure, Objective, Subject
from powerband.model.load import Load
from powerband.model.metrics import METRICS
from powerband.model.plan import Stage
from powerband.model.results import TrialResult
from powerband.readings.fleet import merge_fleet
from powerband.store import TrialDir


def measured(tmp_path: Path, figures: Figures, **changes: Any) -> TrialResult:
    directory = TrialDir(tmp_path / "0001")
    record = write_trial(directory, record_of(spec(), figures), figures)
    return measure(directory, record, experiment(**changes))


def codes(result: TrialResult) -> set[str]:
    return {problem.code for problem in result.problems}


def test_a_quiet_trial_is_valid_and_yields_every_metric_that_its_files_back(tmp_path: Path) -> None:
    result = measured(tmp_path, Figures())
    assert result.valid and result.problems == ()
    # The trials have no WebSockets, no JVM or .NET, no burst, no checked writes, no set number of requests, nothing
    # beside the subject and no link; and the record of a fake trial has no figures of the control plane.
    kinds = (
        "join",
        "drop",
        "rejoins",
        "deliver",
        "tally_",
        "jvm_",
        "dotnet_",
        "burst_",
        "acknowledge_",
        "visit",
        "visible_",
        "missing_",
        "services_",
        "link_",
        "rate_counter_",
        "bar_",
        "slots",
        "alone_",
        "prompt_",
        "doubled_",
    )
    others = {name for name in METRICS if name.startswith(kinds)} - {"dropped_rate"} | {"finish_s", "bench_cpu_cores"}
    assert set(METRICS) - set(result.metrics) - others == {
        "queue_growth_per_s",  # the load is closed
        "processes_added",  # none are
        "host_awake_cores",  # nothing keeps CPUs awake
        "quiet_s",  # no other program disturbs it
        "quiet_held_up_share_max",
        "window_goodput_per_s",
        "window_achieved_rate_per_s",
        "cpu_quota_cores",  # there is no quota
        "cpu_throttled_share",
        "memory_lasts_s",  # nothing grows
        "threads_lasts_s",
        "descriptors_lasts_s",
        "pss_bytes_max",
        "gc_cpu_share",
        "thread_cpu_share_max",
        "capacity_per_s",
    }  # the fake kernel has none of these, or they are figures of a setting
    expected = {
        "goodput_per_s": 1000,
        "error_rate": 0,
        "subject_cpu_cores": 0.5,
        "subject_cpu_share": 0.5,
        "subject_cpu_system_share": 0.25,
        "subject_cpu_ns_per_request": 500_000,
        "threads_max": 4,
        "descriptors_max": 20,
        "threads_started_per_s": 1,
        "context_switches_per_request": 2,
        "involuntary_switch_share": 0.25,
        "run_wait_cores": 0.1,
        "engine_cpu_cores": 0.3,
        "engine_run_wait_cores": 0.01,
        "engine_run_wait_ns_mean": 5000,
        "host_busy_share": 0.425,
        "host_foreign_cores": 0.85 - 0.5 - 0.3 - 0.01,
        "users_mean": 10,
        "in_flight_mean": 10,
        "littles_law_deviation": 0,
        "ready_s": 0.5,
    }
    for name, value in expected.items():
        assert result.metrics[name] == pytest.approx(value, rel=2e-3, abs=2e-3), name
    assert result.warmup_s == 2.0


@pytest.mark.parametrize("stage", [Stage.SCREEN, Stage.COMPARE])
def test_the_goodput_of_users_who_never_pause_is_that_of_littles_law(stage: Stage, tmp_path: Path) -> None:
    """At the window's ends five of ten users were about to get another answer, or had just had it."""
    directory, record = TrialDir(tmp_path / "0001"), record_of(replace(spec(), stage=stage), Figures())
    window = record.engines[0]["window"]
    busy_ns = round(0.9995 * window["time_in_system_ns_sum"])
    engines = [{**record.engines[0], "window": {**window, "time_in_system_ns_sum": busy_ns}}]
    record = write_trial(directory, replace(record, engines=engines), Figures())
    more = Measure.model_validate({"invariants": ["goodput > 1000.2"]})
    result = measure(directory, record, experiment(measure=more))
    assert result.metrics["goodput_per_s"] == pytest.approx(1000 / 0.9995, rel=1e-5) and result.valid
    assert result.metrics["achieved_rate_per_s"] == result.metrics["goodput_per_s"], "none failed"


def test_users_of_a_setting_that_pauses_have_the_goodput_that_was_counted(tmp_path: Path) -> None:
    """The experiment's own load has no pauses; that of this setting has."""
    directory, record = TrialDir(tmp_path / "0001"), record_of(spec({"load.think": "1ms"}), Figures())
    window = record.engines[0]["window"]
    busy_ns = round(0.9995 * window["time_in_system_ns_sum"])
    engines = [{**record.engines[0], "window": {**window, "time_in_system_ns_sum": busy_ns}}]
    result = measure(directory, write_trial(directory, replace(record, engines=engines), Figures()), experiment())
    assert result.metrics["goodput_per_s"] == pytest.approx(1000)


@pytest.mark.parametrize("ended_by", ["work", "time", "deadline"])
def test_users_who_did_not_finish_have_no_time_to_finish(ended_by: str, tmp_path: Path) -> None:
    figures = Figures(engines=2)
    directory, record = TrialDir(tmp_path / "0001"), record_of(spec(), figures)
    engines = [{**record.engines[0], "ended_by": "work"}, {**record.engines[1], "ended_by": ended_by}]
    record = write_trial(directory, replace(record, engines=engines), figures)
    result = measure(directory, record, experiment(load=Load(users=10, requests_per_user=1000)))
    assert result.valid
    assert ("finish_s" in result.metrics) is (ended_by == "work")
    if ended_by == "work":
        last_ns = max(engine["measure_end_ns"] for engine in engines)
        assert last_ns < record.phases["end"], "the engines close their connections meanwhile"
        assert result.metrics["finish_s"] == pytest.approx((last_ns - record.phases["go"]) / 1e9)
    assert codes(result) == (set() if ended_by == "work" else {"users_unfinished"})


def test_without_pinning_the_subjects_share_is_of_all_cpus_and_a_note_says_so(tmp_path: Path) -> None:
    directory, figures = TrialDir(tmp_path / "0001"), Figures()
    for pinning, cpus in (("auto", {}), ("off", {}), ("auto", {"subject": [0, 1], "engine": [1], "probe": [1]})):
        record = replace(record_of(spec(), figures), cpus=cpus)
        shared = experiment(host={"pinning": pinning})
        result = measure(directory, write_trial(directory, record, figures), shared)
        assert result.metrics["subject_cpu_share"] == pytest.approx(0.25)
        assert codes(result) == {"not_pinned"} and result.valid
        (advice,) = (problem.message.rpartition("; ")[2] for problem in result.problems)
        assert ("leave host.pinning on" in advice) is (pinning == "off")
        assert advice.endswith("keep some from the server (--cpus, host.cpus)")


@pytest.mark.parametrize("collected", [None, {"collecting_ns": 3e9, "busy_ns": 9e9, "cpu_ns": 1.5e9}])
def test_what_gos_collector_used_is_its_part_of_what_its_processes_used(
    collected: dict[str, float] | None, tmp_path: Path
) -> None:
    """The collector took a third of half a CPU. If the figures of one of two programs are missing, the share is
    unknown."""
    directory, figures = TrialDir(tmp_path / "0001"), Figures()
    whole = {"collecting_ns": 1e9, "busy_ns": 3e9, "cpu_ns": 1e9}
    record = record_of(spec(), figures)
    took_s = (record.phases["end"] - record.phases["go"]) / 1e9
    record = replace(record, go_collected={"7": {**whole, "cpu_ns": 0.5e9 * took_s - 1.5e9}, "8": collected})
    result = measure(directory, write_trial(directory, record, figures), experiment())
    assert result.metrics.get("gc_cpu_share") == (None if collected is None else pytest.approx(0.5 / 3, rel=0.02))


def test_a_fleet_is_added_up(tmp_path: Path) -> None:
    one, two = measured(tmp_path / "a", Figures()), measured(tmp_path / "b", Figures(engines=2))
    for name in ("goodput_per_s", "achieved_rate_per_s", "users_mean", "littles_law_deviation", "error_rate"):
        assert two.metrics[name] == pytest.approx(one.metrics[name], rel=1e-6, abs=1e-9)
    fleet = merge_fleet(record_of(spec(), Figures(engines=2)).engines)
    assert fleet is not None
    table = quantile_table(fleet.times("response_time_ns"))
    assert [q for q, _ in table] == sorted(q for q, _ in table) and table[-1][0] == 1.0
    assert [ns for _, ns in table] == sorted(ns for _, ns in table)


@pytest.mark.parametrize(
    ("figures", "code"),
    [
        (Figures(response_ns=9_000_000), "littles_law"),
        (Figures(thread_share=0.95, busy_cores=1.5), "generator_cpu"),
        (Figures(send_lag_ns=8_000_000), "generator_lag"),
        (Figures(stopped_ns=500_000_000), "engine_stopped"),
        (Figures(stopped_ns=500_000_000, response_ns=9_000_000), "engine_stopped"),  # not a defect of the engine
        (Figures(engine_wait=0.7), "generator_starved"),
        (Figures(engine_wait=0.3, users=1, response_ns=1_000_000), "generator_starved"),
        (Figures(steal_share=0.5), "host_steal"),
        (Figures(goodput_per_s=0, failed=10_000), "no_request_ok"),
        (Figures(goodput_per_s=0), "no_request_ended"),
        (
            Figures(summary={"total": {"scheduled": 9, "sent": 8, "dropped": 0, "outcomes": {"ok": 8}}}),
            "lost_work",
        ),
        (
            Figures(summary={"total": {"scheduled": 9, "sent": 9, "dropped": 0, "outcomes": {"ok": 8}}}),
            "lost_outcomes",
        ),
        (
            Figures(summary={"total": {"scheduled": 9, "sent": 9, "dropped": 0, "outcomes": {"no_ports": 9}}}),
            "generator_no_ports",
        ),
    ],
)
def test_each_fatal_problem_is_found_and_only_that_one(tmp_path: Path, figures: Figures, code: str) -> None:
    result = measured(tmp_path, figures)
    assert not result.valid
    assert {problem.code for problem in result.problems if problem.fatal} == {code}


@pytest.mark.parametrize(("outcome", "by_the_server"), [("closed_early", True), ("timeout", False)])
def test_a_generator_that_is_kept_busy_by_failed_requests_hides_no_errors(
    outcome: str, by_the_server: bool, tmp_path: Path
) -> None:
    """A server that closes connections at once is asked again at once: its errors are its own. A generator without a
    CPU may let requests time out."""
    counts = {"scheduled": 10_000, "sent": 10_000, "dropped": 0, "outcomes": {"ok": 9_000, outcome: 1_000}}
    figures = Figures(thread_share=0.95, busy_cores=1.5, summary={"cohort": counts})
    limit = Constraint(metric="error_rate", op="<", threshold=0.01, text="error_rate < 1%")
    result = measured(tmp_path, figures, objective=Objective(constraints=(limit,)))
    (found,) = (problem for problem in result.problems if problem.code == "generator_cpu")
    assert found.fatal is not by_the_server


@pytest.mark.parametrize(
    ("cpus", "engine", "threads", "host", "helps"),
    [
        (0, [3], 1, {}, True),  # a container's are not known
        (2, [1], 1, {}, False),
        (3, [2], 1, {}, False),
        (4, [3], 1, {}, True),
        (4, [2, 3], 2, {}, False),
        (4, [3], 1, {"cpus": 3}, False),
        (4, [2, 3], 1, {"cpus": 2}, True),
        (8, [6], 1, {"pinning": {"subject": "0-5", "engine": "6"}}, False),
        (2, [], 1, {"cpus": "all"}, True),
        (2, [], 2, {"cpus": "all"}, False),
    ],
)
def test_a_full_generator_is_advised_another_thread_only_if_it_has_a_cpu_for_it(
    cpus: int, engine: list[int], threads: int, host: dict[str, Any], tmp_path: Path, *, helps: bool
) -> None:
    directory = TrialDir(tmp_path / "0001")
    figures = Figures(thread_share=0.95, busy_cores=1.5, summary={"thread_cpu_ns": [9_500_000_000] * threads})
    machine = list(range(cpus))
    split = {"subject": machine[: engine[0]] if engine else [], "engine": engine, "machine": machine}
    record = write_trial(directory, replace(record_of(spec(), figures), cpus=split), figures)
    result = measure(directory, record, experiment(host=host))
    (found,) = (problem for problem in result.problems if problem.code == "generator_cpu")
    assert ("raise load.engine_threads" in found.message) is helps
    assert ("no CPU for another thread: leave it more (--cpus" in found.message) is not helps
    assert result.bottleneck is not None and found.message.endswith(f"; {result.bottleneck.advice}")


def on_each_cpu(directory: TrialDir, busy: tuple[float, float], interrupts: float | None) -> None:
    """Rewrites what the probe read of two CPUs, in CPUs. `interrupts`: None if the kernel does not count them apart."""
    lines = [json.loads(line) for line in directory.probe.read_text().splitlines()]
    for line in (line for line in lines if line["type"] == "sample"):
        host, passed = line["host"], line["at_ns"] - START_NS + SECOND
        host["cpu_busy_ns_each"] = [round(each * passed) for each in busy]
        host["cpu_busy_ns"], host["cpu_idle_ns"] = round(sum(busy) * passed), round((2 - sum(busy)) * passed)
        host |= {} if interrupts is None else {"cpu_interrupts_ns": round(interrupts * passed)}
    directory.probe.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize(
    ("used", "busy", "interrupts", "limit"),
    [
        (0.7, (0.6, 1.0), 0.4, "64 %, as"),
        (0.6, (0.6, 0.9), 0.4, ""),  # its CPU idles for a part of the time
        (0.7, (0.95, 0.75), 0.4, ""),  # they interrupt the server
        (0.7, (0.6, 0.75), None, ""),
        (0.95, (0.5, 0.97), None, "90 %)"),
    ],
)
def test_a_generator_is_full_with_what_interrupts_leave_of_its_cpu(
    tmp_path: Path, used: float, busy: tuple[float, float], interrupts: float | None, limit: str
) -> None:
    """They are not in the account of its thread."""
    directory, figures = TrialDir(tmp_path / "0001"), Figures(thread_share=used)
    record = write_trial(directory, record_of(spec(), figures), figures)
    on_each_cpu(directory, busy, interrupts)
    told = [each.message for each in measure(directory, record, experiment()).problems if each.code == "generator_cpu"]
    assert len(told) == bool(limit)
    assert all(f"(limit {limit}" in message for message in told)


@pytest.mark.parametrize(
    ("role", "cores", "foreign", "interrupts", "changes", "share"),
    [
        ("subject", 0.5, 0.0, 0.4, {}, 0.15),  # 0.09 of 0.6
        ("engine", 0.7, 0.0, 0.4, {}, 0.29),
        ("engine", 0.7, 0.1, 0.4, {}, 0.19),  # others may have run there
        ("engine", 0.7, 0.0, 0.2, {}, 0.2),  # there are no more
        ("engine", 0.7, 0.0, None, {}, 0.0),
        ("engine", 0.7, 0.0, 0.4, {"cpus": {}}, 0.25),  # of all CPUs
        ("engine", 0.7, None, 0.4, {}, 0.25),
        ("engine", 0.7, 0.0, 0.4, {"subject": {"here": False}}, 0.0),  # packets interrupt whom they like
    ],
)
def test_interrupts_of_a_roles_cpus_are_what_nobody_used_there(
    tmp_path: Path,
    *,
    role: str,
    cores: float,
    foreign: float | None,
    interrupts: float | None,
    changes: dict[str, Any],
    share: float,
) -> None:
    directory, figures = TrialDir(tmp_path / "0001"), Figures(thread_share=0.7)
    record = write_trial(directory, replace(record_of(spec(), figures), **changes), figures)
    on_each_cpu(directory, (0.6, 1.0), interrupts)
    fleet = merge_fleet(record.engines)
    assert fleet is not None
    evidence = evidence_of(directory, record, experiment(), fleet)
    assert evidence.interrupted_share(role, cores, foreign) == pytest.approx(share, abs=0.002)


@pytest.mark.parametrize(("stopped_ns", "engine_wait"), [(90_000_000, 0.0), (500_000_000, 0.04)])
def test_a_short_stop_and_a_wait_for_a_cpu_are_no_stopped_engine(
    stopped_ns: int, engine_wait: float, tmp_path: Path
) -> None:
    assert measured(tmp_path, Figures(stopped_ns=stopped_ns, engine_wait=engine_wait)).valid


def test_an_open_load_that_was_not_scheduled_in_full_is_the_generators_fault(tmp_path: Path) -> None:
    load = Load(rate=1100.0, duration=10_000_000_000)
    assert "generator_schedule" in codes(measured(tmp_path / "a", Figures(), load=load))
    load = Load(rate=1005.0, duration=10_000_000_000)
    assert measured(tmp_path / "b", Figures(), load=load).valid


@pytest.mark.parametrize(
    ("under_way", "response_ns", "dropped", "answer"),
    [
        (10_000, 2e6, 500, None),  # 20,250 may be under way: five steps, four pauses of 5 s
        (20_500, 2e6, 500, False),
        (10_000, 9e7, 500, False),  # what was sent misses the SLO, too
        (10_000, 2e6, 0, True),
    ],
)
def test_a_bound_below_what_the_slo_allows_under_way_is_the_generators_limit(
    under_way: int, response_ns: float, dropped: int, answer: bool | None, tmp_path: Path
) -> None:
    steps = [{"name": "GET /", "think": "5s"}] * 5
    made = capacity_experiment(load=Load.model_validate({"users": 64, "scenario": steps}))
    figures = Figures(goodput_per_s=4950.0, users=under_way, response_ns=response_ns, dropped=dropped)
    directory, asked = TrialDir(tmp_path / "0001"), replace(spec(), stage=Stage.CAPACITY, rate_per_s=1000.0)
    result = measure(directory, write_trial(directory, record_of(asked, figures), figures), made)
    assert holds(made, result) is answer
    said = [problem.message for problem in result.problems if problem.code == "generator_in_flight"]
    assert bool(said) is (answer is None)
    if said:
        assert "500 arrivals were dropped with at most 10,000 under way, though the SLO allows 20,250" in said[0]
        assert result.bottleneck is not None and result.bottleneck.name is BottleneckName.GENERATOR


def test_some_foreign_cpu_is_noted_but_not_fatal(tmp_path: Path) -> None:
    result = measured(tmp_path, Figures(busy_cores=0.92))
    assert codes(result) == {"host_foreign_some"} and result.valid


@pytest.mark.parametrize(("quota", "share"), [(None, 0.5), (0.8, 0.625), (4.0, 0.5)])
def test_a_quota_below_the_cpus_is_what_the_subject_may_use(tmp_path: Path, quota: float | None, share: float) -> None:
    directory, figures = TrialDir(tmp_path / "0001"), Figures(subject_cores=0.5)
    record = write_trial(directory, replace(record_of(spec(), figures), cpu_quota=quota), figures)
    assert measure(directory, record, experiment()).metrics["subject_cpu_share"] == pytest.approx(share, rel=0.01)


def tell_more(directory: TrialDir, more: Callable[[int], dict[str, Any]]) -> None:
    """Adds fields to the probe's samples of the subject; they may depend on the time since the window began, in ns."""
    lines = [json.loads(line) for line in directory.probe.read_text().splitlines()]
    for line in lines:
        if line["type"] == "sample":
            line["trees"][0] |= more(line["at_ns"] - START_NS)
    directory.probe.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize(
    ("pool", "on_cpu", "rising"),
    [
        (".NET Tiered Com", 0.3, True),
        ("JVMCI-native Co", 0.3, True),
        (".NET Tiered Com", 0.02, False),
        (".NET TP Worker", 0.3, False),
    ],
)
def test_a_server_whose_compiling_threads_still_work_is_rising(
    pool: str, on_cpu: float, rising: bool, tmp_path: Path
) -> None:
    """No JVM reports how long it compiled."""
    directory, figures = TrialDir(tmp_path / "0001"), Figures()
    record = write_trial(directory, record_of(spec(), figures), figures)
    lines = [json.loads(line) for line in directory.probe.read_text().splitlines()]
    for line in lines:
        if line["type"] == "threads":
            (worker,) = line["pools"]
            ran = round(on_cpu * (line["at_ns"] - START_NS + SECOND))
            line["pools"].append({**worker, "pool": pool, "threads_now": 1, "on_cpu_ns": ran, "run_wait_ns": 0})
    directory.probe.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert measure(directory, record, experiment()).rising is rising


@pytest.mark.parametrize(("counts", "rate"), [(None, 1000), ({"series": "n", "noun": "message"}, 975)])
def test_a_counter_of_the_server_grows_while_its_load_runs(
    counts: dict[str, str] | None, rate: float, tmp_path: Path
) -> None:
    """It is read each second, half a second off the edges of the window, with which a load ends: a program that drives
    itself goes on, and is not known to have rested."""
    directory, figures = TrialDir(tmp_path / "0001"), Figures()
    record = write_trial(directory, record_of(spec(), figures), figures)
    with directory.probe.open("a") as file:
        for at_ns in range(START_NS - SECOND // 2, START_NS + 11 * SECOND, SECOND):
            value = 1000 * min(at_ns - START_NS, 10 * SECOND) / SECOND
            line = {"type": "scrape", "at_ns": at_ns, "took_ns": 0, "values": {"n": value}}
            file.write(json.dumps(line) + "\n")
    subject = Subject.model_validate({"name": "s", "command": ["s", "{threads}"], "counts": counts})
    wanted = Measure.model_validate({"metrics": {"app_n": "rate(n)"}})
    metrics = measure(directory, record, experiment(subject=subject, measure=wanted)).metrics
    assert metrics["app_n"] == pytest.approx(rate)


@pytest.mark.parametrize(("pinned", "affinity", "share"), [((), 1, 0.5), ((), None, 0.25), ((0,), 2, 0.25)])
def test_the_cpus_on_which_the_kernel_lets_the_subject_run_are_what_it_may_use(
    tmp_path: Path, pinned: tuple[int, ...], affinity: int | None, share: float
) -> None:
    """A container with one CPU, or a server that runs already elsewhere than powerband may. Older engines tell
    nothing."""
    directory, figures = TrialDir(tmp_path / "0001"), Figures(subject_cores=0.5)
    cpus = {"subject": list(pinned), "engine": [], "probe": []}
    record = write_trial(directory, replace(record_of(spec(), figures), cpus=cpus), figures)
    if affinity is not None:
        tell_more(directory, lambda at_ns: {"cpus_now": affinity if at_ns > 5 * SECOND else 1})
    assert measure(directory, record, experiment()).metrics["subject_cpu_share"] == pytest.approx(share, rel=0.01)


def most_of_it(at_ns: int) -> int:
    return 2 if at_ns > 4 * SECOND else 1


def a_while(at_ns: int) -> int:
    return 2 if at_ns > 6 * SECOND else 1


@pytest.mark.parametrize(
    ("affinity", "begun_on", "pool", "noted"),
    [
        (most_of_it, [], "worker", 2),
        (a_while, [], "worker", 0),
        (lambda at_ns: 1, [], "worker", 0),
        (lambda at_ns: None, [], "worker", 0),
        (most_of_it, [], "iou-wrk", 0),
        (lambda at_ns: 1, [1], "worker", 1),
        (lambda at_ns: 1, [0, 1], "worker", 0),
        (lambda at_ns: 1, [1], "iou-wrk", 0),
    ],
)
def test_a_server_on_cpus_that_it_was_not_given_shares_those_of_the_load_generator(
    tmp_path: Path, affinity: Callable[[int], int | None], begun_on: list[int], pool: str, noted: int
) -> None:
    """A child of another affinity that lives for a while, or a thread that the kernel adds, is no such server."""
    directory, figures = TrialDir(tmp_path / "0001"), Figures()
    cpus = {"subject": [0], "engine": [1], "probe": [1], "machine": [0, 1]}
    made = record_of(spec(), figures)
    record = write_trial(directory, replace(made, cpus=cpus, subject=made.subject | {"own_cpus": begun_on}), figures)
    tell_more(directory, lambda at_ns: {"cpus_now": affinity(at_ns)})
    directory.probe.write_text(directory.probe.read_text().replace('"pool": "worker"', f'"pool": "{pool}"'))
    result = measure(directory, record, experiment())
    assert codes(result) == ({"own_affinity"} if noted else set()) and result.valid
    if pool == "iou-wrk":
        assert result.metrics["subject_cpu_share"] == pytest.approx(result.metrics["subject_cpu_cores"])
    assert result.cpus == (CpuUse(noted, 2, shared=True) if noted else CpuUse(1, 2, shared=False))


@pytest.mark.parametrize(
    ("given", "affinity", "command", "had"),
    [
        ([0, 1, 2], 2, "serve", CpuUse(2, 4, shared=False)),
        ([0, 1, 2], 3, "serve", CpuUse(3, 4, shared=False)),
        ([0, 1, 2], None, "serve", CpuUse(3, 4, shared=False)),
        ([], 2, "serve", CpuUse(2, 4, shared=True)),
        ([], 2, "docker", CpuUse(4, 4, shared=True)),
    ],
)
def test_a_server_that_keeps_to_some_of_its_cpus_has_no_more(
    given: list[int], affinity: int | None, command: str, had: CpuUse, tmp_path: Path
) -> None:
    """As by `numactl` or `taskset`. The CPUs of a container are not the choice of the command."""
    directory, figures = TrialDir(tmp_path / "0001"), Figures(cpus=4)
    cpus = {"subject": given, "engine": [3] if given else [], "probe": [], "machine": [0, 1, 2, 3]}
    record = write_trial(directory, replace(record_of(spec(), figures), cpus=cpus), figures)
    tell_more(directory, lambda at_ns: {"cpus_now": affinity})
    subject = {"name": "fake", "command": (command, "run", "--threads", "{threads}")}
    assert measure(directory, record, experiment(subject=subject)).cpus == had


@pytest.mark.parametrize(("command", "had"), [("serve", 1.5), ("docker", 4.0)])
def test_the_quota_of_powerband_takes_no_cpus_from_a_container(command: str, had: float, tmp_path: Path) -> None:
    directory, figures = TrialDir(tmp_path / "0001"), Figures(cpus=4)
    cpus: dict[str, list[int]] = {"subject": [], "engine": [], "probe": [], "machine": [0, 1, 2, 3]}
    record = write_trial(directory, replace(record_of(spec(), figures), cpus=cpus, cpu_quota=1.5), figures)
    subject = {"name": "fake", "command": (command, "run", "--threads", "{threads}")}
    assert measure(directory, record, experiment(subject=subject)).cpus == CpuUse(had, 4, shared=True)


@pytest.mark.parametrize(("own_quota", "named"), [(None, True), (2.0, False)])
def test_a_quota_of_the_whole_trial_is_used_up_by_load_engine_and_server(
    tmp_path: Path, own_quota: float | None, named: bool
) -> None:
    figures = Figures(subject_cores=1.2, thread_share=0.7, busy_cores=2.0, cpus=8)
    found = under_a_quota(tmp_path, figures, own_quota).bottleneck
    assert (found is not None and found.name is BottleneckName.CPU_QUOTA) is named


@pytest.mark.parametrize(("own_quota", "of_both"), [(None, True), (2.0, False)])
def test_a_generator_that_waits_for_a_quota_of_its_own_is_told_of_that(
    tmp_path: Path, own_quota: float | None, of_both: bool
) -> None:
    figures = Figures(subject_cores=1.2, thread_share=0.7, engine_wait=0.7, busy_cores=2.0, cpus=8)
    problems = under_a_quota(tmp_path, figures, own_quota).problems
    (told,) = [problem.message for problem in problems if problem.code == "generator_starved"]
    assert ("quota of 2 CPUs" in told) is ("--cpuset-cpus" in told) is of_both
    assert ("stop other programs" in told) is not of_both


def under_a_quota(tmp_path: Path, figures: Figures, own_quota: float | None) -> TrialResult:
    """A trial all of which is under a quota of two CPUs that stops it in most periods. `own_quota`: the server's, from
    the experiment."""
    directory = TrialDir(tmp_path / "0001")
    record = replace(record_of(spec(), figures), cpus={}, cpu_quota=2.0)
    write_trial(directory, record, figures)
    tell_more(
        directory,
        lambda at_ns: {
            "cpu_quota_now": 2.0,
            "quota_periods": (at_ns + SECOND) // 100_000_000,
            "throttled_periods": (at_ns + SECOND) * 95 // 10_000_000_000,
        },
    )
    return measure(directory, record, experiment(host={"cpu_quota": own_quota}))


def test_pressure_is_measured_and_noted(tmp_path: Path) -> None:
    calm = measured(tmp_path / "a", Figures(memory_pressure=0.005, io_pressure=0.05))
    assert calm.problems == ()
    shares = [calm.metrics[name] for name in ("psi_cpu_share", "psi_memory_share", "psi_io_share")]
    assert shares == pytest.approx([0.01, 0.005, 0.05])
    pressed = measured(tmp_path / "b", Figures(memory_pressure=0.03, io_pressure=0.2))
    assert codes(pressed) == {"memory_pressure", "io_pressure"} and pressed.valid
    assert pressed.problems[0].message.endswith("end other programs, or give the server less")


def test_a_server_that_its_memory_limit_presses_is_not_to_be_given_less(tmp_path: Path) -> None:
    pressed = measured(tmp_path, Figures(memory_pressure=0.12), host={"memory_limit": "128MiB"})
    assert codes(pressed) == {"memory_pressure"}
    assert "if the server fills its limit, raise host.memory_limit, or lower" in pressed.problems[0].message


@pytest.mark.parametrize(("kills", "those"), [(1, "a process"), (2, "2 processes")])
def test_a_limit_that_others_set_is_theirs_to_raise(tmp_path: Path, kills: int, those: str) -> None:
    directory, figures = TrialDir(tmp_path / "0001"), Figures(memory_pressure=0.12)
    record = write_trial(directory, replace(record_of(spec(), figures), memory_kills=kills), figures)
    tell_more(directory, lambda _: {"memory_left_bytes_now": 1 << 20})
    said = {problem.code: problem for problem in measure(directory, record, experiment()).problems}
    assert said.keys() == {"memory_pressure", "memory_kills"} and said["memory_kills"].fatal
    assert f"killed {those} in the server's cgroup" in said["memory_kills"].message
    assert "if the server fills its limit, raise its memory limit (docker's --memory" in said["memory_pressure"].message
    assert "host.memory_limit" not in "".join(problem.message for problem in said.values())


@pytest.mark.parametrize(
    ("bytes_each", "dropped", "said"),
    [(90, 0, None), (2048, 0, "MiB, 2,048 bytes per request: "), (2048, 3 << 30, "(subject.log lacks 3")],
)
def test_a_server_that_prints_much_is_noted(tmp_path: Path, bytes_each: int, dropped: int, said: str | None) -> None:
    directory, figures = TrialDir(tmp_path / "0001"), Figures()
    (summary,) = record_of(spec(), figures).engines
    printed = {"log_bytes": bytes_each * sum(summary["total"]["outcomes"].values()), "log_dropped_bytes": dropped}
    record = write_trial(directory, replace(record_of(spec(), figures), subject=printed), figures)
    found = [problem for problem in measure(directory, record, experiment()).problems if problem.code == "much_logged"]
    assert [said in problem.message for problem in found] == [True] * (said is not None)
    assert not any(problem.fatal for problem in found)


@pytest.mark.parametrize(("name", "serves"), [("worker", True), ("VM Thread", False), ("Signal Dispatch", False)])
def test_no_request_holds_a_thread_that_serves_none(tmp_path: Path, name: str, *, serves: bool) -> None:
    directory, figures = TrialDir(tmp_path / "0001"), Figures()
    record = write_trial(directory, record_of(spec(), figures), figures)
    directory.probe.write_text(directory.probe.read_text().replace('"worker"', f'"{name}"'))
    (threads,) = measure(directory, record, experiment()).pools
    assert threads.held_ns == (pytest.approx(600_000) if serves else None)


def test_processes_of_no_known_runtime_are_told_to_nobody(tmp_path: Path) -> None:
    directory, figures = TrialDir(tmp_path / "0001"), Figures()
    seen = {"processes": 1, "call": "", "cpus": 2, "source": "", "usable": 2.0}
    views = tuple({"runtime": each, **seen} for each in ("Go", ""))
    record = write_trial(directory, replace(record_of(spec(), figures), runtimes=views), figures)
    assert [view.runtime for view in measure(directory, record, experiment()).runtimes] == ["Go"]


def test_what_a_server_prints_in_looks_after_the_load_is_of_the_requests_of_these(tmp_path: Path) -> None:
    directory, figures = TrialDir(tmp_path / "0001"), Figures()
    (of_load,) = record_of(spec(), figures).engines
    requests = sum(of_load["total"]["outcomes"].values())
    looks = {"alone": [summary(figures)], "doubled": [summary(figures)], "outgoing": 0}
    printed = {"log_bytes": 3 * 90 * requests}
    record = replace(record_of(spec(), figures), subject=printed, slots=looks)
    assert "much_logged" not in codes(measure(directory, write_trial(directory, record, figures), experiment()))


@pytest.mark.parametrize(("killed", "took_s", "noted"), [(1, 5.1, True), (0, 5.1, False), (1, 0.2, False)])
def test_a_server_that_outlived_its_grace_is_noted(tmp_path: Path, killed: int, took_s: float, *, noted: bool) -> None:
    directory, figures = TrialDir(tmp_path / "0001"), Figures()
    made = record_of(spec(), figures)
    phases = {**made.phases, "stopped": made.phases["end"] + round(took_s * 1e9)}
    record = write_trial(directory, replace(made, subject={"killed": killed}, phases=phases), figures)
    assert ("killed_at_stop" in codes(measure(directory, record, experiment()))) is noted


@pytest.mark.parametrize(("first", "took_s"), [("launched", 14.0), ("applied", 44.0)])
def test_the_wait_for_a_server_that_runs_already_is_time_of_the_trial(
    tmp_path: Path, first: str, took_s: float
) -> None:
    directory, made = TrialDir(tmp_path / "0001"), failed_record(spec(), "not_ready")
    phases = {first: START_NS, "stopped": START_NS + 14 * SECOND}
    record = write_trial(directory, replace(made, monotonic_ns=START_NS - 30 * SECOND, phases=phases), None)
    assert measure(directory, record, experiment()).took_s == took_s


def test_foreign_cpu_may_be_allowed_and_is_then_still_noted(tmp_path: Path) -> None:
    refused = measured(tmp_path / "a", Figures(busy_cores=1.5), measure=Measure(repeats=3, foreign_cpu_max=0.1))
    (problem,) = refused.problems
    assert "does not count" in problem.message and "measure.foreign_cpu_max" in problem.message
    allowed = measured(tmp_path / "b", Figures(busy_cores=1.5), measure=Measure(repeats=3, foreign_cpu_max=0.5))
    assert codes(allowed) == {"host_foreign_some"} and allowed.valid
    strict = measured(tmp_path / "c", Figures(busy_cores=0.86), measure=Measure(repeats=3, foreign_cpu_max=0.01))
    assert codes(strict) == {"host_foreign"} and not strict.valid


def test_steal_may_be_allowed_and_is_then_still_noted(tmp_path: Path) -> None:
    limited = Measure(repeats=3, steal_max=0.02)
    (problem,) = measured(tmp_path / "a", Figures(steal_share=0.05), measure=limited).problems
    assert "(2 % allowed)" in problem.message and "measure.steal_max" in problem.message
    allowed = measured(tmp_path / "b", Figures(steal_share=0.05), measure=Measure(repeats=3, steal_max=0.1))
    assert codes(allowed) == {"host_steal_some"} and allowed.valid
    strict = measured(tmp_path / "c", Figures(steal_share=0.015), measure=Measure(repeats=3, steal_max=0.01))
    assert codes(strict) == {"host_steal"} and not strict.valid


def test_users_who_wait_all_through_the_window_are_told_of_and_upset_no_law(tmp_path: Path) -> None:
    """A pool of 8 threads, each bound to a connection, has 64 users: 56 are never served."""
    result = measured(tmp_path, Figures(users=64, starved=56, goodput_per_s=800))
    assert result.metrics["littles_law_deviation"] == pytest.approx(0, abs=1e-9)
    assert codes(result) == {"starved_users", "unanswered_percentiles"} and result.valid
    assert any("56 of 64 users" in problem.message for problem in result.problems)
    assert (result.metrics["users_unserved"], result.metrics["users_unserved_share"]) == (56, 56 / 64)
    assert result.metrics["error_rate"] == pytest.approx(56 / 64)
    assert result.metrics["response_time_ns_p50"] >= Figures().window_s * 1e9, (
        "half of the users waited all through the window"
    )


@pytest.mark.parametrize(("failed", "expected"), [(7, 0.5), (8000, 0.5), (24_000, 0.75)])
def test_users_who_get_only_errors_weigh_as_many_as_they_are_at_least(
    failed: int, expected: float, tmp_path: Path
) -> None:
    """5 of 10 users get errors only; 8,000 requests of the others are answered."""
    figures = Figures(users=10, refused=5, failed=failed, goodput_per_s=800, response_ns=3_125_000)
    metrics = measured(tmp_path, figures).metrics
    assert (metrics["users_unserved"], metrics["users_unserved_share"]) == (5, 0.5)
    assert metrics["error_rate"] == pytest.approx(expected, abs=0.001)
    assert metrics["response_time_ns_p99"] >= Figures().window_s * 1e9


@pytest.mark.parametrize(
    ("response_s", "last", "unserved"),
    [(6.0, {}, 0), (0.7, {}, 0), (0.3, {}, 8), (6.0, {"unfinished": 1}, 8), (6.0, {"timeout": 1}, 8)],
)
def test_users_of_a_slow_server_are_served_if_all_requests_are_answered_in_the_end(
    response_s: float, last: dict[str, int], unserved: int, tmp_path: Path
) -> None:
    """In 3 s of responses that take 6 s half of 16 users get none."""
    figures = Figures(users=16, starved=8, goodput_per_s=8 / 3, window_s=3, response_ns=round(response_s * SECOND))
    ended = {"ok": 8, **last}
    total = {"scheduled": sum(ended.values()), "sent": sum(ended.values()), "dropped": 0, "outcomes": ended}
    result = measured(tmp_path, replace(figures, summary={"total": total}))
    assert result.metrics["users_unserved"] == unserved and result.metrics["error_rate"] == unserved / 16
    (told,) = [problem for problem in result.problems if problem.code in ("short_window", "starved_users")]
    assert told.code == ("starved_users" if unserved else "short_window") and told.message.startswith("8 of 16 users")


def test_a_window_between_two_answers_of_all_users_is_too_short_and_no_fault_of_the_server(tmp_path: Path) -> None:
    figures = Figures(users=64, starved=64, goodput_per_s=0)
    answered = {"scheduled": 128, "sent": 128, "dropped": 0, "outcomes": {"ok": 128}}
    slow = measured(tmp_path / "slow", replace(figures, summary={"total": answered}))
    hung = measured(
        tmp_path / "hung", replace(figures, summary={"total": {**answered, "outcomes": {"unfinished": 128}}})
    )
    for result, code in ((slow, "short_window"), (hung, "no_request_ended")):
        assert not result.valid and [each.code for each in result.problems if each.fatal] == [code]
    assert not is_failed_start(slow) and is_failed_start(hung)


def test_a_window_in_which_no_request_was_due_is_not_the_servers_fault(tmp_path: Path) -> None:
    none = {"scheduled": 0, "sent": 0, "dropped": 0, "outcomes": {}}
    before = {"scheduled": 3, "sent": 3, "dropped": 0}
    for name, total, due in (
        ("idle", none, False),
        ("quick", {**before, "outcomes": {"ok": 3}}, False),
        ("hung", {**before, "outcomes": {"unfinished": 3}}, True),
    ):
        figures = Figures(goodput_per_s=0, window_s=2, summary={"cohort": none, "total": total})
        result = measured(tmp_path / name, figures, load={"rate": 0.5, "duration": "2s"})
        (fatal,) = [problem for problem in result.problems if problem.fatal]
        assert fatal.code == ("no_request_ended" if due else "short_window") and is_failed_start(result) is due
        assert ("no request was due" in fatal.message) is not due


def test_a_status_that_ends_all_requests_is_named(tmp_path: Path) -> None:
    """A quota that the warm-up used up."""
    counts = {"scheduled": 500, "sent": 500, "dropped": 0, "outcomes": {"status_rejected": 500}}
    window = {**summary(Figures())["window"], "outcomes": counts["outcomes"]}
    total = {"scheduled": 600, "sent": 600, "dropped": 0, "outcomes": {"ok": 100, "status_rejected": 500}}
    changed = {"cohort": counts, "window": window, "total": total, "rejected_statuses": {"429": 500}}
    (told,) = [each for each in measured(tmp_path, Figures(summary=changed)).problems if each.code == "no_request_ok"]
    assert told.message.startswith(
        "none of 500 requests succeeded (most: status 429: the server limits how many requests it takes); "
        "before the window 100 did"
    )


def test_users_whose_work_is_done_are_still_users(tmp_path: Path) -> None:
    """10 of 100 users get nothing for 10 s; the others have done their work after 2 s."""
    figures = Figures(users=100, starved=10, goodput_per_s=180)
    window = {**summary(figures)["window"], "user_ns": (90 * 2 + 10 * 10) * 10**9}
    load = Load(users=100, duration=10**10, requests_per_user=20)
    metrics = measured(tmp_path, replace(figures, summary={"window": window}), load=load).metrics
    assert metrics["users_mean"] == pytest.approx(28)
    assert metrics["users_unserved_share"] == pytest.approx(0.1) == metrics["error_rate"]


def test_a_percentile_below_the_clock_of_the_generator_is_absent(tmp_path: Path) -> None:
    times = histogram([0] * 80 + [1_000_000] * 20)
    told = {**summary(Figures())["cohort_times"], "response_time_ns": times, "service_time_ns": times}
    metrics = measured(tmp_path, Figures(summary={"cohort_times": told})).metrics
    for time in ("response_time_ns", "service_time_ns"):
        assert f"{time}_p50" not in metrics and metrics[f"{time}_p90"] == pytest.approx(1e6, rel=1e-3)


def test_of_a_generator_that_does_not_tell_nothing_is_said(tmp_path: Path) -> None:
    figures = Figures(users=64, starved=56, goodput_per_s=800)
    told = summary(figures)["window"]
    window = {key: value for key, value in told.items() if not key.startswith("users_unserved")}
    result = measured(tmp_path, replace(figures, summary={"window": window}))
    assert "users_unserved" not in result.metrics and result.metrics["error_rate"] == 0
    assert "starved_users" in codes(result)


def test_percentiles_are_ranked_over_all_users(tmp_path: Path) -> None:
    """4 of 100 users get nothing: the 95th of 100 parts is the time of a served user, the 99th is not."""
    fair = measured(tmp_path / "fair", Figures(users=100, goodput_per_s=800)).metrics
    unfair = measured(tmp_path / "unfair", Figures(users=100, starved=4, goodput_per_s=800)).metrics
    assert fair["users_unserved"] == 0 and fair["error_rate"] == 0
    assert unfair["error_rate"] == pytest.approx(0.04)
    window_ns = Figures().window_s * 1e9
    assert (
        unfair["response_time_ns_p95"] < window_ns <= unfair["response_time_ns_p99"] == unfair["response_time_ns_max"]
    )


@pytest.mark.parametrize(
    "figures",
    [
        Figures(engine_wait=0.15, users=1, response_ns=1_000_000),  # 75 us a turn, the cost of a wake-up
        Figures(engine_wait=0.5),  # 0.25 ms a turn with responses of 10 ms, and idle CPU
    ],
)
def test_wake_ups_and_waits_that_no_response_shows_are_no_lack_of_cpu(tmp_path: Path, figures: Figures) -> None:
    result = measured(tmp_path, figures)
    assert result.metrics["engine_run_wait_cores"] == pytest.approx(figures.engine_wait, rel=1e-3)
    assert result.valid and result.problems == ()


def test_a_failed_trial_is_data_with_its_reason(tmp_path: Path) -> None:
    directory = TrialDir(tmp_path / "0001")
    record = write_trial(directory, failed_record(spec()), None)
    result = measure(directory, record, experiment())
    assert (result.status, codes(result), dict(result.metrics)) == ("failed", {"not_ready"}, {})
    assert not result.valid


def test_without_a_probe_the_load_metrics_remain(tmp_path: Path) -> None:
    directory = TrialDir(tmp_path / "0001")
    record = write_trial(directory, record_of(spec(), Figures()), None)
    result = measure(directory, record, experiment())
    assert result.valid and codes(result) == {"no_probe"}
    assert "goodput_per_s" in result.metrics and "rss_bytes_max" not in result.metrics


def test_without_perf_the_switches_of_ended_threads_are_missing_and_the_trial_says_so(tmp_path: Path) -> None:
    directory = TrialDir(tmp_path / "0001")
    record = write_trial(directory, record_of(spec(), Figures()), Figures())
    exact = measure(directory, record, experiment())
    lines = directory.probe.read_text().replace('"context_switches"', '"ignored"')
    directory.probe.write_text(lines)
    partial = measure(directory, record, experiment())
    assert codes(exact) == set() and codes(partial) == {"switches_of_living_threads"} and partial.valid
    (problem,) = partial.problems
    assert [text for text in analyse(experiment(), [partial] * 2).warnings if "perf" in text] == [problem.message]


def test_a_probe_stream_cut_anywhere_never_crashes_the_measurement(tmp_path: Path) -> None:
    directory = TrialDir(tmp_path / "0001")
    record = write_trial(directory, record_of(spec(), Figures()), Figures())
    whole = directory.probe.read_text()
    for cut in range(0, len(whole), len(whole) // 40):
        directory.probe.write_text(whole[:cut])
        assert measure(directory, record, experiment()).metrics["goodput_per_s"] == pytest.approx(1000)


def timed(milliseconds: list[int], **figures: Any) -> Figures:
    """The figures of a trial with these response times; `figures`: further ones."""
    encoded = histogram([value * 1_000_000 for value in milliseconds])
    times = dict.fromkeys(("response_time_ns", "service_time_ns", "send_lag_ns"), encoded)
    return Figures(goodput_per_s=len(milliseconds) / 10, summary={"cohort_times": times}, **figures)


def test_requests_without_an_answer_rank_behind_all_others(tmp_path: Path) -> None:
    """0.9 % of the requests were dropped or failed, and 0.9 % took 10 s. 99.1 % of the answered ones were fast, but one
    request of 55 waited for ever or nearly so."""
    fast_and_slow = [10] * 9_820 + [10_000] * 90
    for name, lost in {"dropped": {"dropped": 90}, "failed": {"failed": 90}}.items():
        metrics = measured(tmp_path / name, timed(fast_and_slow, **lost)).metrics
        assert metrics["response_time_ns_p99"] >= 10e9
        assert metrics["response_time_ns_p95"] == pytest.approx(10e6, rel=0.01)
        assert metrics["service_time_ns_p99"] == pytest.approx(10e6, rel=0.01), "of those that were answered"


def test_an_invariant_is_not_met_by_a_percentile_that_is_only_a_lower_bound(tmp_path: Path) -> None:
    measure_it = Measure.model_validate({"invariants": ["p99 < 1min"]})
    result = measured(tmp_path, Figures(failed=1000), measure=measure_it)
    (broken,) = [problem for problem in result.problems if problem.code == "invariant"]
    assert "response_time_ns_p99 was at least 10.0 s" in broken.message


def test_a_percentile_that_too_many_never_had_is_at_least_the_window_and_says_so(tmp_path: Path) -> None:
    result = measured(tmp_path, timed([10] * 9_800, failed=200))
    assert result.metrics["response_time_ns_p99"] == 10e9
    assert result.metrics["response_time_ns_p95"] == pytest.approx(10e6, rel=0.01)
    (told,) = [problem.message for problem in result.problems if problem.code == "unanswered_percentiles"]
    assert told.startswith("2.0 % of the requests that were due got no correct response: percentiles from p99 on")


def test_a_maximum_beside_a_request_without_an_answer_is_at_least_the_window(tmp_path: Path) -> None:
    found = measured(tmp_path / "one", timed([10] * 9_999, failed=1)).metrics
    assert found["response_time_ns_max"] == 10e9 and is_lower_bound("response_time_ns_max", found)
    assert found["service_time_ns_max"] == pytest.approx(10e6, rel=0.01), "of those that were answered"
    assert found["response_time_ns_mean"] == pytest.approx(10e6, rel=0.01)
    assert not is_lower_bound("response_time_ns_mean", found)
    all_right = measured(tmp_path / "none", timed([10] * 9_999)).metrics
    assert all_right["response_time_ns_max"] == pytest.approx(10e6, rel=0.01)
    assert not is_lower_bound("response_time_ns_max", all_right)
    refused = measured(tmp_path / "refused", timed([10] * 4_000, failed=6_000)).metrics
    assert refused["response_time_ns_mean"] == pytest.approx(10e6, rel=0.01)
    assert is_lower_bound("response_time_ns_mean", refused)


def test_an_end_of_an_interval_that_falls_on_requests_without_an_answer_is_a_lower_bound(tmp_path: Path) -> None:
    """0.9 % of 10,000 requests have no answer. So the p99 is known, and the high end of its interval is not."""
    found = measured(tmp_path / "some", timed([10] * 9_910, failed=90)).metrics
    ends = [f"response_time_ns_{key}" for key in ("p95_high", "p99_low", "p99", "p99_high")]
    assert [is_lower_bound(end, found) for end in ends] == [False, False, False, True]
    assert found[ends[-1]] == 10e9 and as_judged(ends[-1], found) == float("inf")
    all_right = measured(tmp_path / "none", timed([10] * 10_000)).metrics
    assert not any(is_lower_bound(end, all_right) for end in ends)


def test_processes_that_a_server_adds_under_load_are_counted_to_the_end_of_the_window(tmp_path: Path) -> None:
    window_s = 10
    assert measured(tmp_path / "1", Figures(forks_per_s=2)).metrics["processes_added"] == 2 * (window_s + 1)
    assert "processes_added" not in measured(tmp_path / "2", Figures()).metrics


@pytest.mark.parametrize(("redirects", "said"), [(10_000, True), (5_000, False)])
def test_a_load_that_only_gets_redirects_says_so(redirects: int, said: bool, tmp_path: Path) -> None:
    result = measured(tmp_path, Figures(summary={"redirects": redirects}))
    told = [problem.message for problem in result.problems if problem.code == "redirects"]
    assert result.valid and bool(told) is said
    assert all("10,000 answers were redirects" in message for message in told)


@pytest.mark.parametrize(("limit", "said"), [("p999 < 50ms", True), ("p99 < 50ms", False)])
def test_a_p999_without_an_end_is_told_of_where_a_condition_is_about_it(limit: str, said: bool, tmp_path: Path) -> None:
    objective = {"metric": "goodput_per_s", "subject_to": [limit]}
    result = measured(tmp_path, timed([10] * 19_900, failed=100), objective=objective)
    told = [problem.message for problem in result.problems if problem.code == "unanswered_percentiles"]
    assert bool(told) is said and all("percentiles from p999 on" in message for message in told)


@pytest.mark.parametrize(("requests", "had"), [(9_999, "p99"), (999, "p95"), (199, "p90")])
def test_a_percentile_needs_ten_requests_beyond_it(requests: int, had: str, tmp_path: Path) -> None:
    found = measured(tmp_path, timed([10] * requests)).metrics
    order = ["p50", "p90", "p95", "p99", "p999"]
    left = [key for key in order if f"response_time_ns_{key}" in found]
    assert left == order[: order.index(had) + 1]
    assert [key for key in order if f"response_time_ns_{key}_low" in found] == left


@pytest.mark.parametrize(
    ("metric", "named"),
    [("p99", "a response time p99"), ("response_time_ns_p99_high", "an upper end of response time p99")],
)
def test_a_condition_on_too_few_requests_says_how_long_a_trial_would_do(
    metric: str, named: str, tmp_path: Path
) -> None:
    objective = {"metric": "goodput_per_s", "subject_to": [f"{metric} < 50ms"]}
    result = measured(tmp_path, timed([10] * 500), objective=objective)
    (told,) = [problem.message for problem in result.problems if problem.code == "few_requests"]
    assert f"only 500 requests were due in the window, and {named} needs 1,000" in told
    assert "a load.duration of 20 s (--duration 20s) would do" in told


def test_the_interval_of_a_percentile_holds_the_true_one(tmp_path: Path) -> None:
    """The times are exponential, in 60 trials of 2,000 requests. 95 % of the intervals contain the true percentile,
    less three standard errors."""
    dice, held = random.Random(1), Counter[str]()
    true_ns = {"p50": 70.3e6, "p90": 231.3e6, "p95": 300.6e6, "p99": 461.5e6}  # rounded, and one more
    for number in range(60):
        times = [round(dice.expovariate(1 / 100)) + 1 for _ in range(2_000)]
        found = measured(tmp_path / str(number), timed(times)).metrics
        for key, ns in true_ns.items():
            held[key] += found[f"response_time_ns_{key}_low"] <= ns <= found[f"response_time_ns_{key}_high"]
    assert min(held.values()) >= 60 * 0.95 - 3 * (60 * 0.95 * 0.05) ** 0.5


def node(engines: list[int], error_ns: int = 50_000, drift_ns: int = 0) -> dict[str, Any]:
    told = {"offset_ns": 10**15, "uncertainty_ns": error_ns, "after_offset_ns": 10**15 + drift_ns}
    return {
        "node": "b",
        "engines": engines,
        **told,
        "after_uncertainty_ns": error_ns,
        "run_wait_ns": 10**9,
        "turns": 100,
    }


def test_engines_on_other_nodes_share_no_cpus_with_the_server_and_their_own_wait_counts(tmp_path: Path) -> None:
    directory, figures = TrialDir(tmp_path / "0001"), Figures()
    record = replace(record_of(spec(), figures), cpus={"machine": [0, 1]}, generators=(node([0]),))
    result = measure(directory, write_trial(directory, record, figures), experiment())
    assert codes(result) == {"generator_starved"} and result.cpus is not None and not result.cpus.shared
    assert "keep server and load generator apart" not in result.problems[0].message
    assert result.generators[0].offset_ns == 10**15
    assert result.metrics["engine_run_wait_ns_mean"] == 10**7


def test_a_busy_node_that_loads_a_server_does_not_hide_behind_quiet_ones(tmp_path: Path) -> None:
    directory, figures = TrialDir(tmp_path / "0001"), Figures(engines=2)
    busy = node([0]) | {"turns": 500}
    quiet = node([1]) | {"node": "c", "run_wait_ns": 10**8, "turns": 20_000}
    record = replace(record_of(spec(), figures), generators=(quiet, busy))
    result = measure(directory, write_trial(directory, record, figures), experiment())
    assert result.metrics["engine_run_wait_ns_mean"] == pytest.approx(2e6), "53 us on average of both"
    assert result.metrics["engine_run_wait_cores"] == pytest.approx(0.2), "as if both waited a tenth of the time"
    (told,) = [problem.message for problem in result.problems if problem.code == "generator_starved"]
    assert told.startswith("load generator threads of b waited 2.00 ms for a CPU each time")


@pytest.mark.parametrize(
    ("clock", "found"),
    [
        ({}, set()),
        ({"error_ns": 12_000_000}, {"clock_unknown"}),
        ({"drift_ns": -12_000_000}, {"clock_unknown"}),
        ({"drift_ns": -9_000_000}, set()),
    ],
)
def test_a_clock_that_is_not_known_well_enough_makes_a_trial_invalid(
    tmp_path: Path, clock: dict[str, int], found: set[str]
) -> None:
    directory, figures = TrialDir(tmp_path / "0001"), Figures()
    record = replace(record_of(spec(), figures), generators=({**node([0], **clock), "run_wait_ns": None},))
    result = measure(directory, write_trial(directory, record, figures), experiment())
    assert codes(result) == found and result.valid == (not found)


def test_engines_that_began_apart_make_a_trial_invalid(tmp_path: Path) -> None:
    directory, figures = TrialDir(tmp_path / "0001"), Figures()
    record = record_of(spec(), figures)
    (engine,) = record.engines
    late = {**engine, "measure_start_ns": engine["measure_start_ns"] + 20_000_000}
    record = replace(record, engines=(engine, late), generators=(node([0, 1]),))
    result = measure(directory, write_trial(directory, record, figures), experiment())
    assert "engines_apart" in codes(result) and not result.valid
