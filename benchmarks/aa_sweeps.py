"""Real A/A sweeps: three settings of the reference subject that are the same race each other, again and again.

    python -m benchmarks.aa_sweeps --engine ENGINE [--sweeps 100] [--minutes 60] [--folder runs/aa-sweeps]

Whoever wins, wins by chance: the share of sweeps with a false winner must not exceed 5 %. One line of JSON is kept for
each finished sweep, and its run directory beside it: called again, it goes on until there are so many. Ctrl-C ends it
after the trial in flight; the sweep that it cuts short does not count. Nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import kept_lines
from benchmarks.kept_rows import append_row, read_rows
from benchmarks.pairs import share_of
from benchmarks.sweeps import sweep
from powerband.model.results import AnswerKind, Verdict
from powerband.processes.stop_request import StopRequest
from powerband.search.noise import cpu_times

ALLOWED = 0.05
# No confirmation: it could only take a false winner back, and the question here is how often the race names one.
EXPERIMENT = """
name: aa-sweep
subject: {use: reference, set: {model: fixed, threads: 16, wait: 5ms, cpu: 100us}}
factors: {aa: [1, 2, 3]}
load: {users: 16, duration: 500ms, drain: 1s}
measure: {warmup: 500ms, repeats: 4}
design: {order: race, confirm: 0}
objective: {maximise: goodput, margin: 3%}
"""


@dataclass(frozen=True)
class Outcome:
    """The result of one sweep. `false_winner`: a setting was called the best; `false_worse`: a setting was called worse
    than another."""

    number: int
    kind: str
    answer: str | None
    false_winner: bool
    false_worse: bool
    trials: int
    invalid: int
    blocks: int
    seconds: float
    run: str


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.aa_sweeps", description=__doc__)
    parser.add_argument("--engine", required=True, help="the powerband-engine binary (a release build)")
    parser.add_argument("--sweeps", type=int, default=100, help="how many there are to be in all")
    parser.add_argument("--minutes", type=float, default=60, help="no further sweep begins after this time")
    parser.add_argument("--folder", type=Path, default=Path("runs/aa-sweeps"), help="where they are kept")
    parser.add_argument("--keep", type=Path, default=kept_lines.FOLDER, help="where all of them go for the page")
    options = parser.parse_args(arguments)
    before = cpu_times()
    kept = options.folder / "sweeps.jsonl"
    done = read_rows(kept, Outcome)
    deadline = time.monotonic() + 60 * options.minutes
    with StopRequest.on_signals() as stop:
        while len(_measured(done)) < options.sweeps and time.monotonic() < deadline:
            outcome = _one(len(done) + 1, options.folder, options.engine, stop)
            if outcome is None:
                break
            done.append(outcome)
            append_row(kept, outcome)
            print(
                f"{outcome.number}: {outcome.kind}, {outcome.trials} trials, {outcome.seconds:.0f} s", file=sys.stderr
            )
    if not _measured(done):
        print("no sweep was finished in which anything could be measured")
        return 1
    found = kept_lines.Kept.now(
        "aa", "make aa", repeats=len(done), of="races of three equal settings", before=before, lines=[table(done)]
    )
    print(f"{table(done)}\n\n{found.footer}")
    if len(_measured(done)) >= options.sweeps:
        kept_lines.write(found, options.keep)
    return 0


def _one(number: int, folder: Path, engine: str, stop: StopRequest) -> Outcome | None:
    """Runs one sweep. None if it was stopped."""
    made = sweep(EXPERIMENT, folder / "runs", stop, engine=engine, seed=number)
    if stop.requested:
        return None
    analysis = made.analysis
    answer = analysis.answer
    return Outcome(
        number=number,
        kind=answer.kind.value,
        answer=None if answer.setting is None else answer.setting.id,
        false_winner=answer.kind is AnswerKind.BEST,
        false_worse=any(row.verdict in (Verdict.WORSE, Verdict.BETTER) for row in analysis.settings),
        trials=len(analysis.trials),
        invalid=made.invalid,
        blocks=len({trial.block for trial in analysis.trials}),
        seconds=made.seconds,
        run=made.run.path.name,
    )


def _measured(done: Sequence[Outcome]) -> list[Outcome]:
    """The sweeps with at least one valid trial: any other says nothing, and would only make the share of false winners
    look small."""
    return [outcome for outcome in done if outcome.kind != AnswerKind.NONE_VALID.value]


def summarise(all_done: Sequence[Outcome]) -> dict[str, object]:
    """The shares, each with its exact 95 % interval (Clopper & Pearson 1934)."""
    done = _measured(all_done)
    return {
        "sweeps": len(done),
        "sweeps_without_a_valid_trial": len(all_done) - len(done),
        "false_winners": _share([outcome.false_winner for outcome in done]),
        "false_worse": _share([outcome.false_worse for outcome in done]),
        "answers": dict(Counter(outcome.kind for outcome in done).most_common()),
        "trials": sum(outcome.trials for outcome in done),
        "invalid": sum(outcome.invalid for outcome in done),
        "trials_of_the_grid": len(done) * 12,
        "seconds": sum(outcome.seconds for outcome in done),
    }


def _share(found: Sequence[bool]) -> dict[str, float]:
    share = share_of(sum(found), len(found))
    return {"count": sum(found), "share": share.middle, "low": share.low, "high": share.high}


@kept_lines.row
def table(done: Sequence[Outcome]) -> str:
    """The result of these sweeps in Markdown."""
    summary = summarise(done)
    lines = ["| what | races | share (95 % interval) | at most | |", "|---|---|---|---|---|"]
    for key, name in (("false_winners", "a winner is named"), ("false_worse", "any setting is called worse")):
        share = summary[key]
        assert isinstance(share, dict)
        interval = f"{share['share']:.1%} ({share['low']:.1%} to {share['high']:.1%})"
        verdict = share_of(int(share["count"]), int(str(summary["sweeps"]))).verdict(at_most=ALLOWED)
        lines.append(f"| {name} | {share['count']} of {summary['sweeps']} | {interval} | {ALLOWED:.0%} | {verdict} |")
    answers = summary["answers"]
    assert isinstance(answers, dict)
    kinds = ", ".join(f"{count} {kind}" for kind, count in answers.items())
    lines += ["", f"Answers: {kinds}. {summary['trials']} trials ({summary['trials_of_the_grid']} in full grids), "
              f"{summary['invalid']} of them invalid; {float(str(summary['seconds'])) / 60:.0f} min."]  # fmt: skip
    if without := summary["sweeps_without_a_valid_trial"]:
        lines.append(f"{without} more without a valid trial: they count for nothing.")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
