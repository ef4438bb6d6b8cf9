"""Does a level still grow at the end of a window, as a leak does, and how fast? Pure.

In: readings of a gauge. Out: its growth per second. The window is cut into six equal parts; of each the least reading
counts, the floor, so that what a collector frees again is no growth. A level grows to the end where of the 15 pairs of
floors at most one is out of order, which six readings in random order are in 1 of 120 cases (Mann's test for a trend,
1945: S of 13 or more), and where the later half grew nearly as much as the earlier: a cache that fills, a heap that
nears its bound and a pool that has found its size slow down. The growth is the median of the slopes between all pairs
of floors (Theil 1950; Sen 1968, "Estimates of the regression coefficient based on Kendall's tau", JASA 63). Method and
doubts: docs/methods/lasting.md.
"""

from __future__ import annotations

from itertools import combinations
from statistics import median

import numpy as np

from powerband.analyze.stats.special import Array

PARTS = 6  # random floors seem to rise in 1 of 120 windows (docs/methods/lasting.md); of four parts it would be 1 of 6
ORDERED_LEAST = 13
"""Of Mann's S: pairs of floors that rise, less those that fall; 15 if all rise. After a collection that freed much, a
runtime may need no more of the system for a part of the window."""
LATER_LEAST = 0.7
"""Growth of the later half of the floors over that of the earlier: 1 of a leak; less than this of what fills up with a
time constant below 1.4 windows."""


def steady_growth(at_ns: Array, levels: Array, start_ns: int, end_ns: int, least: float) -> float | None:
    """Growth per second of a level that grew all through the window, by `least` in all at least; 0 where it did not;
    None where a part of the window has no reading."""
    width_ns = (end_ns - start_ns) / PARTS
    floors: list[float] = []
    for part in range(PARTS):
        inside = (at_ns >= start_ns + part * width_ns) & (at_ns < start_ns + (part + 1) * width_ns) & ~np.isnan(levels)
        if not inside.any():
            return None
        floors.append(float(levels[inside].min()))
    slopes = [(floors[b] - floors[a]) / (b - a) for a, b in combinations(range(PARTS), 2)]
    half = PARTS // 2 - 1
    earlier, later = floors[half] - floors[0], floors[-1] - floors[-1 - half]
    if np.sign(slopes).sum() < ORDERED_LEAST or floors[-1] - floors[0] < least or later < LATER_LEAST * earlier:
        return 0.0
    return median(slopes) / width_ns * 1e9
