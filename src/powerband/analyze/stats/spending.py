"""Shares out the error among the looks at a race, so that all looks together spend no more than was asked for.

In: the most blocks that a race may take. Out: a `Glance`, with which the intervals of one look are worked out. Why
these shares, their source, and what else was tried: docs/methods/racing.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from powerband.model.experiment import Experiment

FIRST_WEIGHT = 0.5  # two blocks have one degree of freedom each
LAST_WEIGHT = 4.0  # its verdicts are final
SCREEN_SHARE = 0.2
"""The share of the whole error that looks at short trials may spend, where a race begins with them. The looks at the
race have the rest. Arbitrary: settings that are far behind need little."""
SCREEN_LOOKS = 2  # after two blocks of short trials, and after a third
KNOWN_VARIANCE = 0.7
"""The share of an error that looks may spend by `levels_of`, which takes values as normal and variances as known.
Student's t for the same levels is wrong 1.2 times as often, and 1.4 times where starts have two modes; both by
simulation (`tests/properties/test_looks.py`, docs/methods/regret.md)."""
LOOKS_MOST = 2000  # of more, each has its share alone; the levels of so many take half a second
_FINE, _REACH = 20, 8.0  # steps of the grid within one standard deviation of a block, at least; how many it reaches


@dataclass(frozen=True)
class Glance:
    """One of the looks at a race: after `after` blocks of at most `most`. `share`: the part of the whole error that it
    may spend; `live`: the number of settings that are still in the race."""

    share: float
    live: int
    after: int
    most: int

    @classmethod
    def of(cls, after: int, most: int, live: int, part: float = 1.0) -> Glance:
        """A look at a race whose looks may spend `part` of the whole error."""
        return cls(part * share_of(after, most), live, after, most)

    def level(self, error: float) -> float:
        """The error of this look's simultaneous intervals by themselves, if all looks together may spend `error`. It is
        more than its share, since looks that follow each other see nearly the same and err together. Each ordered pair
        of live settings is given an equal part of the error: for all looks at one pair that is exact, and the pairs
        together err no more often than the sum says."""
        pairs = self.live * (self.live - 1)
        if self.most > LOOKS_MOST:
            return self.share * error
        for_all = error * self.share / share_of(self.after, self.most)
        levels = levels_of(self.most, KNOWN_VARIANCE * for_all / pairs)
        return max(self.share * error, pairs * levels[min(max(2, self.after), len(levels) + 1) - 2])


@lru_cache(maxsize=1024)
def levels_of(most: int, error: float) -> tuple[float, ...]:
    """One-sided levels of the looks after 2, 3, ... `most` blocks at the mean of normal values of known variance. The
    probability that a look is wrong and none before it was is its share of `error` (`share_of`).

    Error spending by Lan & DeMets (1983), worked out by the recursion of Armitage, McPherson & Rowe (1969): the density
    of the sum of all blocks, as far as no look was wrong, is convolved with that of a further block, on a grid."""
    from scipy.special import ndtr  # noqa: PLC0415

    block = 1 / math.sqrt(max(2, most))  # the standard deviation of one block, if that of all together is 1
    cells = 2 ** math.ceil(math.log2(2 * _REACH * _FINE / block))
    step = 2 * _REACH / cells
    sums = step * np.arange(-cells // 2, cells // 2)
    waves = 2 * math.pi * np.fft.rfftfreq(len(sums), step)
    further = np.exp(-((waves * block) ** 2) / 2)
    density = np.exp(-((sums / block) ** 2) / 4) / (block * math.sqrt(4 * math.pi))  # of two blocks
    levels = []
    for blocks in range(2, max(2, most) + 1):
        if blocks > 2:
            density = np.fft.irfft(np.fft.rfft(density) * further, len(sums))
        beyond = np.maximum.accumulate(np.cumsum(density[::-1]) * step)[::-1]  # beyond the lower edge of each cell
        wrong = share_of(blocks, most) * error
        edge = np.interp(-math.log(wrong), -np.log(np.maximum(beyond, 1e-300)), sums - step / 2)
        levels.append(float(ndtr(-edge / (block * math.sqrt(blocks)))))
        density *= np.clip((edge - sums) / step + 0.5, 0, 1)
    return tuple(levels)


def share_of(look_after: int, blocks_most: int) -> float:
    """The share of the whole error for the look after so many blocks, in a race of `blocks_most` at most.

    Error spending over looks (Lan & DeMets 1983), fixed before the race: the chance that any look is wrong is no more
    than the whole error, whatever the looks lead to. The last look, whose verdicts are final, gets most; the first,
    after two blocks with one degree of freedom each, half of a usual one."""
    first, between = (FIRST_WEIGHT, blocks_most - 3) if blocks_most > 2 else (0.0, 0)
    return _weight(max(2, look_after), blocks_most) / (first + between + LAST_WEIGHT)


def rounds_most(experiment: Experiment, window_ns: int | None = None) -> int:
    """The most rounds of a race whose trials measure for `window_ns`; None: for `load.duration`. Shorter trials leave
    time for more than `measure.repeats`. Such a trial is taken to last for twice its measured time: it measures for as
    long as its start, warm-up and stop take (`search/screening.py`)."""
    full_ns = experiment.load.duration_ns
    own_ns = full_ns if window_ns is None else min(window_ns, full_ns)
    return experiment.measure.repeats * (full_ns + own_ns) // (2 * own_ns)


def share_at(experiment: Experiment, look_after: int, *, screened: bool = False, window_ns: int | None = None) -> float:
    """The share of the whole error for the look after so many blocks of an experiment; 1 for a plan that is fixed
    beforehand, which has one look, at its end. `screened`, `window_ns`: as in `glance_at`."""
    if not experiment.is_race:
        return 1.0
    return glance_at(experiment, look_after, screened=screened, window_ns=window_ns).share


def glance_at(
    experiment: Experiment, look_after: int, live: int = 2, *, screened: bool = False, window_ns: int | None = None
) -> Glance:
    """The look after so many blocks of a race, at so many live settings. `screened`: True for a look at the short
    trials that a race begins with; `window_ns`: the measured time of its full trials, None: that of the experiment."""
    if screened:
        return Glance.of(2, 2, live, SCREEN_SHARE / SCREEN_LOOKS)
    left = 1.0 if experiment.screened_ns is None else 1 - SCREEN_SHARE
    return Glance.of(look_after, rounds_most(experiment, window_ns), live, left)


def _weight(blocks: int, blocks_most: int) -> float:
    if blocks >= blocks_most:
        return LAST_WEIGHT
    return FIRST_WEIGHT if blocks == 2 else 1.0
