"""Races in which one setting fails a share of its starts by its own fault; that setting, and the speed of each, are
known.

Out: counts of the named settings, verdicts on two revisions, and the table of docs/methods/failed-starts.md
(`make statistics`)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from fakes.made import Made
from fakes.races import race_of, run_experiment, threads
from fakes.trials import experiment
from powerband.analyze.runs.revisions import compare_revisions
from powerband.model.plan import REVISION, TrialSpec
from powerband.model.results import Analysis, Starts, Verdict

NOISE = 0.01
AHEAD = 1.06
CODES = ("died", "not_ready", "invariant", "no_request_ok")
_TOLD = re.compile(r"\b(?:failed|computed wrongly in) (\d+) of (\d+) starts?\b")


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


def says_failed(sentence: str, starts: Starts) -> bool:
    """True if the sentence says how many of these starts failed; `3 fresh starts confirm it` says nothing of that."""
    return (str(starts.failed), str(starts.made)) in _TOLD.findall(sentence)


def counts_of(races: int, settings: int, rank: int, share: float, code: str, *, allowed: float = 0.0) -> Counter[str]:
    """Counts of outcomes. `silent`: races whose first sentence does not say how many starts of the fastest failed,
    though it names another."""
    found: Counter[str] = Counter()
    for seed in range(races):
        analysis, bad = raced(settings, rank, share, seed, code=code, allowed=allowed)
        row = analysis.settings[bad]
        assert row.starts is not None
        named = analysis.answer.setting == row.setting
        found["races"] += 1
        found["named"] += named
        found["named though seen"] += named and row.starts.failed > 0
        found["bound missed"] += named and row.starts.failed_most < share
        found["other named"] += analysis.answer.setting not in (None, row.setting)
        failed_ahead = rank == 0 and row.starts.failed and row.trials and analysis.answer.setting is not None
        found["silent"] += bool(failed_ahead) and not says_failed(analysis.answer.sentences[0], row.starts)
    return found


def ranks(settings: int) -> list[int]:
    """The ranks of the failing setting that are tried: the best, the next, the middle."""
    return sorted({0, 1, settings // 2})


@dataclass(frozen=True)
class Revised:
    """A race of two revisions: `verdict` on NEW, its `starts`, True if one of them `failed`, what the answer `said`."""

    verdict: Verdict
    starts: Starts
    failed: bool
    said: str


def of_two_revisions(old: float, new: float, seed: int, faster: float = 1.0, allowed: float = 0.0) -> Revised:
    """A race of OLD and NEW, which is `faster`. `old`, `new`: the shares of starts that fail."""
    dice = np.random.default_rng([seed, 8])
    of = experiment(
        {REVISION: ("old", "new")},
        seed=seed,
        measure={"repeats": 8},
        design={"order": "race", "seed": seed},
        objective={"allow_failed_starts": allowed},
    )
    failed = [False]

    def outcome(spec: TrialSpec) -> Mapping[str, float] | str:
        is_new = spec.setting.as_dict()[REVISION] == "new"
        if dice.random() < (new if is_new else old):
            failed[0] |= is_new
            return "died"
        rate = 1000 * (faster if is_new else 1.0) * float(np.exp(0.005 * dice.standard_normal()))
        return {"goodput_per_s": rate, "error_rate": 0.0}

    analysis = run_experiment(of, outcome)
    (change,) = compare_revisions(of, analysis).changes
    starts = analysis.settings[-1].starts
    assert starts is not None
    return Revised(change.verdict, starts, failed[0], " ".join(analysis.answer.sentences))


def revision_counts(pairs: int, share: float) -> Counter[str]:
    """Counts of pairs of revisions of which NEW, 5 % faster, fails a share of its starts and is called better."""
    found: Counter[str] = Counter()
    for seed in range(pairs):
        race = of_two_revisions(0.0, share, seed, faster=1.05)
        better = race.verdict is Verdict.BETTER
        found["pairs"] += 1
        found["better though seen"] += better and race.failed
        found["better"] += better
    return found


SHARES = (0.1, 0.2, 0.4, 0.6)
RACES, PAIRS = 30, 100
PLACES = [(settings, rank) for settings in (2, 4, 8, 16) for rank in ranks(settings)]


def failing_table(found: Mapping[str, Mapping[str, int]]) -> str:
    """The table of outcomes by the share of failed starts, over 2 to 16 settings, then of two revisions."""
    lines = [
        "| starts that fail | named, a failed start seen | named, none seen | "
        "of these, truth above the bound | another named | NEW better, seen | none seen |",
        "|---|---|---|---|---|---|---|",
    ]
    for share in SHARES:
        races = sum((Counter(found[_raced(share, *place)]) for place in PLACES), Counter[str]())
        pairs = Counter(found[_compared(share)])
        cells = [races["named though seen"], races["named"] - races["named though seen"]]
        cells += [races["bound missed"], races["other named"]]
        cells += [pairs["better though seen"], pairs["better"] - pairs["better though seen"]]
        lines.append(f"| {share:.0%} | {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def _raced(share: float, settings: int, rank: int) -> str:
    return f"{share:.0%} of starts, {settings} settings, rank {rank}"


def _compared(share: float) -> str:
    return f"{share:.0%} of starts, two revisions"


def _cases() -> dict[str, Callable[[], Counter[str]]]:
    cases: dict[str, Callable[[], Counter[str]]] = {}
    for share in SHARES:
        cases[_compared(share)] = partial(revision_counts, PAIRS, share)
        for settings, rank in PLACES:
            code = CODES[(settings + rank) % len(CODES)]
            cases[_raced(share, settings, rank)] = partial(counts_of, RACES, settings, rank, share, code)
    return cases


OUTCOMES = Made("failed starts", "failed-starts.md", _cases(), failing_table, cheap=_raced(0.6, 2, 0))
