"""Plans a race: blocks of live settings in random order; a setting shown worse than the leader by more than the
equivalence margin is eliminated. Two blocks of short trials may come first (`screening.py`).

In: an experiment, a seed, results one by one. Out: the next `TrialSpec`, or None at the end, and the history of the
race. After each block from the second on there is a look: a contest with intervals corrected for repeated looks. The
race ends when no setting is open any more, when the bound asked for is met (`design.regret`), after the maximum number
of blocks, or when no further block fits into the budget. Then the named setting and its nearest rival are started
afresh in turn, a set number of times or until these starts agree with the race. The trials depend only on the seed and
the results. No I/O here; the statistics are in `analyze/`. Method and figures: docs/methods/racing.md, regret.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from itertools import cycle

import numpy as np

from powerband.analyze.runs.revisions import revisions_of
from powerband.analyze.settings.compare import Progress, confirmation_of, decision_of
from powerband.analyze.settings.constraints import Compliance, judge
from powerband.analyze.settings.contest import (
    SCREENED_UNTIL,
    Contest,
    ResponseTable,
    compliance_of,
    hold_contest,
    scale_of,
)
from powerband.analyze.settings.headline import FRESH_MIN
from powerband.analyze.settings.nodes import CONFIRMED_ON, confirmed_on
from powerband.analyze.settings.regret import unbounded
from powerband.analyze.settings.starts import is_allowed, starts_of
from powerband.analyze.settings.unsettled import may_catch_up, may_still_rise, still_rising
from powerband.analyze.stats.spending import rounds_most
from powerband.analyze.trial.faults import beyond_generator, tried
from powerband.base.machine import Noise
from powerband.base.units import range_of_shares
from powerband.model.experiment import Experiment
from powerband.model.plan import Setting, Stage, TrialSpec
from powerband.model.results import AnswerKind, Departure, Estimate, Look, Race, TrialResult, Verdict
from powerband.search.outlook import CONFIRM_EARLY, Played, race_so_far, simulate_rest, simulate_untried
from powerband.search.planner import Confirming
from powerband.search.screening import (
    far_behind,
    hopeless,
    long_enough,
    looks_far,
    outlast_short_trials,
    too_dear,
    window_for,
)
from powerband.search.still_open import still_open
from powerband.search.trials import BlockTrials, Further


class RacePlanner:
    """Plans the race. Usage: `ask` for a trial, run it, pass its result to `tell`. `BlockTrials` describes how invalid
    trials and settings that always fail are treated.

    `settings`: the settings that race, by default all of the experiment; `told`: number of trials in the run before the
    race; `nodes`: how many nodes run trials."""

    def __init__(
        self,
        experiment: Experiment,
        seed: int,
        *,
        settings: Sequence[Setting] | None = None,
        told: int = 0,
        nodes: int = 1,
    ) -> None:
        self._experiment = experiment
        self._settings = tuple(settings or experiment.settings())
        self._trials = BlockTrials(experiment, seed, self._settings, told=told, nodes=nodes)
        self._told_before = told
        self._results: list[TrialResult] = []
        self._screens = 0 if settings is not None else experiment.screen_blocks  # the first blocks: of short trials
        self._screening = self._screens > 0  # short trials are still to be judged
        self._window_ns: int | None = None  # the measured time of the race's trials; None: that of the experiment
        self._rounds = experiment.measure.repeats  # the most of full trials
        self._begun = 0  # blocks begun, including those of the confirmation
        self._extra = 0  # blocks that make up for those lost with their node, and for those that confirm
        self._compared = 0  # finished blocks of full trials
        self._blocks = 0  # finished blocks of the race
        self._looks: list[Look] = []
        self._departures: dict[Setting, Departure] = {}
        self._led_with: dict[Setting, float] = {}  # the leader's mean when a setting left as worse
        self._contest: Contest | None = None  # of the last look
        self._settled: frozenset[Setting] = frozenset()  # live, but paused, since nothing about them is open
        self._ended_by = "running"
        self._met = False  # the bound asked for is met
        self._confirming: tuple[Setting, ...] = ()
        self._confirm_blocks = experiment.design.confirm  # still to begin
        self._nodes = nodes
        self._confirm_on = min(nodes, CONFIRMED_ON) if nodes > 1 else 0  # nodes wanted; a lone machine has no name
        self._confirm_from = 0  # number of its first block
        self._agreed = False  # the fresh starts so far agree with the race
        self._foreseen: tuple[Setting, ...] = ()  # confirmed by fresh starts ahead of the race's end
        self._ahead = 0  # blocks of these
        # (results received, blocks begun) when it was last looked ahead, and what was foreseen then.
        self._looked_ahead: tuple[tuple[int, int], tuple[Setting, ...]] = (0, 0), ()
        self._block_ended = False
        self._cut: set[int] = set()  # blocks cut short when the race ended
        self._played: tuple[int, Played, int] | None = None  # number of results then; races; results they rest on

    @property
    def planned_total(self) -> int:
        known = self._trials.told + self._trials.waiting
        if self._ended_by != "running":
            return known + self._confirm_blocks * len(self._confirming)
        most = self._most_blocks
        if self._screening and self._begun <= self._screens:  # until then the length of full trials is not decided
            most += rounds_most(self._experiment, window_for(self._experiment, 0.0, 0.0)) - self._rounds
        return known + (most - self._begun) * len(self._live) + self._confirm_trials

    def left_s(self, noise: Noise, nodes: int = 1) -> float | None:
        """Like `Planner.left_s`: the median time of races simulated from here."""
        if not self._trials.spent_s:
            return None
        confirm_s, waiting = self._trials.lasts_s(None), self._trials.waiting
        if self._ended_by != "running":
            most = waiting + self._confirm_blocks * len(self._confirming)
            confirms = [each for each in self._results if each.stage is Stage.CONFIRM]
            told = len(confirms) + len(self._trials.partial(Stage.CONFIRM))
            early = max(waiting, CONFIRM_EARLY - told) if self._experiment.design.confirm_early else most
            return confirm_s * min(most, early) / nodes
        played, seen = self._play(noise)
        since = [*self._results[seen:], *self._trials.partial(Stage.SCREEN), *self._trials.partial(Stage.COMPARE)]
        short_told = sum(1 for result in since if result.stage is Stage.SCREEN)
        short_waiting = waiting if self._begun <= self._screens else 0
        short = np.full(played.full.shape, float(short_waiting))
        if self._begun < self._screens or short_waiting:
            to_come = len(self._next) * (self._begun < self._screens) if seen else played.short - short_told
            short = np.maximum(short, to_come)
        full_s = self._trials.lasts_s(self._window_ns)
        times_s = replace(played, short=short).times_s(
            self._trials.lasts_s(self._experiment.screened_ns) if short.any() else 0.0,
            full_s,
            confirm_s,
            told=len(since) - short_told,
            waiting=waiting - short_waiting,
        )
        return min(self._trials.budget_left_s, float(np.median(times_s)) / nodes)

    def _play(self, noise: Noise) -> tuple[Played, int]:
        """Races simulated from the last finished block on, or from the beginning if the blocks show nothing yet; and
        the number of results that they rest on."""
        judged = len(self._results)  # those of finished blocks
        if self._played is None or self._played[0] != judged:
            table = ResponseTable(self._experiment, self._settings, self._results)
            known = race_so_far(self._experiment, table, self._live, self._window_ns, noise) if judged else None
            if known is None:
                played = simulate_untried(self._experiment, len(self._settings), noise, self._trials.around_s)
                self._played = judged, played, 0
            else:
                # Short trials count until there are two blocks of full ones; later results are not in the table yet.
                short = sum(1 for result in self._results if result.stage is Stage.SCREEN)
                screens = self._begun < self._screens or bool(self._trials.in_flight(Stage.SCREEN))
                played = simulate_rest(self._experiment, known, self._window_ns, screens=screens)
                self._played = judged, played, short if table.screened else judged
        return self._played[1:]

    @property
    def progress(self) -> Progress:
        in_flight = self._trials.in_flight
        race = Race(
            looks=tuple(self._looks),
            departures=tuple(self._departures.values()),
            trials=self._trials.told - self._told_before,
            grid_trials=len(self._settings) * self._rounds,
            ended_by=self._ended_by,
            blocks=self._blocks,
            half=tuple(sorted({*self._cut, *in_flight(Stage.COMPARE), *in_flight(Stage.SCREEN)})),
        )
        to_come = self.planned_total - self._trials.told
        return Progress(to_come, self._trials.left, race, raced=self._settings, led_with=dict(self._led_with))

    @property
    def block_ended(self) -> bool:
        return self._block_ended

    @property
    def confirming(self) -> Confirming | None:
        if self._ended_by == "running":
            foreseen = self._foresee() if self._may_begin() else ()
            return Confirming(foreseen[0], self._confirm_from if self._ahead else self._begun) if foreseen else None
        if not self._confirm_blocks or not self._confirming:
            return None
        return Confirming(self._confirming[0], self._confirm_from)

    def ask(self, block: int | None = None) -> TrialSpec | None:
        """The next trial; None when the race is over and its winner confirmed, or while trials are in flight beside
        which no new block may begin."""
        if (spec := self._trials.ask(block)) is not None or block is not None:
            return spec
        if self._may_begin():
            self._begin_block()
        return self._trials.ask()

    def tell(self, result: TrialResult) -> None:
        self._trials.tell(result)
        if self._begun < self._screens:
            short = self._results + self._trials.partial(Stage.SCREEN)
            short += [each for block in self._trials.ended for each in block.results]
            if too_dear(self._experiment, short):
                self._trials.cut()
                self._begun = self._screens  # the blocks of full trials keep their numbers
        self._block_ended = bool(self._trials.ended)
        while self._trials.ended:  # more may end with a look
            block = self._trials.ended.pop(0)
            if block.number in self._cut:
                continue
            self._results = sorted([*self._results, *block.results], key=lambda each: each.number)
            self._extra += block.lost and block.stage is Stage.COMPARE
            if block.stage is Stage.COMPARE and not block.lost:
                self._compared += 1
                if self._compared == 1:
                    self._set_rounds()
            if block.stage is Stage.CONFIRM:
                self._confirm_blocks += block.lost
                self._ahead -= block.lost
                if self._confirming:
                    self._reconsider(self._confirming[0])
                    self._enough_confirmed()
                if self._confirming:
                    self._confirm_blocks = self._in_time(self._confirm_blocks)
            elif self._ended_by == "running":
                self._blocks += 1
                self._block_over()

    @property
    def _live(self) -> list[Setting]:
        gone = {*self._departures, *self._trials.left}
        return [setting for setting in self._settings if setting not in gone]

    @property
    def _last(self) -> int:
        """The last finished block of the race, counted from 0 without a gap for short ones that were not needed."""
        return self._blocks - 1

    @property
    def _next(self) -> list[Setting]:
        return [setting for setting in self._live if setting not in self._settled]

    @property
    def _beside_short(self) -> bool:
        """True while short trials that are still to be judged are in flight."""
        return self._screening and bool(self._trials.in_flight(Stage.SCREEN))

    @property
    def _next_full(self) -> list[Setting]:
        """The settings of the next block of full trials. Those that need no further short trial are among them."""
        return self._live if self._beside_short else self._next

    @property
    def _racing(self) -> bool:
        """True if a block of the race is in flight."""
        return bool(self._trials.in_flight(Stage.COMPARE) or self._trials.in_flight(Stage.SCREEN))

    @property
    def _confirm_trials(self) -> int:
        """The most confirmation trials: those of the winner and its rival."""
        return self._confirm_blocks * min(2, len(self._settings))

    @property
    def _wanted(self) -> tuple[Further, Further]:
        """The fewest blocks that are worth beginning: one (after short trials two, since one alone shows nothing), and
        those that confirm the winner."""
        blocks = SCREENED_UNTIL if self._begun == self._screens else 1
        confirming = Further(self._experiment.design.confirm, min(2, len(self._settings)))
        return Further(blocks, len(self._next_full), self._window_ns), confirming

    @property
    def _affords(self) -> bool:
        """True if the fewest blocks worth beginning end within the budget, with those that confirm the winner. Until a
        look, as after one full block or short trials of too few requests for a percentile, there is no winner yet: full
        trials are worth more than the time kept free for it."""
        blocks, confirming = self._wanted
        unseen = not (self._screening or self._looks) and (self._screens > 0 or self._begun < SCREENED_UNTIL)
        return self._trials.fits(blocks, confirming) or (unseen and self._trials.fits(blocks))

    @property
    def _most_blocks(self) -> int:
        return self._screens + self._rounds + self._extra

    def _may_begin(self) -> bool:
        """True if a new block may begin: always if none of the race is in flight, as on one machine. Beside blocks in
        flight, blocks of short trials may begin, since waiting nodes have time for them; once all have, full blocks,
        and blocks that confirm. Full blocks that follow short ones, or have a budget, wait until a trial has shown how
        long trials take. The last block of short trials and full ones wait for another that is about to end, since it
        may decide."""
        if not self._racing or self._ended_by != "running":
            return True
        if self._begun < self._screens:
            last_waits = self._begun == self._screens - 1 and self._trials.ends_soon(Stage.SCREEN)
            return not last_waits and self._fits_screen()
        known = self._trials.spent_s or self._told_before or not (self._screens or self._trials.budget_s < math.inf)
        waits = not known or any(map(self._trials.ends_soon, (Stage.SCREEN, Stage.COMPARE)))
        return not waits and self._begun < self._most_blocks and self._affords

    def _fits_screen(self) -> bool:
        return self._trials.fits(Further(1, len(self._next), self._experiment.screened_ns))

    def _begin_block(self) -> None:
        if self._begun < self._screens:
            self._trials.begin(self._begun, self._next, Stage.SCREEN, self._experiment.screened_ns)
        elif self._ended_by == "running" and (foreseen := self._foresee()):
            if not self._ahead:
                self._foreseen, self._confirm_from = foreseen, self._begun
            self._trials.begin(self._begun, foreseen, Stage.CONFIRM)
            self._confirm_blocks -= 1
            self._ahead += 1
            self._extra += 1
        elif self._ended_by == "running":
            if self._beside_short and not self._looks and self._begun == self._screens:  # their noise is not known yet
                self._set_window(window_for(self._experiment, math.inf, self._trials.around_s))
            self._trials.begin(self._begun, self._next_full, window_ns=self._window_ns)
        elif self._confirm_blocks and self._confirming:
            # Once the standing is confirmed, the winner alone is measured again.
            self._trials.begin(self._begun, self._confirming[: 1 if self._agreed else 2], Stage.CONFIRM)
            self._confirm_blocks -= 1
            self._extra += 1
        else:
            return
        self._begun += 1

    def _foresee(self) -> tuple[Setting, ...]:
        """The settings that the next block confirms ahead of the race's end; empty: none. That is worthwhile if the
        race would end, supposing that the blocks in flight, one more, and those that other nodes finish beside the
        fresh starts repeat what the finished blocks showed. Only one pair of settings is confirmed ahead, in no more
        blocks than must agree."""
        design, in_flight = self._experiment.design, len(self._trials.in_flight(Stage.COMPARE))
        enough = self._confirm_on if design.confirm_early else design.confirm
        if not in_flight or self._compared < SCREENED_UNTIL or not self._confirm_blocks or self._ahead >= enough:
            return ()
        now = self._trials.told, self._begun
        if self._looked_ahead[0] != now:
            full = [result for result in self._results if result.stage is Stage.COMPARE]
            again = cycle(sorted({result.block for result in full}))
            then = copy(self)
            then._results = list(self._results)
            for number in range(self._begun, self._begun + in_flight + 1 + self._beside_fresh_starts):
                like = next(again)
                then._results += [replace(result, block=number) for result in full if result.block == like]
            then._looks, then._departures, then._ended_by = list(self._looks), dict(self._departures), "decided"
            then._led_with = dict(self._led_with)
            found = then._finalists() if then._look() or self._ahead else ()
            if self._ahead:
                found = self._foreseen if self._is_foreseen(found) else ()
            self._looked_ahead = now, found
        return self._looked_ahead[1]

    @property
    def _beside_fresh_starts(self) -> int:
        """The number of blocks that the other nodes finish while fresh starts run."""
        fresh_s = self._trials.lasts_s(None) * min(2, len(self._live))
        block_s = self._trials.lasts_s(self._window_ns) * max(1, len(self._next))
        return int((self._nodes - self._confirm_on) * fresh_s / block_s)

    def _is_foreseen(self, finalists: tuple[Setting, ...]) -> bool:
        """True if the fresh starts ahead are of the same winner, and their rival is the same, or still in the race."""
        return finalists[:1] == self._foreseen[:1] and {*self._foreseen} <= {*self._live, *finalists}

    def _block_over(self) -> None:
        """Judges the settings after a block of the race, and decides if there is another."""
        for setting, reason in self._trials.left.items():
            self._departures.setdefault(setting, Departure(setting, self._last, reason.removeprefix("left after ")))
        decided = False
        if self._trials.in_flight(Stage.SCREEN) and self._compared < SCREENED_UNTIL:
            return  # they decide first
        if self._begun == 1 < self._screens:
            self._settled = hopeless(self._experiment, self._live, self._results)
        elif self._screening or self._compared == 1:
            decided = self._screen()
        if not decided and not self._screening and self._compared >= 2:
            decided = self._look()
        if decided or not self._live:
            self._ended_by = "regret" if self._met else "decided"
        elif self._compared >= 2 and self._never_decides:
            self._ended_by = "blocks"
        elif self._racing:
            self._trials.cut(self._next, confirming=False)
            return  # blocks in flight decide
        elif self._begun < self._screens and self._fits_screen():
            return
        elif self._begun >= self._most_blocks:
            self._ended_by = "blocks"
        elif not self._affords:
            self._ended_by = "budget"
        else:
            return
        self._race_over()

    @property
    def _never_decides(self) -> bool:
        """True after a look without a leader, if each setting that may meet the conditions lacks the objective, or the
        metric of one, in all its full trials: as a rule a percentile of too few requests, and more rounds have no
        more. Two revisions are told apart by the objective alone, too. Trials with no metric at all say nothing: those
        of a plan that is only shown."""
        if self._contest is None or self._contest.leader is not None:
            return False
        objective = self._experiment.objective
        asked = {objective.metric} if self._experiment.compares_revisions else objective.needed_metrics
        full = [each for each in self._results if each.stage is Stage.COMPARE and each.valid and each.metrics]
        lacking = [[not asked <= result.metrics.keys() for result in full if result.setting == s] for s in self._next]
        return all(each and all(each) for each in lacking)

    def _race_over(self) -> None:
        """Drops the trials of the race that are still to come; fresh starts confirm the setting that it names, some of
        which may have begun."""
        self._cut |= set(self._trials.in_flight(Stage.COMPARE))
        self._begun = max(self._begun, self._screens)  # no short trials any more
        self._trials.cut(confirming=False)
        self._confirm_blocks = self._confirm_in_time()
        self._confirming = self._finalists() if self._confirm_blocks or self._ahead else ()
        foreseen = self._ahead > 0 and self._is_foreseen(self._confirming)
        self._trials.cut(confirming=not foreseen)
        if foreseen:
            self._confirming = self._foreseen
            self._enough_confirmed()
        else:
            self._confirm_blocks = self._in_time(self._confirm_blocks + self._ahead)
            self._confirm_from = self._begun

    def _confirm_in_time(self) -> int:
        """The number of blocks that confirm: of those asked for, as many as end within the budget, since repeats may
        have used the time kept free for them. Where none was asked for, `FRESH_MIN` after a race of short trials alone,
        if there is time: an answer does not rest on these alone then."""
        if self._experiment.design.confirm:
            return self._in_time(self._confirm_blocks)
        screened = ResponseTable(self._experiment, self._settings, self._results).screened
        return FRESH_MIN if screened and self._in_time(FRESH_MIN) == FRESH_MIN else 0

    def _in_time(self, blocks: int) -> int:
        """How many of so many blocks that confirm end within the budget."""
        each = 1 if self._agreed else min(2, len(self._settings))
        return next((some for some in range(blocks, 0, -1) if self._trials.fits(Further(some, each))), 0)

    def _reconsider(self, named: Setting) -> None:
        """Continues the race without the setting that is being confirmed, if more of its starts failed than may.
        Settings that left as worse come back, since they may only have been worse than this one. The next winner gets
        as many fresh starts as this one, or as many as still end within the budget."""
        starts = starts_of(self._results, named, self._experiment.objective.confidence)
        barred = judge(self._experiment, [], settings=len(self._settings), starts=starts).barred
        if not barred:
            return
        self._departures = {of: departure for of, departure in self._departures.items() if not departure.worse}
        self._departures[named] = Departure(named, self._last, f"misses {'; '.join(barred)}")
        self._settled, self._confirming, self._ended_by, self._met = frozenset(), (), "running", False
        self._agreed, self._foreseen, self._ahead = False, (), 0
        self._trials.cut()
        self._confirm_blocks = self._experiment.design.confirm
        self._block_over()

    def _enough_confirmed(self) -> None:
        """Ends the confirmation as soon as the fresh starts agree with the race, if the winner has enough of them, on
        enough nodes, for its figure to be taken from them."""
        if not (self._confirming and self._experiment.design.confirm_early):
            return
        found = confirmation_of(self._experiment, self._settings, self._results, self.progress)
        self._agreed = found is not None and found.agrees
        nodes = confirmed_on(self._results, self._confirming[0])
        if found is not None and self._agreed and found.trials >= FRESH_MIN and len(nodes) >= self._confirm_on:
            self._confirm_blocks = 0

    def _screen(self) -> bool:
        """Eliminates the settings that short trials show far behind; returns True if only the leader is left. Another
        block of short trials follows if it may eliminate more. After the first full trials, those leave that short ones
        had shown far behind, but not settled."""
        begun, self._screening = self._begun, False
        self._settled, self._begun = frozenset(), max(begun, self._screens)
        table = ResponseTable(self._experiment, self._settings, self._results)
        if not table.screened or len(table.blocks) < SCREENED_UNTIL:
            return False
        compliance = compliance_of(table)
        contest = hold_contest(self._experiment, table, scale_of(table), compliance, self._departures)
        self._contest = contest
        if contest.leader is None or not compliance[contest.leader].certain:
            return False
        raced = self._live
        effects = {setting.id: effect for setting in raced if (effect := contest.effect(setting)) is not None}
        gone = tuple(far_behind(self._experiment, contest, raced, self._results))
        if self._compared and not gone:
            return False
        for setting in gone:
            self._leave_as_worse(setting, contest)
        self._looks.append(Look(self._last, contest.leader, effects, gone))
        if self._begun == self._screens:  # no full trial has begun
            self._set_window(long_enough(self._experiment, table, self._live, self._trials.around_s))
        if self._live != [contest.leader]:
            near = looks_far(contest, self._live)
            if near and begun < self._screens:
                self._settled = frozenset(self._live) - {*near, contest.leader}
                self._begun, self._screening = begun, True
            return False
        asked = self._experiment.design.regret
        regret = decision_of(self._experiment, self._settings, self._results, self.progress).regret
        self._met = asked is not None and regret is not None and regret <= asked
        return True

    def _set_window(self, window_ns: int | None) -> None:
        """Sets the measured time of the full trials, and how many rounds of them there may be. Where answers took
        longer than short trials, it stays that of the experiment, if such trials fit into the budget."""
        late = outlast_short_trials(self._live, [*self._results, *self._trials.partial(Stage.SCREEN)])
        self._window_ns = None if late else window_ns
        if not self._trials.fits(*self._wanted):
            self._window_ns = window_ns
        self._set_rounds()

    def _set_rounds(self) -> None:
        """Sets how many rounds of full trials take no longer than `measure.repeats` of those of the experiment; at
        least as many as have begun. The first round shows how long full trials take: short ones hardly warm up."""
        longer = self._trials.lasts_s(None) / self._trials.lasts_s(self._window_ns)
        in_time = int(self._experiment.measure.repeats * longer)
        begun = self._begun - self._screens - self._extra
        self._rounds = max(begun, min(rounds_most(self._experiment, self._window_ns), in_time))

    def _look(self) -> bool:
        """Eliminates the settings that the last block has shown to be beaten; True if nothing is open any more."""
        table = ResponseTable(self._experiment, self._settings, self._results)
        compliance = compliance_of(table)
        contest = hold_contest(self._experiment, table, scale_of(table), compliance, self._departures)
        self._contest = contest
        verdict, asked = self._verdict_on_new(), self._experiment.design.regret
        rising = self._may_rise(contest)
        if contest.leader is not None:
            raced = self._live
            effects = {setting.id: effect for setting in raced if (effect := contest.effect(setting)) is not None}
            gone: list[Setting] = []
            # A leader that may violate the SLO eliminates no other setting.
            if compliance[contest.leader].certain and verdict is not Verdict.INCONCLUSIVE:
                gone = [s for s in raced if self._leaves(s, contest, compliance[s], rising=s in rising)]
            self._looks.append(Look(self._last, contest.leader, effects, tuple(gone)))
        if self._bring_back(compliance):
            return False
        if verdict is not None and (contest.leader is None or asked is None):
            self._settled = frozenset()
            return verdict is not Verdict.INCONCLUSIVE or self._trials_tell_no_more(contest, compliance)
        if contest.leader is None:
            # Settings that can be no answer any more are paused; all others continue until one is allowed.
            self._settled = frozenset(s for s in self._live if self._is_out(s, compliance[s], table))
            return bool(self._live) and self._settled.issuperset(self._live)
        passing = {s: replace(compliance[s], lapsed=()) for s in self._live if self._may_pass(s, compliance[s])}
        open_now = still_open(contest, {**compliance, **passing}, table, self._live)
        warming = [setting for setting in self._live if setting in rising and not compliance[setting].barred]
        open_now += [setting for setting in warming if setting not in open_now]
        if verdict is Verdict.INCONCLUSIVE:  # more blocks may show whether the new revision meets the SLO
            open_now = list(self._live)
        decides = compliance[contest.leader].certain and not open_now
        if asked is not None:
            unsure = [setting for setting in open_now if compliance[setting].lapsed or setting in rising]
            return self._look_at_bound(asked, contest.leader, open_now, unsure, decides=decides)
        self._settled = frozenset(self._live) - {*open_now, contest.leader}
        return decides

    def _may_rise(self, contest: Contest) -> frozenset[Setting]:
        """The settings that may catch up with the leader, since they got faster in all of their full trials, of which
        there are too few to tell. One that went now would have lost for the time that it takes to warm up, unseen.
        None if the leader does so, too: a longer warm-up would tell then, not more trials."""
        rising = may_still_rise(self._experiment.objective.metric, self._results)
        if contest.leader in rising:
            return frozenset()
        return frozenset(setting for setting in rising if may_catch_up(contest.effect(setting)))

    def _trials_tell_no_more(self, contest: Contest, compliance: Mapping[Setting, Compliance]) -> bool:
        """True if the trials tell the settings apart, but that has no weight, since one got faster in all of them or
        was beyond the load engine: a longer warm-up or more CPU for the load would tell."""
        if contest.leader is None or not all(compliance[setting].certain for setting in self._live):
            return False
        if any(contest.verdict(each) is Verdict.INCONCLUSIVE for each in self._live if each != contest.leader):
            return False
        rising = still_rising(self._experiment.objective.metric, self._results)
        return any(each in rising or beyond_generator(tried(self._results, each)) for each in self._live)

    def _verdict_on_new(self) -> Verdict | None:
        """The verdict on the new one of two revisions that race; None in any other race, and once one of them left."""
        if not (self._experiment.compares_revisions and len(self._live) == 2):
            return None
        return revisions_of(self._experiment, self._results, None, ()).verdict

    def _bring_back(self, compliance: Mapping[Setting, Compliance]) -> bool:
        """Brings back the settings that left as worse than one that can be no answer any more, since nothing says that
        they are worse than the others; returns True if there are any."""
        race = self.progress.race
        may = [setting for setting in self._live if not compliance[setting].barred]
        loose = frozenset[Setting]() if race is None else unbounded(race, may)
        for setting in loose:
            del self._departures[setting]
        if loose:
            self._settled = frozenset()
        return bool(loose)

    def _look_at_bound(
        self, asked: float, leader: Setting, open_now: Sequence[Setting], unsure: Sequence[Setting], *, decides: bool
    ) -> bool:
        """True once no other setting can be better than the named one by more than `asked` (`design.regret`). Until
        then, settings that can be are open; if none is named yet, `open_now` as in any other race. `unsure`: those of
        `open_now` that more starts may yet allow, and to which no bound applies until then. `decides`: True if any
        other race would end, as this one does if it can have no bound: one that may be better was not measured."""
        decision = decision_of(self._experiment, self._settings, self._results, self.progress)
        if decision.regret is not None:
            open_now = [*unsure, *(setting for setting, above in decision.above.items() if above > asked)]
        self._settled = frozenset(self._live) - {*open_now, leader, decision.chosen}
        self._met = decision.regret is not None and decision.regret <= asked and not unsure
        return self._met or (decides and decision.regret is None)

    def _leaves(self, setting: Setting, contest: Contest, compliance: Compliance, *, rising: bool) -> bool:
        if compliance.barred and not self._may_pass(setting, compliance):
            self._departures[setting] = Departure(setting, self._last, f"misses {'; '.join(compliance.barred)}")
        elif contest.below(setting) and not rising:
            self._leave_as_worse(setting, contest, "at least " if setting in contest.endless else "")
        return setting in self._departures

    def _leave_as_worse(self, setting: Setting, contest: Contest, before: str = "") -> None:
        assert contest.leader is not None
        effect = contest.effect(setting)
        reason = f"{before}{_worse_by(effect, contest, contest.leader)}"
        self._departures[setting] = Departure(setting, self._last, reason, effect, worse=True)
        self._led_with[setting] = contest.leader_mean

    def _may_pass(self, setting: Setting, compliance: Compliance) -> bool:
        """True if more starts could still show that not too many of them fail or break a constraint."""
        objective, measure = self._experiment.objective, self._experiment.measure
        if compliance.missed or objective.allow_failed_starts == 0:
            return False
        seen = starts_of(self._results, setting, objective.confidence)
        return is_allowed(
            max(1, seen.failed), seen.failed + measure.repeats, objective.allow_failed_starts, 1 - objective.confidence
        )

    def _is_out(self, setting: Setting, compliance: Compliance, table: ResponseTable) -> bool:
        """True if no further start makes the setting an answer: it certainly misses a constraint, or more of its starts
        failed than may."""
        failed = bool(table.starts[setting].failed and compliance.lapsed)
        return bool(compliance.missed) or (failed and not self._may_pass(setting, compliance))

    def _finalists(self) -> tuple[Setting, ...]:
        """The setting that the race names, and its nearest rival; empty if it names none. One that it only bounds is
        confirmed where both a bound and fresh starts are asked for."""
        decision = decision_of(self._experiment, self._settings, self._results, self.progress, of_full=False)
        named = decision.chosen
        design = self._experiment.design
        unasked = decision.kind is AnswerKind.BOUNDED and (design.regret is None or not design.confirm)
        if named is None or unasked or self._contest is None:
            return ()
        contest = self._contest
        nearest = sorted(
            (setting for setting in self._live if setting != named and setting in contest.difference),
            key=lambda setting: contest.difference[setting],
        )
        beaten = sorted(
            (departure for departure in self._departures.values() if departure.worse),
            key=lambda departure: (departure.block, contest.difference.get(departure.setting, float("-inf"))),
        )
        rivals = [*(departure.setting for departure in beaten), *nearest]
        return (named, *rivals[-1:])


def _worse_by(effect: Estimate | None, contest: Contest, leader: Setting) -> str:
    """A reason in words: `40 to 52 % worse than threads=64`; without figures if there is no ratio to the leader."""
    if effect is None or effect.low is None or effect.high is None:
        return f"worse than {leader.id}"
    points = not (contest.scale.log or contest.scale.relative)
    low, high = sorted(
        abs(1 - end) * (abs(contest.leader_mean) if points else 1.0) for end in (effect.low, effect.high)
    )
    return f"{range_of_shares(low, high, points=points)} worse than {leader.id}"
