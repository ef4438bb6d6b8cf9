"""WebSocket users: joins, drops, deliveries and server-side counts, and which of these make a trial invalid."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes.trials import (
    SECOND,
    START_NS,
    Figures,
    experiment,
    histogram,
    joins,
    record_of,
    spec,
    summary,
    trial_series,
    write_trial,
)
from powerband.analyze.trial.measure import measure
from powerband.loads.websocket.measured import crowd_problems
from powerband.model.load import Load
from powerband.model.results import TrialResult
from powerband.readings.crowd import crowd_of
from powerband.readings.fleet import RequestCounts, merge_fleet
from powerband.store import TrialDir

MS = 1_000_000
TALLY = {"tally": {"count_after": '"count":'}}


def load(**changes: Any) -> Load:
    return Load.model_validate(
        {
            "users": 10,
            "websocket": {},
            "scenario": [{"name": "x", "message": "x"}],
            "duration_ns": 10 * SECOND,
            **changes,
        }
    )


def measured(
    tmp_path: Path,
    *,
    of: Load | None = None,
    engines: int = 1,
    lines: dict[str, Any] | None = None,
    made: Figures | None = None,
    **changes: Any,
) -> TrialResult:
    """A trial of 10 users and 10,000 messages, all answered unless `changes` says otherwise."""
    directory = TrialDir(tmp_path / "0001")
    made = made or Figures(engines=engines)
    figures = replace(made, summary={**made.summary, "websocket": joins(**changes)})
    record = write_trial(directory, record_of(spec(), figures), figures)
    told = [json.loads(line) for line in directory.events.read_text().splitlines()]
    extra = {"joined_now": 10, "drops": 0, "joins_failed": 0, "delivered": 0, **(lines or {})}
    directory.events.write_text("".join(json.dumps({**line, **extra}) + "\n" for line in told))
    return measure(directory, record, experiment(load=of or load()))


def codes(result: TrialResult) -> set[str]:
    return {problem.code for problem in result.problems}


def test_a_crowd_that_stays_has_its_figures_and_no_problem(tmp_path: Path) -> None:
    result = measured(tmp_path)
    assert result.valid and result.problems == () and result.errors == ()
    metrics = result.metrics
    assert metrics["join_time_ns_p50"] == pytest.approx(2 * MS, rel=1e-3)
    assert metrics["join_time_ns_max"] == pytest.approx(30 * MS, rel=1e-3)
    assert metrics["join_time_ns_p99"] == pytest.approx(30 * MS, rel=1e-3)
    assert metrics["join_time_ns_mean"] == pytest.approx(4.8 * MS, rel=1e-3)
    names = ("join_error_rate", "joined_users", "drops", "drop_rate", "rejoins")
    assert [metrics[name] for name in names] == [0, 10, 0, 0, 0]
    assert {"delivered_share", "tally_missing", "delivery_time_ns_p50"}.isdisjoint(metrics)


def test_users_who_are_dropped_are_told_by_reason_and_invalidate_nothing(tmp_path: Path) -> None:
    result = measured(
        tmp_path,
        joins_started=16, joined=13, rejoined=3, joins_failed={"handshake_refused": 2, "unfinished": 1},
        drops={"closed": 3, "heartbeat": 1}, close_codes={"1011": 2, "none": 1},
    )  # fmt: skip
    assert result.valid and codes(result) == {"users_dropped", "joins_failed"}
    said = {problem.code: problem.message for problem in result.problems}
    assert said["users_dropped"].startswith(
        "4 times a user who had joined lost the connection (3 closed, 1 heartbeat, close codes 1011 (2), none (1)); "
        "users joined again 3 times"
    )
    assert said["joins_failed"].startswith("2 of 15 joins failed (2 handshake_refused)")
    assert result.metrics["join_error_rate"] == pytest.approx(2 / 15)
    assert (result.metrics["drops"], result.metrics["rejoins"]) == (4, 3)
    assert result.metrics["drop_rate"] == pytest.approx(4 / 13)
    assert [(error.kind, error.count) for error in result.errors] == [
        ("lost closed", 3),
        ("join handshake_refused", 2),
        ("join unfinished", 1),
        ("lost heartbeat", 1),
    ]
    causes = {error.kind: error.cause for error in result.errors}
    assert causes["join handshake_refused"].startswith("the server refused the opening handshake")
    assert "1011 (internal error) 2 times" in causes["lost closed"]
    assert "no close code once" in causes["lost closed"]


def test_messages_that_were_due_and_never_sent_are_told(tmp_path: Path) -> None:
    directory = TrialDir(tmp_path / "0001")
    figures = Figures(dropped=30, summary={"websocket": joins(), "rejected_statuses": {}})
    record = write_trial(directory, record_of(spec(), figures), figures)
    (error,) = measure(directory, record, experiment(load=load())).errors
    assert (error.kind, error.count) == ("never sent", 30) and error.cause.startswith("due by load.pace")


@pytest.mark.parametrize(
    ("match", "unmatched", "said"),
    [
        ({"id_after": '"id":'}, 1_200, ": compare these with load.websocket.match"),
        ({"id_after": '"id":'}, 0, "within load.timeout"),
        ("order", 1_200, "within load.timeout"),
    ],
)
def test_answers_that_match_no_message_explain_timeouts(
    tmp_path: Path, match: object, unmatched: int, said: str
) -> None:
    result = measured(tmp_path, of=load(websocket={"match": match}), made=Figures(failed=7), unmatched=unmatched)
    (cause,) = [error.cause for error in result.errors if error.kind == "timeout"]
    assert cause.startswith("no answer came within load.timeout") and cause.endswith(said)
    assert any(problem.code == "unasked_messages" for problem in result.problems) is (match == "order")


@pytest.mark.parametrize(("answered", "told"), [((False, False), False), ((False, True), True)])
def test_a_message_is_taken_for_an_answer_only_where_one_is_awaited(
    tmp_path: Path, answered: tuple[bool, ...], told: bool
) -> None:
    of = load(scenario=[{"name": "x", "message": "x", "answered": each} for each in answered])
    assert ("unasked_messages" in codes(measured(tmp_path, of=of, unmatched=1_200))) is told


@pytest.mark.parametrize(("reason", "ours"), [("timeout", True), ("heartbeat", True), ("closed", False)])
def test_messages_of_users_whom_the_generator_gave_up_are_not_said_to_be_lost_by_the_server(
    tmp_path: Path, reason: str, ours: bool
) -> None:
    counts = {"scheduled": 103, "sent": 103, "dropped": 0, "outcomes": {"ok": 100, "timeout": 1, "closed_early": 2}}
    of = load(scenario=[{"name": "x", "message": "x", "answered": False}])
    result = measured(tmp_path, of=of, made=Figures(summary={"total": counts}), drops={reason: 1})
    causes = {error.kind: error.cause for error in result.errors}
    assert ("its user lost the connection first" in causes["closed_early"]) is ours
    assert ("the server closed" in causes["closed_early"]) is not ours
    assert "did not read it" in causes["timeout"], "no answer was to come"


def test_statuses_are_those_of_refused_handshakes(tmp_path: Path) -> None:
    directory = TrialDir(tmp_path / "0001")
    parts = joins(joins_started=15, joins_failed={"handshake_refused": 5})
    figures = Figures(summary={"websocket": parts, "rejected_statuses": {"503": 3}})
    record = write_trial(directory, record_of(spec(), figures), figures)
    errors = measure(directory, record, experiment(load=load())).errors
    assert [(error.kind, error.count) for error in errors] == [("join status 503", 3), ("join handshake_refused", 2)]
    assert errors[0].cause == "the server was overloaded, or gave up on its own work"


def test_joins_for_which_this_machine_had_no_room_are_the_generators_fault(tmp_path: Path) -> None:
    result = measured(tmp_path, joins_failed={"no_ports": 2}, joins_started=12)
    assert not result.valid
    assert {problem.code for problem in result.problems if problem.fatal} == {"generator_no_ports"}


def test_a_crowd_that_was_not_complete_when_the_window_began(tmp_path: Path) -> None:
    result = measured(tmp_path, lines={"joined_now": 9})
    assert result.valid and codes(result) == {"not_all_joined", "starved_users", "unanswered_percentiles"}
    assert result.metrics["joined_users"] == 9


@pytest.mark.parametrize("pace", [None, {"constant": 10 * MS}])
def test_users_who_could_not_join_are_not_served(tmp_path: Path, pace: object) -> None:
    """4 of 10 users join, and leave nothing to be wished for: the figures are not those of 10 users."""
    made = Figures(users=4)
    result = measured(tmp_path, of=load(pace=pace), made=made, lines={"joined_now": 4}, joined=4)
    metrics = result.metrics
    assert (metrics["users_unserved"], metrics["users_unserved_share"]) == (6, pytest.approx(0.6))
    assert metrics["error_rate"] == pytest.approx(0.6)
    (said,) = [problem.message for problem in result.problems if problem.code == "starved_users"]
    assert said.startswith("6 of 10 users had no connection, on average, or were not answered once")


@pytest.mark.parametrize(
    ("times_s", "ended", "dropped", "unserved"),
    [
        ([4.0] * 8, {"ok": 80}, 0, 0),
        ([4.0] * 8, {"ok": 79, "timeout": 1}, 0, 8),
        ([4.0] * 8, {"ok": 80}, 1, 8),
        ([0.3] * 5 + [9.0] * 3, {"ok": 80}, 0, 0),  # 3 x (9 s - 3 s) / 3 s: six users at most
        ([0.3] * 8, {"ok": 80}, 0, 8),
    ],
)
def test_users_with_a_pace_whose_answers_take_longer_than_the_window_are_only_slow(
    times_s: list[float], ended: dict[str, int], dropped: int, unserved: int, tmp_path: Path
) -> None:
    made = Figures(users=16, starved=8, goodput_per_s=8 / 3, window_s=3)
    times = histogram([round(each * SECOND) for each in times_s])
    told = {**summary(made)["cohort_times"], "response_time_ns": times, "service_time_ns": times}
    total = {"scheduled": 80 + dropped, "sent": 80, "dropped": dropped, "outcomes": ended}
    paced = load(users=16, pipeline=4, pace={"constant": 10 * SECOND}, duration_ns=3 * SECOND)
    made = replace(made, summary={"cohort_times": told, "total": total})
    result = measured(tmp_path, of=paced, made=made, lines={"joined_now": 16}, joins_started=16, joined=16)
    assert result.metrics["users_unserved"] == unserved
    assert ("starved_users" if unserved else "short_window") in codes(result)


def test_users_who_join_again_in_vain_count_once(tmp_path: Path) -> None:
    """6 of 10 users get no answer, lose their connection, and have none for half of the time; another never joins."""
    made = Figures(users=9, refused=6, away=3)
    result = measured(tmp_path, made=made, lines={"joined_now": 6}, joined=9)
    metrics = result.metrics
    assert (metrics["users_unserved"], metrics["users_unserved_share"]) == (7, pytest.approx(0.7))
    assert metrics["error_rate"] == pytest.approx(0.7)
    (said,) = [problem.message for problem in result.problems if problem.code == "starved_users"]
    assert said.startswith("7 of 10 users had no connection, on average, or were not answered once")


def test_there_are_no_more_unserved_users_than_users(tmp_path: Path) -> None:
    """Recordings of before do not tell how long the users who were counted had no connection."""
    metrics = measured(tmp_path, made=Figures(refused=8), lines={"joined_now": 5}).metrics
    assert metrics["users_unserved"] == 10


@pytest.mark.parametrize("pace", [None, {"constant": 10 * MS}])
def test_users_who_are_lost_within_the_window_would_have_had_requests(tmp_path: Path, pace: object) -> None:
    """Half of the users are lost for good after half of the window; all that were sent are answered."""
    directory = TrialDir(tmp_path / "0001")
    figures = Figures(summary={"websocket": joins(drops={"closed": 5})})
    record = write_trial(directory, record_of(spec(), figures), figures)
    told = [json.loads(line) for line in directory.events.read_text().splitlines()]
    middle_ns = START_NS + 5 * SECOND
    lines = [{**line, "joined_now": 10 if line["end_ns"] <= middle_ns else 5} for line in told]
    directory.events.write_text("".join(json.dumps(line) + "\n" for line in lines))
    metrics = measure(directory, record, experiment(load=load(pace=pace))).metrics
    assert metrics["users_unserved"] == pytest.approx(2.5, abs=0.2)
    assert metrics["error_rate"] == pytest.approx(0.25, abs=0.02)
    assert metrics["response_time_ns_p90"] >= 10 * SECOND


def test_users_who_have_sent_all_they_were_to_send_are_not_missed(tmp_path: Path) -> None:
    metrics = measured(tmp_path, of=load(requests_per_user=1000), lines={"joined_now": 4}).metrics
    assert (metrics["users_unserved"], metrics["error_rate"]) == (0, 0)


@pytest.mark.parametrize(
    ("refused", "unserved", "ok", "errors"),
    [
        (0, 0, 20_000, 0.8),  # each connection is closed after 200 messages
        (0, 50, 50_000, 0.5),  # half of the users are lost with their first message
        (60, 0, 8_000, 0.92),  # 60 users never join
    ],
)
def test_what_lost_users_were_to_send_counts_as_unanswered(
    refused: int, unserved: int, ok: int, errors: float, tmp_path: Path
) -> None:
    """100 users have 1,000 messages each, and nobody who was lost joins again."""
    lost = {"closed_early": unserved} if unserved else {}
    counts = {"scheduled": ok + unserved, "sent": ok + unserved, "dropped": 0, "outcomes": {"ok": ok, **lost}}
    joined = 100 - refused
    made = Figures(
        users=joined,
        goodput_per_s=ok / 10,
        failed=unserved,
        refused=unserved,
        response_ns=joined * 10 * SECOND / (ok + unserved),
        summary={"ended_by": "work", "total": counts, "cohort": counts},
    )
    result = measured(
        tmp_path,
        of=load(users=100, requests_per_user=1000),
        made=made,
        joins_started=100,
        joined=joined,
        joins_failed={"handshake_refused": refused} if refused else {},
        drops={"closed": unserved or joined},
    )
    metrics = result.metrics
    assert metrics["error_rate"] == pytest.approx(errors)
    unsent = joined * 1000 - ok - unserved
    assert metrics["dropped_rate"] == pytest.approx(unsent / (joined * 1000))
    assert [error.count for error in result.errors if error.kind == "never sent"] == [unsent]
    assert "finish_s" not in metrics and "users_unfinished" in codes(result)
    assert not any(problem.fatal for problem in result.problems)


@pytest.mark.parametrize("ended_by", ["time", "drain"])
def test_what_users_had_left_when_the_time_was_over_is_no_error(ended_by: str, tmp_path: Path) -> None:
    made = Figures(summary={"ended_by": ended_by})
    metrics = measured(tmp_path, of=load(requests_per_user=5_000), made=made, drops={"closed": 1}).metrics
    assert (metrics["error_rate"], metrics["dropped_rate"]) == (0, 0)


def test_users_who_never_joined_have_finished_nothing(tmp_path: Path) -> None:
    """6 of 10 users are refused for good; the other 4 end their 1,000 messages each."""
    made = Figures(users=4, goodput_per_s=400, summary={"ended_by": "work"})
    refused = {"joined": 4, "joins_failed": {"handshake_refused": 6}}
    result = measured(tmp_path, of=load(requests_per_user=1000), made=made, lines={"joined_now": 0}, **refused)
    assert "finish_s" not in result.metrics and "users_unfinished" in codes(result)
    assert result.metrics["users_unserved"] == 6 and result.metrics["error_rate"] == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("tallies", "outcomes", "fatal"),
    [
        ({"1": 6000, "2": 4000}, {"ok": 10_000}, ""),
        ({"": 10_000}, {"ok": 9_990, "check_failed": 10}, ""),
        ({"": 9_999}, {"ok": 10_000}, "1 worker counted 9,999 messages, and 10,000 were answered"),
        ({"": 10_001}, {"ok": 10_000}, "10,001 messages, and 10,000 were sent: the server had counted before"),
        ({"1": 9_000, "2": 500}, {"ok": 9_000, "timeout": 1_000}, ""),  # messages lost on the way there or back
        ({"1": 8_000, "2": 500}, {"ok": 9_000, "reset": 1_000}, "2 workers counted 8,500 messages"),
        ({}, {"ok": 10_000}, "no answer holds a number after '\"count\":'"),
        ({}, {"timeout": 10_000}, ""),  # nobody got an answer, which another problem reports
    ],
)
def test_what_workers_counted_lies_between_what_was_answered_and_what_was_sent(
    tallies: dict[str, int], outcomes: dict[str, int], fatal: str
) -> None:
    made = Figures(summary={"websocket": joins(tallies=tallies)})
    record = record_of(spec(), made)
    fleet = merge_fleet(record.engines)
    assert fleet is not None
    crowd = crowd_of(record.engines, (), fleet)
    assert crowd is not None
    total = RequestCounts(10_000, 10_000, 0, outcomes)
    problems = list(crowd_problems(crowd, load(websocket=TALLY), total))
    assert [problem.code for problem in problems if problem.fatal] == (["tally_differs"] if fatal else [])
    assert not fatal or fatal in problems[0].message


@pytest.mark.parametrize(
    ("tallies", "fatal"),
    [
        ({"": 2_503}, "no answer holds a name after '\"worker\":'"),
        ({"1": 2_503}, "1 worker counted 2,503 messages"),
        ({"": 10_000}, ""),  # of one worker, whose name is not needed
    ],
)
def test_workers_whose_names_are_not_found_are_not_accused_of_a_wrong_count(
    tmp_path: Path, tallies: dict[str, int], fatal: str
) -> None:
    named = {"tally": {**TALLY["tally"], "label_after": '"worker":'}}
    result = measured(tmp_path, of=load(websocket=named), tallies=tallies)
    assert [fatal in problem.message for problem in result.problems if problem.fatal] == ([True] if fatal else [])


def test_a_worker_that_began_anew_is_suspected_where_users_were_dropped(tmp_path: Path) -> None:
    result = measured(tmp_path, of=load(websocket=TALLY), tallies={"1": 9_000}, drops={"reset": 5})
    (problem,) = [problem for problem in result.problems if problem.fatal]
    assert problem.code == "tally_differs"
    assert "5 users were dropped: a worker that died and was started again counts from 0" in problem.message
    assert result.metrics["tally_missing"] == 1_000


def test_engines_are_told_of_the_same_workers(tmp_path: Path) -> None:
    result = measured(tmp_path, engines=2, of=load(websocket=TALLY), tallies={"1": 6_000, "2": 4_000})
    assert result.valid and result.metrics["tally_missing"] == 0
    assert result.metrics["join_time_ns_p50"] == pytest.approx(2 * MS, rel=1e-3)


def test_deliveries_are_held_against_published_times_joined(tmp_path: Path) -> None:
    result = measured(
        tmp_path,
        of=load(websocket={"stamp_after": '"sent":'}),
        published_in_window=100, delivered_in_window=980, delivery_time_ns=histogram([3 * MS] * 980),
    )  # fmt: skip
    assert result.metrics["delivered_share"] == pytest.approx(0.98)
    assert result.metrics["delivery_time_ns_p99"] == pytest.approx(3 * MS, rel=1e-3)
    assert result.metrics["delivery_time_ns_mean"] == pytest.approx(3 * MS, rel=1e-3)


def test_littles_law_says_nothing_of_a_pace(tmp_path: Path) -> None:
    assert "littles_law_deviation" in measured(tmp_path / "a").metrics
    assert "littles_law_deviation" not in measured(tmp_path / "b", of=load(pace={"constant": 10 * MS})).metrics


def test_what_was_due_to_unserved_users_of_a_pace_counts_once(tmp_path: Path) -> None:
    """10 of 100 users get no answer: their 1,000 messages are scheduled, and dropped at the end."""
    figures = Figures(users=100, starved=10, goodput_per_s=900, dropped=1000)
    of, lines = load(users=100, pace={"constant": 100 * MS}), {"joined_now": 100}
    metrics = measured(tmp_path, of=of, made=figures, lines=lines).metrics
    assert metrics["error_rate"] == pytest.approx(0.1)
    assert metrics["response_time_ns_p90"] < 10 * SECOND <= metrics["response_time_ns_p95"]


def test_users_and_what_became_of_them_over_time(tmp_path: Path) -> None:
    measured(tmp_path, lines={"joined_now": 7, "drops": 1, "delivered": 5})
    directory = TrialDir(tmp_path / "0001")
    series = trial_series(directory, record_of(spec(), Figures())).load
    assert series.t_s[0] == 1 and START_NS > 0
    assert set(series.joined) == {7}
    assert series.drops_per_s == pytest.approx([10.0] * len(series.t_s))
    assert series.delivered_per_s == pytest.approx([50.0] * len(series.t_s))
    assert series.joins_failed_per_s == pytest.approx([0.0] * len(series.t_s))
