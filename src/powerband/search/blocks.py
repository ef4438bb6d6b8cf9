"""Which trial comes next, in randomised complete blocks: each block runs every live setting once, in random order.

In: an experiment, a seed, results told one by one. Out: the next `TrialSpec`, or None at the end. The same seed and the
same results give the same trials, so a planner is rebuilt after a kill by telling it what is on disk. Random order
within blocks lets the machine's drift fall on all settings alike (RMIT: Abedi & Brecht 2017). No I/O here.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping

from powerband.analyze.compare import Progress
from powerband.analyze.faults import fatal_codes, subjects_own
from powerband.analyze.honesty import SUBJECT_CODES
from powerband.analyze.results import TrialResult
from powerband.experiment import Experiment
from powerband.plan import Setting, TrialSpec


class BlockPlanner:
    """Ask for a trial, run it, tell its result. Each `ask` must be answered by a `tell` before the next.

    An invalid trial is repeated at the end of its block, `retries` times at most and within the run's
    `retry_budget`; one in which the subject answered nothing is not, since it would only repeat itself. A setting that
    has only ever failed by the subject's own fault (never ready, died, answered nothing) leaves once a block has spent
    all its attempts so, or a second block has failed: see `left`. An interrupted trial is repeated at once and costs no
    retry."""

    def __init__(self, experiment: Experiment, seed: int) -> None:
        self._experiment = experiment
        self._seed = seed
        self._settings = experiment.settings()
        self._repeats = experiment.measure.repeats
        planned = len(self._settings) * self._repeats
        self._retries_left = math.ceil(experiment.measure.retry_budget * planned)
        self._left: dict[Setting, str] = {}
        self._measured: set[Setting] = set()
        self._told = 0
        self._block = -1
        self._queue: list[tuple[Setting, int]] = []
        self._retry: list[tuple[Setting, int]] = []
        self._faults: Counter[Setting] = Counter()  # failures by the subject in this block
        self._failures: Counter[Setting] = Counter()  # in all blocks
        self._failed_blocks: Counter[Setting] = Counter()
        self._pending: TrialSpec | None = None

    @property
    def left(self) -> Mapping[Setting, str]:
        """Settings that are no longer tried, with the reason."""
        return dict(self._left)

    @property
    def planned_total(self) -> int:
        """Trials of the run as far as known: told, in flight, and still to come without further retries."""
        live = sum(1 for setting in self._settings if setting not in self._left)
        ahead = live * (self._repeats - 1 - max(self._block, 0)) + (live if self._block < 0 else 0)
        return self._told + len(self._queue) + len(self._retry) + (self._pending is not None) + ahead

    @property
    def progress(self) -> Progress:
        return Progress(self.planned_total - self._told, self.left)

    @property
    def block_ended(self) -> bool:
        """Whether the last result told was the last of its block."""
        return self._pending is None and not self._queue and not self._retry and self._told > 0

    def ask(self) -> TrialSpec | None:
        """The next trial; None when the plan is done."""
        assert self._pending is None, "the trial asked for last was not told"
        if not self._queue:
            self._queue, self._retry = self._retry, []
        if not self._queue and not self._next_block():
            return None
        setting, attempt = self._queue.pop(0)
        self._pending = TrialSpec(self._told + 1, self._block, attempt, setting, self._load_seed())
        return self._pending

    def tell(self, result: TrialResult) -> None:
        """What became of the trial asked for last."""
        spec, self._pending = self._pending, None
        assert spec is not None and spec.number == result.number, "a result was told that was not asked for"
        self._told += 1
        if result.status == "interrupted":
            self._queue.insert(0, (spec.setting, spec.attempt))
            return
        if result.valid:
            self._measured.add(spec.setting)
            return
        self._faults[spec.setting] += subjects_own(result)
        repeats_itself = bool(fatal_codes(result) & SUBJECT_CODES)
        if spec.attempt <= self._experiment.measure.retries and self._retries_left > 0 and not repeats_itself:
            self._retries_left -= 1
            self._retry.append((spec.setting, spec.attempt + 1))
        elif spec.setting not in self._measured and self._faults[spec.setting] == spec.attempt:
            self._block_failed(spec, result)

    def _block_failed(self, spec: TrialSpec, result: TrialResult) -> None:
        """Every attempt of a setting in this block failed by the subject's fault."""
        self._failed_blocks[spec.setting] += 1
        self._failures[spec.setting] += spec.attempt
        out_of_attempts = spec.attempt > max(1, self._experiment.measure.retries)
        if out_of_attempts or self._failed_blocks[spec.setting] >= 2:
            reason = next((problem.message for problem in result.problems if problem.fatal), "it failed")
            self._left[spec.setting] = f"left after {self._failures[spec.setting]} failed attempts: {reason}"

    def _next_block(self) -> bool:
        live = [setting for setting in self._settings if setting not in self._left]
        if self._block + 1 >= self._repeats or not live:
            return False
        self._block += 1
        self._faults.clear()
        order = list(self._settings)  # all of them, so that who left does not change the order of the others
        random.Random(f"{self._seed}/order/{self._block}").shuffle(order)
        self._queue = [(setting, 1) for setting in order if setting not in self._left]
        return True

    def _load_seed(self) -> int:
        """The same for every setting of a block: they meet the same arrivals."""
        return random.Random(f"{self._seed}/load/{self._block}").getrandbits(48)
