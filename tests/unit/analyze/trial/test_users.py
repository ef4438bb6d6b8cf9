from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fakes.measured import codes, measured
from fakes.trials import SECOND, Figures, experiment, record_of, spec, summary, write_trial
from powerband.analyze.trial.faults import is_failed_start
from powerband.analyze.trial.measure import measure
from powerband.model.experiment import Measure
from powerband.model.load import Load
from powerband.model.plan import Stage
from powerband.store import TrialDir


@pytest.mark.parametrize("stage", [Stage.SCREEN, Stage.COMPARE])
def test_the_goodput_of_users_who_never_pause_is_that_of_littles_law(stage: Stage, tmp_path: Path) -> None:
    """At the window's ends five of ten users were about to get another answer, or had just had it."""
    directory, record = TrialDir(tmp_path / "0001"), record_of(replace(spec(), stage=stage), Figures())
    window = record.engines[0]["window"]
    busy_ns = round(0.9995 * window["time_in_system_ns_sum"])
    engines = [{**record.engines[0], "window": {**window, "time_in_system_ns_sum": busy_ns}}]
    record = write_trial(directory, replace(record, engines=engines), Figures())
    more = Measure.model_validate({"invariants": ["goodput > 1000.2"]})
    result = measure(directory, record, experiment(measure=more))
    assert result.metrics["goodput_per_s"] == pytest.approx(1000 / 0.9995, rel=1e-5) and result.valid
    assert result.metrics["achieved_rate_per_s"] == result.metrics["goodput_per_s"], "none failed"


def test_users_of_a_setting_that_pauses_have_the_goodput_that_was_counted(tmp_path: Path) -> None:
    """The experiment's own load has no pauses; that of this setting has."""
    directory, record = TrialDir(tmp_path / "0001"), record_of(spec({"load.think": "1ms"}), Figures())
    window = record.engines[0]["window"]
    busy_ns = round(0.9995 * window["time_in_system_ns_sum"])
    engines = [{**record.engines[0], "window": {**window, "time_in_system_ns_sum": busy_ns}}]
    result = measure(directory, write_trial(directory, replace(record, engines=engines), Figures()), experiment())
    assert result.metrics["goodput_per_s"] == pytest.approx(1000)


@pytest.mark.parametrize("ended_by", ["work", "time", "deadline"])
def test_users_who_did_not_finish_have_no_time_to_finish(ended_by: str, tmp_path: Path) -> None:
    figures = Figures(engines=2)
    directory, record = TrialDir(tmp_path / "0001"), record_of(spec(), figures)
    engines = [{**record.engines[0], "ended_by": "work"}, {**record.engines[1], "ended_by": ended_by}]
    record = write_trial(directory, replace(record, engines=engines), figures)
    result = measure(directory, record, experiment(load=Load(users=10, requests_per_user=1000)))
    assert result.valid
    assert ("finish_s" in result.metrics) is (ended_by == "work")
    if ended_by == "work":
        last_ns = max(engine["measure_end_ns"] for engine in engines)
        assert last_ns < record.phases["end"], "the engines close their connections meanwhile"
        assert result.metrics["finish_s"] == pytest.approx((last_ns - record.phases["go"]) / 1e9)
    assert codes(result) == (set() if ended_by == "work" else {"users_unfinished"})


def test_users_who_wait_all_through_the_window_are_told_of_and_upset_no_law(tmp_path: Path) -> None:
    """A pool of 8 threads, each bound to a connection, has 64 users: 56 are never served."""
    result = measured(tmp_path, Figures(users=64, starved=56, goodput_per_s=800))
    assert result.metrics["littles_law_deviation"] == pytest.approx(0, abs=1e-9)
    assert codes(result) == {"starved_users", "unanswered_percentiles"} and result.valid
    assert any("56 of 64 users" in problem.message for problem in result.problems)
    assert (result.metrics["users_unserved"], result.metrics["users_unserved_share"]) == (56, 56 / 64)
    assert result.metrics["error_rate"] == pytest.approx(56 / 64)
    assert result.metrics["response_time_ns_p50"] >= Figures().window_s * 1e9, (
        "half of the users waited all through the window"
    )


@pytest.mark.parametrize(("failed", "expected"), [(7, 0.5), (8000, 0.5), (24_000, 0.75)])
def test_users_who_get_only_errors_weigh_as_many_as_they_are_at_least(
    failed: int, expected: float, tmp_path: Path
) -> None:
    """5 of 10 users get errors only; 8,000 requests of the others are answered."""
    figures = Figures(users=10, refused=5, failed=failed, goodput_per_s=800, response_ns=3_125_000)
    metrics = measured(tmp_path, figures).metrics
    assert (metrics["users_unserved"], metrics["users_unserved_share"]) == (5, 0.5)
    assert metrics["error_rate"] == pytest.approx(expected, abs=0.001)
    assert metrics["response_time_ns_p99"] >= Figures().window_s * 1e9


@pytest.mark.parametrize(
    ("response_s", "last", "unserved"),
    [(6.0, {}, 0), (0.7, {}, 0), (0.3, {}, 8), (6.0, {"unfinished": 1}, 8), (6.0, {"timeout": 1}, 8)],
)
def test_users_of_a_slow_server_are_served_if_all_requests_are_answered_in_the_end(
    response_s: float, last: dict[str, int], unserved: int, tmp_path: Path
) -> None:
    """In 3 s of responses that take 6 s half of 16 users get none."""
    figures = Figures(users=16, starved=8, goodput_per_s=8 / 3, window_s=3, response_ns=round(response_s * SECOND))
    ended = {"ok": 8, **last}
    total = {"scheduled": sum(ended.values()), "sent": sum(ended.values()), "dropped": 0, "outcomes": ended}
    result = measured(tmp_path, replace(figures, summary={"total": total}))
    assert result.metrics["users_unserved"] == unserved and result.metrics["error_rate"] == unserved / 16
    (told,) = [problem for problem in result.problems if problem.code in ("short_window", "starved_users")]
    assert told.code == ("starved_users" if unserved else "short_window") and told.message.startswith("8 of 16 users")


def test_a_window_between_two_answers_of_all_users_is_too_short_and_no_fault_of_the_server(tmp_path: Path) -> None:
    figures = Figures(users=64, starved=64, goodput_per_s=0)
    answered = {"scheduled": 128, "sent": 128, "dropped": 0, "outcomes": {"ok": 128}}
    slow = measured(tmp_path / "slow", replace(figures, summary={"total": answered}))
    hung = measured(
        tmp_path / "hung", replace(figures, summary={"total": {**answered, "outcomes": {"unfinished": 128}}})
    )
    for result, code in ((slow, "short_window"), (hung, "no_request_ended")):
        assert not result.valid and [each.code for each in result.problems if each.fatal] == [code]
    assert not is_failed_start(slow) and is_failed_start(hung)


def test_a_window_in_which_no_request_was_due_is_not_the_servers_fault(tmp_path: Path) -> None:
    none = {"scheduled": 0, "sent": 0, "dropped": 0, "outcomes": {}}
    before = {"scheduled": 3, "sent": 3, "dropped": 0}
    for name, total, due in (
        ("idle", none, False),
        ("quick", {**before, "outcomes": {"ok": 3}}, False),
        ("hung", {**before, "outcomes": {"unfinished": 3}}, True),
    ):
        figures = Figures(goodput_per_s=0, window_s=2, summary={"cohort": none, "total": total})
        result = measured(tmp_path / name, figures, load={"rate": 0.5, "duration": "2s"})
        (fatal,) = [problem for problem in result.problems if problem.fatal]
        assert fatal.code == ("no_request_ended" if due else "short_window") and is_failed_start(result) is due
        assert ("no request was due" in fatal.message) is not due


def test_a_status_that_ends_all_requests_is_named(tmp_path: Path) -> None:
    """A quota that the warm-up used up."""
    counts = {"scheduled": 500, "sent": 500, "dropped": 0, "outcomes": {"status_rejected": 500}}
    window = {**summary(Figures())["window"], "outcomes": counts["outcomes"]}
    total = {"scheduled": 600, "sent": 600, "dropped": 0, "outcomes": {"ok": 100, "status_rejected": 500}}
    changed = {"cohort": counts, "window": window, "total": total, "rejected_statuses": {"429": 500}}
    (told,) = [each for each in measured(tmp_path, Figures(summary=changed)).problems if each.code == "no_request_ok"]
    assert told.message.startswith(
        "none of 500 requests succeeded (most: status 429: the server limits how many requests it takes); "
        "before the window 100 did"
    )


def test_users_whose_work_is_done_are_still_users(tmp_path: Path) -> None:
    """10 of 100 users get nothing for 10 s; the others have done their work after 2 s."""
    figures = Figures(users=100, starved=10, goodput_per_s=180)
    window = {**summary(figures)["window"], "user_ns": (90 * 2 + 10 * 10) * 10**9}
    load = Load(users=100, duration=10**10, requests_per_user=20)
    metrics = measured(tmp_path, replace(figures, summary={"window": window}), load=load).metrics
    assert metrics["users_mean"] == pytest.approx(28)
    assert metrics["users_unserved_share"] == pytest.approx(0.1) == metrics["error_rate"]
