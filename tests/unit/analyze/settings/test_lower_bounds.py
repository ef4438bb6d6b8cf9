from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from fakes.contests import judged, noisy, results, setting, with_p99
from fakes.trials import experiment
from powerband.analyze.settings.compare import analyse
from powerband.analyze.settings.constraints import judge
from powerband.model.load import Load
from powerband.model.results import Analysis, AnswerKind, Problem, TrialResult, Verdict
from powerband.report.wording.numbers import format_estimate
from powerband.report.wording.words import change_words


def test_who_refuses_what_would_be_slow_has_no_p99_to_win_by() -> None:
    """2 % of the requests of threads=4 fail, and the others are fast; its p99 has the length of the window as a lower
    bound."""
    trials = [
        replace(trial, metrics={**trial.metrics, "response_time_ns_p99": p99, "error_rate": errors})
        for trial in results({1: noisy(100, 1), 4: noisy(100, 2)})
        for p99, errors in [(5e9, 0.02) if trial.setting == setting(4) else (30e6 + trial.number * 1e4, 0.0)]
    ]
    found = judged(trials, (1, 4), metric="response_time_ns_p99", direction="minimise")
    assert found.answer.setting == setting(1)
    estimates = {row.setting: row.estimates["response_time_ns_p99"] for row in found.settings}
    assert [estimates[of].at_least for of in (setting(1), setting(4))] == [False, True]
    assert format_estimate(estimates[setting(4)], "response_time_ns_p99").startswith("≥ 5")


@pytest.mark.parametrize(
    ("metric", "ns", "errors", "named"),
    [
        ("response_time_ns_mean", 3e6, 0.6, None),
        ("response_time_ns_mean", 3e6, 0.02, 4),
        ("response_time_ns_max", 10e9, 0.005, 1),
        ("response_time_ns_max", 3e6, 0.005, None),
        ("response_time_ns_max", 3e6, 0.0, 4),
    ],
)
def test_who_answers_few_requests_has_no_mean_or_maximum_to_win_by(
    metric: str, ns: float, errors: float, named: int | None
) -> None:
    trials = [
        replace(trial, metrics={**trial.metrics, metric: time, "error_rate": share})
        for trial in results({1: noisy(100, 1), 4: noisy(100, 2)})
        for time, share in [(ns, errors) if trial.setting == setting(4) else (30e6 + trial.number * 1e4, 0.0)]
    ]
    found = judged(trials, (1, 4), metric=metric, direction="minimise")
    assert found.answer.setting == (None if named is None else setting(named))
    assert [row.estimates[metric].at_least for row in found.settings] == [False, named != 4]
    if named is None:
        assert "More trials would not decide: too many requests of threads=4 got no" in found.answer.sentences[1]


@pytest.mark.parametrize(("errors", "feasible"), [(0.005, False), (0.0, True)])
def test_a_maximum_beside_requests_without_an_answer_meets_no_limit(errors: float, feasible: bool) -> None:
    """One request in two hundred waited for nothing, longer than the window."""
    extra = {"response_time_ns_max": 10e9, "error_rate": errors}
    trials = results({1: noisy(100, 1)}, {1: extra})
    (row,) = judged(trials, (1,), subject_to=["response_time_ns_max < 15s", "error_rate < 1%"]).settings
    assert row.feasible is feasible


P99 = {"metric": "response_time_ns_p99", "direction": "minimise"}


def test_lower_bounds_of_p99_are_not_compared_with_each_other() -> None:
    """One setting fails 60 % of its requests, the other 2 %: both p99 are only known to be at least a window."""
    found = judged(with_p99({1: [10e9] * 4, 4: [10e9] * 4}, {1: 0.6, 4: 0.02}), (1, 4), **P99)
    assert found.answer.kind is AnswerKind.NOT_ENOUGH_DATA and found.answer.setting is None
    assert Verdict.INCONCLUSIVE in [row.verdict for row in found.settings]
    said = found.answer.sentences[1]
    assert "More trials would not decide: judge a lower percentile" in said and "would decide" not in said


def test_of_a_lower_bound_only_the_least_difference_is_known() -> None:
    times = [20e6, 20.5e6, 20.2e6, 20.1e6]
    found = judged(with_p99({1: times, 4: [10e9] * 4}, {4: 0.02}), (1, 4), **P99)
    assert re.search(r"threads=4 is worse by at least a factor of \d+\.", found.answer.sentences[1])
    near = judged(with_p99({1: times, 4: [60e6] * 4}, {4: 0.02}), (1, 4), **P99)
    assert re.search(r"threads=4 is worse by at least \d+ %\.", near.answer.sentences[1])
    assert change_words(near.settings[1], near).startswith("≥ +")
    one = judged(with_p99({1: times[:2], 4: [60e6] * 2}, {4: 0.02}), (1, 4), **P99)
    assert "at least" in one.answer.sentences[1] or one.answer.setting is None


@pytest.mark.parametrize(
    ("first_ms", "second_ms", "load", "verdict", "said"),
    [
        (3.0, 3.0, Load(jmeter="plan.jmx"), Verdict.INCONCLUSIVE, "More trials may not narrow this: "),
        (1.0, 1.0, Load(jmeter="plan.jmx"), Verdict.INCONCLUSIVE, "More trials may not decide: "),
        (1.0, 2.0, Load(jmeter="plan.jmx"), Verdict.INCONCLUSIVE, "More trials may not narrow this: "),
        (3.0, 6.0, Load(jmeter="plan.jmx"), Verdict.WORSE, ""),
        (100.0, 100.0, Load(jmeter="plan.jmx"), Verdict.EQUIVALENT, ""),
        (3.0, 3.0, Load(users=10), Verdict.EQUIVALENT, ""),
        (1.0, 2.0, Load(users=10), Verdict.WORSE, ""),
    ],
)
def test_percentiles_of_a_coarse_clock_are_told_no_closer_than_it_counts(
    first_ms: float, second_ms: float, load: Load, verdict: Verdict, said: str
) -> None:
    """JMeter reads 1.45 ms as 1 in every trial and 1.55 ms as 2, but 2.6 ms and 3.4 ms both as 3."""
    trials = with_p99({1: [first_ms * 1e6] * 5, 4: [second_ms * 1e6] * 5}, {})
    found = analyse(experiment({"threads": (1, 4)}, load=load, objective=P99), trials)
    others = {row.verdict for row in found.settings} - {Verdict.EQUIVALENT}
    assert others == {verdict} - {Verdict.EQUIVALENT}
    told = " ".join(found.answer.sentences)
    assert f"{said}the load's clock counts steps of 1.00 ms" in told if said else "the load's clock" not in told


def test_a_lower_bound_of_p99_does_not_win_over_a_p99_longer_than_the_window() -> None:
    slow = [12e9 + 1e7 * block for block in range(4)]
    found = judged(with_p99({1: slow, 4: [10e9] * 4}, {4: 0.02}), (1, 4), **P99)
    assert found.answer.setting == setting(1)
    assert found.settings[1].verdict is Verdict.INCONCLUSIVE


def test_a_lower_bound_of_p99_meets_no_limit_longer_than_the_window() -> None:
    trials = with_p99({1: [1e9] * 4, 4: [10e9] * 4}, {4: 0.02})
    rows = judged(trials, (1, 4), subject_to=["p99 < 15s"]).settings
    assert [row.feasible for row in rows] == [True, False]
    assert rows[1].infeasible_because == ("p99 < 15s: broken in 4 of 4 starts",)


def test_a_start_with_too_few_requests_for_a_p99_leaves_the_limit_open() -> None:
    """The start without a p99 may be the slow one."""
    trials = with_p99({1: [60e6] * 5, 4: [60e6, 61e6, None, 60e6, 62e6]}, {})
    rows = judged(trials, (1, 4), subject_to=["p99 < 100ms"]).settings
    assert rows[0].uncertain_because == ()
    assert rows[1].uncertain_because == ("p99 < 100ms: not measured in 1 of 5 starts",)


FEW = "only 500 requests were due in the window, and a response time p99 needs 1,000: a load.duration of 20 s would do"


def few_requests(p50_ns: float, **objective: Any) -> Analysis:
    """Two settings with five trials each, in which all requests were answered, but too few for a p99."""
    extra = {"response_time_ns_p50": p50_ns, "error_rate": 0.0}
    return judged(
        [
            replace(trial, problems=(Problem("few_requests", FEW, fatal=False),))
            for trial in results({1: noisy(50, 1), 4: noisy(50, 2)}, {1: extra, 4: extra})
        ],
        (1, 4),
        **objective,
    )


def test_an_objective_of_too_few_requests_says_how_long_a_trial_would_do() -> None:
    found = few_requests(10e6, **P99)
    assert found.answer.kind is AnswerKind.NONE_VALID
    assert found.answer.sentences[1].startswith(f"O{FEW[1:]}. The trials are kept")


def test_a_condition_of_too_few_requests_says_how_long_a_trial_would_do() -> None:
    found = few_requests(10e6, subject_to=["p99 < 50ms"])
    assert found.answer.kind is AnswerKind.NOT_ENOUGH_DATA and found.answer.setting is None
    assert found.answer.sentences[1].endswith(f"p99 was not measured. O{FEW[1:]}.")


def test_a_p50_beyond_the_limit_breaks_that_of_a_p99_of_too_few_requests() -> None:
    found = few_requests(640e6, subject_to=["p99 < 50ms"])
    assert found.answer.kind is AnswerKind.NONE_FEASIBLE
    assert [row.infeasible_because for row in found.settings] == [("p99 < 50ms: it was at least 640 ms",)] * 2


def test_the_highest_percentile_below_stands_for_one_of_too_few_requests() -> None:
    made = experiment({"threads": (1,)}, objective={"subject_to": ["p99 < 50ms"]})
    seen = [{"response_time_ns_p50": 10e6, "response_time_ns_p95": p95} for p95 in (60e6, 61e6, 60e6)]
    assert judge(made, seen, settings=1).missed == ("p99 < 50ms: it was at least 60.3 ms",)
    unlike = [{"response_time_ns_p50": 20e6}, *[{"response_time_ns_p50": 10e6, "response_time_ns_p99": 20e6}] * 3]
    assert judge(made, unlike, settings=1).open == ("p99 < 50ms: not measured in 1 of 4 starts",)
    one_bad = [{"response_time_ns_p50": 55e6}, *[{"response_time_ns_p99": 1e6}] * 20]
    assert judge(made, one_bad, settings=1).lapsed == ("p99 < 50ms: broken in 1 of 21 starts",)


def test_a_lower_bound_of_a_percentile_meets_no_limit() -> None:
    made = experiment({"threads": (1,)}, objective={"subject_to": ["p99 < 50ms"], "allow_failed_starts": 0.5})
    found = judge(made, [{"response_time_ns_p50": 55e6}, *[{"response_time_ns_p99": 1e6}] * 20], settings=1)
    assert not found.barred and not found.certain and not found.seen


def test_a_setting_that_lacks_the_objective_in_a_trial_is_not_called_best() -> None:
    found = judged(with_p99({1: [90e6, 91e6, 92e6, 90e6], 4: [60e6, 61e6, None, 60e6]}, {}), (1, 4), **P99)
    assert found.answer.kind is AnswerKind.NOT_ENOUGH_DATA
    assert "threads=4 cannot be judged yet: 1 trial of it measured no response time p99" in found.answer.sentences[1]
    worse = judged(with_p99({1: [90e6, None, 92e6, 90e6], 4: [60e6, 61e6, 60e6, 60e6]}, {}), (1, 4), **P99)
    assert worse.answer.kind is AnswerKind.BEST and worse.answer.setting == setting(4)


def slow_of_few(lower_ns: Mapping[str, float]) -> list[TrialResult]:
    """Trials of a setting with a p99, and of one with lower percentiles alone, since its requests were too few."""
    few = Problem("few_requests", FEW, fatal=False)
    return [
        trial
        if trial.setting == setting(1)
        else replace(trial, problems=(few,), metrics={**trial.metrics, **{k: v * (1 + 0.01 * trial.block)
                                                                           for k, v in lower_ns.items()}})
        for trial in with_p99({1: [20e6, 20.5e6, 20.2e6, 20.1e6], 4: [None] * 4}, {})
    ]  # fmt: skip


def test_a_setting_with_too_few_requests_for_a_p99_is_worse_where_a_lower_percentile_lies_above() -> None:
    found = judged(slow_of_few({"response_time_ns_p50": 640e6, "response_time_ns_p90": 900e6}), (1, 4), **P99)
    assert found.answer.kind is AnswerKind.BEST and found.answer.setting == setting(1)
    slow = found.settings[1]
    assert slow.verdict is Verdict.WORSE and slow.estimates["response_time_ns_p99"].at_least
    assert format_estimate(slow.estimates["response_time_ns_p99"], "response_time_ns_p99").startswith("≥ 9")


def test_a_lower_percentile_below_the_best_p99_names_no_setting_and_says_how_long_a_trial_would_do() -> None:
    """Though it lies below, it never leads, and meets no limit on the p99."""
    trials = slow_of_few({"response_time_ns_p50": 1e6})
    found = judged(trials, (1, 4), **P99, subject_to=["p99 < 50ms"])
    assert found.answer.kind is AnswerKind.NOT_ENOUGH_DATA and found.answer.leader == setting(1)
    assert found.settings[1].verdict is Verdict.INCONCLUSIVE and found.settings[1].uncertain_because
    assert FEW in found.answer.sentences[1]
    over = judged(trials, (1, 4), **P99, subject_to=["p99 < 5ms"])
    assert over.answer.setting is over.answer.leader is None


def test_a_setting_without_any_percentile_says_how_long_a_trial_would_do() -> None:
    found = judged(slow_of_few({}), (1, 4), **P99)
    assert found.answer.kind is AnswerKind.NOT_ENOUGH_DATA
    assert f"response time p99 was not measured: {FEW}" in found.answer.sentences[1]


def test_starts_with_too_few_requests_for_a_percentile_that_has_no_end_break_a_limit_like_the_others() -> None:
    """In three starts 5 % of the requests failed; in two of them there were too few for a p99."""
    made = experiment({"threads": (1,)}, objective={"subject_to": ["p99 < 50ms"]})
    seen = [{"response_time_ns_p99": 5e6, "error_rate": 0.0}, {"response_time_ns_p99": 4e9, "error_rate": 0.05}]
    found = judge(made, [*seen, {"error_rate": 0.05}, {"error_rate": 0.05}], settings=1)
    assert found.lapsed == ("p99 < 50ms: broken in 3 of 4 starts",)


def test_the_answers_figure_is_a_lower_bound_where_its_sentence_says_so() -> None:
    found = judged(with_p99({1: [10e9] * 4}, {1: 0.02}), (1,), **P99)
    assert "is at least 10.0 s, because too many requests were not answered rightly" in found.answer.sentences[0]
    assert found.answer.figure is not None and found.answer.figure.estimate.at_least


def test_a_setting_with_a_lower_bound_in_one_trial_may_be_the_better_one_all_the_same() -> None:
    """threads=2 is quicker by two fifths in four trials of five. In the other one it failed two requests of a hundred,
    so that its p99 is that of a request without an answer, and its figures differ too much to tell."""
    rows = [(1, [50e6, 50.2e6, 49.9e6, 50.1e6, 50e6]), (2, [30e6, 30.1e6, 30.2e6, 29.9e6, 1e10])]
    trials = [
        TrialResult(
            10 * block + threads, block, 1, setting(threads), "measured", (),
            {"response_time_ns_p99": p99, "error_rate": 0.02 if p99 > 1e9 else 0.0, "goodput_per_s": 1000.0},
        )
        for threads, values in rows for block, p99 in enumerate(values)
    ]  # fmt: skip
    answer = judged(trials, (1, 2), metric="response_time_ns_p99", direction="minimise").answer
    assert answer.kind is AnswerKind.NOT_ENOUGH_DATA and answer.leader == setting(1)
    assert "threads=2 may still be better than threads=1 by more than the margin of 3 %" in answer.sentences[1]
