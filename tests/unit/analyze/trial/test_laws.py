from __future__ import annotations

import pytest

from powerband.analyze.trial.laws import active_threads, held_ns, in_flight, time_in_pool_ns
from powerband.model.results import PoolUse


def test_requests_present_follow_from_littles_law_or_were_sampled() -> None:
    figures = {"goodput_per_s": 800.0, "response_time_ns_mean": 10e6}
    assert in_flight(figures) == pytest.approx(8.0)
    assert in_flight({**figures, "in_flight_mean": 9.0}) == pytest.approx(8.0)  # samples may beat with the load
    assert in_flight({**figures, "in_flight_mean": 64.0}) == 64.0  # 56 wait without an answer
    assert in_flight({"in_flight_mean": 3.0}) == 3.0
    assert in_flight({}) is None


def test_requests_that_are_rejected_at_once_do_not_count_as_long_as_the_others() -> None:
    figures = {"goodput_per_s": 800.0, "achieved_rate_per_s": 2000.0, "response_time_ns_mean": 10e6, "error_rate": 0.6}
    assert in_flight(figures) == pytest.approx(8.0)
    assert in_flight({**figures, "in_flight_mean": 8.5}) == 8.5  # 0.7 ms each


def test_the_time_in_a_pool_is_its_busy_threads_over_the_rate() -> None:
    assert time_in_pool_ns(8.0, 800.0) == pytest.approx(10e6)


def test_threads_that_wait_on_a_condition_may_be_idle() -> None:
    kinds = {"lock": 0.5, "sleep": 0.25, "poll": 0.25}
    assert active_threads(PoolUse("pool", 12.0, 1.0, 3.0, 8.0, kinds)) == pytest.approx(6.0)
    assert active_threads(PoolUse("pool", 12.0, 1.0, 3.0, 8.0, {})) == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("blocked", "present", "held"),
    [
        ({"socket": 61.0}, 3.0, 3.0),  # 61 threads wait for the next request of their connection
        ({"socket": 63.9}, None, 64.0),
        ({"socket": 10.0, "lock": 90.0}, 10.0, 10.0),  # those that idle wait on a condition: the others are in a call
        ({"socket": 6.0, "sleep": 2.0}, 64.0, 8.0),
        ({"sleep": 8.0}, 4.0, 8.0),  # a request may hold two at once
        ({"disk": 4.0}, 0.01, 4.0),  # or one after its answer, as messages do that get none
        ({"socket": 8.0, "poll": 1.0}, 0.0, 0.0),
    ],
)
def test_a_request_holds_no_thread_that_waits_for_the_next_one(
    blocked: dict[str, float], present: float | None, held: float
) -> None:
    waiting = sum(blocked.values())
    running = max(0.0, held - waiting) if present is None else 0.0
    kinds = {kind: count / waiting for kind, count in blocked.items()}
    threads = PoolUse("pool", waiting + running, running, 0.0, waiting, kinds)
    assert held_ns(threads, 100.0, present) == pytest.approx(held / 100 * 1e9)
    assert held_ns(threads, 0.0, present) is None
