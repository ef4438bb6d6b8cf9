"""Estimates how many trials a race still takes, by simulating many races from what is known of its settings.

In: the rules of a race; the results of its settings so far, or none; the noise. Out: the trials of each simulated
("played") race. The looks are those of `race.py`, with critical values by Bonferroni's inequality in place of the exact
ones, which take hundredths of a second each. No trial depends on it. Method and figures: docs/methods/forecast.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from powerband.analyze.settings.contest import FAR, ResponseTable, cheapest_of, scale_of
from powerband.analyze.settings.headline import FRESH_MIN
from powerband.analyze.stats.intervals import DF_MANY, SD_FLOOR, SMALL_SAMPLE, few_blocks
from powerband.analyze.stats.special import Array
from powerband.analyze.stats.spending import Glance, glance_at, rounds_most
from powerband.base.machine import Noise
from powerband.model.experiment import Experiment
from powerband.model.plan import Setting
from powerband.search.screening import window_for

PLAYED = 300  # simulated races
EQUAL = 0.2  # share of the spaces imagined before a race in which all settings are equal
NEAREST, FARTHEST = 0.03, 2.0  # range of the mean distance from the best in the other spaces, on the log scale
SHORT_NOISE = 2.5  # the noise of a short trial, as a multiple of that between trials of full length
BETWEEN = 1 / 3  # share of a short trial's noise that lies between starts, so that longer trials do not reduce it
SHORT_OFF = 0.03  # by so much the ratio of the first second's rate to later rates varies between settings
NOISE_FACTOR, NOISE_FACTOR_ASSUMED = 0.5, 1.0  # standard deviation of the log of the noise: remembered, assumed
NOISE_DF = 4.0  # degrees of freedom of a noise that was not measured in this run
PLAYED_BLOCKS = 200  # arbitrary: races that are open for so long are taken to go on to their end
CONFIRM_EARLY = 3  # trials: the winner and its rival, and once more the winner
SEED = 20
Dice = np.random.Generator
Flags = np.ndarray[Any, np.dtype[np.bool_]]
Places = np.ndarray[Any, np.dtype[np.intp]]


@dataclass(frozen=True)
class RaceSoFar:
    """The results so far of the settings that still race, the cheapest first. `means`: means relative to the leader, on
    the scale on which more is better; `errors`: their standard errors; `blocks`: full trials of each setting, 0 if its
    mean is of short trials; `sd`: noise of a full trial, known with `df` degrees of freedom; `allowed`: the margin on
    this scale; `asked`: the bound asked for (`design.regret`) on this scale, None if there is none; `room`: what
    disturbance may have cost each setting in a trial, by which verdicts are wider."""

    means: Array
    errors: Array
    room: Array
    blocks: Array
    sd: float
    df: float
    allowed: float
    asked: float | None


@dataclass(frozen=True)
class Played:
    """The simulated races; each array has one entry for each of `PLAYED` races. `short`, `full`: trials of each kind
    that are still to come; `confirm`: trials that confirm the winner; `raced`: settings that run full trials;
    `spared_s`: by how many s a full trial of the race is shorter than one that confirms."""

    short: Array
    full: Array
    confirm: Array
    raced: Array
    spared_s: Array

    def times_s(self, short_s: float, full_s: float, confirm_s: float, *, told: int = 0, waiting: int = 0) -> Array:
        """The time that each race still takes, in seconds, given the time of one trial of each kind. `told`: full
        trials that ended since the races were simulated; `waiting`: full trials that will run in any case."""
        full = np.maximum(self.full - told, waiting)
        return np.asarray(self.short * short_s + full * (full_s - self.spared_s) + self.confirm * confirm_s)


def simulate_untried(experiment: Experiment, settings: int, noise: Noise, around_s: float) -> Played:
    """Simulates races of so many settings of which nothing is known but the noise. `around_s`: the time in s that a
    trial takes besides its window."""
    dice = np.random.default_rng(SEED)
    spread = NOISE_FACTOR if noise.measured_on else NOISE_FACTOR_ASSUMED
    sd = noise.sd * np.exp(spread * dice.standard_normal((PLAYED, 1)))
    truth = _imagined(settings, dice)
    alive, short, spared_s = np.ones(truth.shape, dtype=bool), np.zeros(PLAYED), np.zeros(PLAYED)
    window_ns = None
    if experiment.screened_ns is not None:
        alive, short = _screened(experiment, truth, SHORT_NOISE * sd, dice)
        full_ns = experiment.load.duration_ns
        found = [window_for(experiment, SHORT_NOISE * float(each), around_s) or full_ns for each in sd[:, 0]]
        windows_ns, window_ns = np.array(found), sorted(found)[PLAYED // 2]
        spared_s = (full_ns - windows_ns) / 1e9
        sd = noise_within(SHORT_NOISE * sd, experiment.screened_ns, windows_ns[:, None])
    objective, regret = experiment.objective, experiment.design.regret
    asked = None if regret is None else math.log1p(regret)
    rules = _Rules(experiment, dice, math.log1p(objective.margin), asked, window_ns)
    full, confirm = _play(rules, truth, _Table.empty(truth.shape), alive, sd)
    return Played(short, full, confirm, alive.sum(1), spared_s)


def simulate_rest(
    experiment: Experiment, known: RaceSoFar, window_ns: int | None = None, *, screens: bool = False
) -> Played:
    """Simulates races that continue from what is known. `window_ns`: the measured time of the full trials, None: that
    of the experiment; `screens`: a block of short trials is still to come, after which the settings far behind
    leave."""
    dice = np.random.default_rng(SEED)
    shape = (PLAYED, len(known.means))
    # The noise is known with few degrees of freedom only: drawn from the scaled inverse chi-squared distribution.
    sd = known.sd * np.sqrt(known.df / dice.chisquare(known.df, (PLAYED, 1)))
    means, errors = _drawn_together(known.means, known.errors)
    truth = means + errors * dice.standard_normal(shape)
    blocks = np.tile(known.blocks.astype(float), (PLAYED, 1))
    start = np.tile(np.where(known.blocks > 0, known.means, 0.0), (PLAYED, 1))
    table = _Table(start, blocks, sd**2 * np.maximum(blocks - 1, 0))
    rules = _Rules(experiment, dice, known.allowed, known.asked, window_ns, known.room)
    alive: Flags = np.ones(shape, dtype=bool)
    if screens:
        alive = truth >= truth.max(1, keepdims=True) + math.log(1 - FAR)
    full, confirm = _play(rules, truth, table, alive, sd)
    return Played(np.zeros(PLAYED), full, confirm, alive.sum(1), np.zeros(PLAYED))


def race_so_far(
    experiment: Experiment, table: ResponseTable, live: Sequence[Setting], window_ns: int | None, noise: Noise
) -> RaceSoFar | None:
    """The results of the settings in `live` in the blocks of `table`; None if they say nothing yet. One block alone
    shows no noise: then that of the machine is taken."""
    whole, scale = table.values, scale_of(table)
    column = {setting: whole[:, table.settings.index(setting)] for setting in live}
    costs = {setting: table.cost(setting) for setting in live if not np.isnan(column[setting]).all()}
    ordered: list[Setting] = []
    while dearer := {setting: cost for setting, cost in costs.items() if setting not in ordered}:
        ordered += cheapest_of(dearer)
    if len(ordered) < 2 or (table.screened and not scale.log):
        return None
    raw = np.column_stack([column[setting] for setting in ordered])
    values = table.sign * scale.scaled(raw)
    present = ~np.isnan(values)
    ordered_means = np.where(present.any(0), np.nansum(values, axis=0) / np.maximum(present.sum(0), 1), -np.inf)
    lead = int(np.where(2 * present.sum(0) >= present.sum(0).max(), ordered_means, -np.inf).argmax())
    paired = values - values[:, [lead]]
    shared = (~np.isnan(paired)).sum(0)
    blocks = np.maximum(shared, 1)
    means = np.where(shared > 0, np.nansum(paired, axis=0) / blocks, ordered_means - ordered_means[lead])
    df = float((blocks - 1).sum() - (blocks[lead] - 1))
    rest = np.where(np.isnan(paired), 0.0, paired - means)
    prior = NOISE_DF if noise.measured_on or not df else 0.0  # an assumption counts only where nothing was seen
    squares = float((rest**2).sum()) / 2 + prior * (noise.sd * (SHORT_NOISE if table.screened else 1)) ** 2
    df += prior
    sd = max(math.sqrt(squares / df), SD_FLOOR)
    errors = sd / np.sqrt(blocks)
    if table.screened:
        errors, blocks = np.hypot(errors, SHORT_OFF), np.zeros(len(ordered))
        full_ns = np.array(window_ns or experiment.load.duration_ns)
        sd = float(noise_within(np.array(sd), experiment.screened_ns or 1, full_ns))
    slack = table.slack(scale) + 2 * table.blur(scale)  # half of the former widens a verdict, and all of the latter
    slack = slack[:, [table.settings.index(setting) for setting in ordered]]
    room = np.nansum(slack, axis=0) / np.maximum(present.sum(0), 1)
    base, objective, regret = float(np.nanmean(raw[:, lead])), experiment.objective, experiment.design.regret
    asked = None if regret is None else scale.allowed(regret, base)
    return RaceSoFar(means, errors, room, blocks, sd, df, scale.allowed(objective.margin, base), asked)


def noise_within(sd_short: Array, screened_ns: int, window_ns: Array) -> Array:
    """The noise of a trial that measures for `window_ns`, from the noise `sd_short` of trials of `screened_ns`."""
    return np.asarray(sd_short * np.sqrt(BETWEEN**2 + (1 - BETWEEN**2) * screened_ns / window_ns))


def _drawn_together(means: Array, errors: Array) -> tuple[Array, Array]:
    """Shrinks the means of settings close to the best towards each other, and their errors with them: these settings
    are taken for draws from one normal distribution, whose variance is that of the means beyond their errors (empirical
    Bayes; Efron & Morris 1973)."""
    near = means > means.max() - 4 * errors
    if near.sum() < 3:
        return means, errors
    middle = means[near].mean()
    beyond = max(0.0, float(means[near].var(ddof=1) - (errors[near] ** 2).mean()))
    share = beyond / (beyond + errors**2)
    return np.where(near, middle + share * (means - middle), means), np.where(near, errors * np.sqrt(share), errors)


def _imagined(settings: int, dice: Dice) -> Array:
    """True means of settings of which nothing is known, shape (PLAYED, settings): all equal in some races, spread in
    the others."""
    scale = np.exp(dice.uniform(math.log(NEAREST), math.log(FARTHEST), (PLAYED, 1)))
    truth = -dice.exponential(1.0, (PLAYED, settings)) * scale
    truth[dice.random(PLAYED) < EQUAL] = 0.0
    return np.asarray(truth)


@dataclass(frozen=True)
class _Rules:
    """The rules of the race. `dice`: the source of the noise; `allowed`: the margin; `asked`: the bound asked for, None
    if there is none; `window_ns`: the measured time of the full trials, None: that of the experiment; `room`: as in
    `RaceSoFar`, None if nothing is known of it."""

    experiment: Experiment
    dice: Dice
    allowed: float
    asked: float | None
    window_ns: int | None
    room: Array | None = None

    @property
    def error(self) -> float:
        return 1 - self.experiment.objective.confidence

    @property
    def trials_most(self) -> float:
        """An upper bound of the number of trials that fit into the budget; infinite without one."""
        budget_ns = self.experiment.design.budget_ns
        shortest_ns = self.experiment.screened_ns or self.experiment.load.least_duration_ns
        return math.inf if budget_ns is None else budget_ns / max(1, shortest_ns)

    def confirming(self, blocks: int) -> int:
        """The likely number of trials of so many blocks that confirm."""
        return min(CONFIRM_EARLY, 2 * blocks) if self.experiment.design.confirm_early else 2 * blocks


@dataclass
class _Table:
    """Mean, number and summed squared deviations of the trials so far; each of shape (PLAYED, settings)."""

    means: Array
    count: Array
    squares: Array

    @classmethod
    def empty(cls, shape: tuple[int, ...]) -> _Table:
        return cls(np.zeros(shape), np.zeros(shape), np.zeros(shape))

    def add(self, values: Array, take: Flags) -> None:
        count = self.count + take
        step = np.where(take, values - self.means, 0.0)
        self.means = self.means + step / np.maximum(count, 1)
        self.squares = self.squares + step * np.where(take, values - self.means, 0.0)
        self.count = count

    def against_leader(self, alive: Flags, glance: Glance, error: float) -> tuple[Places, Array, Array, Array]:
        """The leader's column, shape (PLAYED, 1); the differences to it; and their two-sided and one-sided half-widths,
        as in `intervals.compare_with_leader`."""
        from scipy.special import stdtrit  # noqa: PLC0415

        def of_leader(each: Array) -> Array:
            return np.take_along_axis(each, lead, axis=1)

        lead = np.where(alive, self.means, -np.inf).argmax(1)[:, None]
        k, live = alive.shape[1], np.maximum(alive.sum(1, keepdims=True), 2)
        n = np.minimum(self.count, of_leader(self.count))
        each_df = np.maximum(self.count - 1, 0)
        whole_df = each_df.sum(1, keepdims=True)
        own = self.squares / np.maximum(each_df, 1)
        pooled = self.squares.sum(1, keepdims=True) / np.maximum(whole_df, 1)
        believed = np.where(few_blocks(n, k), np.maximum(own, pooled), pooled)
        df = np.clip(whole_df * (1 - 1 / k), 1, DF_MANY)
        n = np.where(n >= 2, n, np.nan)
        moderated = (1 + SMALL_SAMPLE / (n - 1)) * np.sqrt((believed + of_leader(believed)) / n)
        paired = np.sqrt((own + of_leader(own)) / n)
        pair_df = np.nan_to_num(n - 1).astype(int)
        halves = []
        for whole, pairs in ((error, live * (live - 1)), (2 * error, 2 * (live - 1))):
            level = {int(each): replace(glance, live=int(each)).level(whole) for each in np.unique(live)}
            critical = stdtrit(df, 1 - np.vectorize(level.get)(live) / pairs)
            of_df = stdtrit(np.arange(pair_df.max() + 1.0), 1 - whole / 2)  # few values, for many pairs
            half = np.maximum(critical * moderated, of_df[pair_df] * paired)
            np.put_along_axis(half, lead, 0.0, axis=1)
            halves.append(half)
        return lead, self.means - of_leader(self.means), halves[0], halves[1]


def _screened(experiment: Experiment, truth: Array, sd: Array, dice: Dice) -> tuple[Flags, Array]:
    """The settings that are left after the short trials, and the number of these trials, as `screening.py` decides."""
    error, far = 1 - experiment.objective.confidence, -math.log(1 - FAR)
    glance = glance_at(experiment, 2, screened=True)
    table, everyone = _Table.empty(truth.shape), np.ones(truth.shape, dtype=bool)
    for _ in range(2):
        table.add(truth + sd * dice.standard_normal(truth.shape), everyone)
    lead, difference, half, _ = table.against_leader(everyone, glance, error)
    alive: Flags = np.asarray(~(difference + half < -far))
    doubtful: Flags = np.asarray(alive & (difference < -far))
    again = doubtful.copy()
    np.put_along_axis(again, lead, np.asarray(doubtful.any(axis=1, keepdims=True)), axis=1)
    table.add(truth + sd * dice.standard_normal(truth.shape), again)
    _, difference, half, _ = table.against_leader(alive, glance, error)
    alive &= ~(doubtful & (difference + half < -far))
    return alive, 2.0 * truth.shape[1] + again.sum(1)


def _play(rules: _Rules, truth: Array, table: _Table, alive: Flags, sd: Array) -> tuple[Array, Array]:
    """The number of full trials of each race, and of those that confirm its winner."""
    most, done = rounds_most(rules.experiment, rules.window_ns), alive.sum(1) <= 1
    running, full = alive & ~done[:, None], np.zeros(len(truth))
    fresh = rules.experiment.design.confirm
    confirm = np.where(done, rules.confirming(fresh or FRESH_MIN), rules.confirming(fresh))
    begun = int(table.count.max())
    last = min(most, begun + PLAYED_BLOCKS)
    for blocks in range(begun, last + 1):
        if blocks >= 2:
            glance = glance_at(rules.experiment, blocks, window_ns=rules.window_ns)
            lead, difference, half, one = table.against_leader(alive, glance, rules.error)
            if rules.room is not None:  # as in `hold_contest`
                above, below = rules.room, rules.room[lead]
                middle, wider = (above - below) / 2, (above + below) / 2
                difference, half, one = difference + middle, half + wider, one + wider
            alive = alive & ~(difference + half < -rules.allowed)
            led = np.zeros(alive.shape, dtype=bool)
            np.put_along_axis(led, lead, True, axis=1)
            others = alive & ~led
            open_now = others & _open(rules, difference, half, one, others)
            done = done | ~open_now.any(1)
            running = (open_now | led) & ~done[:, None]
        if blocks == last or (done | (full > rules.trials_most)).all():
            full += np.where(done, 0, running.sum(1)) * (most - blocks)
            break
        table.add(truth + sd * rules.dice.standard_normal(truth.shape), running)
        full += running.sum(1)
    return full, np.where(done, confirm, 0)


def _open(rules: _Rules, difference: Array, half: Array, one: Array, others: Flags) -> Flags:
    """The settings that are still open, as in `still_open`; settings are in the order of their costs. `others`:
    those that still race, but for the leader."""
    if rules.asked is not None:
        return np.asarray(~(difference + one <= rules.asked))
    equivalent = np.abs(difference) + one <= rules.allowed
    cheapest: Flags = np.cumsum(equivalent, axis=1) - equivalent == 0
    contends = ~(difference + one <= rules.allowed)
    worse, looks_worse = ~equivalent & (difference < -half), difference < -rules.allowed
    alike = (others & ~worse & ~looks_worse).any(1, keepdims=True)
    other = (looks_worse & ~alike) | (cheapest & ~equivalent)
    asked = rules.experiment.compares_revisions & ~equivalent
    return np.asarray(~worse & (np.where(equivalent | ~contends, other, True) | asked))
