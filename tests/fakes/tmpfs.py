"""A real file system of a test's own, in memory."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fakes.needs import without


@contextmanager
def tmpfs(size: str = "50%") -> Iterator[Path]:
    """Yields the folder on which an empty tmpfs of this size (tmpfs(5)) is mounted; root alone may mount one."""
    with tempfile.TemporaryDirectory() as folder:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True, text=True, check=False
        )
        if mounted.returncode != 0:
            without(f"no file system can be mounted here: {mounted.stderr.strip()}")
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", folder], check=True)
