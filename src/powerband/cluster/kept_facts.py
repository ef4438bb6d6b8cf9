"""`nodes.json` of a run directory: what each node is, and what Ray and powerband's actor cost there.

In: facts and costs of the nodes that are there now. Out: the file, beside what stands there of nodes that were there
before a run was left.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from powerband.model.host_facts import host_fact
from powerband.store import RunDir, read_nodes, write_atomically, writing


class KeptFacts:
    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._facts, self._costs = read_nodes(run.nodes)  # of a run that is gone on with

    def is_another(self, name: str, facts: Mapping[str, Any]) -> bool:
        """True if these are the facts of another machine than the one that had this name when the run was left."""
        return is_another(self._facts.get(name, {}), facts)

    def keep(self, facts: Mapping[str, Any], overhead: Mapping[str, Mapping[str, float]]) -> None:
        """By name of the node. Raises MeasurementError if the disk cannot be written."""
        names = {**self._costs, **overhead}
        costs = {name: together(self._costs.get(name, {}), overhead.get(name, {})) for name in names}
        with writing(self._run.path):
            told = {"nodes": {**self._facts, **facts}, "overhead": costs}
            write_atomically(self._run.nodes, json.dumps(told, indent=1))


def together(before: Mapping[str, float], now: Mapping[str, float]) -> dict[str, float]:
    """Joins the costs of the trials before a run was left with those since; each is an entry of `overhead`. Means are
    weighted by the number of trials."""
    weights = before.get("trials", 0), now.get("trials", 0)
    found = {"trials": sum(weights)}
    for name in {**before, **now}:
        parts = [(each[name], weight) for each, weight in zip((before, now), weights, strict=True) if name in each]
        if name == "between_s_max":
            found[name] = max(value for value, _ in parts)
        elif name != "trials" and (count := sum(weight for _, weight in parts)):
            found[name] = sum(value * weight for value, weight in parts) / count
    return found


def is_another(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """True if the facts of a host are those of another machine: of its CPU, or of its memory by more than 5 %, which no
    kernel keeps to itself. False where they are not known."""
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
