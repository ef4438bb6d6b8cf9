"""The counting error of a rate or a share: since requests were counted, their number alone limits how well it is known.

A count of events that come independently is Poisson, with the interval of Garwood 1936 ("Fiducial limits for the
Poisson distribution", Biometrika 28). Users who wait for their answers come more evenly: then the interval is too wide
rather than too narrow.
"""

from __future__ import annotations

import math
from dataclasses import replace

from powerband.analyze.stats.shares import share_least, share_most
from powerband.model.results import Estimate

EDGES = 1 / math.sqrt(6)
"""Standard deviation, in requests, of a count over a window whose two ends fall anywhere between two requests (each
uniform over one request): even the most regular server has it."""


def count_ends(count: float, confidence: float) -> tuple[float, float]:
    """Two-sided interval of the mean of a Poisson count, which need not be whole. `count` >= 0."""
    from scipy.special import gammaincinv  # noqa: PLC0415

    beside = (1 - confidence) / 2
    low = float(gammaincinv(count, beside)) if count > 0 else 0.0
    return low, float(gammaincinv(count + 1, 1 - beside))


def no_narrower_than_counted(found: Estimate, count: float, per: float) -> Estimate:
    """An estimate of a rate with its interval widened if `count` events say less. `per`: the seconds that the count is
    divided by to give the rate, > 0. An estimate without an interval stays without."""
    if found.low is None or found.high is None:
        return found
    low, high = (end / per for end in count_ends(count, found.confidence))
    return replace(found, low=min(found.low, low), high=max(found.high, high))


def share_no_narrower_than_counted(found: Estimate, of: float) -> Estimate:
    """An estimate of a share from 0 to 1 with its interval widened to that of Clopper & Pearson 1934, two-sided, if the
    number of cases that it is `of` says less, and cut at 0 and 1; `of` need not be whole, and 0 leaves it as it is. An
    estimate without an interval stays without."""
    if found.low is None or found.high is None or of <= 0:
        return found
    seen, beside = min(1.0, max(0.0, found.value)) * of, (1 - found.confidence) / 2
    low, high = share_least(seen, of, beside), share_most(seen, of, beside)
    return replace(found, low=max(0.0, min(found.low, low)), high=min(1.0, max(found.high, high)))
