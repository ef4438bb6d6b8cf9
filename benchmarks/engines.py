"""Compares two engine binaries in alternating pairs: the cost of a change of the engine per request, message and
answer."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.generators import ours
from benchmarks.http import GENERATOR_CPUS, SERVER, SERVER_CPUS
from benchmarks.pairs import compare, row
from benchmarks.server import reference
from benchmarks.websocket import ECHO, message_us

OTHER = "POWERBAND_OTHER_ENGINE"
AT_MOST = 1.02


def against_other(engine: str, pairs: int) -> Iterator[str]:
    """CPU of this engine divided by that of the binary named by the environment, on one server of the other binary."""
    other = os.environ.get(OTHER)
    if other is None:
        yield f"skipped: {OTHER} names no second binary to compare with"
        return
    yield "| work | connections | this us | other us | ratio | at most | |"
    yield "|---|---|---|---|---|---|---|"
    with reference(other, SERVER_CPUS, *SERVER) as (port, _):
        for connections, extra in ((64, ()), (1_000, ()), (10_000, ()), (64, ("--pipeline", "16"))):
            costs = [
                partial(ours(binary, extra=extra).cpu_us_per_request, port, connections, GENERATOR_CPUS)
                for binary in (engine, other)
            ]
            name = "HTTP, pipelined 16" if extra else "HTTP"
            yield row(name, connections, compare(costs[0], costs[1], pairs), AT_MOST)
    with reference(other, SERVER_CPUS, *ECHO) as (port, _):
        result = compare(partial(message_us, engine, port), partial(message_us, other, port), pairs)
        yield row("WebSocket", 100, result, AT_MOST)
    result = compare(_answered_by(engine, other), _answered_by(other, other), pairs)
    yield row("reference server", 64, result, AT_MOST)


def _answered_by(server: str, client: str) -> Callable[[], float]:
    """CPU us per request of `server` as the reference server, loaded by `client`."""

    def cost() -> float:
        with reference(server, SERVER_CPUS, *SERVER) as (port, pid):
            generator = ours(client)
            before = _cpu_ticks(pid)
            told = generator.requests(generator.usage(port, 64, GENERATOR_CPUS))
            return (_cpu_ticks(pid) - before) / os.sysconf("SC_CLK_TCK") / told * 1e6

    return cost


def _cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
