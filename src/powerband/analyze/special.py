"""Quantiles of reference distributions and a few special functions. scipy is imported on first use: it takes 1.5 s,
which a command that only starts or prints should not pay."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]


@lru_cache(maxsize=4096)
def student_t(confidence: float, df: float) -> float:
    """Two-sided quantile of Student's t."""
    from scipy.stats import t  # noqa: PLC0415

    return float(t.ppf(0.5 + confidence / 2, df))


@lru_cache(maxsize=4096)
def studentised_range(confidence: float, k: int, df: float) -> float:
    """Quantile of Tukey's studentised range of k means, divided by sqrt(2): comparable to a t quantile."""
    from scipy.stats import studentized_range  # noqa: PLC0415

    return float(studentized_range.ppf(confidence, k, df)) / math.sqrt(2)


def digamma(x: Array) -> Array:
    from scipy.special import digamma as function  # noqa: PLC0415

    return np.asarray(function(x), dtype=np.float64)


def trigamma(x: Array, derivative: int = 0) -> Array:
    """The trigamma function or its derivative of some order."""
    from scipy.special import polygamma  # noqa: PLC0415

    return np.asarray(polygamma(1 + derivative, x), dtype=np.float64)


def inverse_trigamma(x: Array) -> Array:
    """Newton's method on 1 / trigamma (Smyth 2004, appendix); relative error below 1e-8 after 20 steps. x > 0."""
    y = 0.5 + 1 / x
    for _ in range(20):
        value = trigamma(y)
        y = np.maximum(y + value * (1 - value / x) / trigamma(y, 1), 1e-8)
    return y
