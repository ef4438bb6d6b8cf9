"""Checks URLs of servers, and which hosts may be loaded: this machine, and hosts that the user named. Pure, no
resolver.

Hosts are checked when an experiment is built and when `powerband load` begins, so that no load goes to a wrong server.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

LOCAL = "127.0.0.1"
HTTP = ("http", "https")
WEBSOCKET = ("ws", "wss")
LOADABLE = HTTP + WEBSOCKET
_PLACEHOLDER = re.compile(r"\{[A-Za-z_][\w.-]*\}")


def split_url(url: str, schemes: Collection[str] = HTTP) -> SplitResult:
    """The parts of `http://host:port/path`, with valid scheme, host and port.

    A placeholder may occur anywhere after the scheme; in the parts it becomes 1. Raises ValueError with a sentence."""
    filled = _PLACEHOLDER.sub("1", url)
    if not filled.isascii() or not filled.isprintable() or " " in filled:
        host = re.split(r"[/?#]", filled.partition("://")[2])[0]
        cure = "percent-encode it (a blank is %20)" if host.isascii() else "write the host's name in ASCII (xn--...)"
        raise ValueError(f"{url!r} holds a character that a URL cannot: {cure}")
    try:
        parts = urlsplit(filled)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"{url!r} is no URL: {str(error)[:1].lower()}{str(error)[1:]}") from None
    if filled.startswith(("unix:", "http+unix:")):
        raise ValueError(f"{url!r} is a Unix socket, which cannot be loaded: let the server listen on a TCP port")
    if not has_scheme(filled):
        raise ValueError(f"{url!r} is no URL: it has no scheme; write http://{url.lstrip('/')}")
    if parts.scheme in WEBSOCKET and parts.scheme not in schemes:
        raise ValueError(f"{url!r} is the URL of a WebSocket, and a page is wanted here: write {http_url(url)}")
    if parts.scheme not in schemes or not host:
        raise ValueError(f"{url!r} is no URL of a server: write http://127.0.0.1:8080/ or https://...")
    if port == 0:
        raise ValueError(f"{url!r} names port 0: a port is 1 to 65535, or {{port}} for one that powerband picks")
    if "@" in parts.netloc:
        raise ValueError(f"{url!r} holds a user name: leave it out and send an Authorization header instead")
    return parts


def has_scheme(target: str) -> bool:
    """True for a whole URL, False for a path, which may hold another URL in its query (`/login?next=http://x`)."""
    return re.match(r"[\w{}+.-]+://", target) is not None


def is_websocket(url: str) -> bool:
    """True if a load of this URL uses WebSockets."""
    return url.partition("://")[0].lower() in WEBSOCKET


def http_url(url: str) -> str:
    """The URL for HTTP: `http` for `ws`, `https` for `wss`; other URLs are unchanged."""
    scheme, separator, rest = url.partition("://")
    return {"ws": "http", "wss": "https"}.get(scheme.lower(), scheme) + separator + rest


def is_loopback(host: str) -> bool:
    """True if the host is this machine, by name or address, without a resolver."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def loadable_host(url: str, allow_hosts: Collection[str]) -> str:
    """The host of a URL that may be loaded. Raises ValueError with the reason and the remedy if it may not."""
    host = split_url(url, LOADABLE).hostname or ""
    if not is_loopback(host) and host not in allow_hosts:
        raise ValueError(
            f"{host} is not this machine, and load goes only where it is wanted: add --allow-host {host} "
            f"(in an experiment file: allow_hosts: [{host}]) if that server is yours to load"
        )
    return host


def request_target(url: str) -> str:
    """Path and query of a URL, which a load without a scenario requests; `/` if the text is no URL (`loadable_host`
    reports that)."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "/"
    path = parts.path if parts.path.startswith("/") else "/"
    return path + (f"?{parts.query}" if parts.query else "")
