"""Tests whether the system has settled: about twice a second to end a warm-up, and once afterwards on the window.
Between two tests a warm-up also ends if the response times of busy users are plainly level.

In: interval series of rate and mean response time. Out: a yes or no. Three tests, each on batches of intervals:

- MSER (White 1997, "An effective truncation heuristic for bias reduction in simulation output", Simulation 69(6); the
  batches of 5 are MSER-5, White, Cobb & Spratt 2000): the truncation point that minimises the standard error of what
  remains must lie in the first half, else too little of the series is settled.
- Mann-Kendall (Mann 1945, Kendall 1975) on the later half: no monotone trend that matters.
- Pettitt (1979, "A non-parametric approach to the change-point problem", Applied Statistics 28(2)) on the later half:
  no step that matters.

A trend or step matters if it shifts the series by more than `SHIFT_MIN`; smaller ones are let pass, even if they are
statistically certain. Barrett et al. (OOPSLA 2017) found that many a virtual machine never settles: so a warm-up has a
longest time, and the window is tested again. These are rank tests, so that the rare long dip of a collector neither
hides a trend nor looks like one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

import numpy as np

from powerband.analyze.stats.special import Array
from powerband.model.warmup import WarmupSeries
from powerband.wire.load_events import Interval

SHIFT_MIN = 0.02  # of the median: less than the usual margin of 3 %, below which settings count as equal
TREND_P = STEP_P = 0.05  # every twentieth steady series may be taken for one that is not
BATCHES_MIN = 8  # with fewer, no step can be seen, and a trend only if it is large
EARLY_BATCHES = 5
"""A warm-up may end with this many batches: Mann-Kendall's normal approximation is right to a percent there (exact:
Kendall 1975, table 1). As little is certain of five values, they must not even seem to shift by more than
`EARLY_SHIFT`."""
EARLY_SHIFT = 0.03  # a server that starts at half speed and takes ten seconds to get going shifts by 4.6 %
LEVEL_BATCHES, LEVEL = 3, 0.01
"""Response times of busy users that lie so close together in the last batches, of many in their later half, have
settled, whatever came before: the opening of connections, a queue that fills. Those of a server that takes ten seconds
to get going are 2 % apart."""
LEVEL_BETWEEN = 0.005  # the same between two full looks: so many more could pass by chance
CUT_SHORT = 1.1  # usual length over an interval's: beyond it an edge cut the interval short
DEPENDENCE_MAX = 0.9  # the variance is taken for 19 times larger at most: beyond it hardly any trend could show
BATCH_INTERVALS = 5  # MSER-5's
BATCH_REQUESTS = 10  # in a batch, on average: with fewer, Poisson noise alone is a third of the mean


def is_steady(series: WarmupSeries) -> bool:
    """True if the warm-up may end now. O(n^2) in the number of batches, of which there are at most some 120."""
    rate = np.array(series.rate_per_s, dtype=float)
    times = np.array(series.response_time_ns_mean, dtype=float)
    counts = rate * series.interval_s
    if series.between:
        return series.busy_users and _are_level(_batched(counts, times, EARLY_BATCHES)[1], LEVEL_BETWEEN)
    return settled(counts, times, truncate=True, tied=series.busy_users) is True


def window_is_steady(events: Iterable[Interval], start_ns: int, end_ns: int) -> bool | None:
    """True if there is no trend and no step over the whole window; None if there is too little to say."""
    counts, sums = _window_series(events, start_ns, end_ns)
    with np.errstate(invalid="ignore", divide="ignore"):
        return settled(counts, sums / counts, truncate=False)


def window_rises(events: Iterable[Interval], start_ns: int, end_ns: int) -> bool:
    """True if the rate of the window's last third is above that of its first by more than `SHIFT_MIN`."""
    counts, _ = _window_series(events, start_ns, end_ns)
    third = counts.size // 3
    return bool(third and counts[-third:].mean() > (1 + SHIFT_MIN) * counts[:third].mean())


def _window_series(events: Iterable[Interval], start_ns: int, end_ns: int) -> tuple[Array, Array]:
    """The requests that ended ok in each period of the window, and the sum of their times. Intervals of several engines
    that end in the same period are added."""
    ended: dict[int, float] = {}
    summed: dict[int, float] = {}
    whole: Counter[int] = Counter()
    inside = [event for event in events if start_ns <= event["start_ns"] and event["end_ns"] <= end_ns]
    # Engines' intervals are all of one length; readings of a counter come a little early or late, or not at all.
    period = float(np.median([max(1, event["end_ns"] - event["start_ns"]) for event in inside])) if inside else 1.0
    for event in inside:
        slot = round((event["end_ns"] - start_ns) / period)
        share = period / max(1, event["end_ns"] - event["start_ns"])
        whole[slot] += share < CUT_SHORT
        ended[slot] = ended.get(slot, 0.0) + share * event["outcomes"].get("ok", 0)
        summed[slot] = summed.get(slot, 0.0) + share * event["response_time_ns_sum"]
    slots = sorted(ended)
    # The outermost periods may be cut short by the window, or hold only some engines' intervals.
    usual = float(np.median([whole[slot] for slot in slots])) if slots else 0.0
    slots = [slot for slot in slots if slot not in (slots[0], slots[-1]) or whole[slot] >= usual]
    counts = np.array([ended[slot] for slot in slots])
    return counts, np.array([summed[slot] for slot in slots])


def settled(counts: Array, times: Array, *, truncate: bool, tied: bool = False) -> bool | None:
    """True if the number of requests ended per interval and their mean times have settled; None if they are too few to
    say.

    `truncate`: judge the later half and demand a truncation point before it; otherwise judge all. `tied`: the rate is
    the inverse of the times. Then a few batches are judged by their times alone: of users whose answers come at once an
    interval counts one more or one less, and until the first answer none."""
    least = EARLY_BATCHES if truncate else BATCHES_MIN
    rate, mean_time = _batched(counts, times, least)
    if rate.size < least:
        return None
    if truncate and np.count_nonzero(rate) < 2:
        return False  # the first answers came at once: when the next will is not known
    if tied and _are_level(mean_time, LEVEL):
        return True
    mean_time = mean_time[~np.isnan(mean_time)]
    if tied and mean_time.size == rate.size < BATCHES_MIN:
        return _series_settled(mean_time, truncate)
    return all(_series_settled(series, truncate) for series in (rate, mean_time) if series.size >= least)


def _batched(counts: Array, times: Array, least: int) -> tuple[Array, Array]:
    """The mean number of requests ended per interval in each batch, and their mean times, NaN where none ended. Empty
    if there are fewer than `least` batches."""
    size = _batch_size(counts)
    batches = counts.size // size if size else 0
    if batches < least:
        return np.empty(0), np.empty(0)
    cut = counts.size - batches * size  # an odd rest is cut off at the start, where it matters least
    rate = counts[cut:].reshape(batches, size).mean(axis=1)
    weights = np.where(np.isnan(times[cut:]), 0.0, counts[cut:]).reshape(batches, size)
    sums = (np.nan_to_num(times[cut:]).reshape(batches, size) * weights).sum(axis=1)
    total = weights.sum(axis=1)
    return rate, np.divide(sums, total, out=np.full(batches, np.nan), where=total > 0)


def _are_level(mean_time: Array, within: float) -> bool:
    """True if there are times in all batches, and those of the later half lie as close together as `within`, a share of
    their median."""
    last = mean_time[-max(LEVEL_BATCHES, mean_time.size // 2) :]
    return mean_time.size > 0 and not np.isnan(mean_time).any() and bool(np.ptp(last) <= within * np.median(last))


def _batch_size(counts: Array) -> int:
    """The number of intervals in a batch: enough that it holds some requests, up to MSER-5's five if there are plenty;
    0 if there are too few requests for any batching."""
    mean = counts.mean() if counts.size else 0.0
    if mean <= 0:
        return 0
    plenty = max(1, min(BATCH_INTERVALS, counts.size // (4 * BATCHES_MIN)))
    return max(plenty, math.ceil(BATCH_REQUESTS / mean), math.ceil(counts.size / 120))


def _series_settled(series: Array, truncate: bool) -> bool:
    if truncate and series.size < BATCHES_MIN:
        middle = abs(float(np.median(series)))
        if abs(_slope(series)) * (series.size - 1) > EARLY_SHIFT * middle:
            return False
    elif truncate:
        if mser(series) > series.size / 2:
            return False
        # Too short to halve: a trend from the very start counts as well.
        series = series[series.size // 2 :] if series.size >= 2 * BATCHES_MIN else series
    # A warm-up is tested again half a second later, a window only once: there dependence must not look like change.
    return not (_has_trend(series, dependent=not truncate) or _has_step(series, dependent=not truncate))


def mser(series: Array) -> int:
    """MSER's truncation point: how many leading values to leave out. The last five are never left out (White 1997)."""
    n = series.size
    series = series - series[-1]  # of equal values: their squares, added up, are not exactly n times their square
    kept = np.arange(n, 0, -1, dtype=float)
    sums = np.cumsum(series[::-1])[::-1]
    squares = np.cumsum((series**2)[::-1])[::-1]
    statistic = (squares - sums**2 / kept) / kept**2
    return int(np.argmin(statistic[: max(1, n - 5)]))


def _has_trend(series: Array, *, dependent: bool) -> bool:
    """True if there is a trend by Mann-Kendall with normal approximation, and Sen's slope shifts the series by more
    than `SHIFT_MIN`."""
    n = series.size
    differences, _ = _pairs(series)
    score = float(np.sign(differences).sum())
    deviation = math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    z = (abs(score) - 1) / deviation if score else 0.0
    slope = _slope(series)
    if dependent:
        z /= math.sqrt(_dependence(_without_curve(series)))
    changes = abs(slope) * (n - 1) > SHIFT_MIN * abs(float(np.median(series)))
    return changes and math.erfc(z / math.sqrt(2)) < TREND_P


def _slope(series: Array) -> float:
    """Sen's slope: the median of the slopes of all pairs (Sen 1968)."""
    differences, apart = _pairs(series)
    return float(np.median(differences / apart))


def _pairs(series: Array) -> tuple[Array, Array]:
    """The differences of all pairs of values, the later less the earlier one, and how far apart the two stand."""
    earlier, later = np.triu_indices(series.size, 1)
    return series[later] - series[earlier], np.asarray(later - earlier, dtype=float)


def _has_step(series: Array, *, dependent: bool) -> bool:
    """True if there is a step by Pettitt's test, and the medians before and after the likeliest one are further apart
    than `SHIFT_MIN`."""
    n = series.size
    signs = np.sign(series[:, None] - series[None, :])
    # U_t = sum over i <= t < j of sign(x_i - x_j)
    statistics = np.array([signs[: t + 1, t + 1 :].sum() for t in range(n - 1)])
    at = int(np.argmax(np.abs(statistics)))
    before, after = float(np.median(series[: at + 1])), float(np.median(series[at + 1 :]))
    stepless = series - np.where(np.arange(n) <= at, before, after)
    inflated = min(_dependence(stepless), _dependence(_without_curve(series))) if dependent else 1.0
    p = 2 * math.exp(-6 * float(statistics[at]) ** 2 / (n**3 + n**2) / inflated)
    return p < STEP_P and abs(after - before) > SHIFT_MIN * abs(float(np.median(series)))


def _without_curve(series: Array) -> Array:
    """The series less a fitted parabola, which takes out trends that level off as well as straight ones."""
    at = np.linspace(-1, 1, series.size)
    return np.asarray(series - np.polynomial.polynomial.polyval(at, np.polynomial.polynomial.polyfit(at, series, 2)))


def _dependence(rest: Array) -> float:
    """How many times larger the variance of a sum is than that of independent values: (1 + r) / (1 - r) for a
    first-order autoregression (Bayley & Hammersley 1946; for trend tests Yue & Wang 2004). `rest`: the series without
    its trend or step; r is freed of its bias (Marriott & Pope 1954). Never below 1."""
    centred = rest - rest.mean()
    square = float((centred**2).sum())
    if square == 0:
        return 1.0
    n = rest.size
    r = float((centred[1:] * centred[:-1]).sum()) / square
    r = min(max((r + 1 / n) / (1 - 3 / n), 0.0), DEPENDENCE_MAX)
    return (1 + r) / (1 - r)
