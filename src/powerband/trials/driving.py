"""Runs a driver from go to its last message: the loop of a trial and of `powerband load`.

In: a driver that is ready to go. Out: its phases, and its intervals as they come. Not here: when a warm-up has lasted
long enough (`trial.py`), and the interface of drivers (`loads/driver.py`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from powerband.loads.driver import Driver
from powerband.loads.measured import STANDARD_ERRORS
from powerband.model.warmup import WarmupSeries
from powerband.processes.engine_fleet import FleetInterval
from powerband.processes.engine_process import Pump
from powerband.wire.specs import Go, StartMeasure

REPORT_SLACK_S = 10.0  # added to the wait for an event that is due: a busy machine reports late
GATHER_S = 0.02  # time between two reads of lines: the control plane shares CPUs with the engines
BEHIND = 0.1  # of a rate that a server does not serve: arbitrary, far beyond what any verdict lets pass


class DriveLoop:
    """Runs one driver and reads its lines. `check` is called each time after lines were read, and ends the loop by
    raising. `on_intervals` gets the driver's intervals as they come, `intervals_at_once` at a time."""

    def __init__(
        self,
        pump: Pump,
        driver: Driver,
        *,
        on_intervals: Callable[[list[FleetInterval]], None],
        intervals_at_once: int = 1,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.driver = driver
        self._pump = pump
        self._on_intervals = on_intervals
        self._at_once = intervals_at_once
        self._check = check
        self._handed_on = 0

    def go(self) -> int:
        """Starts the load; returns the instant at which it starts, or at which it started by itself (monotonic ns)."""
        go_ns = self.driver.begun_ns
        if go_ns is None:
            go_ns = self._soon_ns()
        self.driver.send(Go(at_ns=go_ns))
        return go_ns

    def start_window(self) -> None:
        """Orders the driver to end the warm-up and start the measured window, as soon as a command can reach it."""
        self.driver.send(StartMeasure(at_ns=self._soon_ns()))

    def wait(
        self, done: Callable[[], bool], timeout_s: float, *, stoppable: bool = True, gather_s: float = GATHER_S
    ) -> bool:
        """Pumps until `done()` is true or the driver has finished; False if neither happens within `timeout_s`. Raises
        TrialInterrupted on a stop request if `stoppable`, and TrialFailed. `gather_s`: as in `Pump.wait`."""

        def passed() -> bool:
            self._check()
            self.driver.look()
            self._hand_on()
            return self.driver.finished or done()

        return self._pump.wait(passed, timeout_s, stoppable=stoppable, gather_s=gather_s)

    def wait_until(self, at_ns: int) -> None:
        """Pumps until this instant of the monotonic clock, or until the driver has finished."""
        self.wait(lambda: time.monotonic_ns() >= at_ns, (at_ns - time.monotonic_ns()) / 1e9)

    def wait_for_phase(self, phase: str, timeout_s: float) -> int | None:
        """Waits until a phase begins and returns that instant (monotonic ns); None if the driver finished without it.
        Raises TrialFailed if the phase has not begun within `timeout_s`."""
        if not self.wait(lambda: phase in self.driver.phases, timeout_s):
            raise self.driver.overdue(f"enter the phase {phase}")
        return self.driver.phases.get(phase)

    def wait_for_end(self, timeout_s: float, *, stoppable: bool = True) -> bool:
        """Pumps until the driver has finished; False if it has not within `timeout_s`. No line waits for others: hardly
        any come once the load is over."""
        return self.wait(lambda: False, timeout_s, stoppable=stoppable, gather_s=0.0)

    def _soon_ns(self) -> int:
        return time.monotonic_ns() + self.driver.lead_ns

    def _hand_on(self) -> None:
        intervals = self.driver.intervals
        while len(intervals) - self._handed_on >= self._at_once:
            recent = intervals[self._handed_on : self._handed_on + self._at_once]
            self._handed_on += self._at_once
            self._on_intervals(recent)


def load_over(intervals: list[FleetInterval]) -> tuple[float, float | None, int]:
    """The load over these intervals: `ok` requests per second, their mean response time in ns (None if not known), and
    requests in flight at the end."""
    length_ns = intervals[-1].end_ns - intervals[0].start_ns
    ok = sum(interval.ok for interval in intervals)
    timed = [each for each in intervals if each.ok and not math.isnan(each.response_time_ns_mean)]
    time_ns = sum(interval.response_time_ns_mean * interval.ok for interval in timed)
    return ok * 1e9 / max(1, length_ns), time_ns / ok if timed else None, intervals[-1].in_flight


def falls_behind(driver: Driver, rate_per_s: float) -> bool:
    """True if the server answered clearly fewer requests rightly than `rate_per_s` asked for in the later half of the
    measured window: it fell behind by more than `BEHIND` and what chance explains. What is then left over is a queue
    that grew. In the first half one that keeps up may still have nothing to answer, since each answer takes long."""
    start_ns, end_ns = (driver.phases.get(phase, 0) for phase in ("measure", "drain"))
    half_ns = (start_ns + end_ns) // 2
    inside = [each for each in driver.intervals if half_ns <= each.start_ns and each.end_ns <= end_ns]
    asked = rate_per_s * sum(each.end_ns - each.start_ns for each in inside) / 1e9
    return sum(each.ok for each in inside) < (1 - BEHIND) * asked - STANDARD_ERRORS * math.sqrt(asked)


def series_of(intervals: list[FleetInterval], busy_users: bool = False, between: bool = False) -> WarmupSeries:
    """The intervals as the series by which a warm-up is judged; each counts as long as the last. `busy_users`,
    `between`: as in `WarmupSeries`."""
    return WarmupSeries(
        interval_s=(intervals[-1].end_ns - intervals[-1].start_ns) / 1e9,
        rate_per_s=tuple(interval.rate_per_s for interval in intervals),
        response_time_ns_mean=tuple(interval.response_time_ns_mean for interval in intervals),
        busy_users=busy_users,
        between=between,
    )
