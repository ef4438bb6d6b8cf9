"""A server of Python's standard library that serves a limited number of requests at once:
`limited_server.py PORT HOW SLOTS SECONDS`.

HOW: `threads` (a thread for each connection, a semaphore before the work) or `loop` (one event loop, a semaphore that
no thread waits for). The work is a sleep of SECONDS; with one slot it is a lock that is held for so long.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
_BACKLOG = 512


def serve_by_threads(port: int, slots: int, seconds: float) -> None:
    gate = threading.Semaphore(slots)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            with gate:
                time.sleep(seconds)
            self.wfile.write(_ANSWER)

        def log_message(self, *_: object) -> None:
            """Writes nothing."""

    class Server(ThreadingHTTPServer):
        request_queue_size = _BACKLOG

    Server(("127.0.0.1", port), Handler).serve_forever()


async def serve_by_loop(port: int, slots: int, seconds: float) -> None:
    gate = asyncio.Semaphore(slots)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                async with gate:
                    await asyncio.sleep(seconds)
                writer.write(_ANSWER)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port, backlog=_BACKLOG)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    where, how, count, length = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    if how == "threads":
        serve_by_threads(where, count, length)
    else:
        asyncio.run(serve_by_loop(where, count, length))
