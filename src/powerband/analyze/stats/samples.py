"""Figures of a few values, each of which is at hand. Values enter, one of them leaves: the quantile of a sample is the
next higher value (Hyndman & Fan 1996, type 1). Times of requests are many: those are histograms (`fleet`)."""

from __future__ import annotations

import math
from collections.abc import Sequence


def quantile(values: Sequence[int], q: float) -> int:
    """The smallest value that at least the share `q` (in [0, 1]) of the values does not exceed; at least one value."""
    return sorted(values)[max(0, math.ceil(q * len(values)) - 1)]
