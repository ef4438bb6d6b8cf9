"""Finds whether a level still grows at the end of a window, as a leak does, and how fast. Pure.

In: readings of a gauge. Out: its growth per second. The window is cut into six equal parts; in each the least reading
counts, the floor, so that what a collector frees again is no growth. A level grows to the end if two things hold. At
most one of the 15 pairs of floors is out of order, which happens to six readings in random order in 1 of 120 cases
(Mann's test for a trend, 1945: S of 13 or more). And the later half grew nearly as much as the earlier one: a cache
that fills, a heap that nears its bound and a pool that has found its size slow down. The growth is the median of the
slopes between all pairs of floors (Theil 1950; Sen 1968, "Estimates of the regression coefficient based on Kendall's
tau", JASA 63). Method and doubts: docs/methods/lasting.md.
"""

from __future__ import annotations

from itertools import combinations
from statistics import median

import numpy as np

from powerband.analyze.stats.special import Array

PARTS = 6  # random floors seem to rise in 1 of 120 windows (docs/methods/lasting.md); with four parts in 1 of 6
ORDERED_LEAST = 13
"""The least value of Mann's S: pairs of floors that rise, less those that fall; 15 if all rise. One pair may be out of
order: after a collection that freed much, a runtime may need no more memory of the system for a part of the window."""
LATER_LEAST = 0.7
"""The least growth of the later half of the floors over that of the earlier half. A leak gives 1; what fills up with a
time constant below 1.4 windows gives less than this."""


def steady_growth(at_ns: Array, levels: Array, start_ns: int, end_ns: int, least: float) -> float | None:
    """The growth per second of a level that grew all through the window, and by at least `least` in all; 0 if it did
    not; None if a part of the window has no reading."""
    width_ns = (end_ns - start_ns) / PARTS
    floors: list[float] = []
    at: list[float] = []  # of the floors: a part may have two readings, and the next one none near its start
    for part in range(PARTS):
        inside = (at_ns >= start_ns + part * width_ns) & (at_ns < start_ns + (part + 1) * width_ns) & ~np.isnan(levels)
        if not inside.any():
            return None
        lowest = int(levels[inside].argmin())
        floors.append(float(levels[inside][lowest]))
        at.append(float(at_ns[inside][lowest]))

    def slope(a: int, b: int) -> float:
        return (floors[b] - floors[a]) / (at[b] - at[a])

    slopes = [slope(a, b) for a, b in combinations(range(PARTS), 2)]
    half = PARTS // 2
    earlier, later = slope(0, half - 1), slope(half, PARTS - 1)
    if np.sign(slopes).sum() < ORDERED_LEAST or floors[-1] - floors[0] < least or later < LATER_LEAST * earlier:
        return 0.0
    return median(slopes) * 1e9
