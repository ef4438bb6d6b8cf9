"""Measures the share of the engine's CPU that is its own: CPU spent outside of the kernel, of everything that a request
costs.

The source is the kernel's accounting of user and system time (getrusage(2)), libraries included; a profile of the
engine's functions alone would show less."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.generators import ours
from benchmarks.http import GENERATOR_CPUS, SERVER, SERVER_CPUS
from benchmarks.pairs import HEAD, figure
from benchmarks.server import reference


def shares(engine: str, pairs: int) -> Iterator[str]:
    """Percent of the engine's CPU in user mode, under keep-alive requests as in section `http`. No target."""
    generator = ours(engine)
    yield HEAD
    with reference(engine, SERVER_CPUS, *SERVER) as (port, _):
        for connections in (64, 10_000):
            used = [generator.usage(port, connections, GENERATOR_CPUS) for _ in range(pairs)]
            percent = [usage.user_s / usage.cpu_s * 100 for usage in used]
            yield figure(f"in user mode, {connections:,} connections", percent, "% of its CPU", ".1f")
