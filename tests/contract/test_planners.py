"""Every planner, held against the one contract."""

from __future__ import annotations

from contract.planners import PlannerContract
from powerband.experiment import Experiment
from powerband.search.blocks import BlockPlanner
from powerband.search.session import Planner


class TestBlockPlanner(PlannerContract):
    def planner(self, experiment: Experiment) -> Planner:
        assert experiment.design.seed is not None
        return BlockPlanner(experiment, experiment.design.seed)
