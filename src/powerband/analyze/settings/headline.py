"""Computes the figure of the answer's first sentence, with an interval that holds though the setting was picked by it.

In: the table of blocks, the confirmation. Out: a `Figure` of each setting. A setting that wins among many was lucky,
and a race stops when it looks decided. So the figure is that of fresh starts, which had no part in either; if there are
too few, it is the race's own, with an interval that holds for all settings and looks together. Method and simulated
coverage: docs/methods/estimates.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from powerband.analyze.settings.contest import ResponseTable
from powerband.analyze.settings.counting import counted
from powerband.analyze.stats.intervals import Scale, exp
from powerband.analyze.stats.special import Array, f_tail, student_t
from powerband.model.experiment import Experiment
from powerband.model.plan import Setting
from powerband.model.results import Confirmation, Estimate, Figure

FRESH_MIN = 2
"""The fewest fresh starts that make a figure of their own: one alone has no interval."""
NOISIER = 0.05  # the probability below which fresh starts are not taken to be as noisy as those in the race


@dataclass(frozen=True)
class Fresh:
    """The fresh starts that confirm a setting, and their `confirmation`. `values`: the objective in each; `room`: how
    much more they may have served undisturbed, on the comparison's scale."""

    confirmation: Confirmation
    values: Sequence[float]
    room: float


def figures_of(
    experiment: Experiment, table: ResponseTable, scale: Scale, fresh: Fresh | None = None
) -> dict[Setting, Figure]:
    """The figure of every setting with data. Its interval holds even if the setting was picked as the best of all, at
    the last of all looks (Bonferroni). The confirmed setting's figure is that of its fresh starts alone, if there are
    enough.

    No interval is narrower than Student's t interval of the setting's own starts. Two or three fresh starts hardly show
    their noise: unless they are noisier than those in the race, it is that of both. Starts that agree by luck look
    quiet, and the leader had more luck than most. So on the log scale, on which the settings' noise is alike, the
    variance is at least the pooled one of all settings, each around its own mean."""
    values = scale.scaled(table.values)
    columns = {setting: _known(values[:, column]) for column, setting in enumerate(table.settings)}
    columns = {setting: known for setting, known in columns.items() if len(known)}
    error = 1 - experiment.objective.confidence
    each = error * table.share / max(1, len(columns))
    pooled = _Spread.of(columns.values())
    found = {}
    slack = dict(zip(table.settings, table.slack(scale).T, strict=True))
    for setting, known in columns.items():
        own = _Spread.of([known])
        n = len(known)
        trials = [result.metrics for result in table.valid(setting)]
        half = max(own.half(error, n), (pooled if scale.log else own).half(each, n)) if n > 1 else math.nan
        estimate = _back(scale, float(known.mean()), half, 1 - error, n)
        estimate = _with_room(scale, estimate, float(_known(slack[setting]).mean()))
        short = table.experiment_of(setting)
        shown = counted(short, table.metric, estimate, trials)
        found[setting] = Figure(replace(shown, at_least=table.is_endless(setting)), fresh=False)
        if fresh is not None and fresh.confirmation.setting == setting and len(fresh.values) >= FRESH_MIN:
            estimate, n = fresh.confirmation.confirmed, len(fresh.values)
            if not scale.log or min(fresh.values) > 0:
                scaled = scale.scaled(fresh.values)
                half = max(_half_of_fresh(known, scaled, error), pooled.half(error, n) if scale.log else 0.0)
                estimate = _back(scale, float(scaled.mean()), half, 1 - error, n)
            estimate = _with_room(scale, estimate, fresh.room)
            shown = counted(experiment.loaded_for(setting), table.metric, estimate, trials[:n])
            found[setting] = Figure(replace(shown, at_least=fresh.confirmation.confirmed.at_least), fresh=True)
    return found


@dataclass(frozen=True)
class _Spread:
    """A standard deviation on the scale in use, and its degrees of freedom."""

    sd: float
    df: int

    @classmethod
    def of(cls, samples: Iterable[Array]) -> _Spread:
        """The spread of all samples together, each around its own mean."""
        known = list(samples)
        df = sum(len(sample) - 1 for sample in known)
        squares = sum(float(((sample - sample.mean()) ** 2).sum()) for sample in known)
        return cls(math.sqrt(squares / df) if df else 0.0, df)

    def half(self, error: float, n: int) -> float:
        """Half the width of the interval of a mean of n; 0 if nothing is known."""
        return student_t(1 - error, self.df) * self.sd / math.sqrt(n) if self.df else 0.0


def _half_of_fresh(raced: Array, fresh: Array, error: float) -> float:
    """Half the width of the interval of the mean of fresh starts. Their variance is that of all starts, the race's and
    the fresh ones each around their own mean; of the fresh ones alone where they are noisier for certain (one-sided F
    test of two variances, Snedecor 1934). The machine may have changed since the race: so the variance between the two
    means is added, as far as that within does not explain it (analysis of variance with random groups, Searle 1971)."""
    alone, own, n = _Spread.of([fresh]), _Spread.of([raced]), len(fresh)
    if not own.sd or f_tail((alone.sd / own.sd) ** 2, alone.df, own.df) < NOISIER:
        return alone.half(error, n)
    within = _Spread.of([raced, fresh])
    explained = within.sd**2 * (1 / len(raced) + 1 / n)
    between = max(0.0, float(raced.mean() - fresh.mean()) ** 2 - explained) / 2
    return replace(within, sd=math.sqrt(within.sd**2 + between * n)).half(error, n)


def _with_room(scale: Scale, found: Estimate, room: float) -> Estimate:
    """The estimate with its upper end raised on the scale: undisturbed the setting may serve so much more."""
    if found.high is None or not room:
        return found
    high = float(scale.scaled([found.high])[0]) + room
    return replace(found, high=exp(high) if scale.log else high)


def _known(column: Array) -> Array:
    return np.asarray(column[~np.isnan(column)])


def _back(scale: Scale, mean: float, half: float, confidence: float, n: int) -> Estimate:
    back = exp if scale.log else float
    if math.isnan(half):
        return Estimate(back(mean), None, None, confidence, n)
    return Estimate(back(mean), back(mean - half), back(mean + half), confidence, n)
