"""Computes estimates with intervals: one setting's metric over its trials, and all settings against the leader at once.

Pure functions on arrays; no I/O, no vocabulary of settings (`compare.py` joins both). The methods, why they were chosen
and the simulations that show them right: docs/methods/comparing-settings.md and estimates.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from powerband.analyze.stats.special import (
    Array,
    digamma,
    distance_from_best,
    inverse_trigamma,
    student_t,
    studentised_range,
    trigamma,
)
from powerband.analyze.stats.spending import Glance
from powerband.model.metrics import METRICS
from powerband.model.results import Estimate

SD_FLOOR = 1e-4
"""Smallest standard deviation of log values that is believed: counts over finite windows resolve no better. On other
scales it is so many times their `Scale.size`, as with `ALIKE`."""
ALIKE = 0.02
"""The smallest standard deviation that is believed of two blocks of at most `ALIKE_SETTINGS` settings. If starts come
out in two modes, all of them agree by luck in one contest of eight, or in more (docs/methods/comparing-settings.md)."""
ALIKE_SETTINGS = 4  # with more settings there are more degrees of freedom, which do not all agree by luck
FEW = 0.5
"""Blocks are few while the expected number of settings that drew the same of two modes in all of them is no less."""
SMALL_SAMPLE = 0.35
"""Simultaneous intervals are widened by the factor 1 + SMALL_SAMPLE / (blocks - 1), found by simulation, which pays for
the moderation of variances."""
EXPONENT_MAX = 700.0  # e^709 is the largest float
SETTLED = 1e-9
"""Passes of the two-way fit stop when no mean moves by more."""
SIZE_MIN = 1e-100  # its square is still a float
DF_MANY = 500.0  # a quantile of Student's t (97.5 %) is 0.2 % above the normal one there
DF_GRID = np.array([*range(1, 13), 14, 16, 18, 20, 24, 30, 40, 60, 120, DF_MANY])
"""Degrees of freedom are rounded down to these: that costs little width and saves hundreds of slow quantiles."""


def estimate(values: Sequence[float], confidence: float, *, log: bool) -> Estimate:
    """Mean over trials with Student's t interval (Student 1908); `log`: geometric mean, interval on the log scale.

    The unit is one trial, a fresh start. With fewer than two values there is no interval. `log` needs values > 0."""
    n = len(values)
    data = np.log(values) if log else np.array(values, dtype=float)
    mean = float(data.mean())
    sd = max(float(data.std(ddof=1)) if n > 1 else 0.0, SD_FLOOR if log else 0.0)
    back = exp if log else float
    if n < 2:
        return Estimate(back(mean), None, None, confidence, n)
    half = student_t(confidence, n - 1) * sd / math.sqrt(n)
    return Estimate(back(mean), back(mean - half), back(mean + half), confidence, n)


def noise_of(values: Sequence[float]) -> float | None:
    """The standard deviation of the logs of equal trials' results (0.02: about 2 %); None for fewer than two, or if one
    is not above zero."""
    if len(values) < 2 or min(values) <= 0:
        return None
    return float(np.log(values).std(ddof=1))


def estimate_of(values: Sequence[float], metric: str, confidence: float) -> Estimate:
    """The estimate of a metric, on the scale that its unit and values ask for."""
    return estimate(values, confidence, log=on_log_scale(values, METRICS[metric].unit))


def mean_of(values: Sequence[float], unit: str) -> float:
    """The mean that `estimate` gives: geometric where noise is taken as proportional, arithmetic otherwise."""
    return exp(float(np.log(values).mean())) if on_log_scale(values, unit) else float(np.mean(values))


def exp(exponent: float) -> float:
    """e to this power, or to the largest or smallest that a float can hold: intervals of few noisy trials may be
    endless."""
    return math.exp(max(-EXPONENT_MAX, min(exponent, EXPONENT_MAX)))


def on_log_scale(values: Sequence[float], unit: str) -> bool:
    """True if noise is taken as proportional: all values are above zero, and the metric is no share."""
    return unit != "ratio" and all(value > 0 for value in values)


@dataclass(frozen=True)
class Difference:
    """A difference of two means on the scale in use: its `value`, and the `variance` of that with `df` degrees of
    freedom. `half`: half the width of its interval, NaN if there is none. `n`: the number of pairs, or of the smaller
    sample."""

    value: float
    variance: float
    df: float
    half: float
    n: int

    @classmethod
    def of(cls, value: float, variance: float, df: float, confidence: float, n: int) -> Difference:
        """A difference with Student's t interval; without one if `df` is not above 0."""
        half = student_t(confidence, df) * math.sqrt(variance) if df > 0 else math.nan
        return cls(value, variance, df, half, n)

    @classmethod
    def welch(cls, value: float, parts: Sequence[tuple[float, float]], confidence: float, n: int) -> Difference:
        """A difference of independent estimates (Welch 1947). `parts`: variance and degrees of freedom of each
        (Satterthwaite 1946)."""
        variance = sum(part for part, _ in parts)
        weight = sum(part**2 / df for part, df in parts)
        return cls.of(value, variance, variance**2 / weight if weight else min(df for _, df in parts), confidence, n)


@dataclass(frozen=True)
class Scale:
    """The scale on which values are compared. `log`: by ratios; otherwise by differences, with the margin in the
    metric's own unit (shares) or, if `relative`, as a share of the mean that they are compared with."""

    log: bool
    relative: bool

    @classmethod
    def of(cls, values: Sequence[float], unit: str) -> Scale:
        """The scale for values in a metric's `unit`: logs, unless a value is not above zero or the metric is a
        share."""
        return cls(on_log_scale(values, unit), relative=unit != "ratio")

    def scaled(self, values: Sequence[float] | Array) -> Array:
        """The values on this scale, as an array."""
        return np.log(values) if self.log else np.array(values, dtype=float)

    def allowed(self, margin: float, base: float) -> float:
        """The margin on this scale. `base`: the mean that is compared with; as a share of 0 is 0, the margin is then in
        the metric's own unit."""
        if self.log:
            return math.log1p(margin)
        return margin * ((abs(base) or 1.0) if self.relative else 1.0)

    def share(self, difference: float, base: float) -> float:
        """The inverse of `allowed`: the margin that allows this difference; infinite for NaN."""
        if math.isnan(difference):
            return math.inf
        if self.log:
            return math.expm1(min(difference, EXPONENT_MAX))
        return difference / ((abs(base) or 1.0) if self.relative else 1.0)

    def size(self, values: Array) -> float:
        """Returns the factor that turns a standard deviation of logs into one of this scale: 1 for logs and for shares,
        else the mean size of the `values`. It is 1 if all of them are 0; NaN values are left out."""
        mean = 1.0 if self.log or not self.relative else float(np.nanmean(np.abs(values)))
        return max(mean, SIZE_MIN) if mean else 1.0

    def blur(self, values: Sequence[float] | Array, error: float) -> Array:
        """How far each value may lie from the truth on either side, on this scale; NaN for NaN. `error`: how far the
        clock of what measured them may be off, in the metric's own unit."""
        given = np.array(values, dtype=float)
        if not error or not self.log:
            return np.where(np.isnan(given), np.nan, error)
        # Half of log((value + error) / (value - error)); the values of such a clock are no less than twice its error.
        return np.asarray(np.arctanh(np.minimum(error / given, 0.5)))

    def variance(self, values: Array) -> float:
        """The sample variance of scaled values, as far as it is believed."""
        return max(float(values.var(ddof=1)), SD_FLOOR**2 if self.log else 0.0)

    def unpaired(self, first: Array, second: Array, confidence: float) -> Difference:
        """The first mean less the second, of scaled values; without an interval if either has fewer than two."""
        value, sizes = float(first.mean() - second.mean()), (len(first), len(second))
        if min(sizes) < 2:
            return Difference(value, math.nan, math.nan, math.nan, min(sizes))
        parts = [(self.variance(values) / n, n - 1) for values, n in zip((first, second), sizes, strict=True)]
        return Difference.welch(value, parts, confidence, min(sizes))

    def ratio(self, difference: float, half: float, base: float, confidence: float, n: int) -> Estimate | None:
        """The ratio to a mean of `base` that a difference on this scale amounts to. `half`: half the width of the
        difference's interval, NaN without one. None if the difference is NaN, or a plain one to a mean of 0."""
        if math.isnan(difference) or not (self.log or base):
            return None

        def back(value: float) -> float:
            return exp(value) if self.log else 1 + value / base

        ends = sorted((back(difference - half), back(difference + half)))
        low, high = (None, None) if math.isnan(half) else ends
        return Estimate(back(difference), low, high, confidence, n)


@dataclass(frozen=True)
class LeaderComparison:
    """All k settings against the leader, for each of R sweeps. Arrays are (R, k), except `leader`, which is (R,).

    `difference`: setting less leader, paired within blocks. `half`: half-widths of intervals that all hold at once
    with the confidence asked for. `half_tost`: the same at twice the error, for two one-sided tests. NaN where fewer
    than two blocks hold both."""

    leader: np.ndarray[Any, np.dtype[np.int64]]
    difference: Array
    half: Array
    half_tost: Array


def compare_with_leader(
    y: Array,
    confidence: float,
    candidates: Array | None = None,
    glance: Glance | None = None,
    least: Array | None = None,
    *,
    fit: Fit | None = None,
) -> LeaderComparison:
    """Simultaneous intervals of every setting's difference to the best one, the leader being chosen from the data.

    `y`: (R, blocks, settings), larger is better, NaN for missing cells; R sweeps are worked out at once (simulations).
    `candidates`: (k,) booleans, which settings may lead; at least one of them needs a value.

    Differences are means over the blocks that hold both settings. Each setting has a variance of its own, with the
    block effects taken out. With few blocks it is at least the pooled variance, since starts that come out in two modes
    may agree by luck and so look quiet. With more blocks the variances are moderated towards their common value, as far
    as the data say that they are alike (Smyth 2004, "Linear models and empirical Bayes methods", SAGMB 3(1)). Critical
    values are those of the studentised range (Tukey 1953; Tukey-Kramer), which cover all pairs and so also those with a
    leader picked afterwards. No interval is narrower than the pair's own paired t interval. With two settings it is
    that one, widened by half of the step that means of n differences come in if starts have modes: the largest gap
    between two of them over n (the continuity correction of Yates 1934, for a lattice of unknown span).

    `glance`: given for one of several looks at a race. The look spends its share of the error, on the pairs of live
    settings only, since those that left were judged before. `half_tost` is then of one-sided intervals for the
    distances from the best (Hsu 1981), the only use that it has in a race. The paired t interval, a guard against a
    variance moderated too far, spends no error.

    `least`: (k,) the least standard deviation of each setting's trials, by the counting error.

    `fit`: pass `fit_of(y, least, size)` if the same values are compared with several leaders; without it, one for logs
    or shares is made here.
    """
    present = ~np.isnan(y)
    fit = fit or fit_of(y, least)
    blocks = present.sum(1) if candidates is None else np.where(candidates[None, :], present.sum(1), 0)
    # A candidate with few blocks looks best by luck more easily: it needs at least half as many as any other has.
    eligible = (blocks > 0) & (blocks >= blocks.max(1, keepdims=True) / 2)
    leader = np.where(eligible, fit.means, -np.inf).argmax(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return _against(y, leader, fit, 1 - confidence, glance)


@dataclass(frozen=True)
class Fit:
    """The values of all settings as `fit_of` fits them, for R sweeps and k settings. `means` (R, k): adjusted for
    blocks. `variances` (R, k): moderated, with `df` (R,) degrees of freedom. `floor` (k,): the smallest standard
    deviations that are believed. `alike`: that of two blocks of few settings (`ALIKE`)."""

    means: Array
    variances: Array
    df: Array
    floor: Array
    alike: float


def _against(
    y: Array, leader: np.ndarray[Any, np.dtype[np.int64]], fit: Fit, error: float, glance: Glance | None
) -> LeaderComparison:
    sweeps, _, k = y.shape
    paired = y - np.take_along_axis(y, leader[:, None, None], axis=2)
    shared = (~np.isnan(paired)).sum(1)
    n = np.where(shared >= 2, shared, np.nan)
    difference = np.nansum(paired, axis=1) / n
    own = np.sqrt(np.nansum((paired - difference[:, None, :]) ** 2, axis=1) / (n - 1) / n)
    moderated = np.sqrt((fit.variances + np.take_along_axis(fit.variances, leader[:, None], axis=1)) / n)
    tost = min(2 * error, 0.99)
    halves = []
    for whole, pairs in ((error, studentised_range), (tost, studentised_range if glance is None else _one_sided)):
        spent, family = (whole, k) if glance is None else (glance.level(whole), glance.live)
        if k == 2:
            own_t = _lookup(partial(student_t, 1 - spent), n - 1)
            least = np.where(n <= 2, fit.alike, np.hypot(*fit.floor)) / np.sqrt(n)
            halves.append(own_t * np.maximum(own, least) + _largest_gap(paired) / (2 * n))
            continue
        critical = _lookup(partial(pairs, 1 - spent, family), fit.df)[:, None]
        widened = critical * (1 + SMALL_SAMPLE / (n - 1)) * moderated
        halves.append(np.maximum(widened, _lookup(partial(student_t, 1 - whole), n - 1) * own))
    rows = np.arange(sweeps)
    for half in halves:
        half[rows, leader] = 0.0
    difference[rows, leader] = 0.0
    return LeaderComparison(leader, difference, halves[0], halves[1])


def _largest_gap(paired: Array) -> Array:
    """The largest step between neighbouring values, (R, k), of (R, blocks, k) sorted in their blocks."""
    return np.asarray(np.nan_to_num(np.diff(np.sort(paired, axis=1), axis=1)).max(axis=1, initial=0.0))


def _one_sided(confidence: float, k: int, df: float) -> float:
    """The quantile for the distances from the best, at half of the error of two sides."""
    return distance_from_best((1 + confidence) / 2, k, df)


def _lookup(quantile: Callable[[float], float], df: Array) -> Array:
    """The quantile for each entry; degrees of freedom rounded down to those of `DF_GRID`; NaN stays NaN."""
    rounded = DF_GRID[np.clip(np.searchsorted(DF_GRID, np.nan_to_num(df) + 1e-9, side="right") - 1, 0, None)]
    whole = np.where(np.isnan(df), np.nan, rounded)
    out = np.full(df.shape, np.nan)
    for value in np.unique(whole[~np.isnan(whole)]):
        out[whole == value] = quantile(float(value))
    return out


def fit_of(y: Array, least: Array | None = None, size: float = 1.0) -> Fit:
    """Fits means and variances, whichever setting leads. `least`: as in `compare_with_leader`. `size`: as by
    `Scale.size`; without it, that of logs.

    The fit is a weighted two-way one; each setting's variance comes from its residuals, reweighted a few times.

    With weights w (adding to one in a block) a residual of setting i has variance
    s_i (1 - 2 w_i) + sum_j w_j^2 s_j, which is solved for s_i (Grubbs 1948 for equal weights)."""
    sweeps, _, k = y.shape
    present = ~np.isnan(y)
    smallest, alike = SD_FLOOR * size, ALIKE * size
    floor = np.full(k, smallest) if least is None else np.maximum(least, smallest)
    filled = np.where(present, y, 0.0)
    mask = present & (present.sum(2, keepdims=True) >= 2)  # a block with one setting says nothing of variances
    n = mask.sum(1)
    weights = np.full((sweeps, k), 1.0 / k)
    variances = np.zeros((sweeps, k))
    means = np.zeros((sweeps, k))
    complete, cells = bool(present.all()), np.maximum(present.sum(1), 1)
    for _ in range(5):
        w = np.where(present, weights[:, None, :], 0.0)
        w /= np.maximum(w.sum(2, keepdims=True), 1e-300)
        for _ in range(1 if complete else 30):
            before = means
            effects = np.where(present, filled - means[:, None, :], 0.0)
            block_effects = (w * effects).sum(2, keepdims=True)
            rest = np.where(present, filled - block_effects, 0.0)
            means = rest.sum(1) / cells
            if np.abs(means - before).max() < SETTLED:
                break
        if complete:  # one pass leaves means shifted by a constant only; settle the block effects around them
            block_effects = (w * (filled - means[:, None, :])).sum(2, keepdims=True)
        residual = np.where(mask, filled - means[:, None, :] - block_effects, 0.0)
        residual -= np.where(mask, residual.sum(1, keepdims=True) / np.maximum(n, 1)[:, None, :], 0.0)
        square = (residual**2).sum(1) * n / np.maximum(n - 1, 1)
        shared = np.where(mask, (w**2 * variances[:, None, :]).sum(2, keepdims=True), 0.0).sum(1)
        if not variances.any():
            shared = np.where(
                mask, (w**2 * (square.sum(1) / np.maximum(n.sum(1), 1))[:, None, None]).sum(2, keepdims=True), 0.0
            ).sum(1)
        own = np.where(mask, 1 - 2 * w, 0.0).sum(1)
        variances = np.maximum((square - shared) / np.maximum(own, 0.2 * n + 1e-9), 0.05 * square / np.maximum(n, 1))
        variances = np.maximum(variances, floor**2)
        weights = _weights(variances, n)
    moderated, df = _moderate(variances, n, k, alike)
    return Fit(np.where(present.any(1), means, -np.inf), moderated, df, floor, alike)


def _weights(variances: Array, n: Array) -> Array:
    """Inverse variances, each drawn towards their geometric mean (two blocks' worth) and none above 0.4."""
    common = np.exp(np.log(variances).mean(1, keepdims=True))
    df = np.maximum(n - 1, 0)
    weights = 1 / ((df * variances + 2 * common) / (df + 2))
    for _ in range(2):
        weights = np.minimum(weights / weights.sum(1, keepdims=True), 0.4)
    return np.asarray(weights / weights.sum(1, keepdims=True))


def _moderate(variances: Array, n: Array, k: int, alike: float) -> tuple[Array, Array]:
    """The variances that are believed, and their common degrees of freedom (R,).

    With few blocks (`few_blocks`), a setting gets the larger of its own variance and the pooled one, with the pooled
    degrees of freedom (Satterthwaite 1946: fewer if a few settings have most of the variance). With more blocks it gets
    the mean of its own variance and a prior one, weighted by degrees of freedom (empirical Bayes, Smyth 2004)."""
    df = np.where(n >= 2, (n - 1) * (1 - 1 / k), 0.0)
    if k <= ALIKE_SETTINGS:
        variances = np.where(n <= 2, np.maximum(variances, alike**2), variances)
    whole = np.maximum(df.sum(1), 1e-9)
    pooled = (df * variances).sum(1) / whole
    # Estimates of equal normal variances spread by 2 / df, which lowers the evenness: that is made up for.
    typical = np.maximum(whole / np.maximum((df > 0).sum(1), 1), 1e-9)
    evenness = (1 + 2 / typical) * pooled**2 * whole / np.maximum((df * variances**2).sum(1), 1e-300)
    pooled_df = np.maximum(whole * np.minimum(evenness, 1), 1)
    moderated, prior_df = _empirical_bayes(variances, df)
    few = few_blocks(n, k)
    believed = np.where(few, np.maximum(variances, pooled[:, None]), moderated)
    return believed, np.where(few.all(1), pooled_df, np.where(few.any(1), np.minimum(pooled_df, prior_df), prior_df))


def few_blocks(n: Array, k: int) -> Array:
    """True for up to four blocks, and while some settings are likely to have drawn the same mode in all blocks: of two
    equally frequent modes a setting draws the same one n times with probability 2^(1 - n)."""
    return np.asarray((n <= 4) | (k * 2.0 ** (1 - n) >= FEW))


def _empirical_bayes(variances: Array, df: Array) -> tuple[Array, Array]:
    """Prior variance and its degrees of freedom from the spread of the log variances (Smyth 2004, section 6.2)."""
    known = df > 0
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.where(known, np.log(variances) - digamma(df / 2) + np.log(df / 2), np.nan)
        count = np.maximum(known.sum(1), 1)
        mean = np.where(known, logs, 0.0).sum(1) / count
        spread = np.where(known, (logs - mean[:, None]) ** 2, 0.0).sum(1) / np.maximum(count - 1, 1)
        noise = np.where(known, trigamma(df / 2), 0.0).sum(1) / count
    excess = spread - noise
    prior_df = np.full(excess.shape, DF_MANY)
    differ = excess > 1e-3
    prior_df[differ] = np.minimum(2 * inverse_trigamma(excess[differ]), DF_MANY)
    pooled = np.where(known, variances, 0.0).sum(1) / count
    prior = np.where(differ, np.exp(mean + digamma(prior_df / 2) - np.log(prior_df / 2)), pooled)
    moderated = (prior_df[:, None] * prior[:, None] + df * np.where(known, variances, 0.0)) / (prior_df[:, None] + df)
    # All variances together have no more than the residual degrees of freedom of the two-way layout.
    return moderated, np.minimum(prior_df + df.sum(1) / count, np.maximum(df.sum(1), 1))
