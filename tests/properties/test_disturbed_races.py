"""A neighbour's bursts bias no answer, even if they hit one setting more often than the others. `pytest -s` prints the
number of false winners; docs/methods/disturbance.md says how many there may be. Seeds are fixed."""

from __future__ import annotations

import sys

import pytest

from fakes.beside import has_false_winner, race_beside

HIT = [pytest.param((0.9, 0.1, 0.1, 0.1), id="one-more-often"), pytest.param((0.5,) * 4, id="all-alike")]


@pytest.mark.parametrize("hit", HIT)
def test_equal_settings_beside_a_neighbour_have_no_winner(hit: tuple[float, ...]) -> None:
    assert sum(has_false_winner(race_beside(number, (1000.0,) * 4, hit)) for number in range(20)) <= 3


@pytest.mark.long
@pytest.mark.parametrize("screened", [False, True])
@pytest.mark.parametrize("hit", HIT)
def test_at_most_every_twentieth_of_200_races_has_a_false_winner(hit: tuple[float, ...], screened: bool) -> None:
    races = (race_beside(number, (1000.0,) * 4, hit, screened=screened) for number in range(200))
    false = sum(map(has_false_winner, races))
    sys.stdout.write(f"\n{false} of 200 races have a false winner\n")
    assert false <= 10


@pytest.mark.parametrize("bounded", [True, False])
def test_without_the_bounds_who_is_hit_each_time_is_called_worse(bounded: bool) -> None:
    races = [race_beside(n, (1000.0,) * 4, (1.0, 0.0, 0.0, 0.0), bounded=bounded, steady=True) for n in range(10)]
    assert sum(map(has_false_winner, races)) == (0 if bounded else 8)


def test_settings_far_apart_are_told_apart_where_the_best_is_hit_most() -> None:
    truth = tuple(20.0 * 2**setting for setting in range(7))
    for number in range(5):
        found = race_beside(number, truth, (0.1,) * 6 + (0.9,))
        assert found.answer.setting is not None and found.answer.setting.id == "threads=t6"
        assert len(found.trials) <= 3 * 7 + 6, "it is decided in three blocks"
