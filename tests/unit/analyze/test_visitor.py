"""What a person in the crowd saw."""

from __future__ import annotations

from typing import Any

from powerband.analyze.trial.visits import visitor_metrics, visitor_problems

MS = 1_000_000


def visit(at_ms: int, took_ms: int | None, error: str = "") -> dict[str, Any]:
    return {"at_ns": at_ms * MS, "took_ns": None if took_ms is None else took_ms * MS, "error": error}


def test_visits_of_the_window_count() -> None:
    visits = [visit(5, 900), visit(10, 3), visit(11, 1), visit(12, None, "no answer"), visit(13, 2), visit(20, 700)]
    found = visitor_metrics(visits, 10 * MS, 20 * MS)
    assert found == {
        "visits": 4.0,
        "visits_failed": 1.0,
        "visit_time_ns_p50": 2.0 * MS,
        "visit_time_ns_p90": 3.0 * MS,
        "visit_time_ns_max": 3.0 * MS,
    }
    (problem,) = visitor_problems(visits, found, "")
    assert problem.message == "1 of the visitor's 4 visits failed: no answer" and not problem.fatal


def test_nobody_came() -> None:
    assert visitor_metrics([visit(5, 1)], 10 * MS, 20 * MS) == {}
    assert [problem.code for problem in visitor_problems([], {}, "there is no Chromium")] == ["no_visitor"]
    (problem,) = visitor_problems([visit(5, 1)], {}, "")
    assert problem.code == "no_visit" and "none within the measured window" in problem.message
    assert list(visitor_problems([], {"visits": 1.0, "visits_failed": 0.0}, "")) == []
