"""How much of an acknowledged write a read does not see yet, and for how long.

In: the rounds of a trial's record (`trials/instruments/acknowledged_writes.py`). Out: metrics, and a problem where
rounds failed. Nothing is requested here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from powerband.analyze.stats.samples import quantile
from powerband.model.results import Problem


def acknowledged_metrics(rounds: Sequence[Mapping[str, Any]], expect: int) -> dict[str, float]:
    """Delays in ns, of rounds that came to an end; missing ones as a count, of rounds that were read at all."""
    read = [row for row in rounds if row["seen"] is not None]
    if not read:
        return {}
    missing = [max(0, expect - row["seen"]) for row in read]
    metrics = {
        "missing_at_acknowledgement_mean": sum(missing) / len(missing),
        "missing_at_acknowledgement_max": float(max(missing)),
        "acknowledge_ns_p50": float(quantile([row["acknowledged_ns"] for row in read], 0.5)),
    }
    if delays := [row["visible_ns"] for row in read if row["visible_ns"] is not None]:
        metrics |= {f"visible_delay_ns_p{round(100 * q)}": float(quantile(delays, q)) for q in (0.5, 0.9)}
        metrics["visible_delay_ns_max"] = float(max(delays))
    return metrics


def acknowledged_problems(rounds: Sequence[Mapping[str, Any]], expect: int) -> Iterator[Problem]:
    failed = [row["failed"] for row in rounds if row["failed"]]
    never = sum(1 for row in rounds if not row["failed"] and row["visible_ns"] is None)
    if failed:
        text = f"{len(failed)} of {len(rounds)} writes were not acknowledged, or could not be read: {failed[-1]}"
        yield Problem("acknowledged_failed", text, fatal=False)
    if never:
        text = f"after {never} of {len(rounds)} writes a read never saw all {expect} in time (measure.acknowledged)"
        yield Problem("acknowledged_never_seen", text, fatal=False)
