"""A small HTTP server that records every request, in order, and answers each rightly."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ANSWER = b'{"ok": true, "price": 3}'


@dataclass(frozen=True)
class Heard:
    """A request. `peer`: the client's port, which identifies the connection."""

    peer: int
    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def about(self, names: Sequence[str]) -> tuple[str, str, tuple[tuple[str, str], ...], bytes]:
        """The request without the peer, and with the named headers alone."""
        wanted = {name.lower() for name in names}
        kept = sorted((name.lower(), value) for name, value in self.headers if name.lower() in wanted)
        return self.method, self.path, tuple(kept), self.body


@dataclass
class Log:
    port: int
    requests: list[Heard] = field(default_factory=list)


@contextmanager
def listening() -> Iterator[Log]:
    """Runs the server until the block ends, and yields its log."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _hear(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            heard = Heard(self.client_address[1], self.command, self.path, tuple(self.headers.items()), body)
            log.requests.append(heard)
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", "0" if self.command == "HEAD" else str(len(ANSWER)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(ANSWER)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = _hear  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Writes nothing, so that the test's stderr stays empty."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    log = Log(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield log
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
