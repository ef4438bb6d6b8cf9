"""What a real browser saw under the load. In: the visits of a trial's record (`trials/instruments/visitor.py`). Out:
metrics of the measured window, and a problem where no visit was recorded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from powerband.analyze.stats.samples import quantile
from powerband.model.results import Problem


def visitor_metrics(visits: Sequence[Mapping[str, Any]], start_ns: int, end_ns: int) -> dict[str, float]:
    """Times in ns of visits that began from `start_ns` until `end_ns` (wall clock, as theirs), and how many failed."""
    within = [visit for visit in visits if start_ns <= visit["at_ns"] < end_ns]
    if not within:
        return {}
    took = [visit["took_ns"] for visit in within if visit["took_ns"] is not None]
    metrics = {"visits": float(len(within)), "visits_failed": float(len(within) - len(took))}
    if took:
        metrics |= {f"visit_time_ns_p{round(100 * q)}": float(quantile(took, q)) for q in (0.5, 0.9)}
        metrics["visit_time_ns_max"] = float(max(took))
    return metrics


def visitor_problems(
    visits: Sequence[Mapping[str, Any]], metrics: Mapping[str, float], missing: str
) -> Iterator[Problem]:
    """`missing`: why there was no browser at all; empty where there was one."""
    if missing:
        yield Problem("no_visitor", missing, fatal=False)
    elif "visits" not in metrics:
        told = "none at all" if not visits else "none within the measured window"
        text = f"the visitor's browser told of no visit ({told}); see visitor.log of the trial"
        yield Problem("no_visit", text, fatal=False)
    elif failed := metrics["visits_failed"]:
        last = next(visit["error"] for visit in reversed(visits) if visit["error"])
        yield Problem(
            "visits_failed",
            f"{failed:,.0f} of the visitor's {metrics['visits']:,.0f} visits failed: {last}",
            fatal=False,
        )
