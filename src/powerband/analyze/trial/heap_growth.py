"""What grew on the heaps of a server's JVMs over the measured window: live classes before and after it.

In: class histograms (`trials/instruments/heap_snapshots.py`) and what the record says of them. Out: a `HeapGrowth`,
metrics, and a problem where a snapshot failed. Several JVMs are added up."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from powerband.model.results import HeapGrowth, Problem, TypeGrowth

TYPES_KEPT = 20
# `   1:         58632        5230912  [B (java.base@17.0.15)`
_ROW = re.compile(r"^\s*\d+:\s+(\d+)\s+(\d+)\s+(\S+)", re.MULTILINE)
# Of a class made while the program runs: its address, which tells nothing.
_ADDRESS = re.compile(r"[/+]0x[0-9a-f]+")
# Gaps that a collector left between what lives (JDK 19 and later; before, they are arrays of int).
_GAPS = "jdk.internal.vm.Filler"
_PRIMITIVES = {
    "B": "byte",
    "C": "char",
    "D": "double",
    "F": "float",
    "I": "int",
    "J": "long",
    "S": "short",
    "Z": "boolean",
}

Histogram = tuple[Counter[str], Counter[str]]
"""Instances and bytes by type."""


def heap_growth(texts: Mapping[tuple[str, int], str]) -> HeapGrowth | None:
    """`texts`: by moment (`before`, `after`) and process. None where no JVM told both times."""
    told = {key: histogram for key, text in texts.items() if (histogram := parse_histogram(text))[0]}
    pids = [pid for when, pid in told if when == "before" and ("after", pid) in told]
    if not pids:
        return None
    instances, sizes = _added([told["before", pid] for pid in pids])
    instances_after, sizes_after = _added([told["after", pid] for pid in pids])
    grew = [name for name in sizes_after if sizes_after[name] > sizes[name]]
    grew.sort(key=lambda name: (sizes[name] - sizes_after[name], name))
    return HeapGrowth(
        jvms=len(pids),
        bytes_before=sizes.total(),
        bytes_after=sizes_after.total(),
        types_grown=len(grew),
        types=tuple(
            TypeGrowth(name, instances[name], instances_after[name], sizes[name], sizes_after[name])
            for name in grew[:TYPES_KEPT]
        ),
    )


def parse_histogram(text: str) -> Histogram:
    """Types as a program has them; those of one name are added up. Gaps between objects, and what is no row of a
    histogram, are passed over."""
    instances: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for row in _ROW.finditer(text):
        name = type_name(row[3])
        if name.startswith(_GAPS):
            continue
        instances[name] += int(row[1])
        sizes[name] += int(row[2])
    return instances, sizes


def type_name(name: str) -> str:
    """`byte[]` of `[B`, `java.lang.Object[][]` of `[[Ljava.lang.Object;`."""
    element = name.lstrip("[")
    brackets = "[]" * (len(name) - len(element))
    if brackets and element.startswith("L"):
        element = element[1:].removesuffix(";")
    elif brackets:
        element = _PRIMITIVES.get(element, element)
    return _ADDRESS.sub("", element) + brackets


def snapshot_metrics(growth: HeapGrowth | None) -> dict[str, float]:
    if growth is None:
        return {}
    return {
        "jvm_live_bytes": float(growth.bytes_after),
        "jvm_live_growth_bytes": float(growth.bytes_after - growth.bytes_before),
    }


def snapshot_problems(snapshots: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
    """Nothing where none was taken."""
    failed = [snapshot for snapshot in snapshots if snapshot["failed"]]
    if failed:
        first = failed[0]
        whose = "" if first["pid"] is None else f" of process {first['pid']}"
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        text = f"no memory snapshot{whose} {first['when']} the measured window: {first['failed']}{more}"
        yield Problem("no_snapshot", text, fatal=False)
    elif changed := sorted(_told(snapshots, "before") ^ _told(snapshots, "after")):
        pids = ", ".join(map(str, changed))
        text = f"a JVM was not there both before and after the measured window (process {pids}): it is not compared"
        yield Problem("no_snapshot", text, fatal=False)


def _told(snapshots: Sequence[Mapping[str, Any]], when: str) -> set[int]:
    return {row["pid"] for row in snapshots if row["when"] == when and row["pid"] is not None and not row["failed"]}


def _added(histograms: Sequence[Histogram]) -> Histogram:
    instances: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for some_instances, some_sizes in histograms:
        instances.update(some_instances)
        sizes.update(some_sizes)
    return instances, sizes
