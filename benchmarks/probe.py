"""What watching costs: the probe's own CPU while it samples a server with 1,000 threads ten times a second."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.pairs import met, run
from benchmarks.server import reference


def cost(engine: str, pairs: int) -> Iterator[str]:
    seconds = 10
    with reference(engine, {1}, "--model", "fixed", "--threads", "1000", "--wait", "100ms") as (port, pid):
        load = [engine, "load", f"http://127.0.0.1:{port}/", "-c", "1000", "-t", "1", "-d", "2s", "--json"]
        run(load, {1})  # every pool thread has been used once
        shares = []
        for _ in range(min(pairs, 3)):
            usage = run([engine, "probe", "--pid", str(pid), "--interval", "100ms", "-d", f"{seconds}s"], {0})
            shares.append(usage.cpu_s / usage.wall_s * 100)
    shares.sort()
    share = shares[len(shares) // 2]
    yield f"{share:.2f} % of one core with 1,000 threads; target under 2 %: {met(share < 2)}"
