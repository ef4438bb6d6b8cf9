"""Sends commands to a JVM through its own attach socket: to list its threads by their full names, or to diagnose it.
The kernel cuts thread names to 15 characters, so that all event loops of a framework look alike there.

The attach socket needs no second JVM and is the same in all versions. An answer may stop the JVM for a moment, so
nothing is asked while anything is measured. A JVM that does not answer is no error here.

The socket has a predictable name in a folder that everybody may write to. So a process gets SIGQUIT only if it is a JVM
that handles it, and an answer is read only from a socket on which that very process listens.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import stat
import struct
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from powerband.base.logs import printable

ANSWER_BYTES_MAX = 64 << 20
"""More than a dump of ten thousand threads, or a histogram of a hundred thousand classes."""
_SOCKET_WITHIN_S = 2.0  # a JVM opens the socket at once, but waits for a safepoint first
_NAMES_WITHIN_S = 5.0  # arbitrary: for all JVMs of a subject together; a trial waits no longer
_POLL_S = 0.02  # arbitrary: the socket is noticed by so much later
_PEER = struct.Struct("3i")  # struct ucred: pid, uid, gid


def thread_names(pids: Iterable[int]) -> dict[int, str]:
    """Returns the names by the kernel's thread id; a JVM that cannot be asked, or does not answer within seconds, adds
    none."""
    names: dict[int, str] = {}
    deadline_s = time.monotonic() + _NAMES_WITHIN_S
    for pid in pids:
        with suppress(NotAnsweredError):
            names |= parse_dump(answer_of(pid, "threaddump", deadline_s=deadline_s))
    return names


def parse_dump(text: str) -> dict[int, str]:
    """Returns the names in a thread dump, whose ids are hexadecimal up to JDK 20 and decimal since."""
    names = {}
    for line in text.split("\n"):
        if not line.startswith('"'):
            continue
        head, _, rest = line.rpartition(" nid=")
        end = head.rfind('" ')
        number = rest.partition(" ")[0][:20]
        if end > 0 and number.isascii():
            with suppress(ValueError):
                names[int(number, 0)] = printable(head[1:end])
    return names


class NotAnsweredError(Exception):
    """The JVM did not answer; the message gives the reason."""


class JvmAnswer:
    """A JVM's answer to one command, read as it arrives."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._said = bytearray()
        self._whole = False

    def fileno(self) -> int:
        """The descriptor of the connection: readable once more of the answer has arrived, or its end."""
        return self._connection.fileno()

    def arrived(self) -> bool:
        """Reads what has arrived; returns True at its end. Raises NotAnsweredError if it has no end."""
        while not self._whole:
            try:
                part = self._connection.recv(1 << 16)
            except BlockingIOError:
                break
            except ConnectionError:  # the JVM has ended meanwhile
                part = b""
            self._said += part
            self._whole = not part
            if len(self._said) > ANSWER_BYTES_MAX:
                raise NotAnsweredError(f"the JVM's answer is longer than {ANSWER_BYTES_MAX >> 20} MiB")
        return self._whole

    def text(self) -> str:
        """Returns the answer. Raises NotAnsweredError if it is incomplete, or if the JVM refuses."""
        if not self._whole:
            raise NotAnsweredError("the JVM did not answer in time")
        status, _, text = self._said.decode(errors="replace").partition("\n")
        if status.strip() != "0":
            said = " ".join(text[:1000].split())[:200] or "it said nothing"
            raise NotAnsweredError(f"the JVM refuses: {said}")
        return text


def answer_of(pid: int, command: str, argument: str = "", *, deadline_s: float) -> str:
    """Sends a command, as `command_sent` does, and returns the JVM's whole answer. Raises NotAnsweredError if it is not
    complete by then, or if the JVM refuses."""
    with command_sent(pid, command, argument, deadline_s=deadline_s) as answer:
        while not answer.arrived() and (left := deadline_s - time.monotonic()) > 0:
            select.select([answer], [], [], left)
        return answer.text()


@contextmanager
def command_sent(pid: int, command: str, argument: str = "", *, deadline_s: float) -> Iterator[JvmAnswer]:
    """Sends a command of the attach protocol to a JVM, with the first of its arguments, and yields its answer, which
    arrives later. `deadline_s`: by the monotonic clock; the command is sent within two seconds, or not at all.

    Raises NotAnsweredError if the JVM does not take the command."""
    if time.monotonic() >= deadline_s:
        raise NotAnsweredError("no time was left to ask the JVM")
    deadline_s = min(deadline_s, time.monotonic() + _SOCKET_WITHIN_S)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            path = _socket_of(pid, deadline_s)
            connection.settimeout(max(0.001, deadline_s - time.monotonic()))
            connection.connect(str(path))
            listener, _, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
            if listener != pid:
                raise NotAnsweredError(f"another process listens on the JVM's attach socket ({path.name} in /tmp)")
            connection.sendall(f"1\0{command}\0{argument}\0\0\0".encode())
        except OSError as error:
            raise NotAnsweredError(f"the JVM cannot be asked: {error.strerror or error}") from error
        yield JvmAnswer(connection)


def _socket_of(pid: int, deadline_s: float) -> Path:
    """Returns the JVM's socket, which it opens on request. Raises OSError or NotAnsweredError if it does not."""
    status = _status(pid)
    user = int(status["Uid"].split()[1])
    inside = status["NSpid"].split()[-1]  # the pid as the process sees itself, which differs in a container
    folder = Path("/proc", str(pid), "root", "tmp")  # the temporary folder as the JVM sees it
    path = folder / f".java_pid{inside}"
    if _is_socket_of(user, path):
        return path
    _check_handles_sigquit(pid, status)
    with _requested(folder / f".attach_pid{inside}", user):
        os.kill(pid, signal.SIGQUIT)
        while not _is_socket_of(user, path):
            if time.monotonic() > deadline_s:
                raise NotAnsweredError("the JVM did not open its socket")
            time.sleep(_POLL_S)
    return path


def _status(pid: int) -> Mapping[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    return {name: value for name, _, value in (line.partition(":") for line in lines)}


def _is_socket_of(user: int, path: Path) -> bool:
    """True if the path is the user's socket, False if nothing is there. Raises NotAnsweredError if anything else is."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != user:
        raise NotAnsweredError(f"{path.name} in /tmp is in the place of the JVM's attach socket: remove it")
    return True


def _check_handles_sigquit(pid: int, status: Mapping[str, str]) -> None:
    """Raises NotAnsweredError for a process that SIGQUIT would end: one that is no JVM, or a JVM that does not handle
    signals (-Xrs) or has not installed its handler yet."""
    if not int(status["SigCgt"], 16) >> (signal.SIGQUIT - 1) & 1:
        raise NotAnsweredError("the JVM leaves signals to the system (-Xrs), or has just started")
    with Path(f"/proc/{pid}/maps").open(errors="replace") as maps:
        if not any("/libjvm.so" in line for line in maps):
            raise NotAnsweredError("it is no HotSpot JVM")


@contextmanager
def _requested(request: Path, user: int) -> Iterator[None]:
    """Creates the file that asks a JVM to open its socket at SIGQUIT. A file that a killed program left there must
    belong to the JVM's user or to this one: the JVM ignores those of other users."""
    try:
        os.close(os.open(request, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        if request.lstat().st_uid not in (user, os.geteuid()):
            raise NotAnsweredError(f"another user's {request.name} is in /tmp: remove it") from None
    try:
        yield
    finally:
        with suppress(OSError):
            request.unlink()
