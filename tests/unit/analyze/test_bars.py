"""The rate in bars: of whole bars only, intervals over an edge dealt out by time."""

from __future__ import annotations

from typing import Any

import pytest

from powerband.analyze.trial.rate_bars import bar_metrics, bar_rates

S = 10**9
START = 50 * S


def interval(start_s: float, end_s: float, ok: int) -> dict[str, Any]:
    return {"start_ns": START + round(start_s * S), "end_ns": START + round(end_s * S), "outcomes": {"ok": ok}}


def test_intervals_are_dealt_out_to_the_bars_that_they_touch() -> None:
    events = [interval(-1, 0, 999), interval(0, 1.5, 150), interval(1.5, 2.5, 100), interval(2.5, 4, 300)]
    assert bar_rates(events, START, START + 4 * S, 2 * S) == pytest.approx((100, 175))
    assert bar_rates(events, START, START + 4 * S, S) == pytest.approx((100, 100, 150, 200))
    assert bar_metrics(events, START, START + 4 * S, 2 * S) == pytest.approx(
        {"bar_rate_per_s_min": 100, "bar_rate_per_s_max": 175}
    )


def test_what_is_left_of_a_window_is_no_bar() -> None:
    events = [interval(0, 5, 500)]
    assert bar_rates(events, START, START + 5 * S, 2 * S) == pytest.approx((100, 100))
    # A window ends with a reading, which may come a little early.
    assert bar_rates(events, START, START + 3_995_000_000, 2 * S) == pytest.approx((100, 100))
    assert bar_rates(events, START, START + S, 2 * S) == ()
    assert bar_metrics(events, START, START + S, 2 * S) == bar_metrics(events, START, START + S, 0) == {}


def test_bars_of_several_engines_add_up() -> None:
    events = [interval(0, 1, 10), interval(0, 1, 20), interval(1, 2, 0), interval(1, 2, 60)]
    assert bar_rates(events, START, START + 2 * S, S) == pytest.approx((30, 60))
