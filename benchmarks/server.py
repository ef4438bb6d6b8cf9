"""A reference subject for a benchmark: started on its own CPU, and ended with the block."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from powerband.trials.trial import pinned_to


@contextmanager
def reference(engine: str, cpus: set[int], *options: str) -> Iterator[tuple[int, int]]:
    """Yields (port, pid) of `powerband-engine serve` once it listens. Raises RuntimeError if it does not."""
    with pinned_to(tuple(cpus)):
        process = subprocess.Popen([engine, "serve", "--port", "0", *options], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if "listening on" not in line:
            raise RuntimeError(f"the reference server did not start: {line!r}")
        yield int(line.rsplit(":", 1)[1]), process.pid
    finally:
        process.terminate()
        process.wait(timeout=10)
        if process.stdout is not None:
            process.stdout.close()
