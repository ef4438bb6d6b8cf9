"""Measures the CPU that the bench itself takes in a trial, control plane and probes together. The server starts a
thread for each connection and each connection serves one request, which is the most expensive case to watch."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.pairs import HEAD, figure
from benchmarks.sweeps import sweep
from powerband.processes.stop_request import StopRequest

PERCENT_MOST = 3.0
RATE_PER_S, WAIT_MS = 3_400, 700
EXPERIMENT = f"""
name: bench-share
subject: {{use: reference, set: {{model: thread-per-connection, wait: {WAIT_MS}ms}}}}
factors: {{aa: [1]}}
load: {{rate: {RATE_PER_S}/s, keep_alive: false, duration: 10s, drain: 3s}}
measure: {{warmup: 3s, repeats: {{repeats}}, retries: 0}}
design: {{order: blocks}}
"""


def cost(engine: str, pairs: int) -> Iterator[str]:
    """Yields `bench_cpu_cores` of each trial, whether or not the machine was quiet enough for it to be valid."""
    with tempfile.TemporaryDirectory(prefix="powerband-bench-") as folder, StopRequest.on_signals() as stop:
        text = EXPERIMENT.replace("{repeats}", str(pairs))
        trials = sweep(text, Path(folder), stop, engine=engine, seed=1).analysis.trials
    found = [trial.metrics for trial in trials if "bench_cpu_cores" in trial.metrics]
    if len(found) < pairs:
        yield f"{pairs - len(found)} of {pairs} starts told of nothing"
    if not found:
        return
    yield HEAD
    yield figure("new threads", [one["threads_started_per_s"] for one in found], "a second", ",.0f")
    yield figure("threads alive", [one["threads_max"] for one in found], "", ",.0f")
    percent = [100 * one["bench_cpu_cores"] for one in found]
    yield figure("control plane and probes", percent, "% of one core", ".2f", at_most=PERCENT_MOST)
