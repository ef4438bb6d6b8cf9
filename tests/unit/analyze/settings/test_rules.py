"""Rules of thumb on synthetic servers whose threads, CPU and waits are known exactly."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from fakes.trials import experiment
from powerband.analyze.settings.compare import analyse
from powerband.analyze.settings.rules_of_thumb import judge_rules
from powerband.analyze.stats.theory import erlang_c, machine_repairman_throughput
from powerband.model.constraint import Constraint
from powerband.model.experiment import Objective
from powerband.model.plan import Level, Setting, Stage
from powerband.model.results import (
    Analysis,
    Answer,
    AnswerKind,
    Capacity,
    CapacityPoint,
    Estimate,
    RuleVerdict,
    SettingResult,
    TrialResult,
    Verdict,
)

CORES = 2.0
CPU_S = 0.001
WAIT_S = 0.018
HELD_S = CPU_S + WAIT_S
LADDER = (4, 8, 16, 32, 64)


def served(threads: int, users: int, think_s: float = 0.0) -> dict[str, float]:
    """Figures of a pool of threads on two CPUs that holds each request for 19 ms, and reaches its asymptotic bounds."""
    rate = min(threads / HELD_S, CORES / CPU_S, users / (HELD_S + think_s))
    response_s = users / rate - think_s
    return figures(threads, rate, response_s) | {"users_mean": float(users)}


def figures(threads: int, rate: float, response_s: float) -> dict[str, float]:
    return {
        "goodput_per_s": rate,
        "achieved_rate_per_s": rate,
        "error_rate": 0.0,
        "response_time_ns_mean": response_s * 1e9,
        "response_time_ns_p50": response_s * 1e9,
        "response_time_ns_p99": response_s * 1e9,
        "service_time_ns_mean": response_s * 1e9,
        "subject_cpu_ns_per_request": CPU_S * 1e9,
        "subject_cpu_cores": rate * CPU_S,
        "subject_cpu_share": rate * CPU_S / CORES,
        "threads_max": threads + 3.0,
        "rss_bytes_max": 1e7 + 1e5 * threads,
    }


def results(
    table: Mapping[Setting, Mapping[str, float]], blocks: int = 5, noise: float = 0.002, **parts: Any
) -> list[TrialResult]:
    dice = random.Random(3)

    def numbered() -> Iterator[TrialResult]:
        number = 0
        for block in range(blocks):
            for setting, metrics in table.items():
                number += 1
                factor = math.exp(dice.gauss(0, noise))
                shown = {**metrics, "goodput_per_s": metrics["goodput_per_s"] * factor}
                yield TrialResult(number, block, 1, setting, "measured", (), shown, **parts)

    return list(numbered())


def pool(**levels: Level) -> Setting:
    return Setting(tuple(levels.items()))


def closed(users: int = 64, think_s: float = 0.0, levels: Sequence[int] = LADDER, **changes: Any) -> Analysis:
    made = experiment({"threads": tuple(levels)}, **changes)
    return analyse(made, results({pool(threads=n): served(n, users, think_s) for n in levels}))


def named(analysis: Analysis) -> dict[str, RuleVerdict]:
    return {rule.name: rule for rule in analysis.rules}


def test_goetz_counts_the_threads_that_fill_the_cpus() -> None:
    """The rule gives 2 cores x (1 + 18 ms / 1 ms) = 38, from trials in which requests queued for threads or for
    CPUs."""
    analysis = closed()
    rule = named(analysis)["Goetz"]
    assert rule.formula == "2 cores x (1 + 18.0 ms / 1.00 ms)"
    assert rule.proposal == pytest.approx(38)
    assert rule.setting == pool(threads=32)
    assert rule.cost is not None
    assert rule.cost.value == pytest.approx(32 / 38, rel=0.01)
    assert rule.cost.low is not None and rule.cost.high is not None and rule.cost.low < 32 / 38 < rule.cost.high


def test_time_in_the_run_queue_is_neither_wait_nor_work() -> None:
    """Even the fewest threads queue for CPUs here; the time in the run queue is subtracted."""
    crowded = {pool(threads=n): {**served(n, 256), "run_wait_cores": n - 2000 * HELD_S} for n in (64, 128, 256)}
    rule = named(analyse(experiment({"threads": (64, 128, 256)}), results(crowded)))["Goetz"]
    assert rule.proposal == pytest.approx(38, rel=0.01)
    assert (rule.setting, rule.cost) == (pool(threads=64), rule.cost)


def test_rules_by_cores_alone_and_what_they_cost() -> None:
    rules = named(closed())
    assert [(rules[name].formula, rules[name].proposal) for name in ("N + 1", "2 N", "2 N + 1")] == [
        ("2 cores + 1", 3.0),
        ("2 x 2 cores", 4.0),
        ("2 x 2 cores + 1", 5.0),
    ]
    for name in ("N + 1", "2 N", "2 N + 1"):
        cost = rules[name].cost
        assert rules[name].setting == pool(threads=4)
        assert cost is not None and cost.value == pytest.approx(4 / 38, rel=0.01)
    assert all(rule.source for rule in rules.values())


def test_where_the_answer_leads_the_cost_is_the_tables_effect() -> None:
    analysis = closed()
    assert analysis.answer.kind is AnswerKind.BEST
    row = next(row for row in analysis.settings if row.setting == pool(threads=4))
    assert named(analysis)["2 N"].cost == row.effect


def test_where_the_cheapest_answers_the_cost_is_paired_with_it() -> None:
    """64 and 128 threads are equal, and the cheaper is the answer, whichever measured highest."""
    analysis = closed(levels=(8, 16, 64, 128), users=256)
    assert analysis.answer.setting == pool(threads=64)
    cost = named(analysis)["Goetz"].cost
    assert named(analysis)["Goetz"].setting == pool(threads=64)
    assert cost is not None and (cost.value, cost.low, cost.high) == (1.0, 1.0, 1.0)
    little = named(closed(levels=(4, 64, 128), users=256))["2 N"].cost
    assert little is not None and little.low is not None and little.high is not None
    assert little.low < 4 / 38 < little.high


def test_a_proposal_far_from_all_that_was_tried_costs_nobody_knows_what() -> None:
    rule = named(closed(levels=(16, 32, 64)))["N + 1"]
    assert (rule.proposal, rule.setting, rule.cost, rule.refused) == (3.0, None, None, None)


def test_a_closed_load_without_pauses_wants_a_thread_for_nearly_each_user() -> None:
    rule = named(closed(users=64))["M/M/c"]
    assert rule.proposal == math.ceil(0.97 * 64)
    assert rule.formula == "64 users, 19.0 ms each: within 3 % of what 64 threads serve"
    narrow = experiment({"threads": LADDER}, objective=Objective(margin=0.004))
    made = analyse(narrow, results({pool(threads=n): served(n, 64) for n in LADDER}))
    assert "within 0.4 % of" in named(made)["M/M/c"].formula


def test_a_closed_load_with_pauses_is_the_machine_repairman() -> None:
    rule = named(closed(users=64, think_s=0.1))["M/M/c"]
    assert rule.proposal is not None
    servers = int(rule.proposal)
    best = machine_repairman_throughput(64, HELD_S, 0.1, 64)
    assert machine_repairman_throughput(64, HELD_S, 0.1, servers) >= 0.97 * best
    assert machine_repairman_throughput(64, HELD_S, 0.1, servers - 1) < 0.97 * best
    assert "then 100 ms of pause" in rule.formula


def opened(rate: float, overrides: Mapping[str, float] | None = None, **changes: Any) -> Analysis:
    parts: dict[str, Any] = {"load": {"rate": rate, "duration": "10s"}, **changes}
    made = experiment({"threads": LADDER}, **parts)
    table = {}
    for threads in LADDER:
        capacity = threads / HELD_S
        response_s = HELD_S if capacity > 1.3 * rate else 2.0
        table[pool(threads=threads)] = figures(threads, min(rate, capacity), response_s) | (overrides or {})
    return analyse(made, results(table))


def test_an_open_load_is_erlangs_formula() -> None:
    rule = named(opened(500.0))["M/M/c"]
    busy = 500 * HELD_S
    assert rule.proposal is not None
    assert erlang_c(int(rule.proposal), busy) <= 0.10 < erlang_c(int(rule.proposal) - 1, busy)
    assert rule.formula == "500/s x 19.0 ms: 9.50 busy, 10 % wait at most"


def test_each_arrival_sends_the_requests_of_all_steps() -> None:
    steps = [{"name": name, "path": f"/{name}"} for name in ("a", "b", "c")]
    rule = named(opened(100.0, load={"rate": 100.0, "duration": "10s", "scenario": steps}))["M/M/c"]
    assert rule.proposal is not None and rule.proposal > 300 * HELD_S
    assert rule.formula.startswith("300/s x 19.0 ms: 5.70 busy")


@pytest.mark.parametrize(("limit", "left_s", "share"), [("p99 < 50ms", 0.031, 0.01), ("p50 < 19500us", 0.0005, 0.5)])
def test_an_slo_is_met_by_as_few_threads_as_the_wait_allows(limit: str, left_s: float, share: float) -> None:
    rule = named(_with(limit))["M/M/c"]
    busy = 500 * HELD_S
    assert rule.proposal is not None

    def late(servers: int) -> float:
        return erlang_c(servers, busy) * math.exp(-(servers - busy) * left_s / HELD_S)

    assert late(int(rule.proposal)) <= share < late(int(rule.proposal) - 1)
    assert rule.formula.endswith(limit)


def _with(limit: str, **figure: float) -> Analysis:
    return opened(500.0, figure, objective=Objective(subject_to=(Constraint.model_validate(limit),)))


def test_an_slo_below_what_a_request_takes_is_met_by_no_number_of_threads() -> None:
    rule = named(_with("p99 < 15ms", response_time_ns_p99=10e6))["M/M/c"]
    assert rule.proposal is None
    assert rule.refused == "a request alone takes 19.0 ms: no number of threads meets that"


def test_the_law_of_scalability_proposes_its_peak_or_says_why_not() -> None:
    def rate(n: int) -> float:
        return 50 * n / (1 + 0.02 * (n - 1) + 0.002 * n * (n - 1))

    levels = (2, 4, 8, 16, 32, 64)
    table = {pool(threads=n): {**served(n, 64), "goodput_per_s": rate(n)} for n in levels}
    rule = named(analyse(experiment({"threads": levels}), results(table)))["USL"]
    assert rule.proposal == pytest.approx(math.sqrt(0.98 / 0.002), rel=0.05)
    assert rule.formula.startswith("g = 50") and " to " in rule.formula
    assert rule.setting in (pool(threads=16), pool(threads=32))
    refused = named(analyse(experiment({"threads": levels[:4]}), results(dict(list(table.items())[:4]))))["USL"]
    assert refused.proposal is None and refused.setting is None and "a throughput that falls" in (refused.refused or "")
    assert "open load" in (named(opened(500.0))["USL"].refused or "")


def test_other_factors_are_held_at_the_answers_level() -> None:
    made = experiment({"threads": LADDER, "queue": (10, 100)})
    table = {
        pool(threads=n, queue=q): {**served(n, 64), "goodput_per_s": served(n, 64)["goodput_per_s"] * (1 + q / 1000)}
        for n in LADDER
        for q in (10, 100)
    }
    rules = analyse(made, results(table)).rules
    assert {rule.setting.as_dict()["queue"] for rule in rules if rule.setting} == {100}
    assert {rule.name for rule in rules if rule.cost} >= {"Goetz", "2 N"}


@pytest.mark.parametrize(
    ("factors", "threads"),
    [
        ({"queue": (1, 10, 100)}, lambda level: 8.0),  # the number of threads stays
        ({"fast": (True, False)}, lambda level: 8.0 + level),
        ({"load.users": (1, 10, 100)}, float),
        ({"mode": ("a", "b")}, lambda level: 8.0),
    ],
)
def test_no_factor_that_counts_threads_no_rules(factors: dict[str, tuple[Level, ...]], threads: Any) -> None:
    ((name, levels),) = factors.items()
    table = {Setting(((name, level),)): {**served(8, 64), "threads_max": threads(level)} for level in levels}
    assert analyse(experiment(factors), results(table)).rules == ()


def test_a_pool_that_stops_growing_with_demand_still_counts_threads() -> None:
    levels = (8, 16, 32, 64, 128, 256)
    table = {pool(threads=n): {**served(n, 64), "threads_max": min(n, 64) + 3.0} for n in levels}
    assert named(analyse(experiment({"threads": levels}), results(table)))["Goetz"].proposal == pytest.approx(38)


def test_without_figures_of_the_subject_each_rule_says_what_it_lacks() -> None:
    bare = {
        pool(threads=n): {
            name: value for name, value in served(n, 64).items() if not name.startswith(("subject_cpu", "service"))
        }
        for n in LADDER
    }
    rules = named(analyse(experiment({"threads": LADDER}), results(bare)))
    for name in ("Goetz", "N + 1", "2 N", "2 N + 1", "M/M/c"):
        assert rules[name].proposal is None and "not measured" in (rules[name].refused or "")


def test_trials_of_other_stages_and_nothing_measured_give_no_rules() -> None:
    made = experiment({"threads": LADDER})
    table = {pool(threads=n): served(n, 64) for n in LADDER}
    assert analyse(made, []).rules == ()
    assert analyse(made, results(table, stage=Stage.EXPLORE)).rules == ()


def test_under_a_capacity_objective_rules_rest_on_full_load_and_the_rate_found() -> None:
    """W and C come from the trials at full load; the arrival rate of M/M/c and the cost come from the capacities."""
    limit = Constraint.model_validate("p99 < 50ms")
    made = experiment({"threads": LADDER}, objective=Objective(metric="capacity_per_s", subject_to=(limit,)))
    full = results({pool(threads=n): served(n, 64) for n in LADDER}, blocks=1, stage=Stage.SATURATE)

    def row(threads: int, held: int = 20) -> SettingResult:
        rate = 0.9 * served(threads, 64)["goodput_per_s"]
        found = Estimate(rate, 0.97 * rate, 1.03 * rate, 0.95, 20)
        best = 0.9 * served(64, 64)["goodput_per_s"]
        effect = Estimate(rate / best, 0.97 * rate / best, 1.03 * rate / best, 0.95, 20)
        verdict = Verdict.EQUIVALENT if threads == 64 else Verdict.WORSE
        capacity = Capacity(found, (CapacityPoint(rate, 20, held, None, None, None, None),))
        return SettingResult(pool(threads=threads), 20, 0, {}, effect, verdict, True, capacity=capacity)

    best = pool(threads=64)
    answer = Answer(AnswerKind.BEST, best, best, (best,), (), ())
    rules = {rule.name: rule for rule in judge_rules(made, [row(n) for n in LADDER], full, answer)}
    assert rules["Goetz"].proposal == pytest.approx(38)
    assert rules["Goetz"].cost == row(32).effect
    assert rules["M/M/c"].formula.startswith("1,800/s x 19.0 ms: 34.2 busy")
    assert rules["M/M/c"].proposal is not None and 35 <= rules["M/M/c"].proposal <= 45
    assert rules["USL"].proposal is None and "only once at full load" in (rules["USL"].refused or "")
    guessed = [row(n, held=0 if n == 32 else 20) for n in LADDER]
    costs = {rule.name: rule.cost for rule in judge_rules(made, guessed, full, answer)}
    assert costs["Goetz"] is None and costs["2 N"] == row(4).effect, "the capacity of threads=32 is a guess"
