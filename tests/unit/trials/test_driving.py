"""The loop from the start of a load to its last report, with a driver whose reports are made up."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from powerband.processes.engine_fleet import GO_LEAD_NS, GO_LEAD_PER_ENGINE_NS, FleetInterval, go_lead_ns
from powerband.processes.engine_process import Pump
from powerband.processes.failures import Code, TrialFailed
from powerband.processes.stop_request import StopRequest
from powerband.trials.driving import DriveLoop, falls_behind, load_over
from powerband.wire.message import Wire
from powerband.wire.specs import Go, StartMeasure

MS = 1_000_000


class FakeDriver:
    """Reports all its intervals at the first look; with fewer than `lasts` it never finishes."""

    def __init__(self, engines: int = 1, reports: int = 5, lasts: int = 5) -> None:
        self.intervals: list[FleetInterval] = []
        self.phases: dict[str, int] = {}
        self.seen: Counter[str] = Counter()
        self.summaries: tuple[dict[str, Any], ...] = ()
        self.begun_ns: int | None = None
        self.pids = list(range(engines))
        self.lead_ns = go_lead_ns(engines)
        self.sent: list[Wire] = []
        self.reports = reports
        self.lasts = lasts

    @property
    def finished(self) -> bool:
        return len(self.intervals) >= self.lasts

    def look(self) -> None:
        for at in range(len(self.intervals), self.reports):
            self.intervals.append(FleetInterval(at * 100 * MS, (at + 1) * 100 * MS, 1, 1, 1.0, 0))

    def send(self, command: Wire) -> None:
        self.sent.append(command)

    def overdue(self, what: str) -> TrialFailed:
        return TrialFailed(Code.ENGINE_FAILED, what)

    def check_begun(self) -> None: ...

    def check_ended(self) -> None: ...

    def record(self) -> dict[str, Any]:
        return {}


@pytest.fixture
def pump() -> Iterator[Pump]:
    stop = StopRequest()
    with Pump(stop) as made:
        yield made
    stop.close()


def ignored(_intervals: list[FleetInterval]) -> None: ...


@pytest.mark.parametrize(
    ("asked_per_s", "answered", "behind"),
    [
        pytest.param(500.0, 50, False, id="all is served"),
        pytest.param(500.0, 40, True, id="a part is not"),
        pytest.param(500.0, 0, True, id="nothing is"),
        pytest.param(11.0, 1, False, id="few requests, of which chance may leave out some"),
    ],
)
@pytest.mark.parametrize("first", [10, 55])  # interval of 0.1 s; each answer takes so long, or 4.5 s longer
def test_a_server_that_falls_behind_its_rate_is_told_by_the_answers_in_the_window(
    asked_per_s: float, answered: int, behind: bool, first: int
) -> None:
    driver = FakeDriver()
    driver.phases = {"measure": 1000 * MS, "drain": 11_000 * MS}
    for at in range(150):  # in the warm-up and in the drain it answers nothing
        ok = answered if first <= at < 110 else 0
        driver.intervals.append(FleetInterval(at * 100 * MS, (at + 1) * 100 * MS, ok, ok, 1.0, 0))
    assert falls_behind(driver, asked_per_s) is behind
    driver.phases.clear()
    assert not falls_behind(driver, asked_per_s)


def test_go_leaves_time_to_reach_each_engine() -> None:
    assert go_lead_ns(1) == 2_500_000
    assert go_lead_ns(64) - go_lead_ns(63) == GO_LEAD_PER_ENGINE_NS
    assert go_lead_ns(0) == GO_LEAD_NS


@pytest.mark.parametrize("engines", [1, 64])
def test_commands_name_an_instant_that_lies_ahead_by_the_lead(pump: Pump, engines: int) -> None:
    driver = FakeDriver(engines)
    loop = DriveLoop(pump, driver, on_intervals=ignored)
    before_ns = time.monotonic_ns()
    go_ns = loop.go()
    loop.start_window()
    after_ns = time.monotonic_ns()
    go, window = driver.sent
    assert isinstance(go, Go) and isinstance(window, StartMeasure)
    assert go.at_ns == go_ns
    assert before_ns + go_lead_ns(engines) <= go.at_ns <= window.at_ns <= after_ns + go_lead_ns(engines)


def test_a_driver_that_began_by_itself_keeps_its_beginning(pump: Pump) -> None:
    driver = FakeDriver()
    driver.begun_ns = 5
    assert DriveLoop(pump, driver, on_intervals=ignored).go() == 5
    assert driver.sent == [Go(at_ns=5)]


def test_intervals_are_handed_on_so_many_at_once_and_in_order(pump: Pump) -> None:
    driver, handed = FakeDriver(), []
    loop = DriveLoop(pump, driver, on_intervals=handed.append, intervals_at_once=2)
    assert loop.wait_for_end(5.0)
    assert [[interval.start_ns // (100 * MS) for interval in each] for each in handed] == [[0, 1], [2, 3]]


def test_a_phase_is_waited_for_and_a_late_one_is_a_failure(pump: Pump) -> None:
    driver = FakeDriver(lasts=6)
    driver.phases["measure"] = 7
    loop = DriveLoop(pump, driver, on_intervals=ignored)
    assert loop.wait_for_phase("measure", 1.0) == 7
    with pytest.raises(TrialFailed, match="enter the phase drain"):
        loop.wait_for_phase("drain", 0.01)
    driver.lasts = 0
    assert loop.wait_for_phase("drain", 1.0) is None, "it finished without that phase"


def test_the_check_ends_the_loop(pump: Pump) -> None:
    def check() -> None:
        raise TrialFailed(Code.DIED, "gone")

    loop = DriveLoop(pump, FakeDriver(), on_intervals=ignored, check=check)
    with pytest.raises(TrialFailed, match="gone"):
        loop.wait_for_end(1.0)


def test_intervals_together_weigh_their_mean_times_by_requests_and_end_as_the_last_does() -> None:
    none_ok = FleetInterval(400 * MS, 500 * MS, 0, 2, math.nan, 9)
    first, later = FleetInterval(0, 200 * MS, 1, 1, 1.0, 5), FleetInterval(200 * MS, 400 * MS, 3, 4, 5.0, 7)
    assert load_over([first, later]) == (pytest.approx(4 / 0.4), pytest.approx((1 + 3 * 5) / 4), 7)
    assert load_over([first, later, none_ok]) == (pytest.approx(4 / 0.5), pytest.approx(4.0), 9)
    assert load_over([none_ok]) == (0.0, None, 9)
