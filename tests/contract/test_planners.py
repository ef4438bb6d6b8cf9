"""Every planner, held against the one contract."""

from __future__ import annotations

import math
from collections.abc import Sequence

from contract.planners import PlannerContract
from fakes.trials import experiment as fake_experiment
from powerband.experiment import Experiment
from powerband.plan import Level, Setting, Stage, TrialSpec
from powerband.search.blocks import BlockPlanner
from powerband.search.explore import finalists
from powerband.search.exploring_race import ExploringRace
from powerband.search.planners import Planner
from powerband.search.race import RacePlanner


class TestBlockPlanner(PlannerContract):
    def planner(self, experiment: Experiment) -> Planner:
        assert experiment.design.seed is not None
        return BlockPlanner(experiment, experiment.design.seed)


class TestRacePlanner(PlannerContract):
    def planner(self, experiment: Experiment) -> Planner:
        assert experiment.design.seed is not None
        return RacePlanner(experiment, experiment.design.seed)

    def experiment(self, seed: int = 7) -> Experiment:
        return fake_experiment(
            {"threads": (1, 2, 4, 8)}, measure={"repeats": 4, "retries": 2}, design={"order": "race", "seed": seed}
        )

    def most_trials(self, experiment: Experiment) -> int:
        # The confirmation: so many starts of the winner and of its rival, each with its attempts.
        return super().most_trials(experiment) + 2 * experiment.design.confirm


class TestExploringRace(TestRacePlanner):
    """33 settings, of which 12 are tried and 4 race."""

    def planner(self, experiment: Experiment) -> Planner:
        assert experiment.design.seed is not None
        return ExploringRace(experiment, experiment.design.seed)

    def experiment(self, seed: int = 7) -> Experiment:
        design = {"order": "race", "seed": seed, "explore_above": 20, "explore_trials": 12, "finalists": 4}
        factors: dict[str, tuple[Level, ...]] = {"threads": tuple(range(1, 12)), "mode": ("a", "b", "c")}
        return fake_experiment(factors, measure={"repeats": 4, "retries": 2}, design=design)

    def most_trials(self, experiment: Experiment) -> int:
        design, budget = experiment.design, 1 + experiment.measure.retry_budget
        raced = math.ceil(budget * design.finalists * experiment.measure.repeats)
        return math.ceil(budget * design.explore_trials) + raced + 2 * design.confirm

    def check_given_up(self, planner: Planner, specs: Sequence[TrialSpec], failing: set[Setting]) -> None:
        """A setting that fails in its only trial does not get into the race."""
        for setting in failing:
            assert {spec.stage for spec in specs if spec.setting == setting} == {Stage.EXPLORE}

    def test_the_race_is_of_the_best_that_were_explored(self) -> None:
        made = self.experiment()
        specs, results = self.run_outcomes(made, [])
        explored = [result for result in results if result.stage is Stage.EXPLORE]
        raced = {spec.setting for spec in specs if spec.stage is Stage.COMPARE}
        assert len(explored) == 12 and raced == set(finalists(made, explored))
        assert [spec.stage for spec in specs[:12]] == [Stage.EXPLORE] * 12
        assert Stage.EXPLORE not in {spec.stage for spec in specs[12:]}
