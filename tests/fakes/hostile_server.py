"""A malicious server on a port of loopback: it answers each connection by a script, in a thread of its own.

`drip`: a head that never ends, a byte at a time; `drip-body`: a body that comes that way; `silent`: nothing; `endless`:
a body without end, as fast as it goes; `headers`: headers without end; `continue`: `100 Continue` without end;
`chunks`: one chunk of a length that no memory holds; `short`: a body shorter than announced; `escape`: a status line
with terminal escapes; `garbage`: no HTTP; `reset`: the connection is reset; `deaf`: it reads nothing of the request."""

from __future__ import annotations

import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

KINDS = (
    *("drip", "drip-body", "silent", "endless", "headers", "continue", "chunks", "short", "escape", "garbage"),
    *("reset", "deaf"),
)
_HEAD = b"HTTP/1.1 200 OK\r\n"
_LONGEST_S = 60.0


@contextmanager
def hostile(kind: str) -> Iterator[str]:
    """Runs the server, and yields its URL."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_serve, args=(server, kind, over), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}/"
        finally:
            over.set()


def _serve(server: socket.socket, kind: str, over: threading.Event) -> None:
    with suppress(OSError):
        while True:
            connection, _ = server.accept()
            threading.Thread(target=_answer, args=(connection, kind, over), daemon=True).start()


def _answer(connection: socket.socket, kind: str, over: threading.Event) -> None:
    deadline_s = time.monotonic() + _LONGEST_S
    with connection, suppress(OSError):
        if kind != "deaf":
            connection.recv(1 << 16)
        first, rest, pause_s = _script(kind)
        if kind == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return
        connection.sendall(first)
        while not over.wait(pause_s) and rest is not None and time.monotonic() < deadline_s:
            connection.sendall(rest)


def _script(kind: str) -> tuple[bytes, bytes | None, float]:
    """The bytes sent first, the bytes then sent again and again (None: no more), and the pause before each of these."""
    scripts: dict[str, tuple[bytes, bytes | None, float]] = {
        "drip": (_HEAD + b"X: ", b"x", 0.05),
        "drip-body": (_HEAD + b"Content-Length: 100000\r\n\r\n", b"x", 0.05),
        "endless": (_HEAD + b"\r\n", bytes(1 << 16), 0),
        "headers": (_HEAD, b"X: y\r\n" * 1000, 0),
        "continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100, 0),
        "chunks": (_HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffff\r\n", bytes(1 << 16), 0),
        "short": (_HEAD + b"Content-Length: 10\r\n\r\nabc", None, 0),
        "escape": (b"\x1b[2J\x1b]0;owned\x07 no status\r\n\r\n", None, 0),
        "garbage": (bytes(range(256)), None, 0),
    }
    return scripts.get(kind, (b"", b"", 0.05))  # silent, deaf, reset


def main() -> None:
    """The server as a subject: `hostile_server.py PORT KIND`. `flood` prints 5 MiB, then that it is ready, then without
    end."""
    port, kind = int(sys.argv[1]), sys.argv[2]
    with socket.create_server(("127.0.0.1", port)) as server:
        threading.Thread(target=_serve, args=(server, kind, threading.Event()), daemon=True).start()
        if kind == "flood":
            line = b"\x1b[2Jx" * 300 + b"\n"
            for _ in range((5 << 20) // len(line)):
                os.write(1, line)
            os.write(1, b"ready now\n")
            while True:
                os.write(1, line)
        threading.Event().wait()


if __name__ == "__main__":
    main()
