"""Measures the cost of following a run: CPU of the live page's server with no viewer, one, twenty, and twenty of whom
half stall; and how long a browser takes to open the page of a run of 500 trials.

Meanwhile a run of the reference subject goes on (trials of 10 s); the server is the process that `--live` starts."""

from __future__ import annotations

import os
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks import kept_lines
from benchmarks.analysis import BLOCKS, SETTINGS, large_run, openings_s
from benchmarks.pairs import HEAD, figure, spread

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
SETTLE_S, WATCH_S = 5.0, 40.0
PERCENT_MOST = 1.0
CASES = (("nobody", 0, 0), ("one viewer", 1, 0), ("20 viewers", 20, 0), ("20 viewers, 10 of whom stall", 20, 10))


def cost(engine: str, pairs: int) -> Iterator[str]:
    starts, firsts, trials = [], [], []
    shares: dict[str, list[float]] = {name: [] for name, *_ in CASES}
    sent: dict[str, list[float]] = {name: [] for name, *_ in CASES}
    for _ in range(pairs):
        with tempfile.TemporaryDirectory(prefix="powerband-bench-") as folder, _run(engine, Path(folder)) as run:
            with _server(run) as (address, pid):
                starts.append(_cpu_s(pid))
                firsts.append(_first_state(address, pid))
                for name, viewers, stalled in CASES:
                    share, per_s = _watched(address, pid, viewers, stalled)
                    shares[name].append(share)
                    sent[name].append(per_s)
            trials.append(len(list((run / "trials").glob("*/record.json"))))
    yield "| who watches | of one core | bytes to each a second | at most | |"
    yield "|---|---|---|---|---|"
    for name, viewers, _ in CASES:
        yield viewers_row(name, shares[name], sent[name], promised=viewers == 1)
    yield f"\n{spread(trials).text('.0f')} trials ended meanwhile\n"
    yield HEAD
    yield figure("to start, once", starts, "CPU s", ".2f")
    yield figure("from there to the first state, once", firsts, "CPU s", ".2f")
    yield from _opening(engine, pairs)


@kept_lines.row
def viewers_row(name: str, percent: Sequence[float], bytes_per_s: Sequence[float], promised: bool) -> str:
    """A line of the table: CPU of the page's server, and what each viewer received."""
    found = spread(percent)
    target, verdict = (f"{PERCENT_MOST:g} %", found.verdict(at_most=PERCENT_MOST)) if promised else ("", "")
    return f"| {name} | {found.text('.2f')} % | {spread(bytes_per_s).text(',.0f')} | {target} | {verdict} |"


def _opening(engine: str, pairs: int) -> Iterator[str]:
    """The page of a large run, opened twice on each freshly started server, which reads the run at the first
    opening."""
    opened = []
    with tempfile.TemporaryDirectory(prefix="powerband-bench-") as folder:
        large = large_run(engine, Path(folder), SETTINGS, BLOCKS)
        for _ in range(pairs):
            with _server(large.path) as (address, _):
                opened.append(openings_s(address, 2))
    if not all(opened):
        yield "\nskipped: no Chromium on PATH"
        return
    yield figure(f"first paint of {SETTINGS * BLOCKS} trials", [first[0] for first, _ in opened], "s", ".2f")
    yield figure("all there, the first time", [first[1] for first, _ in opened], "s", ".2f")
    yield figure("all there, the second time", [second[1] for _, second in opened], "s", ".2f")


def _first_state(address: str, pid: int) -> float:
    """CPU seconds until a first viewer has received the state of the run; libraries are loaded until then."""
    parts = urlsplit(address)
    before = _cpu_s(pid)
    with socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 80)) as connection:
        connection.sendall(f"GET {parts.path}events HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
        said = b""
        while b"data: " not in said:
            said += connection.recv(1 << 16)
    return _cpu_s(pid) - before


def _watched(address: str, pid: int, viewers: int, stalled: int) -> tuple[float, float]:
    """Percent of one core over the time, and the bytes that each reading viewer received per second."""
    parts = urlsplit(address)
    host, port = parts.hostname or "127.0.0.1", parts.port or 80
    ask = f"GET {parts.path}events HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()
    sockets = []
    with selectors.DefaultSelector() as selector:
        for number in range(viewers):
            connection = socket.create_connection((host, port))
            connection.sendall(ask)
            sockets.append(connection)
            if number >= stalled:
                connection.setblocking(False)
                selector.register(connection, selectors.EVENT_READ)
        _read(selector, SETTLE_S)
        before, began = _cpu_s(pid), time.monotonic()
        got = _read(selector, WATCH_S)
        share = (_cpu_s(pid) - before) / (time.monotonic() - began) * 100
    for connection in sockets:
        connection.close()
    return share, got / WATCH_S / max(1, viewers - stalled)


def _read(selector: selectors.BaseSelector, seconds: float) -> int:
    deadline, got = time.monotonic() + seconds, 0
    while (left := deadline - time.monotonic()) > 0:
        if not selector.get_map():
            time.sleep(left)
            continue
        for key, _ in selector.select(left):
            assert isinstance(key.fileobj, socket.socket)
            piece = key.fileobj.recv(1 << 16)
            got += len(piece)
            if not piece:
                selector.unregister(key.fileobj)
    return got


@contextmanager
def _run(engine: str, folder: Path) -> Iterator[Path]:
    """A run that goes on for longer than all cases together."""
    environment = {**os.environ, "POWERBAND_ENGINE": engine}
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "powerband", "tune", "-P", "threads=2,4,8,16", "--order", "blocks"),
            *("--repeats", "6", "--duration", "10s", "--warmup", "1s", "--no-progress", "--runs", str(folder / "runs")),
            *("--", engine, "serve", "--model", "fixed", "--threads", "{threads}", "--wait", "5ms", "--port", "{port}"),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    try:
        while not (found := list(folder.glob("runs/*/plan.jsonl"))):
            if process.poll() is not None:
                raise RuntimeError(f"the run ended with {process.returncode} before its first trial")
            time.sleep(0.1)
        yield found[0].parent
    finally:
        process.terminate()
        process.wait()


@contextmanager
def _server(run: Path) -> Iterator[tuple[str, int]]:
    """The process that `--live` starts: its address and pid."""
    process = subprocess.Popen(
        [sys.executable, "-m", "powerband.live", str(run)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        yield process.stdout.readline().strip(), process.pid
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S
