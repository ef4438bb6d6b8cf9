"""A rate comes from a count, so its interval is no narrower than the count allows; Clopper and Pearson's bounds of a
share have the known values, and their coverage is as stated."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest

from fakes.trials import experiment
from powerband.analyze.settings.compare import analyse
from powerband.analyze.stats.counts import count_ends, no_narrower_than_counted, share_no_narrower_than_counted
from powerband.analyze.stats.intervals import compare_with_leader, estimate
from powerband.analyze.stats.shares import share_least, share_most
from powerband.model.load import Load
from powerband.model.plan import Setting
from powerband.model.results import Estimate, TrialResult


def test_known_values() -> None:
    assert count_ends(0, 0.95) == pytest.approx((0.0, 3.689), abs=0.001)
    assert count_ends(10, 0.95) == pytest.approx((4.795, 18.390), abs=0.001)  # Garwood's table


@pytest.mark.parametrize("mean", [0.5, 4.0, 30.0, 1000.0])
def test_the_ends_hold_the_mean_of_a_poisson_count(mean: float) -> None:
    counts = np.random.default_rng(3).poisson(mean, 3000)
    ends = [count_ends(float(count), 0.95) for count in counts]
    assert np.mean([low <= mean <= high for low, high in ends]) >= 0.94


def test_an_interval_is_widened_and_never_narrowed() -> None:
    narrow = Estimate(768.0, 768.0, 768.0, 0.95, 2)
    wide = no_narrower_than_counted(narrow, 768 * 6, 6)
    assert wide.low == pytest.approx(768 * (1 - 1.96 / 4608**0.5), rel=1e-3)
    assert wide.high == pytest.approx(768 * (1 + 1.96 / 4608**0.5), rel=1e-3)
    assert no_narrower_than_counted(wide, 768e9, 1e9) == wide
    assert no_narrower_than_counted(Estimate(768.0, None, None, 0.95, 1), 768, 1).low is None


@pytest.mark.parametrize(("share", "of", "ends"), [
    (0.0, 1000, (0.0, 0.003682)), (0.5, 10, (0.1871, 0.8129)), (1.0, 50, (0.9289, 1.0)),
])  # fmt: skip
def test_a_share_is_known_as_well_as_its_number_of_requests_allows(
    share: float, of: int, ends: tuple[float, float]
) -> None:
    """The ends are those of Clopper and Pearson's tables."""
    narrow = Estimate(share, share, share, 0.95, 3)
    assert share_no_narrower_than_counted(narrow, of).ends == pytest.approx(ends, abs=1e-4)
    wide = Estimate(share, -0.5, 1.5, 0.95, 3)
    assert share_no_narrower_than_counted(wide, of).ends == (0.0, 1.0)
    assert share_no_narrower_than_counted(narrow, 0) == narrow
    assert share_no_narrower_than_counted(Estimate(share, None, None, 0.95, 1), of).low is None


def test_two_starts_that_gave_the_same_rate_have_intervals_with_width() -> None:
    """Each estimate, the answer's figure and the difference have such an interval."""
    trials = [
        TrialResult(1 + 2 * block + of, block, 1, Setting((("threads", of),)), "measured", (),
                    {"goodput_per_s": (768.0, 700.0)[of]})
        for block in range(3) for of in (0, 1)
    ]  # fmt: skip
    made = experiment({"threads": (0, 1)}, load=Load(users=4, duration=3_000_000_000))
    analysis = analyse(made, trials)
    found = analysis.settings[0].estimates["goodput_per_s"]
    figure = analysis.answer.figure
    assert figure is not None
    for each in (found, figure.estimate):
        assert each.low is not None and each.high is not None
        assert each.low < 768 * 0.98 and each.high > 768 * 1.02
    effect = analysis.settings[1].effect
    assert effect is not None and effect.low is not None and effect.high is not None and effect.low < effect.high


def test_no_interval_of_equal_values_is_without_width() -> None:
    found = estimate([768.0, 768.0], 0.95, log=True)
    assert found.low is not None and found.high is not None and found.low < 768.0 < found.high
    contest = compare_with_leader(np.log(np.array([[[700.0, 768.0]] * 3])), 0.95, least=np.array([1e-3, 1e-3]))
    assert contest.half[0, 0] > 1e-3


@pytest.mark.parametrize("share", ["error_rate", "run_error_rate"])
def test_no_failure_in_any_start_leaves_a_share_that_may_have_gone_unseen(share: str) -> None:
    trials = [
        TrialResult(1 + block, block, 1, Setting((("threads", 1),)), "measured", (),
                    {share: 0.0, "goodput_per_s": 100.0, "achieved_rate_per_s": 100.0})
        for block in range(3)
    ]  # fmt: skip
    made = experiment({"threads": (1,)}, load=Load(users=4, duration=10_000_000_000))
    found = analyse(made, trials).settings[0].estimates[share]
    assert found.low == 0 and found.high == pytest.approx(0.00123, rel=0.01)  # 1 - 0.025^(1 / 3,000)


def test_of_none_in_n_the_bound_is_about_three_of_n() -> None:
    assert share_most(0, 59, 0.05) == pytest.approx(1 - 0.05 ** (1 / 59))
    assert share_most(0, 59, 0.05) < 0.05 < share_most(0, 58, 0.05)
    assert share_most(0, 0, 0.05) == 1.0 and share_most(5, 5, 0.05) == 1.0
    assert share_least(0, 5, 0.05) == 0.0 and share_least(0, 0, 0.05) == 0.0


@pytest.mark.parametrize("share", [0.02, 0.1, 0.4, 0.7])
@pytest.mark.parametrize("n", [1, 3, 8, 30])
def test_the_bounds_miss_the_truth_no_more_often_than_they_may(n: int, share: float) -> None:
    chance = [comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(n + 1)]
    assert sum(p for k, p in enumerate(chance) if share_most(k, n, 0.05) < share) <= 0.05
    assert sum(p for k, p in enumerate(chance) if share_least(k, n, 0.05) > share) <= 0.05
