from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fakes.edges import capacity_experiment
from fakes.measured import codes, measured, tell_more
from fakes.trials import SECOND, START_NS, Figures, experiment, failed_record, record_of, spec, summary, write_trial
from powerband.analyze.settings.capacity import holds
from powerband.analyze.settings.compare import analyse
from powerband.analyze.trial.measure import measure, quantile_table
from powerband.model.bottlenecks import BottleneckName
from powerband.model.experiment import Measure, Subject
from powerband.model.load import Load
from powerband.model.metrics import METRICS
from powerband.model.plan import Stage
from powerband.readings.fleet import merge_fleet
from powerband.store import TrialDir


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
