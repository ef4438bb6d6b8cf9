"""Adds to an analysis what each node is, and how much CPU Ray and powerband's actor used there during trials.

In: an analysis, `nodes.json` of its run directory. Out: the analysis with these figures, and a warning where the two
took more than `MOST_CORES` of a core. Nothing is judged by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from powerband.base.units import joined
from powerband.model.host_facts import host_fact
from powerband.model.results import Analysis, NodeRow
from powerband.store import RunDir, read_nodes

MOST_CORES = 0.01
"""The most that Ray's daemon and powerband's actor may use together on a node that measures, as powerband promises."""


def with_node_costs(analysis: Analysis, run: RunDir) -> Analysis:
    """Adds these figures; an analysis of a run on one machine comes back as it is."""
    if analysis.nodes is None:
        return analysis
    facts, costs = read_nodes(run.nodes)
    rows = tuple(_row(row, facts.get(row.node, {}), costs.get(row.node, {})) for row in analysis.nodes.rows)
    found = replace(analysis, nodes=replace(analysis.nodes, rows=rows))
    dear = [row for row in rows if row.ray_cores is not None and row.ray_cores > MOST_CORES]
    if not dear:
        return found
    said = joined([f"{100 * (row.ray_cores or 0.0):.2f} % on {row.node}" for row in dear])
    warning = (
        f"Ray's daemon and powerband's actor used more than {100 * MOST_CORES:.0f} % of a core during trials: {said}. "
        "Server and load had to do without it at every setting"
    )
    return replace(found, warnings=(*found.warnings, warning))


def _row(row: NodeRow, host: Mapping[str, Any], cost: Mapping[str, float]) -> NodeRow:
    model, allowed = host_fact(host, "CPU"), host_fact(host, "CPUs allowed")
    actor = cost.get("actor_cores")
    return replace(
        row,
        cpu=model if isinstance(model, str) else "",
        cpus=len(allowed) if isinstance(allowed, list) else None,
        ray_cores=None if actor is None else actor + cost.get("raylet_cores", 0.0),
        between_s=cost.get("between_s_max"),
    )
