"""Where is the edge between rates that hold and rates that do not? A Bayesian estimate from single noisy answers.

In: rates that were tried, each with whether it held, and where a first look puts the edge. Out: `Edge`, the posterior
of the log rate at which a trial holds with probability 1/2, and the rate whose trial would tell most about it. Pure
numbers; what holding means is `capacity.py`'s business. Method, sources and coverage: docs/methods/capacity.md.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from powerband.analyze.stats.special import Array

HELD_BY = 0.95
"""The edge is the rate that this share of a server's starts holds."""
WIDTHS = np.geomspace(0.0015, 0.25, 8)
"""Scales of the logistic edge in log rate: starts that differ by 0.3 % to 45 % (standard deviation)."""
WIDTH_PRIOR = np.array([1, 1, 1, 1, 1, 0.8, 0.4, 0.15]) / 6.35
"""Wider ones than 12 % are mostly starts of two kinds, which have a shape of their own."""
SLOW_SHARES, SLOWER_BY, TWO_MODES = (0.1, 0.3, 0.5), (0.06, 0.15, 0.35), 0.30
"""Starts of two kinds: so large a share of them has its edge so much lower (in log rate), with this probability."""
LAPSES, LAPSE_PRIOR = np.array([0.005, 0.03, 0.10, 0.30]), np.array([0.50, 0.25, 0.15, 0.10])
"""How often a trial far below the edge does not hold, whatever its rate."""
MIDDLE_AT_MOST = 0.8
"""A lower quantile left out more of the cliffs below which 30 % of the trials fall short (docs/methods/capacity.md)."""
LUCK = 0.01
"""How often a trial far above the edge holds all the same."""
PLAUSIBLE_BELOW, PLAUSIBLE_ABOVE, TAIL = 0.7, 0.05, 0.5
"""The prior is flat from half of the first look's rate to a little above it, with tails as a Cauchy's beyond: a few
trials overrule it, and the search then goes on in growing steps."""
REACH_ABOVE = 8.0  # e^8: 3,000 times the first look
GRID, COARSE_STEP, FINE_STEP = 96, 0.05, 3e-4  # in log rate: 5 % at first, a fifth of the narrowest edge in the end
NEGLIGIBLE = 1e-7  # of the largest mass: cells below it are left out of the finer grid
CANDIDATES = 25  # rates weighed for the next trial


def _shapes() -> tuple[Array, Array, Array, Array]:
    """Four arrays with a value for each shape of an edge: its width, the share of slow starts, how much lower the edge
    of these lies (log rate), and how likely the shape is beforehand."""
    each = TWO_MODES / (len(SLOW_SHARES) * len(SLOWER_BY))
    modes = [(0.0, 0.0, 1 - TWO_MODES), *((share, by, each) for share in SLOW_SHARES for by in SLOWER_BY)]
    widths = zip(WIDTHS, WIDTH_PRIOR, strict=True)
    width, share, by, prior = np.array([(w, share, by, p * each) for w, p in widths for share, by, each in modes]).T
    return width, share, by, prior


def _share_held(below: Array, width: Array, share: Array, by: Array) -> Array:
    """The share of starts that hold a rate which lies so far `below` the middle of the quick ones, in log rate."""
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


@dataclass(frozen=True)
class Answered:
    """One trial: log rate per second, and whether the conditions held."""

    log_rate: float
    held: bool


@dataclass(frozen=True)
class Edge:
    """Posterior masses on an even grid of log rates, ascending; `joint` also by shape and lapse of the edge."""

    log_rates: Array
    joint: Array

    @cached_property
    def mass(self) -> Array:
        return np.asarray(self.joint.sum((1, 2)))

    @cached_property
    def _ends(self) -> Array:
        """The ends of the grid's cells: one more than there are cells."""
        step = self.log_rates[1] - self.log_rates[0]
        return np.concatenate([self.log_rates - step / 2, [self.log_rates[-1] + step / 2]])

    @cached_property
    def _passed(self) -> Array:
        """The mass below each of these ends."""
        return np.concatenate([[0.0], self.mass.cumsum()])

    def below(self, log_rate: Array | float) -> Array:
        """Probability that the edge lies below; each grid point's mass is spread evenly over its cell."""
        return np.asarray(np.interp(log_rate, self._ends, self._passed))

    def quantile(self, p: float) -> float:
        return float(np.interp(p, self._passed, self._ends))

    def interval(self, confidence: float) -> tuple[float, float]:
        """Credible interval, in log rate. It reaches up to where half of the quick starts hold, if its quantile lies
        lower: whether starts missed by chance or since they were slow ones is not to be told from a few."""
        tail = (1 - confidence) / 2
        return self.quantile(tail), max(self.quantile(1 - tail), self.middle.quantile(MIDDLE_AT_MOST))

    @cached_property
    def middle(self) -> Edge:
        """The posterior of the log rate that half of the quick starts hold, whatever the shape."""
        middles = self.log_rates[:, None] + BELOW_MIDDLE
        masses = self.joint.sum(2)
        told = masses > NEGLIGIBLE * masses.max()
        low, high = float(middles[told].min()), float(middles[told].max())
        ends = np.linspace(low - 1e-6, high + 1e-6, 4 * GRID + 1)
        found = np.histogram(middles[told], ends, weights=masses[told])[0]
        return Edge((ends[1:] + ends[:-1]) / 2, (found / found.sum())[:, None, None])

    def half_width(self, confidence: float) -> float:
        low, high = self.interval(confidence)
        return (high - low) / 2

    def next_log_rate(self, ceiling: float = math.inf) -> float:
        """The log rate, at most `ceiling`, whose trial tells most about the edge: the greatest expected fall of the
        posterior's entropy (Kontsevich & Tyler 1999), width and lapse being nuisances (Prins 2013)."""
        low, high = self.quantile(0.02), self.quantile(0.98) + float(self.joint.sum((0, 2)) @ BELOW_MIDDLE)
        tried = np.minimum(np.linspace(low, high, CANDIDATES), ceiling)
        return float(tried[int(np.argmax(self._gains(tried)))])

    def _gains(self, tried: Array) -> Array:
        """Mutual information of the edge and the outcome of a trial at each rate, in nats."""
        mass = np.maximum(self.mass, 1e-300)
        shape = self.joint / mass[:, None, None]
        undisturbed = (shape * (1 - LUCK - LAPSES)).sum(2)
        holds = LUCK + (undisturbed * _bears(tried[:, None], self.log_rates)).sum(2)
        overall = (holds * mass).sum(1)
        return np.asarray(_entropy(overall) - (_entropy(holds) * mass).sum(1))


def holding(log_rate: float, edges: Array) -> Array:
    """Probability that a trial at this rate holds, by edge, shape and lapse."""
    return np.asarray(LUCK + (1 - LUCK - LAPSES) * _bears(log_rate, edges)[..., None])


def _bears(log_rate: Array | float, edges: Array) -> Array:
    """Probability that an undisturbed trial holds, by edge and shape."""
    return _share_held((edges - log_rate)[..., None] + BELOW_MIDDLE, WIDTH, SLOW, BY)


def locate(trials: Sequence[Answered], first_look: float, floor: float) -> Edge:
    """The posterior after these trials. `first_look`: log of a rate that the server was seen to give, about which
    the prior lies; `floor`: log of the lowest rate that can be tried. O(trials) evaluations of 4,000 cells."""
    low = min(floor, first_look - 1.0) - 1.0
    edge = _on_grid(np.arange(low, first_look + REACH_ABOVE, COARSE_STEP), trials, first_look)
    for _ in range(4):
        step = edge.log_rates[1] - edge.log_rates[0]
        kept = edge.log_rates[edge.mass > NEGLIGIBLE * edge.mass.max()]
        low, high = kept[0] - 2 * step, kept[-1] + 2 * step
        finer = (high - low) / GRID
        if finer > 0.8 * step or step < FINE_STEP:
            break
        edge = _on_grid(np.linspace(low, high, GRID), trials, first_look)
    return edge


def _on_grid(grid: Array, trials: Sequence[Answered], first_look: float) -> Edge:
    beyond = np.maximum(first_look - PLAUSIBLE_BELOW - grid, grid - first_look - PLAUSIBLE_ABOVE)
    prior = -np.log1p((np.maximum(beyond, 0.0) / TAIL) ** 2)
    log = prior[:, None, None] + np.log(SHAPE_PRIOR)[None, :, None] + np.log(LAPSE_PRIOR)[None, None, :]
    outcomes = Counter((trial.log_rate, trial.held) for trial in trials)
    for rate in sorted({rate for rate, _ in outcomes}):
        holds = holding(rate, grid)
        log += outcomes[rate, True] * np.log(holds) + outcomes[rate, False] * np.log1p(-holds)
    joint = np.exp(log - log.max())
    return Edge(grid, joint / joint.sum())


def difference_quantiles(a: Edge, b: Edge, tails: Sequence[float]) -> list[float]:
    """Quantiles of edge a less edge b, the two being independent; by bisection on the exact distribution."""
    points = a.log_rates
    found = []
    for tail in tails:
        low, high = points[0] - b.log_rates[-1] - 1.0, points[-1] - b.log_rates[0] + 1.0
        for _ in range(45):
            middle = (low + high) / 2
            # a - b <= middle  <=>  b >= a - middle
            if float((a.mass * (1 - b.below(points - middle))).sum()) < tail:
                low = middle
            else:
                high = middle
        found.append((low + high) / 2)
    return found


def _entropy(p: Array) -> Array:
    q = np.clip(p, 1e-12, 1 - 1e-12)
    return np.asarray(-q * np.log(q) - (1 - q) * np.log(1 - q))
