"""Lists the requests that did not end ok, by kind, each with its cause as far as it is known: the outcome itself, the
status, full accept queues, and what the subject's log names.

In: a trial's fleet, accept queues, the text of its log. Out: `ErrorKind`s, the most frequent first. A cause interprets
evidence, and says so; without evidence a kind has no cause. Not here: WebSocket users (`websocket/failed_requests.py`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from powerband.model.results import ErrorKind
from powerband.readings.fleet import MergedFleet

_THROWN = re.compile(r"\b(?:[a-z]\w*\.)*[A-Z]\w*(?:Exception|Error)\b")
# Outcomes caused by the subject's own code: its log may say more.
BY_THE_SUBJECT = {"status_rejected", "reset", "closed_early", "bad_response", "check_failed", "violation"}
CAUSES = {
    "reset": "the server reset the connection before its answer was whole",
    "closed_early": "the server closed the connection before its answer was whole",
    "timeout": "no answer came within load.timeout",
    "bad_response": "the answer was no valid HTTP",
    "violation": "the server broke the WebSocket protocol, or that of the dialect",
    "check_failed": "the answer does not hold what the step's check wants",
    "connect_refused": "nobody listened",
    "connect_failed": "the connection could not be opened",
    "tls_failed": "the TLS handshake failed",
    "unfinished": "no answer by the end of the drain (usual under overload; otherwise raise load.drain)",
    "no_descriptors": "the load generator had no descriptor left: not the server's fault",
    "no_ports": "the load generator had no port left: not the server's fault",
    "dropped": "as many requests as load.max_in_flight allows were waiting already",
}
# Upon these outcomes the load generator closes a connection, with the requests behind that one.
_GIVEN_UP = ("timeout", "bad_response")
_BEHIND = (
    "the connection closed before its answer was whole: the server closed it, or the load generator did, since a "
    "request before it had no answer in time, or a wrong one"
)
# The effect of a full accept queue: the kernel completes the connection for the client only, and forgets it.
MAY_OVERFLOW = {
    **dict.fromkeys(("connect_timeout", "connect_refused", "connect_failed"), "its connection was not accepted"),
    "reset": "the server never knew of its connection",
    **dict.fromkeys(("timeout", "unfinished"), "the server may never have known of its connection"),
}
_STATUSES = {
    "408": "the server gave up waiting for the request",
    "429": "the server limits how many requests it takes",
    "500": "the server's own error",
    "502": "a dependency of the server answered wrongly",
    "503": "the server was overloaded, or gave up on its own work",
    "504": "a dependency of the server did not answer in time",
}


def error_kinds(fleet: MergedFleet, overflows: float | None, log: str, *, pipeline: int = 1) -> tuple[ErrorKind, ...]:
    """Returns the errors of the whole run, warm-up included; none if every request ended ok. `overflows`: connections
    that found an accept queue full meanwhile; None if nothing counted them. `pipeline`: the most requests in flight on
    one connection."""
    behind = pipeline > 1 and any(fleet.total.outcomes.get(outcome) for outcome in _GIVEN_UP)
    causes = {"closed_early": _BEHIND} if behind else {}
    return explained(
        _counts(fleet), log, lambda kind, thrown: cause_of(kind, overflows or 0.0, thrown, causes.get(kind, ""))
    )


def explained(counts: Iterable[tuple[str, int]], log: str, cause: Callable[[str, str], str]) -> tuple[ErrorKind, ...]:
    """Returns the kinds, the most frequent first. `cause` is called with a kind, and with the exception that the log
    names most often."""
    known = dict(counts)
    if not known:
        return ()
    thrown = _thrown(log)
    rows = sorted(known.items(), key=lambda row: (-row[1], row[0]))
    return tuple(ErrorKind(kind, count, cause(kind, thrown)) for kind, count in rows)


def _counts(fleet: MergedFleet) -> Iterator[tuple[str, int]]:
    statuses = fleet.rejected_statuses
    for outcome, count in fleet.total.outcomes.items():
        if outcome == "status_rejected" and statuses:
            yield from ((f"status {status}", number) for status, number in statuses.items())
        elif outcome != "ok" and count:
            yield outcome, count
    if fleet.total.dropped:
        yield "dropped", fleet.total.dropped


def cause_of(kind: str, overflows: float, thrown: str, known: str = "") -> str:
    """Returns the cause of an outcome or status; empty if it is unknown. `known`: the cause, in place of the usual one
    of such an outcome."""
    if kind in MAY_OVERFLOW and overflows >= 1:
        return f"{MAY_OVERFLOW[kind]} ({overflows:,.0f} connections found the accept queue full): lengthen it"
    if kind == "connect_timeout":
        return "the connection was not accepted within load.connect_timeout"
    status = kind.removeprefix("status ") if kind.startswith("status ") else ""
    cause = known or (_STATUSES.get(status, "the server refused it") if status else CAUSES.get(kind, ""))
    by_the_subject = status >= "500" if status else kind in BY_THE_SUBJECT
    return "; ".join(part for part in (cause, thrown if by_the_subject else "") if part)


def _thrown(log: str) -> str:
    """Returns the exception that the log names most often, in words; empty if it names none."""
    named = Counter(match[0] for match in _THROWN.finditer(log))
    if not named:
        return ""
    name, count = named.most_common(1)[0]
    return f"its log names {name} {times_of(count)}"


def times_of(count: int) -> str:
    """Returns `once`, or `1,234 times`."""
    return "once" if count == 1 else f"{count:,} times"
