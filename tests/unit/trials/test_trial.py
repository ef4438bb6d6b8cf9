from __future__ import annotations

import math
import os
import re
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from fakes.edges import capacity_experiment, setting
from fakes.trials import experiment, spec
from powerband.base.procfs import ProcessStat
from powerband.loads import HTTP, SELF_DRIVEN, WEBSOCKET
from powerband.loads.driver import WarmUp
from powerband.loads.kind import LoadKind
from powerband.model.experiment import Subject
from powerband.model.load import Load, Step
from powerband.model.plan import Stage
from powerband.processes.answered import check_answered, check_joined, lost_connections, tls_failure
from powerband.processes.cgroups import Limits
from powerband.processes.cpus import CpuSplit
from powerband.processes.engine_fleet import FleetInterval
from powerband.processes.failures import Code, TrialFailed
from powerband.trials import trial
from powerband.trials.driving import load_over, series_of
from powerband.trials.trial import BEHIND_S, _cpus, _Trial, pinned_to
from powerband.wire.specs import Stop

NAN = float("nan")


def interval(place: int, ok: int, mean_ns: float, in_flight: int = 1) -> FleetInterval:
    start_ns = 1_000_000_000 + place * 100_000_000
    return FleetInterval(start_ns, start_ns + 100_000_000, ok, ok, mean_ns, in_flight)


def test_intervals_are_shown_over_a_longer_stretch() -> None:
    assert load_over([interval(0, 10, 4.0), interval(1, 30, 8.0, 7)]) == (200.0, 7.0, 7)
    assert load_over([interval(0, 0, NAN), interval(1, 10, 8.0)]) == (50.0, 8.0, 1)
    assert load_over([interval(0, 0, NAN)]) == (0.0, None, 1)


def test_the_series_that_decides_about_the_warm_up() -> None:
    series = series_of([interval(0, 10, 4.0), interval(1, 0, NAN)])
    assert series.interval_s == 0.1
    assert series.rate_per_s == (100.0, 0.0)
    assert series.response_time_ns_mean[0] == 4.0
    assert math.isnan(series.response_time_ns_mean[1])


def test_one_right_answer_is_enough_to_be_measured() -> None:
    check_answered(Counter(ok=1, timeout=1000), {})


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ({"timeout": 3, "unfinished": 1}, Code.NO_RESPONSE),
        ({}, Code.NO_RESPONSE),
        ({"timeout": 3, "reset": 1}, Code.NO_VALID_RESPONSE),
        ({"bad_response": 3}, Code.NO_VALID_RESPONSE),
        ({"no_ports": 3}, Code.PORT_LIMIT),
        ({"no_ports": 2, "no_descriptors": 3}, Code.DESCRIPTOR_LIMIT),
        ({"no_ports": 3, "reset": 1}, Code.NO_VALID_RESPONSE),
    ],
)
def test_no_right_answer_at_all_is_a_failure_that_says_how_requests_ended(outcomes: dict[str, int], code: Code) -> None:
    with pytest.raises(TrialFailed) as failed:
        check_answered(Counter(outcomes), {})
    assert failed.value.failure.code == code
    for name, count in outcomes.items():
        assert f"{count} {name}" in failed.value.failure.message


@pytest.mark.parametrize(
    ("outcomes", "cure"),
    [
        ({"bad_response": 3, "unfinished": 1}, "HTTP/2 alone"),
        ({"closed_early": 3}, "if it speaks TLS there and the url begins with http://"),
        ({"bad_response": 1, "closed_early": 3}, "HTTP/2 alone"),
        ({"closed_early": 3, "check_failed": 1}, "check the path"),
        ({"check_failed": 3}, "check the path"),
    ],
)
def test_no_path_is_blamed_where_no_answer_was_http(outcomes: dict[str, int], cure: str) -> None:
    with pytest.raises(TrialFailed, match=cure) as failed:
        check_answered(Counter(outcomes), {})
    assert ("check the path" in failed.value.failure.message) == (cure == "check the path")


def test_where_every_answer_is_rejected_the_failure_names_the_statuses() -> None:
    with pytest.raises(TrialFailed, match=r"\(12 status_rejected; status 302, 403\)"):
        check_answered(Counter(status_rejected=12), Counter({"403": 10, "302": 2}))


@pytest.mark.parametrize(
    ("other", "also", "said", "code"),
    [
        ("502", {"reset": 1}, "", Code.UNAVAILABLE),
        ("404", {}, "", Code.NO_VALID_RESPONSE),
        ("502", {"check_failed": 9}, "", Code.NO_VALID_RESPONSE),
        ("502", {}, "JMeter said: no such element", Code.NO_VALID_RESPONSE),
    ],
)
def test_a_server_that_still_starts_is_told_from_one_that_is_asked_for_the_wrong_thing(
    other: str, also: dict[str, int], said: str, code: Code
) -> None:
    with pytest.raises(TrialFailed) as failed:
        check_answered(Counter(status_rejected=12, **also), Counter({"503": 10, other: 2}), said=said)
    assert failed.value.failure.code == code and said in failed.value.failure.message
    assert ("--ready-http" in failed.value.failure.message) == (code is Code.UNAVAILABLE)


@pytest.mark.parametrize(
    ("error", "cure"),
    [
        ("invalid peer certificate: UnknownIssuer", "--ca-file"),
        ("invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))", "CA:FALSE"),
        ('invalid peer certificate: certificate not valid for name "a"', "that name in the url"),
        ("received corrupt message of type InvalidContentType", "http://"),
        ("received fatal alert: NoApplicationProtocol", "HTTP/2 alone"),
        ("received fatal alert: HandshakeFailure", ""),
    ],
)
def test_a_failed_handshake_says_why_and_what_to_do(tmp_path: Path, error: str, cure: str) -> None:
    log = tmp_path / "engine.log"
    assert tls_failure(log) == ""
    log.write_text(f"another line\nTLS: {error}\n")
    said = tls_failure(log)
    assert error in said and cure in said
    with pytest.raises(TrialFailed, match=re.escape(said)):
        check_answered(Counter(tls_failed=3), {}, log)
    with pytest.raises(TrialFailed, match="check the path"):
        check_answered(Counter(reset=3), {}, log)
    with pytest.raises(TrialFailed, match=re.escape(said)):
        check_joined([joins(0, {"tls_failed": 3})], log)


def joins(joined: int, failed: dict[str, int]) -> dict[str, object]:
    return {"websocket": {"joined": joined, "joins_failed": failed}}


def test_where_nobody_could_join_the_failure_says_why() -> None:
    check_joined([{}, joins(1, {"connect_refused": 9}), joins(0, {"connect_refused": 9})])
    check_joined([{"websocket": None}])
    with pytest.raises(
        TrialFailed, match=r"not one user could join \(7 handshake_refused, 2 connect_timeout; status 404\)"
    ) as failed:
        refused = {**joins(0, {"handshake_refused": 4}), "rejected_statuses": {"404": 7}}
        check_joined([joins(0, {"connect_timeout": 2, "handshake_refused": 3}), refused])
    assert failed.value.failure.code == Code.NOT_JOINED


@pytest.mark.parametrize(
    ("outcomes", "drops", "codes", "said"),
    [
        ({}, {"closed": 50}, {"4406": 50}, "(none ended): users who had joined lost their connections (50 closed, "
         "close codes 4406 (50)): check load.websocket"),
        ({"closed_early": 2}, {"closed": 1, "reset": 3}, {"none": 1}, "(2 closed_early): users who had joined lost "
         "their connections (3 reset, 1 closed, close codes none (1))"),
        ({"timeout": 3}, {"timeout": 3}, {}, "the server never answered a request (3 timeout)"),
        ({}, {}, {}, "the server never answered a request (none ended)"),
    ],
)  # fmt: skip
def test_a_server_that_closes_every_connection_is_not_said_to_be_silent(
    outcomes: dict[str, int], drops: dict[str, int], codes: dict[str, int], said: str
) -> None:
    summaries = [{"websocket": {"drops": drops, "close_codes": codes}}, {}]
    with pytest.raises(TrialFailed, match=re.escape(said)):
        check_answered(Counter(outcomes), {}, lost=lost_connections(summaries))


def test_a_container_may_run_on_any_cpu_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "usable_cores", lambda: [[cpu] for cpu in range(4)])
    subject = Subject(name="s", command=("docker", "run", "-p", "{port}:80", "image", "{threads}"))
    assert _cpus(experiment(subject=subject), spec()) == CpuSplit((), (3,), (3,), machine=(0, 1, 2, 3))


def test_the_control_plane_keeps_off_the_subjects_cpus_and_comes_back() -> None:
    before = os.sched_getaffinity(0)
    one = min(before)
    with pinned_to((one,)):
        assert os.sched_getaffinity(0) == {one}
    assert os.sched_getaffinity(0) == before
    with pinned_to(()):
        assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize(
    ("apply", "program", "count", "facts"),
    [
        (True, "gunicorn", 4, {"serving": 4}),
        (True, "gunicorn", 1, {}),
        (True, "docker", 2, {}),
        (False, "gunicorn", 4, {}),
    ],
    ids=["workers", "one process", "a container's proxies", "no request"],
)
def test_how_many_processes_serve_is_a_fact_where_a_request_reaches_one_of_them(
    monkeypatch: pytest.MonkeyPatch, apply: bool, program: str, count: int, facts: dict[str, int]
) -> None:
    made, subject = MagicMock(facts={}), MagicMock(served_by="")
    made.setup.experiment.subject = Subject(name="s", command=(program, "run", "{port}"))
    subject.rendered.apply, subject.rendered.port = (Step(name="knob", path="/knob"),) * apply, 80
    monkeypatch.setattr(trial, "serving", lambda port: count if subject.await_workers.called else 0)
    _Trial._await_workers(made, subject, MagicMock())
    assert made.facts == facts and subject.await_workers.called


def test_what_a_trial_does_with_a_server_that_is_ready_is_no_part_of_its_start() -> None:
    made = MagicMock(instruments=[], phases={})
    subject = made._subject_up.return_value.__enter__.return_value
    subject.ready_ns, subject.served_by, subject.root_pid = 7, "", None
    _Trial._serve(made, MagicMock(), MagicMock(), MagicMock(), MagicMock())
    assert made.phases["ready"] == 7


def test_a_thread_that_ends_meanwhile_hides_no_cpus_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def affinity(thread: int) -> set[int]:
        if thread == 8:
            raise ProcessLookupError
        return {thread}

    made = SimpleNamespace(listdir=lambda folder: ["7", "8", "9"], sched_getaffinity=affinity)
    monkeypatch.setattr(trial, "os", made)
    monkeypatch.setattr(trial, "all_processes", lambda: [ProcessStat(7, "server", "S", 1, 7, 0, 0, 0, 0)])
    assert trial.cpus_below(7) == {7, 9}


@pytest.mark.parametrize("own_limit", [True, False])
def test_a_process_that_is_killed_after_the_load_is_not_missing_from_what_was_measured(
    own_limit: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = tmp_path / "memory.events"
    killed.write_text("oom_kill 1\n")
    looks, made = MagicMock(), MagicMock(memory_kills=None)
    looks.after_load.side_effect = lambda *_: killed.write_text("oom_kill 2\n")
    made.instruments, made.setup.cpus.subject = [looks], ()
    made._subject_up.return_value.__enter__.return_value.served_by = ""
    made._serve = partial(_Trial._serve, made)
    counted = Limits(oom_files=(killed,))
    monkeypatch.setattr(trial, "limited", lambda _: nullcontext(counted if own_limit else Limits()))
    made._subject_up.return_value.__enter__.return_value.pids.return_value = {5, 6}
    monkeypatch.setattr(trial, "limits_of", lambda pids: counted if pids == {5, 6} and not own_limit else Limits())
    _Trial._measure(made, MagicMock(), MagicMock(), MagicMock())
    assert made.memory_kills == 1 and looks.after_load.called


@pytest.mark.parametrize(
    ("kind", "joined", "waits"),
    [
        (HTTP, None, True),
        (SELF_DRIVEN, None, True),
        (WEBSOCKET, 5, True),
        (WEBSOCKET, 0, False),
        (WEBSOCKET, None, False),
    ],
)
def test_a_first_answer_may_come_late_where_somebody_waits_for_it(
    kind: LoadKind, joined: int | None, waits: bool
) -> None:
    warmup = WarmUp(joining_ns=0, fixed_ns=None, least_ns=0, most_ns=5, compiling_ns=0, first_ns=30, pause_ns=0)
    made = MagicMock(kind=kind, warmup=warmup, probe=None)
    made._may_answer_late = partial(_Trial._may_answer_late, made)
    loop = MagicMock()
    loop.wait.return_value = False
    loop.driver.intervals = [] if joined is None else [replace(interval(0, 0, NAN), joined=joined)]
    _Trial._warm_up(made, loop, 0)
    assert loop.wait.call_count == (2 if waits else 1)
    assert made._check_begun.called and made.warmup_ended_by == "limit"


@pytest.mark.parametrize(
    ("seen", "serves", "waits"),
    [
        ({"ok": 5}, True, []),
        ({"ok": 5, "status_rejected": 300}, True, []),
        ({"timeout": 3}, True, []),  # an overloaded server is silent
        ({}, True, []),
        ({"status_rejected": 300}, True, ["first", "fixed"]),
        ({"closed_early": 300}, False, ["first"]),
    ],
)
def test_the_warm_up_of_a_server_that_still_starts_begins_anew_with_its_first_right_answer(
    seen: dict[str, int], serves: bool, waits: list[str]
) -> None:
    """A proxy that answers 502 at once, before a server that needs 8 s to start."""
    capacity = capacity_experiment()
    warmup = WarmUp.of(capacity, Stage.CAPACITY, capacity.load_for(setting(1), 100.0), joining_ns=0, pause_ns=0)
    assert warmup.by_command and warmup.driver_ns is None and warmup.fixed_ns == 2_000_000_000
    assert warmup.longest_ns >= warmup.first_ns + warmup.fixed_ns
    made, loop, waited = MagicMock(kind=HTTP, warmup=warmup, probe=None), MagicMock(), list[str]()
    made._warm_up_anew = partial(_Trial._warm_up_anew, made)
    loop.driver.seen = Counter(seen)

    def first(done: Callable[[], bool], timeout_s: float) -> bool:
        waited.append("first")
        assert not done() and 25 < timeout_s <= 30
        return serves

    loop.wait.side_effect = first
    loop.wait_until.side_effect = lambda at_ns: waited.append("fixed")
    go_ns = time.monotonic_ns()
    _Trial._warm_up(made, loop, go_ns)
    assert waited == ["fixed", *waits] and loop.wait_until.call_args_list[0].args == (go_ns + warmup.fixed_ns,)


@pytest.mark.parametrize(
    ("given", "ok", "ends", "stopped"),
    [
        pytest.param({"rate": 500}, 10, False, True, id="a queue that grew"),
        pytest.param({"rate": 500}, 10, True, False, id="a queue that is soon served"),
        pytest.param({"rate": 500}, 50, False, False, id="slow answers, but as many as asked for"),
        pytest.param({"rate": 500, "drain": "30s"}, 10, False, False, id="the user says how long"),
        pytest.param({"users": 64}, 10, False, False, id="users, who bound the queue"),
    ],
)
def test_a_server_that_falls_behind_its_rate_is_not_waited_for(
    given: dict[str, object], ok: int, ends: bool, stopped: bool
) -> None:
    """Also in a soak, which has a window of its own."""
    made, loop = MagicMock(), MagicMock()
    other_window = replace(spec(), window_ns=2_000_000_000)
    made.setup.load = experiment(load=Load.model_validate(given)).as_in(other_window).load
    loop.driver.intervals = [interval(place, ok, 1.0) for place in range(100)]
    loop.driver.phases = {"measure": 1_000_000_000, "drain": 11_000_000_000}
    loop.wait_for_end.side_effect = lambda timeout_s: ends or timeout_s > BEHIND_S
    assert _Trial._await_end(made, loop)
    assert [call.args[0] for call in loop.driver.send.call_args_list] == ([Stop()] if stopped else [])


@pytest.mark.parametrize(
    ("kind", "seen", "ended", "said"),
    [
        (HTTP, {}, None, "begun"),
        (HTTP, {"status_rejected": 3}, None, "the first right answers came after the warm-up"),
        (WEBSOCKET, {}, None, "the first right answers came after the warm-up"),
        (WEBSOCKET, {}, TrialFailed(Code.NOT_JOINED, "nobody joined"), "nobody joined"),
        (WEBSOCKET, {"closed_early": 50}, TrialFailed(Code.NO_VALID_RESPONSE, "4406 (50)"), r"4406 \(50\)"),
    ],
)
def test_answers_that_come_while_the_load_ends_are_not_denied(
    kind: LoadKind, seen: dict[str, int], ended: TrialFailed | None, said: str
) -> None:
    loop = MagicMock()
    loop.driver.begun_ns, loop.driver.seen = None, Counter(seen)
    loop.driver.check_begun.side_effect = TrialFailed(Code.NO_RESPONSE, "begun")
    loop.driver.check_ended.side_effect = ended
    made = MagicMock(kind=kind)
    made.setup.load.drain_ns = 1
    with pytest.raises(TrialFailed, match=said):
        _Trial._check_begun(made, loop)
