"""The full names of a JVM's threads, asked of it once: the kernel cuts them to 15 characters, so that every event loop
of a framework reads alike there.

Through the JVM's own attach socket, which needs no second JVM. Asked after the load, since a thread dump stops all
threads for a moment. A JVM that does not answer is no error: its threads keep their short names.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from pathlib import Path

_ANSWERS_WITHIN_S = 2.0
_POLL_S = 0.02
_REQUEST = b"1\0threaddump\0\0\0\0"
_THREAD = re.compile(r'^"(?P<name>.*)" .*?\bnid=(?P<nid>0x[0-9a-f]+|\d+)\b', re.MULTILINE)


def thread_names(pid: int) -> dict[int, str]:
    """By the kernel's thread id; empty where the JVM cannot be asked, or does not answer within some seconds."""
    try:
        return parse_dump(_dump(pid))
    except (OSError, ValueError):
        return {}


def parse_dump(text: str) -> dict[int, str]:
    """From a thread dump, whose ids are hexadecimal up to JDK 20 and decimal since."""
    return {int(match["nid"], 0): match["name"] for match in _THREAD.finditer(text)}


def _dump(pid: int) -> str:
    """Raises OSError or ValueError where there is none to be had."""
    own = _pid_inside(pid)
    root = Path(f"/proc/{pid}/root")
    path = root / "tmp" / f".java_pid{own}"
    if not path.exists():
        _open_socket(pid, own, root, path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_ANSWERS_WITHIN_S)
        connection.connect(str(path))
        connection.sendall(_REQUEST)
        parts = []
        while part := connection.recv(1 << 16):
            parts.append(part)
    status, _, text = b"".join(parts).decode(errors="replace").partition("\n")
    if status.strip() != "0":
        raise ValueError(f"the JVM refuses: {status}")
    return text


def _open_socket(pid: int, own: int, root: Path, path: Path) -> None:
    """A file beside it and SIGQUIT make a JVM open its socket. One that was told to leave signals alone would die of
    it, and is not asked."""
    if b"-Xrs" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
        raise ValueError("the JVM leaves signals to the system (-Xrs)")
    request = root / "tmp" / f".attach_pid{own}"
    request.touch()
    try:
        os.kill(pid, signal.SIGQUIT)
        deadline = time.monotonic() + _ANSWERS_WITHIN_S
        while not path.exists():
            if time.monotonic() > deadline:
                raise ValueError("the JVM did not open its socket")
            time.sleep(_POLL_S)
    finally:
        request.unlink(missing_ok=True)


def _pid_inside(pid: int) -> int:
    """As the process sees itself, which differs in a container."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return pid
