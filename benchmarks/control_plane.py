"""Measures the cost of the control plane: CPU of the Python process while trials measure, and the time between
trials."""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.pairs import HEAD, figure
from powerband.store import RunDir

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
PERCENT_MOST, GAP_S_MOST = 2.0, 1.0


def cost(engine: str, pairs: int) -> Iterator[str]:
    """The figures of each run: CPU in all measured windows, then the median and the longest time between two trials."""
    percent, gaps, longest = zip(*(_of_a_run(engine) for _ in range(pairs)), strict=True)
    yield HEAD
    yield figure("control plane while trials measure", percent, "% of one core", ".2f", at_most=PERCENT_MOST)
    yield figure("from the end of a trial to the launch of the next", gaps, "s", ".3f")
    yield figure("the longest of a run", longest, "s", ".3f", at_most=GAP_S_MOST)


def _of_a_run(engine: str) -> tuple[float, float, float]:
    with tempfile.TemporaryDirectory(prefix="powerband-bench-") as folder:
        samples = _run_and_sample(engine, Path(folder))
        runs = list(Path(folder).glob("runs/*"))
        records = RunDir.open(runs[0]).records()
    used, watched = 0.0, 0.0
    for record in records:
        start, end = record.phases["measure"] / 1e9, record.phases["drain"] / 1e9
        used += _cpu_at(samples, end) - _cpu_at(samples, start)
        watched += end - start
    gaps = [(later.phases["launched"] - earlier.phases["end"]) / 1e9 for earlier, later in itertools.pairwise(records)]
    return used / watched * 100, statistics.median(gaps), max(gaps)


def _run_and_sample(engine: str, folder: Path) -> list[tuple[float, float]]:
    """(monotonic s, CPU s so far) of the control plane, ten times a second, over one short run. Its users pause, so
    that no look at slots, which takes two seconds, comes between trials."""
    environment = {**os.environ, "POWERBAND_ENGINE": engine}
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "powerband", "run", "quickstart", "--profile", "smoke"),
            *("--set", "load.duration=5s", "--set", "load.think=1ms", "--runs", str(folder / "runs")),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    samples = []
    while process.poll() is None:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        samples.append((time.monotonic(), (int(fields[11]) + int(fields[12])) * TICK_S))
        time.sleep(0.1)
    return samples


def _cpu_at(samples: list[tuple[float, float]], at: float) -> float:
    """The CPU of the last sample at or before `at`."""
    return max((cpu for time_s, cpu in samples if time_s <= at), default=0.0)
