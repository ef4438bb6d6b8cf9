"""Which trial comes next, in randomised complete blocks: each block runs every live setting once, in random order.

In: an experiment, a seed, results told one by one. Out: the next `TrialSpec`, or None at the end. The same seed and the
same results give the same trials, so a planner is rebuilt after a kill by telling it what is on disk. Random order
within blocks lets the machine's drift fall on all settings alike (RMIT: Abedi & Brecht 2017). No I/O here.
"""

from __future__ import annotations

from collections.abc import Mapping

from powerband.analyze.settings.compare import Progress
from powerband.model.experiment import Experiment
from powerband.model.plan import Setting, TrialSpec
from powerband.model.results import TrialResult
from powerband.search.trials import BlockTrials


class BlockPlanner:
    """Ask for a trial, run it, tell its result: as many blocks as `measure.repeats` says, or as end within the budget.
    What becomes of invalid trials and of settings that only fail: see `BlockTrials`."""

    def __init__(self, experiment: Experiment, seed: int) -> None:
        self._settings = experiment.settings()
        self._trials = BlockTrials(experiment, seed, self._settings)
        self._blocks_begun = 0
        self._blocks = experiment.measure.repeats

    @property
    def left(self) -> Mapping[Setting, str]:
        """Settings that are no longer tried, with the reason."""
        return self._trials.left

    @property
    def planned_total(self) -> int:
        """Trials of the run as far as known: told, in flight, and still to come without further retries."""
        return self._trials.told + self._trials.waiting + len(self._live) * (self._blocks - self._blocks_begun)

    @property
    def progress(self) -> Progress:
        return Progress(self.planned_total - self._trials.told, self.left)

    @property
    def block_ended(self) -> bool:
        """Whether the last result told was the last of its block."""
        return self._trials.idle and self._trials.told > 0

    def ask(self) -> TrialSpec | None:
        """The next trial; None when the plan is done."""
        if self._trials.idle and self._blocks_begun < self._blocks:
            self._trials.begin(self._blocks_begun, self._live)
            self._blocks_begun += 1
        return self._trials.ask()

    def tell(self, result: TrialResult) -> None:
        """What became of the trial asked for last."""
        self._trials.tell(result)
        if self._trials.idle and not self._trials.fits(len(self._live)):
            self._blocks = self._blocks_begun

    @property
    def _live(self) -> list[Setting]:
        return [setting for setting in self._settings if setting not in self._trials.left]
