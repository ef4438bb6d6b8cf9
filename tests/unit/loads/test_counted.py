"""Readings of a counter become the intervals of a fleet: exact between readings, with phases that change at
readings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from powerband.loads.counted.driver import Counted
from powerband.model.experiment import WorkCounter
from powerband.processes.engine_process import Pump
from powerband.processes.failures import Code, TrialFailed
from powerband.processes.line_file import LineFile
from powerband.processes.stop_request import StopRequest
from powerband.processes.subject_process import COUNTER_EVERY_NS
from powerband.readings.fleet import merge_fleet
from powerband.wire.specs import Go, StartMeasure

MS = 1_000_000
SECOND = 1_000 * MS
T0 = 100 * SECOND


@pytest.fixture
def events(tmp_path: Path) -> Iterator[LineFile]:
    with LineFile(tmp_path / "events.jsonl") as lines:
        yield lines


def counted(events: LineFile, series: str = "n_total", **options: Any) -> Counted:
    return Counted(
        WorkCounter(series=series),
        events,
        Pump(StopRequest()),
        **{"warmup_ns": None, "duration_ns": 5 * COUNTER_EVERY_NS, **options},
    )


def reading(at_ns: int, kind: str = "statsd", **values: float) -> bytes:
    named = {name.replace("__", '{a="').replace("_END", '"}'): value for name, value in values.items()}
    sink = {"packets": 1, "malformed": 0} if kind == "statsd" else {}
    return json.dumps({"type": kind, "at_ns": at_ns, "values": named, **sink}).encode()


def tick(at: int) -> int:
    return T0 + at * COUNTER_EVERY_NS


def test_the_window_begins_and_ends_with_a_reading_and_its_count_is_exact(events: LineFile, tmp_path: Path) -> None:
    of = counted(events)
    of.on_series(reading(tick(-1), n_total=5))
    assert of.is_read and not of.intervals
    of.send(Go(at_ns=T0 - MS))
    for at in range(4):
        of.on_series(reading(tick(at), n_total=10 + 100 * at))
    assert of.phases == {"warmup": T0}
    assert [interval.ok for interval in of.intervals] == [100, 100, 100]
    assert of.seen["ok"] == 300
    of.check_begun()
    of.send(StartMeasure(at_ns=tick(3) + MS))
    for at in range(4, 12):
        of.on_series(reading(tick(at) + (5 * MS if at == 9 else 0), n_total=10 + 100 * at + (7 if at >= 9 else 0)))
    assert of.phases == {"warmup": T0, "measure": tick(4), "drain": tick(9) + 5 * MS}
    assert of.finished
    of.check_ended()
    fleet = merge_fleet(of.summaries)
    assert fleet is not None
    assert (fleet.start_ns, fleet.end_ns) == (tick(4), tick(9) + 5 * MS)
    assert fleet.window_outcomes == {"ok": 507}
    assert fleet.goodput_per_s == pytest.approx(507 / (5 * COUNTER_EVERY_NS / SECOND + 0.005))
    assert (fleet.total.scheduled, fleet.cohort.scheduled, fleet.threads) == (907, 507, 0)
    assert fleet.times("response_time_ns").count == 0
    events.flush()
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert {line["engine"] for line in lines} == {0}
    assert [line["type"] for line in lines] == ["interval"] * 9 + ["summary"]
    inside = [line for line in lines if line["type"] == "interval" and line["phase"] == "measure"]
    assert (inside[0]["start_ns"], inside[-1]["end_ns"]) == (fleet.start_ns, fleet.end_ns)
    assert sum(line["outcomes"]["ok"] for line in inside) == 507


def test_a_fixed_warm_up_needs_no_word(events: LineFile) -> None:
    of = counted(events, warmup_ns=2 * COUNTER_EVERY_NS, duration_ns=COUNTER_EVERY_NS)
    of.send(Go(at_ns=T0))
    for at in range(4):
        of.on_series(reading(tick(at), n_total=at))
    assert of.phases == {"warmup": T0, "measure": tick(2), "drain": tick(3)}


def test_a_page_is_read_between_being_asked_for_and_being_there(events: LineFile) -> None:
    of = counted(events)
    of.send(Go(at_ns=T0))
    for at, took in ((0, 10 * MS), (1, 30 * MS)):
        line = {"type": "scrape", "at_ns": tick(at), "took_ns": took, "values": {"n_total": at * 1.0}}
        of.on_series(json.dumps(line).encode())
    (interval,) = of.intervals
    assert (interval.start_ns, interval.end_ns) == (tick(0) + 5 * MS, tick(1) + 15 * MS)


def test_series_of_all_labels_are_added_and_those_named_are_chosen(events: LineFile) -> None:
    whole, part = counted(events), counted(events, 'n_total{a="x"}')
    for at in range(2):
        line = {'n_total{a="x",b="1"}': 10.0 * at, 'n_total{a="y"}': 100.0 * at, "other_total": 7.0}
        for of in (whole, part):
            of.send(Go(at_ns=T0))
            of.on_series(json.dumps({"type": "scrape", "at_ns": tick(at), "values": line}).encode())
    assert (whole.seen["ok"], part.seen["ok"]) == (110, 10)


def test_fractions_of_sampled_counters_add_up(events: LineFile) -> None:
    of = counted(events)
    of.send(Go(at_ns=T0))
    for at in range(11):
        of.on_series(reading(tick(at), n_total=0.25 * at))
    assert sum(interval.ok for interval in of.intervals) == of.seen["ok"] == 2


@pytest.mark.parametrize(
    ("each", "said"),
    [(0.9, "grew by 4.5 within the measured window, which is too little to be counted in whole units"),
     (0.1, "grew by 0.3 within the warm-up, which is too little"), (0.0, "did not grow within the warm-up"),
     (20.9, ""), (1, "")],
)  # fmt: skip
def test_a_counter_of_fractions_is_refused_where_whole_units_would_distort_it(
    events: LineFile, each: float, said: str
) -> None:
    of = counted(events, warmup_ns=3 * COUNTER_EVERY_NS)
    of.send(Go(at_ns=T0))
    with pytest.raises(TrialFailed, match=said) if said else nullcontext():
        for at in range(9):
            of.on_series(reading(tick(at), n_total=each * at))
            if at == 3:
                of.check_begun()
        of.check_ended()


@pytest.mark.parametrize("begun", [True, False])
def test_a_counter_that_goes_back_ends_the_trial_once_it_counts(events: LineFile, *, begun: bool) -> None:
    of = counted(events)
    of.on_series(reading(tick(0), n_total=100))
    if not begun:
        of.on_series(reading(tick(1), n_total=3))
        return
    of.send(Go(at_ns=T0))
    with pytest.raises(TrialFailed) as failed:
        of.on_series(reading(tick(1), n_total=3))
    assert failed.value.failure.code == Code.COUNTER_WENT_BACK
    assert "n_total went back from 100 to 3" in failed.value.failure.message


def test_what_comes_after_the_end_means_nothing(events: LineFile) -> None:
    of = counted(events, warmup_ns=0, duration_ns=COUNTER_EVERY_NS)
    of.send(Go(at_ns=T0))
    for at, value in enumerate((0, 5, 9)):
        of.on_series(reading(tick(at), n_total=value))
    assert of.finished
    of.on_series(reading(tick(3), n_total=0))
    assert of.seen["ok"] == 9


def test_a_counter_that_is_not_there_names_what_is(events: LineFile) -> None:
    of = counted(events, "messages_total")
    of.on_series(reading(tick(0), mesages_total=1, other=2))
    assert not of.is_read
    with pytest.raises(TrialFailed, match=r"never reported its counter messages_total; did you mean mesages_total\?"):
        of.check_begun()
    strange = counted(events, "messages_total")
    strange.on_series(reading(tick(0), **{f"x{number}": 1 for number in range(20)}))
    assert "and 8 more" in str(strange.missing())
    assert "no series was seen: does" in str(counted(events).missing())
    labelled = counted(events, 'n_total{a="x"}')
    labelled.on_series(reading(tick(0), n_total=1))
    assert "not with these labels" in str(labelled.missing())
    failing = counted(events)
    failing.on_series(json.dumps({"type": "scrape_failed", "at_ns": 0, "took_ns": 0, "reason": "status 404"}).encode())
    assert "could not be read: status 404" in str(failing.missing())


def test_what_came_and_could_not_be_read_is_told(events: LineFile) -> None:
    def sent(**values: float) -> bytes:
        return json.dumps({"type": "statsd", "at_ns": T0, "values": values, "packets": 3, "malformed": 1200}).encode()

    of = counted(events)
    of.on_series(sent())
    assert "3 StatsD packets came, and not one line of them could be read (1,200 malformed)" in str(of.missing())
    of.on_series(sent(m_total=1))
    assert str(of.missing()).endswith("1,200 StatsD lines could not be read")


def test_a_counter_on_a_page_and_in_statsd_is_read_off_the_page(events: LineFile) -> None:
    """StatsD lags behind the page by up to one sending period, so a mixture of the two would go backwards."""
    of = counted(events)
    of.send(Go(at_ns=T0))
    for at in range(4):
        of.on_series(reading(tick(at), "scrape", n_total=100 * at + 50))
        of.on_series(reading(tick(at) + MS, n_total=100 * at))
    assert [interval.ok for interval in of.intervals] == [100, 100, 100]


def test_a_counter_that_stands_still_is_said(events: LineFile) -> None:
    of = counted(events, warmup_ns=0, duration_ns=COUNTER_EVERY_NS)
    of.send(Go(at_ns=T0))
    of.on_series(reading(tick(0), n_total=4))
    with pytest.raises(TrialFailed, match="did not grow within the warm-up, it stood at 4"):
        of.check_begun()
    assert str(of.overdue("enter the phase measure")).startswith("the counter n_total was not read in time")


def test_one_that_stops_before_the_window_is_said(events: LineFile) -> None:
    of = counted(events, warmup_ns=COUNTER_EVERY_NS, duration_ns=COUNTER_EVERY_NS)
    of.send(Go(at_ns=T0))
    for at in range(20):
        of.on_series(reading(tick(at), n_total=5 * min(at, 1)))
    assert of.finished
    with pytest.raises(TrialFailed, match=r"stopped at 5, 0\.5 s before the end of the measured window") as failed:
        of.check_ended()
    assert failed.value.failure.code == Code.WORK_ENDED


@pytest.mark.parametrize("late", range(6))
@pytest.mark.parametrize("every", [4, 6])
def test_a_program_that_hands_on_its_count_seldom_is_measured_from_one_of_these_times_to_another(
    events: LineFile, every: int, late: int
) -> None:
    """It does 1,000 a reading, and tells of them with each fourth or sixth."""
    of = counted(events, warmup_ns=6 * COUNTER_EVERY_NS, duration_ns=10 * COUNTER_EVERY_NS)
    of.send(Go(at_ns=T0))
    for at in range(30):
        of.on_series(reading(tick(at), n_total=1000 * every * ((at + late) // every)))
    fleet = merge_fleet(of.summaries)
    assert fleet is not None
    assert fleet.goodput_per_s * COUNTER_EVERY_NS / SECOND == pytest.approx(1000)


def test_one_that_hands_on_its_count_too_seldom_is_measured_rightly_or_not_at_all(events: LineFile) -> None:
    """It does 1,000 a reading, and tells of them every 15 s; the window is to take 10 s."""
    rates, failures = list[float](), set[str]()
    for late in range(30):
        of = counted(events, warmup_ns=6 * COUNTER_EVERY_NS, duration_ns=20 * COUNTER_EVERY_NS)
        of.send(Go(at_ns=T0))
        for at in range(90):
            of.on_series(reading(tick(at), n_total=1000 * 30 * ((at + late) // 30)))
        try:
            of.check_ended()
        except TrialFailed as failed:
            failures.add(failed.failure.code)
            continue
        fleet = merge_fleet(of.summaries)
        assert fleet is not None
        rates.append(fleet.goodput_per_s * COUNTER_EVERY_NS / SECOND)
    assert rates == pytest.approx([1000] * 17), "where it told of them within 8 s of both edges"
    assert failures == {Code.WORK_ENDED}


def test_one_that_stops_within_the_window_ends_it_and_is_not_measured(events: LineFile) -> None:
    of = counted(events, warmup_ns=COUNTER_EVERY_NS, duration_ns=5 * COUNTER_EVERY_NS)
    of.send(Go(at_ns=T0))
    for at in range(30):
        of.on_series(reading(tick(at), n_total=100 * min(at, 3)))
    assert of.phases == {"warmup": T0, "measure": tick(1), "drain": tick(6)}
    assert of.summaries[0]["window"]["outcomes"] == {"ok": 200}
    said = r"stopped at 300, 1\.5 s before the end.*, or the program hangs \(then leave this setting out\)"
    with pytest.raises(TrialFailed, match=said) as failed:
        of.check_ended()
    assert failed.value.failure.code == Code.WORK_ENDED


@pytest.mark.parametrize(
    ("grows_at", "window", "failure", "said"),
    [
        ((*range(1, 60),), 5, None, ""),
        ((*range(1, 10), *range(40, 60)), 40, None, ""),  # silent in the middle alone
        ((1, 2, 3, 4, 5), 5, Code.WORK_ENDED, "stopped at 500"),  # before the window, which no growth began
        ((6, 26, 46, 66), 41, Code.WORK_ENDED, r"the end .* 0\.5 s may be counted too little in its 20\.5 s"),
        # Every 10 s, and nothing for 8 s after one edge: half a second of 50 s is counted wrongly.
        ((*range(6, 150, 20),), 101, None, ""),
        ((5, *range(26, 150, 20)), 120, None, ""),
        ((1, 23), 60, Code.WORK_ENDED, r"the end .* 21\.5 s may be counted too little in its 30\.0 s"),
        ((1, *range(24, 60)), 20, Code.WORK_ENDED, r"the beginning .* 2\.5 s may be counted too much in its 10\.0 s"),
        ((1, 19), 5, Code.WORK_ENDED, r"the end .* 2\.5 s may be counted too little in its 2\.5 s"),
        ((6,), 5, Code.WORK_ENDED, "stopped at 100"),
        ((), 5, Code.NO_PROGRESS, "did not grow within the warm-up"),
    ],
)
def test_only_a_counter_that_is_silent_for_longer_than_ever_before_has_stopped_and_a_silent_edge_may_spoil_little(
    events: LineFile, grows_at: tuple[int, ...], window: int, failure: Code | None, said: str
) -> None:
    of = counted(events, warmup_ns=6 * COUNTER_EVERY_NS, duration_ns=window * COUNTER_EVERY_NS)
    of.send(Go(at_ns=T0))
    for at in range(150):
        of.on_series(reading(tick(at), n_total=100 * sum(grown <= at for grown in grows_at)))
    assert of.finished
    if failure is None:
        of.check_ended()
        return
    with pytest.raises(TrialFailed, match=said) as failed:
        of.check_ended()
    assert failed.value.failure.code == failure
