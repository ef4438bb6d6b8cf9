"""Runs commands in alternating pairs, takes the kernel's figures of each (wait4 of the finished process), and compares
the results with a target: one rule for every table of `docs/benchmarks.md`."""

from __future__ import annotations

import math
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

from scipy.stats import binomtest

from benchmarks import kept_lines
from powerband.trials.trial import pinned_to


@dataclass(frozen=True)
class Usage:
    """The figures of one finished command: CPU seconds of the process and its waited-for children (`user_s`: outside of
    the kernel), the bytes of its largest resident set, and its stdout."""

    cpu_s: float
    wall_s: float
    stdout: str
    user_s: float = 0.0
    peak_bytes: int = 0


def run(
    argv: Sequence[str], cpus: set[int], stdin: str = "", timeout_s: float = 300, ends: Collection[int] = (0,)
) -> Usage:
    """Runs `argv` on `cpus` to its end. Its standard input stays open until then, because an engine takes the end of
    stdin for the end of its controller. Raises RuntimeError, with the end of its stderr, if its status is not in
    `ends`."""
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
        if process.returncode not in ends:
            raise RuntimeError(f"{argv[0]} ended with {process.returncode}: {err.read()[-500:]}")
        wall_s, cpu_s = time.monotonic() - start, usage.ru_utime + usage.ru_stime
        return Usage(cpu_s, wall_s, out.read(), usage.ru_utime, usage.ru_maxrss * 1024)


def _wait(pid: int, deadline: float) -> tuple[int, os.resource_usage]:  # type: ignore[name-defined]
    while time.monotonic() < deadline:
        done, status, usage = os.wait4(pid, os.WNOHANG)
        if done:
            return status, usage
        time.sleep(0.02)
    raise TimeoutError(f"process {pid} did not end in time")


MET, NOT_MET, UNDECIDED = "met", "NOT met", "undecided"
CONFIDENCE = 0.95
NEAR = 0.03
"""With too few repeats for an interval, a median this near to its target (as a share of the median) decides nothing."""
A = TypeVar("A")
B = TypeVar("B")
HEAD = "| what | measured | target | |\n|---|---|---|---|"


@dataclass(frozen=True)
class Spread:
    """The median of `n` repeats, and the two ends of what it may be: of its 95 % interval (`is_interval`), or, with too
    few repeats for one, of all measured values."""

    middle: float
    low: float
    high: float
    n: int
    is_interval: bool

    def verdict(self, *, at_most: float = math.inf, at_least: float = -math.inf) -> str:
        """The rule of all tables: `met` if both ends are on the right side of the target, `NOT met` if both are on the
        wrong side, `undecided` if the target lies between them. Without an interval the verdict is also `undecided` if
        the target is within `NEAR` of the median: single runs of one machine differ by that much. An end equal to the
        target meets it."""
        if not self.is_interval:
            near = NEAR * abs(self.middle)
            if abs(at_most - self.middle) < near or abs(at_least - self.middle) < near:
                return UNDECIDED
        if self.low > at_most or self.high < at_least:
            return NOT_MET
        return MET if self.high <= at_most and self.low >= at_least else UNDECIDED

    def text(self, form: str = ".3f") -> str:
        """The median as text, with the ends if there was more than one repeat."""
        if self.n == 1:
            return format(self.middle, form)
        low, high = format(self.low, form), format(self.high, form)
        return f"{self.middle:{form}} ({low}{'–' if low[0].isdigit() else ' to '}{high})"


def spread(values: Sequence[float]) -> Spread:
    """The median with its distribution-free interval of at least 95 %: the k-th smallest and the k-th largest value,
    with k as large as the binomial distribution allows (Thompson 1936, "On confidence ranges for the median", Annals of
    Mathematical Statistics 7(3); David & Nagaraja 2003, Order Statistics, section 7.1). Five values have no such
    interval: their least and greatest hold the median 93.75 % of the time. Repeats must be independent; differences
    from one day to the next are not covered. Raises ValueError if there is no value, or if one is not a number."""
    ordered = sorted(values)
    if not ordered or any(math.isnan(value) for value in ordered):
        raise ValueError(f"a median needs numbers, not {list(values)}")
    rank = _rank(len(ordered))
    low, high = ordered[max(rank, 1) - 1], ordered[-max(rank, 1)]
    return Spread(statistics.median(ordered), low, high, len(ordered), is_interval=rank > 0)


def share_of(count: int, n: int) -> Spread:
    """The share of `n` in which something happened, with its exact 95 % interval (Clopper & Pearson 1934)."""
    exact = binomtest(count, n).proportion_ci(CONFIDENCE, method="exact")
    return Spread(count / n, float(exact.low), float(exact.high), n, is_interval=True)


@cache
def _rank(n: int) -> int:
    """The largest k for which the k-th smallest and largest of n values enclose the median with `CONFIDENCE`; 0 if
    there is none."""
    outside, rank = 0.0, 0
    while rank < n // 2 and (outside := outside + 2 * math.comb(n, rank) / 2**n) <= 1 - CONFIDENCE:
        rank += 1
    return rank


def worst(verdicts: Iterable[str]) -> str:
    """The verdict on a promise with several conditions: all must be met, so one that is not met decides."""
    found = set(verdicts)
    return next((verdict for verdict in (NOT_MET, UNDECIDED) if verdict in found), MET)


@kept_lines.row
def figure(
    name: str, values: Sequence[float], unit: str, form: str, *, at_most: float = math.inf, at_least: float = -math.inf
) -> str:
    """A line for the table below `HEAD`: the median of the repeats with its ends, the target if there is one, the
    verdict."""
    found = spread(values)
    promises = [("at most", at_most)] * (at_most < math.inf) + [("at least", at_least)] * (at_least > -math.inf)
    target = ", ".join(f"{word} {value:,g} {unit}".strip() for word, value in promises)
    verdict = found.verdict(at_most=at_most, at_least=at_least) if promises else ""
    return f"| {name} | {found.text(form)} {unit}".rstrip() + f" | {target} | {verdict} |"


@dataclass(frozen=True)
class Comparison:
    """The costs of each pair, in the order of the pairs."""

    ours: Sequence[float]
    theirs: Sequence[float]

    @property
    def ratio(self) -> Spread:
        """The ratios within the pairs."""
        return spread([a / b for a, b in zip(self.ours, self.theirs, strict=True)])


def compare(ours: Callable[[], float], theirs: Callable[[], float], pairs: int) -> Comparison:
    """The costs of two commands, in alternating pairs."""
    a, b = zip(*in_pairs(ours, theirs, pairs), strict=True)
    return Comparison(a, b)


def in_pairs(ours: Callable[[], A], theirs: Callable[[], B], pairs: int) -> list[tuple[A, B]]:
    """A B, B A, A B, ...: the order within a pair alternates, so that drift favours neither."""
    found = []
    for number in range(pairs):
        if number % 2 == 0:
            a = ours()
            b = theirs()
        else:
            b = theirs()
            a = ours()
        found.append((a, b))
    return found


@kept_lines.row
def row(name: str, connections: int, result: Comparison, at_most: float) -> str:
    """A line of the table of peers: medians, ratio with its ends, target."""
    return (
        f"| {name} | {connections:,} | {spread(result.ours).middle:.2f} | {spread(result.theirs).middle:.2f} "
        f"| {result.ratio.text()} | {at_most:.3f} | {result.ratio.verdict(at_most=at_most)} |"
    )


def which(name: str, extra: Path) -> str | None:
    """The path of the program on PATH or in `extra`."""
    return shutil.which(name, path=f"{extra}{os.pathsep}{os.environ.get('PATH', '')}")
