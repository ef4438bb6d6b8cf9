"""Plans the search for each setting's capacity, in rounds: each round runs every live setting at one rate.

In: an experiment, a seed, results one by one. Out: the next `TrialSpec`, or None at the end. The first round measures
every setting under a closed load; after that, each trial's rate is the one that gives most information about the
setting's capacity. Random order within rounds spreads the machine's drift evenly over all settings. The trials depend
only on the seed and the results. No I/O here; `analyze/settings/capacity.py` interprets the results.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass

from powerband.analyze.settings.capacities import CapacityContest, contest_of
from powerband.analyze.settings.capacity import TRIALS_PER_REPEAT, Search, holds, search_of
from powerband.analyze.settings.compare import Progress
from powerband.analyze.trial.faults import fatal_codes
from powerband.analyze.trial.honesty import SUBJECT_CODES
from powerband.base.machine import Noise
from powerband.model.experiment import Experiment
from powerband.model.plan import Setting, Stage, TrialSpec
from powerband.model.results import TrialResult, Verdict


@dataclass(frozen=True)
class _Turn:
    setting: Setting
    attempt: int = 1
    rate_per_s: float | None = None  # None: chosen when its turn comes


class CapacityPlanner:
    """Plans the rounds. Usage: `ask` for a trial, run it, pass its result to `tell`; then `ask` again. One round at a
    time is in flight: a capacity is that of one machine, so two nodes must not share a search.

    Sampling of a setting pauses once its capacity is known closely enough: to half the equivalence margin, so that two
    equal settings can be shown equivalent, or to the margin if there is only one setting. A setting is eliminated if
    the SLO holds at none of the rates or at every rate that the load generator can offer, if it is certainly worse than
    the leader by more than the margin, or if it cannot be measured. Invalid trials are repeated at the end of their
    round, like those of a block."""

    confirming = None

    def __init__(self, experiment: Experiment, seed: int) -> None:
        self._experiment = experiment
        self._seed = seed
        self._settings = experiment.settings()
        self._rounds = 1 + TRIALS_PER_REPEAT * experiment.measure.repeats
        self._retries_left = math.ceil(experiment.measure.retry_budget * len(self._settings) * self._rounds)
        self._results: dict[Setting, list[TrialResult]] = {setting: [] for setting in self._settings}
        self._searches: dict[Setting, Search] = {}
        self._left: dict[Setting, str] = {}  # settings that only fail, with the reason
        self._out: set[Setting] = set()  # all eliminated settings, including those in `_left`
        self._live = list(self._settings)
        self._ended = False
        self._told = 0
        self._round = -1
        self._queue: list[_Turn] = []
        self._retry: list[_Turn] = []
        self._pending: TrialSpec | None = None

    @property
    def left(self) -> Mapping[Setting, str]:
        """Settings that are no longer tried because they only fail, with the reason."""
        return dict(self._left)

    @property
    def planned_total(self) -> int:
        ahead = 0 if self._ended else len(self._live) * (self._rounds - 1 - max(self._round, 0))
        if self._round < 0:
            ahead += len(self._live)
        return self._told + len(self._queue) + len(self._retry) + (self._pending is not None) + ahead

    def left_s(self, noise: Noise, nodes: int = 1) -> float | None:
        """Returns None, since nobody knows how soon the rates will be found."""
        return None

    @property
    def progress(self) -> Progress:
        return Progress(self.planned_total - self._told, self.left)

    @property
    def block_ended(self) -> bool:
        """True if the last result received completed its round."""
        return self._pending is None and not self._queue and not self._retry and self._told > 0

    def ask(self, block: int | None = None) -> TrialSpec | None:
        if block not in (None, self._round):
            return None
        if self._pending is not None:
            assert block is None, "the trial asked for last was not told"
            return None
        if not self._queue:
            self._queue, self._retry = self._retry, []
        if not self._queue and (block is not None or not self._next_round()):
            return None
        turn = self._queue.pop(0)
        stage = Stage.SATURATE if self._round == 0 else Stage.CAPACITY
        rate, window_ns = turn.rate_per_s, None
        if stage is Stage.CAPACITY:
            search = self._search(turn.setting)
            rate = search.next_rate_per_s() if rate is None else rate
            window_ns = search.window_ns(rate)
        self._pending = TrialSpec(
            self._told + 1, self._round, turn.attempt, turn.setting, self._load_seed(), stage, rate, window_ns
        )
        return self._pending

    def tell(self, result: TrialResult) -> None:
        spec, self._pending = self._pending, None
        assert spec is not None and spec.number == result.number, "a result was told that was not asked for"
        self._told += 1
        if result.status == "interrupted":  # also if its node was lost: a round is no block, which would end with it
            self._queue.insert(0, _Turn(spec.setting, spec.attempt, spec.rate_per_s))
            return
        self._results[spec.setting].append(result)
        self._searches.pop(spec.setting, None)
        repeats_itself = bool(fatal_codes(result) & SUBJECT_CODES)
        may_repeat = spec.attempt <= self._experiment.measure.retries and self._retries_left > 0
        may_repeat &= self._round == 0 or self._within_budget(len(self._queue) + len(self._retry) + 1)
        if may_repeat and not repeats_itself and not self._says_something(result):
            self._retries_left -= 1
            self._retry.append(self._again(spec))
        if self._round == 0 and not self._within_budget(len(self._queue) + len(self._retry)):
            self._queue, self._retry, self._ended = [], [], True
        elif self.block_ended:
            self._settle()
            self._ended |= not self._within_budget(len(self._live))

    def _again(self, spec: TrialSpec) -> _Turn:
        """Another attempt at the same rate, unless the rate is now known to exceed what the load generator can
        offer."""
        beyond = spec.rate_per_s is not None and spec.rate_per_s >= self._search(spec.setting).ceiling_per_s
        return _Turn(spec.setting, spec.attempt + 1, None if beyond else spec.rate_per_s)

    def _says_something(self, result: TrialResult) -> bool:
        if result.stage is Stage.SATURATE:
            return result.valid or result.metrics.get("goodput_per_s", 0.0) > 0
        return holds(self._experiment, result) is not None

    def _settle(self) -> None:
        """Ends a round: eliminates settings, pauses those known closely enough, and decides if the search is over."""
        for setting in self._live:
            if self._search(setting).first_look is None:
                problems = [problem.message for result in self._results[setting] for problem in result.problems]
                self._left[setting] = f"gave no rate to begin from: {problems[-1] if problems else 'nothing ended ok'}"
        self._live = [setting for setting in self._live if setting not in self._left]
        if self._round == 0:
            return
        contest = self._contest()
        self._out |= {s for s, search in contest.searches.items() if search.nowhere or search.everywhere}
        self._out |= {*contest.worse_beyond_margin(), *self._left}
        margin = self._experiment.objective.margin
        closely = margin / 2 if len(self._settings) > 1 else margin
        self._live = [s for s in self._live if s not in self._out and not contest.searches[s].narrow(closely)]
        self._ended = self._is_decided(contest)

    def _is_decided(self, contest: CapacityContest) -> bool:
        """True if every other setting is shown worse or equivalent, and the leader's own capacity is known to within
        the margin."""
        if contest.leader is None:
            return not self._live
        verdicts = {contest.verdict(setting) for setting in contest.gaps}
        open_ones = set(contest.searches) - set(contest.gaps) - {contest.leader} - self._out
        leader = contest.searches[contest.leader]
        known = leader.everywhere or leader.narrow(self._experiment.objective.margin)
        return known and not open_ones and verdicts <= {Verdict.WORSE, Verdict.EQUIVALENT}

    def _next_round(self) -> bool:
        self._ended |= not self._within_budget(len(self._live))
        if self._ended or not self._live or self._round + 1 >= self._rounds:
            return False
        self._round += 1
        order = list(self._settings)  # all settings, so that eliminated ones do not change the order of the others
        random.Random(f"{self._seed}/order/{self._round}").shuffle(order)
        self._queue = [_Turn(setting) for setting in order if setting in self._live]
        return True

    def _within_budget(self, trials: int) -> bool:
        """True if this many more trials would end within the budget, at the pace of the trials so far."""
        budget_ns = self._experiment.design.budget_ns
        if budget_ns is None:
            return True
        took = [result.took_s for results in self._results.values() for result in results if result.took_s is not None]
        spent_s = sum(took)
        measure = self._experiment.measure
        least_ns = measure.warmup_min_ns + self._experiment.load.duration_ns
        each_s = spent_s / len(took) if took else least_ns / 1e9
        return spent_s + each_s * trials <= budget_ns / 1e9

    def _search(self, setting: Setting) -> Search:
        """The search of a setting. It is kept until the setting's next result, since it takes milliseconds to make."""
        if setting not in self._searches:
            self._searches[setting] = search_of(self._experiment, setting, self._results[setting])
        return self._searches[setting]

    def _contest(self) -> CapacityContest:
        return contest_of(self._experiment, {setting: self._search(setting) for setting in self._settings})

    def _load_seed(self) -> int:
        """The seed is shared by all settings of a round: at equal rates they get the same arrivals."""
        return random.Random(f"{self._seed}/load/{self._round}").getrandbits(48)
