"""Measures the cost of watching: the probe's own CPU while it samples a server with 1,000 threads ten times a
second."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.pairs import HEAD, figure, run
from benchmarks.server import reference

SECONDS = 10
PERCENT_MOST = 2.0


def cost(engine: str, pairs: int) -> Iterator[str]:
    """Percent of one core from the start of each probe on, which includes the first reading of all threads."""
    with reference(engine, {1}, "--model", "fixed", "--threads", "1000", "--wait", "100ms") as (port, pid):
        load = [engine, "load", f"http://127.0.0.1:{port}/", "-c", "1000", "-t", "1", "-d", "2s", "--json"]
        run(load, {1})  # every pool thread has been used once
        watch = [engine, "probe", "--pid", str(pid), "--interval", "100ms", "-d", f"{SECONDS}s"]
        used = [run(watch, {0}) for _ in range(pairs)]
    yield HEAD
    percent = [usage.cpu_s / usage.wall_s * 100 for usage in used]
    yield figure(
        f"the monitor on a server with 1,000 threads, {SECONDS} s",
        percent,
        "% of one core",
        ".2f",
        at_most=PERCENT_MOST,
    )
