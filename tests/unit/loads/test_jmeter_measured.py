"""A trial whose load was a JMeter plan: the CPU of its process, its threads as users, and the limits of its clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from fakes.trials import Figures, experiment, record_of, spec
from powerband.analyze.trial.honesty import MACHINE
from powerband.analyze.trial.measure import quantile_table
from powerband.loads import JMETER
from powerband.loads.jmeter.measured import (
    clock_problem,
    jmeter_metrics,
    jmeter_problems,
    threads_problem,
    with_jmeter,
)
from powerband.model.experiment import Objective
from powerband.model.load import Load
from powerband.model.results import Problem
from powerband.processes.histogram_encoding import encode
from powerband.readings.evidence import Evidence
from powerband.readings.fleet import MergedFleet, merge_fleet

MS = 1_000_000
SECOND = 1_000 * MS


def fleet(users: float = 4.0, present: float = 2.0, times: Counter[int] | None = None) -> MergedFleet:
    counts = {"scheduled": 100, "sent": 100, "dropped": 0, "outcomes": {"ok": 100}}
    text = encode(times if times is not None else Counter({10 * MS: 100}))
    window = {
        "outcomes": {"ok": 100}, "bytes_received": 0, "bytes_sent": 0, "unanswered": 0,
        "time_in_system_ns_sum": round(present * SECOND), "think_ns_sum": 0, "user_ns": round(users * SECOND),
        "carried_in_ns_sum": 0, "carried_out_ns_sum": 0,
    }  # fmt: skip
    none = dict.fromkeys(("failed_time_ns", "send_lag_ns", "dropped_wait_ns"), "")
    made = merge_fleet([{
        "type": "summary", "go_ns": 0, "measure_start_ns": 10 * SECOND, "measure_end_ns": 11 * SECOND,
        "end_ns": 12 * SECOND, "total": counts, "cohort": counts, "steps": [], "window": window,
        "cohort_times": {"response_time_ns": text, "service_time_ns": text, **none},
        "connections": {"opened": 0, "connect_time_ns": ""}, "cpu_user_ns": 0, "cpu_system_ns": 0, "thread_cpu_ns": [],
        "ended_by": "time",
    }])  # fmt: skip
    assert made is not None
    return made


def problems_of(of: MergedFleet, metrics: Mapping[str, float] = {}) -> tuple[Problem, ...]:
    """The problems of a plan's generator and of the machine, in a trial that was pinned, steady and quiet."""
    evidence = evidence_of(of)
    return tuple(problem for source in (JMETER.load, MACHINE) for problem in source.problems(evidence, metrics))


def evidence_of(of: MergedFleet, intervals: Any = ()) -> Evidence:
    plan = experiment(load=Load(jmeter="plan.jmx"))
    return Evidence(
        experiment=plan,
        record=record_of(spec(), Figures()),
        load=plan.load,
        fleet=of,
        response=of.times("response_time_ns"),
        probe=None,
        intervals=intervals,
        steady=True,
    )


def test_what_its_process_used_is_what_the_load_cost() -> None:
    made = with_jmeter(fleet(users=3.7, present=3.4), 0.5, 2.0)
    assert made.cpu_cores == pytest.approx(0.5)
    assert made.cpu_share_max == pytest.approx(0.25)
    assert made.threads == 4
    assert problems_of(made) == ()
    assert with_jmeter(fleet(), None, None).cpu_cores == 0


def test_a_jmeter_without_a_cpu_left_was_the_limit() -> None:
    (found,) = problems_of(with_jmeter(fleet(), 0.95, 1.0))
    assert (found.code, found.fatal) == ("generator_cpu", True)
    assert "JMeter used 95 % of the CPU time" in found.message


def test_one_that_waits_for_its_cpu_is_told_as_jmeter() -> None:
    made = with_jmeter(fleet(), 0.5, 1.0)
    waited = {"engine_run_wait_cores": 2.0, "engine_run_wait_ns_mean": 4.0 * MS}
    (found,) = problems_of(made, waited)
    assert found.code == "generator_starved"
    assert "JMeter threads waited 4.00 ms" in found.message and "fewer threads" in found.message


@pytest.mark.parametrize(
    ("users", "present", "cores", "threads"),
    [(4, 4, 1.0, 4), (500, 2.4, 0.6, 3), (500, 2.4, None, 2), (50, 0.1, 0.2, 1), (0, 0, None, 1)],
)
def test_threads_that_pause_wait_for_no_cpu(users: float, present: float, cores: float | None, threads: int) -> None:
    assert with_jmeter(fleet(users=users, present=present), cores, 2.0).threads == threads


@pytest.mark.parametrize(("waited", "found"), [(2.0, ["generator_starved"]), (0.1, [])])
def test_one_whose_threads_mostly_pause_may_wait_for_its_cpu_too(waited: float, found: list[str]) -> None:
    made = with_jmeter(fleet(users=500, present=2.4), 0.6, 1.0)
    problems = problems_of(made, {"engine_run_wait_cores": waited, "engine_run_wait_ns_mean": 4.0 * MS})
    assert [problem.code for problem in problems] == found


def test_users_and_who_is_within_a_request() -> None:
    made = fleet(users=4, present=2)
    assert jmeter_metrics(made) == {"users_mean": 4, "in_flight_mean": 2}
    assert jmeter_metrics(replace(made, users_mean=0.0)) == {}


@pytest.mark.parametrize(
    ("first", "last", "told"),
    [(12, 60, "14 threads in the first fifth of the measured window, and 58"), (60, 12, "58 threads"), (59, 60, ""),
     (4, 4, ""), (2, 1, ""), (100, 97, "")],
)  # fmt: skip
def test_threads_that_begin_or_end_within_the_window_are_told(first: int, last: int, told: str) -> None:
    made = fleet()
    times = [made.start_ns + at * 100 * MS for at in range(-2, 12)]
    users = [first, *(first + round((last - first) * at / 9) for at in range(10)), last, last]
    lines = [
        {"type": "interval", "start_ns": at, "end_ns": at + 100 * MS, "users_now": now}
        for at, now in zip(times, [0, *users], strict=True)
    ]
    found = list(threads_problem(evidence_of(made, lines)))
    assert [(problem.code, problem.fatal) for problem in found] == ([("not_all_joined", False)] if told else [])
    assert not told or told in found[0].message


@pytest.mark.parametrize(
    ("users", "present", "holds"), [(1, 1.2, True), (1, 2, False), (100, 101, True), (100, 104, False)]
)
def test_no_more_can_be_under_way_than_there_are_threads(users: float, present: float, holds: bool) -> None:
    made = fleet(users=users, present=present)
    found = list(jmeter_problems(made, jmeter_metrics(made), {}))
    assert [problem.code for problem in found] == ([] if holds else ["littles_law"])
    assert all(problem.fatal for problem in found)


def test_times_below_its_clock_are_no_times() -> None:
    made = fleet(times=Counter({0: 80, MS: 20}))
    (found,) = clock_problem(evidence_of(made), {})
    assert (found.code, found.fatal) == ("jmeter_clock", False)
    assert all(value > 0 for _, value in quantile_table(made.times("response_time_ns")))


@pytest.mark.parametrize(
    ("metric", "value_ms", "told"),
    [("response_time_ns_p99", 3, True), ("response_time_ns_p99", 40, False), ("response_time_ns_mean", 3, False),
     ("response_time_ns_p50", None, False)],
)  # fmt: skip
def test_an_objective_that_its_clock_cannot_tell_is_told(metric: str, value_ms: int | None, told: bool) -> None:
    evidence = evidence_of(fleet())
    objective = Objective(metric=metric, direction="minimise")
    evidence = replace(evidence, experiment=evidence.experiment.model_copy(update={"objective": objective}))
    metrics = {} if value_ms is None else {metric: float(value_ms * MS)}
    found = list(clock_problem(evidence, metrics))
    assert [(problem.code, problem.fatal) for problem in found] == ([("jmeter_clock", False)] if told else [])
    assert not told or "not told apart" in found[0].message


def test_transactions_that_stand_for_their_requests_are_noted() -> None:
    made = fleet()
    (found,) = jmeter_problems(made, {}, {"transactions_alone": 1200})
    assert found.code == "jmeter_transactions" and "1,200 samples" in found.message


def test_samples_that_sent_nothing_are_noted() -> None:
    made = fleet()
    (found,) = jmeter_problems(made, {}, {"sent_nothing": {"dbg": 1200, "jsr": 1}})
    assert not found.fatal and found.message.startswith("1,201 samples sent nothing")
    assert "(dbg, jsr)" in found.message
