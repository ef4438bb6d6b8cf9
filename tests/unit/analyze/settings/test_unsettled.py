"""The warnings about settings that never stabilised, from trials that say whether they were steady."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.trials import experiment
from powerband.analyze.settings.compare import analyse
from powerband.analyze.settings.standing import GOODPUT
from powerband.analyze.settings.unsettled import longer_warmup_s, may_still_rise, never_stabilised, still_rising
from powerband.model.plan import Setting, Stage
from powerband.model.results import Analysis, Problem, TrialResult


def trial(number: int, threads: int, steady: bool | None, **parts: Any) -> TrialResult:
    metrics = {"goodput_per_s": 100.0 * threads * (1 + 0.001 * (number % 3))}
    block = (number - 1) // 2
    return TrialResult(
        number,
        block,
        1,
        Setting((("threads", threads),)),
        "measured",
        metrics=metrics,
        **{"steady": steady, "problems": (), **parts},
    )


def analysed(*steady: bool | None, **parts: Any) -> Analysis:
    """An analysis with threads=64, steady in each block as given, beside threads=8, which is always steady."""
    trials = [
        one
        for block, mark in enumerate(steady)
        for one in (trial(2 * block + 1, 64, mark, **parts), trial(2 * block + 2, 8, True))
    ]
    return analyse(experiment({"threads": (8, 64)}), trials)


NEVER = (
    "threads=64 had not reached a steady state in 4 of 5 trials: its figures may shift with time; lengthen "
    "measure.warmup_max or load.duration"
)


def test_a_setting_that_never_stabilised_is_named_in_a_warning_and_in_the_answer() -> None:
    found = analysed(False, False, True, False, False)
    assert NEVER in found.warnings
    assert (
        found.answer.sentences[-1] == "But threads=64 had not reached a steady state in 4 of 5 trials: this may change."
    )
    assert not any("steady state:" in text for text in found.warnings)


@pytest.mark.parametrize("steady", [(True, True, True, False, False), (True, False), (False,)])
def test_what_may_be_chance_is_only_counted(steady: tuple[bool, ...]) -> None:
    found = analysed(*steady)
    assert not any("steady state in" in text for text in (*found.warnings, *found.answer.sentences))
    restless = [trial for trial in found.trials if trial.steady is False]
    named = " and ".join(f"{trial.number} ({trial.setting.id})" for trial in restless)
    told = {1: "trial", 2: "trials"}[len(restless)]
    assert f"{told} {named} had not reached a steady state" in found.warnings[-1]


def test_among_many_settings_two_restless_trials_of_one_may_be_chance() -> None:
    def among(settings: int, trials: int) -> bool:
        many = [trial(1, threads, threads != 1) for threads in range(1, settings + 1) for _ in range(trials)]
        return bool(never_stabilised(many))

    assert among(5, 2) and not among(6, 2), "0.1 ** 2 is 0.05 / 5"
    assert among(6, 3)


def test_a_warm_up_at_its_limit_counts_where_the_window_is_too_short_to_say() -> None:
    cut_short = analysed(None, None, None, warmup_ended_by="limit")
    assert any("had not reached a steady state in 3 of 3 trials" in text for text in cut_short.warnings)
    settled_later = analysed(True, True, True, warmup_ended_by="limit")
    assert settled_later.warnings == analysed(True, True, True).warnings
    assert analysed(None, None, None, warmup_ended_by="steady").warnings == settled_later.warnings


def test_a_steady_answer_beside_an_unsettled_setting_has_no_caveat() -> None:
    found = analyse(
        experiment({"threads": (8, 64)}),
        [one for block in range(3) for one in (trial(2 * block + 1, 64, True), trial(2 * block + 2, 8, False))],
    )
    assert any("threads=8 had not reached a steady state in 3 of 3 trials" in text for text in found.warnings)
    assert not any("steady state in" in text for text in found.answer.sentences)


def test_trials_that_do_not_count_or_search_for_capacity_say_nothing() -> None:
    for parts in ({"stage": Stage.CAPACITY}, {"problems": (Problem("host_steal", "stolen"),)}):
        found = analysed(False, False, False, **parts)
        assert not any("steady state in" in text or "steady state:" in text for text in found.warnings)


UNTIL_WARM = "Not enough data to name a setting until all are warm (--warmup 20s, measure.warmup)"


def rising(threads: int, gain: float) -> Analysis:
    """An analysis of threads=8 and threads=64 over eight blocks. The given one rises, and has `gain` times the rate of
    the other."""
    trials = []
    for block in range(8):
        for place, each in enumerate((8, 64)):
            rate = 100.0 * (gain if each == threads else 1.0) * (1 + 0.001 * (block % 3))
            made = trial(2 * block + place + 1, each, each != threads, rising=each == threads)
            trials.append(TrialResult(**{**vars(made), "metrics": {"goodput_per_s": rate}}))
    return analyse(experiment({"threads": (8, 64)}), trials)


@pytest.mark.parametrize(("gain", "kind"), [(0.5, "not_enough_data"), (1.0, "not_enough_data"), (0.1, "best")])
def test_what_still_rises_is_neither_worse_nor_equal_while_it_may_catch_up(gain: float, kind: str) -> None:
    answer = rising(64, gain).answer
    assert answer.kind == kind
    assert ("threads=64 cannot be judged yet" in " ".join(answer.sentences)) == (kind != "best")
    assert answer.sentences[0].startswith(f"{UNTIL_WARM}: threads=8 looks best so far") == (kind != "best")


def test_what_leads_and_still_rises_gives_at_least_its_figure() -> None:
    answer = rising(64, 2.0).answer
    assert answer.kind == "best"
    assert "goodput at least 200/s" in answer.sentences[0] and "still got faster" in answer.sentences[0]


@pytest.mark.parametrize("blocks", [2, 3, 5])
def test_where_all_still_rise_the_best_so_far_and_a_longer_warm_up_are_named(blocks: int) -> None:
    """The settings are those of a JVM, which compiles for minutes. threads=1 gives a fifth of the best, and cannot
    reach it."""
    rates = {1: 40.0, 2: 100.0, 3: 100.0, 4: 100.0, 5: 100.0, 6: 200.0}
    trials = []
    for block in range(blocks):
        for threads, rate in rates.items():
            metrics = {"goodput_per_s": rate * (1 + 0.001 * ((block + threads) % 3))}
            made = trial(6 * block + threads, threads, False, rising=True)
            trials.append(TrialResult(**{**vars(made), "block": block, "metrics": metrics}))
    answer = analyse(experiment({"threads": tuple(rates)}), trials).answer
    assert answer.kind == "not_enough_data"
    best = "threads=6 looks best so far, goodput at least 200/s, and it still got faster while it was measured"
    assert answer.sentences[0].startswith(f"{UNTIL_WARM}: {best}")
    said = "threads=2, threads=3, threads=4 and threads=5 cannot be judged yet: it still got faster"
    assert answer.sentences[1].startswith(said)


@pytest.mark.parametrize(("had_s", "longer_s"), [((None,), 20), ((5.0, 3.0), 20), ((31.0, 60.4), 120)])
def test_a_longer_warm_up_is_twice_what_the_settings_had(had_s: tuple[float | None, ...], longer_s: int) -> None:
    trials = [trial(number, 64, False, warmup_s=each) for number, each in enumerate(had_s, 1)]
    trials.append(trial(9, 8, True, warmup_s=500.0))
    assert longer_warmup_s(trials, {trials[0].setting}) == longer_s


@pytest.mark.parametrize(
    ("settings", "rises", "may", "does"),
    [
        (6, (True, True), True, False),
        (6, (True, True, True), False, True),
        (6, (True, True, False), False, False),
        (6, (False, False), False, False),
        (5, (True, True), False, True),
    ],
)
def test_too_few_trials_that_all_rise_may_be_chance(
    settings: int, rises: tuple[bool, ...], may: bool, does: bool
) -> None:
    trials = [
        trial(1, threads, True, rising=threads == 1 and each) for threads in range(1, settings + 1) for each in rises
    ]
    assert (bool(may_still_rise(GOODPUT, trials)), bool(still_rising(GOODPUT, trials))) == (may, does)
    assert not may_still_rise("rss_bytes_max", trials), "that a server gets faster does not help it"


@pytest.mark.parametrize(("settings", "rise", "does"), [(6, 1, False), (6, 2, True), (6, 6, True), (40, 2, False)])
def test_several_settings_that_rise_in_both_trials_do_not_by_chance(settings: int, rise: int, does: bool) -> None:
    trials = [trial(1, threads, True, rising=threads <= rise) for threads in range(1, settings + 1) for _ in range(2)]
    assert len(still_rising(GOODPUT, trials)) == (rise if does else 0)
    assert len(may_still_rise(GOODPUT, trials)) == (0 if does else rise)


@pytest.mark.parametrize("settings", [2, 6])
def test_one_trial_each_does_not_show_that_settings_rise(settings: int) -> None:
    trials = [trial(threads, threads, True, rising=True) for threads in range(1, settings + 1)]
    assert not still_rising(GOODPUT, trials)


def test_a_soak_does_not_count() -> None:
    """One trial of three may be unsettled by chance; the report counts a soak as little as the warnings do."""
    soak = trial(9, 64, False, stage=Stage.SOAK)
    assert not never_stabilised([trial(1, 64, False), trial(3, 64, False), trial(5, 64, True), trial(2, 8, True), soak])
