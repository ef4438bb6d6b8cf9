"""Estimates the edge between rates that hold and rates that do not: a Bayesian estimate from single noisy answers.

In: rates that were tried, each with whether it held, and where a first look puts the edge. Out: `Edge`, the posterior
of the log rate that 95 % of starts hold (`HELD_BY`), and the rate to try next. Pure numbers; `capacity.py` says what
holding means. Method, sources and coverage: docs/methods/capacity.md.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from powerband.analyze.stats.special import Array

HELD_BY = 0.95
"""The edge is the rate that this share of a server's starts holds."""
WIDTHS = np.geomspace(0.0015, 0.25, 8)
"""Scales of the logistic edge in log rate: starts that differ by 0.3 % to 45 % (standard deviation)."""
WIDTH_PRIOR = np.array([1, 1, 1, 1, 1, 0.8, 0.4, 0.15]) / 6.35
"""Prior of each width. Those above 12 % are mostly starts of two kinds, which have a shape of their own."""
TWO_MODES = 0.6
SLOW_SHARES, SLOW_PRIOR, SLOWER_BY = (0.1, 0.3, 0.5), (0.5, 0.33, 0.17), (0.06, 0.15, 0.35)
"""Starts are of two kinds with probability `TWO_MODES`: a share of them (one of `SLOW_SHARES`, with the probability in
`SLOW_PRIOR`) has an edge that is lower by one of `SLOWER_BY`, in log rate. If that were less likely, intervals would
leave out what a tenth of the starts does, which few trials show."""
COMPARED_TWO_MODES = 0.3
"""The probability of two kinds of starts when settings are compared by their quick starts. A larger one would only
hide differences there."""
LAPSES, LAPSE_PRIOR = np.array([0.005, 0.03, 0.10, 0.30]), np.array([0.50, 0.25, 0.15, 0.10])
"""How often a trial far below the edge does not hold, whatever its rate."""
LUCK = 0.01
"""How often a trial far above the edge holds all the same."""
PLAUSIBLE_BELOW, PLAUSIBLE_ABOVE, TAIL = 0.7, 0.05, 0.5
"""The prior is flat from half of the first look's rate to a little above it, and has the tails of a Cauchy distribution
beyond: a few trials overrule it, and the search then goes on in growing steps."""
REACH_ABOVE = 8.0  # e^8: 3,000 times the first look
COARSE_STEP = 0.06  # in log rate: cells of the first grid, to as far beyond what was tried as `COARSE_BEYOND`
COARSE_BEYOND = 1.0
CELLS, NARROWEST = 110, 5e-4
"""Number of cells of a finer grid, and their least width in log rate, a third of the narrowest edge."""
EVEN_SHARE = 0.3
"""Cells of a finer grid hold equal masses of a mixture: this share spread evenly over the cells of the coarser grid,
the rest as the coarser grid has it."""
CANDIDATES = 25  # rates weighed for the next trial


def _shapes() -> tuple[Array, Array, Array, Array]:
    """Four arrays with a value for each shape of an edge: its width, the share of slow starts, how much lower the edge
    of these lies (log rate), and how likely the shape is beforehand."""
    slow = [(share, by, TWO_MODES * p / len(SLOWER_BY)) for share, p in zip(SLOW_SHARES, SLOW_PRIOR, strict=True)
            for by in SLOWER_BY]  # fmt: skip
    modes = [(0.0, 0.0, 1 - TWO_MODES), *slow]
    widths = zip(WIDTHS, WIDTH_PRIOR, strict=True)
    width, share, by, prior = np.array([(w, share, by, p * each) for w, p in widths for share, by, each in modes]).T
    return width, share, by, prior


def _share_held(below: Array, width: Array, share: Array, by: Array) -> Array:
    """The share of starts that hold a rate which lies `below` the middle of the quick starts by this much log rate."""
    quick, slow = np.tanh(below / (2 * width)), np.tanh((below - by) / (2 * width))
    return np.asarray(0.5 + 0.5 * ((1 - share) * quick + share * slow))


def _edge_below_middle(width: Array, share: Array, by: Array) -> Array:
    """How far the edge lies below the middle of the quick starts, in log rate; by bisection."""
    low, high = np.zeros_like(width), by + 20 * width
    for _ in range(50):
        middle = (low + high) / 2
        held = _share_held(middle, width, share, by) >= HELD_BY
        low, high = np.where(held, low, middle), np.where(held, middle, high)
    return high


WIDTH, SLOW, BY, SHAPE_PRIOR = _shapes()
BELOW_MIDDLE = _edge_below_middle(WIDTH, SLOW, BY)
COMPARED_WEIGHT = np.where(SLOW > 0, COMPARED_TWO_MODES / TWO_MODES, (1 - COMPARED_TWO_MODES) / (1 - TWO_MODES))


@dataclass(frozen=True)
class Answered:
    """One trial: `log_rate`, the logarithm of its rate per second, and whether the conditions `held`."""

    log_rate: float
    held: bool


@dataclass(frozen=True)
class Edge:
    """The posterior of the edge, as masses in cells of log rate. `ends`: the borders of the cells, ascending, one more
    than there are cells. `joint`: the masses by lapse, cell, and shape of the edge. Cells are narrow where the
    posterior is."""

    ends: Array
    joint: Array

    @property
    def log_rates(self) -> Array:
        """The middles of the cells."""
        return (self.ends[1:] + self.ends[:-1]) / 2

    @cached_property
    def mass(self) -> Array:
        """The probability that the edge lies in each cell."""
        return np.asarray(self.joint.sum((0, 2)))

    @cached_property
    def _passed(self) -> Array:
        """The mass below each of the ends."""
        return np.concatenate([[0.0], self.mass.cumsum()])

    def below(self, log_rate: Array | float) -> Array:
        """The probability that the edge lies below `log_rate`; each cell's mass is spread evenly over it."""
        return np.asarray(np.interp(log_rate, self.ends, self._passed))

    def quantile(self, p: float) -> float:
        """The log rate below which the edge lies with probability `p`."""
        return float(np.interp(p, self._passed, self.ends))

    def interval(self, confidence: float) -> tuple[float, float]:
        """The credible interval, in log rate. It reaches up to where half of the quick starts may hold, since a few
        misses do not show whether they happened by chance or because the starts were slow ones."""
        tail = (1 - confidence) / 2
        return self.quantile(tail), max(self.quantile(1 - tail), self.middle.quantile(1 - tail))

    @cached_property
    def middle(self) -> Edge:
        """The posterior of the log rate that half of the quick starts hold, whatever the shape."""
        return self._middle(self.joint.sum(0))

    @cached_property
    def compared(self) -> Edge:
        """The posterior of the same rate for comparing settings, with `COMPARED_TWO_MODES` as the prior probability of
        two kinds of starts."""
        masses = self.joint.sum(0) * COMPARED_WEIGHT
        return self._middle(masses / masses.sum())

    def _middle(self, by_shape: Array) -> Edge:
        places = (self.log_rates[:, None] + BELOW_MIDDLE).ravel()
        order = np.argsort(places)
        masses = by_shape.ravel()[order]
        levels = np.tanh(np.linspace(-6, 6, 2 * CELLS - 1)) / 2 + 0.5  # dense in the tails, which tell settings apart
        levels = np.concatenate([[0.0], levels, [1.0]])
        ends = np.interp(levels, masses.cumsum() - masses / 2, places[order])
        ends += 1e-9 * np.arange(len(ends))  # no cell is empty
        return Edge(ends, np.diff(levels)[None, :, None])

    def half_width(self, confidence: float) -> float:
        """Half the width of the credible interval, in log rate."""
        low, high = self.interval(confidence)
        return (high - low) / 2

    def next_log_rate(
        self,
        ceiling: float = math.inf,
        in_flight: Sequence[float] = (),
        fits: Callable[[float], bool] | None = None,
    ) -> float:
        """The log rate, at most `ceiling`, at which a trial is most informative about the edge: the greatest expected
        fall of the posterior's entropy (Kontsevich & Tyler 1999), width and lapse being nuisances (Prins 2013).
        `in_flight`: log rates that are being tried; it keeps away from them, as far as the posterior allows for so
        many. `fits`: only log rates for which it is true are weighed, if there is one."""
        low, high = self.quantile(0.02), self.quantile(0.98) + float(self.joint.sum((0, 1)) @ BELOW_MIDDLE)
        tried = np.minimum(np.linspace(low, high, CANDIDATES), ceiling)
        if fits is not None and any(fitting := [fits(each) for each in tried.tolist()]):
            tried = tried[fitting]
        gains, place = self._gains(tried), self._share_below(tried)
        for each in in_flight:
            near = np.abs(place - self._share_below(each)) < 1 / (2 * len(in_flight) + 2)
            gains[near] -= 1.0  # more than any gain
        return float(tried[int(np.argmax(gains))])

    def _share_below(self, log_rate: Array | float) -> Array:
        """The mean of the probabilities that the edge and that the middle of the quick starts lie below `log_rate`:
        trials at once cut what is not known yet into equal parts, whatever shape the edge has."""
        return (self.below(log_rate) + self.middle.below(log_rate)) / 2

    def _gains(self, tried: Array) -> Array:
        """The mutual information of the edge and the outcome of a trial at each rate, in nats."""
        mass = np.maximum(self.mass, 1e-300)
        undisturbed = np.tensordot(1 - LUCK - LAPSES, self.joint, 1) / mass[:, None]
        holds = LUCK + np.einsum("cs,rcs->rc", undisturbed, _bears(tried[:, None], self.log_rates))
        overall = (holds * mass).sum(1)
        return np.asarray(_entropy(overall) - (_entropy(holds) * mass).sum(1))


def holding(log_rate: float, edges: Array) -> Array:
    """Probability that a trial at this rate holds, by lapse, edge and shape."""
    return np.asarray(LUCK + (1 - LUCK - LAPSES)[:, None, None] * _bears(log_rate, edges))


def _bears(log_rate: Array | float, edges: Array) -> Array:
    """Probability that an undisturbed trial holds, by edge and shape."""
    return _share_held((edges - log_rate)[..., None] + BELOW_MIDDLE, WIDTH, SLOW, BY)


def locate(trials: Sequence[Answered], first_look: float, floor: float) -> Edge:
    """The posterior after these trials. `first_look`: log of a rate that the server was seen to give, about which
    the prior lies; `floor`: log of the lowest rate that can be tried. O(trials) evaluations of 3 x 9,000 cells."""
    tried = [first_look, *(trial.log_rate for trial in trials)]
    edge = _on_cells(_coarse_ends(tried, floor, first_look), trials, first_look)
    for _ in range(2):
        edge = _on_cells(_finer_ends(edge), trials, first_look)
    return edge


def _coarse_ends(tried: Sequence[float], floor: float, first_look: float) -> Array:
    """Even cells about what was tried, growing ones beyond."""
    lowest, highest = min(floor, first_look - 1.0) - 1.0, max(first_look, *tried) + REACH_ABOVE
    low, high = max(lowest, min(tried) - COARSE_BEYOND), max(tried) + COARSE_BEYOND
    even = np.linspace(low, high, math.ceil((high - low) / COARSE_STEP) + 1)
    steps = COARSE_STEP * 1.3 ** np.arange(1, 40)
    below, above = low - steps.cumsum()[::-1], high + steps.cumsum()
    return np.concatenate([below[below > lowest - COARSE_STEP], even, above[above < highest + 1.0]])


def _finer_ends(edge: Edge) -> Array:
    """Cells of which most hold equal masses, none narrower than `NARROWEST`."""
    cells = len(edge.mass)
    spread = (1 - EVEN_SHARE) * edge.mass + EVEN_SHARE / cells
    ends = np.interp(np.linspace(0, 1, CELLS + 1), np.concatenate([[0.0], spread.cumsum()]), edge.ends)
    kept = np.round((ends - ends[0]) / NARROWEST)
    return np.asarray(ends[0] + NARROWEST * np.unique(kept))


def _on_cells(ends: Array, trials: Sequence[Answered], first_look: float) -> Edge:
    edges, wide = (ends[1:] + ends[:-1]) / 2, np.diff(ends)
    beyond = np.maximum(first_look - PLAUSIBLE_BELOW - edges, edges - first_look - PLAUSIBLE_ABOVE)
    prior = np.log(wide) - np.log1p((np.maximum(beyond, 0.0) / TAIL) ** 2)
    log = np.log(LAPSE_PRIOR)[:, None, None] + prior[:, None] + np.log(SHAPE_PRIOR)
    outcomes = Counter((trial.log_rate, trial.held) for trial in trials)
    for rate in sorted({rate for rate, _ in outcomes}):
        holds = holding(rate, edges)
        held, missed = outcomes[rate, True], outcomes[rate, False]
        log += (held * np.log(holds) if held else 0.0) + (missed * np.log1p(-holds) if missed else 0.0)
    joint = np.exp(log - log.max())
    return Edge(ends, joint / joint.sum())


def difference_quantiles(a: Edge, b: Edge, tails: Sequence[float]) -> list[float]:
    """Quantiles of edge a less edge b, the two being independent; by bisection on the exact distribution, for all
    `tails` at once."""
    points = a.log_rates
    low = np.full(len(tails), points[0] - b.log_rates[-1] - 1.0)
    high = np.full(len(tails), points[-1] - b.log_rates[0] + 1.0)
    for _ in range(45):
        middle = (low + high) / 2
        # a - b <= middle  <=>  b >= a - middle
        less = (a.mass * (1 - b.below(points - middle[:, None]))).sum(1) < tails
        low, high = np.where(less, middle, low), np.where(less, high, middle)
    return list(map(float, (low + high) / 2))


def _entropy(p: Array) -> Array:
    q = np.clip(p, 1e-12, 1 - 1e-12)
    return np.asarray(-q * np.log(q) - (1 - q) * np.log(1 - q))
