"""Checks that a load has measured anything, from the outcomes and summaries of its engines.

In: outcomes, `summary` events. Out: nothing, or a TrialFailed that says what to look at. How much was measured, and
whether to believe it, is analysis.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from powerband.processes.failures import Code, TrialFailed
from powerband.wire.load_events import Summary

SILENT = {"timeout", "unfinished", "connect_timeout"}
ANSWERS = {"ok", "status_rejected", "check_failed", "bad_response"}


def check_answered(outcomes: Counter[str], statuses: Mapping[str, int]) -> None:
    """Raises TrialFailed if no request ended ok: then there is nothing to measure. `statuses`: rejected requests by
    HTTP status, as far as they are known."""
    if outcomes["ok"]:
        return
    ended = ", ".join(f"{count} {name}" for name, count in outcomes.most_common() if count) or "none ended"
    if set(outcomes) <= SILENT:
        raise TrialFailed(
            Code.NO_RESPONSE,
            f"the server never answered a request ({ended}): check load.scenario and subject.url, or raise "
            "load.timeout and measure.warmup_max if it is that slow",
        )
    told = f"; status {', '.join(sorted(statuses))}" if statuses else ""
    raise TrialFailed(
        Code.NO_VALID_RESPONSE,
        f"not one request was answered as it should be ({ended}{told}): check the path, the checks and the server's "
        "log",
    )


def check_joined(summaries: Sequence[Summary]) -> None:
    """Raises TrialFailed if no user of a WebSocket load could join."""
    joins = [summary["websocket"] for summary in summaries if summary.get("websocket")]
    if not joins or any(part["joined"] for part in joins):
        return
    failed: Counter[str] = sum((Counter(part["joins_failed"]) for part in joins), Counter())
    ended = ", ".join(f"{count} {name}" for name, count in failed.most_common() if count) or "none ended"
    raise TrialFailed(
        Code.NOT_JOINED,
        f"not one user could join ({ended}): check the path of subject.url, load.websocket (headers, subprotocols, "
        "dialect) and the server's log, or raise load.connect_timeout if it is that slow",
    )


def check_measured(summaries: Sequence[Summary]) -> None:
    """Raises TrialFailed if all users had left before the measured window began."""
    if all(summary["ended_by"] == "work" and not summary["cohort"]["scheduled"] for summary in summaries):
        raise TrialFailed(
            Code.ENDED_IN_WARMUP,
            "the load was over before the measured window began: shorten measure.warmup, or raise "
            "load.requests_per_user",
        )
