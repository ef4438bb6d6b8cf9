"""One engine process (`powerband-engine load` or `probe`), and the pump that waits for the lines of several.

In: messages, sent as JSON lines. Out: raw lines, whose meaning is not known here. Each process has its own session, so
that Ctrl-C in the terminal reaches only powerband; if powerband dies, the end of stdin tells the process to clean up
and end.
"""

from __future__ import annotations

import contextlib
import os
import resource
import selectors
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from powerband.base.errors import MeasurementError
from powerband.processes.failures import TrialInterrupted
from powerband.processes.stop_request import StopRequest
from powerband.store import open_private, writing
from powerband.wire.message import Wire, encode

_SELECT_S = 3600.0  # the kernel refuses a wait of more than 24 days
_READ_BYTES = 1 << 18  # arbitrary: four times a full pipe, so that one read empties it


def descriptor_limit() -> int:
    """Returns how many descriptors one engine process may open: engines raise their soft limit to the hard one."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def subject_descriptor_limit() -> int:
    """Returns how many descriptors a server may open that is started now: it gets the soft limit, and may raise that
    itself."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def raising_descriptors(needed: int) -> str:
    """The command that lets the user's shell, and so powerband and its server, open so many files."""
    return f"`sudo prlimit --pid $$ --nofile={needed}` in this shell"


class LineSource(Protocol):
    """A source of lines that a pump can wait for."""

    def fileno(self) -> int:
        """The descriptor that a selector waits for: readable once lines have arrived, or the last one has."""

    def read_lines(self) -> list[bytes] | None:
        """Returns the whole lines that have arrived, newlines included; None once there are no more."""


class EngineProcess(contextlib.AbstractContextManager["EngineProcess", None]):
    """A running engine, as a context manager: leaving it closes stdin, which makes the process clean up and end, and
    waits for that."""

    def __init__(self, argv: Sequence[str], stderr_file: Path, end_timeout_s: float = 2.0) -> None:
        """Starts `argv`, an engine and its command; its stderr is appended to `stderr_file`. Raises MeasurementError if
        the engine cannot be run, or if the disk refuses that file.

        `end_timeout_s`: how long it may take to end after stdin is closed, before it is killed."""
        self._end_timeout_s = end_timeout_s
        self._tail = b""
        with writing(stderr_file):
            stderr = open_private(stderr_file, "ab")
        pipe = subprocess.PIPE
        try:
            with stderr:
                self._process = subprocess.Popen(
                    argv, stdin=pipe, stdout=pipe, stderr=stderr, bufsize=0, start_new_session=True
                )
        except OSError as error:
            raise MeasurementError(f"cannot start the engine {argv[0]}: {error.strerror}") from error
        os.set_blocking(self.fileno(), False)

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def fileno(self) -> int:
        """The descriptor of its stdout."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def send(self, message: Wire) -> None:
        """Writes one message. It is no error if the process has ended: the end of its output shows that."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(encode(message))

    def read_lines(self) -> list[bytes] | None:
        """Returns the whole lines that have arrived, newlines included; None once the process has closed its output."""
        try:
            data = os.read(self.fileno(), _READ_BYTES)
        except BlockingIOError:
            return []
        if not data:
            return None
        lines = (self._tail + data).splitlines(keepends=True)
        self._tail = b"" if lines[-1].endswith(b"\n") else lines.pop()
        return lines

    def wait(self, timeout_s: float) -> int | None:
        """Returns the exit status, negative for a signal; None if the process still runs after `timeout_s`."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def close(self) -> None:
        """Closes stdin and waits; kills a process that does not end. Safe to call twice."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        if self.wait(self._end_timeout_s) is None:
            self._process.kill()
            self._process.wait()


class Pump(contextlib.AbstractContextManager["Pump", None]):
    """Waits for lines of any of its processes and hands them on; wakes at once if the user asks to stop."""

    def __init__(self, stop: StopRequest) -> None:
        self.stop = stop
        self._selector = selectors.DefaultSelector()
        # The stop request stays readable once it is made: one wake-up is enough.
        self._selector.register(stop, selectors.EVENT_READ, lambda: self._selector.unregister(stop))

    def __exit__(self, *_: object) -> None:
        self._selector.close()

    def add(self, process: LineSource, on_line: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        """Adds a process. `on_line` gets every whole line; `on_end` is called once, after the last line. Both may raise
        to end the wait."""
        self._selector.register(process, selectors.EVENT_READ, lambda: self._read(process, on_line, on_end))

    def remove(self, process: LineSource) -> None:
        """Forgets a process that is about to be closed."""
        with contextlib.suppress(KeyError):
            self._selector.unregister(process)

    def check_stop(self) -> None:
        """Raises TrialInterrupted if a stop was requested."""
        if self.stop.requested:
            raise TrialInterrupted

    def wait(
        self, done: Callable[[], bool], timeout_s: float, *, stoppable: bool = True, gather_s: float = 0.0
    ) -> bool:
        """Pumps until `done()` is true; returns False if that took longer than `timeout_s`. Raises TrialInterrupted on
        a stop request.

        `gather_s`: after each wake-up, lets lines gather for so long, which saves CPU while nothing is urgent.
        """
        deadline = time.monotonic() + timeout_s
        woken = False
        while not done():
            if stoppable:
                self.check_stop()
            if woken and gather_s > 0:
                time.sleep(gather_s)
            left = deadline - time.monotonic()
            for key, _ in self._selector.select(max(0.0, min(left, _SELECT_S))):
                key.data()
            if left <= 0:  # what came while this process was stopped (Ctrl-Z) has been read by now
                return done()
            woken = True
        return True

    def wait_for_socket(self, connection: socket.socket, events: int, timeout_s: float) -> bool:
        """Pumps until a socket is ready for `events` of `selectors`; returns False if that took longer than
        `timeout_s`. Raises like `wait`."""
        ready = False

        def on_ready() -> None:
            nonlocal ready
            ready = True

        self._selector.register(connection, events, on_ready)
        try:
            return self.wait(lambda: ready, timeout_s)
        finally:
            self._selector.unregister(connection)

    def _read(self, process: LineSource, on_line: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        lines = process.read_lines()
        if lines is None:
            self._selector.unregister(process)
            on_end()
        for line in lines or ():
            on_line(line)


def describe_status(status: int | None) -> str:
    """Returns an exit status in words: `exit code 1`, `signal 9` for -9; None: the process still runs."""
    if status is None:
        return "still running"
    return f"signal {-status}" if status < 0 else f"exit code {status}"
