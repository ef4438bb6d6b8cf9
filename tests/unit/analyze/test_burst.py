from __future__ import annotations

from typing import Any

import pytest

from fakes.trials import histogram
from powerband.analyze.trial.burst import burst_metrics

S = 10**9


def interval(start_s: float, ok: int, failed: int = 0, times: list[int] | None = None) -> dict[str, Any]:
    event: dict[str, Any] = {
        "start_ns": round(start_s * S),
        "end_ns": round((start_s + 1) * S),
        "outcomes": {"ok": ok, "status_rejected": failed},
    }
    return event | ({"response_time_ns": histogram(times)} if times else {})


def test_the_first_moments_alone_count() -> None:
    events = [interval(10, 0, 4, [5_000_000]), interval(11, 6, 0, [20_000_000]), interval(12, 500)]
    found = burst_metrics(events, 10 * S, 2 * S)
    assert found["burst_error_rate"] == pytest.approx(0.4)
    assert found["burst_goodput_per_s"] == pytest.approx(3)
    assert found["burst_response_time_ns_max"] == pytest.approx(20e6, rel=0.01)


def test_nothing_is_said_where_none_is_asked_for_or_none_ended() -> None:
    assert burst_metrics([interval(0, 5)], 0, 0) == {}
    assert burst_metrics([interval(0, 0)], 0, 2 * S) == {}
    assert burst_metrics([], 0, 2 * S) == {}
