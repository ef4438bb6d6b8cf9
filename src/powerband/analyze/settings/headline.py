"""Computes the figure of the answer's first sentence, with an interval that holds though the setting was picked by it.

In: the table of blocks, the confirmation. Out: a `Figure` of each setting. A setting that wins among many was lucky,
and a race stops when it looks decided. So the figure is that of fresh starts, which had no part in either; if there are
too few, it is the race's own, with an interval that holds for all settings and looks together. Method and simulated
coverage: docs/methods/estimates.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from powerband.analyze.settings.contest import ResponseTable
from powerband.analyze.settings.counting import counted
from powerband.analyze.stats.intervals import Scale, exp
from powerband.analyze.stats.special import Array, student_t
from powerband.model.experiment import Experiment
from powerband.model.plan import Setting
from powerband.model.results import Confirmation, Estimate, Figure

FRESH_MIN = 2
"""The fewest fresh starts that make a figure of their own: one alone has no interval."""


def figures_of(
    experiment: Experiment,
    table: ResponseTable,
    scale: Scale,
    confirmation: Confirmation | None = None,
    fresh_room: float = 0.0,
) -> dict[Setting, Figure]:
    """The figure of every setting with data. Its interval holds even if the setting was picked as the best of all, at
    the last of all looks (Bonferroni). The confirmed setting's figure is that of its fresh starts alone, if there are
    enough. `fresh_room`: how much more these may have served undisturbed, on the scale.

    No interval is narrower than Student's t interval of the starts themselves. Starts that agree by luck look quiet,
    and the leader had more luck than most. So on the log scale, on which the settings' noise is alike, the variance is
    at least the pooled one of all settings, each around its own mean."""
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
        if confirmation is not None and confirmation.setting == setting and confirmation.trials >= FRESH_MIN:
            fresh = confirmation.confirmed
            middle = float(scale.scaled([fresh.value])[0])
            half = pooled.half(error, fresh.n) if scale.log else 0.0
            wide = _with_room(scale, _hull(fresh, _back(scale, middle, half, 1 - error, fresh.n)), fresh_room)
            found[setting] = Figure(counted(experiment, table.metric, wide, trials[: fresh.n]), fresh=True)
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


def _hull(first: Estimate, second: Estimate) -> Estimate:
    ends = [*first.ends, *second.ends]
    return replace(first, low=min(ends), high=max(ends))


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
