"""The counting error of a rate: since requests were counted, their number alone limits how well the rate is known.

A count of events that come independently is Poisson, with the interval of Garwood 1936 ("Fiducial limits for the
Poisson distribution", Biometrika 28). Users who wait for their answers come more evenly: then the interval is too wide
rather than too narrow.
"""

from __future__ import annotations

import math
from dataclasses import replace

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
    """An estimate of a rate, or of a share of requests, with its interval widened if `count` events say less. `per`:
    what the count is divided by to give that figure (seconds, requests), > 0. An estimate without an interval stays
    without."""
    if found.low is None or found.high is None:
        return found
    low, high = (end / per for end in count_ends(count, found.confidence))
    return replace(found, low=min(found.low, low), high=max(found.high, high))
