"""Where is the edge between rates that hold and rates that do not? A Bayesian estimate from single noisy answers.

In: rates that were tried, each with whether it held, and where a first look puts the edge. Out: `Edge`, the posterior
of the log rate at which a trial holds with probability 1/2, and the rate whose trial would tell most about it. Pure
numbers; what holding means is `capacity.py`'s business. Method, sources and coverage: docs/methods/capacity.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from powerband.analyze.stats.special import Array

WIDTHS = np.geomspace(0.0015, 0.25, 9)
"""Scales of the logistic edge in log rate: trials that differ by 0.3 % to 45 % (standard deviation)."""
WIDTH_PRIOR = np.exp(-((np.minimum(np.log(WIDTHS / 0.025), 0.0) / 1.3) ** 2) / 2)
"""As likely all from a standard deviation of 4.5 % upwards, less below: what fresh starts of servers differ by. A prior
that thought wide edges rare had narrow intervals, and covered 78 % of the capacities with an edge of 16 %."""
LAPSES, LAPSE_PRIOR = np.array([0.005, 0.03, 0.10]), np.array([0.70, 0.25, 0.05])
"""How often a trial far below the edge does not hold, since something disturbed it."""
LUCK = 0.01
"""How often a trial far above the edge holds all the same."""
PLAUSIBLE_BELOW, PLAUSIBLE_ABOVE, TAIL = 0.7, 0.05, 0.5
"""The prior is flat from half of the first look's rate to a little above it, with tails as a Cauchy's beyond: a few
trials overrule it, and the search then goes on in growing steps."""
REACH_ABOVE = 8.0  # e^8: 3,000 times the first look
GRID, COARSE_STEP, FINE_STEP = 160, 0.05, 3e-4  # in log rate: 5 % at first, a fifth of the narrowest edge in the end
NEGLIGIBLE = 1e-7  # of the largest mass: cells below it are left out of the finer grid
CANDIDATES = 25  # rates weighed for the next trial


@dataclass(frozen=True)
class Answered:
    """One trial: log rate per second, and whether the conditions held."""

    log_rate: float
    held: bool


@dataclass(frozen=True)
class Edge:
    """Posterior masses on an even grid of log rates, ascending; `joint` also by width and lapse of the edge."""

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
        """Central credible interval, in log rate."""
        tail = (1 - confidence) / 2
        return self.quantile(tail), self.quantile(1 - tail)

    def half_width(self, confidence: float) -> float:
        low, high = self.interval(confidence)
        return (high - low) / 2

    def next_log_rate(self, ceiling: float = math.inf) -> float:
        """The log rate, at most `ceiling`, whose trial tells most about the edge: the greatest expected fall of the
        posterior's entropy (Kontsevich & Tyler 1999), width and lapse being nuisances (Prins 2013)."""
        low, high = self.quantile(0.02), self.quantile(0.98)
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
    """Probability that a trial at this rate holds, by edge, width and lapse."""
    return np.asarray(LUCK + (1 - LUCK - LAPSES) * _bears(log_rate, edges)[..., None])


def _bears(log_rate: Array | float, edges: Array) -> Array:
    """Probability that an undisturbed trial holds, by edge and width: the logistic function, without overflow."""
    return np.asarray(0.5 - 0.5 * np.tanh((log_rate - edges)[..., None] / (2 * WIDTHS)))


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
    log = prior[:, None, None] + np.log(WIDTH_PRIOR)[None, :, None] + np.log(LAPSE_PRIOR)[None, None, :]
    for trial in trials:
        holds = holding(trial.log_rate, grid)
        log = log + np.log(holds if trial.held else 1 - holds)
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
