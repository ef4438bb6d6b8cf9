"""The figure of the answer's first sentence, with an interval that stays true though the setting was picked for it.

In: the table of blocks, the confirmation. Out: a `Figure` of each setting. What wins among many was lucky, and a race
stops when it looks decided: so the figure is that of fresh starts, which had no part in either; where there are too
few, the race's own, with an interval that holds for all settings and looks together. Method and simulated coverage:
docs/methods/estimates.md.
"""

from __future__ import annotations

import math

import numpy as np

from powerband.analyze.settings.contest import ResponseTable
from powerband.analyze.stats.counts import no_narrower_than_counted
from powerband.analyze.stats.intervals import SD_FLOOR, Scale, exp, few_blocks
from powerband.analyze.stats.special import Array, student_t
from powerband.analyze.stats.spending import share_at
from powerband.model.experiment import Experiment
from powerband.model.plan import Setting
from powerband.model.results import Confirmation, Estimate, Figure

FRESH_MIN = 2
"""Fresh starts that make a figure of their own: of one there is no interval."""


def figures_of(experiment: Experiment, table: ResponseTable, scale: Scale) -> dict[Setting, Figure]:
    """Of every setting with data, as compared: each holds though it be the best of all, at the last of all looks.

    The larger of two half-widths: Student's t from the setting's own starts; and at the error of one setting at one
    look (Bonferroni), of few blocks with the variance pooled over settings, since starts that agree by luck look quiet.
    """
    values = scale.scaled(table.values())
    columns = [(setting, _known(values[:, column])) for column, setting in enumerate(table.settings)]
    columns = [(setting, known) for setting, known in columns if len(known)]
    error = 1 - experiment.objective.confidence
    freedom = sum(len(known) - 1 for _, known in columns)
    squares = sum(float(((known - known.mean()) ** 2).sum()) for _, known in columns)
    pooled = math.sqrt(squares / freedom) if freedom else 0.0
    each = error * share_at(experiment, len(table.blocks)) / max(1, len(columns))
    found = {}
    for setting, known in columns:
        n, half = len(known), math.nan
        if n > 1:
            own = max(float(known.std(ddof=1)), SD_FLOOR if scale.log else 0.0)
            few = bool(few_blocks(np.array(n), len(columns)))
            picked = student_t(1 - each, freedom) * pooled if few else student_t(1 - each, n - 1) * own
            half = max(student_t(1 - error, n - 1) * own, picked) / math.sqrt(n)
        estimate = _back(scale, float(known.mean()), half, 1 - error, n)
        found[setting] = Figure(counted(experiment, table.metric, estimate), fresh=False)
    return found


def confirmed_figure(experiment: Experiment, confirmation: Confirmation | None) -> dict[Setting, Figure]:
    """The confirmed setting's, from its fresh starts alone; empty where there are too few."""
    if confirmation is None or confirmation.trials < FRESH_MIN:
        return {}
    estimate = counted(experiment, experiment.objective.metric, confirmation.confirmed)
    return {confirmation.setting: Figure(estimate, fresh=True)}


def counted(experiment: Experiment, metric: str, found: Estimate) -> Estimate:
    """No narrower than the counting error of a rate of requests; other metrics as they are."""
    load = experiment.load
    if metric not in ("goodput_per_s", "achieved_rate_per_s") or load.requests_per_user is not None:
        return found
    return no_narrower_than_counted(found, found.value * found.n * load.duration_ns / 1e9)


def _known(column: Array) -> Array:
    return np.asarray(column[~np.isnan(column)])


def _back(scale: Scale, mean: float, half: float, confidence: float, n: int) -> Estimate:
    back = exp if scale.log else float
    if math.isnan(half):
        return Estimate(back(mean), None, None, confidence, n)
    return Estimate(back(mean), back(mean - half), back(mean + half), confidence, n)
