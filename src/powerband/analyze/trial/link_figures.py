"""What the link between a subject's two processes did to a trial: from the record's `link` to metrics and problems.

The figures are of the link's whole life, from before the subject's launch to after its end: they are its last words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from powerband.base.units import format_duration
from powerband.model.results import Problem

LATE_SHARE = 0.2
"""A link that is later than this share of its delay, or of 1 ms where the delay is shorter, is told of."""
_SHORT_DELAY_NS = 1_000_000


def link_metrics(link: Mapping[str, Any]) -> dict[str, float]:
    """`link`: as in the record; empty: there was none, or it did not live to tell."""
    if "a_to_b" not in link:
        return {}
    ways = (link["a_to_b"], link["b_to_a"])
    metrics = {f"link_{name}": float(sum(way[name] for way in ways)) for name in ("dropped", "missed")}
    if link["late_ns_p99"] is not None:
        metrics["link_late_ns_p99"] = float(link["late_ns_p99"])
    return metrics


def link_problems(link: Mapping[str, Any]) -> Iterator[Problem]:
    """Notes only: who was to use this link used it as it was."""
    metrics = link_metrics(link)
    late_ns = metrics.get("link_late_ns_p99", 0.0)
    if late_ns > LATE_SHARE * max(link.get("delay_ns", 0), _SHORT_DELAY_NS):
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
