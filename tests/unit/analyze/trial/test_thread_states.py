"""Bands of thread states add up to the number of threads, while threads begin and end."""

from __future__ import annotations

from typing import Any

import pytest

from powerband.analyze.trial.thread_states import thread_states

S = 1_000_000_000


def pool(name: str, threads: int, on_cpu: float, wait: float, blocked: float, **seen: int) -> dict[str, Any]:
    return {
        "pool": name,
        "threads_now": threads,
        "on_cpu_ns": round(on_cpu * S),
        "run_wait_ns": round(wait * S),
        "blocked_ns": round(blocked * S),
        "blocked_on_samples": seen,
    }


def event(second: float, *pools: dict[str, Any]) -> dict[str, Any]:
    return {"type": "threads", "at_ns": round(second * S), "tree": "subject", "pools": list(pools)}


def bands(*events: dict[str, Any], only: str | None = None) -> dict[str, tuple[float, ...]]:
    return dict(thread_states(events, 0, only).bands)


def test_blocked_threads_are_split_by_what_they_were_seen_to_wait_on() -> None:
    found = bands(
        event(1, pool("w", 4, 0, 0, 0)),
        event(2, pool("w", 4, 1, 0.5, 2.5, lock=3, socket=1)),
        event(3, pool("w", 4, 1.25, 0.5, 6.25, lock=3, socket=6)),
    )
    assert found == {
        "on_cpu": pytest.approx((1.0, 0.25)),
        "run_wait": pytest.approx((0.5, 0.0)),
        "lock": pytest.approx((1.875, 0.0)),
        "socket": pytest.approx((0.625, 3.75)),
    }


def test_the_bands_of_all_pools_add_up_to_the_threads() -> None:
    events = [
        event(1, pool("a", 2, 0.1, 0, 1.9), pool("b", 1, 0, 0, 1)),
        event(2, pool("a", 2, 0.4, 0.2, 3.4, sleep=5), pool("b", 1, 0.5, 0, 1.5)),
        event(3, pool("a", 2, 0.4, 0.2, 5.4, sleep=5), pool("b", 1, 0.5, 0, 2.5)),
    ]
    states = thread_states(events, 0)
    assert states.t_s == (2.0, 3.0)
    assert [sum(parts) for parts in zip(*(values for _, values in states.bands), strict=True)] == pytest.approx([3, 3])
    # Pool `a` has no look in the last second, so all its earlier looks stand for it.
    assert dict(states.bands)["sleep"] == pytest.approx((1.5, 2.0))
    assert dict(states.bands)["blocked"] == pytest.approx((0.5, 1.0))
    assert thread_states(events, 2 * S, "b").t_s == (0.0, 1.0)
    assert dict(thread_states(events, 0, "b").bands) == {
        "on_cpu": pytest.approx((0.5, 0.0)),
        "blocked": pytest.approx((0.5, 1.0)),
    }


def test_a_pool_that_comes_late_had_nothing_before_and_never_more_than_its_threads() -> None:
    late = bands(event(1, pool("a", 1, 0, 0, 1)), event(2, pool("a", 1, 0, 0, 2), pool("n", 2, 0.2, 0, 0.4)))
    assert late == {"on_cpu": pytest.approx((0.2,)), "blocked": pytest.approx((1.4,))}
    renamed = bands(event(1, pool("a", 1, 0, 0, 1)), event(2, pool("a", 1, 0, 0, 2), pool("old", 1, 30, 0, 30)))
    assert renamed == {"on_cpu": pytest.approx((0.5,)), "blocked": pytest.approx((1.5,))}


def test_counters_that_go_back_do_no_harm() -> None:
    assert bands(event(1, pool("a", 1, 5, 0, 5)), event(2, pool("a", 1, 0, 0, 1))) == {}
    assert thread_states([], 0).t_s == () and thread_states([event(1, pool("a", 1, 0, 0, 0))], 0).bands == ()
