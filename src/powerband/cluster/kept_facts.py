"""Writes `nodes.json` of a run directory: the facts of each node, and the costs of Ray and powerband's actor there.

In: facts and costs of the nodes that are there now. Out: the file, which also keeps those of nodes that were there
before the run was left.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from powerband.model.host_facts import host_fact
from powerband.store import RunDir, read_nodes, write_atomically, writing


class KeptFacts:
    """Facts and costs of all nodes of a run, those of an earlier part of a resumed run included."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._facts, self._costs = read_nodes(run.nodes)  # of a run that is resumed

    def is_another_machine(self, name: str, facts: Mapping[str, Any]) -> bool:
        """True if these facts are of another machine than the one that had this name when the run was left."""
        return is_another_machine(self._facts.get(name, {}), facts)

    def keep(self, facts: Mapping[str, Any], overhead: Mapping[str, Mapping[str, float]]) -> None:
        """Writes facts and costs (`overhead`), each by name of the node. Raises MeasurementError if the disk cannot be
        written."""
        names = {**self._costs, **overhead}
        costs = {name: joined_costs(self._costs.get(name, {}), overhead.get(name, {})) for name in names}
        with writing(self._run.path):
            told = {"nodes": {**self._facts, **facts}, "overhead": costs}
            write_atomically(self._run.nodes, json.dumps(told, indent=1))


def joined_costs(before: Mapping[str, float], now: Mapping[str, float]) -> dict[str, float]:
    """A node's costs over the whole run, from those before it was left and those since; each is an entry of `overhead`.
    Means are weighted by the number of trials."""
    weights = before.get("trials", 0), now.get("trials", 0)
    found = {"trials": sum(weights)}
    for name in {**before, **now}:
        parts = [(each[name], weight) for each, weight in zip((before, now), weights, strict=True) if name in each]
        if name == "between_s_max":
            found[name] = max(value for value, _ in parts)
        elif name != "trials" and (count := sum(weight for _, weight in parts)):
            found[name] = sum(value * weight for value, weight in parts) / count
    return found


def is_another_machine(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """True if `now` holds the facts of another machine than `before`: another CPU, or memory that differs by more than
    5 % (kernels reserve less than that). Unknown facts do not count."""
    for name in ("CPU", "CPUs allowed", "memory"):
        was, is_now = host_fact(before, name), host_fact(now, name)
        if was is None or is_now is None:
            continue
        if name == "memory" and isinstance(was, int) and isinstance(is_now, int):
            if abs(is_now - was) > 0.05 * was:
                return True
        elif was != is_now:
            return True
    return False
