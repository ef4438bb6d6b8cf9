"""What the control plane costs: CPU of the Python process while trials measure, and the time between trials."""

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

from benchmarks.pairs import met
from powerband.store import RunDir

TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def cost(engine: str, pairs: int) -> Iterator[str]:
    del pairs
    with tempfile.TemporaryDirectory(prefix="powerband-bench-") as folder:
        samples = _run_and_sample(engine, Path(folder))
        runs = list(Path(folder).glob("runs/*"))
        records = RunDir.open(runs[0]).records()
    used, watched = 0.0, 0.0
    for record in records:
        start, end = record.phases["measure"] / 1e9, record.phases["drain"] / 1e9
        used += _cpu_at(samples, end) - _cpu_at(samples, start)
        watched += end - start
    share = used / watched * 100
    gaps = [(later.phases["launched"] - earlier.phases["end"]) / 1e9 for earlier, later in itertools.pairwise(records)]
    yield f"{share:.2f} % of one core over {watched:.0f} s of measuring; target under 2 %: {met(share < 2)}"
    gap, worst = statistics.median(gaps), max(gaps)
    yield f"{gap:.3f} s from the end of one trial to the launch of the next (worst {worst:.3f}); {met(worst < 1)}"


def _run_and_sample(engine: str, folder: Path) -> list[tuple[float, float]]:
    """(monotonic s, CPU s so far) of the control plane, ten times a second, over one short run."""
    environment = {**os.environ, "POWERBAND_ENGINE": engine}
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "powerband", "run", "quickstart", "--profile", "smoke"),
            *("--set", "load.duration=5s", "--runs", str(folder / "runs")),
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
    """The last sample at or before `at`."""
    return max((cpu for time_s, cpu in samples if time_s <= at), default=0.0)
