"""A/A sweeps: all settings are the same, so every verdict `better` or `worse` is false. At most 5 % of sweeps may hold
one, whatever the noise; intervals must contain the truth as often as they say; and real differences must still be
found.

All sweeps of one case are worked out at once; seeds are fixed, so the figures are the same every time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from powerband.analyze.stats.intervals import compare_with_leader, estimate
from powerband.analyze.stats.special import Array

SWEEPS = 1000
SD = 0.03
# 5 % and 1.64 standard errors of a share of 5 % in 1,000 sweeps.
FALSE_MAX = 0.05 + 1.64 * (0.05 * 0.95 / SWEEPS) ** 0.5

Noise = Callable[[np.random.Generator, int, int], Array]


def normal(dice: np.random.Generator, n: int, k: int) -> Array:
    return dice.standard_normal((SWEEPS, n, k))


def heavy_tail(dice: np.random.Generator, n: int, k: int) -> Array:
    return dice.standard_t(3, (SWEEPS, n, k)) / np.sqrt(3)


def drift(dice: np.random.Generator, n: int, k: int) -> Array:
    """Noise of a machine that gets faster from block to block, and within each block, whose order is random."""
    order = np.argsort(dice.random((SWEEPS, n, k)), axis=2)
    return dice.standard_normal((SWEEPS, n, k)) + np.linspace(0, 10, n)[None, :, None] + order / k


def disturbed_block(dice: np.random.Generator, n: int, k: int) -> Array:
    noise = dice.standard_normal((SWEEPS, n, k))
    noise[np.arange(SWEEPS), dice.integers(n, size=SWEEPS)] *= 6
    return noise


def unequal(dice: np.random.Generator, n: int, k: int) -> Array:
    return dice.standard_normal((SWEEPS, n, k)) * np.geomspace(0.3, 3, k)


def one_noisy(dice: np.random.Generator, n: int, k: int) -> Array:
    return dice.standard_normal((SWEEPS, n, k)) * np.where(np.arange(k) == k - 1, 10, 1)


def half_noisy(dice: np.random.Generator, n: int, k: int) -> Array:
    return dice.standard_normal((SWEEPS, n, k)) * np.where(np.arange(k) >= k // 2, 8, 1)


def correlated(dice: np.random.Generator, n: int, k: int) -> Array:
    return dice.standard_normal((SWEEPS, n, k)) + 3 * dice.standard_normal((SWEEPS, n, 1))


NOISES: list[Noise] = [normal, heavy_tail, drift, disturbed_block, unequal, one_noisy, half_noisy, correlated]


@pytest.mark.parametrize("noise", NOISES, ids=lambda noise: noise.__name__)
@pytest.mark.parametrize("k", [2, 6, 12])
@pytest.mark.parametrize("n", [3, 5, 10])
def test_equal_settings_have_no_winner(noise: Noise, k: int, n: int) -> None:
    y = SD * noise(np.random.default_rng([k, n, NOISES.index(noise)]), n, k)
    found = compare_with_leader(y, 0.95)
    false = (np.abs(found.difference) > found.half).any(axis=1).mean()
    assert false <= FALSE_MAX


@pytest.mark.parametrize(("k", "n"), [(3, 5), (6, 5), (12, 10)])
def test_missing_cells_make_no_winners(k: int, n: int) -> None:
    dice = np.random.default_rng([k, n])
    y = SD * normal(dice, n, k)
    y[dice.random(y.shape) < 0.1] = np.nan
    found = compare_with_leader(y, 0.95)
    with np.errstate(invalid="ignore"):
        assert (np.abs(found.difference) > found.half).any(axis=1).mean() <= FALSE_MAX


@pytest.mark.parametrize("noise", [normal, unequal, correlated], ids=lambda noise: noise.__name__)
@pytest.mark.parametrize(("k", "n"), [(2, 5), (6, 3), (6, 10)])
def test_simultaneous_intervals_hold_all_true_differences(noise: Noise, k: int, n: int) -> None:
    dice = np.random.default_rng([k, n])
    truth = np.linspace(0, 0.5, k)
    found = compare_with_leader(truth + SD * noise(dice, n, k), 0.95)
    true_difference = truth[None, :] - truth[found.leader][:, None]
    held = (np.abs(found.difference - true_difference) <= found.half + 1e-12).all(axis=1).mean()
    assert held >= 1 - FALSE_MAX


@pytest.mark.parametrize(("k", "n"), [(2, 5), (6, 5), (6, 10), (12, 10)])
def test_settings_ten_percent_apart_are_told_apart(k: int, n: int) -> None:
    """Trials have 3 % noise, and the leader is 10 % above all others. The share of sweeps that find this must be
    useful."""
    truth = np.zeros(k)
    truth[0] = np.log(1.10)
    found = compare_with_leader(truth + SD * normal(np.random.default_rng([k, n]), n, k), 0.95)
    right = (found.leader == 0) & (found.difference[:, 1:] + found.half[:, 1:] < 0).all(axis=1)
    assert right.mean() >= {(2, 5): 0.85, (6, 5): 0.5, (6, 10): 0.99, (12, 10): 0.98}[k, n]


@pytest.mark.parametrize("apart", [0.03, 0.04])
def test_settings_apart_by_the_margin_are_rarely_called_equivalent(apart: float) -> None:
    """Two one-sided tests err in at most 5 % at the margin itself."""
    dice = np.random.default_rng(9)
    truth = np.array([np.log1p(apart), 0.0, -1.0, -1.0])
    found = compare_with_leader(truth + 0.01 * normal(dice, 5, 4), 0.95)
    called = np.abs(found.difference[:, 1]) + found.half_tost[:, 1] <= np.log1p(0.03)
    assert (called & (found.leader == 0)).mean() <= FALSE_MAX


def test_equal_quiet_settings_are_called_equivalent() -> None:
    found = compare_with_leader(0.005 * normal(np.random.default_rng(3), 5, 4), 0.95)
    same = (np.abs(found.difference) + found.half_tost <= np.log1p(0.03)).all(axis=1)
    assert same.mean() > 0.9


@pytest.mark.parametrize("n", [2, 3, 5, 10])
@pytest.mark.parametrize("log", [True, False])
def test_an_estimates_interval_holds_the_truth_as_often_as_it_says(n: int, log: bool) -> None:
    dice = np.random.default_rng(n)
    draws = 100 * np.exp(0.1 * dice.standard_normal((3000, n))) if log else 100 + dice.standard_normal((3000, n))
    found = [estimate(list(row), 0.95, log=log) for row in draws]
    held = np.mean([e.low is not None and e.high is not None and e.low <= 100 <= e.high for e in found])
    assert held == pytest.approx(0.95, abs=0.012)
