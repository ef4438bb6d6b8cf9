"""Puts a publication's figures beside ours, both as ratios to the first setting that both have, since machines differ.

In: the experiment's `published` and the results of its trials. Out: `PublishedTable`s. Our ratios are paired within
blocks, as everything is here; each interval stands alone, at the experiment's confidence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from powerband.analyze.settings.contest import last_valid
from powerband.analyze.stats.intervals import estimate, estimate_of
from powerband.loads.measured import is_lower_bound
from powerband.model.experiment import Experiment, Published
from powerband.model.metrics import METRICS
from powerband.model.plan import named_settings
from powerband.model.results import Estimate, PublishedRow, PublishedTable, TrialResult


def published_tables(experiment: Experiment, results: Sequence[TrialResult]) -> tuple[PublishedTable, ...]:
    """One table for each metric with published figures, its rows in the publication's order."""
    return tuple(_table(published, results, experiment) for published in experiment.published)


def _table(published: Published, results: Sequence[TrialResult], experiment: Experiment) -> PublishedTable:
    metric, confidence = published.metric, experiment.objective.confidence
    settings, kept = experiment.settings(), experiment.kept()
    named = {name: next(iter(named_settings(name, settings, kept)), None) for name in published.by}
    cells = last_valid(result for result in results if metric in result.metrics)
    ours = {
        name: {block: result.metrics[metric] for (of, block), result in cells.items() if of == setting}
        for name, setting in named.items()
    }
    endless = {of for (of, _), result in cells.items() if is_lower_bound(metric, result.metrics)}
    bounds = {name for name, setting in named.items() if setting in endless}
    base = next((name for name in published.by if ours[name]), None)
    rows = []
    for name, figure in published.by.items():
        values = list(ours[name].values())
        our_ratio = None
        if base is not None and (name == base or not bounds & {name, base}):
            our_ratio = _ratio(ours[name], ours[base], confidence, same=name == base)
        rows.append(
            PublishedRow(
                name=name,
                setting=named[name],
                published=figure,
                ours=replace(estimate_of(values, metric, confidence), at_least=name in bounds) if values else None,
                published_ratio=None if base is None or published.by[base] == 0 else figure / published.by[base],
                our_ratio=our_ratio,
            )
        )
    return PublishedTable(metric, METRICS[metric].unit, base, published.note, tuple(rows))


def _ratio(values: Mapping[int, float], base: Mapping[int, float], confidence: float, *, same: bool) -> Estimate | None:
    """The ratio to the base: by logs within blocks if all values are above zero; else that of the means, without an
    interval."""
    shared = sorted(set(values) & set(base))
    if not shared:
        return None
    if same:
        return Estimate(1.0, 1.0, 1.0, confidence, len(shared))
    pairs = [(values[block], base[block]) for block in shared]
    if all(a > 0 and b > 0 for a, b in pairs):
        return estimate([a / b for a, b in pairs], confidence, log=True)
    whole = math.fsum(b for _, b in pairs)
    return None if whole == 0 else Estimate(math.fsum(a for a, _ in pairs) / whole, None, None, confidence, len(shared))
