"""The causes of failed requests, from outcomes, statuses, full queues and logs."""

from __future__ import annotations

from typing import Any

import pytest

from powerband.analyze.trial.honesty import memory_problem
from powerband.loads.failed_requests import error_kinds
from powerband.readings.fleet import MergedFleet, RequestCounts


def fleet(outcomes: dict[str, int], statuses: dict[str, int] | None = None, dropped: int = 0) -> MergedFleet:
    ended = sum(outcomes.values())
    total = RequestCounts(ended + dropped, ended, dropped, outcomes)
    rest: dict[str, Any] = dict.fromkeys(
        ("goodput_per_s", "achieved_per_s", "offered_per_s", "users_mean", "busy_users_mean", "thinking_users_mean",
         "carried_users_mean", "cpu_cores", "cpu_share_max"), 0.0
    )  # fmt: skip
    return MergedFleet(
        start_ns=0, end_ns=1, total=total, cohort=total, window_outcomes=outcomes, unanswered=0, unserved=None,
        late_ns=0, threads=1, connections_opened=1, summaries=({"rejected_statuses": statuses or {}},), **rest,
    )  # fmt: skip


def kinds(of: MergedFleet, log: str, overflows: float | None = None) -> dict[str, tuple[int, str]]:
    return {error.kind: (error.count, error.cause) for error in error_kinds(of, overflows, log)}


def test_statuses_are_told_one_by_one_with_what_the_log_names_most() -> None:
    log = (
        "java.util.concurrent.RejectedExecutionException: Task x rejected\n" * 17
        + "org.springframework.dao.DataAccessException\nerror is no name of one; NoError here\n"
    )
    found = kinds(fleet({"ok": 5, "status_rejected": 20}, {"500": 17, "404": 3}), log)
    assert list(found) == ["status 500", "status 404"]
    assert found["status 500"] == (
        17,
        "the server's own error; its log names java.util.concurrent.RejectedExecutionException 17 times",
    )
    assert found["status 404"] == (3, "the server refused it")


@pytest.mark.parametrize(
    ("outcome", "overflows", "said"),
    [
        ("connect_timeout", 0.0, "not accepted within load.connect_timeout"),
        ("connect_timeout", 12.0, "not accepted (12 connections found the accept queue full)"),
        ("reset", 3.0, "never knew of its connection (3 connections"),
        ("reset", 0.0, "the server reset the connection"),
        ("unfinished", 3_000.0, "may never have known of its connection (3,000 connections"),
        ("unfinished", 0.0, "usual under overload; otherwise raise load.drain"),
        ("timeout", 0.0, "no answer came within load.timeout"),
        ("check_failed", 12.0, "does not hold what"),
        ("no_ports", 0.0, "not the server's fault"),
    ],
)
def test_outcomes_have_causes(outcome: str, overflows: float, said: str) -> None:
    found = kinds(fleet({"ok": 1, outcome: 2}), "", overflows)
    assert found[outcome][0] == 2 and said in found[outcome][1]


@pytest.mark.parametrize(
    ("outcomes", "pipeline", "either"),
    [
        ({"timeout": 1, "closed_early": 15}, 16, True),
        ({"bad_response": 1, "closed_early": 15}, 16, True),
        ({"ok": 1, "timeout": 0, "closed_early": 15}, 16, False),
        ({"timeout": 1, "closed_early": 15}, 1, False),
    ],
)
def test_requests_behind_a_late_one_are_not_said_to_be_lost_by_the_server(
    outcomes: dict[str, int], pipeline: int, either: bool
) -> None:
    (found,) = (of for of in error_kinds(fleet(outcomes), None, "", pipeline=pipeline) if of.kind == "closed_early")
    assert ("or the load generator did" in found.cause) is either
    assert found.cause.startswith("the server closed the connection") is not either


def test_rejections_of_an_older_engine_and_dropped_work_are_kinds_too() -> None:
    found = kinds(fleet({"ok": 1, "status_rejected": 4}, dropped=9), "")
    assert found["status_rejected"][0] == 4 and found["dropped"][0] == 9


def test_all_well_is_nothing() -> None:
    assert error_kinds(fleet({"ok": 9}), None, "") == ()


def test_a_jvm_that_ran_out_of_memory_and_went_on_is_named() -> None:
    log = 'Exception in thread "x" java.lang.OutOfMemoryError: Java heap space\n\tat X.main\n'
    (problem,) = memory_problem(log)
    assert problem.code == "out_of_memory" and not problem.fatal
    assert "went on (java.lang.OutOfMemoryError: Java heap space)" in problem.message
    assert list(memory_problem("all well\n")) == []


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("", "raise its heap, or lower what it holds"),
        (": Java heap space", "raise its heap, or lower what it holds"),
        (": GC overhead limit exceeded", "raise its heap, or lower what it holds"),
        (": unable to create new native thread", "fewer threads, or raise what limits them (ulimit -u, pids.max)"),
        (
            ": unable to create native thread: possibly out of memory or process/resource limits reached",
            "fewer threads, or raise what limits them (ulimit -u, pids.max)",
        ),
        (": Direct buffer memory", "raise -XX:MaxDirectMemorySize"),
        (
            ": Cannot reserve 4194304 bytes of direct buffer memory (allocated: 8388608, limit: 10485760)",
            "raise -XX:MaxDirectMemorySize",
        ),
        (": Metaspace", "raise -XX:MaxMetaspaceSize"),
        (": Compressed class space", "raise -XX:CompressedClassSpaceSize, and -XX:MaxMetaspaceSize if it is set"),
    ],
)
def test_a_jvm_gets_more_of_the_memory_that_it_ran_out_of(said: str, remedy: str) -> None:
    (problem,) = memory_problem(f"java.lang.OutOfMemoryError{said}\n\tat X.main\n")
    assert problem.message.endswith(remedy)
