"""Plans the trials within blocks: random order, retries of invalid trials, settings that always fail, time spent.
Planners that work in blocks hold a `BlockTrials` and choose the settings of each block. On one machine one block at a
time is in flight, on several nodes several are.

In: an experiment, a seed, blocks to begin, results. Out: `TrialSpec`s. No I/O, no comparison of settings.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from powerband.analyze.trial.faults import (
    LIMITED_TRIALS,
    fatal_codes,
    limited_by_generator,
    machine_disturbed,
    shown_codes,
    subjects_own,
    was_too_short,
)
from powerband.analyze.trial.honesty import REPEATED_CODES, UNCHECKED
from powerband.model.experiment import Experiment
from powerband.model.plan import REVISION, Setting, Stage, TrialSpec
from powerband.model.results import TrialResult
from powerband.search.in_flight import Attempt, Block, InFlight

REVISION_FAILURES = 5
"""A revision that only fails is tried so often: of two that fail 40 % of their starts, two show little. Five show that
it is worse than one that failed one start of four."""
SOON = 0.1
"""A block is about to end if its last trial is due within this share of a trial's time. Arbitrary: nodes that began at
the same time differ by less, and a node that waits so long loses little."""


class Further(NamedTuple):
    """Blocks that may follow: how many `blocks`, the `trials` of each, and the measured time of these (`window_ns`, as
    in `BlockTrials.begin`)."""

    blocks: int
    trials: int
    window_ns: int | None = None


@dataclass
class OpenBlock(Block):
    """A block in flight. `window_ns`: the measured time of its trials; None: that of the experiment. `faults`: by
    setting, trials that failed by the server's fault; `limited`: those in which the load engine was the limit, since
    repeating such trials until one is valid would favour slow ones. `results`: of its trials that ended. `lost`: the
    node that ran the block is gone."""

    window_ns: int | None = None
    faults: Counter[Setting] = field(default_factory=Counter)
    limited: Counter[Setting] = field(default_factory=Counter)
    results: list[TrialResult] = field(default_factory=list)
    lost: bool = False


class BlockTrials(InFlight[OpenBlock]):
    """The trials of a planner's blocks. Usage: `begin` a block, then `ask` and `tell` until it is over; each block has
    at most one trial in flight. `ended` holds the blocks that ended with the last `tell`.

    An invalid trial is repeated at the end of its block, `retries` times at most and within the run's `retry_budget`. A
    trial in which the server under test answered nothing is not repeated, since the result would be the same. A setting
    that has only ever failed by the server's own fault (never ready, died, answered nothing) is eliminated once a block
    has spent all its attempts on it, or a second block has failed: see `left`. An interrupted trial is repeated at once
    and costs no retry; a trial whose node was lost ends its block, since a comparison stays within a node. After the
    first block, a block begins, and a trial is repeated, only if that would end within the budget (see `fits`). That
    block, and those up to the first of full trials, are cut short once their trials show that they would not end within
    it (see `_goes_on`). `told`: number of trials in the run before these; `nodes`: how many nodes run trials."""

    def __init__(
        self, experiment: Experiment, seed: int, settings: Sequence[Setting], *, told: int = 0, nodes: int = 1
    ) -> None:
        super().__init__(experiment, seed, told)
        self._settings = tuple(settings)
        self._nodes = nodes
        planned = len(self._settings) * experiment.measure.repeats
        self._retries_left = math.ceil(experiment.measure.retry_budget * planned)
        self._left: dict[Setting, str] = {}
        self._measured: set[Setting] = set()
        self.spent_s = 0.0  # total time of the finished trials
        self._failed_s = 0.0  # of these, the time of those that were not measured
        self._ended_before = 0  # blocks
        self._pace_known = False  # a block has ended in which a full trial was measured
        self.ended: list[OpenBlock] = []
        self._failures: Counter[Setting] = Counter()  # in all blocks
        self._failed_blocks: Counter[Setting] = Counter()

    @property
    def left(self) -> Mapping[Setting, str]:
        """Settings that are no longer tried because they only fail, with the reason."""
        return dict(self._left)

    def ends_soon(self, stage: Stage) -> bool:
        """True if a block in flight of a stage is about to end (`SOON`)."""
        last = [block for block in self._open.values() if block.stage is stage and block.pending and block.waiting == 1]
        due = ((block.at_s - self.wall_s, self.lasts_s(block.window_ns)) for block in last)
        return any(abs(since_s + lasts_s) <= SOON * lasts_s for since_s, lasts_s in due)

    def in_flight(self, stage: Stage) -> list[int]:
        """The blocks in flight of a stage."""
        return [block.number for block in self._open.values() if block.stage is stage]

    def partial(self, stage: Stage) -> list[TrialResult]:
        """The results so far of the blocks in flight of a stage."""
        return [result for block in self._open.values() if block.stage is stage for result in block.results]

    def begin(
        self, block: int, live: Collection[Setting], stage: Stage = Stage.COMPARE, window_ns: int | None = None
    ) -> None:
        """Begins the next block, with the settings in `live` that were not eliminated. `window_ns`: the measured time
        of its trials; None: that of the experiment."""
        order = self._order(block, self._settings)
        queue = [Attempt(setting) for setting in order if setting in live and setting not in self._left]
        if queue:
            self._open[block] = OpenBlock(block, stage, queue, self.wall_s, window_ns=window_ns)

    def ask(self, block: int | None = None) -> TrialSpec | None:
        """The next trial of a block; None when the block is over. Without `block`: that of the first block in flight
        that has no trial in flight; None if there is none."""
        asked = self._free(block)
        return None if asked is None else self._begin_trial(asked, self._take(asked), asked.window_ns)

    def tell(self, result: TrialResult) -> None:
        """Accepts the result of a trial in flight."""
        block, spec = self._end_trial(result)
        self.ended = []
        block.results.append(result)
        if result.took_s is not None:
            self.spent_s += result.spent_s
            self._failed_s += result.took_s if result.status != "measured" else 0.0
        if result.lost:
            block.lost = True
            block.queue, block.retry = [], []
        elif result.status == "interrupted":
            block.queue.insert(0, Attempt(spec.setting, spec.attempt))
            return
        else:
            self._count(block, spec, result)
        if not self._pace_known and not self._goes_on(block):
            self.cut()
        self._end_blocks()

    def cut(self, keep: Collection[Setting] = (), *, confirming: bool = True) -> None:
        """Drops the trials that are still to come, except those of the settings in `keep`. `confirming`: False to keep
        the trials that confirm, too."""
        for block in self._open.values():
            if confirming or block.stage is not Stage.CONFIRM:
                block.keep(keep)
        self._end_blocks()

    def _end_blocks(self) -> None:
        over = self._close()
        self.ended += over
        self._ended_before += len(over)
        full = [result for block in over if block.stage is not Stage.SCREEN for result in block.results]
        self._pace_known |= any(result.status == "measured" for result in full)

    def _count(self, block: OpenBlock, spec: TrialSpec, result: TrialResult) -> None:
        """Counts a valid trial, schedules a retry, or records that the setting only fails."""
        if result.valid:
            self._measured.add(spec.setting)
            return
        unchecked = UNCHECKED in fatal_codes(result) and not machine_disturbed(result)
        block.faults[spec.setting] += unchecked or subjects_own(result)
        block.limited[spec.setting] += limited_by_generator(result)
        unanswered = unchecked or bool(shown_codes(result) & REPEATED_CODES) or was_too_short(result)
        repeats_itself = unanswered or block.limited[spec.setting] >= LIMITED_TRIALS
        if spec.attempt <= self._experiment.measure.retries and self._retries_left > 0 and not repeats_itself:
            block.retry.append(Attempt(spec.setting, spec.attempt + 1))
            if not self._ended_before or self.fits():
                self._retries_left -= 1
                return
            block.retry.pop()
        if spec.setting not in self._measured and block.faults[spec.setting] == spec.attempt:
            self._block_failed(spec, result)

    def fits(self, *further: Further) -> bool:
        """True if the blocks in flight, and further ones begun one after the other, end within the experiment's budget.
        Each trial is taken to last `lasts_s`. Nodes share the trials, but a block runs on one node."""
        return self._end_s(*further) <= self.budget_s

    def _goes_on(self, block: OpenBlock) -> bool:
        """True if a block begun before it was known how long full trials take may go on: its next trial must end within
        the budget, and so must the whole block, but for the time that failed trials took."""
        coming = (block.queue or block.retry)[:1]
        before_s = [each.took_s or 0.0 for each in block.results if (each.setting, each.attempt + 1, None) in coming]
        next_s = max([self.lasts_s(block.window_ns), *before_s]) if coming else 0.0
        return max(self._end_s() - self._failed_s, self.wall_s + next_s) <= self.budget_s

    def _end_s(self, *further: Further) -> float:
        """When the blocks in flight, and further ones, will end; 0 before the first trial has."""
        if not self.spent_s:
            return 0.0
        own_s = [block.waiting * self.lasts_s(block.window_ns) for block in self._open.values()]
        to_come = [(each.blocks, each.trials * self.lasts_s(each.window_ns)) for each in further]
        shared_s = (self.spent_s + sum(own_s) + sum(blocks * each_s for blocks, each_s in to_come)) / self._nodes
        begun_s = (block.at_s + each_s for block, each_s in zip(self._open.values(), own_s, strict=True))
        further_s = self.wall_s + sum(math.ceil(blocks / self._nodes) * each_s for blocks, each_s in to_come)
        return max(shared_s, further_s, *begun_s)

    def _block_failed(self, spec: TrialSpec, result: TrialResult) -> None:
        """Records that every attempt of a setting in this block failed by the server's fault."""
        self._failed_blocks[spec.setting] += 1
        self._failures[spec.setting] += spec.attempt
        out_of_attempts = spec.attempt > max(1, self._experiment.measure.retries)
        if REVISION in spec.setting.as_dict():
            enough = self._failures[spec.setting] >= REVISION_FAILURES
        else:
            enough = out_of_attempts or self._failed_blocks[spec.setting] >= 2
        if enough:
            reason = next((problem.message for problem in result.problems if problem.fatal), "it failed")
            self._left[spec.setting] = f"left after {self._failures[spec.setting]} failed attempts: {reason}"
            self._keep({*self._settings} - {spec.setting})
