"""Converts an HTTP Request with its defaults and headers to the bytes that JMeter 5.6 with HttpClient 4 sends.

Rules taken from JMeter: the nearest defaults fill the fields that a request leaves empty, and their parameters are
added. Of two headers with one name, that of the nearer manager counts. Parameters go into the query for GET, DELETE and
OPTIONS, and into the body for all methods that have one. A body without a Content-Type of its own gets HttpClient's.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote, quote_plus, unquote, unquote_plus, urlsplit

from powerband.jmx.encodings import codec_named
from powerband.jmx.plan_findings import Findings, whole
from powerband.jmx.tree import Element
from powerband.jmx.values import Unresolved, Values

Headers = tuple[tuple[str, str], ...]

_IN_QUERY = ("GET", "DELETE", "OPTIONS")
_WITH_BODY = ("POST", "PUT", "PATCH", "DELETE")  # and GET, if its parameters have no names
_METHOD = re.compile(r"[A-Z]+")
_PATH = re.compile(r"(?:[A-Za-z0-9_.!~'()*,;:$&+=@/-]|%[0-9A-Fa-f]{2})*")
_QUERY = re.compile(r"(?:[A-Za-z0-9_.!~'()*,;:$&+=@/?\[\]-]|%[0-9A-Fa-f]{2})*")
_PATH_SAFE = "!~'()*;:@&=+$,"  # beside letters, digits and _.-: characters that HttpClient does not escape
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PORTS = {"http": 80, "https": 443}
_PREFIX = "HTTPSampler."
LINE_MAX = 1 << 16  # characters of a request's path and query: arbitrary, far above what servers take (8 KiB)

# Properties that do not change the request, or only together with a refused one.
_HARMLESS = {
    "HTTPSampler.concurrentDwn", "HTTPSampler.concurrentPool", "HTTPSampler.embedded_url_re",
    "HTTPSampler.embedded_url_exclude_re", "HTTPSampler.BROWSER_COMPATIBLE_MULTIPART", "HTTPSampler.ipSourceType",
    "HTTPSampler.monitor", "HTTPSampler.implementation", "HTTPSampler.mimetype",
    "HTTPSampler.FILE_FIELD", "HTTPSampler.URL", "HTTPSampler.proxyScheme", "HTTPSampler.proxyPort",
    "HTTPSampler.proxyUser",
    "HTTPSampler.proxyPass",
}  # fmt: skip
_READ = {
    "HTTPsampler.Arguments", "HTTPsampler.Files", "HTTPSampler.domain", "HTTPSampler.port", "HTTPSampler.protocol",
    "HTTPSampler.contentEncoding", "HTTPSampler.path", "HTTPSampler.method", "HTTPSampler.follow_redirects",
    "HTTPSampler.auto_redirects", "HTTPSampler.use_keepalive", "HTTPSampler.DO_MULTIPART_POST",
    "HTTPSampler.connect_timeout", "HTTPSampler.response_timeout", "HTTPSampler.postBodyRaw",
}  # fmt: skip
# Properties that must be off or empty: the reason, and the remedy.
_REFUSED = {
    "HTTPSampler.image_parser": (
        "it also downloads what the page embeds, and a step is one request",
        "switch Retrieve All Embedded Resources off, or add HTTP Requests for what matters",
    ),
    "HTTPSampler.ipSource": (
        "it chooses the address that it sends from",
        "empty Source address: powerband spreads many users over addresses by itself",
    ),
    "HTTPSampler.proxyHost": ("it goes through a proxy", "empty the proxy: the server itself is measured"),
    "HTTPSampler.md5": (
        "it keeps only a checksum of the answer, which its assertions then test",
        "switch Save response as MD5 hash off",
    ),
    "HTTPSampler.FILE_NAME": ("it uploads a file", "write the body as text (Body Data)"),
}


@dataclass(frozen=True)
class RequestTarget:
    """The server that a request goes to. `scheme`: `http` or `https`. `host`: in lower case. `port`: that of the scheme
    if the plan names none."""

    scheme: str
    host: str
    port: int

    @property
    def authority(self) -> str:
        """The host, with its port unless that is the scheme's own: what the Host header holds."""
        return self.host if _PORTS[self.scheme] == self.port else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The URL of the server, without a path."""
        return f"{self.scheme}://{self.authority}"


@dataclass(frozen=True)
class Request:
    """A request as JMeter sends it to `target`. `method`, `path` (with its query), `headers` and `body` (None: it has
    none). `keep_alive`: the connection is used again. `follows`: JMeter would follow a redirect. `timeout_ms`: until
    the answer comes, `connect_timeout_ms`: until the connection stands; None: JMeter waits without end."""

    target: RequestTarget
    method: str
    path: str
    headers: Headers
    body: str | None
    keep_alive: bool
    follows: bool
    timeout_ms: int | None
    connect_timeout_ms: int | None

    @property
    def characters(self) -> int:
        """The length of its path, headers and body."""
        headers = sum(len(name) + len(value) for name, value in self.headers)
        return len(self.path) + len(self.body or "") + headers


@dataclass(frozen=True)
class _Argument:
    name: str
    value: str
    encodes: bool
    equals: str


@dataclass(frozen=True)
class _RequestFields:
    """A request with its defaults: each property is taken from the first element that has it."""

    element: Element
    defaults: Sequence[Element]
    values: Values
    findings: Findings

    def text(self, name: str, default: str = "") -> str:
        """The property with variables filled in. Raises Unresolved."""
        for element in (self.element, *self.defaults):
            found = element.find(name)
            if found is not None:
                text = self.values.resolve(found.text)
                return text if name == "HTTPSampler.path" else text.strip(" \t\r\n")
        return default

    def flag(self, name: str) -> bool:
        return self.text(name, "false").lower() == "true"

    def milliseconds(self, name: str) -> int | None:
        text = self.text(name)
        try:
            number = whole(text or "0")
        except ValueError:
            raise Unresolved(f"{name.removeprefix(_PREFIX)} is {text!r}", "write whole milliseconds") from None
        return number if number > 0 else None


def request_of(
    element: Element, defaults: Sequence[Element], managers: Sequence[Element], values: Values, findings: Findings
) -> Request | None:
    """The request; None, with a refusal, if it cannot be converted. `defaults` and `managers` (of headers) are those of
    its branch, the nearest first."""
    fields = _RequestFields(element, defaults, values, findings)
    try:
        _refuse_unknown(fields)
        return _request(fields, managers)
    except Unresolved as error:
        findings.refuse(element, error.why, error.instead)
        return None


def _refuse_unknown(fields: _RequestFields) -> None:
    """Refuses unknown properties that could change the request. Raises Unresolved."""
    for element in (fields.element, *fields.defaults):
        for each in element.properties:
            if each.name in _READ or each.name in _HARMLESS or not each.name.startswith(_PREFIX):
                continue
            if each.text.strip().lower() in ("", "false", "0"):
                continue
            if fields.element.find(each.name) is not None and element is not fields.element:
                continue  # the request overrides it
            why, instead = _REFUSED.get(
                each.name, (f"its property {each.name} is {each.text!r}, which is not known", "empty it in JMeter")
            )
            raise Unresolved(why, instead)
        if any(item.items for files in element.properties if files.name == "HTTPsampler.Files" for item in files.items):
            raise Unresolved("it uploads files", "write the body as text (Body Data)")
    if fields.flag("HTTPSampler.DO_MULTIPART_POST"):
        raise Unresolved("it sends multipart/form-data, whose boundary is another each time", "switch multipart off")


def _request(fields: _RequestFields, managers: Sequence[Element]) -> Request:
    method = fields.text("HTTPSampler.method", "GET")
    if _METHOD.fullmatch(method) is None or method == "CONNECT":
        raise Unresolved(f"its method is {method!r}", "choose a method of HTTP in capital letters")
    encoding = fields.text("HTTPSampler.contentEncoding")
    try:
        charset = codec_named(encoding or "utf-8")
    except LookupError:
        raise Unresolved(f"its content encoding {encoding!r} is not known", "set UTF-8") from None
    arguments = _arguments(fields)
    target, path = _address(fields, _query(arguments, charset) if method in _IN_QUERY else "")
    body, content_type = _body(fields, method, arguments, charset)
    headers = _headers(fields, managers, target)
    if content_type is not None and all(name.lower() != "content-type" for name, _ in headers):
        headers = (*headers, ("Content-Type", content_type))
    return Request(
        target=target,
        method=method,
        path=path,
        headers=headers,
        body=body,
        keep_alive=fields.flag("HTTPSampler.use_keepalive"),
        follows=fields.flag("HTTPSampler.follow_redirects") or fields.flag("HTTPSampler.auto_redirects"),
        timeout_ms=fields.milliseconds("HTTPSampler.response_timeout"),
        connect_timeout_ms=fields.milliseconds("HTTPSampler.connect_timeout"),
    )


def _shown(charset: str) -> str:
    """The name of an encoding, as Java writes it."""
    return {"utf-8": "UTF-8", "iso8859-1": "ISO-8859-1", "ascii": "US-ASCII"}.get(charset, charset.upper())


def _arguments(fields: _RequestFields) -> list[_Argument]:
    found = []
    for element in (fields.element, *fields.defaults):
        listed = element.find("HTTPsampler.Arguments")
        collection = None if listed is None else listed.find("Arguments.arguments")
        for item in () if collection is None else collection.items:
            if item.text_of("Argument.enabled", "true") != "false":
                argument = _Argument(
                    name=fields.values.resolve(item.text_of("Argument.name")),
                    value=fields.values.resolve(item.text_of("Argument.value")),
                    encodes=item.text_of("HTTPArgument.always_encode", "false").lower() == "true",
                    equals=item.text_of("Argument.metadata"),
                )
                found.append(argument)
    return found


def _query(arguments: Sequence[_Argument], charset: str) -> str:
    """The query string. Parameters without a name are omitted, as in JMeter."""
    parts = []
    for argument in arguments:
        name = _encoded(argument.name, "utf-8") if argument.encodes else argument.name
        if name:
            value = _encoded(argument.value, charset) if argument.encodes else argument.value
            parts.append(f"{name}{argument.equals}{value}")
    return "&".join(parts)


def _encoded(text: str, charset: str) -> str:
    """Encodes like Java's URLEncoder: letters, digits and `.-*_` stay, a space becomes `+`."""
    return quote_plus(_bytes(text, charset), safe="*").replace("~", "%7E")


def _bytes(text: str, charset: str) -> bytes:
    try:
        return text.encode(charset)
    except UnicodeEncodeError:
        raise Unresolved(f"{text!r} cannot be written in its content encoding {charset}", "set UTF-8") from None


def _address(fields: _RequestFields, query: str) -> tuple[RequestTarget, str]:
    """The server, and the path with its query as in the request line."""
    path = fields.text("HTTPSampler.path").replace(" ", "%20")
    if path.startswith(("http://", "https://")):
        return _whole_address(path)
    scheme = fields.text("HTTPSampler.protocol").lower() or "http"
    host = fields.text("HTTPSampler.domain")
    target = _target(scheme, host, fields.text("HTTPSampler.port"))
    if not path.startswith("/"):
        path = f"/{path}"
    if query:
        path += ("&" if "?" in path else "?") + query
    return target, _line(path)


def _whole_address(url: str) -> tuple[RequestTarget, str]:
    """The server and path if the path is a whole URL; parameters are not added to it, as in JMeter."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise Unresolved(
            f"its path {url!r} is no URL: {error}", "write the path, and the server apart from it"
        ) from None
    if "@" in parts.netloc:
        raise Unresolved("its path is a URL with a user in it", "write an Authorization header instead")
    target = _target(parts.scheme, parts.hostname or "", "" if port is None else str(port))
    return target, _line((parts.path or "/") + (f"?{parts.query}" if parts.query else ""))


def _target(scheme: str, host: str, port: str) -> RequestTarget:
    if scheme not in _PORTS:
        raise Unresolved(f"its protocol is {scheme!r}", "only http and https are sent")
    if not host or not re.fullmatch(r"[A-Za-z0-9._:\[\]-]+", host):
        raise Unresolved(
            f"its server name is {host!r}" if host else "it names no server",
            "write the server's name or address (HTTP Request Defaults can do it for all)",
        )
    try:
        number = whole(port or "0")
    except ValueError:
        number = -1
    if not 0 <= number < 2**16:
        raise Unresolved(f"its port is {port!r}", "write a port number")
    return RequestTarget(scheme, host.lower(), number or _PORTS[scheme])


def _line(target: str) -> str:
    """The request target as HttpClient writes it: without a fragment, characters beyond ASCII as escapes of UTF-8. If
    the path has empty parts, they are dropped, and all its escapes are written anew."""
    if len(target) > LINE_MAX:
        raise Unresolved(f"its address has {len(target):,} characters", f"send no more than {LINE_MAX:,}, or a body")
    beyond = "".join(character for character in target if not character.isascii())
    if not beyond.isprintable() or not unicodedata.is_normalized("NFC", target):
        raise _no_url(target)
    path, mark, query = re.sub(r"[^\x00-\x7f]+", lambda text: quote(text[0]), target).partition("#")[0].partition("?")
    if not (_PATH.fullmatch(path) and _QUERY.fullmatch(query)):
        raise _no_url(target)
    parts = path.split("/")[1:]
    if any(part in (".", "..") for part in parts):
        raise Unresolved(f"its path {path!r} goes up or stays in place", "write the path without . and ..")
    if "" in parts[:-1]:
        kept = [part for part in parts[:-1] if part] + parts[-1:]
        path = "/" + "/".join(quote(unquote(part, "utf-8", "replace"), safe=_PATH_SAFE) for part in kept)
    return f"{path}{mark}{query}"


def _no_url(target: str) -> Unresolved:
    return Unresolved(
        f"its address {target!r} holds a character that a URL cannot, so that JMeter sends nothing",
        "write it percent-encoded, or give it as a parameter with URL Encode? ticked",
    )


def _body(
    fields: _RequestFields, method: str, arguments: Sequence[_Argument], charset: str
) -> tuple[str | None, str | None]:
    """The body, and the Content-Type that HttpClient gives it; None: the request has none."""
    raw = fields.flag("HTTPSampler.postBodyRaw") or (
        bool(arguments) and all(argument.name == "" for argument in arguments)
    )
    if raw and any(argument.name for argument in arguments):
        raise Unresolved(
            "it has a body of its own, and parameters from its HTTP Request Defaults, which JMeter would write into it",
            "take the parameters out of the defaults",
        )
    if method not in _WITH_BODY and not (method == "GET" and raw):
        return None, None
    if raw:
        body = "".join(_encoded(each.value, charset) if each.encodes else each.value for each in arguments)
        if charset != "utf-8" and not body.isascii():
            raise Unresolved(f"its body is written in {charset}, and an experiment file's in UTF-8", "set UTF-8")
        return body, f"text/plain; charset={_shown(charset)}"
    return _form(arguments, charset), f"application/x-www-form-urlencoded; charset={_shown(charset)}"


def _form(arguments: Sequence[_Argument], charset: str) -> str:
    pairs = []
    for argument in arguments:
        name, value = argument.name, argument.value
        if not name.strip():
            continue
        if not argument.encodes:
            name, value = _unescaped(name, charset), _unescaped(value, charset)
        pairs.append(f"{_encoded(name, charset)}={_encoded(value, charset)}")
    return "&".join(pairs)


def _unescaped(text: str, charset: str) -> str:
    """Decodes text that is already percent-encoded; it is encoded again later."""
    if _BAD_ESCAPE.search(text):
        raise Unresolved(
            f"its parameter {text!r} has a % that is no escape, so that JMeter sends nothing", "tick URL Encode? for it"
        )
    return unquote_plus(text, charset, "replace")


def _headers(fields: _RequestFields, managers: Sequence[Element], target: RequestTarget) -> Headers:
    merged: list[tuple[str, str]] = []
    for index, manager in enumerate(managers):
        known = {name.lower() for name, _ in merged}
        for name, value in _of_manager(manager, fields.values):
            if index == 0:
                merged.append((name, value))
            elif name.lower() not in known:
                known.add(name.lower())
                merged.append((name, value))
    return tuple(
        (name, _host_header(value, target) if name.lower() == "host" else value)
        for name, value in merged
        if name.lower() != "content-length"  # JMeter computes the length itself, and so does the load generator
    )


def _of_manager(manager: Element, values: Values) -> list[tuple[str, str]]:
    listed = manager.find("HeaderManager.headers")
    found = []
    for item in () if listed is None else listed.items:
        name = values.resolve(item.text_of("Header.name")).strip()
        value = values.resolve(item.text_of("Header.value"))
        if _HEADER_NAME.fullmatch(name) is None:
            raise Unresolved(
                f"{manager.name} has a header named {name!r}", "give it a name of letters, digits and hyphens"
            )
        if _HEADER_VALUE.fullmatch(value) is None:
            raise Unresolved(
                f"{manager.name} has a header {name} with a line end or a letter beyond ASCII",
                "write it percent-encoded",
            )
        if "{env:" in value:  # in an experiment it stands for a variable of whoever runs it
            raise Unresolved(
                f"{manager.name} has a header {name} with {{env: in it: it would send a variable of your environment",
                "write another value, and {env:NAME} into the experiment if you mean that",
            )
        if name.lower() == "transfer-encoding":
            raise Unresolved(f"{manager.name} has a header {name}, which the body decides", "take it out")
        found.append((name, value.strip(" \t")))
    return found


def _host_header(value: str, target: RequestTarget) -> str:
    """The Host header with the plan's port, as JMeter writes it."""
    host, colon, port = value.rpartition(":")
    if not (colon and port.isascii() and port.isdigit()):
        host, port = value, str(target.port)
    return host if int(port) == _PORTS[target.scheme] else f"{host}:{port}"
