"""Growth in every trial of a setting is reported, with the time to its limit."""

from __future__ import annotations

from powerband.analyze.settings.lasting import growing, lasting_warnings, soon
from powerband.model.plan import Setting
from powerband.model.results import TrialResult

SETTING = Setting((("threads", 4),))


def trial(number: int, **metrics: float) -> TrialResult:
    return TrialResult(number, number, 1, SETTING, "measured", (), metrics)


def leaking(number: int, lasts_s: float) -> TrialResult:
    return trial(number, memory_growth_bytes_per_s=300 * 2**20, memory_lasts_s=lasts_s, threads_growth_per_s=0.0)


def test_growth_in_every_trial_is_told_with_its_end() -> None:
    found = growing([leaking(1, 70), leaking(2, 80), leaking(3, 90)])
    assert soon(found[SETTING]) == "memory grows by 300 MiB/s, full in 1 min 20 s"
    assert list(lasting_warnings(found)) == [
        "threads=4 may not last: all through each of its trials memory grows by 300 MiB/s, full in 1 min 20 s; "
        "a long run (--soak 10m) shows whether it goes on"
    ]


def test_growth_in_one_trial_or_in_some_is_not() -> None:
    assert growing([leaking(1, 70)]) == {}
    assert growing([leaking(1, 70), leaking(2, 80), trial(3, memory_growth_bytes_per_s=0.0)]) == {}


def test_what_lasts_for_hours_is_only_warned_of() -> None:
    found = growing([leaking(1, 7200), leaking(2, 7200)])
    assert soon(found[SETTING]) == ""
    (warning,) = lasting_warnings(found, SETTING)
    assert warning.endswith("full in 2 h")


def test_a_queue_that_grows_is_told() -> None:
    (warning,) = lasting_warnings(growing([trial(number, queue_growth_per_s=200.0) for number in (1, 2)]), SETTING)
    assert warning.endswith(
        "the queue of unanswered requests grows by 200/s: requests arrive faster than they are answered"
    )


def test_growth_without_a_known_limit_has_no_end() -> None:
    found = growing([trial(number, threads_growth_per_s=12.5) for number in (1, 2)])
    (warning,) = lasting_warnings(found, SETTING)
    assert warning == "threads=4 may not last: all through each of its trials threads grow by 12.5/s"
    assert soon(found[SETTING]) == ""
