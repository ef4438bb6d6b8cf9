"""Serves the pages over sockets, and bounds what any client can take of this process: connections, time and memory.

In: an application and a listening socket. Out: answers, until it is asked to end. A request must be complete, and what
was sent must be taken, within `PATIENCE_S`. If there is no room for a connection, the one that has been waiting longest
for its request is dropped. Large answers are sent piece by piece, and only so many at once.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from powerband.base.errors import UsageError
from powerband.live.server import LivePages

SEND_BUFFER_BYTES = 1 << 16  # of a connection: the most data that a stalled viewer has to catch up with
PATIENCE_S = 30.0  # arbitrary: a slow network needs some seconds; a connection is held so long for nothing
CONNECTIONS_MAX = 320  # the viewers that are allowed, and room for what they ask for
DESCRIPTORS_KEPT = 96  # for everything else: the files of eight runs, and connections that were just accepted
ACCEPTED_AT_ONCE = 32  # arbitrary: a browser opens six at once; accepted ones need descriptors that are kept
HEAD_BYTES_MAX = 1 << 14  # twice what Apache and Tomcat allow: it includes the cookies of all programs on this host
PIECE_BYTES = 1 << 16  # as much as the socket's buffer takes
LARGE_BYTES_MAX = 1 << 26  # of all answers that are being sent and take more than one piece


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises OSError. Every connection inherits its small send buffer: data that a viewer has not
    taken stays here, as one newest state, and does not pile up in the kernel."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        listener.bind((host, port))
        listener.listen(ACCEPTED_AT_ONCE)
    except OSError:
        listener.close()
        raise
    return listener


def connections_max() -> int:
    """The most connections that leave enough descriptors for everything else. Raises UsageError if none do."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return CONNECTIONS_MAX
    if soft <= DESCRIPTORS_KEPT:
        raise UsageError(
            f"the live page needs more than {DESCRIPTORS_KEPT} file descriptors, and {soft} are allowed: "
            f"`ulimit -n {CONNECTIONS_MAX + DESCRIPTORS_KEPT}` in this shell raises that"
        )
    return min(CONNECTIONS_MAX, soft - DESCRIPTORS_KEPT)


async def serve(
    pages: LivePages, listener: socket.socket, connections: int, until: Callable[[], Awaitable[None]] | None
) -> None:
    """Serves at most so many connections until SIGINT or SIGTERM, or until `until` returns; then sends the viewers the
    last state."""
    asked = asyncio.Event()

    class Server(uvicorn.Server):
        """Ends its streams before itself; a signal is a request to end, not an error."""

        def handle_exit(self, sig: int, frame: object) -> None:
            del sig, frame
            asked.set()

    config = uvicorn.Config(
        PiecewiseAnswers(pages.app),
        log_level="critical",
        access_log=False,
        lifespan="off",
        http=BoundedConnection,
        ws="none",
        loop="asyncio",
        proxy_headers=False,
        server_header=False,
        date_header=False,
        backlog=ACCEPTED_AT_ONCE,
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        limit_concurrency=connections + 1,
        timeout_keep_alive=round(PATIENCE_S) // 2,
        timeout_graceful_shutdown=2,
    )
    server = Server(config)

    async def end() -> None:
        waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(asked.wait())]
        if until is not None:
            waits.append(asyncio.ensure_future(until()))
        _, left = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in left:
            wait.cancel()
        await pages.close()
        server.should_exit = True

    asyncio.get_running_loop().set_exception_handler(_in_one_line)
    ending = asyncio.ensure_future(end())
    await server.serve(sockets=[listener])
    ending.cancel()


class BoundedConnection(H11Protocol):
    """A connection that is dropped if its client keeps it waiting: for a request, or for room to send. The methods
    below are called by uvicorn and asyncio."""

    _due: asyncio.TimerHandle | None = None  # while it waits: for a request, or until what was sent is taken

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Waits for the first request; if there are too many connections, drops the one that would be dropped next."""
        super().connection_made(transport)
        self._wait()
        if len(self.connections) >= (self.limit_concurrency or 0):
            waiting = [each for each in self.connections if isinstance(each, BoundedConnection) and each._due]
            min(waiting, key=lambda each: each._due.when() if each._due else 0.0)._drop()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops waiting."""
        self._go_on()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Takes what arrived; the wait ends with a complete request, not before."""
        super().handle_events()
        if self._is_answering:
            self._go_on()

    def on_response_complete(self) -> None:
        """Waits for the next request, and for the client to take what was sent."""
        self._wait()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Waits for the client to take what was sent: the send buffer is full."""
        super().pause_writing()
        self._wait()

    def resume_writing(self) -> None:
        """Stops waiting if an answer is still being made: there is room for it again."""
        super().resume_writing()
        if self._is_answering:
            self._go_on()

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait(self) -> None:
        self._go_on()
        self._due = self.loop.call_later(PATIENCE_S, self._drop)

    def _go_on(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _drop(self) -> None:
        self._go_on()
        self.connections.discard(self)
        self.transport.abort()


class PiecewiseAnswers:
    """Sends the answers of an application in pieces, each once there is room for it, so that a client that does not
    read holds little memory; while too much is on its way, a further large answer is refused."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._large_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start: Message | None = None
        large_bytes = 0

        async def piecewise(message: Message) -> None:
            nonlocal start, large_bytes
            if message["type"] != "http.response.body":
                start = message
                return
            body = message.get("body", b"")
            if start is not None:
                large_bytes = len(body) if len(body) > PIECE_BYTES else 0
                if large_bytes and self._large_bytes + large_bytes > LARGE_BYTES_MAX:
                    start, body, large_bytes = _BUSY, _BUSY_TEXT, 0
                self._large_bytes += large_bytes
                await send(start)
                start = None
            for at in range(0, len(body) - PIECE_BYTES, PIECE_BYTES):
                await send({**message, "body": body[at : at + PIECE_BYTES], "more_body": True})
            await send({**message, "body": body[max(0, (len(body) - 1) // PIECE_BYTES * PIECE_BYTES) :]})

        try:
            await self._app(scope, receive, piecewise)
        finally:
            self._large_bytes -= large_bytes


_BUSY_TEXT = b"powerband: too many large pages are being sent at the moment: try again in a minute\n"
_BUSY: Message = {
    "type": "http.response.start",
    "status": 503,
    "headers": [(b"content-type", b"text/plain"), (b"content-length", str(len(_BUSY_TEXT)).encode())],
}


def _in_one_line(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A connection that fails is not reported; anything else is, without a traceback."""
    del loop
    error = context.get("exception")
    if not isinstance(error, OSError):
        sys.stderr.write(f"live page: {context['message']}: {type(error).__name__}: {error}\n")
