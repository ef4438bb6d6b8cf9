"""The looks at a race together are wrong no more often than was asked for, and not much less often; the truth is known:
all settings are equal. Seeds are fixed."""

from __future__ import annotations

import math

import numpy as np
import pytest

from powerband.analyze.stats.intervals import compare_with_leader
from powerband.analyze.stats.spending import Glance, levels_of, share_of

ERROR = 0.05
SWEEPS = 40_000  # the standard error of a share of 5 % is 0.11 %


@pytest.mark.parametrize("most", [2, 3, 10, 36])
def test_looks_at_one_mean_are_wrong_as_often_as_asked_for(most: int) -> None:
    from scipy.stats import norm

    blocks = np.arange(2, most + 1)
    means = np.random.default_rng(most).standard_normal((SWEEPS, most)).cumsum(1)[:, 1:] / np.sqrt(blocks)
    wrong = means > norm.isf(levels_of(most, ERROR))
    assert wrong.any(1).mean() == pytest.approx(ERROR, abs=4 * 0.0011)
    first = np.bincount(wrong.argmax(1)[wrong.any(1)], minlength=most - 1) / SWEEPS
    shares = np.array([ERROR * share_of(look, most) for look in blocks])
    assert (np.abs(first - shares) < 4 * np.sqrt(shares / SWEEPS)).all()


def test_the_second_of_two_looks_has_the_level_of_the_bivariate_normal() -> None:
    from scipy.stats import multivariate_normal, norm

    edges = norm.isf(levels_of(3, ERROR))
    correlated = multivariate_normal([0, 0], [[1, math.sqrt(2 / 3)], [math.sqrt(2 / 3), 1]])
    assert 1 - correlated.cdf(edges) == pytest.approx(ERROR, rel=1e-3)


@pytest.mark.parametrize("most", [1, 2, 10, 500, 10_000])
@pytest.mark.parametrize("live", [2, 16])
def test_a_level_is_no_less_than_the_share_and_no_more_than_the_whole(most: int, live: int) -> None:
    for after in sorted({1, 2, most // 2, most, most + 3}):
        glance = Glance.of(after, most, live)
        assert glance.share * ERROR <= glance.level(ERROR) <= ERROR


@pytest.mark.parametrize(("settings", "most"), [(2, 10), (2, 30), (3, 30)])
def test_intervals_at_all_looks_together_miss_as_rarely_as_asked_for(settings: int, most: int) -> None:
    """Two-sided: no true difference, which is 0, lies outside of its interval at any look. By the union bound alone it
    would be in 1.5 % of the sweeps of two settings with 30 looks."""
    y = np.random.default_rng([settings, most]).standard_normal((4000, most, settings)) * 0.03
    wrong = np.zeros(len(y), dtype=bool)
    for blocks in range(2, most + 1):
        found = compare_with_leader(y[:, :blocks], 1 - ERROR, None, Glance.of(blocks, most, settings))
        wrong |= (np.abs(found.difference) > found.half).any(1)
    assert (0.03 if settings == 2 else 0.01) < wrong.mean() <= ERROR
