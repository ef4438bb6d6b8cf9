"""Chooses the planner for an experiment. In: an experiment. Out: its planner (`planner.py`)."""

from __future__ import annotations

from powerband.model.experiment import Experiment
from powerband.model.plan import TrialSpec
from powerband.search.blocks import BlockPlanner
from powerband.search.capacity_search import CapacityPlanner
from powerband.search.explore import Explorer
from powerband.search.exploring_race import ExploringRace
from powerband.search.finished import result_of
from powerband.search.planner import Planner
from powerband.search.race import RacePlanner
from powerband.search.soaking import SoakingPlan


def planner_for(experiment: Experiment, seed: int, *, nodes: int = 1) -> Planner:
    """The planner for an experiment. `nodes`: how many nodes run trials, within one budget of time."""
    if experiment.design.soak_ns is not None:
        return SoakingPlan(experiment, seed, planner_for(experiment.without_soak(), seed, nodes=nodes))
    if experiment.explores:
        return ExploringRace(experiment, seed, nodes=nodes)
    if experiment.is_race:
        return RacePlanner(experiment, seed, nodes=nodes)
    if experiment.objective.is_capacity:
        return CapacityPlanner(experiment, seed, nodes=nodes)
    return BlockPlanner(experiment, seed, nodes=nodes)


def dry_run(experiment: Experiment, seed: int) -> list[TrialSpec]:
    """The trials, in order, of a run in which every trial is valid and no result changes the plan. An exploration and
    a capacity search have only their first trials here, which do not depend on results."""
    if experiment.explores:
        return Explorer(experiment, seed).blind_trials()
    planner = planner_for(experiment, seed)
    trials: list[TrialSpec] = []
    # Trials of a capacity search that measured nothing are tried again; those of blocks are not.
    while (spec := planner.ask()) is not None and spec.attempt == 1:
        trials.append(spec)
        planner.tell(result_of(spec, "measured"))
    return trials
