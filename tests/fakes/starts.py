"""Starts that differ as those of real servers do, and the error rates of verdicts and figures on them; the truth is
known.

`python -m fakes.starts PAGE...` (`make statistics`) writes the tables between their marks into the pages. Everything
goes through the analysis that judges real runs: sweeps of equal settings through `compare_with_leader`, all at once,
races and searches for a capacity through planner and analysis.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fakes.capacities import all_searched, coverage_table
from fakes.confusion import put
from fakes.failing import failing_table
from fakes.landscapes import threads_of
from fakes.races import race_of, run_experiment, threads
from powerband.analyze.stats.intervals import compare_with_leader
from powerband.analyze.stats.special import Array
from powerband.analyze.stats.spending import Glance
from powerband.model.plan import TrialSpec
from powerband.model.results import AnswerKind

MARGIN = float(np.log1p(0.03))
BLOCKS = 10
SETTINGS = (2, 4, 8, 16, 30)
Draw = Callable[[np.random.Generator, int, int, int], Array]


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
    Shape("three modes, 10% and 25% slower", _three_modes),
    Shape("one setting 10 times as noisy", _one_noisy),
    Shape("drift, AR(1) of 0.8", _drift),
    Shape("one round 6 times as noisy", _disturbed_block),
)


def false_verdicts(shape: Shape, settings: int, blocks: int, sweeps: int) -> float:
    """The share of sweeps of equal settings with any verdict `better` or `worse`, at one look after so many blocks."""
    y = shape.draw(_dice(shape, settings, blocks), sweeps, blocks, settings)
    found = compare_with_leader(y, 0.95)
    return float((np.abs(found.difference) > found.half).any(axis=1).mean())


def false_departures(shape: Shape, settings: int, sweeps: int) -> float:
    """The share of races of equal settings in which one would have been eliminated, at a look after each of ten
    blocks."""
    y = shape.draw(_dice(shape, settings, 0), sweeps, BLOCKS, settings)
    gone = np.zeros(sweeps, dtype=bool)
    for blocks in range(2, BLOCKS + 1):
        found = compare_with_leader(y[:, :blocks], 0.95, None, Glance.of(blocks, BLOCKS, settings))
        gone |= (found.difference + found.half < -MARGIN).any(axis=1)
    return float(gone.mean())


def verdict_table(sweeps: int) -> str:
    """The table of errors by shape: the worst number of settings after 3, 5 and 10 blocks, and in races."""
    lines = [
        "| starts | 3 rounds | 5 | 10 | races |",
        "|---|---|---|---|---|",
    ]
    for shape in SHAPES:
        cells = []
        for blocks in (3, 5, 10, 0):
            shares = [
                false_verdicts(shape, k, blocks, sweeps) if blocks else false_departures(shape, k, sweeps)
                for k in SETTINGS
            ]
            cells.append(f"{max(shares):.1%}")
        lines.append(f"| {shape.name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


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
    Land("4 settings, 10 % apart, drift", (0.0, -0.1, -0.2, -0.3), SHAPES[10]),
)


def race_counts(land: Land, races: int, confirm: int) -> Counter[str]:
    """Counts of races in which the interval in the first sentence contains the true mean of its setting, for answers
    that name one and for those that give the best so far. The true mean is that of the logs, over starts and time."""
    count: Counter[str] = Counter()
    k = len(land.truth)
    centre = float(land.shape.draw(np.random.default_rng(0), 200, BLOCKS, k).mean())
    for number in range(races):
        dice = np.random.default_rng([number, confirm])
        y = land.shape.draw(dice, 1, BLOCKS + confirm, k)[0] + np.array(land.truth)

        def serve(spec: TrialSpec, y: Array = y) -> Mapping[str, float]:
            value = 1e6 * float(np.exp(y[spec.block, threads(spec)]))
            return {"goodput_per_s": 1e6, "threads_max": threads(spec) + 1.0, land.metric: value}

        direction = "maximise" if land.metric == "goodput_per_s" else "minimise"
        objective = {"metric": land.metric, "direction": direction}
        analysis = run_experiment(
            race_of(k, repeats=BLOCKS, confirm=confirm, seed=number, objective=objective, named=True), serve
        )
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


def figure_table(races: int) -> str:
    """The table of the coverage of the first sentence's interval: each cell has the figure with three confirming fresh
    starts, with two, and with none."""
    lines = [
        "| race | named: share held | best so far: share held | mean half-width |",
        "|---|---|---|---|",
    ]
    for land in LANDS:
        both = []
        for confirm in (3, 2, 0):
            count = race_counts(land, races, confirm)
            shown = [
                f"{count[f'{kind} held'] / count[kind]:.0%} of {count[kind]}" if count[kind] else "-"
                for kind in ("named", "so far")
            ]
            width = count["width"] / 100 / max(1, count["named"] + count["so far"])
            both.append([*shown, f"{width:.1f} %"])
        cells = ["; ".join(cell) for cell in zip(*both, strict=True)]
        lines.append(f"| {land.name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _dice(shape: Shape, settings: int, blocks: int) -> np.random.Generator:
    return np.random.default_rng([[each.name for each in SHAPES].index(shape.name), settings, blocks])


def main() -> None:
    from fakes.regrets import regret_table

    tables: dict[str, Callable[[], str]] = {
        "false verdicts": lambda: verdict_table(2000),
        "failed starts": lambda: failing_table(30),
        "the headline's coverage": lambda: figure_table(100),
        "capacity's coverage": lambda: coverage_table(all_searched(18)),
        "bounds": lambda: regret_table(1000, 30),
    }
    pages = list(map(Path, sys.argv[1:]))
    for title, made in tables.items():
        text = made()
        for page in pages:
            if f"<!-- {title}: begin -->" in page.read_text():
                page.write_text(put(page.read_text(), title, text))
        sys.stdout.write(f"{title}\n{text}")


if __name__ == "__main__":
    main()
