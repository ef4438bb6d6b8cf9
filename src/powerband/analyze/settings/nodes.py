"""Judges several nodes as a factor: how fast each is, and whether the setting that is best over all is best on each.

In: an experiment, results with their nodes, the setting that is named or leads. Out: `Nodes`. Blocks are nested in
nodes, and settings crossed with them: the model is block + setting x node on the scale of the objective (a randomised
complete block design with an interaction; Montgomery, Design and Analysis of Experiments, 9th ed., 4.1 and 5.3), fitted
by least squares, since settings that left are missing from later blocks. Method: docs/methods/nodes.md.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from powerband.analyze.settings.contest import last_valid
from powerband.analyze.stats.intervals import SD_FLOOR, Scale
from powerband.analyze.stats.special import Array, f_tail, student_t
from powerband.base.units import joined, plural, short_percent, sided, significant
from powerband.model.experiment import Experiment
from powerband.model.metrics import METRICS, margin_words, metric_words
from powerband.model.plan import Setting, Stage
from powerband.model.results import Estimate, NodeRow, Nodes, Race, TrialResult

CONFIRMED_ON = 3
"""The number of nodes on which fresh starts have to confirm the named setting, if there are that many: many settings
that are best on one machine are not on the next (TUNA, EuroSys'25)."""


@dataclass(frozen=True)
class _Cells:
    """The valid compared trials. `at`: setting, block and node of each, by index. `values`: on the scale, more is
    better. `sign`: -1.0 if less of the objective is better. `base`: the mean of the raw values."""

    settings: list[Setting]
    nodes: list[str]
    at: list[tuple[int, int, int]]
    values: Array
    scale: Scale
    sign: float
    base: float

    def ratio(self, difference: float, half: float, confidence: float, n: int) -> Estimate | None:
        """The ratio of two figures of the objective, from the difference of their `values`."""
        return self.scale.ratio(self.sign * difference, half, self.base, confidence, n)

    def of_node(self, node: int) -> list[int]:
        return [index for index, (_, _, at) in enumerate(self.at) if at == node]


def nodes_of(
    experiment: Experiment,
    results: Sequence[TrialResult],
    named: Setting | None,
    half: Collection[int] = (),
    race: Race | None = None,
    *,
    chosen: bool = True,
    barred: Collection[Setting] = (),
) -> Nodes | None:
    """The nodes of a run; None for a single machine. `half`: blocks that do not count. `race`: the race, with its
    confirmation by the fresh starts of all nodes together. `chosen`: `named` is the answer, and does not only lead; if
    fresh starts took the answer back, nothing is said of it. `barred`: settings that can be no answer on any node."""
    names = sorted({result.node for result in results} - {""})
    if not names:
        return None
    valid = [result for result in results if result.valid]
    bare = {name: NodeRow(name, sum(r.node == name for r in valid), 0, None, None) for name in names}
    fresh_on = () if named is None else confirmed_on(valid, named)
    cells = _cells(experiment, [r for r in valid if r.block not in half or r.stage is not Stage.COMPARE])
    if cells is None:
        return Nodes(named, tuple(bare.values()), None, fresh_on, ())
    residual = _Residual.of(cells)
    ratios = _ratios(cells, experiment.objective.confidence)
    if experiment.objective.is_capacity:  # its trials have different rates: only the first rounds compare nodes
        looked = tuple(replace(row, ratio=ratios.get(name)) for name, row in bare.items())
        return Nodes(named, looked, None, (), _looks_differ(experiment, ratios))
    rows = bare | {
        name: _row(experiment, cells, residual, bare[name], named=named, barred=barred, ratio=ratios.get(name))
        for name in cells.nodes
    }
    differ = _interaction(cells, residual)
    fresh = None if race is None else race.confirmation
    agrees = fresh is not None and fresh.setting == named and fresh.agrees
    # The margin of a share is in percentage points: as a ratio it depends on the share itself.
    margin = experiment.objective.margin / (1.0 if cells.scale.relative else cells.base or 1.0)
    withdrawn = not chosen and race is not None and (fresh is not None or race.unconfirmed is not None)
    told, fresh_there = None if withdrawn else named, fresh_on if agrees else ()
    best = "is best" if chosen else "came out first in the rounds"
    sentences = _sentences(experiment, list(rows.values()), told, differ, fresh_there, margin=margin, best=best)
    return Nodes(named, tuple(rows.values()), differ, fresh_on, sentences)


def _cells(experiment: Experiment, valid: Sequence[TrialResult]) -> _Cells | None:
    """The trials that compare nodes; those of the first rounds if capacities are searched."""
    metric, stage = experiment.objective.metric, Stage.COMPARE
    if experiment.objective.is_capacity:
        metric, stage = "goodput_per_s", Stage.SATURATE
        ran = {(result.block, result.node) for result in valid if result.stage is stage}
        moved = {block for block, count in Counter(block for block, _ in ran).items() if count > 1}
        valid = [result for result in valid if result.block not in moved]  # their first node was lost
    found = last_valid((result for result in valid if metric in result.metrics and result.node), stage)
    if not found:
        return None
    settings = list(dict.fromkeys(setting for setting, _ in found))
    names = sorted({result.node for result in found.values()})
    blocks = {block: index for index, block in enumerate(sorted({block for _, block in found}))}
    raw = [result.metrics[metric] for result in found.values()]
    scale = Scale.of(raw, METRICS[metric].unit)
    sign = 1.0 if experiment.objective.direction == "maximise" else -1.0
    at = [(settings.index(s), blocks[block], names.index(result.node)) for (s, block), result in found.items()]
    return _Cells(settings, names, at, sign * scale.scaled(raw), scale, sign, float(np.mean(raw)))


@dataclass(frozen=True)
class _Residual:
    """The residual of the full model: sum of squares and degrees of freedom, which are 0 if each node had one block."""

    sum_squares: float
    freedom: int

    @classmethod
    def of(cls, cells: _Cells) -> _Residual:
        parts = [_fit(cells, cells.of_node(node)) for node in range(len(cells.nodes))]
        return cls(sum(part.sum_squares for part in parts), sum(part.freedom for part in parts))

    @property
    def variance(self) -> float:
        return max(self.sum_squares / self.freedom, SD_FLOOR**2) if self.freedom > 0 else math.nan


@dataclass(frozen=True)
class _Fit:
    """The model block + setting, fitted: the residual's sum of squares and degrees of freedom, and the effects of the
    settings and of the blocks, by index."""

    sum_squares: float
    freedom: int
    settings: Array
    blocks: dict[int, float]


def _fit(cells: _Cells, chosen: Sequence[int]) -> _Fit:
    """Fits the model to the chosen cells by least squares. Blocks are taken out first (Frisch and Waugh 1933), since
    there may be a thousand of them."""
    count = len(cells.settings)
    rows: dict[int, list[int]] = {}
    for index in chosen:
        rows.setdefault(cells.at[index][1], []).append(index)
    normal, right = np.zeros((count, count)), np.zeros(count)
    squares = 0.0
    for members in rows.values():
        design = np.zeros((len(members), count))
        design[range(len(members)), [cells.at[index][0] for index in members]] = 1.0
        design -= design.mean(axis=0)
        values = cells.values[members] - cells.values[members].mean()
        normal, right, squares = normal + design.T @ design, right + design.T @ values, squares + float(values @ values)
    effects = np.linalg.pinv(normal, hermitian=True) @ right
    freedom = len(chosen) - len(rows) - int(np.linalg.matrix_rank(normal, hermitian=True))
    settings = [cells.at[index][0] for index in range(len(cells.at))]
    blocks = {
        block: float(np.mean([cells.values[index] - effects[settings[index]] for index in members]))
        for block, members in rows.items()
    }
    return _Fit(max(0.0, squares - float(effects @ right)), freedom, effects, blocks)


def _interaction(cells: _Cells, full: _Residual) -> float | None:
    """The p-value for settings that compare alike on all nodes: F of the model with the interaction against the one
    without. None if there are too few blocks."""
    additive = _fit(cells, range(len(cells.at)))
    added = additive.freedom - full.freedom
    if added <= 0 or full.freedom <= 0:
        return None
    return f_tail(max(0.0, additive.sum_squares - full.sum_squares) / added / full.variance, added, full.freedom)


def _ratios(cells: _Cells, confidence: float) -> dict[str, Estimate]:
    """The ratio of each node's figure to the mean of all nodes, from the means of its blocks with the settings taken
    out. The interval comes from the variation of the blocks about their node's mean."""
    count = len(cells.nodes)
    effects = _fit(cells, range(len(cells.at))).blocks
    node_of = {block: node for _, block, node in cells.at}
    blocks = [[effects[block] for block in node_of if node_of[block] == node] for node in range(count)]
    if count < 2 or not all(blocks):
        return {}
    means = [float(np.mean(each)) for each in blocks]
    middle = float(np.mean(means))
    freedom = sum(len(each) - 1 for each in blocks)
    half = [math.nan] * count
    if freedom:
        rest = sum((value - mean) ** 2 for each, mean in zip(blocks, means, strict=True) for value in each)
        variance = max(rest / freedom, SD_FLOOR**2)
        t = student_t(confidence, freedom)
        # The variance of a node's mean less that of all nodes, of which it is one.
        parts = [variance / len(each) for each in blocks]
        half = [t * math.sqrt(part * (1 - 2 / count) + sum(parts) / count**2) for part in parts]
    found = {}
    for name, mean, width, each in zip(cells.nodes, means, half, blocks, strict=True):
        if (ratio := cells.ratio(mean - middle, width, confidence, len(each))) is not None:
            found[name] = ratio
    return found


def _row(
    experiment: Experiment,
    cells: _Cells,
    residual: _Residual,
    bare: NodeRow,
    *,
    named: Setting | None,
    barred: Collection[Setting],
    ratio: Estimate | None,
) -> NodeRow:
    node = cells.nodes.index(bare.node)
    table: dict[int, dict[int, float]] = {}
    for (setting, block, at), value in zip(cells.at, cells.values, strict=True):
        if at == node:
            table.setdefault(setting, {})[block] = float(value)
    row = replace(bare, blocks=len({block for each in table.values() for block in each}), ratio=ratio)
    if named not in cells.settings or cells.settings.index(named) not in table:
        return row
    mine = table[cells.settings.index(named)]
    leads: list[tuple[float, int, Setting]] = []
    for setting, other in table.items():
        shared = sorted(mine.keys() & other.keys())
        if shared and cells.settings[setting] not in (named, *barred):
            lead = float(np.mean([other[block] - mine[block] for block in shared]))
            leads.append((lead, len(shared), cells.settings[setting]))
    if not leads or max(leads, key=lambda each: each[0])[0] <= 0:
        return replace(row, best=named)
    lead, shared_blocks, best = max(leads, key=lambda each: each[0])
    # The pair that came out furthest on any node is looked at, so all pairs are corrected for (Bonferroni).
    pairs = len(cells.nodes) * max(1, len(cells.settings) - 1)
    half, confidence = math.nan, experiment.objective.confidence
    if residual.freedom > 0:
        t = student_t(1 - (1 - confidence) / pairs, residual.freedom)
        half = t * math.sqrt(2 * residual.variance / shared_blocks)
    estimate = cells.ratio(lead, half, confidence, shared_blocks)
    beyond = lead > cells.scale.allowed(experiment.objective.margin, cells.base)
    return replace(row, best=best, lead=estimate, shown=beyond and lead > half)


def confirmed_on(results: Iterable[TrialResult], setting: Setting) -> tuple[str, ...]:
    """The nodes with a valid fresh start of the setting."""
    fresh = (r for r in results if r.stage is Stage.CONFIRM and r.setting == setting and r.valid)
    return tuple(sorted({result.node for result in fresh if result.node}))


def _sentences(
    experiment: Experiment,
    rows: Sequence[NodeRow],
    named: Setting | None,
    differ: float | None,
    fresh_on: Sequence[str],
    *,
    margin: float,
    best: str,
) -> tuple[str, ...]:
    """The sentences. `margin`: that of the objective, as a ratio less 1; `best`: says of `named` that it is."""
    seen = [row for row in rows if row.best is not None]
    if named is None or not seen:
        return ()
    metric = experiment.objective.metric
    word = metric_words(metric)

    def ahead(row: NodeRow) -> float:
        return 0.0 if row.lead is None else abs(row.lead.value - 1)

    def by(row: NodeRow) -> str:
        assert row.lead is not None
        value, low, high = (each - 1 for each in (row.lead.value, *row.lead.ends))
        more, ends = sided(value, (low, high), ("more", "less"), "%")
        return f"on {row.node} {row.best.id if row.best else ''} had {short_percent(abs(value))} % {more} {word}{ends}"

    other = [row for row in seen if row.best != named]
    shown = [row for row in other if row.shown]
    near = [row for row in other if not row.shown and ahead(row) > margin]
    ran = [row for row in rows if row.trials]  # others were lost before
    count = "all" if len(seen) == len(ran) else f"{len(seen)} of"
    told: list[str] = []
    if not shown and not near and len(ran) > 1:
        within = margin_words(experiment.objective.margin, metric)
        equal = "" if not other else f", or within {within} of the best,"
        told.append(f"{named.id} {best}{equal} on {count} {plural(len(ran), 'node')}.")
    if shown:
        told.append(f"Nodes differ: {joined([by(row) for row in shown])} than {named.id}, which {best} on the whole.")
    if near:
        said = joined([by(row) for row in near])
        told.append(f"{said[0].upper()}{said[1:]} than {named.id}, which is not shown for certain.")
    if differ is not None and differ < 1 - experiment.objective.confidence and not shown:
        told.append(f"How settings compare differs between nodes by more than chance (p = {significant(differ)}).")
    if differ is None and len(rows) > 1 and len({row.best for row in seen}) > 1:
        told.append("With one round per node this may be chance.")
    if len(fresh_on) >= CONFIRMED_ON:
        told.append(f"Fresh starts confirm it on {joined(fresh_on)}.")
    elif fresh_on:
        told.append(f"Fresh starts confirm it on {plural(len(fresh_on), 'node')} only: {joined(fresh_on)}.")
    return tuple(told)


def _looks_differ(experiment: Experiment, ratios: Mapping[str, Estimate]) -> tuple[str, ...]:
    """Says what a capacity means on nodes that differ by more than the margin."""
    speeds = [ratio.value for ratio in ratios.values()]
    if not speeds or max(speeds) <= min(speeds) * (1 + experiment.objective.margin):
        return ()
    low, high = (short_percent(speed) for speed in (min(speeds), max(speeds)))
    return (
        f"Under a full load of users the nodes served {low} to {high} % of their average. "
        "95 % of starts hold a capacity whichever of these nodes they run on.",
    )
