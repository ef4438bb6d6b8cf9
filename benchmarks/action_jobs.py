"""Whether the GitHub Action judges rightly beside a noisy neighbour: jobs as action.yml has them, half of them with a
regression of 20 %, while another program burns CPU in bursts.

    python -m benchmarks.action_jobs [--jobs 20] [--minutes 60] [--folder runs/action-jobs]

The servers are Python's, whose requests wait, and Go's, whose requests compute; the neighbour takes 0.2, 0.5 and 1.0
CPUs in turn. A job is right where it fails on the regression, or passes without one. One line of JSON is kept for each
finished job: called again, it goes on. Nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cpu_races import NAMED_SHARE
from benchmarks.footer import commit, machine
from benchmarks.kept_rows import append_row, read_rows
from benchmarks.pairs import share_of
from fakes.burner import burning
from fakes.hosted_job import SERVERS, Job, build_wheel, pull_request, repository
from powerband.processes.engine_fleet import find_engine

MOST_S = 300.0  # longest comparison of a job under the default options
NEIGHBOURS = (0.2, 0.5, 1.0)
KINDS = (("Python", (20, 25)), ("Go, computing", (400, 500)), ("Python", (20, 20)), ("Go, computing", (400, 400)))


@dataclass(frozen=True)
class Outcome:
    """The result of one job. `neighbour`: the CPUs that the neighbour burns; `seconds`: time of the comparison step;
    `said`: its summary."""

    number: int
    server: str
    slower: bool
    neighbour: float
    exit_code: int
    verdict: str
    seconds: float
    said: str

    @property
    def right(self) -> bool:
        return self.exit_code == int(self.slower) and (self.verdict == "worse") is self.slower


def job(number: int, wheel: Path, folder: Path) -> Outcome:
    """Runs the steps of the Action; the neighbour burns CPU during the comparison."""
    language, waits = KINDS[number % len(KINDS)]
    neighbour = NEIGHBOURS[number % len(NEIGHBOURS)]
    server = SERVERS[language]
    base, head = repository(folder / "checkout", server, waits)
    inputs = {"command": server.command, "build": server.build, "package": str(wheel)}
    made = Job(folder / "checkout", folder, inputs, pull_request(base, head), folder / "temp")
    for name in ("Install powerband", "Check out and build both revisions"):
        if made.run(only=name) != 0:
            raise RuntimeError(made.log)
    begun = time.monotonic()
    with burning(neighbour):
        made.run(only="Compare")
    seconds = time.monotonic() - begun
    code = made.run(only="Judge")
    said = (folder / "summary").read_text()
    return Outcome(number, language, waits[0] != waits[1], neighbour, code, made.output("verdict"), seconds, said)


def table(done: Sequence[Outcome]) -> str:
    """A table with a line for each kind of job; then how many jobs were right, and how long they took."""
    lines = [
        f"{time.strftime('%Y-%m-%d')}, {machine()}, commit {commit()}:",
        "",
        "| server | head | jobs | right | verdicts | longest |",
        "|---|---|---|---|---|---|",
    ]
    for language, waits in KINDS:
        slower = waits[0] != waits[1]
        rows = [row for row in done if (row.server, row.slower) == (language, slower)]
        if rows:
            said = ", ".join(
                f"{sum(row.verdict == word for row in rows)} {word}" for word in sorted({row.verdict for row in rows})
            )
            head = "20 % less" if slower else "the same"
            right = sum(row.right for row in rows)
            lines.append(
                f"| {language} | {head} | {len(rows)} | {right} | {said} | {max(row.seconds for row in rows):.0f} s |"
            )
    right = sum(row.right for row in done)
    judged = share_of(right, len(done)).verdict(at_least=NAMED_SHARE) if done else "undecided"
    lines += ["", f"{right} of {len(done)} jobs were right; target at least {NAMED_SHARE:.0%}: {judged}."]
    in_time = sum(row.seconds <= MOST_S for row in done)
    lines[-1] += f" The answer came within {MOST_S:.0f} s in {in_time} of {len(done)}."
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.action_jobs", description=__doc__)
    parser.add_argument("--jobs", type=int, default=20, help="how many there are to be")
    parser.add_argument("--minutes", type=float, default=60, help="no further job begins after this time")
    parser.add_argument("--folder", type=Path, default=Path("runs/action-jobs"), help="where they are kept")
    options = parser.parse_args(arguments)
    kept = options.folder / "jobs.jsonl"
    done = read_rows(kept, Outcome)
    deadline_s = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory(prefix="powerband-jobs-") as temporary:
        wheel = build_wheel(Path(temporary) / "wheel", find_engine())
        while len(done) < options.jobs and time.monotonic() < deadline_s:
            folder = Path(temporary) / str(len(done))
            folder.mkdir()
            made = job(len(done), wheel, folder)
            done.append(made)
            append_row(kept, made)
            print(f"{made.number}: {made.server}, {made.verdict}, {made.seconds:.0f} s", file=sys.stderr, flush=True)
    print(table(done))
    return 0


if __name__ == "__main__":
    sys.exit(main())
