from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from fakes.contests import judged, noisy, results, setting, with_p99
from fakes.trials import experiment
from powerband.analyze.settings.compare import analyse
from powerband.analyze.settings.constraints import Compliance, judge
from powerband.model.load import Load
from powerband.model.results import Analysis, AnswerKind, Problem, TrialResult, Verdict


def test_the_open_condition_of_several_settings_is_said_of_the_one_that_it_is_of() -> None:
    unsure = [12e6, 49e6, 14e6, 48e6, 49e6]
    rates = {1: noisy(100, 1), 2: noisy(400, 2, sd=0.05), 4: noisy(410, 3, sd=0.05)}
    trials = [
        replace(trial, metrics={**trial.metrics, "response_time_ns_p99": unsure[trial.block] * scale})
        for trial in results(rates)
        for scale in [{1: 0.1, 2: 0.9, 4: 1.0}[int(trial.setting.as_dict()["threads"])]]
    ]
    said = judged(trials, subject_to=["p99 < 50ms"]).answer.sentences[1]
    assert "It is not certain whether threads=2 and threads=4 meet the SLO (threads=2: p99 < 50ms: it was" in said


def test_a_setting_that_surely_violates_one_condition_is_not_said_to_be_uncertain_for_another() -> None:
    """No start has enough requests for a p999."""
    trials = with_p99({1: [300e6] * 4, 4: [100e6] * 4}, {})
    found = judged(trials, (1, 4), subject_to=["p99 < 200ms", "p999 < 1s"])
    slow, fast = found.settings
    assert not slow.feasible and slow.uncertain_because == ()
    assert fast.feasible and fast.uncertain_because == ("p999 < 1s: response time p99.9 was not measured",)
    assert "threads=1 may" not in " ".join(found.answer.sentences)
    assert not any("whether threads=1" in warning for warning in found.warnings)


def test_a_setting_that_misses_a_constraint_cannot_win() -> None:
    extra = {4: {"error_rate": 0.2}, 2: {"error_rate": 0.0}, 1: {"error_rate": 0.0}}
    trials = results({1: noisy(100, 1), 2: noisy(200, 2), 4: noisy(400, 3)}, extra)
    analysis = judged(trials, subject_to=["error_rate < 1%"])
    assert analysis.answer.setting == setting(2)
    row = analysis.settings[2]
    assert not row.feasible and "error_rate < 1%" in row.infeasible_because[0]
    assert row.verdict is Verdict.BETTER


@pytest.mark.parametrize(
    ("allowed", "bad", "first", "second"),
    [
        (0.0, 2, "No setting meets the SLO", "It violates the SLO: p99 < 50ms (broken in 2 of 5 starts)."),
        (
            0.2,
            2,
            "No setting is shown to meet the SLO",
            "It may violate the SLO: p99 < 50ms (broken in 2 of 5 starts). More starts would tell (measure.repeats).",
        ),
        (0.2, 5, "No setting meets the SLO", "It violates the SLO: p99 < 50ms (it was 52"),
    ],
)
def test_so_few_starts_that_more_bad_ones_may_be_allowed_are_no_violation(
    allowed: float, bad: int, first: str, second: str
) -> None:
    values = [52e6, 53e6, 51.9e6, 52.2e6, 51.8e6][:bad] + [44e6, 46e6, 45e6, 45.5e6, 46.5e6][bad:]
    trials = [
        replace(trial, metrics={**trial.metrics, "response_time_ns_p99": values[trial.block]})
        for trial in results({1: noisy(100, 1), 2: noisy(200, 2)})
    ]
    answer = judged(trials, (1, 2), subject_to=["p99 < 50ms"], allow_failed_starts=allowed).answer
    assert answer.kind is AnswerKind.NONE_FEASIBLE
    assert answer.sentences[0].startswith(f"{first} (p99 < 50ms)") and second in answer.sentences[1]


@pytest.mark.parametrize(("lost", "shown"), [(1, False), (4, True)])
def test_failed_starts_bar_for_certain_where_they_are_surely_more_than_may_fail(lost: int, shown: bool) -> None:
    """The one-sided bound at 95 % is 1 % for 1 bad start of 5, and 19 % for 4 of 8 (Clopper & Pearson 1934)."""
    died = Problem("died", "it ended under load")
    trials = results({1: noisy(100, 1, blocks=4)})
    trials += [TrialResult(9 + at, at, 1, setting(1), "failed", (died,), {}) for at in range(lost)]
    answer = judged(trials, (1,), allow_failed_starts=0.1).answer
    assert answer.kind is AnswerKind.NONE_FEASIBLE
    meets = "meets" if shown else "is shown to meet"
    assert answer.sentences[0].startswith(f"No setting {meets} the SLO (at most 0.1 of the starts failed)")
    assert ("More starts would tell (measure.repeats)." in answer.sentences[1]) is not shown


def test_only_a_setting_that_meets_the_constraints_leads_however_few_its_trials() -> None:
    """Settings that break the constraint have more valid trials than the one that meets it, and yet may not lead."""
    values: dict[int, list[float | None]] = {1: [*noisy(500, 1)], 2: [*noisy(400, 2)], 4: [*noisy(300, 3)]}
    values[4][2:] = [None] * 3
    extra = {1: {"error_rate": 0.2}, 2: {"error_rate": 0.3}, 4: {"error_rate": 0.0}}
    answer = judged(results(values, extra), subject_to=["error_rate < 1%"]).answer
    assert answer.leader == setting(4)
    assert answer.setting == setting(4)


def at_the_limit(of_4: list[float]) -> Analysis:
    """An analysis in which `threads=4`, by far the best, has these p99 response times; the limit is 50 ms."""
    trials = results({1: noisy(100, 1), 2: noisy(200, 2), 4: noisy(400, 3)})
    response = {1: [1e6] * 5, 2: [1e6] * 5, 4: of_4}
    trials = [
        replace(
            t, metrics={**t.metrics, "response_time_ns_p99": response[int(t.setting.as_dict()["threads"])][t.block]}
        )
        for t in trials
    ]
    return judged(trials, subject_to=["p99 < 50ms"])


def test_a_setting_that_broke_a_constraint_in_some_starts_is_no_answer_nor_is_the_other_the_best() -> None:
    """The other settings broke the constraint in no start, which may be luck at the limit."""
    analysis = at_the_limit([44e6, 46e6, 55e6, 48e6, 52e6])
    assert analysis.settings[2].infeasible_because == ("p99 < 50ms: broken in 2 of 5 starts",)
    assert analysis.settings[2].lapsed and not analysis.settings[2].feasible
    assert analysis.answer.kind is AnswerKind.EQUIVALENT_SET and analysis.answer.setting == setting(2)
    assert "threads=4 violates the SLO" in analysis.answer.sentences[1]


def test_a_setting_that_is_better_but_may_break_a_constraint_leaves_the_answer_open() -> None:
    analysis = at_the_limit([20e6, 46e6, 15e6, 48e6, 49e6])
    assert analysis.settings[2].verdict is Verdict.BETTER
    assert analysis.settings[2].feasible and "p99 < 50ms" in analysis.settings[2].uncertain_because[0]
    assert analysis.answer.kind is AnswerKind.NOT_ENOUGH_DATA
    assert analysis.answer.leader == setting(2)
    assert analysis.answer.undecided == (setting(4),) and analysis.answer.equivalent == (setting(2),)
    assert any("not certain" in warning for warning in analysis.warnings)


@pytest.mark.parametrize(("errors", "certain"), [(2.8, False), (3.1, True)])
def test_a_limit_is_met_for_certain_beyond_students_one_sided_quantile(errors: float, certain: bool) -> None:
    """The quantile is 2.92 standard errors, at 95 % and two degrees of freedom (Student 1908)."""
    limit_ms = 20 * np.exp(0.3 * errors / np.sqrt(3))
    made = experiment({"threads": (1,)}, objective={"subject_to": [f"p99 < {limit_ms:.6f}ms"]})
    trials = [{"response_time_ns_p99": 20e6 * float(np.exp(0.3 * step))} for step in (-1, 0, 1)]
    assert judge(made, trials, settings=1).certain is certain


@pytest.mark.parametrize("starts", [1, 2, 5])
@pytest.mark.parametrize(
    ("limit", "certain"),
    [
        ("threads <= 8", True),
        ("threads >= 8", True),
        ("threads < 8", False),
        ("app_workers == 8", True),
        ("app_workers == 7", False),
    ],
)
def test_a_count_that_is_the_same_in_each_start_meets_its_limit_or_breaks_it(
    limit: str, certain: bool, starts: int
) -> None:
    made = experiment({"threads": (1,)}, objective={"subject_to": [limit]})
    found = judge(made, [{"threads_max": 8.0, "app_workers": 8.0}] * starts, settings=1)
    assert (found.certain, found.seen, bool(found.missed)) == (certain, certain, not certain)


@pytest.mark.parametrize("starts", [1, 4])
@pytest.mark.parametrize(
    ("limit", "load", "certain", "barred"),
    [
        ("p99 < 2ms", Load(jmeter="plan.jmx"), False, False),
        ("p99 <= 2ms", Load(jmeter="plan.jmx"), False, False),
        ("p99 < 2.4ms", Load(jmeter="plan.jmx"), False, False),
        ("p99 < 3ms", Load(jmeter="plan.jmx"), True, False),
        ("p99 < 1ms", Load(jmeter="plan.jmx"), False, True),
        ("response_time_ns_mean < 2.4ms", Load(jmeter="plan.jmx"), True, False),
        ("p99 < 2.4ms", Load(users=10), True, False),
    ],
)
def test_a_limit_that_is_nearer_than_the_clock_of_the_load_can_tell_is_neither_met_nor_broken(
    limit: str, load: Load, certain: bool, barred: bool, starts: int
) -> None:
    """2 ms in every start, by JMeter, is a p99 from 1.5 to 2.5 ms."""
    made = experiment({"threads": (1,)}, load=load, objective={"subject_to": [limit]})
    found = judge(made, [{"response_time_ns_p99": 2e6, "response_time_ns_mean": 2e6}] * starts, settings=1)
    assert (found.certain, bool(found.barred)) == (certain, barred)
    said = "1.50 ms to 2.50 ms, as the load's clock counts steps of 1.00 ms"
    assert any(each.endswith(said) for each in found.open) is not (certain or barred)


@pytest.mark.parametrize("limit", ["p99 < 2.4ms", "p99 < 2ms"])
def test_more_trials_are_not_said_to_decide_a_limit_that_the_clock_of_the_load_leaves_open(limit: str) -> None:
    made = experiment({"threads": (1,)}, load=Load(jmeter="plan.jmx"), objective={"subject_to": [limit]})
    found = analyse(made, results({1: noisy(100, 1)}, {1: {"response_time_ns_p99": 2e6}})).answer
    assert found.kind is AnswerKind.NOT_ENOUGH_DATA
    said = " ".join(found.sentences)
    assert "More trials may not decide: set the limit further from what was measured, or let powerband's own" in said
    assert "would decide" not in said


def test_a_share_is_not_said_to_lie_below_zero() -> None:
    made = experiment({"threads": (1,)}, objective={"subject_to": ["error_rate < 1%"]})
    (unsure,) = judge(made, [{"error_rate": 0.0}, {"error_rate": 0.005}], settings=2).open
    assert unsure.startswith("error_rate < 1%: it was 0.25 %, 0 % to ")


def few_errors(limit: str, *shares: float, per_s: float) -> Compliance:
    """The judgement on starts of 10 s with these shares of errors and so many requests per second."""
    made = experiment({"threads": (1,)}, objective={"subject_to": [f"error_rate < {limit}"]})
    return judge(made, [{"error_rate": share, "achieved_rate_per_s": per_s} for share in shares], settings=1)


def test_no_error_among_few_requests_meets_a_limit_and_tells_what_they_may_hide() -> None:
    """None of 50 and of 150 requests: the one-sided bound at 95 % is 1 - 0.05^(1/n) (Clopper & Pearson 1934)."""
    alone = few_errors("0.1%", 0.0, per_s=5)
    assert alone.certain and alone.hidden == ("error_rate < 0.1%: none failed, but up to 5.82 % may fail unseen",)
    three = few_errors("0.1%", 0.0, 0.0, 0.0, per_s=5)
    assert three.certain and three.hidden == ("error_rate < 0.1%: none failed, but up to 1.98 % may fail unseen",)
    for many in (few_errors("0.1%", 0.0, 0.0, 0.0, per_s=1000), few_errors("0.1%", 0.0, per_s=1000)):
        assert many.certain and not many.hidden


def test_one_error_among_few_requests_breaks_no_limit_for_certain() -> None:
    """One of 50 is 2 %, and happens with 1 % of errors in 39 % of starts."""
    for shares in ([0.02], [0.02, *[0.0] * 40]):
        found = few_errors("1%", *shares, per_s=5)
        assert not found.barred, shares
    assert few_errors("1%", 0.02, per_s=1000).missed == ("error_rate < 1%: it was 2.00 % in its only trial",)
    assert few_errors("1%", 0.5, *[0.0] * 200, per_s=5).lapsed == ("error_rate < 1%: broken in 1 of 201 starts",)


def test_the_answer_tells_what_its_few_requests_may_hide() -> None:
    metrics = {"goodput_per_s": 5.0, "achieved_rate_per_s": 5.0, "error_rate": 0.0}
    trials = [TrialResult(1, 0, 1, setting(1), "measured", (), metrics)]
    found = judged(trials, (1,), subject_to=["error_rate < 0.1%"])
    assert found.answer.setting == setting(1) and not found.settings[0].uncertain_because
    told = "too few requests to be sure of error_rate < 0.1%: none failed, but up to 5.82 % may fail unseen."
    assert told in found.answer.sentences[1]


def test_a_condition_that_few_requests_leave_open_names_no_setting() -> None:
    """One of 50 failed: the sentence and the row say the same."""
    metrics = {"goodput_per_s": 4.9, "achieved_rate_per_s": 5.0, "error_rate": 0.02}
    trials = [TrialResult(1, 0, 1, setting(1), "measured", (), metrics)]
    found = judged(trials, (1,), subject_to=["error_rate < 3%"])
    assert found.answer.kind is AnswerKind.NOT_ENOUGH_DATA and found.answer.setting is None
    (condition,) = found.settings[0].uncertain_because
    assert condition.startswith("error_rate < 3%: it was 2.00 % in its only trial of few requests, 0.1")
    assert f"It is not certain whether threads=1 meets the SLO ({condition})" in found.answer.sentences[1]
    alike = judged(
        [replace(trials[0], setting=setting(n)) for n in (1, 2, 4)], (1, 2, 4), subject_to=["error_rate < 3%"]
    )
    notes = [note for note in alike.warnings if "not certain" in note]
    assert len(notes) == 1 and "whether threads=1, threads=2 and threads=4 meet the SLO (error_rate < 3%" in notes[0]


def test_the_allowed_share_of_unserved_users_is_written_without_empty_decimals() -> None:
    unserved = {"users_unserved": 8.0, "users_unserved_share": 0.8, "users_mean": 10.0}
    text = " ".join(judged(results({1: noisy(100, 1)}, {1: unserved}), (1,)).answer.sentences)
    assert "at most 1 % of the users unserved (allow_unserved)" in text and "0.000" not in text


@pytest.mark.parametrize(("unserved", "said"), [((4, 16, 40), "20 of 64"), ((1, *[0] * 20), "0.1 of 64")])
def test_users_left_out_are_their_share_of_all_users(unserved: Sequence[int], said: str) -> None:
    trials = [
        replace(each, metrics={**each.metrics, "users_unserved": float(left), "users_unserved_share": left / 64})
        for each, left in zip(results({1: noisy(100, 1, len(unserved))}), unserved, strict=True)
    ]
    found = analyse(experiment({"threads": (1,)}, load={"users": 64, "duration": 10**10}), trials)
    assert f" {said} users were never served" in found.answer.sentences[0]
