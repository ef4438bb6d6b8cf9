"""The budget is time by the clock: of one machine, and of several nodes that share the trials of a plan or wait for one
another. Repeats are within it, too. Time is simulated."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fakes.edges import Server, answers_of, capacity_experiment
from fakes.races import race_of, result_of, threads
from fakes.trials import experiment
from powerband.base.machine import Noise
from powerband.model.experiment import Design, Experiment
from powerband.model.load import Load
from powerband.model.plan import Stage, TrialSpec
from powerband.model.results import Problem, TrialResult
from powerband.search.turns import Turns

TRIAL_S, SOAK_S = 10.0, 600.0
NODES = pytest.mark.parametrize("nodes", [1, 2, 4, 8])
Answer = Callable[[TrialSpec], TrialResult]


def serve(spec: TrialSpec) -> TrialResult:
    """The settings differ by 10 %, so that a race goes on for some rounds; the noise is 3 %."""
    noise = float(np.random.default_rng(spec.number).normal(0, 0.03))
    metrics = {"goodput_per_s": 1000.0 * (1 + 0.1 * (threads(spec) % 7)) * (1 + noise), "error_rate": 0.0}
    return result_of(spec, metrics, SOAK_S if spec.stage is Stage.SOAK else TRIAL_S)


def disturbed(answer: Answer, which: Callable[[TrialSpec], bool]) -> Answer:
    """The answers, with those trials disturbed by other programs."""

    def answered(spec: TrialSpec) -> TrialResult:
        problems = (Problem("host_steal", "because of host_steal"),) if which(spec) else ()
        return replace(answer(spec), problems=problems)

    return answered


def run(made: Experiment, nodes: int, answer: Answer = serve) -> tuple[float, list[TrialResult]]:
    """Runs a plan to its end on so many nodes. Returns the time by the clock, and the results."""
    planner = Turns(nodes).planner(made)
    now_s, results, idle = 0.0, list[TrialResult](), [f"n{number}" for number in range(nodes)]
    running = list[tuple[float, int, TrialResult]]()
    block: int | None = None
    while True:
        while idle:
            spec = (None if block is None else planner.ask(block)) or planner.ask()
            block = None
            if spec is None:
                break
            result = replace(answer(spec), node=idle.pop(0))
            heapq.heappush(running, (now_s + (result.took_s or 0.0), spec.number, result))
        if not running:
            return now_s, results
        now_s, _, result = heapq.heappop(running)
        planner.tell(result)
        results.append(result)
        idle, block = [*idle, result.node], result.block


def grid(budget: str, repeats: int = 100, **measure: object) -> Experiment:
    return experiment(measure={"repeats": repeats, **measure}, design={"seed": 7, "budget": budget})


def with_soak(made: Experiment) -> Experiment:
    return made.model_copy(update={"design": made.design.model_copy(update={"soak_ns": round(SOAK_S * 1e9)})})


@NODES
@pytest.mark.parametrize(("budget", "blocks"), [("35s", 1), ("59s", 1), ("60s", 2), ("100s", 3)])
def test_each_node_runs_the_rounds_that_end_within_the_budget(nodes: int, budget: str, blocks: int) -> None:
    """A round of three settings takes 30 s."""
    wall_s, results = run(grid(budget), nodes)
    assert (wall_s, len(results)) == (30.0 * blocks, 3 * blocks * nodes)


@NODES
@pytest.mark.parametrize("budget_s", [75, 150, 300])
@pytest.mark.parametrize("screen", [None, "500ms"])
def test_a_race_with_its_confirmation_ends_within_the_budget(nodes: int, budget_s: int, screen: str | None) -> None:
    made = race_of(5, repeats=50, budget=f"{budget_s}s", confirm=1, screen=screen)
    wall_s, results = run(made, nodes)
    assert results and wall_s <= budget_s


@NODES
@pytest.mark.parametrize(("step", "stage"), [(0.03, Stage.COMPARE), (0.4, Stage.CONFIRM)], ids=["near", "far apart"])
def test_a_race_whose_full_trials_warm_up_for_long_ends_within_the_budget(
    nodes: int, step: float, stage: Stage
) -> None:
    """A short trial hardly warms up: it takes 2 s, a full one 35 s. Where the settings are near, there is no time for
    a round of full trials; where one is far ahead, for two of the three rounds of fresh starts."""
    made = race_of(7, repeats=12, budget="180s", confirm=3, screen="500ms")

    def warming(spec: TrialSpec) -> TrialResult:
        noise = float(np.random.default_rng(spec.number).normal(0, 0.01))
        rate = 1000.0 * (1 - step) ** threads(spec) * (1 + noise)
        return result_of(spec, {"goodput_per_s": rate}, 2.0 if spec.stage is Stage.SCREEN else 35.0)

    wall_s, results = run(made, nodes, warming)
    assert wall_s <= 180.0
    assert stage in {result.stage for result in results}


@NODES
def test_each_node_searches_for_capacities_within_the_budget(nodes: int) -> None:
    """A round of two settings takes 20 s."""
    made = capacity_experiment((1, 2), repeats=10, design=Design(budget="100s", seed=7))
    wall_s, results = run(made, nodes, answers_of({level: Server() for level in (1, 2)}, np.random.default_rng(1)))
    assert (wall_s, len(results)) == (100.0, 10 * nodes)
    assert {result.stage for result in results if result.block < nodes} == {Stage.SATURATE}


@pytest.mark.parametrize(
    ("budget_s", "nodes"),
    [(60, 1), (60, 2), (60, 4), (60, 8), (100, 1), (100, 2), (100, 4), (180, 1), (180, 2), (180, 4)],
)
@pytest.mark.parametrize("repeated", [False, True])
def test_a_search_whose_windows_grow_towards_the_edge_ends_within_the_budget(
    nodes: int, budget_s: int, *, repeated: bool
) -> None:
    """A trial takes three seconds more than it measures: three at first, half a minute close to the edge. A repeat
    measures for as long as the trial that it repeats."""
    made = capacity_experiment(
        (1, 2), repeats=10, load=Load(users=10, duration="3s"), design=Design(budget=f"{budget_s}s", seed=7)
    )
    dice = np.random.default_rng(3)

    def answer(spec: TrialSpec) -> TrialResult:
        most = 1000.0 * float(np.exp(0.02 * dice.standard_normal()))
        rate = spec.rate_per_s or most
        p99_ns = 5e9 if rate >= most else 10e6 + 2e6 / (1 - rate / most)
        metrics = {"goodput_per_s": min(rate, most), "offered_rate_per_s": rate, "response_time_ns_p99": p99_ns}
        found = result_of(spec, {**metrics, "response_time_ns_mean": 10e6, "error_rate": 0.0})
        return replace(found, rate_per_s=spec.rate_per_s, took_s=3.0 + (found.window_s or 3.0))

    long = disturbed(answer, lambda spec: repeated and spec.attempt == 1 and (spec.window_ns or 0) >= 20e9)
    wall_s, results = run(made, nodes, long)
    assert wall_s <= budget_s and len(results) >= 8 * nodes


@NODES
def test_an_exploration_takes_half_of_the_budget_at_most_and_the_race_the_rest(nodes: int) -> None:
    made = race_of(200, repeats=20, budget="400s", confirm=1)
    wall_s, results = run(made, nodes)
    explored = [result for result in results if result.stage is Stage.EXPLORE]
    all_of_them = made.design.explore_trials + nodes - 1  # each node measures the common setting
    assert len(explored) == min(200 / TRIAL_S * nodes, all_of_them)
    assert {result.stage for result in results} >= {Stage.EXPLORE, Stage.COMPARE}
    assert wall_s <= 400.0


@NODES
@pytest.mark.parametrize("made", [race_of(3, repeats=50, budget="700s", confirm=1), grid("700s")], ids=["race", "grid"])
def test_a_soak_is_within_the_budget(nodes: int, made: Experiment) -> None:
    wall_s, results = run(with_soak(made), nodes)
    assert results[-1].stage is Stage.SOAK and wall_s <= 700.0


@NODES
def test_trials_of_later_rounds_are_repeated_only_within_the_budget(nodes: int) -> None:
    made = grid("65s", retries=2, retry_budget=1.0)
    wall_s, results = run(made, nodes, disturbed(serve, lambda spec: spec.block >= nodes))
    assert (wall_s, len(results)) == (60.0, 6 * nodes)
    assert run(grid("95s", retries=2, retry_budget=1.0), 1, disturbed(serve, lambda spec: spec.number == 4))[0] == 70.0


@pytest.mark.parametrize(("budget_s", "fresh"), [(80, 0), (100, 2)])
def test_repeats_may_use_the_time_that_was_kept_for_fresh_starts(budget_s: int, fresh: int) -> None:
    """Two rounds of three settings far apart take 60 s, the fresh starts of two of them 20 s."""

    def far_apart(spec: TrialSpec) -> TrialResult:
        noise = float(np.random.default_rng(spec.number).normal(0, 0.003))
        return result_of(spec, {"goodput_per_s": 1000.0 * 4.0 ** threads(spec) * (1 + noise)}, TRIAL_S)

    made = race_of(3, repeats=10, budget=f"{budget_s}s", confirm=1)
    wall_s, results = run(made, 1, disturbed(far_apart, lambda spec: spec.number in (4, 5)))
    assert wall_s == 80.0 + fresh * TRIAL_S
    assert sum(result.stage is Stage.CONFIRM for result in results) == fresh


@NODES
@pytest.mark.parametrize(("budget_s", "soaks"), [(1220, 1), (1320, 2), (10_000, 3)])
def test_a_disturbed_soak_is_repeated_only_within_the_budget(nodes: int, budget_s: int, soaks: int) -> None:
    """Two rounds of three settings, and the confirmation, take 30 to 80 s."""
    made = with_soak(race_of(3, repeats=2, budget=f"{budget_s}s", confirm=1))
    wall_s, results = run(made, nodes, disturbed(serve, lambda spec: spec.stage is Stage.SOAK))
    assert wall_s <= budget_s
    assert sum(result.stage is Stage.SOAK for result in results) == soaks


def seven(budget: str) -> Experiment:
    made = experiment({"threads": tuple(range(7))}, design={"seed": 7, "budget": budget})
    return made.model_copy(update={"measure": made.measure.model_copy(update={"retries": 1})})


def not_ready(spec: TrialSpec) -> TrialResult:
    return result_of(spec, "not_ready", 30.5)


def test_a_start_that_timed_out_does_not_say_how_long_the_others_take() -> None:
    """The seven trials of the first block take 90.5 s, and more than half a minute is left for the rest."""
    wall_s, results = run(seven("130s"), 1, lambda spec: not_ready(spec) if spec.number == 1 else serve(spec))
    assert (wall_s, len(results)) == (100.5, 8)
    wall_s, results = run(seven("90s"), 1, lambda spec: not_ready(spec) if spec.number == 1 else serve(spec))
    assert (wall_s, [result.valid for result in results]) == (80.5, [False] + [True] * 5)


def test_starts_that_all_time_out_end_with_the_budget() -> None:
    wall_s, results = run(seven("90s"), 1, not_ready)
    assert (wall_s, len(results)) == (91.5, 3)


def test_a_start_that_timed_out_is_tried_again_only_if_it_could_time_out_again() -> None:
    wall_s, results = run(seven("110s"), 1, lambda spec: not_ready(spec) if spec.number == 1 else serve(spec))
    assert (wall_s, len(results)) == (90.5, 7)


def test_trials_of_a_search_and_of_an_exploration_are_repeated_only_within_the_budget() -> None:
    searched = capacity_experiment((1, 2), design=Design(budget="100s", seed=7))
    honest = answers_of({level: Server() for level in (1, 2)}, np.random.default_rng(1))
    assert run(searched, 1, disturbed(honest, lambda spec: spec.number >= 9))[0] == 100.0
    explored = race_of(200, repeats=20, budget="400s", confirm=1)
    _, results = run(explored, 1, disturbed(serve, lambda spec: spec.number >= 19))
    assert sum(result.stage is Stage.EXPLORE for result in results) == 20


@pytest.mark.parametrize(
    ("made", "budget_s"),
    [
        (grid("100s"), 100),
        (race_of(5, repeats=100, budget="100s", confirm=1), 100),
        (race_of(200, repeats=20, budget="100s", confirm=1), 100),
        (with_soak(grid("700s")), 700),
    ],
    ids=["grid", "race", "exploration", "soak"],
)
def test_the_time_left_is_within_the_budget(made: Experiment, budget_s: int) -> None:
    planner = Turns().planner(made)
    for told in (1, 2, 3):
        spec = planner.ask()
        assert spec is not None
        planner.tell(serve(spec))
        left_s = planner.left_s(Noise(0.02))
        assert left_s is not None and left_s <= budget_s - told * TRIAL_S


def test_only_what_nodes_share_is_sooner_over_with_more_of_them() -> None:
    noise = Noise(0.02)

    def left_s(made: Experiment, told: int) -> tuple[float, float]:
        planner = Turns(4).planner(made)
        for _ in range(told):
            spec = planner.ask()
            assert spec is not None
            planner.tell(serve(spec))
        alone_s, shared_s = planner.left_s(noise), planner.left_s(noise, 4)
        assert alone_s is not None and shared_s is not None
        return alone_s, shared_s

    alone_s, shared_s = left_s(grid("10h", 20), 6)
    assert (alone_s, shared_s) == (54 * TRIAL_S, 54 * TRIAL_S / 4)
    alone_s, shared_s = left_s(with_soak(grid("10h", 20)), 6)
    assert (alone_s, shared_s) == (54 * TRIAL_S + SOAK_S, 54 * TRIAL_S / 4 + SOAK_S)
    alone_s, shared_s = left_s(race_of(200, explore_trials=30), 10)
    assert alone_s > 20 * TRIAL_S and shared_s == pytest.approx(alone_s / 4)
