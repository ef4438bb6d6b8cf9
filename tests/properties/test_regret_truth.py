"""The bound of an answer is right in 95 % of cases, for any look and setting that the data pick, and any noise.

The table of docs/methods/regret.md is of the same functions, with all shapes (`make statistics`). Seeds are fixed."""

from __future__ import annotations

import pytest

from fakes.regrets import TRUTHS, bounds_missed, race_bounds
from fakes.starts import SHAPES, Shape

# Normal, heavy tail, lognormal, two modes.
USUAL = (SHAPES[0], SHAPES[1], SHAPES[2], SHAPES[4])


def most(count: int, errors: float = 1.64) -> float:
    """5 % and this many standard errors."""
    return 0.05 + errors * (0.05 * 0.95 / count) ** 0.5


@pytest.mark.parametrize("shape", USUAL, ids=lambda shape: shape.name)
def test_no_bound_of_any_setting_at_any_look_is_too_small(shape: Shape) -> None:
    for settings in (2, 8):
        assert bounds_missed(shape, settings, 200) <= most(200), settings


@pytest.mark.parametrize("shape", USUAL, ids=lambda shape: shape.name)
def test_a_race_that_is_stopped_at_its_smallest_bound_is_right(shape: Shape) -> None:
    count = race_bounds(shape, TRUTHS[1], 10)
    assert count["bounded"] == count["races"] == 10
    assert count["missed"] <= 1 and count["missed anywhere"] <= 1


# Two wrong races of six fail: where a tenth of the bounds is wrong, one of the 48 cases has them with a probability of
# 0.997. The table has more races.
@pytest.mark.long
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_bounds_hold_for_every_shape(shape: Shape) -> None:
    for settings in (2, 4, 8):  # the table has 16, which take as long as all these
        assert bounds_missed(shape, settings, 200) <= most(200, 3.45), settings
    for truth in TRUTHS:
        count = race_bounds(shape, truth, 6)
        assert count["missed anywhere"] <= most(6) * count["bounded"]
