"""The specs of trials in a plan and in a record: anything else in their place is refused."""

import pytest

from powerband.model.plan import Level, Setting, TrialSpec, number_of


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
    ("level", "number"), [(3, 3.0), (0.5, 0.5), ("1.0", 1.0), ("007", 7.0), (True, None), ("1..4", None), ("v1", None)]
)
def test_a_text_that_is_a_number_is_drawn_as_one(level: Level, number: float | None) -> None:
    assert number_of(level) == number
