"""The totals of Go's collector are found in memory by their arithmetic, or not at all."""

from __future__ import annotations

import os

import numpy as np
import pytest

from powerband.processes.go_memory import GoCollected, GoVariables, between, go_variables, sums_at

MS = 1_000_000
# assist, dedicated, idle marking, pauses, their sum; two of the scavenger, their sum; idle, user, total
SUMS = [114 * MS, 213 * MS, 35 * MS, 152 * MS, 514 * MS, 3, 141 * MS, 141 * MS + 3, 398 * MS, 4959 * MS, 6012 * MS + 3]
EARLIER = [14 * MS, 13 * MS, 5 * MS, 2 * MS, 34 * MS, 0, 0, 0, 98 * MS, 868 * MS, 1000 * MS]


def variables(sums: list[int], at: int = 40, length: int = 200) -> GoVariables:
    words = np.arange(length, dtype=np.int64) ** 3 * 7919
    words[at : at + len(sums)] = sums
    return GoVariables(words, 0.0)


def place(of: GoVariables) -> int | None:
    assert of.words is not None
    return sums_at(of.words)


@pytest.mark.parametrize("at", [0, 40, 189])
def test_they_are_found_wherever_they_lie(at: int) -> None:
    assert place(variables(SUMS, at)) == at


def test_a_collection_that_has_begun_is_not_in_the_total_yet() -> None:
    assert place(variables([*SUMS[:3], SUMS[3] + MS, SUMS[4] + MS, *SUMS[5:]])) == 40


@pytest.mark.parametrize(("field", "more"), [(0, 1), (4, 1), (7, 1), (9, 200 * MS), (10, MS)])
def test_sums_that_do_not_add_up_are_none(field: int, more: int) -> None:
    sums = list(SUMS)
    sums[field] += more
    assert place(variables(sums)) is None


@pytest.mark.parametrize("sums", [[0] * 11, [0, 0, 0, 5, 5, 0, 0, 0, 0, 995, 1000]])
def test_nothing_and_next_to_nothing_add_up_by_chance(sums: list[int]) -> None:
    assert place(variables(sums)) is None
    assert place(variables([], length=7)) is None


def test_two_places_that_add_up_leave_it_open() -> None:
    assert place(variables(SUMS + SUMS)) is None


def test_only_what_was_added_counts_and_no_marking_for_want_of_work() -> None:
    """Collections took 480 ms, 30 of them on idle processors, of 4,712 ms of processor time, 300 of them idle."""
    now, before = variables(SUMS), variables(EARLIER)
    assert between(7, 40, before, now) == {7: GoCollected(450 * MS, 4712 * MS + 3, 0.0)}
    assert between(7, 40, None, now) == {7: GoCollected(479 * MS, 5614 * MS + 3, 0.0)}


def test_another_program_under_the_same_pid_is_not_known() -> None:
    assert between(7, 40, variables(EARLIER, length=199), variables(SUMS)) == {7: None}
    assert between(7, 40, GoVariables(None, 0.0), variables(SUMS)) == {7: None}


def test_a_program_that_did_not_collect_is_left_out() -> None:
    assert between(7, 40, variables(SUMS), variables(SUMS)) == {}


def test_a_program_in_another_language_has_none() -> None:
    assert go_variables([os.getpid()]) == {}
