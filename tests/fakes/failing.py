"""Races in which one setting fails a share of its starts by its own fault; that setting, and the speed of each, are
known.

Out: counts of the named settings, and the table of docs/methods/failed-starts.md (`make statistics`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from fakes.races import race_of, run_experiment, threads
from powerband.model.plan import TrialSpec
from powerband.model.results import Analysis

NOISE = 0.01
AHEAD = 1.06
CODES = ("died", "not_ready", "invariant", "no_request_ok")


def raced(
    settings: int, rank: int, share: float, seed: int, *, code: str = "died", allowed: float = 0.0
) -> tuple[Analysis, int]:
    """A race in which the setting at `rank` (0: the best, 6 % ahead of the next) fails a share of its starts, and the
    number of that setting."""
    dice = np.random.default_rng([settings, rank, seed])
    order = dice.permutation(settings)
    bad = int(order[rank])
    means = {int(level): 1000 * AHEAD ** -(place if place < 2 else 1 + place / 4) for place, level in enumerate(order)}

    def serve(spec: TrialSpec) -> Mapping[str, float] | str:
        if threads(spec) == bad and dice.random() < share:
            return code
        rate = means[threads(spec)] * float(np.exp(NOISE * dice.standard_normal()))
        return {"goodput_per_s": rate, "threads_max": threads(spec) + 1.0, "error_rate": 0.0}

    made = race_of(settings, repeats=8, seed=seed, named=True, objective={"allow_failed_starts": allowed})
    return run_experiment(made, serve), bad


def counts_of(races: int, settings: int, rank: int, share: float, code: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for seed in range(races):
        analysis, bad = raced(settings, rank, share, seed, code=code)
        row = analysis.settings[bad]
        assert row.starts is not None
        named = analysis.answer.setting == row.setting
        found["races"] += 1
        found["named"] += named
        found["named though seen"] += named and row.starts.failed > 0
        found["bound missed"] += named and row.starts.failed_most < share
        found["other named"] += analysis.answer.setting not in (None, row.setting)
        failed_ahead = rank == 0 and row.starts.failed and row.trials and analysis.answer.setting is not None
        found["silent"] += bool(failed_ahead) and " starts" not in analysis.answer.sentences[0].split(". ", 1)[-1]
    return found


def ranks(settings: int) -> list[int]:
    """The ranks of the failing setting that are tried: the best, the next, the middle."""
    return sorted({0, 1, settings // 2})


def failing_table(races: int) -> str:
    """The table of outcomes by the share of failed starts, over 2 to 16 settings."""
    lines = [
        "| starts that fail | races | named, a failed start seen | named, none seen | "
        "of these, truth above the bound | another named |",
        "|---|---|---|---|---|---|",
    ]
    for share in (0.1, 0.2, 0.4, 0.6):
        found = Counter[str]()
        for settings in (2, 4, 8, 16):
            for rank in ranks(settings):
                found += counts_of(races, settings, rank, share, CODES[(settings + rank) % len(CODES)])
        cells = [found["races"], found["named though seen"], found["named"] - found["named though seen"]]
        cells += [found["bound missed"], found["other named"]]
        lines.append(f"| {share:.0%} | {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"
