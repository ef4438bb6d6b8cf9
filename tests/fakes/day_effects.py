"""Runs of one server in several sessions, each of which has its own effect on all figures; the truth is that nothing
changed. `make statistics` writes how often two of them are told apart into docs/methods/comparing-runs.md."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from functools import partial
from statistics import NormalDist, fmean

from fakes.made import Made
from powerband.analyze.runs.sessions import spread_of_sessions
from powerband.analyze.runs.unpaired import compare_runs
from powerband.model.plan import Setting
from powerband.model.results import Analysis, Answer, AnswerKind, TrialResult, Verdict

DAYS = (0.0, 0.01, 0.03)  # standard deviations of a session's effect, on the log scale
KNOWN = (0, 2, 6)  # earlier runs
PAIRS = 1000


def run_of(values: dict[int, list[float]], direction: str = "maximise", metric: str = "goodput_per_s") -> Analysis:
    """A run with these values of each number of threads."""
    trials = [
        TrialResult(0, block, 1, Setting((("threads", threads),)), "measured", (), {metric: value})
        for threads, settings in values.items()
        for block, value in enumerate(settings)
    ]
    answer = Answer(AnswerKind.BEST, None, None, (), (), ())
    return Analysis("x", "", metric, direction, (), 0.95, 0.03, answer, (), tuple(trials))


def noisy(mean: float, n: int, spread: float, seed: int) -> list[float]:
    rng = random.Random(seed)
    return [mean * math.exp(spread * NormalDist().inv_cdf(rng.uniform(0.001, 0.999))) for _ in range(n)]


def sessions_of(day: float, runs: int, seed: int, settings: int = 4, noise: float = 0.01) -> list[Analysis]:
    """Runs of one server, one in each session; each session has its own effect on all settings."""
    rng = random.Random(seed)
    made = []
    for run in range(runs):
        effect = math.exp(rng.gauss(0.0, day))
        values = {
            threads: noisy(100 * effect, 5, noise, seed * 1000 + run * 50 + threads) for threads in range(settings)
        }
        made.append(run_of(values))
    return made


def told_by(analysis: Analysis) -> dict[Setting, float]:
    """The mean rate of each setting."""
    settings = {trial.setting for trial in analysis.trials}
    return {
        setting: fmean(trial.metrics["goodput_per_s"] for trial in analysis.trials if trial.setting == setting)
        for setting in settings
    }


def false_changes(day: float, known: int, pairs: int) -> float:
    """The share of pairs of runs with any verdict `better` or `worse`. `day`: see `DAYS`; `known`: the number of
    earlier runs from which the spread of sessions is learned."""
    false = 0
    for seed in range(pairs):
        *earlier, first, second = sessions_of(day, known + 2, seed)
        spread = spread_of_sessions([told_by(run) for run in earlier])
        changes = compare_runs(first, second, sessions=spread).changes
        false += any(change.verdict in {Verdict.BETTER, Verdict.WORSE} for change in changes)
    return false / pairs


def session_table(found: Mapping[str, float]) -> str:
    """The table of false verdicts by the effect of a day and the number of earlier runs."""
    lines = ["| sessions differ by | no earlier run | 2 | 6 |", "|---|---|---|---|"]
    for day in DAYS:
        cells = (f"{found[_case(day, known)]:.1%}" for known in KNOWN)
        lines.append(f"| {day:.0%} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _case(day: float, known: int) -> str:
    return f"sessions differ by {day:.0%}, {known} earlier runs"


SESSIONS = Made(
    "sessions",
    "comparing-runs.md",
    {_case(day, known): partial(false_changes, day, known, PAIRS) for day in DAYS for known in KNOWN},
    session_table,
    cheap=_case(0.01, 0),
)
