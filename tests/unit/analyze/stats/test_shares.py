"""Clopper and Pearson's bounds have the known values, and their coverage is as stated."""

from __future__ import annotations

from math import comb

import pytest

from powerband.analyze.stats.shares import share_least, share_most


def test_of_none_in_n_the_bound_is_about_three_of_n() -> None:
    assert share_most(0, 59, 0.05) == pytest.approx(1 - 0.05 ** (1 / 59))
    assert share_most(0, 59, 0.05) < 0.05 < share_most(0, 58, 0.05)
    assert share_most(0, 0, 0.05) == 1.0 and share_most(5, 5, 0.05) == 1.0
    assert share_least(0, 5, 0.05) == 0.0 and share_least(0, 0, 0.05) == 0.0


@pytest.mark.parametrize("share", [0.02, 0.1, 0.4, 0.7])
@pytest.mark.parametrize("n", [1, 3, 8, 30])
def test_the_bounds_miss_the_truth_no_more_often_than_they_may(n: int, share: float) -> None:
    chance = [comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(n + 1)]
    assert sum(p for k, p in enumerate(chance) if share_most(k, n, 0.05) < share) <= 0.05
    assert sum(p for k, p in enumerate(chance) if share_least(k, n, 0.05) > share) <= 0.05
