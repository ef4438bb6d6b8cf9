"""A large space from its exploration to the answer: the finalists, the messages, and the effects of a budget or a
kill."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from fakes.races import result_of, run_experiment, run_planner
from fakes.trials import experiment
from powerband.analyze.settings.compare import analyse
from powerband.model.experiment import Experiment
from powerband.model.plan import Level, Stage, TrialSpec
from powerband.model.results import Analysis, AnswerKind, TrialResult
from powerband.search.explore import finalists
from powerband.search.exploring_race import ExploringRace
from powerband.search.planners import dry_run, planner_for


def space(**design: Any) -> Experiment:
    """An experiment with 16 x 16 = 256 settings, and a race of 8 blocks at most."""
    factors: dict[str, tuple[Level, ...]] = {"threads": tuple(range(1, 17)), "queue": tuple(range(10, 170, 10))}
    return experiment(factors, measure={"repeats": 8}, design={"order": "race", "seed": 7, **design})


def served(spec: TrialSpec) -> Mapping[str, float]:
    """The rate of a trial. The best setting has 1,000/s, with 10 threads and a queue of 80; the noise is 1 %."""
    levels = spec.setting.as_dict()
    away = abs(float(levels["threads"]) - 10) / 16 + abs(float(levels["queue"]) - 80) / 160
    noise = random.Random(f"{spec.number}/{spec.setting.id}").gauss(0, 0.01)
    return {"goodput_per_s": 1000 * math.exp(noise - 2 * away), "error_rate": 0.0}


def raced(analysis: Analysis) -> set[str]:
    return {trial.setting.id for trial in analysis.trials if trial.stage is Stage.COMPARE}


def test_the_best_of_a_large_space_is_found_and_nothing_is_said_of_those_that_did_not_race() -> None:
    made = space()
    found = run_experiment(made, served)
    assert found.answer.setting is not None
    assert found.answer.setting.as_dict() == {"threads": 10, "queue": 80}
    exploration = found.exploration
    assert exploration is not None and (exploration.settings, exploration.tried, exploration.raced) == (256, 60, 12)
    assert (
        "60 of 256 settings were tried once, and 12 raced. Nothing is known of the others." in found.answer.sentences[1]
    )
    assert len(found.settings) == 12 and {row.setting.id for row in found.settings} == raced(found)
    assert found.answer.undecided == (), "those not raced are not undecided"
    assert found.race is not None and found.race.grid_trials == 12 * 8
    assert found.race.trials < 12 * 8
    assert found.race.confirmation is not None
    json.dumps(found.to_json(), allow_nan=False)


def test_what_was_explored_does_not_count_in_the_race() -> None:
    found = run_experiment(space(), served)
    for row in found.settings:
        blocks = [t for t in found.trials if t.setting == row.setting and t.stage is Stage.COMPARE and t.valid]
        assert row.trials == len(blocks)


def test_without_its_progress_the_same_settings_are_judged() -> None:
    made = space()
    planner = planner_for(made, 7)
    results = run_planner(planner, served)
    with_progress, without = analyse(made, results, planner.progress), analyse(made, results)
    assert {row.setting for row in without.settings} == {row.setting for row in with_progress.settings}


def test_a_run_that_stops_while_exploring_names_no_setting() -> None:
    made = space()
    planner = ExploringRace(made, 7)
    results = []
    for _ in range(20):
        spec = planner.ask()
        assert spec is not None
        results.append(result_of(spec, served(spec)))
        planner.tell(results[-1])
    assert not planner.block_ended
    found = analyse(made, results, planner.progress)
    assert found.answer.kind is AnswerKind.NOT_ENOUGH_DATA and found.settings == ()
    best = max(results, key=lambda result: result.metrics["goodput_per_s"])
    assert found.answer.sentences[0] == (
        "Not enough data to name a setting: 20 of 256 settings were tried once, and none has raced yet."
    )
    assert best.setting.id in found.answer.sentences[1] and "resume" in found.answer.sentences[1]
    assert found.warnings == (
        "the exploration is not over after 20 trials, and the best are to be raced; resume the run to finish it",
    )


@pytest.mark.parametrize("met", [True, False])
def test_of_a_stopped_exploration_no_trial_that_breaks_the_slo_is_called_best(met: bool) -> None:
    objective = experiment(objective={"constraints": ["error_rate < 1%"]}).objective
    made = space().model_copy(update={"objective": objective})
    planner = ExploringRace(made, 7)
    results = []
    for number in range(20):
        spec = planner.ask()
        assert spec is not None
        right = {"goodput_per_s": 500.0 + number, "error_rate": 0.0 if met else 0.05}
        wrong = {"goodput_per_s": 9000.0, "error_rate": 0.3}
        results.append(result_of(spec, wrong if number == 3 else right))
        planner.tell(results[-1])
    said = analyse(made, results, planner.progress).answer.sentences[1]
    best = results[-1].setting.id
    told = f"in the best trial, {best}; one trial"
    if not met:
        told = f"in {best}, which came nearest to the SLO (no trial was seen to meet it); one trial"
    assert said.startswith(f"Goodput was 519/s {told}")


def test_of_a_stopped_exploration_nothing_is_near_an_slo_on_what_no_trial_measured() -> None:
    made = space().model_copy(update={"objective": experiment(objective={"constraints": ["p99 < 50ms"]}).objective})
    planner = ExploringRace(made, 7)
    spec = planner.ask()
    assert spec is not None
    results = [result_of(spec, {"goodput_per_s": 500.0})]
    planner.tell(results[0])
    said = analyse(made, results, planner.progress).answer.sentences[1]
    assert said.startswith(f"Goodput was 500/s in {spec.setting.id} (no trial was seen to meet the SLO); one trial")


def test_where_nothing_could_be_measured_nobody_races() -> None:
    found = run_experiment(space(), lambda spec: "not_ready")
    assert found.answer.kind is AnswerKind.NONE_VALID
    assert len(found.trials) == 61, "the first start of the run has its repeat"
    assert found.answer.sentences == (
        "No setting could be measured.",
        "60 of 256 settings were tried once. Each excluded trial has its reason.",
    )


def test_what_could_not_be_measured_of_a_large_space_is_said() -> None:
    """All but the best rows of the space exit at once."""
    found = run_experiment(
        space(), lambda spec: served(spec) if float(spec.setting.as_dict()["threads"]) > 7 else "died"
    )
    lost = {trial.setting for trial in found.trials if trial.stage is Stage.EXPLORE and not trial.valid}
    assert lost and f"60 of 256 settings were tried once ({len(lost)} of them could not be measured)" in " ".join(
        found.answer.sentences
    )
    assert any(f"{len(lost)} of {len(found.trials)} trials failed or are invalid" in each for each in found.warnings)


def test_an_slo_that_nothing_meets_is_said_of_those_raced() -> None:
    made = space().model_copy(update={"objective": experiment(objective={"constraints": ["p99 < 5ms"]}).objective})
    found = run_experiment(made, lambda spec: {**served(spec), "response_time_ns_p99": 9e6})
    assert found.answer.kind is AnswerKind.NONE_FEASIBLE
    assert found.answer.sentences[1].endswith(
        "60 of 256 settings were tried once, and 12 raced. Nothing is known of the others."
    )


@pytest.mark.parametrize(("budget", "explored"), [("40s", 20), ("100s", 50), ("10m", 60)])
def test_a_budget_is_shared_by_exploration_and_race(budget: str, explored: int) -> None:
    """Each trial takes 1 s."""
    found = run_experiment(space(budget=budget), served)
    took = sum(trial.took_s or 0.0 for trial in found.trials)
    assert sum(1 for trial in found.trials if trial.stage is Stage.EXPLORE) == explored
    assert took <= float(budget.removesuffix("s")) if budget.endswith("s") else took < 600
    assert found.race is not None and raced(found)


def test_the_plan_shows_the_trials_that_are_certain() -> None:
    made = space()
    plan = dry_run(made, 7)
    planner = planner_for(made, 7)
    asked = []
    for _ in plan:
        spec = planner.ask()
        assert spec is not None
        asked.append(spec)
        planner.tell(result_of(spec, served(spec)))
    assert plan == asked and len(plan) >= 10


def test_the_finalists_are_those_of_the_results() -> None:
    made = space(finalists=3)
    planner = planner_for(made, 7)
    results: list[TrialResult] = run_planner(planner, served)
    explored = [result for result in results if result.stage is Stage.EXPLORE]
    chosen = finalists(made, explored)
    assert {result.setting for result in results if result.stage is Stage.COMPARE} == set(chosen) and len(chosen) == 3


def test_at_fifty_settings_there_is_no_exploration() -> None:
    made = experiment({"threads": tuple(range(50))}, design={"order": "race", "seed": 1})
    assert not made.explores
    assert experiment({"threads": tuple(range(51))}, design={"order": "race", "seed": 1}).explores
    assert not experiment({"threads": tuple(range(51))}, design={"order": "blocks", "seed": 1}).explores


def test_the_advised_budget_is_enough() -> None:
    """Each trial takes 1 s, so 6 s are too few for two blocks of the finalists after the exploration."""
    found = run_experiment(space(budget="6s"), served)
    said = " ".join(found.answer.sentences)
    advised = re.search(r"allow ([\d.]+) s", said)
    assert advised is not None, said
    assert float(advised[1]) > 6
    enough = run_experiment(space(budget=f"{math.ceil(float(advised[1]))}s"), served)
    assert "too little" not in " ".join(enough.answer.sentences)


def test_nodes_that_share_an_exploration_need_less_of_a_budget() -> None:
    """Each trial takes 1 s. Two blocks of two finalists and the confirmation take 10 s, and so does the exploration on
    one node."""
    made = space(budget="6s", explore_trials=10, finalists=2)
    planner = planner_for(made, 7)
    results = run_planner(planner, served)

    def advised(nodes: int) -> float:
        found = analyse(made, [replace(each, node=f"n{each.number % nodes}") for each in results], planner.progress)
        said = re.search(r"allow ([\d.]+) s", " ".join(found.answer.sentences))
        assert said is not None, found.answer.sentences
        return float(said[1])

    assert (advised(1), advised(2)) == (20.0, 15.0)
