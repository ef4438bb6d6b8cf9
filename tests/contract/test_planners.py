"""Every planner is tested against the one contract."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from contract.planners import DISTURBED, GOOD, PlannerContract
from fakes.edges import Server, answers_of, capacity_experiment
from fakes.trials import experiment as fake_experiment
from powerband.analyze.settings.capacity import TRIALS_PER_REPEAT
from powerband.model.experiment import Experiment
from powerband.model.plan import Level, Setting, Stage, TrialSpec
from powerband.search.blocks import BlockPlanner
from powerband.search.capacity_search import IN_TURN, CapacityPlanner
from powerband.search.explore import finalists
from powerband.search.exploring_race import ExploringRace
from powerband.search.planner import Planner
from powerband.search.planners import planner_for
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
        # The confirmation: this many starts of the winner and of its rival, each with its attempts.
        return super().most_trials(experiment) + 2 * experiment.design.confirm


class TestScreenedRace(TestRacePlanner):
    """A race that begins with up to three blocks of short trials. All settings with four threads or more serve
    alike."""

    def experiment(self, seed: int = 7) -> Experiment:
        made = super().experiment(seed)
        return made.model_copy(update={"design": made.design.model_copy(update={"screen_ns": 10**9})})

    def most_trials(self, experiment: Experiment) -> int:
        return super().most_trials(experiment) + 3 * len(experiment.settings())


class TestSoakingRace(TestRacePlanner):
    """A race that ends with one long trial of its answer."""

    def planner(self, experiment: Experiment) -> Planner:
        assert experiment.design.seed is not None
        return planner_for(experiment, experiment.design.seed)

    def experiment(self, seed: int = 7) -> Experiment:
        made = super().experiment(seed)
        return made.model_copy(update={"design": made.design.model_copy(update={"soak_ns": 600 * 10**9})})

    def most_trials(self, experiment: Experiment) -> int:
        return super().most_trials(experiment) + 1 + experiment.measure.retries


class TestExploringRace(TestRacePlanner):
    """A race over 33 settings: 12 of them are tried in an exploration, and 4 finalists race."""

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
        """Checks that a setting which failed in its only exploratory trial does not race."""
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


class TestExploringRaceOnNodes(TestExploringRace):
    """A plan for four nodes, whichever number runs it. Fresh starts confirm the winner on three of them."""

    def planner(self, experiment: Experiment) -> Planner:
        assert experiment.design.seed is not None
        return ExploringRace(experiment, experiment.design.seed, nodes=4)


class TestCapacityPlanner(PlannerContract):
    """Searches on servers whose p99 has its knee at 1,000/s for each thread. `nodes`: those of the plan, whichever
    number runs it."""

    nodes = 1

    def planner(self, experiment: Experiment) -> Planner:
        assert experiment.design.seed is not None
        return CapacityPlanner(experiment, experiment.design.seed, nodes=self.nodes)

    def experiment(self, seed: int = 7) -> Experiment:
        return capacity_experiment((1, 2), repeats=1, seed=seed)

    def most_trials(self, experiment: Experiment) -> int:
        rounds = max(TRIALS_PER_REPEAT * experiment.measure.repeats, IN_TURN * self.nodes if self.nodes > 1 else 0)
        planned = len(experiment.settings()) * (self.nodes + rounds)
        return planned + math.ceil(experiment.measure.retry_budget * planned)

    def metrics(self, spec: TrialSpec) -> Mapping[str, float]:
        servers: dict[Level, Server] = {threads: Server(1000.0 * threads) for threads in (1, 2)}
        return answers_of(servers, np.random.default_rng(spec.number))(spec).metrics

    def check_given_up(self, planner: Planner, specs: Sequence[TrialSpec], failing: set[Setting]) -> None:
        """Checks that a setting without a rate to start from is eliminated after the first round."""
        for setting in failing:
            assert "because of not_ready" in planner.progress.left[setting]
            assert {spec.stage for spec in specs if spec.setting == setting} == {Stage.SATURATE}

    def test_a_disturbed_trial_is_repeated(self) -> None:
        """A trial of the search is repeated at the same rate; a trial of the first round is not repeated."""
        made, looks = self.experiment(), 2 * self.nodes
        disturbed = looks + 2
        specs, _ = self.run(
            self.planner(made),
            lambda spec: DISTURBED if spec.number in (1, disturbed) else GOOD,
            self.most_trials(made),
        )
        assert [spec.stage for spec in specs[: looks + 1]] == [Stage.SATURATE] * looks + [Stage.CAPACITY]
        first, *later = specs[disturbed - 1 :]
        again = [spec for spec in later if spec.block == first.block and spec.setting == first.setting]
        assert [(spec.attempt, spec.rate_per_s) for spec in again] == [(2, first.rate_per_s)]


class TestCapacityPlannerOnNodes(TestCapacityPlanner):
    nodes = 2
