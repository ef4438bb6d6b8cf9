"""Checks that a load has measured anything, from the outcomes and summaries of its engines.

In: outcomes, `summary` events, what engines wrote to stderr. Out: nothing, or a TrialFailed that says what to look at.
How much was measured, and whether to believe it, is analysis.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from powerband.processes.failures import Code, TrialFailed
from powerband.wire.load_events import Summary

SILENT = {"timeout", "unfinished", "connect_timeout"}
RAN_OUT = {"no_ports": Code.PORT_LIMIT, "no_descriptors": Code.DESCRIPTOR_LIMIT}
"""The outcomes of requests for which this machine had no connection, with the failure if all requests ended so."""
ANSWERS = {"ok", "status_rejected", "check_failed", "bad_response"}
NOT_THERE_YET = {"502", "503", "504"}
"""The statuses of a server that still starts, or of a proxy before it (RFC 9110, 15.6.3 to 15.6.5)."""
_TLS_ERROR = "TLS: "  # begins the line of the load engine's stderr that says why a handshake failed (`tls.rs`)
# What to do about a TLS error, by a part of its text in rustls.
_TLS_CURES = {
    "CaUsedAsEndEntity": "the certificate is marked as that of a CA (CA:TRUE), and a server may not use it: make it "
    "with CA:FALSE, or accept any with --insecure (load.tls_insecure)",
    "not valid for name": "write that name in the url, or accept any with --insecure (load.tls_insecure)",
    "peer certificate": "trust who signed it with --ca-file (load.tls_ca_file), or accept any with --insecure "
    "(load.tls_insecure)",
    "corrupt message": "if the server speaks no TLS there, write http:// in the url",
    "NoApplicationProtocol": "the server does not speak HTTP/1.1 there, as one of HTTP/2 alone, which powerband does "
    "not load",
}
# What to do if every request ended so, of a load that is answered by HTTP. The path is not to blame then.
_NOT_HTTP = {
    "bad_response": "the answers are no valid HTTP/1.1: the server may speak another protocol there, as HTTP/2 alone, "
    "which powerband does not load; if it speaks TLS and the url begins with http://, write https://",
    "closed_early": "the server closed each connection before its answer was whole: its log may say why; if it speaks "
    "TLS there and the url begins with http://, write https://",
}


def check_answered(
    outcomes: Counter[str],
    statuses: Mapping[str, int],
    stderr_file: Path | None = None,
    said: str = "",
    lost: str = "",
) -> None:
    """Raises TrialFailed if no request ended ok: then there is nothing to measure. `statuses`: rejected requests by
    HTTP status, as far as they are known. `stderr_file`: what the engines of this machine wrote to stderr. `said`: why
    a request failed, if it is known; `lost`: how users lost their connections, as `lost_connections` has it."""
    if outcomes["ok"]:
        return
    ended = ", ".join(f"{count} {name}" for name, count in outcomes.most_common() if count) or "none ended"
    if set(outcomes) <= SILENT and not lost:
        raise TrialFailed(
            Code.NO_RESPONSE,
            f"the server never answered a request ({ended}): check load.scenario and subject.url (of WebSockets also "
            "load.websocket.match and unsolicited), or raise load.timeout and measure.warmup_max if it is that slow",
        )
    if (found := +outcomes) and found.keys() <= RAN_OUT.keys():
        worst = max(found, key=lambda outcome: found[outcome])
        raise TrialFailed(
            RAN_OUT[worst],
            f"no request was sent ({ended}): this machine ran out of {worst[3:]}, which is not the server's fault; "
            "raise the limit (ulimit -n, net.ipv4.ip_local_port_range), use load.keep_alive, or lower the load",
        )
    known = _handshakes(outcomes, stderr_file) or said or lost
    kinds = {name for name, count in outcomes.items() if count} - SILENT
    no_http = next((cure for name, cure in _NOT_HTTP.items() if name in kinds <= _NOT_HTTP.keys()), "")
    cure = known or no_http or "check the path, the checks and the server's log"
    code = Code.NO_VALID_RESPONSE
    otherwise = any(outcomes[name] for name in ANSWERS - {"status_rejected"})
    if statuses and set(statuses) <= NOT_THERE_YET and not (known or otherwise):
        code = Code.UNAVAILABLE
        cure = (
            "if it still starts, let the load wait for that with --ready-http PATH or --ready-log REGEX "
            "(subject.ready); if not, its log says more"
        )
    raise TrialFailed(code, f"not one request was answered as it should be ({ended}{_named(statuses)}): {cure}")


def _named(statuses: Collection[str]) -> str:
    return f"; status {', '.join(sorted(statuses))}" if statuses else ""


def _handshakes(ended: Counter[str], stderr_file: Path | None) -> str:
    return tls_failure(stderr_file) if stderr_file is not None and ended["tls_failed"] else ""


def tls_failure(stderr_file: Path) -> str:
    """Returns why TLS handshakes failed, and what to do: by the first error that an engine wrote to its stderr. Empty
    if none did."""
    lines = stderr_file.read_text(errors="replace").splitlines() if stderr_file.is_file() else []
    error = next((line.removeprefix(_TLS_ERROR) for line in lines if line.startswith(_TLS_ERROR)), "")
    cure = next((f"; {cure}" for part, cure in _TLS_CURES.items() if part in error), "")
    return f"the TLS handshake failed: {error}{cure}" if error else ""


def check_joined(summaries: Sequence[Summary], stderr_file: Path | None = None) -> None:
    """Raises TrialFailed if no user of a WebSocket load could join. `stderr_file`: as in `check_answered`."""
    joins = [summary["websocket"] for summary in summaries if summary.get("websocket")]
    if not joins or any(part["joined"] for part in joins):
        return
    failed: Counter[str] = sum((Counter(part["joins_failed"]) for part in joins), Counter())
    ended = ", ".join(f"{count} {name}" for name, count in failed.most_common() if count) or "none ended"
    cure = _handshakes(failed, stderr_file) or (
        "check the path of subject.url, load.websocket (headers, subprotocols, dialect) and the server's log, or raise "
        "load.connect_timeout if it is that slow"
    )
    statuses = {status for summary in summaries for status in summary.get("rejected_statuses", ())}
    raise TrialFailed(Code.NOT_JOINED, f"not one user could join ({ended}{_named(statuses)}): {cure}")


def lost_connections(summaries: Sequence[Summary]) -> str:
    """Returns how users who had joined a WebSocket load lost their connections, and what to check; empty if none did,
    or only since the server was silent."""
    joins = [summary["websocket"] for summary in summaries if summary.get("websocket")]
    drops: Counter[str] = sum((Counter(part["drops"]) for part in joins), Counter())
    codes: Counter[str] = sum((Counter(part["close_codes"]) for part in joins), Counter())
    told = [f"{count:,} {reason}" for reason, count in drops.most_common() if reason != "timeout"]
    if not told:
        return ""
    if codes:
        told.append(f"close codes {', '.join(f'{code} ({count:,})' for code, count in codes.most_common())}")
    return (
        f"users who had joined lost their connections ({', '.join(told)}): check load.websocket (headers, "
        "subprotocols, dialect), the messages and the server's log"
    )


def check_measured(summaries: Sequence[Summary]) -> None:
    """Raises TrialFailed if all users had left before the measured window began."""
    if all(summary["ended_by"] == "work" and not summary["cohort"]["scheduled"] for summary in summaries):
        raise TrialFailed(
            Code.ENDED_IN_WARMUP,
            "the load was over before the measured window began: shorten measure.warmup, or raise "
            "load.requests_per_user",
        )
