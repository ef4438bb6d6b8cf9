"""Plans a race in a space that is too large to race whole: an exploration, then a race of its finalists.

In: an experiment, a seed, results one by one. Out: the next `TrialSpec`, or None at the end. This module only joins
`Explorer` and `RacePlanner`; the exploration passes nothing but the finalists to the race. No I/O here.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from powerband.analyze.settings.compare import Progress
from powerband.base.machine import Noise
from powerband.model.experiment import Experiment
from powerband.model.plan import Setting, TrialSpec
from powerband.model.results import Exploration, TrialResult
from powerband.search.explore import Explorer
from powerband.search.outlook import simulate_untried
from powerband.search.planner import Confirming
from powerband.search.race import RacePlanner


class ExploringRace:
    """A planner that explores and then races. Usage: `ask` for a trial, run it, pass its result to `tell`."""

    def __init__(self, experiment: Experiment, seed: int, *, nodes: int = 1) -> None:
        self._experiment = experiment
        self._nodes = nodes
        self._seed = seed
        self._explorer = Explorer(experiment, seed, nodes=nodes)
        self._finalists: list[Setting] = []
        self._explored = False
        self._race: RacePlanner | None = None

    @property
    def planned_total(self) -> int:
        if self._race is not None:
            return self._race.planned_total
        told = self._explorer.told
        if self._explored:
            return told
        raced = self._finalists_most * self._experiment.measure.repeats + 2 * self._experiment.design.confirm
        return told + self._explorer.to_come + raced

    @property
    def _finalists_most(self) -> int:
        """The most settings that may race, until the exploration is over."""
        return min(self._experiment.design.finalists, self._explorer.tried + self._explorer.to_come)

    def left_s(self, noise: Noise, nodes: int = 1) -> float | None:
        if self._race is not None and (left_s := self._race.left_s(noise, nodes)) is not None:
            return left_s
        explorer = self._explorer
        if not explorer.wall_s:
            return None
        each_s = explorer.lasts_s(None)
        to_come = 0 if self._explored else explorer.to_come
        settings = len(self._finalists) if self._explored else self._finalists_most
        played = simulate_untried(self._experiment, settings, noise, explorer.around_s)
        race_s = np.median(played.times_s(each_s, each_s, each_s))
        return min(explorer.budget_left_s, (each_s * to_come + float(race_s) * (settings > 1)) / nodes)

    @property
    def block_ended(self) -> bool:
        """True if the last result received completed a block of the race."""
        return self._race is not None and self._race.block_ended

    @property
    def confirming(self) -> Confirming | None:
        return None if self._race is None else self._race.confirming

    @property
    def progress(self) -> Progress:
        settings = len(self._experiment.settings())
        exploration = Exploration(settings, self._explorer.tried, len(self._finalists))
        race = Progress() if self._race is None else self._race.progress
        to_come = self.planned_total - self._explorer.told if self._race is None else race.to_come
        return replace(race, to_come=to_come, exploration=exploration, raced=tuple(self._finalists))

    def ask(self, block: int | None = None) -> TrialSpec | None:
        """The next trial; None when the race is over and its winner confirmed, or if no setting is fit to race."""
        if not self._explored:
            spec = self._explorer.ask(block)
            if spec is not None or block is not None or self._explorer.waiting:
                return spec
            self._begin_race()
        return None if self._race is None else self._race.ask(block)

    def tell(self, result: TrialResult) -> None:
        (self._explorer if self._race is None else self._race).tell(result)

    def _begin_race(self) -> None:
        self._explored = True
        explorer = self._explorer
        self._finalists = explorer.finalists()
        if not self._finalists:
            return
        design = self._experiment.design
        if design.budget_ns is not None:
            design = design.model_copy(update={"budget_ns": max(1, round(explorer.budget_left_s * 1e9))})
        rest = self._experiment.model_copy(update={"design": design})
        self._race = RacePlanner(rest, self._seed, settings=self._finalists, told=explorer.told, nodes=self._nodes)
