from __future__ import annotations

from typing import Any

import pytest

from powerband.analyze.trial.link_figures import link_metrics, link_problems


def link(late_ns: int | None = 50_000, missed: int = 0, delay_ns: int = 5_000_000) -> dict[str, Any]:
    way = {"packets": 10, "bytes": 1000, "dropped": 2, "missed": missed}
    return {"delay_ns": delay_ns, "a_to_b": way, "b_to_a": {**way, "dropped": 1}, "late_ns_p99": late_ns}


def test_both_ways_count() -> None:
    assert link_metrics(link(missed=2)) == {"link_dropped": 3.0, "link_missed": 4.0, "link_late_ns_p99": 50_000.0}


def test_what_is_not_known_is_absent() -> None:
    assert "link_late_ns_p99" not in link_metrics(link(late_ns=None))
    assert link_metrics({}) == {} and link_metrics({"delay_ns": 5}) == {}
    assert not list(link_problems({})) and not list(link_problems({"delay_ns": 5}))


@pytest.mark.parametrize(
    ("told", "codes"),
    [
        (link(), []),
        (link(late_ns=1_000_000), []),
        (link(late_ns=1_000_001), ["link_late"]),
        (link(late_ns=200_001, delay_ns=0), ["link_late"]),
        (link(late_ns=200_000, delay_ns=0), []),
        (link(missed=1), ["link_missed"]),
        (link(late_ns=10**9, missed=1), ["link_late", "link_missed"]),
    ],
)
def test_lateness_is_told_by_the_delay_and_any_loss_but_that_of_a_full_queue(
    told: dict[str, Any], codes: list[str]
) -> None:
    found = list(link_problems(told))
    assert [problem.code for problem in found] == codes
    assert not any(problem.fatal for problem in found)
