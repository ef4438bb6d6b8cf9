"""Makes metrics of what the instruments of a trial recorded: link, visitor's browser, acknowledged writes, heaps.

In: their parts of a trial's record (`trials/instruments/`, `trials/link_service.py`), and the JVMs' class histograms.
Out: metrics, what grew on the heaps, and a problem where an instrument failed or disturbed the trial.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from powerband.base.units import format_duration
from powerband.model.results import HeapGrowth, Problem, TypeGrowth
from powerband.readings.evidence import Evidence, Source

LATE_SHARE = 0.2  # a link is noted as late above this share of its delay, or of 1 ms where the delay is shorter
SHORT_DELAY_NS = 1_000_000  # a share of shorter delays would be no more than a machine's usual wake-up
TYPES_KEPT = 20  # what leaks is among the types that grew most
# `   1:         58632        5230912  [B (java.base@17.0.15)`
_ROW = re.compile(r"^\s*\d+:\s+(\d+)\s+(\d+)\s+(\S+)", re.MULTILINE)
# The address of a class that was made while the program ran; it says nothing.
_ADDRESS = re.compile(r"[/+]0x[0-9a-f]+")
# Gaps that a collector left between live objects (JDK 19 and later; before, they are arrays of int).
_GAPS = "jdk.internal.vm.Filler"
_PRIMITIVES = dict(zip("BCDFIJSZ", ["byte", "char", "double", "float", "int", "long", "short", "boolean"], strict=True))

Histogram = tuple[Counter[str], Counter[str]]
"""Instances and bytes by type."""


def link_metrics(link: Mapping[str, Any]) -> dict[str, float]:
    """The metrics of the link between a subject's two processes, from its last words and so over its whole life; empty
    without them."""
    if "a_to_b" not in link:
        return {}
    ways = (link["a_to_b"], link["b_to_a"])
    metrics = {f"link_{name}": float(sum(way[name] for way in ways)) for name in ("dropped", "missed")}
    if link["late_ns_p99"] is not None:
        metrics["link_late_ns_p99"] = float(link["late_ns_p99"])
    return metrics


def link_problems(link: Mapping[str, Any]) -> Iterator[Problem]:
    """Yields notes on packets that a link in user space let go late or lost; the trial is valid for the link as it
    was."""
    metrics = link_metrics(link)
    late_ns = metrics.get("link_late_ns_p99", 0.0)
    if late_ns > LATE_SHARE * max(link.get("delay_ns", 0), SHORT_DELAY_NS):
        yield Problem(
            "link_late",
            f"the link in user space let packets go {format_duration(late_ns)} late at p99, with a delay of "
            f"{format_duration(link['delay_ns'])}: what goes over it takes so much longer; leave it a CPU "
            "(host.pinning), or use a kernel with netem",
            fatal=False,
        )
    if missed := metrics.get("link_missed"):
        yield Problem(
            "link_missed",
            f"the link in user space was too slow for {missed:,.0f} packets, which were lost before it read them: "
            "lower link_rate, leave it a CPU (host.pinning), or use a kernel with netem",
            fatal=False,
        )


def visitor_metrics(visits: Sequence[Mapping[str, Any]], start_ns: int, end_ns: int) -> dict[str, float]:
    """The times in ns of the visits that began from `start_ns` until `end_ns` (wall clock), and how many failed."""
    within = _within(visits, start_ns, end_ns)
    if not within:
        return {}
    took = [visit["took_ns"] for visit in within if visit["took_ns"] is not None]
    metrics = {"visits": float(len(within)), "visits_failed": float(len(within) - len(took))}
    return metrics | _quantiles("visit_time_ns", took)


def visitor_problems(
    visits: Sequence[Mapping[str, Any]], start_ns: int, end_ns: int, missing: str
) -> Iterator[Problem]:
    """Yields a note if visits that began from `start_ns` until `end_ns` (wall clock) failed, or there were none.
    `missing`: the reason why there was no browser at all; empty if there was one."""
    metrics = visitor_metrics(visits, start_ns, end_ns)
    if missing:
        yield Problem("no_visitor", missing, fatal=False)
    elif "visits" not in metrics:
        told = "none at all" if not visits else "none within the measured window"
        text = f"the browser reported no visit ({told}); see visitor.log of the trial"
        yield Problem("no_visit", text, fatal=False)
    elif failed := metrics["visits_failed"]:
        errors = [visit["error"] for visit in _within(visits, start_ns, end_ns) if visit["error"]]
        last = errors[-1] if errors else "no reason given"
        yield Problem(
            "visits_failed",
            f"{failed:,.0f} of the browser's {metrics['visits']:,.0f} visits failed: {last}",
            fatal=False,
        )


def _within(visits: Sequence[Mapping[str, Any]], start_ns: int, end_ns: int) -> list[Mapping[str, Any]]:
    return [visit for visit in visits if start_ns <= visit["at_ns"] < end_ns]


def acknowledged_metrics(rounds: Sequence[Mapping[str, Any]], expect: int) -> dict[str, float]:
    """How much of an acknowledged write a read does not see yet, and for how long, over the rounds that were read.
    Those in which no read saw all of it in time rank last: a figure that falls on them is left out."""
    read = [row for row in rounds if row["seen"] is not None]
    if not read:
        return {}
    missing = [max(0, expect - row["seen"]) for row in read]
    metrics = {
        "missing_at_acknowledgement_mean": sum(missing) / len(missing),
        "missing_at_acknowledgement_max": float(max(missing)),
        "acknowledge_ns_p50": _quantile([row["acknowledged_ns"] for row in read], 0.5),
    }
    delays = [math.inf if row["visible_ns"] is None else row["visible_ns"] for row in read]
    return metrics | _quantiles("visible_delay_ns", delays)


def acknowledged_problems(rounds: Sequence[Mapping[str, Any]], expect: int) -> Iterator[Problem]:
    """Yields a note on the rounds whose write or read failed, and one on those in which no read saw all `expect` in
    time."""
    failed = [row["failed"] for row in rounds if row["failed"]]
    never = sum(1 for row in rounds if not row["failed"] and row["visible_ns"] is None)
    if failed:
        text = f"{len(failed)} of {len(rounds)} writes were not acknowledged, or could not be read: {failed[-1]}"
        yield Problem("acknowledged_failed", text, fatal=False)
    if never:
        text = f"after {never} of {len(rounds)} writes a read never saw all {expect} in time (measure.acknowledged)"
        yield Problem("acknowledged_never_seen", text, fatal=False)


def _quantile(values: Sequence[float], q: float) -> float:
    """The smallest value that at least the share `q` (in (0, 1]) of the values does not exceed; at least one value
    (Hyndman & Fan 1996, type 1)."""
    return float(sorted(values)[math.ceil(q * len(values)) - 1])


def _quantiles(name: str, values: Sequence[float]) -> dict[str, float]:
    """The median, the 90th percentile and the maximum; an infinite one is left out, as not known."""
    found = {end: _quantile(values, q) for end, q in (("p50", 0.5), ("p90", 0.9), ("max", 1.0)) if values}
    return {f"{name}_{end}": value for end, value in found.items() if math.isfinite(value)}


def heap_growth(texts: Mapping[tuple[str, int], str]) -> HeapGrowth | None:
    """The growth of what lives on the heaps from before the window to after it, and the types that grew most, all JVMs
    added up. `texts`: class histograms by moment (`before`, `after`) and process. None without a JVM that has both."""
    read = {key: histogram for key, text in texts.items() if (histogram := parse_histogram(text))[0]}
    pids = [pid for when, pid in read if when == "before" and ("after", pid) in read]
    if not pids:
        return None
    instances, sizes = _added([read["before", pid] for pid in pids])
    instances_after, sizes_after = _added([read["after", pid] for pid in pids])
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
    """Instances and bytes by the names that a program has for types, those of one name added up; gaps between objects
    are left out."""
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
    """The name that a program has for a type: `byte[]` for `[B`, `java.lang.Object[][]` for `[[Ljava.lang.Object;`."""
    element = name.lstrip("[")
    brackets = "[]" * (len(name) - len(element))
    if brackets and element.startswith("L"):
        element = element[1:].removesuffix(";")
    elif brackets:
        element = _PRIMITIVES.get(element, element)
    return _ADDRESS.sub("", element) + brackets


def snapshot_problems(snapshots: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
    """Yields a note if a snapshot failed, or if a JVM has only one of the two."""
    failed = [snapshot for snapshot in snapshots if snapshot["failed"]]
    if failed:
        first = failed[0]
        whose = "" if first["pid"] is None else f" of process {first['pid']}"
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        text = f"no memory snapshot{whose} {first['when']} the measured window: {first['failed']}{more}"
        yield Problem("no_snapshot", text, fatal=False)
    elif changed := sorted(_taken(snapshots, "before") ^ _taken(snapshots, "after")):
        pids = ", ".join(map(str, changed))
        text = f"a JVM was not there both before and after the measured window (process {pids}): it is not compared"
        yield Problem("no_snapshot", text, fatal=False)


def _taken(snapshots: Sequence[Mapping[str, Any]], when: str) -> set[int]:
    return {row["pid"] for row in snapshots if row["when"] == when and row["pid"] is not None and not row["failed"]}


def _added(histograms: Sequence[Histogram]) -> Histogram:
    instances, sizes = zip(*histograms, strict=True)
    return sum(instances, Counter()), sum(sizes, Counter())


def _heap(evidence: Evidence) -> Iterator[tuple[str, float]]:
    if (growth := evidence.heap_growth) is not None:
        yield "jvm_live_bytes", float(growth.bytes_after)
        yield "jvm_live_growth_bytes", float(growth.bytes_after - growth.bytes_before)


def _wall_window(evidence: Evidence) -> tuple[int, int]:
    """The window by the browser's clock, which is the wall clock; every other is monotonic."""
    ahead_ns = evidence.record.wall_ns - evidence.record.monotonic_ns
    return evidence.fleet.start_ns + ahead_ns, evidence.fleet.end_ns + ahead_ns


def _visit_problems(evidence: Evidence, metrics: Mapping[str, float]) -> Iterator[Problem]:
    if evidence.experiment.measure.visitor:
        yield from visitor_problems(evidence.record.visits, *_wall_window(evidence), evidence.record.no_visitor)


def _acknowledged(evidence: Evidence) -> dict[str, float]:
    wanted = evidence.experiment.measure.acknowledged
    return {} if wanted is None else acknowledged_metrics(evidence.record.acknowledged, wanted.expect)


def _acknowledged_problems(evidence: Evidence, metrics: Mapping[str, float]) -> Iterator[Problem]:
    if (wanted := evidence.experiment.measure.acknowledged) is not None:
        yield from acknowledged_problems(evidence.record.acknowledged, wanted.expect)


LINK = Source("link", lambda e: link_metrics(e.record.link), lambda e, _: link_problems(e.record.link))
VISITS = Source("visits", lambda e: visitor_metrics(e.record.visits, *_wall_window(e)), _visit_problems)
ACKNOWLEDGED = Source("acknowledged", _acknowledged, _acknowledged_problems)
HEAP = Source("heap", _heap, lambda e, _: snapshot_problems(e.record.snapshots))
