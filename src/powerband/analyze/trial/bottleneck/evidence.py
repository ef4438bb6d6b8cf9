"""Figures as the evidence of a bottleneck words them. No judgement here."""

from __future__ import annotations

from collections.abc import Sequence

from powerband.base.units import significant
from powerband.model.results import Bottleneck, BottleneckName

KINDS = {
    "lock": "for a lock or a condition",
    "sleep": "in a sleep",
    "socket": "on a socket",
    "poll": "for events",
    "disk": "for the disk",
    "memory": "for memory",
    "other": "on something else",
}


def verdict(name: BottleneckName, evidence: Sequence[str], advice: str) -> Bottleneck:
    """At most three clauses: more prove no more."""
    return Bottleneck(name, tuple(evidence[:3]), advice)


def count(value: float) -> str:
    """Of threads, requests, connections, as a mean over time: whole where it is nearly whole or large."""
    whole = round(value)
    return f"{whole:,}" if value >= 10 or (whole and abs(value - whole) < 0.15) else f"{value:.1f}"


def share(value: float) -> str:
    return f"{100 * value:.0f} %"


def cores(value: float) -> str:
    text = significant(value)
    return f"{text} core" if text == "1" else f"{text} cores"


def per_second(value: float) -> str:
    return f"{significant(value)}/s"
