"""Measures what counting costs the subject: CPU of a context switch with and without the probe's perf events.

Two processes pass a byte to and fro through pipes on CPU 1, in alternating pairs under a probe on CPU 0 that counts
their switches (`exact_counts`) or does not. The CPU is that of both processes, user and kernel, as they read it
themselves (times(2)) once both have ended."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.pairs import HEAD, figure, in_pairs
from powerband.wire.message import encode
from powerband.wire.specs import Launch, ProbeSpec

ROUND_TRIPS = 400_000
PROBE_CPU, SUBJECT_CPU = (0,), (1,)
PASSING = """
import os, sys
trips = int(sys.argv[1])
there, back = os.pipe(), os.pipe()
child = os.fork()
take, give = (there[0], back[1]) if child == 0 else (back[0], there[1])
for _ in range(trips):
    if child:
        os.write(give, b"x")
    os.read(take, 1)
    if not child:
        os.write(give, b"x")
if not child:
    os._exit(0)
os.waitpid(child, 0)
print("us a switch:", sum(os.times()[:4]) / (2 * trips) * 1e6, flush=True)
"""


def cost(engine: str, pairs: int) -> Iterator[str]:
    found = in_pairs(lambda: switch_us(engine, exact=True), lambda: switch_us(engine, exact=False), pairs)
    yield HEAD
    yield figure("not counted", [without for _, without in found], "us a switch", ".2f")
    yield figure("counted", [counted for counted, _ in found], "us a switch", ".2f")
    yield figure("counting adds", [counted - without for counted, without in found], "us a switch", ".2f")


def switch_us(engine: str, *, exact: bool, trips: int = ROUND_TRIPS) -> float:
    """CPU us per switch; a round trip has two switches. Raises RuntimeError if the programs do not end."""
    with tempfile.TemporaryDirectory(prefix="powerband-bench-") as folder:
        log = Path(folder) / "log"
        argv = (sys.executable, "-c", PASSING, str(trips))
        launch = Launch(name="subject", argv=argv, log_file=str(log), cpus=SUBJECT_CPU)
        spec = ProbeSpec(launch=launch, exact_counts=exact, interval_ns=10**9, cpus=PROBE_CPU)
        with tempfile.TemporaryFile() as lines:
            process = subprocess.Popen([engine, "probe"], stdin=subprocess.PIPE, stdout=lines)
            assert process.stdin is not None
            try:
                process.stdin.write(encode(spec))
                process.stdin.flush()
                return _told(log, process)
            finally:
                process.stdin.close()
                process.wait(timeout=10)


def _told(log: Path, probe: subprocess.Popen[bytes]) -> float:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and probe.poll() is None:
        if log.is_file() and "us a switch:" in (text := log.read_text()) and text.endswith("\n"):
            return float(text.rpartition(":")[2])
        time.sleep(0.05)
    raise RuntimeError(f"the two processes told of nothing: {log.read_text() if log.is_file() else 'no log'}")
