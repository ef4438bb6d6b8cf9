"""The bench's own few requests to a subject: knobs that are set once it is ready, checks after the load.

One connection, one request after another; no load and no timing finer than these need (that is the engine's work).
"""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from urllib.parse import urlsplit

from powerband.base.hosts import http_url
from powerband.model.load import Checks, Step


class RequestFailedError(Exception):
    """A request that was not answered as it should be; the message says which, and how it ended."""


@dataclass(frozen=True)
class HttpAnswer:
    """`sent_ns`, `answered_ns`: monotonic, before the request was sent and after the whole body had come."""

    status: int
    body: bytes
    sent_ns: int
    answered_ns: int


class Client:
    """A context manager over one connection to the host of `url`; a connection that has ended is opened again."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self._connection = connection_to(url, timeout_s)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._connection.close()

    def send(self, step: Step) -> HttpAnswer:
        """Raises RequestFailedError where it is not answered, or not as `step.checks` wants."""
        headers: Mapping[str, str] = dict(step.headers)
        body = None if step.body is None else step.body.encode()
        sent_ns = time.monotonic_ns()
        try:
            self._connection.request(step.method, step.path, body, headers)
            response = self._connection.getresponse()
            answer = HttpAnswer(response.status, response.read(), sent_ns, time.monotonic_ns())
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._connection.close()
            raise RequestFailedError(f"{step.name}: {type(error).__name__}: {error}") from error
        if reason := refused(step.checks, answer):
            raise RequestFailedError(f"{step.name}: {reason}")
        return answer


def connection_to(url: str, timeout_s: float) -> http.client.HTTPConnection:
    """To the host of a url, not opened yet, over HTTP even if the url is a WebSocket's; certificates are not verified,
    as the engine does not."""
    parts = urlsplit(http_url(url))
    host, port = parts.hostname or "127.0.0.1", parts.port
    if parts.scheme == "https":
        unverified = ssl._create_unverified_context()
        return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=unverified)
    return http.client.HTTPConnection(host, port, timeout=timeout_s)


def refused(checks: Checks, answer: HttpAnswer) -> str:
    """Why an answer is not as it should be; empty where it is."""
    if answer.status not in checks.status if checks.status else not 200 <= answer.status < 400:
        return f"status {answer.status}"
    missing = [text for text in checks.body_contains if text.encode() not in answer.body]
    return f"the body does not contain {missing[0]!r}" if missing else ""
