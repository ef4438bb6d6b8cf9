"""The races of one worker against two, without starting anything: the data kept, and the sentence about them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.cpu_races import Outcome, in_turn, outcome, table, worker

RACE = Outcome(
    1, "go", "best", "workers=2", 1.9, 2.0, (1000.0, 1900.0), (1000.0, 2000.0), "{}", 12, 0, 60.0, "Use workers=2."
)


def analysis(named: str | None, *rates: float) -> dict[str, object]:
    settings = [
        {"setting": {"id": f"workers={at}", "levels": {"workers": at}}, "estimates": {"goodput_per_s": {"value": rate}}}
        for at, rate in enumerate(rates, 1)
    ]
    trial = {"problems": [], "cpus": {"machine": 2, "server": 2.0, "shared": True}}
    broken = {"problems": [{"fatal": True}], "cpus": {"machine": 2, "server": 1.0, "shared": False}}
    answer = {"kind": "best", "setting": None if named is None else {"id": named}, "sentences": ["Use it."]}
    return {"answer": answer, "trials": [trial, broken, trial], "settings": settings}


def test_an_outcome_is_what_the_analysis_says() -> None:
    made = outcome(3, "java", analysis("workers=2", 800.0, 1200.0), (900.0, 1440.0), 61.5)
    assert (made.named, made.effect, made.wrk_effect) == ("workers=2", 1.5, 1.6)
    assert (made.trials, made.invalid) == (3, 1)
    assert made.cpus == '{"machine": 2, "server": 2.0, "shared": true}'  # the CPUs of the valid trials


def test_a_race_without_an_answer_or_without_wrk_has_no_figure() -> None:
    made = outcome(1, "go", analysis(None, 800.0), (), 1.0)
    assert (made.named, made.effect, made.wrk_effect, made.rates) == (None, None, None, (800.0,))


def test_languages_take_turns_until_each_has_its_races() -> None:
    done = [RACE, replace(RACE, number=2), replace(RACE, number=3, language="node")]
    assert in_turn(["go", "node"], done, 3) == ["go", "node", "node"]
    assert in_turn(["go", "node"], done, 1) == []


@pytest.mark.parametrize(
    ("named", "effects", "said"),
    [
        (
            19,
            (1.9, 2.0),
            "in 19 of 20 races; target at least 95%: undecided. The effect is at most 5.0% from that by wrk",
        ),
        (14, (1.9, 2.0), "in 14 of 20 races; target at least 95%: NOT met."),
        (20, (1.5, 2.0), "is at most 25.0% from that by wrk; target 10%: NOT met."),
    ],
)
def test_the_table_says_whether_the_targets_are_met(named: int, effects: tuple[float, float], said: str) -> None:
    ours, theirs = effects
    rows = [replace(RACE, named="workers=2" if at < named else "workers=1") for at in range(20)]
    text = table([replace(row, effect=ours, wrk_effect=theirs) for row in rows])
    assert said in text
    assert f"| go | 20 | {named} | 1,000/s | 1,900/s |" in text


def test_a_language_without_its_compiler_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert [worker(language, tmp_path) for language in ("go", "java", "node")] == [None, None, None]
    assert worker("python", tmp_path) is not None


def test_a_race_without_any_valid_trial_counts_for_nothing() -> None:
    nothing = replace(RACE, kind="none_valid", named=None, effect=None, rates=(), number=2)
    text = table([RACE, nothing])
    assert "1 races (1 more without a valid trial: they count for nothing)" in text
    assert "Two workers are named in 1 of 1 races; target at least 95%: undecided." in text
    assert in_turn(["go"], [RACE, nothing], 2) == ["go"]
