from __future__ import annotations

import numpy as np
import pytest

from fakes.trials import experiment
from powerband.analyze.compare import analyse
from powerband.analyze.compare_runs import RunComparison, compare_runs
from powerband.analyze.results import Analysis, TrialResult, Verdict
from powerband.plan import Setting


def run(means: dict[int, float], *, seed: int, sd: float = 0.01, blocks: int = 5) -> Analysis:
    dice = np.random.default_rng(seed)
    trials = []
    for threads, mean in means.items():
        for block in range(blocks):
            metrics = {"goodput_per_s": float(mean * np.exp(sd * dice.standard_normal()))}
            setting = Setting((("threads", threads),))
            trials.append(TrialResult(len(trials) + 1, block, 1, setting, "measured", (), metrics))
    return analyse(experiment({"threads": tuple(means)}), trials)


def verdicts(comparison: RunComparison) -> dict[str, Verdict]:
    return {pair.setting.id: pair.verdict for pair in comparison.pairs}


def test_better_worse_and_the_same_are_told_apart() -> None:
    before = run({1: 100, 2: 200, 4: 400}, seed=1, sd=0.005)
    after = run({1: 120, 2: 180, 4: 400}, seed=2, sd=0.005)
    comparison = compare_runs(before, after)
    assert verdicts(comparison) == {
        "threads=1": Verdict.BETTER,
        "threads=2": Verdict.WORSE,
        "threads=4": Verdict.EQUIVALENT,
    }
    effect = comparison.pairs[0].effect
    assert effect.value == pytest.approx(1.2, rel=0.02)
    assert effect.low is not None and effect.high is not None and effect.low < 1.2 < effect.high


def test_settings_of_one_run_only_are_named_and_not_compared() -> None:
    comparison = compare_runs(run({1: 100, 2: 200}, seed=1), run({2: 200, 8: 300}, seed=2))
    assert [pair.setting.id for pair in comparison.pairs] == ["threads=2"]
    assert [setting.id for setting in comparison.only_before] == ["threads=1"]
    assert [setting.id for setting in comparison.only_after] == ["threads=8"]
    nothing = compare_runs(run({1: 100}, seed=1), run({2: 100}, seed=1))
    assert "no measured setting in common" in nothing.warnings[0]


def test_one_trial_each_gives_a_ratio_but_no_verdict() -> None:
    comparison = compare_runs(run({1: 100}, seed=1, blocks=1), run({1: 300}, seed=2, blocks=1))
    (pair,) = comparison.pairs
    assert pair.verdict is Verdict.INCONCLUSIVE and pair.effect.low is None


def test_equal_runs_differ_in_at_most_five_percent_of_comparisons() -> None:
    false = 0
    for seed in range(200):
        before = run(dict.fromkeys(range(1, 7), 100.0), seed=2 * seed, sd=0.05)
        after = run(dict.fromkeys(range(1, 7), 100.0), seed=2 * seed + 1, sd=0.05)
        false += bool({Verdict.BETTER, Verdict.WORSE} & set(verdicts(compare_runs(before, after)).values()))
    assert false / 200 <= 0.05 + 1.64 * (0.05 * 0.95 / 200) ** 0.5
