"""The live page's server as a process of its own, as a run starts it, and a viewer by plain socket."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

TIMEOUT_S = 180.0


@dataclass(frozen=True)
class Served:
    """A running server. `origin`: scheme, host and port of `address`."""

    address: str
    process: subprocess.Popen[str]

    @property
    def origin(self) -> str:
        return self.address[: self.address.index("/", len("http://"))]

    def get(self, path: str, **headers: str) -> tuple[int, bytes]:
        """Requests a path, and returns the status and the body of the answer."""
        connection = HTTPConnection(urlsplit(self.origin).netloc, timeout=TIMEOUT_S)
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def json(self, path: str) -> Any:
        return json.loads(self.get(path)[1])


NOT_NICE = """
import runpy
from powerband.live import watch
watch.NICE = 0
runpy.run_module("powerband.live", run_name="__main__")
"""


@contextmanager
def served(directory: Path, *, nice: bool = True) -> Iterator[Served]:
    """Runs the server until the block ends, when its stdin is closed. `nice`: with the lowest priority, as beside a
    run, with which it hardly runs where other tests keep all CPUs busy."""
    process = subprocess.Popen(
        [sys.executable, *(("-m", "powerband.live") if nice else ("-c", NOT_NICE)), str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        yield Served(process.stdout.readline().strip(), process)
    finally:
        process.stdin.close()
        process.wait(TIMEOUT_S)
        process.stdout.close()


class Viewer:
    """Reads events when it is asked to. `stalls`: its buffers are so small that the first message does not fit."""

    def __init__(self, server: Served, path: str, *, stalls: bool = False) -> None:
        parts = urlsplit(server.origin)
        self._socket = socket.socket()
        if stalls:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.settimeout(TIMEOUT_S)
        self._socket.connect((parts.hostname, parts.port))
        self._socket.sendall(
            f"GET {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nAccept: text/event-stream\r\n\r\n".encode()
        )
        self._data = b""
        self._file = self._socket.makefile("rb")

    def head(self) -> str:
        lines = []
        while (line := self._file.readline()) not in (b"\r\n", b""):
            lines.append(line.decode())
        return "".join(lines)

    def event(self) -> dict[str, Any]:
        """The next message; empty at the end of the stream."""
        while True:
            while b"\n\n" not in self._data:
                piece = self._chunk()
                if not piece:
                    return {}
                self._data += piece
            message, _, self._data = self._data.partition(b"\n\n")
            if message.startswith(b"data: "):
                found = json.loads(message[6:])
                assert isinstance(found, dict)
                return found

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def _chunk(self) -> bytes:
        """The next chunk of a chunked answer; empty after the last."""
        size = int(self._file.readline().strip() or b"0", 16)
        piece = self._file.read(size)
        self._file.readline()
        return piece
