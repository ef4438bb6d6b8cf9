"""The summary of `powerband load`, for a known load and for one in which nothing was answered."""

import json
import math
from dataclasses import replace

import pytest

from fakes.trials import Figures, histogram, summary
from powerband.loads.websocket.measured import with_absent
from powerband.model.load import Load, Step
from powerband.model.websocket import Text, WebSocket
from powerband.processes.engine_fleet import FleetInterval
from powerband.readings.crowd import crowd_of
from powerband.readings.fleet import MergedFleet, merge_fleet
from powerband.report.terminal.load_text import interval_text, load_document, load_text

LOAD = Load(users=64)
TIMES = ("response_time_ns", "service_time_ns", "send_lag_ns")


def fleet(*figures: Figures) -> MergedFleet:
    merged = merge_fleet([summary(each) for each in figures])
    assert merged is not None
    return merged


def nothing_answered() -> MergedFleet:
    made = summary(Figures(goodput_per_s=0, failed=50))
    empty = dict.fromkeys(made["cohort_times"], "")
    merged = merge_fleet([{**made, "cohort_times": empty}])
    assert merged is not None
    return merged


def test_the_figures_of_a_known_load() -> None:
    document = load_document(fleet(Figures(goodput_per_s=1000, send_lag_ns=50_000, window_s=10)), LOAD)
    assert (document["format"], document["window_s"]) == (1, 10)
    assert document["goodput_per_s"] == document["achieved_rate_per_s"] == 1000
    assert document["outcomes"] == {"ok": 10_000}
    lag = document["send_lag_ns"]
    assert lag.pop("count") == 100
    assert set(lag) == {"mean", "p50", "p90", "p95", "p99", "p999", "max"}
    assert {name for name, figure in lag.items() if figure is None} == {"p95", "p99", "p999"}, "of too few requests"
    assert all(math.isclose(figure, 50_000, rel_tol=1e-3) for figure in lag.values() if figure is not None)
    assert math.isclose(document["engine_cpu_share_max"], Figures().thread_share)


def test_a_fleet_is_added_up() -> None:
    one, two = load_document(fleet(Figures()), LOAD), load_document(fleet(Figures(), Figures()), LOAD)
    for key in ("goodput_per_s", "offered_rate_per_s", "scheduled", "sent", "engine_cpu_cores", "connections_opened"):
        assert two[key] == 2 * one[key]
    assert two["response_time_ns"] == {**one["response_time_ns"], "count": 2 * one["response_time_ns"]["count"]}


def test_times_that_there_are_none_of_are_null_and_a_dash() -> None:
    found = nothing_answered()
    document = json.loads(json.dumps(load_document(found, LOAD), allow_nan=False))
    for name in TIMES:
        assert document[name].pop("count") == 0
        assert set(document[name].values()) == {None}
    (line,) = [line for line in load_text(found, LOAD).splitlines() if line.startswith("response time")]
    assert line.split()[2:] == ["-"] * 7


def test_the_text_says_rates_times_and_outcomes() -> None:
    text = load_text(fleet(Figures(goodput_per_s=1000, failed=20, dropped=5)), LOAD)
    assert text.splitlines()[0].startswith("goodput        1,000/s  (ended 1,002/s")
    assert "ok 10,000" in text and "dropped 5" in text
    assert "busiest thread 30 % of one" in text
    assert max(map(len, text.splitlines())) <= 100


def test_a_moment_of_it_is_one_short_line() -> None:
    now = FleetInterval(3_000_000_000, 3_100_000_000, 500, 510, 1_230_000.0, 64)
    assert interval_text(now, 1_000_000_000) == "   2.1 s  5,000/s, mean 1.23 ms, 64 in flight"
    silent = FleetInterval(3_000_000_000, 3_100_000_000, 0, 0, math.nan, 64)
    assert interval_text(silent, 1_000_000_000) == "   2.1 s  0/s, mean -, 64 in flight"


def test_the_users_of_websockets_are_told_of() -> None:
    parts = {
        "joins_started": 12, "joined": 11, "rejoined": 1, "joins_failed": {"connect_timeout": 1},
        "join_time_ns": histogram([2_000_000] * 11), "drops": {"closed": 1}, "close_codes": {"1001": 1},
        "messages_received": 5, "unsolicited": 0, "unmatched": 1_200, "published": 0, "delivered": 0,
        "delivery_time_ns": histogram([]), "published_in_window": 0, "delivered_in_window": 0, "tallies": {"w": 9},
    }  # fmt: skip
    summaries = [summary(Figures(summary={"websocket": parts}))]
    merged = merge_fleet(summaries)
    assert merged is not None
    crowd = crowd_of(summaries, (), merged)
    lines = load_text(merged, LOAD, crowd).splitlines()
    assert "joined        11, in 2.00 ms at the median, 2.00 ms at p99; 1 joins failed (1 connect_timeout)" in lines
    assert "lost          1 (1 closed; close codes 1001 (1)), joined again 1" in lines
    assert "unmatched     1,200 messages answered nothing" in lines
    assert crowd is not None and "unmatched" not in load_text(merged, LOAD, replace(crowd, unmatched=0))
    told = load_document(merged, LOAD, crowd)["websocket"]
    assert (told["joined"], told["drops"], told["tallies"]) == (11, {"closed": 1}, {"w": 9})
    assert told["join_time_ns"]["count"] == 11 and told["delivery_time_ns"]["p50"] is None
    now = FleetInterval(3_000_000_000, 3_100_000_000, 500, 510, 1_230_000.0, 64, joined=1000)
    assert interval_text(now, 1_000_000_000).endswith("64 in flight, 1,000 users joined")
    of = Load(users=20, websocket=WebSocket(), scenario=(Step(name="x", message=Text(text="x")),))
    document = load_document(with_absent(merged, crowd, of), of, crowd)
    assert document["error_rate"] == 0.5, "10 of 20 users never joined"
    assert document["response_time_ns"]["p90"] == 10e9


def test_statuses_of_rejected_requests_and_redirects_are_named() -> None:
    merged = merge_fleet([summary(Figures(failed=20)) | {"rejected_statuses": {"403": 12, "302": 8}}])
    assert merged is not None
    assert "timeout 20; rejected: status 302, 403\n" in load_text(merged, LOAD)
    redirected = merge_fleet([summary(Figures()) | {"redirects": 9_000}])
    assert redirected is not None and "ok 10,000; 9,000 redirects, not followed\n" in load_text(redirected, LOAD)


def test_percentiles_rank_what_was_not_answered_last_as_in_a_trial() -> None:
    whole, half = (fleet(Figures(goodput_per_s=1000, window_s=10, failed=failed)) for failed in (0, 10_000))
    assert "rank last" not in load_text(whole, LOAD)
    document = load_document(half, LOAD)
    times = document["response_time_ns"]
    assert document["error_rate"] == 0.5 and times["p90"] == times["p999"] == 10e9
    assert times["p50"] == load_document(whole, LOAD)["response_time_ns"]["max"] == times["max"]
    assert load_document(half, LOAD)["service_time_ns"] == load_document(whole, LOAD)["service_time_ns"]
    text = load_text(half, LOAD)
    assert text.count("≥10.0 s") == 4 and "50 % of the requests due were not answered rightly" in text


P99_9 = "a response time p99.9 needs 10,000: a load.duration of 20 s (--duration 20s) would do at this rate"
P99 = (
    "a response time p99 needs 1,000: a load.duration of 50 s (--duration 50s) would do at this rate; p99.9 needs 500 s"
)
P90 = (
    "a response time p90 needs 100: a load.duration of 20 s (--duration 20s) would do at this rate; p95 needs 40 s, "
    "p99 needs 200 s and p99.9 needs 2,000 s"
)


@pytest.mark.parametrize(
    ("requests", "left_out", "told"),
    [
        (10_000, [], None),
        (5_000, ["p999"], P99_9),
        (200, ["p99", "p999"], P99),
        (50, ["p90", "p95", "p99", "p999"], P90),
    ],
)
def test_percentiles_of_too_few_requests_are_left_out_as_in_a_trial(
    requests: int, left_out: list[str], told: str | None
) -> None:
    found = fleet(Figures(goodput_per_s=requests / 10, window_s=10))
    document = load_document(found, LOAD)
    times = document["response_time_ns"]
    assert [name for name, figure in times.items() if figure is None] == left_out
    sentence = None if told is None else f"only {requests:,} requests were due in the window, and {told}"
    assert document.get("few_requests") == sentence
    lines = load_text(found, LOAD).splitlines()
    (row,) = [line for line in lines if line.startswith("response time")]
    assert row.split().count("-") == len(left_out)
    assert max(map(len, lines)) <= 100
    shown = " ".join(" ".join(lines).split())
    assert "requests were due" not in shown if sentence is None else sentence in shown


def test_requests_that_were_due_count_for_a_percentile_though_they_failed() -> None:
    document = load_document(fleet(Figures(goodput_per_s=20, window_s=10, failed=800)), LOAD)
    times, service = document["response_time_ns"], document["service_time_ns"]
    assert times["p99"] == 10e9 and times["p999"] is None
    assert service["p95"] is not None and service["p99"] is None, "only 200 were answered"
