"""From rounds of writes to metrics and to what is said of them."""

from typing import Any

import pytest

from powerband.analyze.trial.acknowledgements import acknowledged_metrics, acknowledged_problems
from powerband.trials.instruments.acknowledged_writes import Round, count_in


def rounds(*visible: int | None, seen: int = 60) -> list[dict[str, Any]]:
    return [Round(5_000, seen, delay, 1_000).to_json() for delay in visible]


def test_delays_are_of_those_that_were_seen_and_missing_ones_of_all() -> None:
    found = acknowledged_metrics([*rounds(10, 30, 20), *rounds(None, seen=20)], 100)
    assert found["visible_delay_ns_p50"] == 20 and found["visible_delay_ns_p90"] == found["visible_delay_ns_max"] == 30
    assert found["missing_at_acknowledgement_mean"] == (3 * 40 + 80) / 4
    assert found["missing_at_acknowledgement_max"] == 80 and found["acknowledge_ns_p50"] == 5_000


def test_more_than_expected_is_not_less_than_none_missing() -> None:
    assert acknowledged_metrics(rounds(1, seen=500), 100)["missing_at_acknowledgement_max"] == 0


def test_nothing_read_is_no_metric_and_is_said() -> None:
    failed = [Round(failed="POST /: status 500").to_json()] * 2
    assert acknowledged_metrics(failed, 10) == {}
    (problem,) = acknowledged_problems(failed, 10)
    assert problem.code == "acknowledged_failed" and not problem.fatal
    assert problem.message == "2 of 2 writes were not acknowledged, or could not be read: POST /: status 500"


def test_what_was_never_seen_is_said() -> None:
    (problem,) = acknowledged_problems(rounds(5, None), 10)
    assert (
        problem.code == "acknowledged_never_seen" and "after 1 of 2 writes a read never saw all 10" in problem.message
    )


@pytest.mark.parametrize(
    ("body", "count", "found"),
    [
        (b"[1, 2, 3]", "json", 3),
        (b"17", "json", 17),
        (b'{"a": 1}', "json", 1),
        (b"true", "json", 0),
        (b"not json", "json", 0),
        (b"\xff\xfe", "json", 0),
        (b"a\n\nb\n", "lines", 2),
        (b"<li>x</li><li>y</li>", "<li>", 2),
    ],
)
def test_how_much_an_answer_holds(body: bytes, count: str, found: int) -> None:
    assert count_in(body, count) == found
