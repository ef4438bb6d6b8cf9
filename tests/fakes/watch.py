"""The live page of a folder of runs, started by the command that users type, on a port of its own."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def watching(runs: Path) -> Iterator[str]:
    """Runs the live page, and yields its address."""
    with watched_by("watch", str(runs), "--port", "0") as address:
        yield address


@contextmanager
def watched_by(*arguments: str, folder: Path | None = None) -> Iterator[str]:
    """Runs `powerband` with these arguments in this folder, and yields the address of the page that it serves."""
    command = [sys.executable, "-m", "powerband", *arguments]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            said = process.stderr.readline()
            address = re.search(r"http://\S+", said)
            assert address is not None, said + process.stderr.read()
            yield address[0]
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)
