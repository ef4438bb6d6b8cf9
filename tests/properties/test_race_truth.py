"""Races whose truth is known, through the real planner and the real analysis, compared with the full grid on the same
noise.

At most 5 % of races have a false winner, whatever the noise; at least 95 % of them give the same answer as the full
grid, with no more than half of its trials. `make test-tables` prints the figures; docs/methods/racing.md says what is
asked. Seeds are fixed.

A false winner: the named setting is worse than the best by more than the margin; or it is called `best` although
another is equivalent or better (of equal settings every `best` is false).

The same answer: if the grid names a setting, so does the race, and the one that it names is among those that the grid
calls best or equivalent; if the grid is inconclusive, the race is so too, or names one of the settings between which
the grid cannot decide."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np
import pytest

from fakes.landscapes import BLOCKS, LANDS, MARGIN, NOISES, SDS, Land, Noise, is_false, named_by
from fakes.races import race_of, run_experiment, threads
from powerband.analyze.stats.intervals import compare_with_leader
from powerband.analyze.stats.special import Array
from powerband.analyze.stats.spending import Glance, share_of
from powerband.model.plan import TrialSpec
from powerband.model.results import Analysis, AnswerKind

CONFIRM = 3
RACES = 26  # of each landscape under each noise: 520 in all
RACES_OF_TABLE = 52


def race_and_grid(land: Land, noise: Noise, number: int) -> tuple[Array, Analysis, Analysis]:
    """The truth (log) and the analyses of a race and of the full grid, from the same values for each setting and block,
    and for the blocks that confirm."""
    dice = np.random.default_rng([LANDS.index(land), NOISES.index(noise), number])
    truth = land(dice)
    values = np.exp(truth + SDS[number % len(SDS)] * noise(dice, BLOCKS + CONFIRM, len(truth)))

    def serve(spec: TrialSpec) -> Mapping[str, float]:
        level = threads(spec)
        return {"goodput_per_s": 1000 * float(values[spec.block, level]), "threads_max": level + 1.0}

    race = run_experiment(
        race_of(len(truth), repeats=BLOCKS, confirm=CONFIRM, confirm_early=True, seed=number, named=True), serve
    )
    grid = run_experiment(race_of(len(truth), repeats=BLOCKS, order="blocks", seed=number, named=True), serve)
    return truth, race, grid


def same_answer(race: Analysis, grid: Analysis) -> bool:
    mine, theirs, its = named_by(race), named_by(grid), grid.answer
    if theirs is not None:
        return mine is not None and mine in {theirs, *its.equivalent}
    return mine is None or mine in {its.leader, *its.equivalent, *its.undecided}


def table(counts: Mapping[tuple[str, str], Counter[str]]) -> str:
    lines = [f"{'':16} {'':16} races  false  of the grid  same answer  named  by the grid  trials"]
    for (land, noise), c in counts.items():
        n = c["races"]
        lines.append(
            f"{land:16} {noise:16} {n:5}  {c['false'] / n:5.1%}  {c['grid_false'] / n:11.1%}  {c['same'] / n:11.1%}"
            f"  {c['named'] / n:5.0%}  {c['grid_named'] / n:11.0%}  {c['trials'] / c['grid_trials']:6.0%}"
        )
    return "\n".join(lines)


def race_counts(races: int) -> dict[tuple[str, str], Counter[str]]:
    """Counts of outcomes by landscape and noise."""
    found: dict[tuple[str, str], Counter[str]] = {}
    for land in LANDS:
        for noise in NOISES:
            c = found[land.__name__, noise.__name__] = Counter()
            for number in range(races):
                truth, race, grid = race_and_grid(land, noise, number)
                assert race.race is not None
                c["races"] += 1
                c["false"] += is_false(truth, race)
                c["grid_false"] += is_false(truth, grid)
                c["same"] += same_answer(race, grid)
                c["named"] += named_by(race) is not None
                c["grid_named"] += named_by(grid) is not None
                c["trials"] += len(race.trials)
                c["grid_trials"] += len(grid.trials)
    sums = {("all", noise.__name__): total(found, noise.__name__) for noise in NOISES}
    sums["all", "normal, drift"] = sums["all", "normal"] + sums["all", "drift"]
    sums |= {(land.__name__, "all"): total(found, land.__name__) for land in LANDS}
    sys.stdout.write(f"\n{table(found | sums | {('all', 'all'): total(found)})}\n")
    return found


def total(counts: Mapping[tuple[str, str], Counter[str]], name: str = "") -> Counter[str]:
    return sum((c for key, c in counts.items() if name in ("", *key)), Counter())


def share_max(share: float, races: int) -> float:
    """The share and 1.64 standard errors of it."""
    return share + 1.64 * (share * (1 - share) / races) ** 0.5


@pytest.mark.parametrize(
    "races", [pytest.param(RACES, marks=pytest.mark.long), pytest.param(RACES_OF_TABLE, marks=pytest.mark.table)]
)
def test_a_race_gives_the_grids_answer_for_half_of_its_trials_and_false_winners_are_rare(races: int) -> None:
    """All assertions stand in one test, so that one worker makes the races once."""
    counts = race_counts(races)
    for name in (thing.__name__ for thing in (*NOISES, *LANDS)):
        c = total(counts, name)
        assert c["false"] / c["races"] <= share_max(0.05, c["races"]), name
    c = total(counts)
    assert c["same"] / c["races"] >= 0.95
    assert c["trials"] / c["grid_trials"] <= 0.50
    assert c["false"] / c["races"] <= 0.05


AA_RACES = 100


@pytest.mark.parametrize("from_limit", [None, 0.0, -0.03])
@pytest.mark.parametrize("spread", [(1.0, 1.0, 1.0, 1.0), (0.5, 0.5, 0.5, 5.0)], ids=["equal", "one_noisy"])
def test_equal_settings_at_a_limit_have_no_best(from_limit: float | None, spread: tuple[float, ...]) -> None:
    """A tenth of the trials is invalid. `from_limit`: how far all settings are from the constraint's limit; None: no
    constraint."""
    constraints = [] if from_limit is None else ["p99 < 50ms"]
    best = 0
    for number in range(AA_RACES):
        dice = np.random.default_rng([number, 5])

        def serve(spec: TrialSpec, dice: np.random.Generator = dice) -> Mapping[str, float] | str:
            if dice.random() < 0.1:
                return "host_steal"
            noise = np.exp(0.03 * spread[threads(spec)] * dice.standard_normal(2))
            response_ns = 50e6 * (1 + (from_limit or 0.0)) * float(noise[1])
            return {"goodput_per_s": 1000 * float(noise[0]), "response_time_ns_p99": response_ns}

        made = race_of(4, repeats=BLOCKS, confirm=0, seed=number, objective={"subject_to": constraints})
        best += run_experiment(made, serve).answer.kind is AnswerKind.BEST
    assert best / AA_RACES <= share_max(0.05, AA_RACES)


SWEEPS = 500


def equal_noise(k: int) -> Array:
    return np.ones(k)


def unequal_noise(k: int) -> Array:
    return np.geomspace(0.3, 3, k)


@pytest.mark.parametrize("spread", [equal_noise, unequal_noise], ids=lambda spread: spread.__name__)
@pytest.mark.parametrize("k", [2, 4, 8, 16])
def test_intervals_hold_the_truth_over_all_looks_together(spread: Callable[[int], Array], k: int) -> None:
    """No setting is eliminated here, so every look compares all pairs: the hardest case."""
    dice = np.random.default_rng([k, 3])
    truth = np.linspace(0, 0.5, k)
    y = truth + 0.02 * spread(k) * dice.standard_normal((SWEEPS, BLOCKS, k))
    held = np.ones(SWEEPS, dtype=bool)
    above = np.zeros(SWEEPS, dtype=bool)  # the best exceeds the leader by more than a one-sided interval allows
    for n in range(2, BLOCKS + 1):
        found = compare_with_leader(y[:, :n], 0.95, None, Glance.of(n, BLOCKS, k))
        true_difference = truth[None, :] - truth[found.leader][:, None]
        held &= (np.abs(found.difference - true_difference) <= found.half + 1e-12).all(axis=1)
        above |= true_difference[:, -1] > found.difference[:, -1] + found.half_tost[:, -1] + 1e-12
    sys.stdout.write(f"\n{k} settings, {spread.__name__}: all looks hold the truth in {held.mean():.1%}\n")
    assert held.mean() >= 1 - share_max(0.05, SWEEPS)
    assert above.mean() <= share_max(0.05, SWEEPS)


@pytest.mark.parametrize("k", [4, 8, 16])
def test_one_setting_ten_times_noisier_makes_no_more_false_departures(k: int) -> None:
    """The settings are equal, but one is ten times noisier. A departure is a difference beyond the margin at any
    look."""
    dice = np.random.default_rng([k, 5])
    y = np.where(np.arange(k) == 0, 0.1, 0.01) * dice.standard_normal((SWEEPS, BLOCKS, k))
    left = np.zeros(SWEEPS, dtype=bool)
    for n in range(2, BLOCKS + 1):
        found = compare_with_leader(y[:, :n], 0.95, None, Glance.of(n, BLOCKS, k))
        left |= (found.difference + found.half < -np.log1p(MARGIN)).any(axis=1)
    assert left.mean() <= share_max(0.05, SWEEPS)


def test_the_shares_of_all_looks_make_the_whole_error() -> None:
    for most in (2, 3, 5, 10, 40):
        shares = [share_of(blocks, most) for blocks in range(2, most + 1)]
        assert sum(shares) == pytest.approx(1) and max(shares) == shares[-1]
