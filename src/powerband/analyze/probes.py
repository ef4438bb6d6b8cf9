"""Reads the probe's samples of one trial and answers two questions about any stretch of time: by how much did a
cumulative counter grow, and what levels did a gauge have? Counters are interpolated linearly between samples.

Not here: what the figures mean (`measure.py`), the per-second series for plots (`series.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Counters:
    """One source (a process tree, or the host): the samples' times and each field's values, absent ones NaN."""

    at_ns: Array
    fields: Mapping[str, Array]

    def growth(self, name: str, start_ns: int, end_ns: int) -> float | None:
        """By how much a cumulative counter grew from start to end; None where it was not sampled over the stretch."""
        values = self.fields.get(name)
        if values is None:
            return None
        known = ~np.isnan(values)
        at = self.at_ns[known]
        if at.size < 2 or not self._covers(at, start_ns, end_ns):
            return None
        low, high = np.interp([start_ns, end_ns], at, values[known])
        return float(high - low)

    def levels(self, name: str, start_ns: int, end_ns: int) -> Array | None:
        """The values of a gauge within the stretch; None where there are none."""
        values = self.fields.get(name)
        if values is None:
            return None
        inside = values[(self.at_ns >= start_ns) & (self.at_ns <= end_ns)]
        inside = inside[~np.isnan(inside)]
        return inside if inside.size else None

    @staticmethod
    def _covers(at: Array, start_ns: int, end_ns: int) -> bool:
        """Whether the samples reach from start to end, but for a quarter of the stretch at most."""
        missing = max(0.0, float(at[0]) - start_ns) + max(0.0, end_ns - float(at[-1]))
        return end_ns > start_ns and missing <= 0.25 * (end_ns - start_ns)


@dataclass(frozen=True)
class Probe:
    """What one probe process saw in a trial."""

    trees: Mapping[str, Counters]
    host: Counters
    threads: tuple[Mapping[str, Any], ...]
    """The `threads` events, in order."""
    own_cores: float
    """The probe's own CPU over its life, in cores."""

    def matching(self, prefix: str) -> list[Counters]:
        """The trees named `prefix` or `prefix-...`, e.g. every engine of a fleet."""
        return [tree for name, tree in self.trees.items() if name.split("-")[0] == prefix]


def read_probe(events: Iterable[Mapping[str, Any]]) -> Probe | None:
    """None where the probe took no sample."""
    samples: list[Mapping[str, Any]] = []
    threads: list[Mapping[str, Any]] = []
    hello_ns: int | None = None
    own_cores = 0.0
    for event in events:
        match event["type"]:
            case "hello":
                hello_ns = event["monotonic_ns"]
            case "sample":
                samples.append(event)
            case "threads":
                threads.append(event)
            case "end":
                begun = hello_ns if hello_ns is not None else (samples[0]["at_ns"] if samples else event["at_ns"])
                own_cores = event["cpu_ns"] / max(1, event["at_ns"] - begun)
    if not samples:
        return None
    names = dict.fromkeys(tree["name"] for sample in samples for tree in sample["trees"])
    by_tree = {name: [(s["at_ns"], t) for s in samples for t in s["trees"] if t["name"] == name] for name in names}
    return Probe(
        trees={name: _counters(rows) for name, rows in by_tree.items()},
        host=_counters([(sample["at_ns"], sample["host"]) for sample in samples]),
        threads=tuple(threads),
        own_cores=own_cores,
    )


def _counters(rows: Sequence[tuple[int, Mapping[str, Any]]]) -> Counters:
    names = [name for name, value in rows[0][1].items() if not isinstance(value, str)]
    return Counters(
        at_ns=np.array([at for at, _ in rows], dtype=float),
        fields={name: np.array([_number(row.get(name)) for _, row in rows]) for name in names},
    )


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)
