"""Keeps the blocks that a planner has in flight, and the time by the clock. In: blocks, results. Out: `TrialSpec`s. Not
here: which blocks begin, and what a result means for the trials to come."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from powerband.loads import kind_of
from powerband.model.experiment import Experiment
from powerband.model.plan import Setting, Stage, TrialSpec
from powerband.model.results import TrialResult

_START_S = 1.0  # of a lean server, with its stop: what a trial takes beside warm-up and window, until one has shown it


class Attempt(NamedTuple):
    """A trial to come of a `setting`. `number`: 1 for the first attempt, 2 for the first repeat. `rate_per_s`: None if
    it has none, or if it is chosen when the trial is asked for."""

    setting: Setting
    number: int = 1
    rate_per_s: float | None = None


@dataclass
class Block:
    """A block in flight. `number`: its place among the blocks of the run, from 0; `stage`: the purpose of its trials.
    `queue`, then `retry`: trials to come. `pending`: the trial whose result is awaited. `at_s`: the planner's `wall_s`
    when that trial was asked for, or the last one ended."""

    number: int
    stage: Stage
    queue: list[Attempt]
    at_s: float
    retry: list[Attempt] = field(default_factory=list)
    pending: TrialSpec | None = None

    @property
    def waiting(self) -> int:
        """Number of trials in flight or still to come, without further retries."""
        return len(self.queue) + len(self.retry) + (self.pending is not None)

    def keep(self, settings: Collection[Setting]) -> None:
        """Drops the trials to come of all other settings."""
        self.queue = [each for each in self.queue if each.setting in settings]
        self.retry = [each for each in self.retry if each.setting in settings]


B = TypeVar("B", bound=Block)


class InFlight(Generic[B]):
    """A planner's blocks in flight, each with one trial in flight at most. `told`: number of results received in the
    run.

    `wall_s`: the time since the first trial was asked for, as far as the trials that ended show it: those that ran side
    by side on several nodes count once."""

    def __init__(self, experiment: Experiment, seed: int, told: int = 0) -> None:
        self._experiment = experiment
        self._seed = seed
        self.told = self._asked = told
        self.wall_s = 0.0
        self._open: dict[int, B] = {}
        self._lasted_s: dict[int | None, list[float]] = {}  # the measured trials, by their `window_ns`
        self._short_ns = experiment.screened_ns  # that of short trials

    @property
    def budget_s(self) -> float:
        """The run's budget, in s; infinite without one."""
        return self._experiment.design.budget_s

    @property
    def budget_left_s(self) -> float:
        """The rest of the budget, in s; infinite without one."""
        return max(0.0, self.budget_s - self.wall_s)

    @property
    def waiting(self) -> int:
        """Number of trials of the blocks in flight that are running or still to come, without further retries."""
        return sum(block.waiting for block in self._open.values())

    def lasts_s(self, window_ns: int | None) -> float:
        """The mean time of the measured trials with this measured time; if there is none, the mean of all others,
        corrected by the difference of the measured times. Short trials are among those only until a full one was
        measured, since they hardly warm up. Before the first: what a lean server would take. A trial that failed says
        nothing, since most of its time is a timeout."""
        if took_s := self._lasted_s.get(window_ns):
            return sum(took_s) / len(took_s)
        load = self._experiment.load
        full = {other: took_s for other, took_s in self._lasted_s.items() if other is None or other != self._short_ns}
        others = (full or self._lasted_s).items()
        rest_s = [each - (other or load.least_duration_ns) / 1e9 for other, took_s in others for each in took_s]
        if not rest_s:
            rest_s = [_START_S + kind_of(self._experiment).warmup(self._experiment, load).shortest_ns / 1e9]
        return sum(rest_s) / len(rest_s) + (window_ns or load.least_duration_ns) / 1e9

    @property
    def around_s(self) -> float:
        """The time in s that a trial takes besides its measured time, by `lasts_s`."""
        return self.lasts_s(None) - self._experiment.load.least_duration_ns / 1e9

    def _order(self, block: int, settings: Collection[Setting]) -> list[Setting]:
        """The settings in the random order of this block: take all, so that those that leave do not change it."""
        order = list(settings)
        random.Random(f"{self._seed}/order/{block}").shuffle(order)
        return order

    def _free(self, block: int | None) -> B | None:
        """The block in flight of this number, or the first that has no trial in flight; None if there is none."""
        if block is None:
            return next((each for each in self._open.values() if each.pending is None), None)
        return self._open.get(block)

    def _take(self, block: B) -> Attempt:
        """Takes the next trial out of the block's queue."""
        assert block.pending is None, "the trial asked for last was not told"
        if not block.queue:
            block.queue, block.retry = block.retry, []
        return block.queue.pop(0)

    def _begin_trial(self, block: B, taken: Attempt, window_ns: int | None = None) -> TrialSpec:
        """Begins the trial that was taken from the block."""
        self._asked += 1
        block.at_s = self.wall_s
        # All settings of a block, or of an exploration, share the load's seed: they get the same arrivals.
        load = block.stage.value if block.stage is Stage.EXPLORE else block.number
        seed = random.Random(f"{self._seed}/load/{load}").getrandbits(48)
        block.pending = TrialSpec(
            self._asked, block.number, taken.number, taken.setting, seed, block.stage, taken.rate_per_s, window_ns
        )
        return block.pending

    def _end_trial(self, result: TrialResult) -> tuple[B, TrialSpec]:
        """Ends the trial of this result; returns its block and itself."""
        block = self._open.get(result.block)
        assert block is not None and block.pending is not None, "a result was told that was not asked for"
        spec, block.pending = block.pending, None
        assert spec.number == result.number, "a result was told that was not asked for"
        self.told += 1
        if result.status == "measured" and result.took_s is not None:
            self._lasted_s.setdefault(spec.window_ns, []).append(result.took_s)
        block.at_s += result.spent_s
        self.wall_s = max(self.wall_s, block.at_s)
        return block, spec

    def _keep(self, settings: Collection[Setting]) -> None:
        """Drops the trials to come of all other settings."""
        for block in self._open.values():
            block.keep(settings)

    def _close(self) -> list[B]:
        """Removes the blocks that are over, and returns them."""
        over = [block for block in self._open.values() if not block.waiting]
        for block in over:
            del self._open[block.number]
        return over
