from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import studentized_range, t

from powerband.analyze.stats.special import distance_from_best, inverse_trigamma, student_t, studentised_range, trigamma


@pytest.mark.parametrize(
    ("confidence", "k", "df"), [(0.95, 3, 1), (0.95, 2, 2), (0.9, 6, 4), (0.95, 12, 20), (0.99, 40, 60), (0.95, 6, 500)]
)
def test_studentised_range_agrees_with_scipy(confidence: float, k: int, df: int) -> None:
    expected = studentized_range.ppf(confidence, k, df) / math.sqrt(2)
    assert studentised_range(confidence, k, df) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("k", "df", "table"), [(2, 10, 1.81), (5, 10, 2.47), (10, 20, 2.60)])
def test_distances_from_the_best_agree_with_dunnetts_tables(k: int, df: int, table: float) -> None:
    """The table has one-sided 5 % points for k - 1 treatments and a control (Dunnett 1955, table 1a)."""
    assert distance_from_best(0.95, k, df) == pytest.approx(table, abs=0.006)


def test_distances_from_the_best_agree_with_simulation() -> None:
    dice = np.random.default_rng(4)
    means, scale = dice.standard_normal((200_000, 6)), np.sqrt(dice.chisquare(8, 200_000) / 8)
    largest = (means[:, 1:] - means[:, :1]).max(axis=1) / scale / math.sqrt(2)
    assert (largest <= distance_from_best(0.99, 6, 8)).mean() == pytest.approx(0.99, abs=0.001)


@pytest.mark.parametrize("confidence", [0.9, 0.998, 0.99999])
@pytest.mark.parametrize("df", [1, 2, 7, 500])
def test_of_two_both_are_a_t_test_however_far_out(confidence: float, df: int) -> None:
    assert studentised_range(confidence, 2, df) == pytest.approx(t.isf((1 - confidence) / 2, df), rel=1e-6)
    assert distance_from_best(confidence, 2, df) == pytest.approx(t.isf(1 - confidence, df), rel=1e-6)
    assert student_t(confidence, df) == pytest.approx(t.isf((1 - confidence) / 2, df), rel=1e-9)


def test_inverse_trigamma_inverts() -> None:
    x = np.array([1e-4, 0.01, 0.3, 1.0, 5.0, 100.0])
    assert inverse_trigamma(trigamma(x)) == pytest.approx(x, rel=1e-6)
