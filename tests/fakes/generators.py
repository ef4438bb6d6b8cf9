"""The program that runs engines for another node, started on this machine without Ray, and with a clock of its own."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from powerband.cluster import generator
from powerband.cluster.far_engines import Generator


@contextmanager
def generator_up(
    *, name: str = "b", before: Sequence[str] = (), address: str = "127.0.0.1"
) -> Iterator[tuple[Generator, subprocess.Popen[bytes]]]:
    """Starts the program, and yields its node and process. `before`: words in front of its command, such as
    `unshare --time`."""
    process = subprocess.Popen(
        [*before, sys.executable, "-m", generator.__name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None and process.stdout is not None
    order = {"address": address, "secret": secrets.token_hex(32)}
    try:
        work = tempfile.mkdtemp()
        process.stdin.write(json.dumps({**order, "work": work}).encode() + b"\n")
        process.stdin.flush()
        told = json.loads(process.stdout.readline())
        assert told.pop("said") == "ready", told
        yield Generator(name=name, **order, **told), process
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()


def clock_apart(seconds: int) -> list[str]:
    """Words in front of a command that set its CLOCK_MONOTONIC forward by so many seconds; empty if this user or kernel
    cannot."""
    words = ["unshare", "--time", "--monotonic", str(seconds)]
    if os.geteuid() or shutil.which("unshare") is None:
        return []
    return words if subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0 else []
