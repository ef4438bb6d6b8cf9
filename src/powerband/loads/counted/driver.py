"""Turns the readings of a self-driven subject's counter into the reports of a fleet of engines.

In: the probe's `scrape` and `statsd` events as they arrive, and the commands that a fleet gets. Out: intervals and
phases, the same lines in `events.jsonl`, and one `summary`. The counter's growth is work that ended ok; no times are
known. The measured window begins and ends with a reading that shows growth, so that its count is exact, also of a
program that hands on its count seldom; but for fractions: whole units are counted. A window in which that would distort
the rate is refused, and so is one at an edge of which the counter was silent for too long, or had stopped. Nothing is
judged.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any

from powerband.base.errors import did_you_mean
from powerband.base.hosts import request_target
from powerband.base.units import plural
from powerband.loads.driver import StandIn
from powerband.model.experiment import WorkCounter
from powerband.model.load import Step
from powerband.processes.engine_fleet import FleetInterval
from powerband.processes.engine_process import Pump
from powerband.processes.failures import Code, TrialFailed
from powerband.processes.line_file import LineFile
from powerband.processes.requests import Client, RequestFailedError
from powerband.processes.subject_process import COUNTER_EVERY_NS
from powerband.wire.load_events import Connections, Counts, Interval, Summary, Times, Window
from powerband.wire.message import Wire
from powerband.wire.probe_events import Scrape, ScrapeFailed, Statsd
from powerband.wire.specs import Go, StartMeasure

ERROR_MOST = 0.01  # of a window's count: arbitrary, less than a difference that decides anything
GROWTH_WITHIN_NS = 8_000_000_000  # the longest wait for growth at an edge: the trial waits 10 s for an edge
STOPPED_TIMES = 2  # arbitrary: a silence of so many of the longest times between two growths is an end
NAMES_SHOWN = 12  # arbitrary: what fits a message
PAGE_TIMEOUT_S = 2.0  # twice what the probe waits for the page: the trial has failed already
PAGE_BYTES_MAX = 4 << 20  # arbitrary: only names are looked for, and some of them suffice
_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)[ {]", re.MULTILINE)
_NO_TIMES = Times(response_time_ns="", service_time_ns="", failed_time_ns="", send_lag_ns="", dropped_wait_ns="")


@dataclass(frozen=True)
class _Reading:
    at_ns: int
    value: float


class Counted(StandIn):
    """The driver of a self-driven subject, which works by itself: it only counts.

    `warmup_ns`: the length of a fixed warm-up, from go on; None: it lasts until the `measure` command."""

    begun_ns: int | None = None
    """None, since it waits for go: readings before that do not count."""

    def __init__(
        self, counts: WorkCounter, events: LineFile, pump: Pump, *, warmup_ns: int | None, duration_ns: int
    ) -> None:
        super().__init__(events)
        self._pump = pump
        self.pids: list[int] = []
        self.page: str | None = None
        """The subject's metrics page, which is asked for the names that it has if the counter was never seen; None
        without one."""
        self._counts = counts
        self._series = counts.wanted
        self._warmup_ns = warmup_ns
        self._duration_ns = duration_ns
        self._go_ns: int | None = None
        self._measure_ns: int | None = None
        self.forget()

    def forget(self) -> None:
        """Discards everything read before the subject was started again."""
        self._last: _Reading | None = None
        self._first: _Reading | None = None
        self._opened: _Reading | None = None
        self._due: _Reading | None = None
        self._grew: _Reading | None = None
        self._longest_ns = 0  # between two growths
        self._begun_by_growth, self._ended_by_growth = False, True  # the window, as far as is known
        self._silent_ns: list[int] = []  # until the window's beginning and until its end; 0 if that showed growth
        self._sent_names: tuple[str, ...] = ()
        self._packets = self._malformed = 0
        self._on_page = False
        self._page_failed = ""

    @property
    def is_read(self) -> bool:
        """True once the counter has been seen."""
        return self._last is not None

    def look(self) -> None:
        """Does nothing, since the probe's lines arrive by themselves."""

    def send(self, command: Wire) -> None:
        """Takes `go` and `measure`, like a fleet: each takes effect at the first reading after its time."""
        if isinstance(command, Go):
            self._go_ns = command.at_ns
            self._measure_ns = None if self._warmup_ns is None else command.at_ns + self._warmup_ns
        elif isinstance(command, StartMeasure):
            self._measure_ns = command.at_ns

    def on_series(self, line: bytes) -> None:
        """Takes a line of the probe about the subject's own series. Raises TrialFailed if the counter went back."""
        event: Scrape | Statsd | ScrapeFailed = json.loads(line)
        if event["type"] == "scrape_failed":
            self._page_failed = event["reason"]
            return
        if event["type"] == "statsd":
            self._sent_names = tuple(event["values"])
            self._packets, self._malformed = event["packets"], event["malformed"]
            if self._on_page:
                return  # the same counter, read at other moments
        found = [value for field, value in event["values"].items() if self._series.covers(field)]
        if found:
            # The page is made at some time between the request and its answer: the middle is assumed.
            took_ns = event.get("took_ns", 0) if event["type"] == "scrape" else 0
            self._on_page = event["type"] == "scrape"
            self._read(_Reading(event["at_ns"] + took_ns // 2, math.fsum(found)))

    def record(self) -> dict[str, Any]:
        return {}

    def check_begun(self) -> None:
        """Raises TrialFailed if there is nothing to measure: the counter is unknown, or stands still."""
        if not self.is_read:
            raise self.missing()
        if not self.seen["ok"]:
            grown = self._last.value - self._first.value if self._last and self._first else 0.0
            raise self._too_small(grown, "within the warm-up") if grown else self._still()

    def check_ended(self) -> None:
        """Raises TrialFailed like `check_begun`, and if the counter stopped before the window's end, was silent at an
        edge for so long that the window's count is wrong, or moved by too little to be counted in whole units."""
        self.check_begun()
        if self._has_stopped:
            raise self._stopped()
        if max(self._silent_ns) > ERROR_MOST * self._window_ns:
            raise self._too_seldom()
        grown = self._last.value - self._opened.value if self._last and self._opened else 0.0
        counted = sum(summary["window"]["outcomes"]["ok"] for summary in self.summaries)
        if abs(counted - grown) > ERROR_MOST * grown:
            raise self._too_small(grown, "within the measured window")

    def overdue(self, what: str) -> TrialFailed:
        if not self.is_read:
            return self.missing()
        reason = f": {self._page_failed}" if self._page_failed else ""
        return TrialFailed(
            Code.NO_COUNTER,
            f"the counter {self._series} was not read in time ({what}){reason}: the program must go on answering for "
            "its metrics, or sending them, while it works",
        )

    def missing(self) -> TrialFailed:
        """The failure of a counter that was never seen; it says what was seen instead."""
        names = sorted({field.partition("{")[0] for field in (*self._sent_names, *self._page_names())})
        if self._series.name in names:
            seen = "a series of this name is there, but not with these labels"
        elif names:
            hint = did_you_mean(self._series.name, names)
            seen = hint if hint.startswith("did") else f"there are {', '.join(_some(names))}"
        elif self._malformed:
            seen = (
                f"{plural(self._packets, 'StatsD packet')} came, and not one line of them could be read "
                f"({self._malformed:,} malformed): a counter is sent as name:1|c"
            )
        elif self._page_failed:
            seen = f"the metrics page could not be read: {self._page_failed}"
        else:
            seen = "no series was seen: does the program send its metrics to the given port, or serve the page?"
        if names and self._malformed:
            seen += f"; {self._malformed:,} StatsD lines could not be read"
        return TrialFailed(Code.NO_COUNTER, f"the program never reported its counter {self._series}; {seen}")

    @property
    def _has_stopped(self) -> bool:
        """True if the counter stopped for good before the window ended: no growth ended it, and the counter had grown
        at its start, or before and then never again. A counter that has always been silent for as long has not."""
        if self._grew is None or self._opened is None or self._last is None or self._ended_by_growth:
            return False
        silent_ns = self._last.at_ns - self._grew.at_ns
        known_to_grow = self._begun_by_growth or self._grew.at_ns <= self._opened.at_ns
        return known_to_grow and silent_ns > STOPPED_TIMES * self._longest_ns

    def _stopped(self) -> TrialFailed:
        assert self._grew is not None
        idle_s = (self.phases["drain"] - self._grew.at_ns) / 1e9
        return TrialFailed(
            Code.WORK_ENDED,
            f"the counter {self._series} stopped at {self._grew.value:g}, {idle_s:.1f} s before the end of the "
            "measured window: the work ran out (give it more, or shorten load.duration and measure.warmup_max), or the "
            "program hangs (then leave this setting out)",
        )

    @property
    def _window_ns(self) -> int:
        return self.phases["drain"] - self.phases["measure"]

    def _too_seldom(self) -> TrialFailed:
        """The failure of a window that began or ended while the counter was silent: what was done since it last grew
        is counted later, and so within the window or after it."""
        silent_ns = max(self._silent_ns)
        edge, error = ("beginning", "much") if silent_ns == self._silent_ns[0] else ("end", "little")
        return TrialFailed(
            Code.WORK_ENDED,
            f"the counter {self._series} did not grow within {GROWTH_WITHIN_NS / 1e9:g} s of the {edge} of the "
            f"measured window: the work of {silent_ns / 1e9:.1f} s may be counted too {error} in its "
            f"{self._window_ns / 1e9:.1f} s; let the program hand on its count every few seconds, or lengthen "
            "load.duration",
        )

    def _still(self) -> TrialFailed:
        at = 0.0 if self._last is None else self._last.value
        return TrialFailed(
            Code.NO_PROGRESS,
            f"the counter {self._series} did not grow within the warm-up, it stood at {at:g}: the program did nothing "
            "at this setting, or counts something else; look at its log",
        )

    def _too_small(self, grown: float, where: str) -> TrialFailed:
        return TrialFailed(
            Code.NO_PROGRESS,
            f"the counter {self._series} grew by {grown:g} {where}, which is too little to be counted in whole units: "
            "let it count smaller units (milliseconds, not seconds), or measure for longer",
        )

    def _page_names(self) -> list[str]:
        """Returns the series of the page, read once more here, since the probe reports only the series asked for."""
        if self.page is None:
            return []
        try:
            with Client(self.page, PAGE_TIMEOUT_S, self._pump) as client:
                page = client.answer_to(Step(name="metrics page", path=request_target(self.page)))
        except RequestFailedError:
            return []
        return _SAMPLE.findall(page.body[:PAGE_BYTES_MAX].decode(errors="replace"))

    def _read(self, now: _Reading) -> None:
        if self.finished:
            return
        before, self._last = self._last, now
        if self._go_ns is not None and before is not None and now.value < before.value:
            raise TrialFailed(
                Code.COUNTER_WENT_BACK,
                f"the counter {self._series} went back from {before.value:g} to {now.value:g}: the program, or a part "
                "of it, was started again, or this series is no counter; look at its log",
            )
        if self._go_ns is None or now.at_ns < self._go_ns:
            return
        if self._first is None or before is None:
            self._first = now
            self.phases["warmup"] = now.at_ns
        elif now.at_ns > before.at_ns:
            self._add(before, now)
        grown = before is not None and now.value > before.value
        if grown:
            self._longest_ns = max(self._longest_ns, now.at_ns - self._grew.at_ns) if self._grew else 0
            self._grew = now
        self._change_phase(now, grown=grown)

    def _change_phase(self, now: _Reading, *, grown: bool) -> None:
        """Begins or ends the window with the first reading from that instant on that shows growth. Of a counter that
        has stopped, or is silent for long, it is the first reading of all."""
        edge_ns = self._measure_ns
        if self._opened is not None:  # the reading nearest to the end
            edge_ns = self._opened.at_ns + self._duration_ns - COUNTER_EVERY_NS // 2
        if edge_ns is None or now.at_ns < edge_ns:
            return
        self._due = now if grown else self._due or now
        if not grown and now.at_ns < self._due.at_ns + GROWTH_WITHIN_NS:
            return
        edge, self._due = self._due, None
        since = self._grew or self._first
        assert since is not None
        self._silent_ns.append(edge.at_ns - since.at_ns)
        if self._opened is None:
            self._opened, self._begun_by_growth = edge, grown
            self.phases["measure"] = edge.at_ns
        else:
            self._ended_by_growth = grown
            self.phases["drain"] = edge.at_ns
            self._end(self._opened, edge)

    def _add(self, before: _Reading, now: _Reading) -> None:
        ok = self._since_first(now) - self._since_first(before)
        self.intervals.append(FleetInterval(before.at_ns, now.at_ns, ok, ok, math.nan, 0))
        self._report(
            Interval(
                type="interval",
                start_ns=before.at_ns,
                end_ns=now.at_ns,
                phase="warmup" if self._opened is None else "measure",
                scheduled=ok,
                sent=ok,
                dropped=0,
                outcomes={"ok": ok},
                in_flight_now=0,
                connections_now=0,
                users_now=0,
                response_time_ns_sum=0,
                response_time_ns_max=0,
                service_time_ns_sum=0,
                send_lag_ns_max=0,
                cpu_ns=0,
            )
        )

    def _since_first(self, reading: _Reading) -> int:
        """Returns the whole units of work since the first reading, so that intervals add up to the window despite
        rounding."""
        assert self._first is not None
        return round(reading.value - self._first.value)

    def _end(self, opened: _Reading, now: _Reading) -> None:
        total, window = self._since_first(now), self._since_first(now) - self._since_first(opened)
        self._report(
            Summary(
                type="summary",
                go_ns=self._go_ns or 0,
                measure_start_ns=opened.at_ns,
                measure_end_ns=now.at_ns,
                end_ns=now.at_ns,
                total=_counts(total),
                cohort=_counts(window),
                cohort_times=_NO_TIMES,
                steps=[],
                window=Window(
                    outcomes={"ok": window},
                    bytes_received=0,
                    bytes_sent=0,
                    time_in_system_ns_sum=0,
                    think_ns_sum=0,
                    user_ns=0,
                    carried_in_ns_sum=0,
                    carried_out_ns_sum=0,
                    unanswered=0,
                ),
                connections=Connections(opened=0, failed=0, closed_by_peer=0, open_max=0, connect_time_ns=""),
                cpu_user_ns=0,
                cpu_system_ns=0,
                thread_cpu_ns=[],
                max_rss_bytes=0,
                rejected_statuses={},
                ended_by="time",
            )
        )


def _counts(ok: int) -> Counts:
    return Counts(scheduled=ok, sent=ok, dropped=0, outcomes={"ok": ok})


def _some(names: list[str]) -> list[str]:
    """Returns the names, shortened if there are many."""
    return names if len(names) <= NAMES_SHOWN else [*names[:NAMES_SHOWN], f"and {len(names) - NAMES_SHOWN} more"]
