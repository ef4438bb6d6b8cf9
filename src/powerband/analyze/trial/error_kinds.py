"""Requests that did not end ok, by kind, each with its cause as far as anything tells: the outcome itself, the status,
full accept queues, and what the subject's log names. Of a WebSocket load also users who could not join or were lost.

In: a trial's fleet and crowd, accept queues, the text of its log. Out: `ErrorKind`s, the most frequent first. A cause
is a reading of evidence and says so; without any, the kind stands alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from powerband.base.logs import out_of_memory
from powerband.loads.websocket.crowd import Crowd
from powerband.model.results import ErrorKind, Problem
from powerband.readings.fleet import MergedFleet

_THROWN = re.compile(r"\b(?:[a-z]\w*\.)*[A-Z]\w*(?:Exception|Error)\b")
# What the subject's own code does; its log may say more.
_BY_THE_SUBJECT = {"status_rejected", "reset", "closed_early", "bad_response", "check_failed", "violation"}
_CAUSES = {
    "reset": "the server reset the connection before its answer was whole",
    "closed_early": "the server closed the connection before its answer was whole",
    "timeout": "no answer came within load.timeout",
    "bad_response": "the answer was no valid HTTP",
    "violation": "the server broke the WebSocket protocol, or that of the dialect",
    "check_failed": "the answer does not hold what the step's check wants",
    "connect_refused": "nobody listened",
    "connect_failed": "the connection could not be opened",
    "tls_failed": "the TLS handshake failed",
    "unfinished": "still without an answer when the drain was over",
    "no_descriptors": "the load engine had no descriptor left: not the server's fault",
    "no_ports": "the load engine had no port left: not the server's fault",
    "dropped": "as many requests as load.max_in_flight allows were waiting already",
}
_JOIN, _LOST = "join ", "lost "
# What became of users: why they could not join, and how those who had joined were lost.
_NEVER_SENT = "never sent"
_OF_USERS = {
    _NEVER_SENT: "due by load.pace, but load.pipeline messages of the user had no answer, or it had no connection",
    "join connect_timeout": "the user had not joined within load.connect_timeout",
    "join handshake_refused": "the server refused the opening handshake, or that of the dialect",
    "join unfinished": "the user was still joining when the run ended",
    "lost reset": "the server reset the connection",
    "lost heartbeat": "nothing came from the server for as long as it had said (its pingTimeout)",
    "lost timeout": "the engine closed the connection, since a message was not answered within load.timeout",
}
_CLOSE_CODES = {
    "1000": "normal end",
    "1001": "going away",
    "1002": "protocol error",
    "1003": "data that it cannot take",
    "1007": "text that is none",
    "1008": "against its policy",
    "1009": "message too big",
    "1011": "its own error",
    "1012": "it starts again",
    "1013": "try again later",
}
# What a full accept queue does to a request: the kernel completes the connection for the client alone, and forgets it.
_MAY_OVERFLOW = {
    "connect_timeout": "its connection was not accepted",
    "connect_refused": "its connection was not accepted",
    "connect_failed": "its connection was not accepted",
    "reset": "the server never knew of its connection",
    "timeout": "the server may never have known of its connection",
    "unfinished": "the server may never have known of its connection",
}
_STATUSES = {
    "408": "the server gave up waiting for the request",
    "429": "the server limits how many requests it takes",
    "500": "the server's own error",
    "502": "whom the server asked did not answer rightly",
    "503": "the server was overloaded, or gave up on its own work",
    "504": "whom the server asked did not answer in time",
}


def error_kinds(
    fleet: MergedFleet, overflows: float | None, log: str, crowd: Crowd | None = None
) -> tuple[ErrorKind, ...]:
    """Over the whole run, warm-up included; empty where every request ended ok. `overflows`: how many connections found
    an accept queue full meanwhile; None: nobody counted. `crowd`: of a WebSocket load."""
    counts = dict(_counts(fleet) if crowd is None else [*_counts_of_messages(fleet), *_counts_of_users(fleet, crowd)])
    if not counts:
        return ()
    thrown = _thrown(log)
    codes = {} if crowd is None else crowd.close_codes
    return tuple(
        ErrorKind(kind, count, _cause_of_user(kind, codes, overflows or 0.0) or _cause(kind, overflows or 0.0, thrown))
        for kind, count in sorted(counts.items(), key=lambda row: (-row[1], row[0]))
    )


def memory_problem(log: str) -> Iterator[Problem]:
    """A JVM that ran out of memory and went on: threads of it are dead, and what it serves is not what it was."""
    if said := out_of_memory(log):
        message = f"the subject ran out of memory and went on ({said}): raise its heap, or lower what it holds"
        yield Problem("out_of_memory", message, fatal=False)


def _counts(fleet: MergedFleet) -> Iterator[tuple[str, int]]:
    statuses = fleet.rejected_statuses
    for outcome, count in fleet.total.outcomes.items():
        if outcome == "status_rejected" and statuses:
            yield from ((f"status {status}", number) for status, number in statuses.items())
        elif outcome != "ok" and count:
            yield outcome, count
    if fleet.total.dropped:
        yield "dropped", fleet.total.dropped


def _counts_of_messages(fleet: MergedFleet) -> Iterator[tuple[str, int]]:
    """A status is one of a handshake there."""
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


def _cause_of_user(kind: str, close_codes: Mapping[str, int], overflows: float) -> str:
    """Empty of a request, and of a join that failed as a request might."""
    if kind == _NEVER_SENT:
        return _OF_USERS[kind]
    if kind == f"{_LOST}closed":
        told = ", ".join(_close_code(code, count) for code, count in close_codes.items())
        return f"the server closed the connection{f' with {told}' if told else ''}"
    if kind.startswith(_LOST):
        reason = kind.removeprefix(_LOST)
        return _OF_USERS.get(kind) or _CAUSES.get(reason, "")
    if not kind.startswith(_JOIN):
        return ""
    outcome = kind.removeprefix(_JOIN)
    full = overflows >= 1 and outcome in _MAY_OVERFLOW
    return "" if full or outcome.startswith("status ") else _OF_USERS.get(kind, "")


def _close_code(code: str, count: int) -> str:
    name = "no close code" if code == "none" else f"close code {code}"
    words = f" ({_CLOSE_CODES[code]})" if code in _CLOSE_CODES else ""
    return f"{name}{words} {_times(count)}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _cause(kind: str, overflows: float, thrown: str) -> str:
    kind = kind.removeprefix(_JOIN)
    if kind in _MAY_OVERFLOW and overflows >= 1:
        return f"{_MAY_OVERFLOW[kind]} ({overflows:,.0f} connections found the accept queue full): lengthen it"
    if kind == "connect_timeout":
        return "the connection was not accepted within load.connect_timeout"
    status = kind.removeprefix("status ") if kind.startswith("status ") else ""
    cause = _STATUSES.get(status, "the server refused it") if status else _CAUSES.get(kind, "")
    by_the_subject = status >= "500" if status else kind in _BY_THE_SUBJECT
    return "; ".join(part for part in (cause, thrown if by_the_subject else "") if part)


def _thrown(log: str) -> str:
    """The exception that the log names most often, in words."""
    named = Counter(match[0] for match in _THROWN.finditer(log))
    if not named:
        return ""
    name, count = named.most_common(1)[0]
    return f"its log names {name} {_times(count)}"
