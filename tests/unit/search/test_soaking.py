"""The plan of a soak: it comes last, with the setting that the answer names."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from fakes.edges import Server, answers_of, capacity_experiment
from fakes.races import race_of, result_of, run_planner, threads
from fakes.trials import experiment
from powerband.analyze.runs.revisions import compare_revisions
from powerband.analyze.settings.compare import analyse
from powerband.base.machine import Noise
from powerband.model.experiment import Experiment
from powerband.model.plan import Setting, Stage, TrialSpec
from powerband.model.results import TrialResult
from powerband.search.forecast import forecast, size_text
from powerband.search.planners import planner_for

ASSUMED = Noise(0.02)
MINUTE_NS = 60 * 10**9
S_NS = 10**9


def race(soak_ns: int | None = 10 * MINUTE_NS, **design: object) -> Experiment:
    made = race_of(3, repeats=6, **design)
    return made.model_copy(update={"design": made.design.model_copy(update={"soak_ns": soak_ns})})


def more_is_better(spec: TrialSpec) -> Mapping[str, float]:
    return {"goodput_per_s": 100.0 * (1 + threads(spec)) * (1 + 0.001 * (spec.block % 3)), "error_rate": 0.0}


def run(experiment: Experiment, soak_says: list[str]) -> list[TrialResult]:
    """Runs an experiment to its end. `soak_says`: the failure of each soak in turn; empty: none."""
    said = iter(soak_says)

    def outcome(spec: TrialSpec) -> Mapping[str, float] | str:
        return (next(said) if spec.stage is Stage.SOAK else "") or more_is_better(spec)

    return run_planner(planner_for(experiment, 7), outcome)


def test_the_winner_runs_once_more_after_all_else() -> None:
    before, results = run(race(None), []), run(race(), [""])
    assert results[:-1] == before
    assert (results[-1].stage, results[-1].setting.id) == (Stage.SOAK, "threads=2")
    assert results[-1].block > max(result.block for result in before)


@pytest.mark.parametrize("ratio", [0.9, 1.0, 1.1])
def test_of_two_revisions_the_new_one_is_soaked_whichever_serves_more(ratio: float) -> None:
    design = {"order": "race", "seed": 7, "confirm": 0, "soak_ns": 10 * MINUTE_NS}
    made = experiment({"revision": ("old", "new")}, measure={"repeats": 6}, design=design)

    def outcome(spec: TrialSpec) -> Mapping[str, float]:
        rate = 1000.0 * (ratio if spec.setting.as_dict()["revision"] == "new" else 1.0)
        return {"goodput_per_s": rate * (1 + 0.001 * (spec.block % 3)), "error_rate": 0.0, "threads_max": 4.0}

    planner = planner_for(made, 7)
    results = run_planner(planner, outcome)
    assert (results[-1].stage, results[-1].setting.id) == (Stage.SOAK, "revision=new")
    analysis = analyse(made, results, planner.progress)
    assert analysis.soak is not None and analysis.soak.lasts
    found = compare_revisions(made, analysis)
    assert analysis.soak.sentence in found.further
    assert found.to_json()["further"] == list(found.further), "the JSON tells of a soak that held, too"


def test_of_three_revisions_the_best_is_soaked() -> None:
    design = {"order": "race", "seed": 7, "confirm": 0, "soak_ns": 10 * MINUTE_NS}
    made = experiment({"revision": ("a", "b", "c")}, measure={"repeats": 6}, design=design)
    rates = {"revision=a": 500.0, "revision=b": 1000.0, "revision=c": 400.0}
    results = run_planner(
        planner_for(made, 7), lambda spec: {"goodput_per_s": rates[spec.setting.id] * (1 + 0.001 * (spec.block % 3))}
    )
    assert (results[-1].stage, results[-1].setting.id) == (Stage.SOAK, "revision=b")


@pytest.mark.parametrize(("said", "soaks"), [("foreign_cpu", 3), ("died", 1), ("work_ended", 1)])
def test_a_disturbed_soak_is_repeated_and_what_would_come_again_is_not(said: str, soaks: int) -> None:
    results = run(race(), [said] * soaks)
    assert [result.attempt for result in results if result.stage is Stage.SOAK] == list(range(1, soaks + 1))


def test_a_capacity_is_soaked_at_the_lower_end_of_its_interval() -> None:
    made = capacity_experiment(repeats=1)
    made = made.model_copy(update={"design": made.design.model_copy(update={"soak_ns": 10 * MINUTE_NS})})
    planner, results = planner_for(made, 7), list[TrialResult]()
    answer = answers_of({1: Server()}, np.random.default_rng(1))
    while (spec := planner.ask()) is not None and spec.stage is not Stage.SOAK:
        results.append(answer(spec))
        planner.tell(results[-1])
    (row,) = analyse(made, results, planner.progress).settings
    assert spec is not None and row.capacity is not None and row.capacity.estimate is not None
    assert spec.rate_per_s == row.capacity.estimate.low


def test_an_interrupted_soak_goes_on_from_what_is_on_disk() -> None:
    results = run(race(), ["interrupted", ""])
    planner = planner_for(race(), 7)
    for result in results[:-1]:
        spec = planner.ask()
        assert spec is not None and (spec.number, spec.stage) == (result.number, result.stage)
        assert planner.progress.soak_to_come
        planner.tell(result)
    spec = planner.ask()
    assert spec is not None and (spec.stage, spec.attempt, planner.planned_total) == (Stage.SOAK, 1, len(results))
    planner.tell(result_of(spec, more_is_better(spec)))
    assert planner.ask() is None and not planner.progress.soak_to_come


def test_where_no_setting_serves_there_is_no_soak() -> None:
    results = run_planner(planner_for(race(), 7), lambda spec: "not_ready")
    assert results and all(result.stage is not Stage.SOAK for result in results)


def test_the_forecast_counts_it_and_the_budget_holds_it() -> None:
    plain, soaking = forecast(race(None), ASSUMED), forecast(race(), ASSUMED)
    assert (soaking.expected_ns - plain.expected_ns) / S_NS == pytest.approx(601)
    assert soaking.longest_ns - plain.longest_ns == soaking.expected_ns - plain.expected_ns
    assert size_text(race(), soaking) == f"{size_text(race(None), plain)}, and a soak of 10 min"
    within = race(budget_ns=11 * MINUTE_NS)
    assert within.without_soak().design.budget_ns == MINUTE_NS
    assert len(run(race(budget_ns=10 * MINUTE_NS + 5 * S_NS), [""])) < len(run(race(), [""]))


def a_trial(stage: Stage) -> TrialSpec:
    return TrialSpec(1, 0, 1, Setting((("threads", 1),)), 1, stage)


def test_a_soak_measures_its_last_minute_and_at_most_its_second_half() -> None:
    def times_s(soak_ns: int) -> tuple[float, float]:
        made = race(soak_ns).as_in(a_trial(Stage.SOAK))
        return (made.measure.warmup_ns or 0) / S_NS, made.load.duration_ns / S_NS

    assert times_s(10 * MINUTE_NS) == (540, 60)
    assert times_s(4 * S_NS) == (2, 2)
    made = race()
    assert made.as_in(a_trial(Stage.COMPARE)) is made
