"""Measures how long a useful answer takes: `powerband tune` as a person types it, from the command to its last word.

Rows: gunicorn (gthread) with 1 to 64 threads whose requests sleep 50 ms, at `quick` and at the default profile; a Go
server with four settings that serve equally well; the quickstart. An answer counts if it is the right one and within
the bound that its row sets. A row whose server is not on this machine is skipped with a notice.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import kept_lines
from benchmarks.footer import ROOT
from benchmarks.pairs import MET, NOT_MET, run, spread, worst

HERE = ROOT / "benchmarks" / "answers"
GO_SERVER = ROOT / "benchmarks" / "workers" / "server.go"
LONGEST_S = 1500.0  # of one row: 25 minutes, where a forecast once said 20
ENDS = (0, 1, 5)  # without an answer, the exit code is another one
THREADS = "threads=1,2,4,8,16,32,64"


@dataclass(frozen=True)
class Row:
    """One row. `right`: the settings that are right answers; `bound`: no other setting may be better by more than this;
    `most_s`: the target in seconds."""

    name: str
    command: Sequence[str]
    right: tuple[str, ...]
    bound: float
    most_s: float


@dataclass(frozen=True)
class Answered:
    seconds: float
    trials: int
    setting: str
    bound: float | None


def seconds(engine: str, repeats: int) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="powerband-bench-") as folder:
        found = list(rows(Path(folder)))
        answers: dict[Row, list[Answered]] = {}
        for repeat in range(repeats):
            for row in (each for each in found if isinstance(each, Row)):
                answer = answered(row, Path(folder), engine, seed=repeat + 1)
                answers.setdefault(row, []).append(answer)
                print(f"{row.name}, {repeat + 1}: {answer}", file=sys.stderr)
    yield from (each for each in found if isinstance(each, str))
    yield "| row | seconds | trials | answers not as asked for | at most | |"
    yield "|---|---|---|---|---|---|"
    for row, given in answers.items():
        yield answer_row(row.name, given, row.right, row.bound, row.most_s)


@kept_lines.row
def answer_row(name: str, answers: Sequence[Answered], right: Sequence[str], bound: float, most_s: float) -> str:
    """A line of the table. An answer is as asked for if it names one of the settings that are right, and bounds what
    another one may be better by."""
    wrong = sum(one.setting not in right or one.bound is None or one.bound > bound for one in answers)
    seconds, trials = spread([one.seconds for one in answers]), spread([one.trials for one in answers])
    verdict = worst((seconds.verdict(at_most=most_s), NOT_MET if wrong else MET))
    return (
        f"| {name} | {seconds.text('.0f')} | {trials.text('.0f')} | {wrong} of {len(answers)} | {most_s:g} s "
        f"| {verdict} |"
    )


def rows(folder: Path) -> Iterator[Row | str]:
    """Yields the rows that this machine can run, and a sentence for each that it cannot."""
    gunicorn = shutil.which("gunicorn", path=str(Path(sys.executable).parent)) or shutil.which("gunicorn")
    if gunicorn is None:
        yield "No gunicorn here: its rows are left out."
    else:
        server = (gunicorn, "--chdir", str(HERE), "--log-level", "warning", "-w", "1", "-k", "gthread")
        command = ("-P", THREADS, "--", *server, "--threads", "{threads}", "-b", "127.0.0.1:{port}", "sleeper:app")
        name = "gunicorn, 1 to 64 threads, 50 ms"
        yield Row(f"{name}, quick", ("tune", "--profile", "quick", *command), ("threads=64",), 0.05, 45)
        yield Row(f"{name}, default", ("tune", *command), ("threads=64",), 0.03, 180)
    if shutil.which("go") is None:
        yield "No Go here: its row is left out."
    else:
        server_path = folder / "server"
        subprocess.run(("go", "build", "-o", str(server_path), str(GO_SERVER)), check=True)
        # More Ps than CPUs serve equally well; the first one is the cheapest.
        options = ("-P", "procs=2,3,4,5", "--env", "GOMAXPROCS={procs}", "--cpus", "all", "--regret", "10%")
        command = ("tune", "--profile", "quick", *options, "--", str(server_path), "{port}", "1000000")
        yield Row("Go, four settings alike", command, ("procs=2", "procs=3", "procs=4", "procs=5"), 0.10, 60)
    yield Row("quickstart", ("run", "quickstart"), ("threads=64", "threads=128"), 0.03, 45)


def answered(row: Row, folder: Path, engine: str, seed: int) -> Answered:
    head, *rest = row.command
    options = ("--seed", str(seed), "--runs", str(folder / "runs"), "--format", "json", "--no-progress")
    argv = (sys.executable, "-m", "powerband", head, *options, *rest)
    usage = run(("env", f"POWERBAND_ENGINE={engine}", *argv), set(), timeout_s=LONGEST_S, ends=ENDS)
    document: dict[str, Any] = json.loads(usage.stdout)
    answer = document["answer"]
    setting = answer["setting"]
    named = "none" if setting is None else ",".join(f"{name}={level}" for name, level in setting["levels"].items())
    return Answered(usage.wall_s, len(document["trials"]), named, answer["regret"])
