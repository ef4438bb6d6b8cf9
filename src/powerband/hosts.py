"""URLs of servers, and which of them may be loaded: this machine, and hosts that a person named. Pure, no resolver.

Checked where an experiment is built and where `powerband load` begins, so that no load ever goes astray.
"""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """By name or address, without asking a resolver."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def loadable_host(url: str, allow_hosts: Collection[str]) -> str:
    """The host of a URL that may be loaded. Raises ValueError whose text says why it may not, and what to do."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"{url} is no URL: {error}") from None
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError(f"{url} is no URL of a server: write http://127.0.0.1:8080/ or https://...")
    if not is_loopback(host) and host not in allow_hosts:
        raise ValueError(
            f"{host} is not this machine, and load goes only where it is wanted: add --allow-host {host} "
            f"(in an experiment file: allow_hosts: [{host}]) if that server is yours to load"
        )
    return host


def request_target(url: str) -> str:
    """Path and query of a URL, which a load without a scenario requests; `/` where the text is no URL (which
    `loadable_host` says)."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "/"
    path = parts.path if parts.path.startswith("/") else "/"
    return path + (f"?{parts.query}" if parts.query else "")
