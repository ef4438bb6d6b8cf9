"""The true rates of the settings of a simulated race, and the noise of their starts.

In: seeded dice. Out: logs of the objective. For simulations of races (`tests/properties/`)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from powerband.analyze.stats.special import Array
from powerband.model.plan import Setting
from powerband.model.results import Analysis, AnswerKind

BLOCKS = 10
MARGIN = 0.03
SDS = (0.005, 0.010, 0.015)
Noise = Callable[..., Array]
"""A function of the dice, the number of blocks and that of settings. It returns the noise of each trial, (blocks,
settings). `rows`: so many short blocks take the time of a full one."""
Land = Callable[[np.random.Generator], Array]


def normal(dice: np.random.Generator, n: int, k: int, rows: int = 1) -> Array:
    return dice.standard_normal((n, k))


def heavy_tail(dice: np.random.Generator, n: int, k: int, rows: int = 1) -> Array:
    return dice.standard_t(3, (n, k)) / np.sqrt(3)


def drift(dice: np.random.Generator, n: int, k: int, rows: int = 1) -> Array:
    """Noise with a drift of ten standard deviations from the first block to the last, up or down, which goes on while
    the winner is confirmed."""
    slope = 10 / (rows * BLOCKS - 1) * dice.choice([-1, 1])
    return dice.standard_normal((n, k)) + slope * np.arange(n)[:, None]


def disturbed_block(dice: np.random.Generator, n: int, k: int, rows: int = 1) -> Array:
    noise = dice.standard_normal((n, k))
    first = rows * dice.integers(BLOCKS)
    noise[first : first + rows] *= 6
    return noise


NOISES: list[Noise] = [normal, heavy_tail, drift, disturbed_block]


def equal(_dice: np.random.Generator) -> Array:
    return np.zeros(6)


def one_clear_best(dice: np.random.Generator) -> Array:
    truth = np.full(8, np.log(0.9))
    truth[dice.integers(8)] = 0.0
    return truth


def saturating(dice: np.random.Generator) -> Array:
    """The rates of pool sizes 1 to 256: throughput grows with threads up to a point, then falls slowly."""
    sizes = np.geomspace(1, 256, 16)
    enough = dice.uniform(8, 64)
    return np.asarray(np.log(np.minimum(sizes / enough, 1)) - 0.0006 * np.maximum(0, sizes - enough))


def two_close(dice: np.random.Generator) -> Array:
    """Eight settings of which two are within the margin of each other, or a little beyond it."""
    truth = -dice.uniform(0.08, 0.4, 8)
    truth[dice.choice(8, 2, replace=False)] = [0.0, -dice.choice([0.01, 0.035])]
    return truth


def random_spread(dice: np.random.Generator) -> Array:
    return -np.sort(dice.exponential(0.15, 12))


LANDS: list[Land] = [equal, one_clear_best, saturating, two_close, random_spread]


def named_by(analysis: Analysis) -> Setting | None:
    """The setting that the answer names as best or equivalent; None if it is only bounded (see
    `test_regret_truth.py`)."""
    return None if analysis.answer.kind is AnswerKind.BOUNDED else analysis.answer.setting


def is_false(truth: Array, analysis: Analysis) -> bool:
    named = named_by(analysis)
    if named is None:
        return False
    level = threads_of(named)
    if truth[level] < truth.max() - np.log1p(MARGIN):
        return True
    return analysis.answer.kind is AnswerKind.BEST and bool((np.delete(truth, level) >= truth[level]).any())


def threads_of(setting: Setting) -> int:
    """The level of `threads` in a race of `fakes.races.race_of`, as a number."""
    return int(str(setting.as_dict()["threads"]).removeprefix("t"))
