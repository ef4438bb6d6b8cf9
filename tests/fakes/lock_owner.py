"""Another process that owns a run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from powerband.store import RunDir

_OWN = """
import errno, fcntl, sys
from pathlib import Path
from powerband.store import RunDir

def refuse(*_):
    raise OSError(errno.ENOLCK, "no locks")

if sys.argv[2] == "without locks":
    fcntl.flock = refuse
with RunDir(Path(sys.argv[1])).locked():
    print("locked", flush=True)
    sys.stdin.read()
"""


@contextmanager
def killed_owner(run: RunDir, *, locks: bool) -> Iterator[None]:
    """Lets another process hold the run's lock until the end of the block, and then kills it. `locks`: False if the
    file system has no locks."""
    with subprocess.Popen(
        [sys.executable, "-c", _OWN, str(run.path), "with locks" if locks else "without locks"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as owner:
        try:
            assert owner.stdout is not None and owner.stdout.readline() == b"locked\n"
            yield
        finally:
            owner.kill()
