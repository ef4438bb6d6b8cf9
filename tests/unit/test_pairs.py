"""The rule of the benchmarks' tables: the verdict by the median of repeats, and the form of its line. Nothing is
started."""

from __future__ import annotations

import math

import pytest
from benchmarks.pairs import MET, NOT_MET, UNDECIDED, Comparison, Spread, compare, figure, in_pairs, row, spread, worst


@pytest.mark.parametrize(
    ("n", "rank"),
    [(1, 0), (2, 0), (5, 0), (6, 1), (8, 1), (9, 2), (11, 2), (12, 3), (15, 4), (20, 6), (25, 8), (40, 14), (100, 40)],
)
def test_the_interval_has_the_ranks_of_the_tables(n: int, rank: int) -> None:
    """The ranks are those of the two-sided sign test at 5 %, one higher (any table of it, for example Conover 1999,
    table A3)."""
    found = spread([float(value) for value in range(1, n + 1)])
    assert found.is_interval == (rank > 0)
    assert (found.low, found.high) == (max(rank, 1), n + 1 - max(rank, 1))
    assert found.middle == (n + 1) / 2


@pytest.mark.parametrize(
    ("values", "at_most", "said"),
    [
        ([0.571, 0.580, 0.586, 0.590, 0.604], 0.600, UNDECIDED),  # oha on 2026-11-21: one pair is beyond the target
        ([0.571, 0.580, 0.586, 0.590, 0.595], 0.600, UNDECIDED),  # all are below it, and the median by 2.4 %
        ([0.571, 0.580, 0.586, 0.590, 0.592, 0.595], 0.600, MET),  # six have an interval, which ends below it
        ([0.113, 0.118, 0.123], 1 / 7, MET),
        ([0.90, 0.91, 0.92], 0.85, NOT_MET),
        ([0.86, 0.87, 0.88], 0.85, UNDECIDED),  # above, but by 2.3 %
        ([0.5], 0.6, MET),
        ([0.59], 0.6, UNDECIDED),
        ([0, 0], 0, MET),  # none lost
        ([0, 3], 0, UNDECIDED),
        ([2, 3], 0, NOT_MET),
        ([0.6] * 6, 0.6, MET),  # an end that equals the target meets it
    ],
)
def test_a_verdict_is_what_the_repeats_show(values: list[float], at_most: float, said: str) -> None:
    assert spread(values).verdict(at_most=at_most) == said
    assert spread([-value for value in values]).verdict(at_least=-at_most) == said


def test_a_promise_of_several_conditions_is_as_good_as_the_worst() -> None:
    assert [worst(found) for found in ([], [MET, MET], [MET, UNDECIDED], [UNDECIDED, NOT_MET, MET])] == [
        MET,
        MET,
        UNDECIDED,
        NOT_MET,
    ]


@pytest.mark.parametrize("values", [[], [1.0, math.nan]])
def test_without_numbers_there_is_no_median(values: list[float]) -> None:
    with pytest.raises(ValueError, match="needs numbers"):
        spread(values)


def test_the_order_within_a_pair_alternates() -> None:
    order: list[str] = []
    found = in_pairs(lambda: order.append("ours") or 1.0, lambda: order.append("theirs") or 2.0, 3)
    assert order == ["ours", "theirs", "theirs", "ours", "ours", "theirs"]
    assert found == [(1.0, 2.0)] * 3


def test_a_ratio_is_the_median_within_pairs_not_that_of_medians() -> None:
    ours, theirs = iter([1.0, 2.0, 9.0]), iter([2.0, 8.0, 9.0])
    made = compare(lambda: next(ours), lambda: next(theirs), 3)
    assert (made.ours, made.theirs) == ((1.0, 2.0, 9.0), (2.0, 8.0, 9.0))
    assert made.ratio == Spread(0.5, 0.25, 1.0, 3, is_interval=False)
    assert row("x", 64, made, 1.0).startswith("| x | 64 | 2.00 | 8.00 | 0.500 (0.250–1.000) | 1.000 |")


def test_lines_show_ends_target_and_verdict() -> None:
    made = Comparison([5.71, 5.80, 5.86, 5.90, 6.04], [10.0] * 5)
    assert row("oha", 1_000, made, 0.6) == ("| oha | 1,000 | 5.86 | 10.00 | 0.586 (0.571–0.604) | 0.600 | undecided |")
    assert figure("CPU", [1.0], "s", ".2f") == "| CPU | 1.00 s |  |  |"
    assert figure("CPU", [1.0, 3.0], "s", ".1f", at_most=5) == "| CPU | 2.0 (1.0–3.0) s | at most 5 s | met |"
    assert figure("lost", [0, 0], "", ".0f", at_most=0) == "| lost | 0 (0–0) | at most 0 | met |"
    assert figure("rate", [2.0], "", ".0f", at_least=4) == "| rate | 2 | at least 4 | NOT met |"
