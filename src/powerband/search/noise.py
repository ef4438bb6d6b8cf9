"""Measures the noise of this machine, in about 5 s: wake-ups, timers, CPU speed, steal, other programs.

In: nothing. Out: `MachineNoise`, figures only; `powerband.doctor` judges them. A short-lived child process answers the
wake-ups; it imports nothing from the current folder (`-I`).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np

PING_PONGS = 2000  # some 0.1 s: the 99th percentile rests on twenty of them
SLEEPS = 400  # 0.4 s: the 99th percentile rests on four of them
SPINS = 60  # half a second with SPIN_STEPS: a standard deviation of sixty values is known to 10 %
SPIN_STEPS = 150_000  # some 8 ms: above a tick of the kernel, so that a single interrupt does not double it
IDLE_S = 1.0  # a hundred of the kernel's ticks of CPU time
ECHO = "import os\nwhile os.read(0, 1): os.write(1, b'x')"


@dataclass(frozen=True)
class MachineNoise:
    """The noise of this machine: times in ns, shares of all CPU time. `wake_ns_p50`, `wake_ns_p99`: from waking a
    thread until it runs; `timer_late_ns_p50`, `timer_late_ns_p99`: how late sleeps of 1 ms end. `steal_share`: CPU time
    that the hypervisor took; `foreign_share`: that of other programs. `speed_sd`: relative standard deviation of the
    time of a fixed piece of work; `speed_worst`: by which share the slowest was slower than the median."""

    wake_ns_p50: float
    wake_ns_p99: float
    timer_late_ns_p50: float
    timer_late_ns_p99: float
    speed_sd: float
    speed_worst: float
    steal_share: float
    foreign_share: float


def probe_noise() -> MachineNoise:
    """Measures the noise of this machine, for about 5 s. Steal and other programs are counted on the CPUs that this
    process may use."""
    allowed = os.sched_getaffinity(0)
    before = cpu_times(cpus=allowed)
    wake, late, spins = wake_ups_ns(), timer_lateness_ns(), spin_times_ns()
    after = cpu_times(cpus=allowed)
    idle_before = cpu_times(cpus=allowed)
    time.sleep(IDLE_S)
    idle_after = cpu_times(cpus=allowed)
    middle = float(np.median(spins))
    return MachineNoise(
        wake_ns_p50=float(np.quantile(wake, 0.5)),
        wake_ns_p99=float(np.quantile(wake, 0.99)),
        timer_late_ns_p50=float(np.quantile(late, 0.5)),
        timer_late_ns_p99=float(np.quantile(late, 0.99)),
        speed_sd=float(np.std(spins, ddof=1)) / middle,
        speed_worst=1 - middle / max(spins),
        steal_share=_share(before, after, "steal"),
        foreign_share=_share(idle_before, idle_after, "busy"),
    )


def wake_ups_ns() -> list[float]:
    """Half the round-trip time of a byte to another process and back: each half wakes a sleeping thread."""
    with subprocess.Popen([sys.executable, "-I", "-c", ECHO], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as echo:
        assert echo.stdin is not None and echo.stdout is not None
        to, back = echo.stdin.fileno(), echo.stdout.fileno()
        os.write(to, b"x")
        os.read(back, 1)
        times = []
        for _ in range(PING_PONGS):
            start = time.monotonic_ns()
            os.write(to, b"x")
            os.read(back, 1)
            times.append((time.monotonic_ns() - start) / 2)
        echo.stdin.close()
    return times


def timer_lateness_ns() -> list[float]:
    """The lateness in ns of each sleep of 1 ms."""
    late = []
    for _ in range(SLEEPS):
        start = time.monotonic_ns()
        time.sleep(0.001)
        late.append(float(time.monotonic_ns() - start - 1_000_000))
    return late


def spin_times_ns() -> list[float]:
    """Durations in ns of a fixed piece of work, repeated on one thread."""
    times = []
    for _ in range(SPINS):
        start = time.monotonic_ns()
        total = 0
        for step in range(SPIN_STEPS):
            total += step
        times.append(float(time.monotonic_ns() - start))
    return times


def cpu_times(stat: Path = Path("/proc/stat"), cpus: Collection[int] = ()) -> dict[str, float]:
    """Ticks since boot: `busy`, `idle`, `steal`. Counts only the CPUs in `cpus`, if any of them is listed; otherwise
    all CPUs."""
    rows = [line.split() for line in stat.read_text().splitlines() if line.startswith("cpu")]
    named = {f"cpu{cpu}" for cpu in cpus}
    chosen = [row for row in rows if row[0] in named] or rows[:1]
    columns = zip(*(([float(value) for value in row[1:]] + [0.0] * 8)[:8] for row in chosen), strict=True)
    user, nice, system, idle, iowait, irq, softirq, steal = map(sum, columns)
    return {"busy": user + nice + system + irq + softirq, "idle": idle + iowait, "steal": steal}


def _share(before: dict[str, float], after: dict[str, float], name: str) -> float:
    grown = {key: after[key] - before[key] for key in before}
    return grown[name] / max(1.0, sum(grown.values()))
