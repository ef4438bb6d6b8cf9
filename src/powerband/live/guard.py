"""Who may ask, before anything is answered: an ASGI application in, the same behind its checks out.

The page shows what is on this machine, so that another site in the same browser must not read it: the Host header must
name this machine (a name that an attacker's DNS points here is none: DNS rebinding), a request that another origin
makes is refused, and where the page is bound to more than loopback a token is asked for. Only GET and HEAD exist.
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
"""Of a report, which brings its scripts with it and may come from anywhere: in an origin of its own it reads nothing
of this page, and it can send nothing to anybody. What its own policy forbids besides stays forbidden."""

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
    """`names`: host names that mean this server, besides addresses. `token`: None where none is asked for, which is on
    loopback alone."""

    loopback: bool
    names: frozenset[str] = frozenset()
    token: str | None = None
    port: int = 0

    @property
    def cookie(self) -> str:
        """Browsers keep cookies by host, not by port."""
        return f"powerband-{self.port}"


def access_for(host: str, port: int, token: str | None, machine: str) -> Access:
    """For a server bound to `host`. On loopback no token is needed, but one may be asked for; elsewhere one is drawn
    where none is given. `machine`: the name by which this machine is known."""
    if is_loopback(host.lower()):
        return Access(True, _LOOPBACK_NAMES | {host.lower()}, token, port)
    names = _LOOPBACK_NAMES | {host.lower(), machine.lower()}
    return Access(False, frozenset(names), token or secrets.token_urlsafe(18), port)


class Guard:
    """The checks in front of an application, and the headers behind it."""

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
        """What to say instead of an answer; None: go on."""
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
        """An address cannot be rebound; a name must be one of ours."""
        name = _host_name(host)
        if name is None:
            return False
        address = _address(name)
        if address is not None:
            return address.is_loopback if self._access.loopback else True
        return name.lower().rstrip(".") in self._access.names

    def _without_token(self, scope: Scope, headers: Headers) -> Response | None:
        wanted = self._access.token
        if wanted is None or _same(_bearer(headers), wanted) or _same(self._token_kept(headers), wanted):
            return None
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if _same(dict(query).get("token", ""), wanted):
            # The address bar, and with it the history and what is copied from it, keeps no token.
            rest = urlencode([(name, value) for name, value in query if name != "token"])
            path = "/" + scope.get("raw_path", scope["path"].encode()).decode("latin-1").lstrip("/")
            answer = RedirectResponse(path + (f"?{rest}" if rest else ""), 303)
            answer.set_cookie(self._access.cookie, wanted, httponly=True, samesite="strict", path="/")
            return answer
        return _refused(
            "a token is needed: open the address that powerband printed, with ?token=..., or send it as "
            "`Authorization: Bearer TOKEN`",
            401,
            {"www-authenticate": "Bearer"},
        )

    def _token_kept(self, headers: Headers) -> str:
        """Browsers send the cookies of every program on this host, and some of those are no cookies."""
        return cookie_parser(headers.get("cookie", "")).get(self._access.cookie, "")


def _is_foreign(headers: Headers) -> bool:
    """Whether a page of another origin asks. A link that is followed from elsewhere is no such thing: what it opens
    cannot be read by the page that it came from."""
    origin = headers.get("origin")
    if origin is not None:
        asked = urlsplit(origin)
        return asked.scheme not in ("http", "https") or asked.netloc.lower() != headers.get("host", "").lower()
    site, mode = headers.get("sec-fetch-site", ""), headers.get("sec-fetch-mode", "")
    return site in ("cross-site", "same-site") and mode != "navigate"


def _host_name(host: str) -> str | None:
    """Without the port; None for what is no Host header."""
    try:
        found = urlsplit(f"//{host}")
        name = found.hostname
        found.port  # noqa: B018 - raises for what is no port
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
