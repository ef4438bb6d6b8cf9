from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes.measured import codes, measured
from fakes.trials import Figures, histogram, summary
from powerband.loads.measured import as_judged, is_lower_bound
from powerband.model.experiment import Measure


def test_a_percentile_below_the_clock_of_the_generator_is_absent(tmp_path: Path) -> None:
    times = histogram([0] * 80 + [1_000_000] * 20)
    told = {**summary(Figures())["cohort_times"], "response_time_ns": times, "service_time_ns": times}
    metrics = measured(tmp_path, Figures(summary={"cohort_times": told})).metrics
    for time in ("response_time_ns", "service_time_ns"):
        assert f"{time}_p50" not in metrics and metrics[f"{time}_p90"] == pytest.approx(1e6, rel=1e-3)


def test_of_a_generator_that_does_not_tell_nothing_is_said(tmp_path: Path) -> None:
    figures = Figures(users=64, starved=56, goodput_per_s=800)
    told = summary(figures)["window"]
    window = {key: value for key, value in told.items() if not key.startswith("users_unserved")}
    result = measured(tmp_path, replace(figures, summary={"window": window}))
    assert "users_unserved" not in result.metrics and result.metrics["error_rate"] == 0
    assert "starved_users" in codes(result)


def test_percentiles_are_ranked_over_all_users(tmp_path: Path) -> None:
    """4 of 100 users get nothing: the 95th of 100 parts is the time of a served user, the 99th is not."""
    fair = measured(tmp_path / "fair", Figures(users=100, goodput_per_s=800)).metrics
    unfair = measured(tmp_path / "unfair", Figures(users=100, starved=4, goodput_per_s=800)).metrics
    assert fair["users_unserved"] == 0 and fair["error_rate"] == 0
    assert unfair["error_rate"] == pytest.approx(0.04)
    window_ns = Figures().window_s * 1e9
    assert (
        unfair["response_time_ns_p95"] < window_ns <= unfair["response_time_ns_p99"] == unfair["response_time_ns_max"]
    )


def timed(milliseconds: list[int], **figures: Any) -> Figures:
    """The figures of a trial with these response times; `figures`: further ones."""
    encoded = histogram([value * 1_000_000 for value in milliseconds])
    times = dict.fromkeys(("response_time_ns", "service_time_ns", "send_lag_ns"), encoded)
    return Figures(goodput_per_s=len(milliseconds) / 10, summary={"cohort_times": times}, **figures)


def test_requests_without_an_answer_rank_behind_all_others(tmp_path: Path) -> None:
    """0.9 % of the requests were dropped or failed, and 0.9 % took 10 s. 99.1 % of the answered ones were fast, but one
    request of 55 waited for ever or nearly so."""
    fast_and_slow = [10] * 9_820 + [10_000] * 90
    for name, lost in {"dropped": {"dropped": 90}, "failed": {"failed": 90}}.items():
        metrics = measured(tmp_path / name, timed(fast_and_slow, **lost)).metrics
        assert metrics["response_time_ns_p99"] >= 10e9
        assert metrics["response_time_ns_p95"] == pytest.approx(10e6, rel=0.01)
        assert metrics["service_time_ns_p99"] == pytest.approx(10e6, rel=0.01), "of those that were answered"


def test_an_invariant_is_not_met_by_a_percentile_that_is_only_a_lower_bound(tmp_path: Path) -> None:
    measure_it = Measure.model_validate({"invariants": ["p99 < 1min"]})
    result = measured(tmp_path, Figures(failed=1000), measure=measure_it)
    (broken,) = [problem for problem in result.problems if problem.code == "invariant"]
    assert "response_time_ns_p99 was at least 10.0 s" in broken.message


def test_a_percentile_that_too_many_never_had_is_at_least_the_window_and_says_so(tmp_path: Path) -> None:
    result = measured(tmp_path, timed([10] * 9_800, failed=200))
    assert result.metrics["response_time_ns_p99"] == 10e9
    assert result.metrics["response_time_ns_p95"] == pytest.approx(10e6, rel=0.01)
    (told,) = [problem.message for problem in result.problems if problem.code == "unanswered_percentiles"]
    assert told.startswith("2.0 % of the requests that were due got no correct response: percentiles from p99 on")


def test_a_maximum_beside_a_request_without_an_answer_is_at_least_the_window(tmp_path: Path) -> None:
    found = measured(tmp_path / "one", timed([10] * 9_999, failed=1)).metrics
    assert found["response_time_ns_max"] == 10e9 and is_lower_bound("response_time_ns_max", found)
    assert found["service_time_ns_max"] == pytest.approx(10e6, rel=0.01), "of those that were answered"
    assert found["response_time_ns_mean"] == pytest.approx(10e6, rel=0.01)
    assert not is_lower_bound("response_time_ns_mean", found)
    all_right = measured(tmp_path / "none", timed([10] * 9_999)).metrics
    assert all_right["response_time_ns_max"] == pytest.approx(10e6, rel=0.01)
    assert not is_lower_bound("response_time_ns_max", all_right)
    refused = measured(tmp_path / "refused", timed([10] * 4_000, failed=6_000)).metrics
    assert refused["response_time_ns_mean"] == pytest.approx(10e6, rel=0.01)
    assert is_lower_bound("response_time_ns_mean", refused)


def test_an_end_of_an_interval_that_falls_on_requests_without_an_answer_is_a_lower_bound(tmp_path: Path) -> None:
    """0.9 % of 10,000 requests have no answer. So the p99 is known, and the high end of its interval is not."""
    found = measured(tmp_path / "some", timed([10] * 9_910, failed=90)).metrics
    ends = [f"response_time_ns_{key}" for key in ("p95_high", "p99_low", "p99", "p99_high")]
    assert [is_lower_bound(end, found) for end in ends] == [False, False, False, True]
    assert found[ends[-1]] == 10e9 and as_judged(ends[-1], found) == float("inf")
    all_right = measured(tmp_path / "none", timed([10] * 10_000)).metrics
    assert not any(is_lower_bound(end, all_right) for end in ends)


@pytest.mark.parametrize(("limit", "said"), [("p999 < 50ms", True), ("p99 < 50ms", False)])
def test_a_p999_without_an_end_is_told_of_where_a_condition_is_about_it(limit: str, said: bool, tmp_path: Path) -> None:
    objective = {"metric": "goodput_per_s", "subject_to": [limit]}
    result = measured(tmp_path, timed([10] * 19_900, failed=100), objective=objective)
    told = [problem.message for problem in result.problems if problem.code == "unanswered_percentiles"]
    assert bool(told) is said and all("percentiles from p999 on" in message for message in told)


@pytest.mark.parametrize(("requests", "had"), [(9_999, "p99"), (999, "p95"), (199, "p90")])
def test_a_percentile_needs_ten_requests_beyond_it(requests: int, had: str, tmp_path: Path) -> None:
    found = measured(tmp_path, timed([10] * requests)).metrics
    order = ["p50", "p90", "p95", "p99", "p999"]
    left = [key for key in order if f"response_time_ns_{key}" in found]
    assert left == order[: order.index(had) + 1]
    assert [key for key in order if f"response_time_ns_{key}_low" in found] == left


@pytest.mark.parametrize(
    ("metric", "named"),
    [("p99", "a response time p99"), ("response_time_ns_p99_high", "an upper end of response time p99")],
)
def test_a_condition_on_too_few_requests_says_how_long_a_trial_would_do(
    metric: str, named: str, tmp_path: Path
) -> None:
    objective = {"metric": "goodput_per_s", "subject_to": [f"{metric} < 50ms"]}
    result = measured(tmp_path, timed([10] * 500), objective=objective)
    (told,) = [problem.message for problem in result.problems if problem.code == "few_requests"]
    assert f"only 500 requests were due in the window, and {named} needs 1,000" in told
    assert "a load.duration of 20 s (--duration 20s) would do" in told


def test_the_interval_of_a_percentile_holds_the_true_one(tmp_path: Path) -> None:
    """The times are exponential, in 60 trials of 2,000 requests. 95 % of the intervals contain the true percentile,
    less three standard errors."""
    dice, held = random.Random(1), Counter[str]()
    true_ns = {"p50": 70.3e6, "p90": 231.3e6, "p95": 300.6e6, "p99": 461.5e6}  # rounded, and one more
    for number in range(60):
        times = [round(dice.expovariate(1 / 100)) + 1 for _ in range(2_000)]
        found = measured(tmp_path / str(number), timed(times)).metrics
        for key, ns in true_ns.items():
            held[key] += found[f"response_time_ns_{key}_low"] <= ns <= found[f"response_time_ns_{key}_high"]
    assert min(held.values()) >= 60 * 0.95 - 3 * (60 * 0.95 * 0.05) ** 0.5
