"""Checks every request before it is answered. In: an ASGI application. Out: the application behind these checks.

The page shows data of this machine, so another site in the same browser must not read it. The Host header must name
this machine; a name that an attacker's DNS points here does not (DNS rebinding). Requests from another origin are
refused. A server bound to more than loopback requires a token. Only GET and HEAD are allowed.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from powerband.base.hosts import is_loopback

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
REPORT_POLICY = (
    "sandbox allow-scripts allow-downloads; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Policy for a report, which brings its own scripts and may come from anywhere. It runs in an origin of its own, so it
can read nothing of this page and send nothing. Its own policy, if stricter, still applies."""

_HEADERS = {
    "content-security-policy": CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_LOOPBACK_NAMES = frozenset({"localhost"})


@dataclass(frozen=True)
class Access:
    """Access rules. `loopback`: the server is bound to a loopback address. `names`: host names of this server, besides
    addresses. `token`: None if no token is required, which happens only on loopback. `port`: that of the server."""

    loopback: bool
    names: frozenset[str] = frozenset()
    token: str | None = None
    port: int = 0

    @property
    def cookie(self) -> str:
        """Name of the token's cookie. It contains the port, since browsers keep cookies by host, not by port."""
        return f"powerband-{self.port}"


def access_for(host: str, port: int, token: str | None, machine: str) -> Access:
    """Access rules for a server bound to `host`. On loopback a token is optional; elsewhere one is generated if none is
    given. `machine`: the host name of this machine."""
    if is_loopback(host.lower()):
        return Access(True, _LOOPBACK_NAMES | {host.lower()}, token, port)
    names = _LOOPBACK_NAMES | {host.lower(), machine.lower()}
    return Access(False, frozenset(names), token or secrets.token_urlsafe(18), port)


class Guard:
    """Performs the checks before an application, and adds headers to its responses."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        answer = self._refusal(scope)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await (answer or self._app)(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        """The error response; None if the request is allowed."""
        headers = Headers(scope=scope)
        if scope["method"] not in ("GET", "HEAD"):
            return _refused("nothing can be changed here: only GET and HEAD are answered", 405, {"allow": "GET, HEAD"})
        if not self._is_here(headers.get("host", "")):
            return _refused(
                "this page is not served under that host name: open it by the address that powerband printed", 421
            )
        if _is_foreign(headers):
            return _refused("another site asked for this, which is not allowed", 403)
        return self._without_token(scope, headers)

    def _is_here(self, host: str) -> bool:
        """True if the Host header names this server. Addresses cannot be rebound; names must be in the list."""
        name = _host_name(host)
        if name is None:
            return False
        address = _address(name)
        if address is not None:
            return address.is_loopback if self._access.loopback else True
        return name.lower().rstrip(".") in self._access.names

    def _without_token(self, scope: Scope, headers: Headers) -> Response | None:
        wanted = self._access.token
        # Browsers send the cookies of every program on this host, and some of those are malformed.
        kept = cookie_parser(headers.get("cookie", "")).get(self._access.cookie, "")
        if wanted is None or _same(_bearer(headers), wanted) or _same(kept, wanted):
            return None
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if _same(dict(query).get("token", ""), wanted):
            # Remove the token from the address bar, the history and copied links.
            rest = urlencode([(name, value) for name, value in query if name != "token"])
            path = "/" + scope.get("raw_path", scope["path"].encode()).decode("latin-1").lstrip("/")
            answer = RedirectResponse(path + (f"?{rest}" if rest else ""), 303)
            # Not `strict`: after a link on another site (a chat), browsers would follow this redirect without it.
            answer.set_cookie(self._access.cookie, wanted, httponly=True, samesite="lax", path="/")
            return answer
        return _refused(
            "a token is needed: open the address that powerband printed, with ?token=..., or send it as "
            "`Authorization: Bearer TOKEN`",
            401,
            {"www-authenticate": "Bearer"},
        )


def _is_foreign(headers: Headers) -> bool:
    """True if the request comes from a page of another origin. Following a link from elsewhere is allowed: the original
    page cannot read what the link opens."""
    origin = headers.get("origin")
    if origin is not None:
        try:
            asked = urlsplit(origin)
        except ValueError:
            return True
        return asked.scheme not in ("http", "https") or asked.netloc.lower() != headers.get("host", "").lower()
    site, mode = headers.get("sec-fetch-site", ""), headers.get("sec-fetch-mode", "")
    return site in ("cross-site", "same-site") and mode != "navigate"


def _host_name(host: str) -> str | None:
    """The host name without the port; None for an invalid Host header."""
    try:
        found = urlsplit(f"//{host}")
        name = found.hostname
        found.port  # noqa: B018 - raises for an invalid port
    except ValueError:
        return None
    plain = found.username is None and not found.path and not found.query and not found.fragment
    return name if plain else None


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return None


def _bearer(headers: Headers) -> str:
    kind, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def _same(given: str, wanted: str) -> bool:
    return secrets.compare_digest(given.encode(), wanted.encode())


def _refused(why: str, status: int, headers: Mapping[str, str] | None = None) -> Response:
    return PlainTextResponse(f"powerband: {why}\n", status, headers=dict(headers or {}))
