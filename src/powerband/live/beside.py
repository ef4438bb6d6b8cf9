"""Serves the live page of a run from a separate process with low priority, which only follows the run directory.

In: a run directory. Out: the address of its page. The process ends with its stdin, so that none remains, even if the
run is killed; a viewer that stalls delays only that process.
"""

from __future__ import annotations

import contextlib
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

START_S = 60.0  # longest wait for the page's address, which takes a second, on a busy machine some
END_S = 30.0  # longer than the page waits for viewers (`LEAVE_S`) and, with its low priority, for a CPU


@contextmanager
def page_beside(run: Path, tell: Callable[[str], None]) -> Iterator[None]:
    """Serves the page while the block lasts. `tell` gets a line for the user: the address, or the reason why there is
    no page; the run continues in either case. Python's `-P` imports no module from the current folder."""
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "powerband.live", str(run)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        tell(f"no live page: {error.strerror}")
        yield
        return
    try:
        address = _first_line(process)
        tell(f"live page: {address}" if address else f"no live page: {_why_it_ended(process)}")
        yield
    finally:
        _end(process)


def _first_line(process: subprocess.Popen[bytes]) -> str:
    """The address of the page; empty if the process ended, or took too long."""
    assert process.stdout is not None
    deadline = time.monotonic() + START_S
    said = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while not said.endswith(b"\n") and (left := deadline - time.monotonic()) > 0:
            if selector.select(left):
                piece = process.stdout.read1(4096)  # type: ignore[attr-defined]
                if not piece:
                    return ""
                said += piece
    return said.decode().strip()


def _why_it_ended(process: subprocess.Popen[bytes]) -> str:
    """Returns the last line that the process wrote to stderr, or its exit status if it wrote none."""
    try:
        process.wait(END_S)  # its output may end a moment before the process
    except subprocess.TimeoutExpired:
        return f"it did not start within {START_S:.0f} s"
    assert process.stderr is not None
    lines = process.stderr.read().decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else f"its process ended with {process.returncode}"


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()
    process.stderr.close()
