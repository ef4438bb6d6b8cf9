"""Lists WebSocket users who could not join or were lost, and messages that did not end ok: how many of each kind, and
why.

In: a trial's evidence. Out: `ErrorKind`s. A status here is that of a handshake.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from powerband.loads.failed_requests import CAUSES, MAY_OVERFLOW, cause_of, error_kinds, explained, times_of
from powerband.model.results import ErrorKind
from powerband.readings.crowd import Crowd
from powerband.readings.evidence import Evidence
from powerband.readings.fleet import MergedFleet

_JOIN, _LOST = "join ", "lost "
# Causes by kind: why messages were not sent, why users could not join, and how those who had joined were lost.
_NEVER_SENT = "never sent"
_USER_CAUSES = {
    _NEVER_SENT: "due by load.pace or load.requests_per_user, but load.pipeline messages of the user had no answer, or "
    "it had no connection",
    "join connect_timeout": "the user had not joined within load.connect_timeout",
    "join handshake_refused": "the server refused the opening handshake, or that of the dialect",
    "join unfinished": "the user was still joining when the run ended",
    "lost reset": "the server reset the connection",
    "lost heartbeat": "nothing came from the server for as long as it had said (its pingTimeout)",
    "lost timeout": "the load generator closed the connection, since a message was not answered, or not read, within "
    "load.timeout",
}
# Why the load generator itself closes a connection, and what then befalls the messages on it.
_GIVEN_UP = ("heartbeat", "timeout", "violation")
_LOST_FIRST = "its user lost the connection first: the kinds of lost users say why"
_NOT_TAKEN = "the server did not answer it, or did not read it, within load.timeout"
_CLOSE_CODES = {
    "1000": "normal end",
    "1001": "going away",
    "1002": "protocol error",
    "1003": "unsupported data",
    "1007": "invalid text",
    "1008": "policy violation",
    "1009": "message too big",
    "1011": "internal error",
    "1012": "service restart",
    "1013": "try again later",
}


def user_errors(evidence: Evidence) -> tuple[ErrorKind, ...]:
    """Returns the errors of messages and users in the whole run, warm-up included; none if all went well."""
    fleet, crowd = evidence.fleet, evidence.crowd
    if crowd is None:
        return error_kinds(fleet, evidence.overflows(), evidence.log)
    full = evidence.overflows() or 0.0
    of = evidence.load.websocket
    # Where answers come in order, any message is one.
    unmatched = 0 if of is None or of.match == "order" else crowd.unmatched
    given_up = any(crowd.drops.get(reason) for reason in _GIVEN_UP)
    causes = {"closed_early": _LOST_FIRST} if given_up else {}
    if not evidence.load.all_answered:
        causes["timeout"] = _NOT_TAKEN
    return explained(
        [*_counts_of_messages(fleet), *_counts_of_users(fleet, crowd)],
        evidence.log,
        lambda kind, thrown: (
            _cause_of_user(kind, crowd.close_codes, full, unmatched)
            or cause_of(kind.removeprefix(_JOIN), full, thrown, causes.get(kind, ""))
        ),
    )


def _counts_of_messages(fleet: MergedFleet) -> Iterator[tuple[str, int]]:
    """Yields messages alone: statuses are those of handshakes, and are counted with the users."""
    yield from ((outcome, count) for outcome, count in fleet.total.outcomes.items() if outcome != "ok" and count)
    if fleet.total.dropped:
        yield _NEVER_SENT, fleet.total.dropped


def _counts_of_users(fleet: MergedFleet, crowd: Crowd) -> Iterator[tuple[str, int]]:
    statuses = fleet.rejected_statuses
    for outcome, count in crowd.joins_failed.items():
        left = count - sum(statuses.values()) if outcome == "handshake_refused" else count
        if left > 0:
            yield _JOIN + outcome, left
    yield from ((f"{_JOIN}status {status}", count) for status, count in statuses.items())
    yield from ((_LOST + reason, count) for reason, count in crowd.drops.items() if count)


def _cause_of_user(kind: str, close_codes: Mapping[str, int], overflows: float, unmatched: int) -> str:
    """Returns the cause of a user's error; empty for a message or a join that failed as any request may."""
    if kind == "timeout" and unmatched:
        return (
            f"no answer came within load.timeout, but {unmatched:,} messages that answer nothing: compare these with "
            "load.websocket.match"
        )
    if kind == f"{_LOST}closed":
        told = ", ".join(_close_code(code, count) for code, count in close_codes.items())
        return f"the server closed the connection{f' with {told}' if told else ''}"
    if kind.startswith(_LOST):
        return _USER_CAUSES.get(kind) or CAUSES.get(kind.removeprefix(_LOST), "")
    full = overflows >= 1 and kind.startswith(_JOIN) and kind.removeprefix(_JOIN) in MAY_OVERFLOW
    return "" if full else _USER_CAUSES.get(kind, "")


def _close_code(code: str, count: int) -> str:
    name = "no close code" if code == "none" else f"close code {code}"
    words = f" ({_CLOSE_CODES[code]})" if code in _CLOSE_CODES else ""
    return f"{name}{words} {times_of(count)}"
