"""Makes the bench's own few requests to a subject: is it ready, knobs that are set once it is, checks after the load.

There is one connection, with one request after another; loads and exact timing are the engine's work. A subject may
answer slowly, bit by bit or without end: a request ends when its time is over, however it is answered, and too long a
body is refused. While a request waits, the pump goes on and the user may stop the trial.
"""

from __future__ import annotations

import errno
import http.client
import io
import json
import os
import selectors
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from powerband.base.hosts import http_url
from powerband.base.logs import printable
from powerband.model.load import Checks, Step
from powerband.model.templates import headers_sent
from powerband.processes.engine_process import Pump
from powerband.processes.ports import meets_itself

_ELSEWHERE = (301, 307, 308)  # the same request is to be made at another address, so it has done nothing
BODY_BYTES_MAX = 64 << 20
"""The longest body of an answer. A read of `measure.acknowledged` may list a whole table."""


class RequestFailedError(Exception):
    """A request was not answered as it should be; the message says which request, and how it ended."""


@dataclass(frozen=True)
class HttpAnswer:
    """An answer. `status`: that of HTTP. `body`: whole, without its transfer encoding. `sent_ns`, `answered_ns`: by the
    monotonic clock, before the request was sent and after the whole body had come."""

    status: int
    body: bytes
    sent_ns: int
    answered_ns: int


class Client(AbstractContextManager["Client", None]):
    """A client with one connection to the host of `url`, as a context manager; a connection that has ended is opened
    again. Requests go over HTTP even if the url is a WebSocket's. Unlike the load engine, it verifies no certificates.

    `timeout_s`: for each request, from its first byte to the last of its answer."""

    def __init__(self, url: str, timeout_s: float, pump: Pump, body_bytes_max: int = BODY_BYTES_MAX) -> None:
        self._timeout_s = timeout_s
        self._body_bytes_max = body_bytes_max
        self._connection = _connection_to(url, pump)

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def send(self, step: Step) -> HttpAnswer:
        """Makes a request, and returns its answer. Raises RequestFailedError if it is not answered, or not as
        `step.checks` wants; TrialInterrupted; and whatever the pump's lines raise."""
        answer = self.answer_to(step)
        if reason := refused(step.checks, answer):
            raise RequestFailedError(f"{step.name}: {reason}")
        return answer

    def status_of(self, step: Step) -> int:
        """Returns the status alone, without waiting for the body. Raises like `send`."""
        with self._response_to(step) as response:
            self._connection.close()
            return response.status

    def answer_to(self, step: Step) -> HttpAnswer:
        """Returns the answer, whatever it is. Raises like `send`."""
        sent_ns = time.monotonic_ns()
        with self._response_to(step) as response:
            content = response.read(self._body_bytes_max + 1)
            if len(content) > self._body_bytes_max:
                raise ValueError(f"its body is longer than {self._body_bytes_max >> 20} MiB")
            if response.length:
                raise ValueError(f"its body ended {response.length} bytes too early")
            return HttpAnswer(response.status, content, sent_ns, time.monotonic_ns())

    @contextmanager
    def _response_to(self, step: Step) -> Iterator[http.client.HTTPResponse]:
        self._connection.deadline_s = time.monotonic() + self._timeout_s
        try:
            body = None if step.body is None else step.body.encode()
            self._connection.request(step.method, step.path, body, _headers_of(step))
            with self._connection.getresponse() as response:
                yield response
        except TimeoutError:
            self._connection.close()
            raise RequestFailedError(f"{step.name}: it was not answered within {self._timeout_s:g} s") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._connection.close()
            said = " ".join(printable(str(error)).split())[:300]
            raise RequestFailedError(f"{step.name}: {type(error).__name__}: {said}") from error
        except BaseException:
            self._connection.close()
            raise


class _Connection(http.client.HTTPConnection):
    """A connection that waits for its socket through the pump, and never beyond `deadline_s`."""

    deadline_s = 0.0

    def __init__(self, host: str, port: int, pump: Pump, tls: ssl.SSLContext | None) -> None:
        super().__init__(host, port)
        self._pump = pump
        self._tls = tls

    def connect(self) -> None:
        connection = self._connected()
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_hostname=self.host, do_handshake_on_connect=False)
                self.patiently(connection, connection.do_handshake)
        except BaseException:
            connection.close()
            raise
        self.sock: Any = _Socket(connection, self)

    def _connected(self) -> socket.socket:
        """Returns a connection to the first of the host's addresses that takes one: `localhost` often has two, and a
        server may listen on one alone. Each address has an equal share of the time that is left."""
        found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        refused: OSError | None = None
        for left, (family, kind, protocol, _, address) in zip(range(len(found), 0, -1), found, strict=True):
            with ExitStack() as stack:
                try:
                    connection = stack.enter_context(socket.socket(family, kind, protocol))
                    connection.setblocking(False)
                    error = connection.connect_ex(address)
                    if error == errno.EINPROGRESS:
                        self.wait(connection, selectors.EVENT_WRITE, shared_by=left)
                        error = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                    if not error and meets_itself(connection):
                        error = errno.ECONNREFUSED
                    if error:
                        raise OSError(error, f"cannot connect to {self.host}:{self.port}")
                except OSError as failed:
                    refused = refused or failed
                    continue
                stack.pop_all()
                return connection
        raise refused or OSError(f"{self.host} has no address")

    def patiently(self, connection: socket.socket, act: Any, *given: Any) -> Any:
        """Repeats an operation on a non-blocking socket until the socket is ready for it. Raises TimeoutError,
        OSError."""
        while True:
            try:
                return act(*given)
            except (BlockingIOError, ssl.SSLWantReadError):
                wanted = selectors.EVENT_WRITE if act.__name__ == "send" else selectors.EVENT_READ
            except ssl.SSLWantWriteError:
                wanted = selectors.EVENT_WRITE
            self.wait(connection, wanted)

    def check(self) -> None:
        """Raises TimeoutError if the deadline has passed, TrialInterrupted on a stop request."""
        self._pump.check_stop()
        if time.monotonic() > self.deadline_s:
            raise TimeoutError

    def wait(self, connection: socket.socket, events: int, *, shared_by: int = 1) -> None:
        if not self._pump.wait_for_socket(connection, events, (self.deadline_s - time.monotonic()) / shared_by):
            raise TimeoutError


class _Socket:
    """The parts of a socket that `http.client` uses. It closes a socket while it still reads the answer."""

    def __init__(self, connection: socket.socket, owner: _Connection) -> None:
        self._connection = connection
        self._owner = owner
        self._users = 1

    def sendall(self, data: bytes) -> None:
        while data:
            data = data[self._owner.patiently(self._connection, self._connection.send, data) :]

    def makefile(self, _mode: str) -> io.BufferedReader:
        self._users += 1
        return io.BufferedReader(_Bytes(self))

    def close(self) -> None:
        self._users -= 1
        if not self._users:
            self._connection.close()

    def recv_into(self, buffer: Any) -> int:
        self._owner.check()  # with a server that never pauses there is never a wait that would check
        count: int = self._owner.patiently(self._connection, self._connection.recv_into, buffer)
        return count


class _Bytes(io.RawIOBase):
    def __init__(self, source: _Socket) -> None:
        self._source = source

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._source.recv_into(buffer)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._source.close()


def _connection_to(url: str, pump: Pump) -> _Connection:
    parts = urlsplit(http_url(url))
    tls = ssl._create_unverified_context() if parts.scheme == "https" else None
    return _Connection(parts.hostname or "127.0.0.1", parts.port or (443 if tls else 80), pump, tls)


def _headers_of(step: Step) -> dict[str, str]:
    """The headers of a request. A body that is JSON is named as such, unless the step names its type: most servers
    refuse it otherwise."""
    headers = dict(headers_sent(step.headers, os.environ))
    named = any(name.lower() == "content-type" for name in headers)
    return headers if named or not _is_json(step.body) else {**headers, "Content-Type": "application/json"}


def _is_json(body: str | None) -> bool:
    """True for the text of a JSON object or list."""
    try:
        return isinstance(json.loads(body or ""), (dict, list))
    except ValueError:
        return False


def refused(checks: Checks, answer: HttpAnswer) -> str:
    """Returns why an answer is not as it should be; empty if it is."""
    if not checks.status and answer.status in _ELSEWHERE:
        return f"status {answer.status}, a redirect, which is not followed"
    if answer.status not in checks.status if checks.status else not 200 <= answer.status < 400:
        return f"status {answer.status}"
    missing = [text for text in checks.body_contains if text.encode() not in answer.body]
    return f"the body does not contain {missing[0]!r}" if missing else ""
