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
from powerband.store import RunDir, read_host

MOST_CORES = 0.01
"""The most that Ray's daemon and powerband's actor may use together on a node that measures, as powerband promises."""


def with_node_costs(analysis: Analysis, run: RunDir) -> Analysis:
    """Adds them; an analysis of a run on one machine comes back as it is."""
    if analysis.nodes is None:
        return analysis
    told = read_host(run.nodes)  # in the same form
    hosts, costs = _mapping(told, "nodes"), _mapping(told, "overhead")
    rows = tuple(_row(row, _mapping(hosts, row.node), _mapping(costs, row.node)) for row in analysis.nodes.rows)
    found = replace(analysis, nodes=replace(analysis.nodes, rows=rows))
    dear = [row for row in rows if row.ray_cores is not None and row.ray_cores > MOST_CORES]
    if not dear:
        return found
    said = joined([f"{100 * (row.ray_cores or 0.0):.2f} % on {row.node}" for row in dear])
    warning = (
        f"Ray's daemon and powerband's actor used more than {100 * MOST_CORES:.0f} % of a core during trials: {said}. "
        "It was not there for server and load, whatever the setting"
    )
    return replace(found, warnings=(*found.warnings, warning))


def _row(row: NodeRow, host: Mapping[str, Any], cost: Mapping[str, Any]) -> NodeRow:
    model, allowed = host_fact(host, "CPU"), host_fact(host, "CPUs allowed")
    cores = [_number(cost.get(name)) for name in ("actor_cores", "raylet_cores")]
    return replace(
        row,
        cpu=model if isinstance(model, str) else "",
        cpus=len(allowed) if isinstance(allowed, list) else None,
        ray_cores=None if cores[0] is None else cores[0] + (cores[1] or 0.0),
        between_s=_number(cost.get("between_s_max")),
    )


def _mapping(of: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = of.get(name)
    return found if isinstance(found, dict) else {}


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
