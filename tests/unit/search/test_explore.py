"""The exploration of a large space: which settings are tried, what is learnt from them, and which of them race."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fakes.trials import experiment
from powerband.analyze.trial.faults import with_first_start
from powerband.model.experiment import Experiment
from powerband.model.plan import Level, Setting, Stage, TrialSpec
from powerband.model.results import NODE_LOST, Problem, TrialResult
from powerband.search.explore import Explorer, finalists, violation

Levels = dict[str, Level]


def large(**changes: Any) -> Experiment:
    """An experiment with 8 x 8 x 4 = 256 settings."""
    factors: dict[str, tuple[Level, ...]] = {
        "threads": tuple(2**power for power in range(8)),
        "queue": tuple(10 * 3**power for power in range(8)),
        "policy": ("abort", "caller", "discard", "block"),
    }
    return experiment(factors, **{"design": {"order": "race", "seed": 7}, **changes})


def goodput(setting: Setting) -> float:
    """The rate of a setting. The best has 1,000/s, with 32 threads, a queue of 270 and `discard`."""
    levels = setting.as_dict()
    threads, queue = math.log2(float(levels["threads"])) - 5, math.log(float(levels["queue"]) / 10, 3) - 3
    words = {"abort": 0.1, "caller": 0.2, "discard": 0.0, "block": 0.3}
    return 1000 * math.exp(-0.1 * abs(threads) ** 1.5 - 0.08 * abs(queue) - words[str(levels["policy"])])


def told(spec: TrialSpec, metrics: dict[str, float], code: str = "", status: str = "measured") -> TrialResult:
    problems = (Problem(code, f"because of {code}"),) if code else ()
    return TrialResult(
        spec.number, spec.block, spec.attempt, spec.setting, status, problems, metrics, stage=spec.stage, took_s=10.0
    )


def explore(
    explorer: Explorer, answer: Callable[[TrialSpec], TrialResult] | None = None
) -> tuple[list[TrialSpec], list[TrialResult]]:
    dice = random.Random(3)
    specs, results = [], []
    while (spec := explorer.ask()) is not None:
        noise = math.exp(dice.gauss(0, 0.02))
        result = answer(spec) if answer else told(spec, {"goodput_per_s": goodput(spec.setting) * noise})
        explorer.tell(result)
        specs.append(spec)
        results.append(result)
    return specs, results


def test_each_trial_is_one_setting_and_none_comes_twice() -> None:
    explorer = Explorer(large(), 7)
    specs, _ = explore(explorer)
    assert len(specs) == 60 == explorer.tried and explorer.to_come == 0
    assert len({spec.setting for spec in specs}) == 60
    assert {spec.stage for spec in specs} == {Stage.EXPLORE}
    assert [(spec.number, spec.block, spec.attempt) for spec in specs] == [(n + 1, n, 1) for n in range(60)]
    assert len({spec.seed for spec in specs}) == 1, "all meet the same arrivals"


def test_the_best_of_256_settings_is_among_the_finalists_of_60_trials() -> None:
    made = large()
    best = max(made.settings(), key=goodput)
    found = [best in explored_finalists(made, seed) for seed in range(10)]
    assert sum(found) >= 9


def explored_finalists(made: Experiment, seed: int) -> list[Setting]:
    explorer = Explorer(made, seed)
    explore(explorer)
    return explorer.finalists()


def test_a_space_that_is_hardly_larger_than_the_trials_is_seen_whole() -> None:
    made = experiment({"threads": tuple(range(1, 53))}, design={"order": "race", "seed": 1, "explore_trials": 80})
    specs, _ = explore(Explorer(made, 1), lambda spec: told(spec, {"goodput_per_s": 5.0}))
    assert {spec.setting for spec in specs} == set(made.settings()) and len(specs) == 52


def test_seed_and_results_decide_what_is_tried_and_the_first_ones_the_seed_alone() -> None:
    first, _ = explore(Explorer(large(), 7))
    again, _ = explore(Explorer(large(), 7))
    other_seed, _ = explore(Explorer(large(), 8))
    other_results, _ = explore(Explorer(large(), 7), lambda spec: told(spec, {"goodput_per_s": float(spec.number)}))
    nothing_learnt, _ = explore(Explorer(large(), 7), lambda spec: told(spec, {}))
    blind = Explorer(large(), 7).blind_trials()
    assert first == again
    assert first not in (other_seed, other_results)
    count = len(blind)
    assert blind == first[:count] == other_results[:count] == nothing_learnt[:count] and count >= 10


def test_levels_are_numbers_in_their_order_or_names() -> None:
    mixed = experiment(
        {"threads": (64, 1, 8), "gc": (True, False), "mode": ("a", "b", "3"), "label.x": (1, "1.0")},
        design={"order": "race", "seed": 1, "explore_above": 10, "explore_trials": 36},
    )
    explorer = Explorer(mixed, 1)
    assert explorer._space._ordered == {"threads": True, "gc": False, "mode": False, "label.x": False}
    specs, _ = explore(explorer, lambda spec: told(spec, {"goodput_per_s": 1.0}))
    assert {spec.setting for spec in specs} == set(mixed.settings())


def test_what_misses_a_constraint_comes_after_what_meets_it() -> None:
    made = large(
        objective={"constraints": ["p99 < 50ms"]},
        design={"order": "race", "seed": 7, "finalists": 5},
    )

    def answer(spec: TrialSpec) -> TrialResult:
        """Answers a trial; the fastest settings break the constraint on p99."""
        p99 = 20e6 if spec.setting.as_dict()["policy"] == "block" else 60e6
        return told(spec, {"goodput_per_s": goodput(spec.setting), "response_time_ns_p99": p99})

    explorer = Explorer(made, 7)
    specs, results = explore(explorer, answer)
    chosen = explorer.finalists()
    assert {setting.as_dict()["policy"] for setting in chosen} == {"block"}
    assert max(map(goodput, chosen)) > 0.6 * 1000
    allowed = [spec for spec in specs if spec.setting.as_dict()["policy"] == "block"]
    assert len(allowed) > 60 / 4 * 1.4, "it looks where the constraint is met"
    assert sorted({violation(made, result) for result in results}) == [0.0, pytest.approx(0.2)]


def test_where_nothing_meets_the_constraints_the_nearest_go_on() -> None:
    made = large(objective={"constraints": ["p99 < 50ms"]}, design={"order": "race", "seed": 7, "finalists": 3})
    results = [
        told(
            TrialSpec(n, n, 1, setting, 1, Stage.EXPLORE),
            {"goodput_per_s": 1000.0 - n, "response_time_ns_p99": 60e6 + 1e6 * n},
        )
        for n, setting in enumerate(made.settings()[:10], 1)
    ]
    assert finalists(made, list(reversed(results))) == made.settings()[:3]


def test_settings_that_leave_users_unserved_come_after_those_that_serve_all() -> None:
    """Those with the highest goodput leave nine of ten users without an answer, and no condition is set."""
    made = large(design={"order": "race", "seed": 7, "finalists": 3})
    results = [
        told(
            TrialSpec(n, n, 1, setting, 1, Stage.EXPLORE),
            {"goodput_per_s": 1000.0 - n, "users_unserved_share": 0.9 if n <= 5 else 0.0},
        )
        for n, setting in enumerate(made.settings()[:10], 1)
    ]
    assert finalists(made, results) == made.settings()[5:8]


def test_least_is_best_where_that_is_asked_for() -> None:
    made = large(objective={"metric": "p99", "direction": "minimise"})
    explorer = Explorer(made, 7)
    explore(explorer, lambda spec: told(spec, {"response_time_ns_p99": 1e9 / goodput(spec.setting)}))
    assert max(made.settings(), key=goodput) in explorer.finalists()


def test_a_disturbed_trial_is_repeated_at_once_and_within_its_limits() -> None:
    made = large(measure={"retries": 2, "retry_budget": 0.05})  # 3 retries in all

    def answer(spec: TrialSpec) -> TrialResult:
        return told(spec, {}, "host_steal") if spec.block < 2 else told(spec, {"goodput_per_s": 1.0})

    explorer = Explorer(made, 7)
    specs, _ = explore(explorer, answer)
    assert [(spec.block, spec.attempt) for spec in specs[:5]] == [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2)]
    assert len({spec.setting for spec in specs[:3]}) == 1
    assert len(specs) == 63
    assert not {specs[0].setting, specs[3].setting} & set(explorer.finalists())


def test_a_setting_that_fails_is_not_repeated_and_is_learnt_from() -> None:
    def answer(spec: TrialSpec) -> TrialResult:
        if float(spec.setting.as_dict()["threads"]) > 16:
            return told(spec, {}, "died", "failed")
        return told(spec, {"goodput_per_s": goodput(spec.setting)})

    explorer = Explorer(large(), 7)
    specs, results = explore(explorer, answer)
    assert len(specs) == 60 and all(spec.attempt == 1 for spec in specs)
    late = [result for result in results[20:] if not result.valid]
    assert len(late) < 40 * 3 / 8 * 0.7, "it keeps away from where they die"
    assert all(float(setting.as_dict()["threads"]) <= 16 for setting in explorer.finalists())


def test_a_setting_that_outruns_the_load_engine_is_not_repeated_and_races() -> None:
    """The best settings leave the load engine no CPU: their trials count for nothing but this."""

    def answer(spec: TrialSpec) -> TrialResult:
        rate = goodput(spec.setting)
        return told(spec, {"goodput_per_s": min(rate, 880.0)}, "generator_cpu" if rate > 880 else "")

    explorer = Explorer(large(), 7)
    specs, results = explore(explorer, answer)
    assert len(specs) == 60, "no retries"
    limited = {result.setting for result in results if not result.valid}
    assert limited and limited <= set(explorer.finalists())


def test_a_first_start_that_was_never_ready_is_repeated_at_once() -> None:
    explorer = Explorer(large(), 7)
    ran = list[TrialResult]()

    def answer(spec: TrialSpec) -> TrialResult:
        if spec.number in (1, 3):
            ran.append(with_first_start(told(spec, {}, "not_ready", "failed"), ran))
        else:
            ran.append(told(spec, {"goodput_per_s": goodput(spec.setting)}))
        return ran[-1]

    explore(explorer, answer)
    assert [(each.block, each.attempt) for each in ran[:4]] == [(0, 1), (0, 2), (1, 1), (2, 1)]


def test_an_interrupted_trial_is_repeated_and_costs_nothing() -> None:
    explorer = Explorer(large(), 7)
    seen = []

    def answer(spec: TrialSpec) -> TrialResult:
        seen.append(spec)
        return told(spec, {}, status="interrupted") if len(seen) == 5 else told(spec, {"goodput_per_s": 1.0})

    specs, _ = explore(explorer, answer)
    assert (specs[4].setting, specs[4].attempt) == (specs[5].setting, specs[5].attempt)
    assert len(specs) == 61 and explorer.tried == 60


def test_half_of_the_budget_is_left_to_the_race() -> None:
    made = large(design={"order": "race", "seed": 7, "budget": "400s"})
    specs, _ = explore(explorer := Explorer(made, 7))
    assert len(specs) == 20 and explorer.wall_s == 200.0
    assert explorer.to_come == 0
    assert len(explorer.finalists()) == 7, "two blocks of them and six trials to confirm fit into the other half"


def test_with_nothing_measured_nobody_goes_on() -> None:
    explorer = Explorer(large(), 7)
    explore(explorer, lambda spec: told(spec, {}, "not_ready", "failed"))
    assert explorer.finalists() == []


def on_nodes(
    explorer: Explorer, speeds: dict[str, float], outcome: Callable[[str, TrialSpec], str] = lambda node, spec: ""
) -> list[tuple[str, TrialSpec]]:
    """Explores on nodes of these speeds, which end their trials in turn. `outcome`: the code of a problem of a trial;
    empty if there is none. Returns each trial with its node."""
    ran, busy = list[tuple[str, TrialSpec]](), list[tuple[str, TrialSpec]]()
    idle = list(speeds)
    while True:
        while idle and (spec := explorer.ask()) is not None:
            busy.append((idle.pop(0), spec))
        if not busy:
            return ran
        node, spec = busy.pop(0)
        ran.append((node, spec))
        code = outcome(node, spec)
        metrics = {} if code else {"goodput_per_s": goodput(spec.setting) * speeds[node]}
        status = {"": "measured", "host_steal": "measured", NODE_LOST: "interrupted"}.get(code, "failed")
        explorer.tell(replace(told(spec, metrics, code, status), node=node))
        if code != NODE_LOST and (following := explorer.ask(spec.block)) is not None:
            busy.append((node, following))
        else:
            idle.append(node)


def test_each_node_measures_the_first_setting_too_so_that_their_speeds_cancel() -> None:
    explorer = Explorer(large(), 7, nodes=3)
    ran = on_nodes(explorer, {"a": 1.0, "b": 0.5, "c": 2.0})
    common = ran[0][1].setting
    assert [(node, spec.number) for node, spec in ran if spec.setting == common] == [("a", 1), ("b", 5), ("c", 6)]
    assert [spec.block for _, spec in ran[3:6]] == [3, 1, 2], "the node goes on with its own block"
    assert len(ran) == 62 and explorer.tried == 60 and explorer.to_come == 0
    check_best_of(explorer, {spec.setting for _, spec in ran})


def check_best_of(explorer: Explorer, measured: set[Setting]) -> None:
    """Checks that the finalists are the best of these settings; some serve alike."""
    chosen = sorted(map(goodput, explorer.finalists()))
    assert chosen == sorted(map(goodput, measured))[-len(chosen) :] and len(chosen) == 12


def test_a_node_that_comes_later_measures_the_common_setting_too() -> None:
    """The run began on one node and was gone on with on another."""
    explorer = Explorer(large(), 7)
    specs = list[TrialSpec]()
    for node, trials in (("a", 10), ("b", 3)):
        for _ in range(trials):
            spec = explorer.ask()
            assert spec is not None
            specs.append(spec)
            explorer.tell(replace(told(spec, {"goodput_per_s": goodput(spec.setting)}), node=node))
    assert [spec.block for spec in specs] == [*range(10), 10, 10, 11]
    assert [spec.number for spec in specs if spec.setting == specs[0].setting] == [1, 12]


@pytest.mark.parametrize("code", ["not_ready", "host_steal"])
def test_a_first_setting_that_cannot_be_measured_is_not_the_common_one(code: str) -> None:
    explorer = Explorer(large(measure={"retries": 1}), 7, nodes=2)
    ran = on_nodes(explorer, {"a": 1.0, "b": 0.5}, lambda node, spec: code if spec.block == 0 else "")
    on_both = {spec.setting for node, spec in ran if node == "a"} & {spec.setting for node, spec in ran if node == "b"}
    (common,) = on_both
    assert next(spec.setting for _, spec in ran if spec.block == 1) == common
    check_best_of(explorer, {spec.setting for _, spec in ran if spec.block})


def test_a_setting_whose_node_is_lost_is_tried_again_and_the_common_one_by_that_node_alone() -> None:
    explorer = Explorer(large(), 7, nodes=3)
    lost = {2, 6}  # the second setting, and the third node's trial of the common one
    ran = on_nodes(
        explorer, {"a": 1.0, "b": 0.5, "c": 2.0}, lambda node, spec: NODE_LOST if spec.number in lost else ""
    )
    (second,) = [spec.setting for _, spec in ran if spec.number == 2]
    assert [(node, spec.block) for node, spec in ran if spec.setting == second] == [("b", 1), ("b", 1)]
    common = ran[0][1].setting
    assert explorer.tried == 60 and explorer.to_come == 0
    assert [node for node, spec in ran if spec.setting == common] == ["a", "c", "b", "c"], "it measures that when back"


def test_a_setting_that_timed_out_does_not_say_how_long_the_others_take() -> None:
    """The first takes 150 s until it has failed, the others 10 s each."""
    made = large(design={"order": "race", "seed": 7, "budget": "400s"})
    explorer = Explorer(made, 7)

    def answer(spec: TrialSpec) -> TrialResult:
        if spec.number == 1:
            return replace(told(spec, {}, "not_ready", "failed"), took_s=150.0)
        return told(spec, {"goodput_per_s": goodput(spec.setting)})

    specs, _ = explore(explorer, answer)
    assert len(specs) == 6 and explorer.wall_s == 200.0
    assert len(explorer.finalists()) == 5, "there is time for two blocks of them all"
