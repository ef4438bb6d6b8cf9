"""What a JVM tells when it is asked: the full names of its threads (the kernel cuts them to 15 characters, so that all
event loops of a framework read alike there), and whatever a diagnostic command of its own prints.

Through the JVM's own attach socket, which needs no second JVM and is the same in all versions. An answer may stop the
JVM for a moment, so nothing is asked while anything is measured. A JVM that does not answer is no error here.
"""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ANSWERS_WITHIN_S = 2.0
_POLL_S = 0.02
_THREAD = re.compile(r'^"(?P<name>.*)" .*?\bnid=(?P<nid>0x[0-9a-f]+|\d+)\b', re.MULTILINE)


def thread_names(pid: int) -> dict[int, str]:
    """By the kernel's thread id; empty where the JVM cannot be asked, or does not answer within some seconds."""
    try:
        with asked(pid, "threaddump") as answer:
            deadline = time.monotonic() + _ANSWERS_WITHIN_S
            while not answer.arrived() and (left := deadline - time.monotonic()) > 0:
                select.select([answer], [], [], left)
            return parse_dump(answer.text())
    except NotAnsweredError:
        return {}


def parse_dump(text: str) -> dict[int, str]:
    """From a thread dump, whose ids are hexadecimal up to JDK 20 and decimal since."""
    return {int(match["nid"], 0): match["name"] for match in _THREAD.finditer(text)}


class NotAnsweredError(Exception):
    """The message says why."""


class JvmAnswer:
    """What a JVM says to one question, as it comes."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._parts: list[bytes] = []
        self._whole = False

    def fileno(self) -> int:
        return self._connection.fileno()

    def arrived(self) -> bool:
        """Takes what is there, and tells whether that was the last of it."""
        while not self._whole:
            try:
                part = self._connection.recv(1 << 16)
            except BlockingIOError:
                break
            except ConnectionError:  # it has ended meanwhile
                part = b""
            self._parts.append(part)
            self._whole = not part
        return self._whole

    def text(self) -> str:
        """Raises NotAnsweredError where it is not whole, and where the JVM refuses."""
        if not self._whole:
            raise NotAnsweredError("the JVM did not answer in time")
        status, _, text = b"".join(self._parts).decode(errors="replace").partition("\n")
        if status.strip() != "0":
            said = " ".join(text.split())[:200] or "it said nothing"
            raise NotAnsweredError(f"the JVM refuses: {said}")
        return text


@contextmanager
def asked(pid: int, command: str, argument: str = "") -> Iterator[JvmAnswer]:
    """Puts a question: a command of the attach protocol, and the first of its arguments.

    Raises NotAnsweredError where the JVM cannot be asked."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.settimeout(_ANSWERS_WITHIN_S)
            connection.connect(str(_socket_of(pid)))
            connection.sendall(f"1\0{command}\0{argument}\0\0\0".encode())
        except OSError as error:
            raise NotAnsweredError(f"the JVM cannot be asked: {error.strerror or error}") from error
        yield JvmAnswer(connection)


def _socket_of(pid: int) -> Path:
    """Raises OSError or NotAnsweredError where it does not open one."""
    own = _pid_inside(pid)
    root = Path(f"/proc/{pid}/root")
    path = root / "tmp" / f".java_pid{own}"
    if not path.exists():
        _open_socket(pid, own, root, path)
    return path


def _open_socket(pid: int, own: int, root: Path, path: Path) -> None:
    """A file beside it and SIGQUIT make a JVM open its socket. One that was told to leave signals alone would die of
    it, and is not asked."""
    if b"-Xrs" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
        raise NotAnsweredError("the JVM leaves signals to the system (-Xrs)")
    request = root / "tmp" / f".attach_pid{own}"
    request.touch()
    try:
        os.kill(pid, signal.SIGQUIT)
        deadline = time.monotonic() + _ANSWERS_WITHIN_S
        while not path.exists():
            if time.monotonic() > deadline:
                raise NotAnsweredError("the JVM did not open its socket")
            time.sleep(_POLL_S)
    finally:
        request.unlink(missing_ok=True)


def _pid_inside(pid: int) -> int:
    """As the process sees itself, which differs in a container."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return pid
