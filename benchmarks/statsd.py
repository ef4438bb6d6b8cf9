"""Measures the StatsD sink: counter updates per second that one core accepts, from packets filled as client libraries
fill them.

A sender on CPU 0 sends without a pause to a sink on CPU 1. The CPU of the sink's whole process counts, user and kernel;
packets that the kernel dropped are not counted as updates."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

from benchmarks import kept_lines
from benchmarks.control_plane import TICK_S
from benchmarks.generators import PEERS
from benchmarks.pairs import spread, which
from powerband.trials.trial import pinned_to

SENDER_CPU, SINK_CPU = (0,), (1,)
SECONDS = 3.0
TARGET_PER_S = 1_000_000
NAME = "application.service.received"
PLAIN = "\n".join(f"{NAME}.{nth % 8}:1|c" for nth in range(40)).encode()
TAGGED = "\n".join(f"application.received:1|c|#worker:{nth % 8}" for nth in range(40)).encode()
ALONE = f"{NAME}.0:1|c".encode()


@dataclass(frozen=True)
class Taken:
    """One run: packets sent, read and dropped, updates accepted, and the sink's CPU."""

    sent: int
    read: int
    dropped: int | None
    updates: int
    cpu_s: float
    wall_s: float


def updates_per_core(engine: str, pairs: int) -> Iterator[str]:
    cases: list[tuple[str, str, Callable[[], Taken], bool]] = [
        ("powerband", "40 updates, 1,399 bytes, UDP", partial(_ours, engine, PLAIN, unix=False), True),
        ("powerband", "40 updates with tags, 1,399 bytes, UDP", partial(_ours, engine, TAGGED, unix=False), True),
        ("powerband", "40 updates, 1,399 bytes, Unix", partial(_ours, engine, PLAIN, unix=True), True),
        ("powerband", "1 update, UDP", partial(_ours, engine, ALONE, unix=False), False),
    ]
    node, program = which("node", PEERS / "bin"), PEERS / "statsd" / "node_modules" / "statsd" / "stats.js"
    if node is None or not program.is_file():
        yield "skipped: statsd is not installed: run `make bench-peers`"
    else:
        version = json.loads((program.parent / "package.json").read_text())["version"]
        sink = f"statsd {version} (Node)"
        cases.append((sink, "40 updates, 1,399 bytes, UDP", partial(_theirs, node, program), False))
    taken = [[take() for _, _, take, _ in cases] for _ in range(pairs)]
    yield "| sink | packets | sent/s | read/s | lost | updates/s | of a core | updates/s per core | at least | |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for (sink, what, _, promised), runs in zip(cases, zip(*taken, strict=True), strict=True):
        yield sink_row(sink, what, runs, promised)


@kept_lines.row
def sink_row(sink: str, what: str, taken: Sequence[Taken], promised: bool) -> str:
    """A table row with the medians of the runs. Raises RuntimeError if the packets of a run were not all accounted
    for."""
    for one in taken:
        if one.dropped is not None and one.read + one.dropped != one.sent:
            raise RuntimeError(f"{what}: {one.sent} sent, but {one.read} read and {one.dropped} dropped")
    sent, read, updates, core = (
        spread([count / one.wall_s for one, count in zip(taken, counts, strict=True)]).middle
        for counts in zip(*((one.sent, one.read, one.updates, one.cpu_s) for one in taken), strict=True)
    )
    lost = spread([100 * (1 - one.read / one.sent) for one in taken]).middle
    per_core = spread([one.updates / one.cpu_s for one in taken])
    target, verdict = (f"{TARGET_PER_S:,}", per_core.verdict(at_least=TARGET_PER_S)) if promised else ("", "")
    return (
        f"| {sink} | {what} | {sent:,.0f} | {read:,.0f} | {lost:.1f} % | {updates:,.0f} | {core:.2f} "
        f"| {per_core.text(',.0f')} | {target} | {verdict} |"
    )


def _ours(engine: str, packet: bytes, *, unix: bool) -> Taken:
    with tempfile.TemporaryDirectory(prefix="powerband-bench-") as folder:
        port = _free_port()
        path = str(Path(folder) / "sink")
        where = {"unix": path} if unix else {"udp": f"127.0.0.1:{port}"}
        # Sampling the host once an hour costs nothing.
        spec = {"protocol": 1, "interval_ns": 3600 * 10**9, "statsd": where}
        with pinned_to(SINK_CPU):
            process = subprocess.Popen(
                [engine, "probe"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
            )
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(spec) + "\n")
        process.stdin.flush()
        _wait_for(process.stdout, "sample")
        sender = _connected(socket.AF_UNIX, path) if unix else _connected(socket.AF_INET, ("127.0.0.1", port))
        sent, wall_s = _send(sender, packet)
        process.stdin.write('{"type": "stop"}\n')
        process.stdin.flush()
        events = [json.loads(line) for line in process.stdout]
        process.stdin.close()
        process.wait(timeout=10)
    last = [event for event in events if event["type"] == "statsd"][-1]
    cpu_s = next(event["cpu_ns"] for event in events if event["type"] == "end") / 1e9
    return Taken(sent, last["packets"], last["dropped"], last["updates"], cpu_s, wall_s)


def _wait_for(lines: IO[str], kind: str) -> None:
    for line in lines:
        event = json.loads(line)
        if event["type"] == kind:
            return
        if event["type"] == "error":
            raise RuntimeError(event["message"])
    raise RuntimeError(f"the probe ended without a {kind}")


def _connected(family: int, address: Any) -> socket.socket:
    sender = socket.socket(family, socket.SOCK_DGRAM)
    sender.connect(address)
    return sender


def _send(sender: socket.socket, packet: bytes) -> tuple[int, float]:
    """The number of packets sent, and the time taken in seconds."""
    sent, send = 0, sender.send
    with sender, pinned_to(SENDER_CPU):
        start = time.monotonic()
        while time.monotonic() < start + SECONDS:
            for _ in range(1000):
                send(packet)
            sent += 1000
        return sent, time.monotonic() - start


def _free_port(kind: int = socket.SOCK_DGRAM) -> int:
    with socket.socket(type=kind) as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _theirs(node: str, program: Path) -> Taken:
    """The result of statsd itself, on Node, with only its console as a backend."""
    with _statsd(node, program) as (process, port, output):
        before_s = _cpu_s(process.pid)
        sent, wall_s = _send(_connected(socket.AF_INET, ("127.0.0.1", port)), PLAIN)
        updates = _settled(output)
        cpu_s = _cpu_s(process.pid) - before_s
    return Taken(sent, updates // 40, None, updates, cpu_s, wall_s)


@contextmanager
def _statsd(node: str, program: Path) -> Iterator[tuple[subprocess.Popen[bytes], int, Callable[[], str]]]:
    with tempfile.TemporaryDirectory(prefix="powerband-bench-") as folder:
        port, log, config = _free_port(), Path(folder) / "log", Path(folder) / "config.js"
        config.write_text(
            f"{{port: {port}, address: '127.0.0.1', mgmt_port: {_free_port(socket.SOCK_STREAM)}, "
            "mgmt_address: '127.0.0.1', flushInterval: 1000, backends: ['./backends/console'], "
            "console: {prettyprint: false}, automaticConfigReload: false}\n"
        )
        with log.open("wb") as out, pinned_to(SINK_CPU):
            process = subprocess.Popen([node, str(program), str(config)], stdout=out, stderr=out)
        try:
            deadline = time.monotonic() + 20
            while "Flushing stats" not in log.read_text():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"statsd does not run: {log.read_text()[-400:]}")
                time.sleep(0.1)
            yield process, port, log.read_text
        finally:
            process.terminate()
            process.wait(timeout=10)


def _settled(output: Callable[[], str]) -> int:
    """The number of updates counted by statsd once two flushes brought nothing more."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        flushes = [_counted(text) for text in output().split("Flushing stats at")[1:-1]]
        if sum(flushes) > 0 and len(flushes) > 2 and sum(flushes[-2:]) == 0:
            return sum(flushes)
        time.sleep(0.2)
    raise RuntimeError(f"statsd told of no count: {output()[-400:]}")


def _counted(flush: str) -> int:
    """The counters of one flush; the rates, which follow, have the same names."""
    counters = flush.partition("counters: {")[2].partition("}")[0]
    return sum(int(count) for count in re.findall(rf"'{re.escape(NAME)}\.\d': (\d+)", counters))


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S
