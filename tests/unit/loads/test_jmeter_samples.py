"""Samples of a plan become the summary of a fleet: exact counts, windows by each sample's own times, outcomes."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from powerband.loads.jmeter.jtl import JtlSample
from powerband.loads.jmeter.sample_events import INTERVAL_NS, OTHER_LABELS, TRANSACTION, Account, outcome_of
from powerband.readings.fleet import merge_fleet

MS = 1_000_000
SECOND_MS = 1_000
WALL_MS = 1_700_000_000_000
AHEAD_NS = (WALL_MS - 50_000) * MS  # the wall clock showed WALL_MS when the monotonic one showed 50 s
START_NS = 50_000 * MS


def sample(at_ms: int, elapsed_ms: int = 10, **fields: object) -> JtlSample:
    """A sample. `at_ms`: its time from the first request on."""
    given = JtlSample(WALL_MS + at_ms, elapsed_ms, "GET", "200", "OK", True, 100, 50, 4, "Users")
    return given._replace(**fields)  # type: ignore[arg-type]


def failed(code: str, message: str = "") -> JtlSample:
    return sample(0, code=code, message=message, ok=False)


class ReadBack(dict[str, Any]):
    """An event whose fields are attributes; an absent one is None."""

    def __getattr__(self, name: str) -> Any:
        value = self.get(name)
        return [read_back(each) for each in value] if isinstance(value, list) else read_back(value)


def read_back(event: Any) -> Any:
    return ReadBack(event) if isinstance(event, dict) else event


def account(duration_ms: int = 1_000) -> Account:
    replaced = ("alone", "shared")
    return Account(AHEAD_NS, duration_ms * MS, lambda label: label == "alone", lambda label: label in replaced)


def test_times_are_placed_and_the_window_is_exact() -> None:
    of = account()
    rows = [sample(at, 10) for at in range(0, 3_000, 20)]
    of.add(rows[:3])
    assert of.begun_ns == START_NS
    of.measure_ns = START_NS + 1_005 * MS
    of.add(rows[3:])
    intervals = [read_back(each) for each in (*of.advance(START_NS + 2_500 * MS), *of.end())]
    assert (intervals[0].start_ns, intervals[-1].end_ns > START_NS + 2_990 * MS) == (START_NS, True)
    assert all(a.end_ns == b.start_ns for a, b in pairwise(intervals))
    edges = {interval.start_ns for interval in intervals}
    assert {of.measure_ns, of.measure_end_ns} <= edges
    assert sum(interval.outcomes.get("ok", 0) for interval in intervals) == len(rows)
    inside = [interval for interval in intervals if interval.phase == "measure"]
    summary = read_back(of.summary())
    # The ones that ended in [1005, 2005) started in [995, 1995), that is at 1000, 1020, ... 1980.
    assert dict(summary.window.outcomes) == {"ok": 50} == {"ok": sum(each.outcomes.get("ok", 0) for each in inside)}
    assert summary.cohort.scheduled == 50  # scheduled at 1020 ... 2000
    assert summary.window.carried_in_ns_sum == 5 * MS  # of the request at 1000
    assert summary.window.carried_out_ns_sum == 5 * MS  # of the request at 2000
    fleet = merge_fleet([summary])
    assert fleet is not None
    assert fleet.goodput_per_s == pytest.approx(50)
    assert fleet.users_mean == pytest.approx(4)
    assert fleet.busy_users_mean + fleet.carried_users_mean == pytest.approx(0.5)
    assert fleet.thinking_users_mean == pytest.approx(3.5)
    assert fleet.times("response_time_ns").quantile(0.5) == pytest.approx(10 * MS, rel=0.001)
    assert fleet.times("send_lag_ns").count == 0


@pytest.mark.parametrize("known_ms", [0, 600])
def test_threads_are_counted_from_the_beginning_of_the_window_though_no_sample_has_ended(known_ms: int) -> None:
    """The window begins with the first request, and its beginning is known at once or after the first answer."""
    of = account()
    of.add(sample(at, 500) for at in range(0, 1_500, 500))
    list(of.advance(START_NS + known_ms * MS))
    of.measure_ns = START_NS
    list(of.end())
    fleet = merge_fleet([read_back(of.summary())])
    assert fleet is not None and fleet.users_mean == pytest.approx(4)


@given(
    st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 1_500)), min_size=1, max_size=60), st.integers(0, 2_000)
)
def test_nothing_is_lost_or_counted_twice(rows: list[tuple[int, int]], opens_ms: int) -> None:
    of = account()
    of.add([sample(0, 0), *(sample(at, elapsed) for at, elapsed in rows)])
    of.measure_ns = START_NS + opens_ms * MS
    intervals = [read_back(each) for each in (*of.advance(START_NS + 1_700 * MS), *of.end())]
    assert sum(interval.sent for interval in intervals) == 1 + len(rows)
    summary = read_back(of.summary())
    ends = [at + elapsed for at, elapsed in [(0, 0), *rows]]
    assert summary.total.sent == sum(summary.total.outcomes.values()) == 1 + len(rows)
    assert summary.window.outcomes.get("ok", 0) == sum(opens_ms <= end < opens_ms + 1_000 for end in ends)
    present_ms = sum(max(0, min(at + elapsed, opens_ms + 1_000) - max(at, opens_ms)) for at, elapsed in [(0, 0), *rows])
    window = summary.window
    inside_ns = window.time_in_system_ns_sum - window.carried_in_ns_sum + window.carried_out_ns_sum
    assert inside_ns == present_ms * MS


def test_the_order_of_rows_does_not_matter() -> None:
    rows = [sample(at, at % 37) for at in range(0, 2_000, 7)]
    shuffled = rows[1:]
    random.Random(1).shuffle(shuffled)
    made = []
    for order in (rows, [rows[0], *shuffled]):
        of = account()
        of.add(order)
        of.measure_ns = START_NS + 500 * MS
        assert all(interval.sent >= 0 for interval in map(read_back, of.end()))
        summary = read_back(of.summary())
        made.append((summary.window.time_in_system_ns_sum, summary.cohort, summary.cohort_times))
    assert made[0] == made[1]


def test_a_histogram_comes_with_every_tenth_interval() -> None:
    of = account()
    of.add(sample(at, 3) for at in range(0, 2_000, 10))
    intervals = [read_back(each) for each in of.advance(START_NS + 2_000 * MS)]
    assert len(intervals) == 20 and intervals[0].end_ns - intervals[0].start_ns == INTERVAL_NS
    assert [bool(interval.response_time_ns) for interval in intervals] == [*[False] * 9, True] * 2
    assert intervals[5].in_flight_now == 0 and intervals[5].response_time_ns_sum == 10 * 3 * MS


def test_transactions_are_not_counted_beside_their_samples() -> None:
    of = account()
    said = f"{TRANSACTION}2, number of failing samples : 0"
    of.add([sample(0), sample(10), sample(0, 20, label="visit", message=said), sample(20, label="alone", message=said)])
    of.measure_ns = START_NS
    list(of.end())
    assert of.outcomes == {"ok": 3}
    assert of.transactions_alone == 1
    assert [step.name for step in read_back(of.summary()).steps] == ["GET", "alone"]


def test_transactions_that_the_end_cuts_are_left_out() -> None:
    of = account()
    of.measure_ns = START_NS
    of.add([sample(0), sample(10, label="alone", message="")])
    of.told_to_end = True
    refused = "Non HTTP response code: java.net.SocketException"
    of.add(
        [
            sample(990, 0, label="alone", message="", code=""),
            sample(800, 150, label="alone", message=""),
            sample(800, 150, label="alone", message="", ok=False),  # an assertion on what there was of it
            sample(800, 150, label="shared", message="", code="503", ok=False),
            sample(700, 150, label="alone", message="", code="503", ok=False),
            sample(600, 150, label="alone", message="", code=refused, ok=False),
            sample(900, 50, message=""),
        ]
    )
    list(of.end())
    summary = read_back(of.summary())
    counted = {"ok": 3, "status_rejected": 1, "bad_response": 1}
    assert dict(summary.cohort.outcomes) == dict(summary.window.outcomes) == counted
    assert of.transactions_alone == 2


def test_a_transaction_ends_after_its_pauses_which_are_no_response_time() -> None:
    of = account()
    said = f"{TRANSACTION}3, number of failing samples : 0"
    of.measure_ns = START_NS + 1_000 * MS
    whole = [sample(at, 30, label="alone", message=said, idle_ms=2_970) for at in (-1_500, 0, 1_500)]
    of.add([sample(-1_500), *whole])
    intervals = [read_back(each) for each in of.end()]
    summary = read_back(of.summary())
    assert dict(summary.window.outcomes) == {"ok": 1}  # the first, which ends at 1500
    assert summary.window.time_in_system_ns_sum == 30 * MS
    assert summary.window.carried_in_ns_sum == (25 + 10) * MS  # of the first two
    assert summary.window.carried_out_ns_sum == (20 + 5) * MS  # of the last two
    assert summary.window.unanswered == 1
    assert summary.cohort.sent == 1
    fleet = merge_fleet([summary])
    assert fleet is not None
    assert fleet.times("response_time_ns").quantile(1.0) == pytest.approx(30 * MS, rel=0.001)
    ended = [interval for interval in intervals if interval.outcomes and interval.start_ns > START_NS]
    assert [(interval.end_ns - START_NS) // MS for interval in ended] == [1_600, 3_100, 4_600]
    assert {interval.response_time_ns_max for interval in ended} == {30 * MS}


def test_slow_transactions_count_where_they_end() -> None:
    """Those that the end cuts are the slow ones, though each may have been answered rightly."""
    of = account()
    said = f"{TRANSACTION}1, number of failing samples : 0"
    of.measure_ns = START_NS + 1_000 * MS
    fast = [sample(at, 10, label="alone", message=said) for at in range(1_000, 1_980, 10)]
    of.add([sample(-3_000, 4_500, label="alone", message=said), *fast])
    of.told_to_end = True
    of.add([sample(at, 4_500, label="alone", message="") for at in (500, 1_500)])
    list(of.end())
    summary = read_back(of.summary())
    assert dict(summary.cohort.outcomes) == dict(summary.window.outcomes) == {"ok": 99}
    assert summary.window.unanswered == 1 and summary.window.carried_out_ns_sum == (1_500 + 500) * MS
    fleet = merge_fleet([summary])
    assert fleet is not None
    assert fleet.times("response_time_ns").quantile(1.0) == pytest.approx(4_500 * MS, rel=0.001)


def test_labels_without_end_are_gathered() -> None:
    of = account()
    of.measure_ns = START_NS
    of.add(sample(at, 0, label=f"item {at}") for at in range(300))
    list(of.end())
    steps = {step.name: step.outcomes["ok"] for step in read_back(of.summary()).steps}
    assert len(steps) == 101 and steps[OTHER_LABELS] == 200


@pytest.mark.parametrize(
    ("code", "message", "outcome"),
    [
        ("404", "Not Found", "status_rejected"),
        ("503", "Service Unavailable", "status_rejected"),
        ("200", "OK", "check_failed"),
        ("", "", "check_failed"),
        ("SQLException", "x", "check_failed"),
        ("org.apache.http.conn.HttpHostConnectException", "Connect to x failed: Connection refused", "connect_refused"),
        ("java.net.ConnectException", "Connection refused", "connect_refused"),
        ("java.net.ConnectException", "Connection timed out", "connect_timeout"),
        ("org.apache.http.conn.ConnectTimeoutException", "Connect to x failed: Connect timed out", "connect_timeout"),
        ("java.net.SocketTimeoutException", "Read timed out", "timeout"),
        ("java.net.SocketException", "Connection reset", "reset"),
        ("java.net.SocketException", "Broken pipe (Write failed)", "reset"),
        ("java.net.SocketException", "Too many open files", "no_descriptors"),
        ("java.net.BindException", "Cannot assign requested address", "no_ports"),
        ("org.apache.http.NoHttpResponseException", "x failed to respond", "closed_early"),
        ("javax.net.ssl.SSLHandshakeException", "PKIX path building failed", "tls_failed"),
        ("java.net.UnknownHostException", "nowhere.invalid", "connect_failed"),
        ("org.apache.http.client.ClientProtocolException", "x", "bad_response"),
        ("java.net.URISyntaxException", "Illegal character", "connect_failed"),
        ("java.net.MalformedURLException", "unknown protocol: foo", "connect_failed"),
        ("java.lang.IllegalArgumentException", "port out of range:99999", "connect_failed"),
    ],
)
def test_outcomes(code: str, message: str, outcome: str) -> None:
    if "." in code:
        code, message = f"Non HTTP response code: {code}", f"Non HTTP response message: {message}"
    assert outcome_of(failed(code, message)) == outcome


def test_what_the_plan_accepts_is_ok_and_refused_statuses_are_told() -> None:
    assert outcome_of(sample(0, code="404")) == "ok"
    of = account()
    of.add([sample(0), failed("500"), failed("500"), failed("404")])
    of.measure_ns = START_NS
    list(of.end())
    assert read_back(of.summary()).rejected_statuses == {"500": 2, "404": 1}


def test_groups_that_run_before_the_load_are_no_part_of_it() -> None:
    of = Account(AHEAD_NS, 1_000 * MS, lambda _: False, lambda _: False, {"Set up"})
    of.add([sample(-20_000, group="Set up"), sample(-9_000, group="Set up")])
    assert of.begun_ns is None
    of.add([sample(0)])
    assert of.begun_ns == START_NS


def test_samples_that_sent_nothing_are_known() -> None:
    of = account()
    of.measure_ns = START_NS
    of.add([sample(0, bytes_sent=0, label="dbg"), sample(5, bytes_sent=0, ok=False), sample(7, bytes_sent=0)])
    list(of.advance(START_NS + 500 * MS))
    assert not of.sends_bytes
    of.add([sample(600)])
    list(of.end())
    assert of.sent_nothing == {"dbg": 1, "GET": 1} and of.sends_bytes


def test_requests_that_threads_were_told_to_leave_are_unfinished() -> None:
    of = account()
    of.cut_ns = START_NS + 100 * MS
    said = "Non HTTP response code: java.net.SocketException"
    of.add([sample(0), sample(50, 60, code=said, message="Socket closed", ok=False), sample(0, 9, code=said, ok=False)])
    of.measure_ns = START_NS
    list(of.end())
    assert of.outcomes == {"ok": 1, "unfinished": 1, "bad_response": 1}
