"""Growth in every trial of a setting is reported, with the time to its limit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from powerband.analyze.settings.lasting import growing, lasting_warnings, soon
from powerband.model.plan import Setting, Stage
from powerband.model.results import TrialResult

SETTING = Setting((("threads", 4),))


def trial(number: int, **metrics: float) -> TrialResult:
    return TrialResult(number, number, 1, SETTING, "measured", (), metrics)


def leaking(number: int, lasts_s: float) -> TrialResult:
    return trial(number, memory_growth_bytes_per_s=300 * 2**20, memory_lasts_s=lasts_s, threads_growth_per_s=0.0)


def test_growth_in_every_trial_is_told_with_its_end() -> None:
    found = growing([leaking(1, 70), leaking(2, 80), leaking(3, 90)])
    assert soon(found[SETTING], 3.0) == "memory grows by 300 MiB/s, full in 1 min 20 s"
    assert list(lasting_warnings(found)) == [
        "threads=4 may not last: all through each of its trials memory grows by 300 MiB/s, full in 1 min 20 s; "
        "a long run (--soak 10m) shows whether it goes on"
    ]


def test_growth_in_one_trial_or_in_some_is_not() -> None:
    assert growing([leaking(1, 70)]) == {}
    assert growing([leaking(1, 70), leaking(2, 80), trial(3, memory_growth_bytes_per_s=0.0)]) == {}


def test_short_trials_neither_show_growth_nor_hide_it() -> None:
    """In half a second there are too few readings to tell."""
    short = [replace(trial(number), stage=Stage.SCREEN) for number in (1, 2)]
    assert growing([*short, leaking(3, 70), leaking(4, 80)]).keys() == {SETTING}
    assert growing([*short, leaking(3, 70)]) == {}
    assert growing([replace(leaking(number, 70), stage=Stage.SCREEN) for number in (1, 2)]) == {}


def test_trials_that_a_race_shortened_neither_show_growth_nor_hide_it() -> None:
    """In two seconds a heap that fills within five looks like a leak."""
    shortened = [replace(leaking(number, 70), window_s=2.0) for number in (1, 2, 3)]
    assert growing(shortened) == {}
    fresh = [replace(leaking(number, 70), stage=Stage.CONFIRM) for number in (4, 5)]
    still = replace(trial(6, memory_growth_bytes_per_s=0.0), window_s=2.0)
    assert growing([*shortened, still, *fresh]).keys() == {SETTING}


@pytest.mark.parametrize(("seen", "told"), [({}, True), ({"memory_growth_bytes_per_s": 0.0}, False)])
def test_only_a_soak_in_which_it_was_seen_takes_growth_back(seen: dict[str, float], told: bool) -> None:
    soak = replace(trial(3, **seen), stage=Stage.SOAK)
    assert (SETTING in growing([leaking(1, 70), leaking(2, 80), soak])) is told


@pytest.mark.parametrize(
    ("lasts_s", "window_s", "told", "end"),
    [
        (7200, 120.0, False, "full in 2 h"),
        (3300, 20.0, False, "full in 55 min"),  # a heap that fills for a minute may show this
        (3300, 60.0, True, "full in 55 min"),
        (250, 3.0, True, "full in 4 min 10 s"),
    ],
)
def test_what_lasts_for_long_beside_what_was_measured_is_only_warned_of(
    lasts_s: float, window_s: float, end: str, *, told: bool
) -> None:
    found = growing([leaking(1, lasts_s), leaking(2, lasts_s)])
    assert soon(found[SETTING], window_s) == (f"memory grows by 300 MiB/s, {end}" if told else "")
    (warning,) = lasting_warnings(found, SETTING)
    assert warning.endswith(end)


def test_a_queue_that_grows_is_told() -> None:
    (warning,) = lasting_warnings(growing([trial(number, queue_growth_per_s=200.0) for number in (1, 2)]), SETTING)
    assert warning.endswith(
        "the queue of unanswered requests grows by 200/s: requests arrive faster than they are answered"
    )


def test_growth_without_a_known_limit_has_no_end() -> None:
    found = growing([trial(number, threads_growth_per_s=12.5) for number in (1, 2)])
    (warning,) = lasting_warnings(found, SETTING)
    assert warning == "threads=4 may not last: all through each of its trials threads grow by 12.5/s"
    assert soon(found[SETTING], 10.0) == ""
