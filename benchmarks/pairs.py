"""Runs commands in alternating pairs and accounts for each by the kernel's figures (wait4 of the finished process)."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from powerband.trials.trial import pinned_to


@dataclass(frozen=True)
class Usage:
    """One finished command: CPU of the process and its waited-for children, and its stdout."""

    cpu_s: float
    wall_s: float
    stdout: str


def run(argv: Sequence[str], cpus: set[int], stdin: str = "", timeout_s: float = 300) -> Usage:
    """Runs `argv` on `cpus` to its end, of which its standard input stays open: an engine takes its end for that of its
    controller. Raises RuntimeError where it fails, with the end of its stderr."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        start = time.monotonic()
        with pinned_to(tuple(cpus)):
            process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=out, stderr=err, text=True)
        assert process.stdin is not None
        process.stdin.write(stdin)
        process.stdin.flush()
        try:
            status, usage = _wait(process.pid, start + timeout_s)
        except TimeoutError:
            process.kill()
            raise
        finally:
            process.stdin.close()
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if process.returncode != 0:
            raise RuntimeError(f"{argv[0]} ended with {process.returncode}: {err.read()[-500:]}")
        return Usage(usage.ru_utime + usage.ru_stime, time.monotonic() - start, out.read())


def _wait(pid: int, deadline: float) -> tuple[int, os.resource_usage]:  # type: ignore[name-defined]
    while time.monotonic() < deadline:
        done, status, usage = os.wait4(pid, os.WNOHANG)
        if done:
            return status, usage
        time.sleep(0.02)
    raise TimeoutError(f"process {pid} did not end in time")


@dataclass(frozen=True)
class Comparison:
    """Medians over pairs; `ratio` is the median of the ratios within a pair, with the range over pairs."""

    ours: float
    theirs: float
    ratio: float
    ratio_low: float
    ratio_high: float
    pairs: int


def compare(ours: Callable[[], float], theirs: Callable[[], float], pairs: int) -> Comparison:
    """A B, B A, A B, ...: the order within a pair alternates, so that drift favours neither."""
    a: list[float] = []
    b: list[float] = []
    for number in range(pairs):
        first, second = (ours, theirs) if number % 2 == 0 else (theirs, ours)
        x, y = first(), second()
        a.append(x if number % 2 == 0 else y)
        b.append(y if number % 2 == 0 else x)
    ratios = [x / y for x, y in zip(a, b, strict=True)]
    return Comparison(
        statistics.median(a), statistics.median(b), statistics.median(ratios), min(ratios), max(ratios), pairs
    )


def row(name: str, connections: int, result: Comparison, at_most: float) -> str:
    """A line of the table of peers: medians, ratio with its range, target."""
    return (
        f"| {name} | {connections} | {result.ours:.2f} | {result.theirs:.2f} "
        f"| {result.ratio:.3f} ({result.ratio_low:.3f}-{result.ratio_high:.3f}) "
        f"| {at_most:.3f} | {met(result.ratio <= at_most)} |"
    )


def met(is_met: bool) -> str:
    return "met" if is_met else "NOT met"


def which(name: str, extra: Path) -> str | None:
    """The program on PATH or in `extra`."""
    return shutil.which(name, path=f"{extra}{os.pathsep}{os.environ.get('PATH', '')}")
