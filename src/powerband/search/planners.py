"""What decides the trials: the interface of all planners, and which one an experiment asks for.

In: an experiment. Out: its planner, asked for a trial and told its result, one by one. The same seed and the same
results give the same trials: a planner is rebuilt after a kill by telling it what is on disk. No I/O in any of them.
"""

from __future__ import annotations

from typing import Protocol

from powerband.analyze.settings.compare import Progress
from powerband.model.experiment import Experiment
from powerband.model.plan import TrialSpec
from powerband.model.results import TrialResult
from powerband.search.blocks import BlockPlanner
from powerband.search.capacity_search import CapacityPlanner
from powerband.search.explore import Explorer
from powerband.search.exploring_race import ExploringRace
from powerband.search.race import RacePlanner


class Planner(Protocol):
    """Each `ask` must be answered by a `tell` before the next."""

    @property
    def planned_total(self) -> int:
        """Trials of the run as far as known: told, in flight, and at most so many still to come."""

    @property
    def block_ended(self) -> bool:
        """Whether the last result told was the last of its block, so that an analysis is worth its time."""

    @property
    def progress(self) -> Progress:
        """What analysis cannot see in the results alone."""

    def ask(self) -> TrialSpec | None:
        """The next trial; None when there is nothing more to do."""

    def tell(self, result: TrialResult) -> None:
        """What became of the trial asked for last."""


def planner_for(experiment: Experiment, seed: int) -> Planner:
    """The planner of an experiment's own design and objective."""
    if experiment.explores:
        return ExploringRace(experiment, seed)
    if experiment.is_race and len(experiment.settings()) > 1:  # one alone has nobody to race: it is measured
        return RacePlanner(experiment, seed)
    if experiment.objective.is_capacity:
        return CapacityPlanner(experiment, seed)
    return BlockPlanner(experiment, seed)


def dry_run(experiment: Experiment, seed: int) -> list[TrialSpec]:
    """The trials of a run in which every trial is valid and nothing is learnt from any, in their order; those of an
    exploration or a capacity search as far as they do not depend on what others show."""
    if experiment.explores:
        return Explorer(experiment, seed).blind_trials()
    planner = planner_for(experiment, seed)
    if experiment.objective.is_capacity:
        return _first_round(planner)
    trials = []
    while (spec := planner.ask()) is not None:
        trials.append(spec)
        planner.tell(_nothing_learnt(spec))
    return trials


def _first_round(planner: Planner) -> list[TrialSpec]:
    trials: list[TrialSpec] = []
    while (spec := planner.ask()) is not None and spec.attempt == 1:
        trials.append(spec)
        planner.tell(_nothing_learnt(spec))
    return trials


def _nothing_learnt(spec: TrialSpec) -> TrialResult:
    return TrialResult(
        number=spec.number,
        block=spec.block,
        attempt=spec.attempt,
        setting=spec.setting,
        status="measured",
        problems=(),
        metrics={},
        stage=spec.stage,
        rate_per_s=spec.rate_per_s,
    )
