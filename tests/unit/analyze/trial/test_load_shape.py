"""The shape of a load: its first moments, its rate in bars, and a rate counter against windows counted by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fakes.trials import histogram
from powerband.analyze.trial.load_shape import (
    bar_cores,
    bar_edges,
    bar_gc_share,
    bar_metrics,
    bar_rates,
    burst_metrics,
    rate_counter,
    rate_counter_metrics,
)
from powerband.readings.probe_samples import Counters

S = 10**9
START = 50 * S


def interval(start_s: float, end_s: float, ok: int) -> dict[str, Any]:
    return {"start_ns": START + round(start_s * S), "end_ns": START + round(end_s * S), "outcomes": {"ok": ok}}


def test_intervals_are_dealt_out_to_the_bars_that_they_touch() -> None:
    events = [
        interval(-1, 0, 999),
        interval(0, 1.5, 150),
        interval(1.5, 2.5, 100),
        interval(2.5, 4, 300),
    ]
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
    assert bar_rates(events, START, START + S, 2 * S) == bar_rates(events, START, START + S, 0) == ()
    assert bar_metrics(events, START, START + S, 2 * S) == bar_metrics(events, START, START + S, 0) == {}


def test_bars_of_several_engines_add_up() -> None:
    events = [interval(0, 1, 10), interval(0, 1, 20), interval(1, 2, 0), interval(1, 2, 60)]
    assert bar_rates(events, START, START + 2 * S, S) == pytest.approx((30, 60))


def counters(**fields: list[float]) -> Counters:
    """Counters with a reading every half second, the first at START."""
    size = len(next(iter(fields.values())))
    at = START + np.arange(size, dtype=float) * S / 2
    return Counters(at, {name: np.array(values, dtype=float) * S for name, values in fields.items()})


def test_the_bar_with_least_and_with_most_cpu() -> None:
    edges = bar_edges(START, START + 2 * S, S)
    subject = counters(cpu_user_ns=[0, 0.2, 0.4, 1.2, 2.0], cpu_system_ns=[0, 0, 0.1, 0.1, 0.1])
    assert bar_cores(subject, edges) == pytest.approx({"bar_cpu_cores_min": 0.5, "bar_cpu_cores_max": 1.6})
    assert bar_cores(subject, bar_edges(START, START + 5 * S, S)) == {}, "the last bars have no reading"
    assert bar_cores(subject, bar_edges(START, START + 2 * S, 0)) == {}, "no bars are asked for"


def test_the_bar_with_most_collections() -> None:
    edges = bar_edges(START, START + 2 * S, S)
    one, other = counters(gc_ns=[0, 0, 0.1, 0.1, 0.1]), counters(gc_ns=[0, 0.1, 0.1, 0.2, 0.5])
    silent = counters(threads_started=[1, 2, 3, 4, 5])
    assert bar_gc_share([one], edges) == pytest.approx({"bar_gc_share_max": 0.1})
    assert bar_gc_share([one, other, silent], edges) == pytest.approx({"bar_gc_share_max": 0.4})
    assert bar_gc_share([other, other], edges) == pytest.approx({"bar_gc_share_max": 0.4})
    ended = counters(gc_ns=[0, 0.1, 0.2])
    assert bar_gc_share([one, ended], edges) == {}, "one JVM ended meanwhile"
    assert bar_gc_share([silent], edges) == bar_gc_share([], edges) == bar_gc_share([one], []) == {}


def burst_interval(
    start_s: float, ok: int, failed: int = 0, times: list[int] | None = None, **more: int
) -> dict[str, Any]:
    event: dict[str, Any] = {
        "start_ns": round(start_s * S),
        "end_ns": round((start_s + 1) * S),
        "outcomes": {"ok": ok, "status_rejected": failed},
        "dropped": 0,
        "in_flight_now": 0,
        **more,
    }
    return event | ({"response_time_ns": histogram(times)} if times else {})


def test_the_first_moments_alone_count() -> None:
    events = [burst_interval(10, 0, 4, [5_000_000]), burst_interval(11, 6, 0, [20_000_000]), burst_interval(12, 500)]
    found = burst_metrics(events, 10 * S, 2 * S)
    assert found["burst_error_rate"] == pytest.approx(0.4)
    assert found["burst_goodput_per_s"] == pytest.approx(3)
    assert found["burst_response_time_ns_mean"] == pytest.approx(12.5e6, rel=0.01)


@pytest.mark.parametrize(
    ("in_flight", "failed", "expected"),
    [
        (0, 0, {"p50": 50, "p90": 90, "p95": 95, "p99": 99, "p999": 100, "max": 100}),
        (5, 0, {"p50": 53, "p90": 95, "p95": 100}),
        (0, 5, {"p50": 53, "p90": 95, "p95": 100}),
        (3, 2, {"p50": 53, "p90": 95, "p95": 100}),
        (300, 0, {}),
    ],
)
def test_requests_of_the_burst_without_an_answer_rank_last(
    in_flight: int, failed: int, expected: dict[str, float]
) -> None:
    """A hundred are answered in 1 to 100 ms; what comes after an engine's last histogram has no times yet."""
    times = [each * 1_000_000 for each in range(1, 101)]
    events = [
        burst_interval(1, 7, 9, in_flight_now=500),
        burst_interval(0, 60, failed, times[:60], in_flight_now=in_flight),
        burst_interval(0, 40, 0, times[60:], engine=1),
    ]
    found = burst_metrics(events, 0, 2 * S)
    stem = "burst_response_time_ns_"
    in_ms = {name.removeprefix(stem): value / 1e6 for name, value in found.items() if name.startswith(stem)}
    assert in_ms == pytest.approx({"mean": 50.5, **expected}, rel=0.002)


def test_nothing_is_said_where_none_is_asked_for_or_none_ended() -> None:
    assert burst_metrics([burst_interval(0, 5)], 0, 0) == {}
    assert burst_metrics([burst_interval(0, 0)], 0, 2 * S) == {}
    assert burst_metrics([], 0, 2 * S) == {}


def intervals(rates: list[int], phase: str = "measure", length_ns: int = S) -> list[dict[str, Any]]:
    """Intervals with these rates, a second each by default."""
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


def test_intervals_of_several_engines_that_end_together_are_of_one_window() -> None:
    of_one = [intervals([100 // 4] * 90, length_ns=S // 10) for _ in range(4)]
    lines = rate_counter([interval for engine in of_one for interval in engine])
    assert [line.window_per_s for line in lines] == pytest.approx([1000] * 3)


def test_intervals_that_do_not_divide_a_window_lose_nothing() -> None:
    lines = rate_counter(intervals([70] * 60, length_ns=700_000_000))
    assert lines[0].at_ns == 100 * S + 5 * 700_000_000
    assert all(
        line.window_per_s == pytest.approx(100) and line.cumulative_per_s == pytest.approx(100) for line in lines
    )
