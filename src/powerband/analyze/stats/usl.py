"""The Universal Scalability Law (Gunther 1993; "Guerrilla Capacity Planning", 2007) fitted to throughput by threads:

    X(N) = g N / (1 + a (N - 1) + b N (N - 1)),    N* = sqrt((1 - a) / b)

with contention a and coherency b, neither below 0. In: one throughput for each trial, its threads and its block. Out:
`Scalability`, or why N* cannot be stated. Not here: what following it would cost (`rules_of_thumb.py`).

N / X(N) is linear in (1, N - 1, N (N - 1)) with coefficients (1, a, b) / g, so the best fit under the bounds is found
exactly, by least squares over each set of coefficients that may be zero: no iterative search, which could miss it, is
needed. Relative errors are minimised, since noise is proportional to throughput.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from powerband.analyze.stats.special import Array, student_t
from powerband.model.results import Estimate

LEVELS_MIN = 4  # three coefficients, and one level more to see whether they fit
DRAWS = 999  # so that the tails of 2.5 % are ranks
BLOCK_ROUNDS = 5  # by then the effects no longer change
PEAKLESS_MAX = 0.025  # share of draws that may lack a peak: one tail of a 95 % interval
PRIOR_TRIALS = 2  # the weight of the common variance
WIDTH_MAX = 4.0  # highest over lowest end of a believable interval of N*


@dataclass(frozen=True)
class Scalability:
    """The fitted law. `rate_per_s`: g, the rate of one thread; `contention`: a; `coherency`: b. `threads_best`: N* with
    its interval; if None, `refused` says why."""

    rate_per_s: float
    contention: float
    coherency: float
    threads_best: Estimate | None
    refused: str | None = None


def fit_usl(
    threads: Sequence[float], throughput_per_s: Sequence[float], blocks: Sequence[int], *, confidence: float = 0.95
) -> Scalability | None:
    """Fits the law to all trials, with a bootstrap interval of N*; None with fewer than four levels or two blocks, with
    too few trials for these, or with a throughput that is not above zero.

    Block effects (the machine's drift) are taken out first. The bootstrap is parametric (Efron & Tibshirani 1993,
    section 6.5): noise of each level's own size around the law, so that a race's levels of few trials keep their place.
    Residuals are scaled up by what the fit absorbed of them (leverage; MacKinnon & White 1985), and the noise is
    widened by Student's t over the normal quantile for their degrees of freedom. N* is refused if the data do not pass
    the peak: if more than 2.5 % of the draws have it beyond the most threads tried, or before the fewest, if these are
    more than one."""
    n, y = np.array(threads, dtype=float), np.array(throughput_per_s, dtype=float)
    freedom = n.size - 3 - (len(set(blocks)) - 1)
    if len(set(threads)) < LEVELS_MIN or len(set(blocks)) < 2 or freedom < 1 or not (y > 0).all():
        return None
    y, coefficients = _without_block_effects(n, y, np.array(blocks))
    fitted = n / (_columns(n) @ coefficients)
    residual = np.log(y / fitted) / np.sqrt(1 - _leverage(n, fitted, np.array(blocks)))
    widened = student_t(confidence, freedom) / student_t(confidence, math.inf)
    noise = np.random.default_rng(0).standard_normal((DRAWS, n.size)) * _moderated_sd(n, residual) * widened
    peaks = _peaks(_solve(n, fitted * np.exp(noise)))
    first, *others = map(float, coefficients)
    rate, contention, coherency = 1 / first, others[0] / first, others[1] / first
    peak = float(_peaks(coefficients[None])[0])
    tail = (1 - confidence) / 2
    # By rank, since draws without a peak are infinite.
    low, high = (float(np.quantile(peaks, q, method="nearest")) for q in (tail, 1 - tail))
    refused = _refusal(peaks, peak, low, high, n)
    best = None if refused else Estimate(peak, low, high, confidence, int(n.size))
    return Scalability(rate, contention, coherency, best, refused)


def _refusal(peaks: Array, peak: float, low: float, high: float, threads: Array) -> str | None:
    most, fewest = threads.max(), threads.min()
    if peak >= most or float((peaks >= most).mean()) > PEAKLESS_MAX:
        return f"the fit needs a throughput that falls; up to {most:g} threads it had not peaked for certain"
    if fewest > 1 and (peak <= fewest or float((peaks <= fewest).mean()) > PEAKLESS_MAX):
        return f"throughput may peak below {fewest:g} threads, the fewest tried: try fewer"
    if high > WIDTH_MAX * low:
        return f"the peak may lie anywhere from {low:.3g} to {high:.3g} threads: more rounds would decide"
    return None


def _columns(threads: Array) -> Array:
    return np.stack([np.ones_like(threads), threads - 1, threads * (threads - 1)], axis=1)


def _without_block_effects(
    threads: Array, y: Array, blocks: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> tuple[Array, Array]:
    """The throughput with each block brought to the law's level, and the coefficients. Both are found in turns, since
    later blocks of a race hold only the best settings."""
    adjusted = y
    coefficients = _solve(threads, adjusted[None])[0]
    for _ in range(BLOCK_ROUNDS):
        off = np.log(y / (threads / (_columns(threads) @ coefficients)))
        effects = {block: float(off[blocks == block].mean()) for block in set(blocks.tolist())}
        middle = float(np.mean([effects[block] for block in blocks.tolist()]))
        adjusted = y * np.exp([middle - effects[block] for block in blocks.tolist()])
        coefficients = _solve(threads, adjusted[None])[0]
    return adjusted, coefficients


def _leverage(threads: Array, fitted: Array, blocks: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Array:
    """How far each trial pulls the fit towards itself, 0 to below 1: the hat matrix's diagonal, blocks included."""
    apart = (blocks[:, None] == np.unique(blocks)[None, 1:]).astype(float)
    design = np.hstack([_columns(threads) * (fitted / threads)[:, None], apart])
    return np.asarray(np.minimum((np.linalg.qr(design)[0] ** 2).sum(1), 0.9))


def _moderated_sd(threads: Array, residual: Array) -> Array:
    """Each trial's standard deviation: that of its level, drawn towards that of all (two trials' worth)."""
    common = float((residual**2).mean())
    sd = np.empty_like(residual)
    for level in np.unique(threads):
        own = threads == level
        sd[own] = math.sqrt(((residual[own] ** 2).sum() + PRIOR_TRIALS * common) / (own.sum() + PRIOR_TRIALS))
    return sd


def _solve(threads: Array, y: Array) -> Array:
    """Coefficients (1, a, b) / g for each row of y (R, trials): least relative squares with none below 0.

    With three coefficients the constrained optimum is the best of the four fits with a, b, both or none held at 0."""
    columns = _columns(threads)
    scale = columns.max(axis=0)  # makes columns of one size, so that the normal equations can be solved accurately
    scaled = columns / scale
    inverse = y / threads  # the sum of (scaled c / target - 1)^2 is c'Ac - 2 c'b + trials
    products = (scaled[:, :, None] * scaled[:, None, :]).reshape(-1, 9)
    normal, right = (inverse**2 @ products).reshape(-1, 3, 3), inverse @ scaled
    best = np.full((y.shape[0], 3), np.nan)
    least = np.full(y.shape[0], np.inf)
    for kept in ([0, *rest] for size in (2, 1, 0) for rest in itertools.combinations((1, 2), size)):
        found = np.zeros((y.shape[0], 3))
        part = normal[:, kept][:, :, kept]
        found[:, kept] = np.linalg.solve(part, right[:, kept, None])[:, :, 0]
        loss = np.einsum("ri,rij,rj->r", found, normal, found) - 2 * (found * right).sum(1)
        allowed = (found[:, 0] > 0) & (found[:, 1:] >= 0).all(1) & (loss < least)
        best[allowed], least[allowed] = found[allowed], loss[allowed]
    return np.asarray(best / scale)


def _peaks(coefficients: Array) -> Array:
    """N* of each row: infinite where throughput never falls, 1 where one thread is best."""
    first, contention, coherency = coefficients.T
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.where(
            coherency > 0,
            np.sqrt(np.maximum(first - contention, 0) / coherency),
            np.where(contention > first, 1, np.inf),
        )
    return np.asarray(np.maximum(found, 1))
