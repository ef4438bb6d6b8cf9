from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.trials import experiment
from powerband.model.experiment import Measure
from powerband.model.plan import TrialSpec
from powerband.model.results import Problem, TrialResult
from powerband.search.blocks import BlockPlanner
from powerband.search.trials import BlockTrials


def result(spec: TrialSpec, code: str = "", status: str = "measured") -> TrialResult:
    problems = (Problem(code, f"because of {code}"),) if code else ()
    return TrialResult(spec.number, spec.block, spec.attempt, spec.setting, status, problems, {"goodput_per_s": 1.0})


def run(planner: BlockPlanner, outcome: Any = result) -> list[TrialSpec]:
    done = []
    while (spec := planner.ask()) is not None:
        planner.tell(outcome(spec))
        done.append(spec)
    return done


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_every_plan_holds_every_setting_once_a_block(levels: int, repeats: int, seed: int) -> None:
    made = experiment({"threads": tuple(range(levels))}, measure=Measure(repeats=repeats))
    planner = BlockPlanner(made, seed)
    assert planner.planned_total == levels * repeats
    done = run(planner)
    assert planner.planned_total == len(done) == levels * repeats
    assert [spec.number for spec in done] == list(range(1, len(done) + 1))
    for block in range(repeats):
        cells = [spec for spec in done if spec.block == block]
        assert {spec.setting for spec in cells} == set(made.settings()) and len(cells) == levels
        assert len({spec.seed for spec in cells}) == 1


def test_the_same_seed_gives_the_same_plan_and_another_seed_another() -> None:
    made = experiment({"threads": tuple(range(8))})
    assert run(BlockPlanner(made, 1)) == run(BlockPlanner(made, 1))
    assert run(BlockPlanner(made, 1)) != run(BlockPlanner(made, 2))


def test_orders_are_random_in_each_block() -> None:
    done = run(BlockPlanner(experiment({"threads": tuple(range(8))}), 3))
    orders = {tuple(spec.setting.id for spec in done if spec.block == block) for block in range(3)}
    assert len(orders) == 3


def test_an_invalid_trial_is_repeated_at_the_end_of_its_block() -> None:
    planner = BlockPlanner(experiment(), 1)
    done = run(planner, lambda spec: result(spec, "host_steal" if spec.number == 1 else ""))
    assert done[3].setting == done[0].setting
    assert (done[3].block, done[3].attempt) == (0, 2)
    assert len(done) == 10 == planner.planned_total


def test_retries_stop_at_the_limit_of_one_trial_and_at_the_budget_of_the_run() -> None:
    always = experiment(measure=Measure(repeats=2, retries=2, retry_budget=1.0))
    assert len(run(BlockPlanner(always, 1), lambda spec: result(spec, "host_steal"))) == 6 + 6
    narrow = experiment(measure=Measure(repeats=2, retries=2, retry_budget=0.5))
    assert len(run(BlockPlanner(narrow, 1), lambda spec: result(spec, "host_steal"))) == 6 + 3
    never = experiment(measure=Measure(repeats=2, retries=0))
    assert len(run(BlockPlanner(never, 1), lambda spec: result(spec, "host_steal"))) == 6


@pytest.mark.parametrize("code", ["no_request_ended", "short_window"])
@pytest.mark.parametrize(("cause", "attempts"), [("", 1), ("engine_stopped", 3), ("host_steal", 3)])
def test_no_answer_is_waited_for_again_only_where_the_machine_or_the_load_engine_stood_still(
    code: str, cause: str, attempts: int
) -> None:
    planner = BlockPlanner(experiment(measure=Measure(repeats=1, retry_budget=1.0)), 1)
    slow = planner._settings[1]

    def outcome(spec: TrialSpec) -> TrialResult:
        problems = tuple(Problem(each, "it is so") for each in (code, cause) if each)
        return replace(result(spec), problems=problems if spec.setting == slow else ())

    assert [spec.attempt for spec in run(planner, outcome) if spec.setting == slow] == list(range(1, attempts + 1))


@pytest.mark.parametrize(("code", "attempts"), [("generator_cpu", 2), ("host_steal", 3)])
def test_what_the_load_engine_limits_twice_is_not_repeated_until_it_is_slow_enough(code: str, attempts: int) -> None:
    """A disturbed trial is repeated further: that favours nobody."""
    planner = BlockPlanner(experiment(measure=Measure(repeats=2, retries=2, retry_budget=1.0)), 1)
    fast = planner._settings[1]
    done = run(planner, lambda spec: result(spec, code if spec.setting == fast else ""))
    of_fast = [(spec.block, spec.attempt) for spec in done if spec.setting == fast]
    assert of_fast == [(block, attempt) for block in range(2) for attempt in range(1, attempts + 1)]
    assert planner.left == {}


def test_a_setting_that_only_fails_leaves_with_its_reason() -> None:
    planner = BlockPlanner(experiment(measure=Measure(repeats=5, retry_budget=1.0)), 1)
    bad = planner._settings[1]
    done = run(planner, lambda spec: result(spec, "not_ready", "failed") if spec.setting == bad else result(spec))
    assert [spec.block for spec in done if spec.setting == bad] == [0, 0, 0]
    assert "because of not_ready" in planner.left[bad]
    assert len(done) == 3 + 5 * 2 == planner.planned_total


def test_a_setting_whose_invariant_can_never_be_checked_leaves_as_well() -> None:
    planner = BlockPlanner(experiment(measure=Measure(repeats=5, retry_budget=1.0)), 1)
    bad = planner._settings[1]
    done = run(planner, lambda spec: result(spec, "invariant_unknown" if spec.setting == bad else ""))
    assert [(spec.block, spec.attempt) for spec in done if spec.setting == bad] == [(0, 1), (1, 1)]
    assert "because of invariant_unknown" in planner.left[bad]


def test_an_invariant_that_others_left_open_is_checked_again() -> None:
    planner = BlockPlanner(experiment(measure=Measure(repeats=2, retry_budget=1.0)), 1)
    some = planner._settings[1]
    done = run(planner, lambda spec: replace(result(spec, "invariant_unknown"), held_up=0.2 * (spec.setting == some)))
    assert {spec.attempt for spec in done if spec.setting == some} == {1, 2, 3}
    assert some not in planner.left and planner._settings[0] in planner.left


def test_a_setting_that_leaves_is_repeated_in_no_other_block_in_flight() -> None:
    made = experiment(measure=Measure(repeats=2, retries=1, retry_budget=1.0))
    trials = BlockTrials(made, 1, made.settings(), nodes=2)
    bad = made.settings()[1]
    for block in (0, 1):
        trials.begin(block, made.settings())

    def go_on(block: int) -> TrialSpec | None:
        if (spec := trials.ask(block)) is not None:
            trials.tell(result(spec, "not_ready", "failed") if spec.setting == bad else result(spec))
        return spec

    while (spec := go_on(1)) is not None and spec.setting != bad:
        pass
    while go_on(0) is not None:
        pass
    assert bad in trials.left
    while (spec := go_on(1)) is not None:
        assert spec.setting != bad


def test_one_failure_is_not_enough_to_leave_when_the_retries_are_spent() -> None:
    """Settings share the retries: a setting must not be eliminated because another one has used them up."""
    planner = BlockPlanner(experiment(measure=Measure(repeats=3, retries=2, retry_budget=0.0)), 1)
    bad = planner._settings[1]

    def once(spec: TrialSpec) -> TrialResult:
        return result(spec, "died", "failed") if spec.setting == bad and spec.block == 0 else result(spec)

    done = run(planner, once)
    assert planner.left == {}
    assert [spec.block for spec in done if spec.setting == bad] == [0, 1, 2]


def test_a_setting_that_fails_in_two_blocks_leaves() -> None:
    planner = BlockPlanner(experiment(measure=Measure(repeats=5, retries=0)), 1)
    bad = planner._settings[1]
    done = run(planner, lambda spec: result(spec, "died", "failed") if spec.setting == bad else result(spec))
    assert [spec.block for spec in done if spec.setting == bad] == [0, 1]
    assert planner.left[bad].startswith("left after 2 failed attempts")


@pytest.mark.parametrize("code", ["no_request_ended", "no_request_ok"])
def test_a_subject_that_answers_nothing_is_not_tried_again_in_the_block_and_costs_no_retry(code: str) -> None:
    planner = BlockPlanner(experiment(measure=Measure(repeats=5, retries=2, retry_budget=0.1)), 1)
    silent, disturbed = planner._settings[:2]

    def outcome(spec: TrialSpec) -> TrialResult:
        spoilt = spec.setting == disturbed and spec.block == 2 and spec.attempt < 3
        return result(spec, code if spec.setting == silent else "host_steal" if spoilt else "")

    done = run(planner, outcome)
    assert [(spec.block, spec.attempt) for spec in done if spec.setting == silent] == [(0, 1), (1, 1)]
    assert [spec.attempt for spec in done if spec.setting == disturbed and spec.block == 2] == [1, 2, 3]
    assert f"because of {code}" in planner.left[silent]


def test_a_disturbed_machine_never_makes_a_setting_leave() -> None:
    planner = BlockPlanner(experiment(measure=Measure(repeats=2, retries=1)), 1)
    run(planner, lambda spec: result(spec, "host_foreign"))
    assert planner.left == {}


def test_an_interrupted_trial_is_asked_for_again_at_once_and_costs_nothing() -> None:
    planner = BlockPlanner(experiment(measure=Measure(repeats=1, retries=0)), 1)
    first = planner.ask()
    assert first is not None
    planner.tell(result(first, "interrupted", "interrupted"))
    second = planner.ask()
    assert second is not None
    assert (second.setting, second.attempt, second.number) == (first.setting, 1, 2)


def test_asking_twice_or_telling_another_trial_is_our_own_defect() -> None:
    planner = BlockPlanner(experiment(), 1)
    spec = planner.ask()
    assert spec is not None
    with pytest.raises(AssertionError):
        planner.ask(spec.block)
    with pytest.raises(AssertionError):
        planner.tell(result(TrialSpec(99, 0, 1, spec.setting, 1)))
