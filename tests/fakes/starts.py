"""Starts that differ as those of real servers do, and the error rates of verdicts and figures on them; the truth is
known.

`make statistics` writes the tables into docs/methods/comparing-settings.md and estimates.md. Everything goes through
the analysis that judges real runs: sweeps of equal settings through `compare_with_leader`, all at once, races through
planner and analysis.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fakes.landscapes import threads_of
from fakes.made import Made
from fakes.races import race_of, run_experiment, threads
from powerband.analyze.stats.intervals import compare_with_leader
from powerband.analyze.stats.special import Array
from powerband.analyze.stats.spending import Glance
from powerband.files.tune_options import DEFAULT_SCREEN
from powerband.model.experiment import SCREEN_BLOCKS
from powerband.model.plan import Stage, TrialSpec
from powerband.model.results import Analysis, AnswerKind

MARGIN = float(np.log1p(0.03))
BLOCKS = 10
SETTINGS = (2, 4, 8, 16, 30)
Draw = Callable[[np.random.Generator, int, int, int], Array]
AS_TUNE: dict[str, Any] = {"screen": DEFAULT_SCREEN, "confirm_early": True}
CONFIRM = 3
AROUND_S, SHORT_S, FULL_S = 1.0, 0.5, 10.0  # it takes a second to start, to warm up and to stop
WITHIN = 0.02  # the noise within a trial of half a second, which falls with the root of its length
# A race as of `tune` has at most so many rounds of full trials for each that was asked for, as they get shorter.
ROUNDS_EACH = 4


@dataclass(frozen=True)
class Shape:
    """A distribution of starts. `draw(dice, sweeps, blocks, settings)`: logs of the results of equal settings."""

    name: str
    draw: Draw


def two_modes(slow: float, apart: float, width: float) -> Shape:
    """Starts in two modes: a share `slow` of them is slower by the share `apart`; `width`: the standard deviation of
    each mode."""

    def draw(dice: np.random.Generator, sweeps: int, blocks: int, settings: int) -> Array:
        shape = (sweeps, blocks, settings)
        slower = dice.random(shape) < slow
        return np.asarray(slower * np.log1p(-apart) + width * dice.standard_normal(shape))

    return Shape(f"{slow:.0%} of starts {apart:.0%} slower, each ±{width:.1%}", draw)


def _normal(dice: np.random.Generator, *shape: int) -> Array:
    return 0.03 * dice.standard_normal(shape)


def _heavy_tail(dice: np.random.Generator, *shape: int) -> Array:
    return np.asarray(0.03 * dice.standard_t(3, shape))


def _lognormal(dice: np.random.Generator, *shape: int) -> Array:
    return np.asarray(-0.03 * np.exp(dice.standard_normal(shape)))


def _three_modes(dice: np.random.Generator, *shape: int) -> Array:
    modes = np.log([1.0, 0.9, 0.75])[dice.choice(3, shape, p=[0.5, 0.3, 0.2])]
    return np.asarray(modes + 0.005 * dice.standard_normal(shape))


def _one_noisy(dice: np.random.Generator, *shape: int) -> Array:
    return 0.01 * dice.standard_normal(shape) * np.where(np.arange(shape[2]) == shape[2] - 1, 10, 1)


def _drift(dice: np.random.Generator, *shape: int) -> Array:
    """Noise that is AR(1) with a coefficient of 0.8 from trial to trial; the trials of a block run in random order."""
    sweeps, blocks, settings = shape
    noise = 0.03 * dice.standard_normal((sweeps, blocks * settings))
    for trial in range(1, blocks * settings):
        noise[:, trial] += 0.8 * noise[:, trial - 1]
    order = np.argsort(dice.random(shape), axis=2)
    return np.asarray(np.take_along_axis(noise.reshape(shape), order, 2))


def _disturbed_block(dice: np.random.Generator, *shape: int) -> Array:
    noise = 0.03 * dice.standard_normal(shape)
    noise[np.arange(shape[0]), dice.integers(shape[1], size=shape[0])] *= 6
    return noise


SHAPES = (
    Shape("normal, 3 %", _normal),
    Shape("heavy tail (t, 3 degrees of freedom)", _heavy_tail),
    Shape("lognormal", _lognormal),
    two_modes(0.1, 0.3, 0.001),
    two_modes(0.3, 0.2, 0.005),
    two_modes(0.5, 0.3, 0.001),
    two_modes(0.5, 0.1, 0.005),
    two_modes(0.2, 0.05, 0.02),
    two_modes(0.5, 0.05, 0.01),
    Shape("three modes, 10% and 25% slower", _three_modes),
    Shape("one setting 10 times as noisy", _one_noisy),
    Shape("drift, AR(1) of 0.8", _drift),
    Shape("one round 6 times as noisy", _disturbed_block),
)


REQUESTS, RANK = 1000, 990  # of a trial: a p99 needs so many, and is the time of this one of them, the fastest first


def _p99(dice: np.random.Generator, *shape: int) -> Array:
    """Logs of p99s, the less the better: of trials whose response times are lognormal, with a standard deviation of 1
    of their logs. Of uniform values such an order statistic has a beta distribution (David & Nagaraja 2003)."""
    from scipy.special import ndtri

    return np.asarray(-ndtri(dice.beta(RANK, REQUESTS + 1 - RANK, shape)))


TAIL = Shape(f"p99 of {REQUESTS:,} lognormal times", _p99)


def false_verdicts(shape: Shape, settings: int, blocks: int, sweeps: int) -> float:
    """The share of sweeps of equal settings with any verdict `better` or `worse`, at one look after so many blocks."""
    y = shape.draw(_dice(shape, settings, blocks), sweeps, blocks, settings)
    found = compare_with_leader(y, 0.95)
    return float((np.abs(found.difference) > found.half).any(axis=1).mean())


def false_departures(shape: Shape, settings: int, sweeps: int) -> float:
    """The share of races of equal settings in which one would have been eliminated, at a look after each of ten
    blocks but the first."""
    y = shape.draw(_dice(shape, settings, 0), sweeps, BLOCKS, settings)
    gone = np.zeros(sweeps, dtype=bool)
    for blocks in range(2, BLOCKS + 1):
        found = compare_with_leader(y[:, :blocks], 0.95, None, Glance.of(blocks, BLOCKS, settings))
        gone |= (found.difference + found.half < -MARGIN).any(axis=1)
    return float(gone.mean())


LOOKS = (3, 5, 10, 0)  # after so many blocks there is one look; 0: a race of nine looks
SWEEPS, SWEEPS_OF_TWO = 2000, 20_000  # intervals of two settings have no slack: more show by how much


@dataclass(frozen=True)
class Looked:
    """Sweeps of equal settings. `blocks`: one of `LOOKS`."""

    shape: Shape
    settings: int
    blocks: int

    @property
    def sweeps(self) -> int:
        return SWEEPS_OF_TWO if self.settings == 2 else SWEEPS

    @property
    def name(self) -> str:
        looks = f"{self.blocks} rounds" if self.blocks else "a race"
        return f"{self.shape.name}: {self.settings} settings, {looks}, {self.sweeps:,} sweeps"

    def false(self) -> float:
        """The share of sweeps with a false verdict, or of races with a false departure."""
        if self.blocks:
            return false_verdicts(self.shape, self.settings, self.blocks, self.sweeps)
        return false_departures(self.shape, self.settings, self.sweeps)


def verdict_rows() -> list[tuple[str, list[list[Looked]]]]:
    """The name of each row, and for each of its cells the sweeps of which the cell has the largest share."""
    return [(shape.name, [[Looked(shape, k, blocks) for k in SETTINGS] for blocks in LOOKS]) for shape in SHAPES]


def verdict_table(found: Mapping[str, float]) -> str:
    """The table of errors by shape: the worst number of settings after 3, 5 and 10 blocks, and in races."""
    lines = [
        "| starts | 3 rounds | 5 | 10 | races |",
        "|---|---|---|---|---|",
    ]
    for name, cells in verdict_rows():
        worst = (max(found[looked.name] for looked in cell) for cell in cells)
        lines.append(f"| {name} | {' | '.join(f'{share:.1%}' for share in worst)} |")
    return "\n".join(lines) + "\n"


VERDICTS = Made(
    "false verdicts",
    "comparing-settings.md",
    {looked.name: looked.false for _, cells in verdict_rows() for cell in cells for looked in cell},
    verdict_table,
    cheap=Looked(SHAPES[0], 2, 3).name,
)


@dataclass(frozen=True)
class Land:
    """Settings that race: logs of their true means, and the shape of their starts. `metric`: a rate to maximise, or p99
    to minimise."""

    name: str
    truth: Sequence[float]
    shape: Shape
    metric: str = "goodput_per_s"


_NOISE_1 = Shape("normal, 1 %", lambda dice, *shape: 0.01 * dice.standard_normal(shape))
_P99 = Shape("p99, 8 %", lambda dice, *shape: np.asarray(0.08 * np.exp(0.7 * dice.standard_normal(shape))))
LANDS = (
    Land("30 settings, 2 % apart, noise 1 %", tuple(-0.02 * np.arange(30)), _NOISE_1),
    Land("2 settings, 3 % apart, p99 with a tail", (0.0, 0.03), _P99, "response_time_ns_p99"),
    Land("30 equal settings, noise 3 %", (0.0,) * 30, SHAPES[0]),
    Land("8 equal settings, heavy tail", (0.0,) * 8, SHAPES[1]),
    Land("8 equal settings, 30 % of starts 20 % slower", (0.0,) * 8, SHAPES[4]),
    Land("4 settings, 10 % apart, drift", (0.0, -0.1, -0.2, -0.3), SHAPES[11]),
)


def _raced(land: Land, number: int, confirm: int) -> Analysis:
    """A race of full trials alone."""
    dice = np.random.default_rng([number, confirm])
    y = land.shape.draw(dice, 1, BLOCKS + confirm, len(land.truth))[0] + np.array(land.truth)
    made = race_of(
        len(land.truth), repeats=BLOCKS, confirm=confirm, seed=number, objective=_objective(land), named=True
    )
    return run_experiment(made, lambda spec: _served(land, spec, y[spec.block, threads(spec)]))


def _raced_as_tune(land: Land, number: int, repeats: int = BLOCKS) -> Analysis:
    """A race as `tune` plans it by default: first short trials, if there are enough settings and the objective is a
    rate; then full ones as short as their noise allows, more of them; and fresh starts that end once they agree."""
    k, rows = len(land.truth), SCREEN_BLOCKS + ROUNDS_EACH * repeats + 3 * CONFIRM
    dice = np.random.default_rng([number, 100])
    y = land.shape.draw(dice, 1, rows, k)[0] + np.array(land.truth)
    within = WITHIN * dice.standard_normal((rows, k))

    def serve(spec: TrialSpec) -> Mapping[str, float]:
        cell = spec.block, threads(spec)
        return _served(land, spec, y[cell] + within[cell] * math.sqrt(SHORT_S / _window_s(spec)))

    made = race_of(k, repeats=repeats, confirm=CONFIRM, seed=number, objective=_objective(land), named=True, **AS_TUNE)
    return run_experiment(made, serve, lambda spec: AROUND_S + _window_s(spec))


def _window_s(spec: TrialSpec) -> float:
    return FULL_S if spec.window_ns is None else spec.window_ns / 1e9


def _objective(land: Land) -> dict[str, str]:
    return {"metric": land.metric, "direction": "maximise" if land.metric == "goodput_per_s" else "minimise"}


def _served(land: Land, spec: TrialSpec, log: float) -> dict[str, float]:
    return {"goodput_per_s": 1e6, "threads_max": threads(spec) + 1.0, land.metric: 1e6 * float(np.exp(log))}


def false_as_tune(shape: Shape, settings: int, races: int, repeats: int = BLOCKS) -> Counter[str]:
    """Counts of races of equal settings as `tune` plans them. `false`: those in which one left as worse, or was called
    the best; `short`: those in which one left by short trials alone."""
    count: Counter[str] = Counter()
    for number in range(races):
        analysis = _raced_as_tune(Land("equal", (0.0,) * settings, shape), number, repeats)
        assert analysis.race is not None
        left = {departure.setting for departure in analysis.race.departures if departure.worse}
        count["screened"] += any(trial.stage is Stage.SCREEN for trial in analysis.trials)
        count["false"] += bool(left) or analysis.answer.kind is AnswerKind.BEST
        count["short"] += bool(left - {trial.setting for trial in analysis.trials if trial.stage is Stage.COMPARE})
    return count


def race_counts(land: Land, races: int, confirm: int, *, as_tune: bool = False) -> Counter[str]:
    """Counts of races in which the interval in the first sentence contains the true mean of its setting, for answers
    that name one and for those that give the best so far. The true mean is that of the logs, over starts and time.
    `confirm`: how many fresh starts; `as_tune`: True for races as `tune` plans them, with the fresh starts that it
    has."""
    count: Counter[str] = Counter()
    centre = float(land.shape.draw(np.random.default_rng(0), 200, BLOCKS, len(land.truth)).mean())
    for number in range(races):
        analysis = _raced_as_tune(land, number) if as_tune else _raced(land, number, confirm)
        told = analysis.answer.setting or analysis.answer.leader
        figure = analysis.answer.figure
        if told is None or figure is None or figure.estimate.low is None or figure.estimate.high is None:
            count["without"] += 1
            continue
        kind = "named" if analysis.answer.kind in (AnswerKind.BEST, AnswerKind.EQUIVALENT_SET) else "so far"
        true = 1e6 * float(np.exp(centre + land.truth[threads_of(told)]))
        count[kind] += 1
        count[f"{kind} held"] += figure.estimate.low <= true <= figure.estimate.high
        count["width"] += round(1e4 * (figure.estimate.high / figure.estimate.low - 1) / 2)
    return count


RACES = 100
FRESH_STARTS = (3, 2, 0)


def figure_table(found: Mapping[str, Mapping[str, int]]) -> str:
    """The table of the coverage of the first sentence's interval: each cell has the figure with three confirming fresh
    starts, with two, and with none. No number of races stands where it is all."""
    lines = [
        "| race | named: share held | best so far: share held | mean half-width |",
        "|---|---|---|---|",
    ]
    for land in LANDS:
        both = []
        for confirm in FRESH_STARTS:
            count = Counter(found[_case(land, confirm)])
            shown = [
                f"{count[f'{kind} held'] / count[kind]:.0%}{_of(count[kind])}" if count[kind] else "-"
                for kind in ("named", "so far")
            ]
            width = count["width"] / 100 / max(1, count["named"] + count["so far"])
            both.append([*shown, f"{width:.1f} %"])
        cells = ["; ".join(cell) for cell in zip(*both, strict=True)]
        lines.append(f"| {land.name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _dice(shape: Shape, settings: int, blocks: int) -> np.random.Generator:
    return np.random.default_rng([[each.name for each in (*SHAPES, TAIL)].index(shape.name), settings, blocks])


def _of(races: int) -> str:
    return "" if races == RACES else f" of {races}"


def _case(land: Land, confirm: int) -> str:
    return f"{land.name}; {confirm} fresh starts"


FIGURES = Made(
    "the headline's coverage",
    "estimates.md",
    {_case(land, confirm): partial(race_counts, land, RACES, confirm) for confirm in FRESH_STARTS for land in LANDS},
    figure_table,
    cheap=_case(LANDS[1], 0),
)
