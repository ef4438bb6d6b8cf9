from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import studentized_range, t

from powerband.analyze.special import inverse_trigamma, student_t, studentised_range, trigamma


@pytest.mark.parametrize(
    ("confidence", "k", "df"), [(0.95, 3, 1), (0.95, 2, 2), (0.9, 6, 4), (0.95, 12, 20), (0.99, 40, 60), (0.95, 6, 500)]
)
def test_studentised_range_agrees_with_scipy(confidence: float, k: int, df: int) -> None:
    expected = studentized_range.ppf(confidence, k, df) / math.sqrt(2)
    assert studentised_range(confidence, k, df) == pytest.approx(expected, rel=1e-6)


def test_a_range_of_two_is_a_t_test() -> None:
    assert studentised_range(0.95, 2, 7) == pytest.approx(student_t(0.95, 7), rel=1e-9)
    assert student_t(0.95, 7) == pytest.approx(t.ppf(0.975, 7), rel=1e-12)


def test_inverse_trigamma_inverts() -> None:
    x = np.array([1e-4, 0.01, 0.3, 1.0, 5.0, 100.0])
    assert inverse_trigamma(trigamma(x)) == pytest.approx(x, rel=1e-6)
