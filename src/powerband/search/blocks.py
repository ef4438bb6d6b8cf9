"""Plans trials in randomised complete blocks: each block runs every live setting once, in random order.

In: an experiment, a seed, results one by one. Out: the next `TrialSpec`, or None at the end. The trials depend only on
the seed and the results, so after a kill the planner is rebuilt by replaying the results on disk. Random order within
blocks spreads the machine's drift evenly over all settings (RMIT: Abedi & Brecht 2017). No I/O here.
"""

from __future__ import annotations

from collections.abc import Mapping

from powerband.analyze.settings.compare import Progress
from powerband.base.machine import Noise
from powerband.model.experiment import Experiment
from powerband.model.plan import Setting, TrialSpec
from powerband.model.results import TrialResult
from powerband.search.trials import BlockTrials, Further


class BlockPlanner:
    """Plans `measure.repeats` blocks, or as many as end within the budget. Usage: `ask` for a trial, run it, pass its
    result to `tell`. `BlockTrials` describes how invalid trials and settings that always fail are treated. `nodes`: how
    many nodes run trials."""

    confirming = None

    def __init__(self, experiment: Experiment, seed: int, *, nodes: int = 1) -> None:
        self._settings = experiment.settings()
        self._trials = BlockTrials(experiment, seed, self._settings, nodes=nodes)
        self._blocks_begun = 0
        self._blocks = experiment.measure.repeats

    @property
    def left(self) -> Mapping[Setting, str]:
        """Settings that are no longer tried because they only fail, with the reason."""
        return self._trials.left

    @property
    def planned_total(self) -> int:
        return self._trials.told + self._trials.waiting + len(self._live) * (self._blocks - self._blocks_begun)

    def left_s(self, noise: Noise, nodes: int = 1) -> float | None:
        if not self._trials.spent_s:
            return None
        to_come_s = self._trials.lasts_s(None) * (self.planned_total - self._trials.told)
        return min(self._trials.budget_left_s, to_come_s / nodes)

    @property
    def progress(self) -> Progress:
        return Progress(self.planned_total - self._trials.told, self.left)

    @property
    def block_ended(self) -> bool:
        return bool(self._trials.ended)

    def ask(self, block: int | None = None) -> TrialSpec | None:
        if (spec := self._trials.ask(block)) is not None or block is not None:
            return spec
        if self._blocks_begun >= self._blocks:
            return None
        self._trials.begin(self._blocks_begun, self._live)
        self._blocks_begun += 1
        return self._trials.ask()

    def tell(self, result: TrialResult) -> None:
        self._trials.tell(result)
        self._blocks += sum(block.lost for block in self._trials.ended)  # each is run again elsewhere
        if self._trials.ended and not self._trials.fits(Further(1, len(self._live))):
            self._blocks = self._blocks_begun

    @property
    def _live(self) -> list[Setting]:
        return [setting for setting in self._settings if setting not in self._trials.left]
