"""Capacities of real pools against theory: searched with the profile `quick`, held against M/G/k and against windows of
a minute at either end of the interval.

    python -m benchmarks.capacity_pools [--searches 20] [--beside 3] [--minutes 60] [--folder runs/capacity-pools]

Pools of 4, 8 and 16 threads in Python, Go and Java; requests sleep for fixed, exponential or heavy-tailed times. One
line of JSON is kept for each finished search: called again, it goes on until there are so many, and measures windows
that are missing. Since the pools sleep,
`--beside` of them may be searched at once. A language whose toolchain is missing is left out.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from benchmarks.cpu_races import Worker, up
from benchmarks.footer import commit, machine
from benchmarks.kept_rows import read_rows, write_rows
from benchmarks.pairs import UNDECIDED, share_of
from benchmarks.sweeps import powerband
from fakes.queues import Queue

POOLS = Path(__file__).parent / "pools"
LANGUAGES, THREADS = ("python", "go", "java"), (4, 8, 16)
LIMITS = {"fixed": 4, "exponential": 10, "heavy": 15}
"""The allowed p99, as a multiple of the mean service time."""
MEAN_US = 625
"""Mean service time divided by the number of threads, in us: every pool serves 1,600/s at most."""
SHORT_S = 3  # as with `quick`
WINDOW = "60s"
WANTED = 19 / 20


@dataclass(frozen=True)
class Pool:
    language: str
    threads: int
    service: str

    @property
    def name(self) -> str:
        return f"{self.language}, {self.threads} threads, {self.service}"

    @property
    def mean_us(self) -> int:
        return MEAN_US * self.threads

    @property
    def limit_us(self) -> int:
        return LIMITS[self.service] * self.mean_us


@dataclass(frozen=True)
class Outcome:
    """The result of one search; rates are per second. `theory`: the capacity by M/G/k, with the mean service time that
    the first stage at full load shows. `p99_low_ms`, `p99_high_ms`: p99 over windows of a minute at the ends of the
    interval. `commit`: of the search, and `beyond_s`: by how many seconds the windows of its trials were longer than
    `load.duration`; empty and None in rows that were kept before they were."""

    pool: str
    low: float | None
    value: float | None
    high: float | None
    theory: float
    most: float
    limit_ms: float
    trials: int
    invalid: int
    seconds: float
    sentence: str
    p99_low_ms: float | None = None
    p99_high_ms: float | None = None
    commit: str = ""
    beyond_s: float | None = None

    @property
    def by_theory(self) -> bool:
        return self.low is not None and self.high is not None and self.low <= self.theory <= self.high

    @property
    def by_windows(self) -> bool:
        """True if the capacity by windows of a minute lies within the interval: the window at its low end keeps the
        limit, the one at its high end does not."""
        if self.p99_low_ms is None or self.p99_high_ms is None:
            return False
        return self.p99_low_ms < self.limit_ms <= self.p99_high_ms


def build(language: str, folder: Path) -> tuple[str, ...] | None:
    """Builds the server of a language. Returns its command without arguments; None if the toolchain is missing. Raises
    CalledProcessError."""
    builds = {
        "go": ("go", "build", "-o", str(folder / "pool"), str(POOLS / "server.go")),
        "java": ("javac", "-d", str(folder), str(POOLS / "Pool.java")),
    }
    command = {
        "python": (sys.executable, str(POOLS / "pool.py")),
        "go": (str(folder / "pool"),),
        "java": ("java", "-cp", str(folder), "Pool"),
    }[language]
    if language in builds:
        if shutil.which(builds[language][0]) is None:
            return None
        subprocess.run(builds[language], check=True)
    return command


def server_of(pool: Pool, program: Sequence[str]) -> Worker:
    return Worker((*program, "{port}", "{workers}", pool.service, str(pool.mean_us)))


def search(pool: Pool, program: Sequence[str], folder: Path, beside: int) -> Outcome:
    """Runs the search, without the windows. Raises RuntimeError if `powerband` fails."""
    command = [*program, "{port}", "{threads}", pool.service, str(pool.mean_us)]
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{pool.language}-{pool.threads}-{pool.service}-{time.time_ns()}.yaml"
    written = {
        "subject": {"command": command},
        "factors": {"threads": [pool.threads]},
        "load": {"users": 64, "duration": f"{SHORT_S}s"},
        "measure": {"repeats": 5, "foreign_cpu_max": 0.1 if beside == 1 else 1.0},  # `quick`
        "objective": {"maximise": "capacity", "subject_to": [f"p99 < {pool.limit_us}us", "errors < 0.1%"]},
    }
    file.write_text(json.dumps(written))  # JSON is YAML
    begun_s, searched_by = time.monotonic(), commit()
    ended = powerband("run", str(file), "--format", "json", "--no-progress", "--runs", str(folder / "runs"))
    seconds = time.monotonic() - begun_s
    analysis = json.loads(ended)
    (row,) = analysis["settings"]
    told = (row["capacity"] or {}).get("estimate") or {}
    looks = [trial for trial in analysis["trials"] if trial["stage"] == "saturate"]
    most = max(float(trial["metrics"].get("goodput_per_s", 0.0)) for trial in looks)
    return Outcome(
        pool=pool.name,
        low=told.get("low"),
        value=told.get("value"),
        high=told.get("high"),
        theory=Queue(pool.threads, pool.service, pool.threads / most, pool.limit_us / 1e6).capacity_per_s,
        most=most,
        limit_ms=pool.limit_us / 1e3,
        trials=len(analysis["trials"]),
        invalid=row["invalid"],
        seconds=seconds,
        sentence=" ".join(analysis["answer"]["sentences"]),
        commit=searched_by,
        beyond_s=sum((trial["window_s"] or SHORT_S) - SHORT_S for trial in analysis["trials"]),
    )


def with_windows(outcome: Outcome, programs: Mapping[str, Sequence[str] | None]) -> Outcome:
    """Adds the windows to a search. Measures both at once."""
    pool = next(each for each in pools(LANGUAGES) if each.name == outcome.pool)
    program = programs[pool.language]
    if outcome.low is None or outcome.high is None or program is None:
        return outcome
    server = server_of(pool, program)
    with ThreadPoolExecutor(2) as both:
        low, high = (both.submit(window_p99_ms, server, pool, rate) for rate in (outcome.low, outcome.high))
        return replace(outcome, p99_low_ms=low.result(), p99_high_ms=high.result())


def window_p99_ms(server: Worker, pool: Pool, rate: float) -> float:
    """The p99 of a freshly started server over a minute."""
    with up(server, pool.threads) as (port, _):
        url = f"http://127.0.0.1:{port}/"
        told = powerband("load", url, "-r", f"{rate:.1f}", "--warmup", "2s", "-d", WINDOW, "--format", "json")
    return float(json.loads(told)["response_time_ns"]["p99"]) / 1e6


def pools(languages: Sequence[str]) -> list[Pool]:
    """All pools, in an order in which the first few already include every language, size and kind of service time."""
    kinds = list(LIMITS)
    every = [Pool(lang, THREADS[(a + b) % 3], kinds[(a + b + c) % 3]) for c in range(3) for b in range(3)
             for a, lang in enumerate(LANGUAGES)]  # fmt: skip
    return [pool for pool in every if pool.language in languages]


def left(every: Sequence[Pool], done: Sequence[Outcome], searches: int) -> list[Pool]:
    """The searches still to do, each pool in turn, until there are `searches`."""
    made = Counter(row.pool for row in done)
    found = []
    for pool in [*every] * math.ceil(searches / max(1, len(every))):
        made[pool.name] -= 1
        if made[pool.name] < 0:
            found.append(pool)
    return found[: max(0, searches - len(done))]


def lacks_windows(outcome: Outcome) -> bool:
    return outcome.p99_low_ms is None and outcome.low is not None and outcome.high is not None


def table(done: Sequence[Outcome]) -> str:
    """The searches as a Markdown table with their commits, and how many agree with theory and with the windows."""
    commits = dict.fromkeys(row.commit or "not kept" for row in done)
    lines = [
        f"{time.strftime('%Y-%m-%d')}, {machine()}, commit {', '.join(commits) or commit()}",
        "",
        "| pool | capacity (95 % interval) | M/G/k | p99 allowed | 60 s at the low end | high end | trials | took |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in done:
        capacity = "-" if row.value is None else f"{row.value:.0f}/s ({row.low:.0f} to {row.high:.0f})"
        expected = f"{row.theory:.0f}/s{'' if row.by_theory else ' (outside)'}"
        agrees = "" if row.by_windows else " (outside)"
        p99s = ["-" if p99 is None else f"{p99:.1f} ms" for p99 in (row.p99_low_ms, row.p99_high_ms)]
        lines.append(
            f"| {row.pool} | {capacity} | {expected} | {row.limit_ms:.1f} ms | "
            f"{' | '.join(p99s)}{agrees} | {row.trials} | {row.seconds:.0f} s |"
        )
    return "\n".join([*lines, "", *summary(done)])


def summary(done: Sequence[Outcome]) -> list[str]:
    """A Markdown table with a row for each kind of service times, and a sentence on all searches."""
    lines = [
        "| service times | searches | M/G/k inside | 60 s inside | figure, of M/G/k | interval, of M/G/k | took |",
        "|---|---|---|---|---|---|---|",
    ]
    for service in LIMITS:
        rows = [row for row in done if row.pool.endswith(service)]
        answered = [row for row in rows if row.low is not None and row.value is not None and row.high is not None]
        if not answered:
            continue
        lows, values, highs = (
            [getattr(row, name) / row.theory for row in answered] for name in ("low", "value", "high")
        )
        took = [row.seconds for row in rows]
        lines.append(
            f"| {service} | {len(rows)} | {sum(row.by_theory for row in rows)} | "
            f"{sum(row.by_windows for row in rows)} | {min(values):.2f} to {max(values):.2f} | "
            f"{median(lows):.2f} to {median(highs):.2f} | {min(took):.0f} to {max(took):.0f} s |"
        )
    theory, windows = (sum(getattr(row, name) for row in done) for name in ("by_theory", "by_windows"))
    both = sum(row.by_theory and row.by_windows for row in done)
    verdict = share_of(both, len(done)).verdict(at_least=WANTED) if done else UNDECIDED
    beyond = [row.beyond_s / row.seconds for row in done if row.beyond_s is not None]
    longer = ""
    if beyond:
        longer = (
            f" Windows beyond {SHORT_S} s took {min(beyond):.0%} to {max(beyond):.0%} of the time of a search (median "
            f"{median(beyond):.0%})."
        )
    return [
        *lines,
        "",
        f"Of {len(done)} searches the interval holds M/G/k in {theory} and the edge of windows of 60 s in {windows}, "
        f"both in {both}; wanted {WANTED:.0%}: {verdict}.{longer}",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.capacity_pools", description=__doc__)
    parser.add_argument("--searches", type=int, default=20, help="how many there are to be")
    parser.add_argument("--beside", type=int, default=1, help="how many at once")
    parser.add_argument("--minutes", type=float, default=60, help="no further search begins after this time")
    parser.add_argument("--folder", type=Path, default=Path("runs/capacity-pools"), help="where they are kept")
    options = parser.parse_args(arguments)
    kept = options.folder / "searches.jsonl"
    options.folder.mkdir(parents=True, exist_ok=True)
    done = read_rows(kept, Outcome)
    deadline_s = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory(prefix="powerband-pools-") as built:
        programs = {language: build(language, Path(built)) for language in LANGUAGES}
        every = pools([language for language, program in programs.items() if program is not None])
        to_come = left(every, done, options.searches)
        at_once = ThreadPoolExecutor(options.beside)
        while to_come and time.monotonic() < deadline_s:
            now, to_come = to_come[: options.beside], to_come[options.beside :]
            searches = [
                at_once.submit(search, pool, programs[pool.language] or (), options.folder, options.beside)
                for pool in now
            ]
            for ended in as_completed(searches):
                done.append(ended.result())
                write_rows(kept, done)
        while (lack := [row for row in done if lacks_windows(row)]) and time.monotonic() < deadline_s:
            now = lack[: options.beside]
            filled = dict(zip(map(id, now), at_once.map(lambda row: with_windows(row, programs), now), strict=True))
            done = [filled.get(id(row), row) for row in done]
            write_rows(kept, done)
    print(table(done))
    return 0


if __name__ == "__main__":
    sys.exit(main())
