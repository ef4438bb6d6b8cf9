from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.trials import Figures, histogram, summary
from powerband.readings.fleet import MergedTimes, merge_fleet

values = st.lists(st.integers(1, 3_600_000_000_000), min_size=1, max_size=200)


@given(values, st.floats(0, 1))
def test_quantiles_agree_with_a_sorted_oracle_to_three_digits(times: list[int], q: float) -> None:
    oracle = float(np.quantile(times, q, method="inverted_cdf"))
    assert MergedTimes([histogram(times)]).quantile(q) == pytest.approx(oracle, rel=1e-3)


@given(values, st.integers(1, 3))
def test_moments_agree_with_the_values(times: list[int], order: int) -> None:
    assert MergedTimes([histogram(times)]).moment(order) == pytest.approx(
        np.mean(np.array(times, float) ** order), rel=4e-3
    )


@given(values, st.integers(0, 200))
def test_merging_the_parts_is_the_whole(times: list[int], cut: int) -> None:
    whole, parts = MergedTimes([histogram(times)]), MergedTimes([histogram(times[cut:]), histogram(times[:cut])])
    assert parts.count == whole.count == len(times)
    assert [parts.quantile(q / 20) for q in range(21)] == [whole.quantile(q / 20) for q in range(21)]


def test_an_empty_distribution_has_no_values() -> None:
    empty = MergedTimes(["", histogram([])])
    assert (empty.count, empty.quantile(0.99), empty.moment(1), empty.maximum) == (0, 0.0, 0.0, 0.0)


def test_engines_that_never_reached_their_window_do_not_count() -> None:
    late = summary(Figures(summary={"measure_start_ns": 0, "measure_end_ns": 0}))
    assert merge_fleet([late]) is None
    fleet = merge_fleet([summary(Figures()), late])
    assert fleet is not None and fleet.goodput_per_s == pytest.approx(1000)


def test_engines_that_ran_out_of_work_at_different_times_are_added_over_the_whole_span() -> None:
    """Each of two engines sends 10,000 requests, one in 10 s and one in 40 s; together they send 20,000 in 40 s."""
    quick, slow = summary(Figures()), summary(Figures(goodput_per_s=250, window_s=40))
    quick["ended_by"] = slow["ended_by"] = "work"
    slow["measure_start_ns"] = quick["measure_start_ns"]
    slow["measure_end_ns"] = quick["measure_start_ns"] + 40_000_000_000
    fleet = merge_fleet([quick, slow])
    assert fleet is not None
    assert fleet.goodput_per_s == pytest.approx(500)
    assert fleet.window_s == pytest.approx(40)


def test_windows_that_end_by_time_have_rates_of_their_own_and_share_the_time_common_to_all() -> None:
    first, later = summary(Figures()), summary(Figures())
    later["measure_start_ns"] += 2_000_000
    later["measure_end_ns"] += 3_000_000
    fleet = merge_fleet([first, later])
    assert fleet is not None
    assert (fleet.start_ns, fleet.end_ns) == (later["measure_start_ns"], first["measure_end_ns"])
    assert fleet.goodput_per_s == pytest.approx(1000 + 10_000 / 10.001)
