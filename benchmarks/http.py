"""Measures HTTP load: CPU per request against peers, memory per connection, lateness against CPU in the open loop."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from hdrh.histogram import HdrHistogram

from benchmarks import kept_lines
from benchmarks.generators import Generator, ours, peers, summary
from benchmarks.pairs import HEAD, Comparison, compare, figure, row, run, spread
from benchmarks.server import reference

GENERATOR_CPUS, SERVER_CPUS = {0}, {1}
SERVER = ("--model", "event-loop", "--threads", "1")
AT_MOST = {"wrk": 0.85, "oha": 0.6, "k6": 1 / 7, "JMeter": 1 / 12}
PIPELINED_AT_MOST = 0.75
CONNECTION_BYTES_MOST = 2048
CONNECTIONS = 10_000
DEFAULT, TIMER = "100us", "1ns"
LATE_US_MOST = 200.0


def cpu_per_request(engine: str, pairs: int) -> Iterator[str]:
    """Engine CPU per keep-alive request, one thread, every response time recorded, against each peer."""
    installed, missing = peers()
    yield from (f"skipped: {sentence}" for sentence in missing)
    yield "| against | connections | ours us | theirs us | ratio | at most | |"
    yield "|---|---|---|---|---|---|---|"
    with reference(engine, SERVER_CPUS, *SERVER) as (port, _):
        for peer in installed:
            for connections in (64, 1_000, 10_000) if peer.name == "wrk" else (64,):
                result = _against(ours(engine), peer, port, connections, pairs)
                yield row(peer.name, connections, result, AT_MOST[peer.name])
        wrk = next((peer for peer in installed if peer.name == "wrk"), None)
        if wrk is not None:
            result = _against(ours(engine, extra=("--pipeline", "16")), _pipelined(wrk), port, 64, pairs)
            yield row("wrk, pipelined 16", 64, result, PIPELINED_AT_MOST)


def memory_per_connection(engine: str, pairs: int) -> Iterator[str]:
    """(peak resident set at 10,000 connections - at 1) / 9,999, as the engine reads its own VmHWM."""
    with reference(engine, SERVER_CPUS, *SERVER) as (port, _):
        found = [(_peak_bytes(engine, port, 1), _peak_bytes(engine, port, CONNECTIONS)) for _ in range(pairs)]
    yield HEAD
    yield figure("peak at 1 connection", [one / 2**20 for one, _ in found], "MiB", ".1f")
    yield figure(f"peak at {CONNECTIONS:,}", [many / 2**20 for _, many in found], "MiB", ".1f")
    each = [(many - one) / (CONNECTIONS - 1) for one, many in found]
    yield figure("of a connection", each, "bytes", ",.0f", at_most=CONNECTION_BYTES_MOST)


def _peak_bytes(engine: str, port: int, connections: int) -> int:
    return int(summary(run(ours(engine).argv(port, connections, 4), GENERATOR_CPUS))["max_rss_bytes"])


def open_loop(engine: str, pairs: int) -> Iterator[str]:
    """20,000 constant arrivals per second: send lag and CPU per request by `precision`; each round runs all of them."""
    rate, seconds = 20_000, 4
    yield "| precision | send lag p50 us | p99 us | p99.9 us | CPU us a request |"
    yield "|---|---|---|---|---|"
    precisions = ("0ns", TIMER, "50us", DEFAULT, "200us", "1ms")
    rows: dict[str, list[tuple[float, ...]]] = {precision: [] for precision in precisions}
    with reference(engine, SERVER_CPUS, *SERVER) as (port, _):
        for _ in range(pairs):
            for precision in precisions:
                options = ("-r", str(rate), "--precision", precision)
                usage = run(ours(engine, extra=options).argv(port, 64, seconds), GENERATOR_CPUS)
                result = summary(usage)
                lag = HdrHistogram.decode(result["cohort_times"]["send_lag_ns"])
                quantiles = [lag.get_value_at_percentile(p) / 1e3 for p in (50, 99, 99.9)]
                rows[precision].append((*quantiles, usage.cpu_s / result["total"]["outcomes"]["ok"] * 1e6))
    for precision, figures in rows.items():
        yield precision_row(precision, *map(list, zip(*figures, strict=True)))
    yield "\n0ns spins the last stretch, 1ns is a timer for each request\n"
    yield HEAD
    late = [figures[1] for figures in rows[DEFAULT]]
    yield figure(f"send lag p99, precision {DEFAULT} (the default)", late, "us", ".1f", at_most=LATE_US_MOST)
    share = [mine[-1] / timer[-1] for mine, timer in zip(rows[DEFAULT], rows[TIMER], strict=True)]
    yield figure(f"its CPU, of that with {TIMER}", share, "", ".3f", at_most=1.0)


@kept_lines.row
def precision_row(
    precision: str, p50_us: Sequence[float], p99_us: Sequence[float], p999_us: Sequence[float], cpu_us: Sequence[float]
) -> str:
    """A line of the open loop: send lag and CPU per request of every round."""
    cells = [spread(column).text(".1f") for column in (p50_us, p99_us, p999_us, cpu_us)]
    return f"| {precision} | " + " | ".join(cells) + " |"


def _against(mine: Generator, peer: Generator, port: int, connections: int, pairs: int) -> Comparison:
    return compare(
        lambda: mine.cpu_us_per_request(port, connections, GENERATOR_CPUS),
        lambda: peer.cpu_us_per_request(port, connections, GENERATOR_CPUS),
        pairs,
    )


def _pipelined(wrk: Generator) -> Generator:
    script = Path(tempfile.mkdtemp(prefix="powerband-wrk-")) / "pipeline.lua"
    script.write_text(
        "init = function(args)\n  local r = {}\n  for i = 1, 16 do r[i] = wrk.format() end\n"
        "  req = table.concat(r)\nend\nrequest = function() return req end\n"
    )
    return Generator(wrk.name, lambda port, c, s: [*wrk.argv(port, c, s), "-s", str(script)], wrk.requests, wrk.seconds)
