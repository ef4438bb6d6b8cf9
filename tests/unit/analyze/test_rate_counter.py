"""What a rate counter would have printed, against windows counted by hand."""

from __future__ import annotations

from typing import Any

import pytest

from powerband.analyze.trial.rate_counter import rate_counter, rate_counter_metrics

S = 10**9


def intervals(rates: list[int], phase: str = "measure", length_ns: int = S) -> list[dict[str, Any]]:
    """One a second."""
    return [
        {"start_ns": 100 * S + i * length_ns, "end_ns": 100 * S + (i + 1) * length_ns, "phase": phase,
         "outcomes": {"ok": rate, "timeout": 1}}
        for i, rate in enumerate(rates)
    ]  # fmt: skip


def test_windows_begin_at_the_first_answer_and_only_whole_ones_count() -> None:
    lines = rate_counter(intervals([0, 0, 10, 20, 30, 40, 50, 60, 1000]))
    assert [line.window_per_s for line in lines] == [20, 50]
    assert [line.cumulative_per_s for line in lines] == [20, 35]
    assert [line.at_ns for line in lines] == [105 * S, 108 * S]


def test_the_metrics_are_those_of_the_lines() -> None:
    found = rate_counter_metrics(intervals([10, 20, 30, 40, 50, 60]))
    assert found["rate_counter_window_per_s_mean"] == 35 and found["rate_counter_per_s_last"] == 35
    assert found["rate_counter_window_per_s_sd"] == pytest.approx(30 / 2**0.5)
    assert "rate_counter_window_per_s_sd" not in rate_counter_metrics(intervals([1, 1, 1]))


def test_the_drain_and_what_is_too_short_say_nothing() -> None:
    assert rate_counter(intervals([1, 1, 1, 1], phase="drain")) == []
    assert rate_counter_metrics(intervals([1, 1])) == {} == rate_counter_metrics(intervals([0] * 9))


def test_intervals_that_do_not_divide_a_window_lose_nothing() -> None:
    lines = rate_counter(intervals([70] * 60, length_ns=700_000_000))
    assert lines[0].at_ns == 100 * S + 5 * 700_000_000
    assert all(
        line.window_per_s == pytest.approx(100) and line.cumulative_per_s == pytest.approx(100) for line in lines
    )
