"""A verdict that the side behind may not deserve, since it still got faster, or was beyond the load engine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes.day_effects import run_of
from fakes.races import result_of
from fakes.trials import experiment
from powerband.analyze.runs.changes import Change
from powerband.analyze.runs.revisions import compare_revisions
from powerband.analyze.runs.sessions import SAME_SESSION
from powerband.analyze.runs.unpaired import compare_runs
from powerband.analyze.settings.compare import analyse
from powerband.model.plan import REVISION, Setting, TrialSpec
from powerband.model.results import Problem, TrialResult, Verdict
from powerband.search.planners import planner_for

RATES = (100.0, 102.0, 101.0, 103.0, 100.5)
PAIR = experiment({REVISION: ("old", "new")}, design={"order": "race", "seed": 7}, measure={"repeats": 8})


def trials_of(name: str, gain: float, *, rising: bool = False, beyond: int = 0) -> list[TrialResult]:
    """One trial of a revision in each block; of the last `beyond` blocks one that left the load engine no CPU."""
    of, problem = Setting(((REVISION, name),)), Problem("generator_cpu", "the load engine was full")
    return [
        TrialResult(
            100 * (name == "new") + block + 1, block, 1, of, "measured",
            (problem,) if block >= len(RATES) - beyond else (), {"goodput_per_s": rate * gain}, rising=rising,
        )
        for block, rate in enumerate(RATES)
    ]  # fmt: skip


def of_revisions(old: list[TrialResult], new: list[TrialResult]) -> Change:
    (change,) = compare_revisions(PAIR, analyse(PAIR, [*old, *new])).changes
    return change


def of_runs(old: list[TrialResult], new: list[TrialResult]) -> Change:
    of = Setting((("threads", 4),))
    runs = [
        replace(run_of({4: [1.0]}), trials=tuple(replace(trial, setting=of) for trial in trials))
        for trials in (old, new)
    ]
    (change,) = compare_runs(*runs, sessions=SAME_SESSION).changes
    return change


@pytest.mark.parametrize("compared", [of_revisions, of_runs])
@pytest.mark.parametrize(
    ("gain", "old_rises", "new_rises", "verdict"),
    [
        (0.6, False, True, Verdict.INCONCLUSIVE),
        (0.6, True, False, Verdict.WORSE),
        (0.1, False, True, Verdict.WORSE),  # too far behind to catch up
        (1.5, True, False, Verdict.INCONCLUSIVE),
        (1.5, False, True, Verdict.BETTER),
        (1.0, False, True, Verdict.INCONCLUSIVE),
        (1.0, False, False, Verdict.EQUIVALENT),
    ],
)
def test_who_still_got_faster_is_not_called_the_slower_one(
    compared: object, gain: float, old_rises: bool, new_rises: bool, verdict: Verdict
) -> None:
    change = compared(trials_of("old", 1.0, rising=old_rises), trials_of("new", gain, rising=new_rises))  # type: ignore[operator]
    assert change.verdict is verdict
    assert ("still got faster while it was measured" in change.because) is (verdict is Verdict.INCONCLUSIVE)
    assert change.ratio is not None and change.ratio.value == pytest.approx(gain)


@pytest.mark.parametrize("compared", [of_revisions, of_runs])
@pytest.mark.parametrize(
    ("beyond", "gain", "verdict"),
    [
        ((0, 2), 0.9, Verdict.INCONCLUSIVE),
        ((0, 1), 0.9, Verdict.WORSE),
        ((2, 0), 0.9, Verdict.WORSE),
        ((2, 0), 1.2, Verdict.INCONCLUSIVE),
    ],
)
def test_who_was_beyond_the_load_engine_is_not_judged_by_its_slower_trials(
    compared: object, beyond: tuple[int, int], gain: float, verdict: Verdict
) -> None:
    change = compared(trials_of("old", 1.0, beyond=beyond[0]), trials_of("new", gain, beyond=beyond[1]))  # type: ignore[operator]
    assert change.verdict is verdict
    assert ("left the load generator no CPU" in change.because) is (verdict is Verdict.INCONCLUSIVE)


@pytest.mark.parametrize("rises", [False, True])
def test_no_more_rounds_are_run_where_only_a_longer_warmup_would_tell(rises: bool) -> None:
    """A new revision that still gets faster is told apart from the old one by the same number of rounds."""

    def serve(spec: TrialSpec) -> dict[str, float]:
        new = ("revision", "new") in spec.setting.levels
        return {"goodput_per_s": (60.0 if new else 100.0) * (1 + 0.002 * (spec.number % 5))}

    planner = planner_for(PAIR, 7)
    results = []
    while (spec := planner.ask()) is not None:
        new = ("revision", "new") in spec.setting.levels
        results.append(replace(result_of(spec, serve(spec)), rising=rises and new))
        planner.tell(results[-1])
    race = planner.progress.race
    assert race is not None and race.ended_by == "decided" and race.blocks < 5
    (change,) = compare_revisions(PAIR, analyse(PAIR, results, planner.progress)).changes
    assert change.verdict is (Verdict.INCONCLUSIVE if rises else Verdict.WORSE)
