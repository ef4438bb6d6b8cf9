"""Runs the trials of one block: random order, retries of invalid trials, settings that always fail, time spent.
Planners that work in blocks hold one of these and choose the settings of each block.

In: an experiment, a seed, blocks to begin, results. Out: `TrialSpec`s. No I/O, no comparison of settings.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from powerband.analyze.trial.faults import LIMITED_TRIALS, fatal_codes, limited_by_generator, subjects_own
from powerband.analyze.trial.honesty import SUBJECT_CODES
from powerband.model.experiment import Experiment
from powerband.model.plan import Setting, Stage, TrialSpec
from powerband.model.results import TrialResult


class BlockTrials:
    """`begin` a block, then `ask` and `tell` until it is `idle`; each `ask` must be answered by a `tell` before the
    next.

    An invalid trial is repeated at the end of its block, `retries` times at most and within the run's `retry_budget`. A
    trial in which the server under test answered nothing is not repeated, since the result would be the same. A setting
    that has only ever failed by the server's own fault (never ready, died, answered nothing) is eliminated once a block
    has spent all its attempts on it, or a second block has failed: see `left`. An interrupted trial is repeated at once
    and costs no retry. The first block is cut short once its trials show that it would not end within the budget; a
    later block begins only if it would end within the budget (see `fits`). `told`: number of trials in the run before
    these."""

    def __init__(self, experiment: Experiment, seed: int, settings: Sequence[Setting], *, told: int = 0) -> None:
        self._experiment = experiment
        self._seed = seed
        self._settings = tuple(settings)
        planned = len(self._settings) * experiment.measure.repeats
        self._retries_left = math.ceil(experiment.measure.retry_budget * planned)
        self._left: dict[Setting, str] = {}
        self._measured: set[Setting] = set()
        self.told = told
        self._took_s: list[float] = []
        self._block = -1
        self._stage = Stage.COMPARE
        self._queue: list[tuple[Setting, int]] = []
        self._retry: list[tuple[Setting, int]] = []
        self._faults: Counter[Setting] = Counter()  # failures by the server in this block
        self._limited: Counter[Setting] = Counter()  # by the load engine; repeating picks the slow ones
        self._failures: Counter[Setting] = Counter()  # in all blocks
        self._failed_blocks: Counter[Setting] = Counter()
        self._pending: TrialSpec | None = None

    @property
    def left(self) -> Mapping[Setting, str]:
        """Settings that are no longer tried because they only fail, with the reason."""
        return dict(self._left)

    @property
    def waiting(self) -> int:
        """Number of trials of this block in flight or still to come, without further retries."""
        return len(self._queue) + len(self._retry) + (self._pending is not None)

    @property
    def idle(self) -> bool:
        """True if nothing is in flight and the block begun last is over."""
        return self.waiting == 0

    def begin(self, block: int, live: Collection[Setting], stage: Stage = Stage.COMPARE) -> None:
        """Begins the next block, with the settings in `live` that were not eliminated."""
        assert self.idle, "the last block is not over"
        self._block, self._stage = block, stage
        self._faults.clear()
        order = list(self._settings)  # all settings, so that eliminated ones do not change the order of the others
        random.Random(f"{self._seed}/order/{block}").shuffle(order)
        self._queue = [(setting, 1) for setting in order if setting in live and setting not in self._left]

    def ask(self) -> TrialSpec | None:
        """The next trial of this block; None when it is over."""
        assert self._pending is None, "the trial asked for last was not told"
        if not self._queue:
            self._queue, self._retry = self._retry, []
        if not self._queue:
            return None
        setting, attempt = self._queue.pop(0)
        # All settings of a block share the load's seed: they get the same arrivals.
        load_seed = random.Random(f"{self._seed}/load/{self._block}").getrandbits(48)
        self._pending = TrialSpec(self.told + 1, self._block, attempt, setting, load_seed, self._stage)
        return self._pending

    def tell(self, result: TrialResult) -> None:
        """Accepts the result of the trial returned by the last `ask`."""
        spec, self._pending = self._pending, None
        assert spec is not None and spec.number == result.number, "a result was told that was not asked for"
        self.told += 1
        if result.took_s is not None:
            self._took_s.append(result.took_s)
        if result.status == "interrupted":
            self._queue.insert(0, (spec.setting, spec.attempt))
            return
        self._count(spec, result)
        if self._block == 0 and not self.fits(self.waiting):
            self._queue, self._retry = [], []

    def _count(self, spec: TrialSpec, result: TrialResult) -> None:
        """Counts a valid trial, schedules a retry, or records that the setting only fails."""
        if result.valid:
            self._measured.add(spec.setting)
            return
        self._faults[spec.setting] += subjects_own(result)
        self._limited[spec.setting] += limited_by_generator(result)
        repeats_itself = bool(fatal_codes(result) & SUBJECT_CODES) or self._limited[spec.setting] >= LIMITED_TRIALS
        if spec.attempt <= self._experiment.measure.retries and self._retries_left > 0 and not repeats_itself:
            self._retries_left -= 1
            self._retry.append((spec.setting, spec.attempt + 1))
        elif spec.setting not in self._measured and self._faults[spec.setting] == spec.attempt:
            self._block_failed(spec, result)

    def fits(self, trials: int) -> bool:
        """True if this many more trials, at the average duration so far, end within the experiment's budget."""
        budget_ns = self._experiment.design.budget_ns
        if budget_ns is None or not self._took_s:
            return True
        mean_s = sum(self._took_s) / len(self._took_s)
        return sum(self._took_s) + trials * mean_s <= budget_ns / 1e9

    def _block_failed(self, spec: TrialSpec, result: TrialResult) -> None:
        """Records that every attempt of a setting in this block failed by the server's fault."""
        self._failed_blocks[spec.setting] += 1
        self._failures[spec.setting] += spec.attempt
        out_of_attempts = spec.attempt > max(1, self._experiment.measure.retries)
        if out_of_attempts or self._failed_blocks[spec.setting] >= 2:
            reason = next((problem.message for problem in result.problems if problem.fatal), "it failed")
            self._left[spec.setting] = f"left after {self._failures[spec.setting]} failed attempts: {reason}"
