"""Quantiles of reference distributions and a few special functions, from scipy.special alone: scipy.stats takes 1.5 s
to import, which would show between trials. scipy.special is imported on first use."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]

_TAIL = 1e-13  # of chi's distribution, left out at either end
_TAIL_ERROR = 1e-8  # relative, of the tail's probability
# Enough for the relative error of 1e-6 with 1 to 500 degrees of freedom, 2 to 64 means and tails of 1e-5.
_NODES_NORMAL = 112
_NODES_SCALE, _STEP_SCALE = 40, 0.14  # at least so many, and on the log scale no further apart
_NORMAL_REACH = 8.5  # standard deviations: 2e-17 lies beyond


@lru_cache(maxsize=4096)
def student_t(confidence: float, df: float) -> float:
    """Two-sided quantile of Student's t."""
    from scipy.special import stdtrit  # noqa: PLC0415

    return float(stdtrit(df, 0.5 + confidence / 2))


def f_tail(value: float, numerator: float, denominator: float) -> float:
    """Probability that Fisher's F with these degrees of freedom is larger."""
    from scipy.special import fdtrc  # noqa: PLC0415

    return float(fdtrc(numerator, denominator, value))


@lru_cache(maxsize=4096)
def studentised_range(confidence: float, k: int, df: float) -> float:
    """Quantile of Tukey's studentised range of k means, divided by sqrt(2): comparable to a t quantile. Relative error
    below 1e-6; some 4 ms."""
    return _inverse(lambda q: _range_cdf(q, k, df), confidence) / math.sqrt(2)


@lru_cache(maxsize=4096)
def distance_from_best(confidence: float, k: int, df: float) -> float:
    """One-sided quantile for the k - 1 distances between one mean and all others at once (Dunnett 1955; for the unknown
    best: Hsu 1981), comparable to a t quantile. Relative error below 1e-6; some 4 ms."""
    return _inverse(lambda q: _distance_cdf(q, k, df), confidence) / math.sqrt(2)


def _inverse(cdf: Callable[[float], float], confidence: float) -> float:
    """Inverts by the Illinois rule (Dowell & Jarratt 1971) on the logarithm of the tail, which is nearly straight."""
    wanted = math.log1p(-confidence)

    def excess(q: float) -> float:
        return math.log(max(1 - cdf(q), 1e-15)) - wanted

    low, high = 0.0, 2.0
    at_low, at_high = -wanted, excess(high)
    while at_high > 0:
        low, at_low, high = high, at_high, 2 * high
        at_high = excess(high)
    for _ in range(60):
        middle = high - at_high * (high - low) / (at_high - at_low)
        at_middle = excess(middle)
        if abs(at_middle) < _TAIL_ERROR:
            return middle
        if at_middle * at_high < 0:
            low, at_low = high, at_high
        else:
            at_low /= 2
        high, at_high = middle, at_middle
    return high


def _range_cdf(q: float, k: int, df: float) -> float:
    """P(range of k standard normals / (chi_df / sqrt(df)) < q), after Lund & Lund (1983), with trapezoidal rules, which
    converge exponentially for such integrands (Trefethen & Weideman 2014)."""
    from scipy.special import ndtr  # noqa: PLC0415

    scales, weights = _scale_rule(df)
    z, z_weights = _normal_rule()
    inside = ndtr(z)[None, :] - ndtr(z[None, :] - q * scales[:, None])
    return float(weights @ (k * inside ** (k - 1) @ z_weights))


def _distance_cdf(q: float, k: int, df: float) -> float:
    """P((largest of k - 1 standard normals - one more) / (chi_df / sqrt(df)) < q)."""
    from scipy.special import ndtr  # noqa: PLC0415

    scales, weights = _scale_rule(df)
    z, z_weights = _normal_rule()
    inside = ndtr(z[None, :] + q * scales[:, None])
    return float(weights @ (inside ** (k - 1) @ z_weights))


@lru_cache(maxsize=64)
def _scale_rule(df: float) -> tuple[Array, Array]:
    """Nodes and weights for integrals over chi_df / sqrt(df), on whose log scale every feature is some units wide: with
    few degrees of freedom a small part of chi's own scale decides how far the tail reaches."""
    from scipy.special import gammaincinv, gammaln  # noqa: PLC0415

    low, high = (math.log(2 * gammaincinv(df / 2, p) / df) / 2 for p in (_TAIL, 1 - _TAIL))
    nodes = max(_NODES_SCALE, math.ceil((high - low) / _STEP_SCALE))
    logs, step = np.linspace(low, high, nodes, retstep=True)
    log_density = math.log(2) + df / 2 * math.log(df / 2) - gammaln(df / 2) + df * logs - df * np.exp(2 * logs) / 2
    return np.exp(logs), step * np.exp(log_density)


@lru_cache(maxsize=1)
def _normal_rule() -> tuple[Array, Array]:
    """Nodes and weights for integrals over the standard normal density."""
    z, step = np.linspace(-_NORMAL_REACH, _NORMAL_REACH, _NODES_NORMAL, retstep=True)
    return z, step * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)


def digamma(x: Array) -> Array:
    """The digamma function, the derivative of the logarithm of gamma; x > 0."""
    from scipy.special import digamma as function  # noqa: PLC0415

    return np.asarray(function(x), dtype=np.float64)


def trigamma(x: Array, derivative: int = 0) -> Array:
    """The trigamma function or its derivative of some order."""
    from scipy.special import polygamma  # noqa: PLC0415

    return np.asarray(polygamma(1 + derivative, x), dtype=np.float64)


def inverse_trigamma(x: Array) -> Array:
    """The inverse of the trigamma function, by Newton's method on 1 / trigamma (Smyth 2004, appendix); relative error
    below 1e-8. x > 0."""
    y = 0.5 + 1 / x
    for _ in range(20):
        before = y
        value = trigamma(y)
        y = np.maximum(y + value * (1 - value / x) / trigamma(y, 1), 1e-8)
        if (np.abs(y - before) < 1e-12 * y).all():
            break
    return y
