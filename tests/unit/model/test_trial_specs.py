"""The specs of trials in a plan and in a record: anything else in their place is refused."""

import pytest

from powerband.model.plan import Setting, TrialSpec


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
