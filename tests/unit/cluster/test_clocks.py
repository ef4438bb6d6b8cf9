"""The reading of another machine's clock is within its bound of the truth, whatever the delays and the offset."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from powerband.model.clocks import Exchange, GeneratorNode, Offset, most_error_ns, offset_of

HOUR_NS = 3_600_000_000_000
DELAY = st.integers(0, 50_000_000)


def exchange(at_ns: int, offset_ns: int, there_ns: int, busy_ns: int, back_ns: int) -> Exchange:
    """An exchange with these times on the way there, in the program, and on the way back."""
    got = at_ns + there_ns
    return Exchange(at_ns, got + offset_ns, got + busy_ns + offset_ns, got + busy_ns + back_ns)


@given(
    st.integers(-1000 * HOUR_NS, 1000 * HOUR_NS),
    st.lists(st.tuples(DELAY, DELAY, DELAY), min_size=1, max_size=30),
)
def test_the_truth_is_within_the_bound(offset_ns: int, delays: list[tuple[int, int, int]]) -> None:
    found = offset_of(exchange(5000 * HOUR_NS + n, offset_ns, *each) for n, each in enumerate(delays))
    assert abs(found.ns - offset_ns) <= found.uncertainty_ns
    assert found.uncertainty_ns <= min((there + back) / 2 for there, _, back in delays) + 2


def test_a_way_that_is_slower_in_one_direction_is_wrong_by_half_the_difference_which_the_bound_covers() -> None:
    found = offset_of([exchange(0, 7 * HOUR_NS, 9_000_000, 0, 1_000_000)])
    assert found.ns == 7 * HOUR_NS + 4_000_000 and found.uncertainty_ns == 5_000_001


def test_of_many_exchanges_the_quickest_counts() -> None:
    chance = random.Random(1)
    slow = [exchange(n, -HOUR_NS, chance.randrange(10**6, 10**8), 10**6, chance.randrange(10**6)) for n in range(20)]
    found = offset_of([*slow, exchange(50, -HOUR_NS, 60_000, 10**9, 60_000)])
    assert found == Offset(-HOUR_NS, 60_001)


def test_an_instant_goes_there_and_comes_back() -> None:
    offset = Offset(-3 * HOUR_NS, 100)
    assert offset.here(offset.there(4 * HOUR_NS)) == 4 * HOUR_NS
    assert offset.there(HOUR_NS) == 0  # the time is before that machine started: at once


def test_a_clock_that_went_is_known_as_badly_as_it_went() -> None:
    clock = GeneratorNode("b", (0,), 1_000_000, 90_000, 1_300_000, 50_000)
    assert (clock.drift_ns, clock.error_ns) == (300_000, 350_000)
    assert GeneratorNode.from_json(clock.to_json()) == clock
    assert GeneratorNode("b", (0,), 0, 90_000, 10, 50_000).error_ns == 90_000


@pytest.mark.parametrize(("window_ns", "most"), [(500_000_000, 5_050_000), (60_000_000_000, 16_000_000)])
def test_a_short_window_bears_less(window_ns: int, most: float) -> None:
    assert most_error_ns(window_ns) == pytest.approx(most)
