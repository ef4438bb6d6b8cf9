"""Plans a race in a space that is too large to race whole: an exploration, then a race of its finalists.

In: an experiment, a seed, results one by one. Out: the next `TrialSpec`, or None at the end. This module only joins
`Explorer` and `RacePlanner`; the exploration passes nothing but the finalists to the race. No I/O here.
"""

from __future__ import annotations

from dataclasses import replace

from powerband.analyze.settings.compare import Progress
from powerband.model.experiment import Experiment
from powerband.model.plan import Setting, TrialSpec
from powerband.model.results import Exploration, TrialResult
from powerband.search.explore import Explorer
from powerband.search.race import RacePlanner


class ExploringRace:
    """Usage: `ask` for a trial, run it, pass its result to `tell` before the next `ask`."""

    def __init__(self, experiment: Experiment, seed: int) -> None:
        self._experiment = experiment
        self._seed = seed
        self._explorer = Explorer(experiment, seed)
        self._finalists: list[Setting] = []
        self._explored = False
        self._race: RacePlanner | None = None

    @property
    def planned_total(self) -> int:
        if self._race is not None:
            return self._race.planned_total
        told = len(self._explorer.told)
        if self._explored:
            return told
        design = self._experiment.design
        raced = design.finalists * self._experiment.measure.repeats + 2 * design.confirm
        return told + self._explorer.to_come + raced

    @property
    def block_ended(self) -> bool:
        """True if the last result received completed a block of the race."""
        return self._race is not None and self._race.block_ended

    @property
    def progress(self) -> Progress:
        settings = len(self._experiment.settings())
        exploration = Exploration(settings, self._explorer.tried, len(self._finalists))
        race = Progress() if self._race is None else self._race.progress
        to_come = self.planned_total - len(self._explorer.told) if self._race is None else race.to_come
        return replace(race, to_come=to_come, exploration=exploration, raced=tuple(self._finalists))

    def ask(self) -> TrialSpec | None:
        """The next trial; None when the race is over and its winner confirmed, or if no setting is fit to race."""
        if not self._explored:
            spec = self._explorer.ask()
            if spec is not None:
                return spec
            self._begin_race()
        return None if self._race is None else self._race.ask()

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
            left_ns = max(1, design.budget_ns - round(explorer.spent_s * 1e9))
            design = design.model_copy(update={"budget_ns": left_ns})
        rest = self._experiment.model_copy(update={"design": design})
        self._race = RacePlanner(rest, self._seed, settings=self._finalists, told=len(explorer.told))
