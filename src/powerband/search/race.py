"""Plans a race: blocks of live settings in random order; a setting shown worse than the leader by more than the
equivalence margin is eliminated.

In: an experiment, a seed, results one by one. Out: the next `TrialSpec`, or None at the end, and the history of the
race. After each block from the second on there is a look: a contest with intervals corrected for repeated looks. The
race ends when nothing is open any more, when the bound that was asked for is met (`design.regret`), after the maximum
number of blocks, or when no further block fits into the budget. Then the named setting is restarted a few times,
alternating with its nearest rival, to confirm it. The trials depend only on the seed and the results. No I/O here; the
statistics are in `analyze/`. Method and figures: docs/methods/racing.md, regret.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from powerband.analyze.settings.compare import Progress, decision_of
from powerband.analyze.settings.constraints import Compliance, judge
from powerband.analyze.settings.contest import Contest, ResponseTable, compliance_of, hold_contest, scale_of
from powerband.analyze.settings.starts import is_allowed, starts_of
from powerband.base.units import significant
from powerband.model.experiment import Experiment
from powerband.model.plan import Setting, Stage, TrialSpec
from powerband.model.results import AnswerKind, Departure, Estimate, Look, Race, TrialResult, Verdict
from powerband.search.trials import BlockTrials


class RacePlanner:
    """Plans the race. Usage: `ask` for a trial, run it, pass its result to `tell`; invalid and failing trials as in
    `BlockTrials`.

    `settings`: those that race, by default all of the experiment; `told`: number of trials in the run before the
    race."""

    def __init__(
        self, experiment: Experiment, seed: int, *, settings: Sequence[Setting] | None = None, told: int = 0
    ) -> None:
        self._experiment = experiment
        self._settings = tuple(settings or experiment.settings())
        self._trials = BlockTrials(experiment, seed, self._settings, told=told)
        self._told_before = told
        self._results: list[TrialResult] = []
        self._begun = 0  # blocks begun, including those of the confirmation
        self._blocks = 0  # finished blocks of the race
        self._looks: list[Look] = []
        self._departures: dict[Setting, Departure] = {}
        self._contest: Contest | None = None  # of the last look
        self._settled: frozenset[Setting] = frozenset()  # live, but nothing about them is open: they are paused
        self._ended_by = "running"
        self._met = False  # the bound that was asked for
        self._confirming: tuple[Setting, ...] = ()
        self._confirm_blocks = experiment.design.confirm  # still to begin

    @property
    def planned_total(self) -> int:
        known = self._trials.told + self._trials.waiting
        if self._ended_by != "running":
            return known + self._confirm_blocks * len(self._confirming)
        blocks = self._experiment.measure.repeats - self._begun
        return known + blocks * len(self._live) + self._confirm_trials

    @property
    def progress(self) -> Progress:
        race = Race(
            looks=tuple(self._looks),
            departures=tuple(self._departures.values()),
            trials=self._trials.told - self._told_before,
            grid_trials=len(self._settings) * self._experiment.measure.repeats,
            ended_by=self._ended_by,
            blocks=self._blocks,
        )
        return Progress(self.planned_total - self._trials.told, self._trials.left, race, raced=self._settings)

    @property
    def block_ended(self) -> bool:
        return self._trials.idle and bool(self._results)

    def ask(self) -> TrialSpec | None:
        """The next trial; None when the race is over and its winner confirmed."""
        if self._trials.idle:
            self._begin_block()
        return self._trials.ask()

    def tell(self, result: TrialResult) -> None:
        self._trials.tell(result)
        self._results.append(result)
        if not self._trials.idle:
            return
        if self._ended_by == "running":
            self._block_over()
        elif self._confirming:
            self._reconsider(self._confirming[0])

    @property
    def _live(self) -> list[Setting]:
        gone = {*self._departures, *self._trials.left}
        return [setting for setting in self._settings if setting not in gone]

    @property
    def _next(self) -> list[Setting]:
        return [setting for setting in self._live if setting not in self._settled]

    @property
    def _confirm_trials(self) -> int:
        """The most confirmation trials: those of the winner and its rival."""
        return self._experiment.design.confirm * min(2, len(self._settings))

    def _begin_block(self) -> None:
        if self._ended_by == "running":
            self._trials.begin(self._begun, self._next)
        elif self._confirm_blocks and self._confirming:
            self._trials.begin(self._begun, self._confirming, Stage.CONFIRM)
            self._confirm_blocks -= 1
        else:
            return
        self._begun += 1

    def _block_over(self) -> None:
        """Takes a look at the results, and decides if there is another block."""
        block = self._begun - 1
        self._blocks = self._begun
        for setting, reason in self._trials.left.items():
            self._departures.setdefault(setting, Departure(setting, block, reason.removeprefix("left after ")))
        decided = self._look(block) if block > 0 else False
        if decided or not self._live:
            self._ended_by = "regret" if self._met else "decided"
        elif self._begun >= self._experiment.measure.repeats:
            self._ended_by = "blocks"
        elif not self._trials.fits(len(self._next) + self._confirm_trials):
            self._ended_by = "budget"
        else:
            return
        self._confirming = self._finalists() if self._confirm_blocks else ()

    def _reconsider(self, named: Setting) -> None:
        """Goes on without the setting that is being confirmed, if one of its starts failed that may not: those that
        left as worse come back, for it may be this one that they were worse than."""
        objective = self._experiment.objective
        starts = starts_of(self._results, named, objective.confidence)
        barred = judge(objective, [], settings=len(self._settings), starts=starts).barred
        if not barred:
            return
        self._departures = {of: departure for of, departure in self._departures.items() if not departure.worse}
        self._departures[named] = Departure(named, self._begun - 1, f"misses {'; '.join(barred)}")
        self._settled, self._confirming, self._ended_by, self._met = frozenset(), (), "running", False
        self._block_over()

    def _look(self, block: int) -> bool:
        """Eliminates the settings that the block has shown to be beaten; returns True if nothing is open any more."""
        table = ResponseTable(self._experiment, self._settings, self._results)
        compliance = compliance_of(self._experiment, table)
        contest = hold_contest(self._experiment, table, scale_of(table), compliance, self._departures)
        self._contest = contest
        if contest.leader is None:
            # Settings that certainly violate the SLO are paused; all others continue until one is allowed.
            self._settled = frozenset(setting for setting in self._live if compliance[setting].missed)
            return bool(self._live) and all(compliance[setting].missed for setting in self._live)
        raced = self._live
        effects = {setting.id: effect for setting in raced if (effect := contest.effect(setting)) is not None}
        gone: list[Setting] = []
        if compliance[contest.leader].certain:  # a leader that may violate the SLO eliminates no other setting
            gone = [setting for setting in raced if self._leaves(setting, contest, compliance[setting], block)]
        self._looks.append(Look(block, contest.leader, effects, tuple(gone)))
        passing = {s: replace(compliance[s], lapsed=()) for s in self._live if self._may_pass(s, compliance[s])}
        open_now = still_open(contest, {**compliance, **passing}, table, self._live)
        if (asked := self._experiment.design.regret) is not None:
            return self._look_at_bound(asked, contest.leader, open_now)
        self._settled = frozenset(self._live) - {*open_now, contest.leader}
        return compliance[contest.leader].certain and not open_now

    def _look_at_bound(self, asked: float, leader: Setting, open_now: Sequence[Setting]) -> bool:
        """True once no other setting can be better than the named one by more than was asked for. Until then those that
        can be are open; where none is named yet, those of any other race."""
        decision = decision_of(self._experiment, self._settings, self._results, self.progress)
        if decision.regret is not None:
            open_now = [setting for setting, above in decision.above.items() if above > asked]
        self._settled = frozenset(self._live) - {*open_now, leader, decision.chosen}
        self._met = decision.regret is not None and decision.regret <= asked
        return self._met

    def _leaves(self, setting: Setting, contest: Contest, compliance: Compliance, block: int) -> bool:
        if compliance.barred and not self._may_pass(setting, compliance):
            self._departures[setting] = Departure(setting, block, f"misses {'; '.join(compliance.barred)}")
        elif contest.below(setting):
            effect = contest.effect(setting)
            assert contest.leader is not None
            reason = _worse_by(effect, contest, contest.leader)
            self._departures[setting] = Departure(setting, block, reason, effect, worse=True)
        return setting in self._departures

    def _may_pass(self, setting: Setting, compliance: Compliance) -> bool:
        """True if more starts could still show that no more of them fail, or break a constraint, than are allowed."""
        objective, measure = self._experiment.objective, self._experiment.measure
        if compliance.missed or objective.allow_failed_starts == 0:
            return False
        seen = starts_of(self._results, setting, objective.confidence)
        return is_allowed(
            max(1, seen.failed), seen.failed + measure.repeats, objective.allow_failed_starts, 1 - objective.confidence
        )

    def _finalists(self) -> tuple[Setting, ...]:
        """The setting that the race names, and its nearest rival; empty if it names none, or only bounds it."""
        decision = decision_of(self._experiment, self._settings, self._results, self.progress)
        named = decision.chosen
        if named is None or decision.kind is AnswerKind.BOUNDED or self._contest is None:
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


def still_open(
    contest: Contest, compliance: Mapping[Setting, Compliance], table: ResponseTable, live: Sequence[Setting]
) -> list[Setting]:
    """Settings for which more blocks could change the answer, or the verdict against the leader.

    A setting that cannot be better than the leader by more than the margin, and looks equivalent to it, is not worth
    more trials just to prove the equivalence, unless it is cheaper than the setting that would be named now."""
    found = [setting for setting in live if contest.verdict(setting) is Verdict.EQUIVALENT]
    cheapest = min((table.cost(setting) for setting in found if compliance[setting].certain), default=None)
    contenders = set(contest.contenders())

    def is_open(setting: Setting) -> bool:
        if setting == contest.leader or compliance[setting].barred:
            return False
        verdict = contest.verdict(setting)
        if verdict is Verdict.WORSE:
            return False
        unsure = bool(compliance[setting].open)
        if verdict is Verdict.EQUIVALENT or setting not in contenders:
            looks_worse = contest.difference.get(setting, -math.inf) < -contest.allowed
            cheaper = cheapest is None or table.cost(setting) < cheapest
            return looks_worse or (cheaper and (unsure or verdict is not Verdict.EQUIVALENT))
        return True

    return [setting for setting in live if is_open(setting)]


def _worse_by(effect: Estimate | None, contest: Contest, leader: Setting) -> str:
    """`40 to 52 % worse than threads=64`; without figures if there is no ratio to the leader."""
    if effect is None or effect.low is None or effect.high is None:
        return f"worse than {leader.id}"
    scale = 1.0 if contest.scale.log or contest.scale.relative else abs(contest.leader_mean)
    low, high = sorted(abs(1 - end) * scale for end in (effect.low, effect.high))
    unit = "%" if contest.scale.log or contest.scale.relative else "percentage points"
    return f"{significant(100 * low)} to {significant(100 * high)} {unit} worse than {leader.id}"
