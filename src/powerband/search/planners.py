"""The interface of all planners, and the choice of the planner for an experiment.

In: an experiment. Out: its planner; call `ask` for a trial and `tell` with its result, one by one. The trials depend
only on the seed and the results: after a kill, a planner is rebuilt by replaying the results on disk. No planner does
I/O.
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
from powerband.search.finished import result_of
from powerband.search.race import RacePlanner


class Planner(Protocol):
    """Each `ask` must be answered by a `tell` before the next."""

    @property
    def planned_total(self) -> int:
        """Number of trials in the run as far as known: finished, in flight, and at most still to come,
        without further retries."""

    @property
    def block_ended(self) -> bool:
        """True if the last result received completed its block, so that an analysis is worthwhile."""

    @property
    def progress(self) -> Progress:
        """State of the plan that the analysis cannot derive from the results."""

    def ask(self) -> TrialSpec | None:
        """The next trial; None when there is nothing more to do."""

    def tell(self, result: TrialResult) -> None:
        """Accepts the result of the trial returned by the last `ask`."""


def planner_for(experiment: Experiment, seed: int) -> Planner:
    if experiment.explores:
        return ExploringRace(experiment, seed)
    if experiment.is_race and len(experiment.settings()) > 1:  # a single setting has no rival: it is only measured
        return RacePlanner(experiment, seed)
    if experiment.objective.is_capacity:
        return CapacityPlanner(experiment, seed)
    return BlockPlanner(experiment, seed)


def dry_run(experiment: Experiment, seed: int) -> list[TrialSpec]:
    """The trials, in order, of a run in which every trial is valid and no result changes the plan. For an exploration
    or a capacity search, only the first trials, which do not depend on results."""
    if experiment.explores:
        return Explorer(experiment, seed).blind_trials()
    planner = planner_for(experiment, seed)
    trials: list[TrialSpec] = []
    # Trials of a capacity search that measured nothing are tried again; those of blocks are not.
    while (spec := planner.ask()) is not None and spec.attempt == 1:
        trials.append(spec)
        planner.tell(result_of(spec, "measured"))
    return trials
