"""The specs of trials in a plan and in a record: anything else in their place is refused."""

import pytest

from powerband.model.plan import Level, Setting, TrialSpec, number_of, numbers_of


@pytest.mark.parametrize(
    "change",
    [{"number": "1"}, {"number": True}, {"block": -1}, {"seed": 10**30}, {"attempt": None}, {"setting": {"a": None}},
     {"setting": {"a": float("nan")}}, {"setting": {"a": 10**400}}, {"rate_per_s": "x"}, {"rate_per_s": float("inf")}],
)  # fmt: skip
def test_what_is_no_trial_is_refused(change: dict[str, object]) -> None:
    good = TrialSpec(1, 0, 1, Setting((("a", 1),)), 7, rate_per_s=2.5)
    assert TrialSpec.from_json(good.to_json()) == good
    with pytest.raises((KeyError, TypeError, AttributeError, ValueError)):
        TrialSpec.from_json(good.to_json() | change)


@pytest.mark.parametrize(
    ("level", "number"),
    [(3, 3.0), (0.5, 0.5), ("1.0", 1.0), ("007", 7.0), ("1e3", 1000.0), ("-1.50", -1.5), ("+.5", 0.5), (True, None),
     ("1..4", None), ("v1", None), ("0x10", None), ("1_000", None), ("1e999", None), ("nan", None), ("", None)],
)  # fmt: skip
def test_a_text_that_is_a_number_is_drawn_as_one(level: Level, number: float | None) -> None:
    assert number_of(level) == number


def test_levels_that_are_the_same_number_are_told_apart_by_their_names() -> None:
    assert numbers_of([0.5, "1.0", "2e0"]) == [0.5, 1.0, 2.0]
    assert numbers_of([1, "1.0"]) is None and numbers_of(["1.1", "1.10"]) is None
