"""Plans the search for each setting's capacity, in rounds: each round runs every live setting at one rate.

In: an experiment, a seed, results one by one. Out: the next `TrialSpec`, or None at the end. The first round on each
node measures every setting under a closed load; after that, each trial's rate is the one that gives most information
about the setting's capacity. Random order within rounds spreads the machine's drift evenly over all settings. The
trials depend only on the seed and the results. No I/O here; `analyze/settings/capacity.py` interprets the results.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from powerband.analyze.settings.capacities import CapacityContest, contest_of, on_even_nodes
from powerband.analyze.settings.capacity import TRIALS_PER_REPEAT, Search, holds, search_of
from powerband.analyze.settings.compare import Progress
from powerband.analyze.trial.faults import fatal_codes, spoilt_by_others
from powerband.analyze.trial.honesty import REPEATED_CODES
from powerband.base.machine import Noise
from powerband.model.experiment import Experiment
from powerband.model.plan import Setting, Stage, TrialSpec
from powerband.model.results import TrialResult, Verdict
from powerband.search.in_flight import Attempt, Block, InFlight

IN_TURN = 4
"""Each of several nodes has at least so many rounds after its first. With three each, eight nodes gave intervals a
fifth wider than one node does: the first trials of all begin before any has shown anything."""

LONGER = 0.35
"""On several nodes a window is longer than `load.duration` by at most this share of those that each node still has
ahead. Arbitrary: long windows come early, and at the end no node waits for one."""


@dataclass
class _Round(Block):
    """A round in flight. `took_s`: durations of its trials."""

    took_s: list[float] = field(default_factory=list)


class CapacityPlanner(InFlight[_Round]):
    """Plans the rounds of a capacity search. Usage: `ask` for a trial, run it, pass its result to `tell`; then `ask`
    again. `nodes`: how many nodes run rounds, side by side. If a node is lost, its round continues on another.
    Differences between nodes count like those between starts: a capacity is the rate that 95 % of starts hold,
    whichever node they run on.

    Sampling of a setting pauses once its capacity is known closely enough: to half the equivalence margin, so that two
    equal settings can be shown equivalent, or to the margin if there is only one setting. A setting is eliminated if
    the SLO holds at none of the rates or at every rate that the load generator can offer, if it is certainly worse than
    the leader by more than the margin, if a start of it never got ready and none may fail, or if it cannot be measured.
    Invalid trials are repeated at the end of their round, like those of a block."""

    confirming = None

    def __init__(self, experiment: Experiment, seed: int, *, nodes: int = 1) -> None:
        super().__init__(experiment, seed)
        self._settings = experiment.settings()
        self._nodes = nodes  # as many rounds under a closed load, one on each
        # After the first rounds as many as on one node, as far as that gives each node the same number.
        self._rounds = nodes * (1 + max(IN_TURN, round(TRIALS_PER_REPEAT * experiment.measure.repeats / nodes)))
        self._retries_left = math.ceil(experiment.measure.retry_budget * len(self._settings) * self._rounds)
        self._results: dict[Setting, list[TrialResult]] = {setting: [] for setting in self._settings}
        self._searches: dict[Setting, Search] = {}
        self._compared: dict[Setting, Search] = {}
        self._left: dict[Setting, str] = {}  # settings that only fail, with the reason
        self._out: set[Setting] = set()  # all eliminated settings, including those in `_left`
        self._live = list(self._settings)
        self._ended = False
        self._begun = 0  # rounds
        self._round_ended = False

    @property
    def left(self) -> Mapping[Setting, str]:
        """Settings that are no longer tried because they only fail, with the reason."""
        return dict(self._left)

    @property
    def planned_total(self) -> int:
        ahead = 0 if self._ended else len(self._live) * (self._rounds - self._begun)
        return self.told + self.waiting + ahead

    def left_s(self, noise: Noise, nodes: int = 1) -> float | None:
        """Returns None, since it cannot be foreseen how soon the rates will be found."""
        return None

    @property
    def progress(self) -> Progress:
        return Progress(self.planned_total - self.told, self.left)

    @property
    def block_ended(self) -> bool:
        return self._round_ended

    def ask(self, block: int | None = None) -> TrialSpec | None:
        asked = self._free(block) or (self._next_round() if block is None else None)
        if asked is None:
            return None
        taken, window_ns = self._take(asked), None
        search = self._search(taken.setting)
        if asked.stage is Stage.SATURATE:
            window_ns = search.look_window_ns(max(1, self._nodes // len(self._settings)))
        else:
            rate = taken.rate_per_s or search.next_rate_per_s(self._tried_now(taken.setting), self._longest_ns(asked))
            taken, window_ns = taken._replace(rate_per_s=rate), search.window_ns(rate)
        return self._begin_trial(asked, taken, window_ns)

    def _longest_ns(self, asked: _Round) -> float:
        """The longest window, in ns, of a trial that begins now, after which the rest of its round ends within the
        budget; on several nodes the others would wait for a longer one at the end."""
        usual_ns, longest_ns = self._experiment.load.duration_ns, math.inf
        if self._nodes > 1:
            ahead = self.planned_total - self.told - sum(each.pending is not None for each in self._open.values())
            longest_ns = usual_ns + usual_ns * LONGER * ahead / self._nodes
        if math.isinf(self.budget_s):
            return longest_ns
        return min(longest_ns, max(usual_ns, 1e9 * (self.budget_left_s - self._rest_s(asked) - self.around_s)))

    def _rest_s(self, block: _Round) -> float:
        """The time in s that the trials to come of a round take."""
        return sum(self._lasts_s(each.setting, each.rate_per_s) for each in (*block.queue, *block.retry))

    def _lasts_s(self, setting: Setting, rate_per_s: float | None = None) -> float:
        """The time in s that the next trial of a setting takes, with the window that its rate needs. While its rate is
        open, that is the usual window if possible."""
        search, usual_ns = self._search(setting), self._experiment.load.duration_ns
        if search.first_look is None:
            return self.lasts_s(None)
        return self.lasts_s(search.window_ns(rate_per_s or search.next_rate_per_s((), usual_ns)))

    def _tried_now(self, setting: Setting) -> list[float]:
        """The rates of the setting's trials in flight."""
        pending = (each.pending for each in self._open.values())
        return [spec.rate_per_s for spec in pending if spec and spec.rate_per_s and spec.setting == setting]

    def tell(self, result: TrialResult) -> None:
        told, spec = self._end_trial(result)
        self._round_ended = False
        wanted = not self._ended and spec.setting in self._live  # else another round has decided meanwhile
        if result.status == "interrupted":  # also if its node was lost: a round is no block, which would end with it
            if wanted:
                told.queue.insert(0, Attempt(spec.setting, spec.attempt, spec.rate_per_s))
                return
        else:
            self._learn(told, spec, result, wanted=wanted)
        if told.stage is Stage.SATURATE and not self._within_budget(told.waiting, told.took_s):
            told.keep(())
            self._ended |= len(self._open) == 1
        if not told.waiting or self._nodes > 1:
            self._close()
            if not self._ended:
                self._settle()
        if told.number not in self._open:
            self._round_ended = True
            self._ended |= not self._affords_round()

    def _learn(self, told: _Round, spec: TrialSpec, result: TrialResult, *, wanted: bool) -> None:
        """Keeps a result, and schedules the trial again if it shows neither a rate nor whether the SLO holds."""
        self._results[spec.setting].append(result)
        self._searches.pop(spec.setting, None)
        if result.status == "measured" and result.took_s is not None:
            told.took_s.append(result.took_s)
        repeats_itself = not spoilt_by_others(result) and bool(fatal_codes(result) & REPEATED_CODES)
        may_repeat = wanted and spec.attempt <= self._experiment.measure.retries and self._retries_left > 0
        if may_repeat and not repeats_itself and not self._says_something(result):
            again = self._again(spec)
            lasts_s = self._rest_s(told) + self._lasts_s(again.setting, again.rate_per_s)
            if told.stage is Stage.SATURATE or self.wall_s + lasts_s <= self.budget_s:
                told.retry.append(again)
                self._retries_left -= 1

    def _again(self, spec: TrialSpec) -> Attempt:
        """Another attempt at the same rate, unless the rate is now known to exceed what the load generator can
        offer."""
        beyond = spec.rate_per_s is not None and spec.rate_per_s >= self._search(spec.setting).ceiling_per_s
        return Attempt(spec.setting, spec.attempt + 1, None if beyond else spec.rate_per_s)

    def _says_something(self, result: TrialResult) -> bool:
        if result.stage is Stage.SATURATE:
            return result.valid or result.metrics.get("goodput_per_s", 0.0) > 0
        return holds(self._experiment, result) is not None

    def _settle(self) -> None:
        """Eliminates settings, pauses those known closely enough, and decides if the search is over: after each round,
        or on several nodes after each trial, since other rounds go on meanwhile."""
        self._leave_without_look()
        if any(search.answers for search in map(self._search, self._settings)):
            contest = self._contest()
            if contest.barred:
                self._out.clear()  # what left as worse may only have been worse than one that failed starts since
                if contest.leader and not self._looks and not self._experiment.objective.allow_failed_starts:
                    self._out |= contest.barred.keys()
            self._out |= {s for s, search in contest.searches.items() if search.nowhere or search.everywhere}
            self._out |= {*contest.worse_beyond_margin(), *self._left}
            margin = self._experiment.objective.margin
            closely = margin / 2 if len(self._settings) > 1 else margin
            # A setting that paused goes on if an answer that was in flight then has widened its interval.
            self._live = [
                s for s in self._settings if s not in self._out and not self._search(s).is_known_within(closely)
            ]
            if self._is_decided(contest):
                self._ended = True  # only the trials in flight are awaited
                self._keep(())
        self._keep(self._live)
        self._close()
        self._leave_without_look()

    @property
    def _looks(self) -> bool:
        """True if a round of first looks is in flight."""
        return any(each.stage is Stage.SATURATE for each in self._open.values())

    def _leave_without_look(self) -> None:
        """Eliminates settings of which no trial under a closed load (first look) gave a rate, once none is in
        flight."""
        if self._looks:
            return
        for setting in self._live:
            if self._search(setting).first_look is None:
                every = (problem for result in self._results[setting] for problem in result.problems)
                problems = [problem.message for problem in every if problem.fatal]
                self._left[setting] = f"gave no rate to begin from: {problems[-1] if problems else 'nothing ended ok'}"
        self._live = [setting for setting in self._live if setting not in self._left]

    def _is_decided(self, contest: CapacityContest) -> bool:
        """True if every other setting is shown worse or equivalent, and the leader's own capacity is known to within
        the margin."""
        if contest.leader is None:
            return not self._live
        verdicts = {contest.typical(setting) for setting in contest.gaps}
        open_ones = set(contest.searches) - set(contest.gaps) - {contest.leader} - self._out
        leader = contest.searches[contest.leader]
        known = leader.everywhere or leader.is_known_within(self._experiment.objective.margin)
        return known and not open_ones and verdicts <= {Verdict.WORSE, Verdict.EQUIVALENT}

    def _next_round(self) -> _Round | None:
        """Begins a round with every live setting, and returns it; None if none can begin, or none yet."""
        looks = self._begun < self._nodes
        if self._ended or not self._live or self._begun >= self._rounds or not self._affords_round():
            return None
        if not looks and any(self._search(setting).first_look is None for setting in self._live):
            return None
        order = self._order(0 if looks else self._begun, self._settings)
        turned = self._begun % len(order) if looks else 0  # each node begins with another setting
        queue = [Attempt(setting) for setting in order[turned:] + order[:turned] if setting in self._live]
        stage = Stage.SATURATE if looks else Stage.CAPACITY
        begun = self._open[self._begun] = _Round(self._begun, stage, queue, self.wall_s)
        self._begun += 1
        return begun

    def _affords_round(self) -> bool:
        """True if another round would end within the budget. The first of a run is begun in any case, since its trials
        show how long one takes."""
        unbounded = not self.told or math.isinf(self.budget_s)
        return unbounded or self.wall_s + sum(map(self._lasts_s, self._live)) <= self.budget_s

    def _within_budget(self, trials: int, took_s: Sequence[float]) -> bool:
        """True if this many more trials, one after the other, would end within the budget, at the pace of trials that
        took so long; without any, of all measured ones but short looks."""
        usual_ns = self._experiment.load.duration_ns
        whole = (lasted_s for window_ns, lasted_s in self._lasted_s.items() if (window_ns or usual_ns) >= usual_ns)
        took_s = took_s or [each for lasted_s in whole for each in lasted_s] or [self.lasts_s(None)]
        return self.wall_s + sum(took_s) / len(took_s) * trials <= self.budget_s

    def _search(self, setting: Setting) -> Search:
        """The search of a setting. It is kept until the setting's next result, since it takes milliseconds to make."""
        if setting not in self._searches:
            self._searches[setting] = search_of(self._experiment, setting, self._results[setting])
        return self._searches[setting]

    def _contest(self) -> CapacityContest:
        """All settings compared. Searches without a new result are those of the last contest, for the same reason."""
        searches = {setting: self._search(setting) for setting in self._settings}
        for setting, search in on_even_nodes(searches).items():
            last = self._compared.get(setting)
            if last is None or last.trials is not search.trials or last.speeds != search.speeds:
                self._compared[setting] = search
        return contest_of(self._experiment, self._compared)
