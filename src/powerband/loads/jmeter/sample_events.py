"""Turns the samples of a JMeter plan into the reports of a fleet of engines.

In: samples as they arrive, each known only by its end, and when the window begins. Out: intervals, and one `summary`.
JMeter's times are in whole ms; users are its threads. A sample counts as sent when it starts, since a thread that is
late starts late. What a thread does outside a sample, its timers and JMeter's own work, counts as its pause.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from powerband.loads.jmeter.jtl import JtlSample
from powerband.processes.histogram_encoding import encode
from powerband.wire.load_events import (
    Connections,
    Counts,
    Interval,
    Outcome,
    PhaseName,
    StepSummary,
    Summary,
    Times,
    Window,
)

INTERVAL_NS = 100_000_000  # as often as the load engine reports
HISTOGRAM_EVERY = 10  # in intervals, as of the load engine
LABELS_MAX = 100  # arbitrary: a plan may make a label for each request, and each label has two histograms
OTHER_LABELS = "(other labels)"
TRANSACTION = "Number of samples in transaction : "
"""The beginning of the message of a transaction controller's sample."""
_MS = 1_000_000
_NON_HTTP = "Non HTTP response code: "
_NON_HTTP_MESSAGE = "Non HTTP response message: "
# Outcomes by the end of the exception's name and a pattern in its message: the first row that fits both.
_EXCEPTIONS: tuple[tuple[str, str, Outcome], ...] = (
    ("", "too many open files", "no_descriptors"),
    ("", "cannot assign requested address", "no_ports"),
    ("", "connect timed out|connection timed out", "connect_timeout"),
    ("ConnectTimeoutException", "", "connect_timeout"),
    ("", "connection refused", "connect_refused"),
    ("SocketTimeoutException", "", "timeout"),
    ("NoHttpResponseException", "", "closed_early"),
    ("ConnectionClosedException", "", "closed_early"),
    ("TruncatedChunkException", "", "closed_early"),
    ("EOFException", "", "closed_early"),
    ("", "connection reset|broken pipe", "reset"),
    ("SSLException", "", "tls_failed"),
    ("SSLHandshakeException", "", "tls_failed"),
    ("SSLPeerUnverifiedException", "", "tls_failed"),
    ("UnknownHostException", "", "connect_failed"),
    ("NoRouteToHostException", "", "connect_failed"),
    ("ConnectException", "", "connect_failed"),
    ("HttpHostConnectException", "", "connect_failed"),
    ("URISyntaxException", "", "connect_failed"),  # of these three, nothing was sent
    ("MalformedURLException", "", "connect_failed"),
    ("IllegalArgumentException", "", "connect_failed"),
    ("RequestAbortedException", "", "unfinished"),
    ("InterruptedIOException", "", "unfinished"),
)


def outcome_of(sample: JtlSample) -> Outcome:
    """Returns the outcome of a sample; ok if the plan's own assertions call it a success."""
    if sample.ok:
        return "ok"
    if sample.code.startswith(_NON_HTTP):
        name = sample.code.removeprefix(_NON_HTTP).strip()
        message = sample.message.lower()
        for ending, pattern, outcome in _EXCEPTIONS:
            if name.endswith(ending) and re.search(pattern, message):
                return outcome
        return "bad_response"
    if re.fullmatch("[4-9][0-9][0-9]", sample.code):
        return "status_rejected"
    return "check_failed"


class _Ended(NamedTuple):
    """A sample that has ended, by the monotonic clock. `end_ns`: of a transaction, with the pauses within it. `alone`:
    it is a transaction in place of its samples; `cut`: one that was right so far when JMeter ended, and is no request
    that ended."""

    end_ns: int
    start_ns: int
    outcome: Outcome
    sample: JtlSample
    alone: bool = False
    cut: bool = False

    @property
    def elapsed_ns(self) -> int:
        """The response time, without pauses."""
        return self.sample.elapsed_ms * _MS

    def spent_ns(self, at_ns: int) -> int:
        """Returns how much of the response time had passed at a moment after the start and not after the end. Pauses
        are taken to be spread evenly, since it is not known when they were."""
        return self.elapsed_ns * (at_ns - self.start_ns) // (self.end_ns - self.start_ns)


@dataclass
class _Counted:
    """Requests by outcome, and the times in ms of those that ended ok and of the others."""

    outcomes: Counter[str] = field(default_factory=Counter)
    ok_ms: Counter[int] = field(default_factory=Counter)
    failed_ms: Counter[int] = field(default_factory=Counter)

    def add(self, ended: _Ended) -> None:
        self.outcomes[ended.outcome] += 1
        (self.ok_ms if ended.outcome == "ok" else self.failed_ms)[ended.sample.elapsed_ms] += 1


@dataclass
class _Window:
    """Samples that ended within the measured window, and those that its edges cut."""

    outcomes: Counter[str] = field(default_factory=Counter)
    bytes_received: int = 0
    bytes_sent: int = 0
    time_in_system_ns: int = 0
    user_ns: int = 0
    carried_in_ns: int = 0
    carried_out_ns: int = 0
    unanswered: int = 0


class Account:
    """Turns samples, added in roughly the order of their ends, into intervals and a summary; `advance` gives the
    intervals that have passed.

    `ahead_ns`: the wall clock minus the monotonic one. `stands_alone`: returns whether the transaction of a label is to
    be counted, in place of its samples; `replaces_samples`: whether a label may be that of a transaction whose samples
    are not reported. `groups_apart`: thread groups whose samples are no part of the load."""

    def __init__(
        self,
        ahead_ns: int,
        duration_ns: int,
        stands_alone: Callable[[str], bool],
        replaces_samples: Callable[[str], bool],
        groups_apart: Collection[str] = (),
    ) -> None:
        self.begun_ns: int | None = None
        self.measure_ns: int | None = None
        self.last_end_ns = 0
        self.transactions_alone = 0
        self.sent_nothing: Counter[str] = Counter()
        """Right samples of the window for which nothing was sent, by label: of scripts, of a Debug Sampler."""
        self.exception = ""
        """JMeter's message about the first request that ended with an exception."""
        self.users_now = 0
        self.cut_ns: int | None = None
        """When threads had to leave their requests: what they report from then on is no answer of the server. None
        before that."""
        self.told_to_end = False
        """True once JMeter was told to end, after which it reports transactions that it cut."""
        self._ahead_ns = ahead_ns
        self._duration_ns = duration_ns
        self._stands_alone = stands_alone
        self._replaces_samples = replaces_samples
        self._groups_apart = groups_apart
        self._waiting: list[_Ended] = []
        self.passed_ns = 0
        """The end of the last interval that was given."""
        self._number = 0
        self._since_histogram: Counter[int] = Counter()
        self._total, self._cohort, self._window = _Counted(), _Counted(), _Window()
        self._labels: defaultdict[str, _Counted] = defaultdict(_Counted)
        self.rejected: Counter[str] = Counter()

    @property
    def measure_end_ns(self) -> int | None:
        """The end of the measured window on the monotonic clock; None until its beginning is known."""
        return None if self.measure_ns is None else self.measure_ns + self._duration_ns

    @property
    def sends_bytes(self) -> bool:
        """True if some samples of the window say how much was sent: those of HTTP do."""
        return self._window.bytes_sent > 0

    @property
    def outcomes(self) -> Counter[str]:
        """All samples so far that are in an interval, by outcome."""
        return self._total.outcomes.copy()

    def add(self, samples: Iterable[JtlSample]) -> None:
        """Takes samples, by the wall clock; a transaction's own sample only if those within it are not reported."""
        for sample in samples:
            if sample.group in self._groups_apart:
                continue
            outcome, unfinished = outcome_of(sample), self._is_unfinished(sample)
            alone = unfinished or sample.message.startswith(TRANSACTION)
            cut = unfinished and outcome in ("ok", "check_failed")
            if alone and not self._stands_alone(sample.label):
                continue
            self.transactions_alone += alone and not cut
            start_ns = sample.start_ms * _MS - self._ahead_ns
            end_ns = start_ns + (sample.elapsed_ms + sample.idle_ms) * _MS
            if self.cut_ns is not None and end_ns >= self.cut_ns and sample.code.startswith(_NON_HTTP):
                outcome = "unfinished"
            if sample.code.startswith(_NON_HTTP):
                self.exception = self.exception or sample.message.removeprefix(_NON_HTTP_MESSAGE)
            self._waiting.append(_Ended(end_ns, start_ns, outcome, sample, alone, cut))
            self.last_end_ns = max(self.last_end_ns, end_ns)
        if self.begun_ns is None and self._waiting:
            self.begun_ns = self.passed_ns = min(ended.start_ns for ended in self._waiting)

    def _is_unfinished(self, sample: JtlSample) -> bool:
        """True for a transaction that was not over when JMeter ended: it has no message."""
        return self.told_to_end and not sample.message and self._replaces_samples(sample.label)

    def advance(self, until_ns: int) -> Iterator[Interval]:
        """Yields each interval that ends by `until_ns`; all samples that ended in it must have been added. Intervals
        also end where the window begins and ends. A sample that came late is counted in the next interval, but with its
        own times and its own place in the window."""
        self._waiting.sort(key=lambda ended: ended.end_ns)
        while self.begun_ns is not None and (end_ns := self._next_end_ns()) <= until_ns:
            yield self._interval(end_ns)

    def _next_end_ns(self) -> int:
        end_ns = self.passed_ns + INTERVAL_NS
        for edge_ns in (self.measure_ns, self.measure_end_ns):
            if edge_ns is not None and self.passed_ns < edge_ns < end_ns:
                end_ns = edge_ns
        return end_ns

    def _interval(self, end_ns: int) -> Interval:
        start_ns, self.passed_ns = self.passed_ns, end_ns
        self._number += 1
        count = next((at for at, each in enumerate(self._waiting) if each.end_ns >= end_ns), len(self._waiting))
        ended, self._waiting = self._waiting[:count], self._waiting[count:]
        whole = [each for each in ended if not each.cut]
        outcomes = Counter[str](each.outcome for each in whole)
        in_system_ns = sum(each.elapsed_ns for each in whole)
        ok_ns = [each.elapsed_ns for each in whole if each.outcome == "ok"]
        for each in ended:
            self._place(each)
        if ended:
            self.users_now = ended[-1].sample.threads
        phase = self._phase(start_ns)
        if phase == "measure":
            # How many threads run is known once a sample has ended, which may be within the window.
            begun_ns = max(self.measure_ns or 0, self.begun_ns or 0)
            self._window.user_ns += self.users_now * (end_ns - (start_ns if self._window.user_ns else begun_ns))
        interval = Interval(
            type="interval",
            start_ns=start_ns,
            end_ns=end_ns,
            phase=phase,
            scheduled=len(whole),
            sent=len(whole),
            dropped=0,
            outcomes=dict(outcomes),
            # A request in flight is known only once it has ended, so this follows from those by Little's law.
            in_flight_now=round(in_system_ns / (end_ns - start_ns)),
            connections_now=0,
            users_now=self.users_now,
            response_time_ns_sum=sum(ok_ns),
            response_time_ns_max=max(ok_ns, default=0),
            service_time_ns_sum=sum(ok_ns),
            send_lag_ns_max=0,
            cpu_ns=0,
        )
        if self._number % HISTOGRAM_EVERY == 0:
            interval["response_time_ns"], self._since_histogram = encode(_in_ns(self._since_histogram)), Counter()
        return interval

    def _phase(self, at_ns: int) -> PhaseName:
        if self.measure_ns is None or at_ns < self.measure_ns:
            return "warmup"
        return "measure" if at_ns < self.measure_ns + self._duration_ns else "drain"

    def _place(self, ended: _Ended) -> None:
        """Counts a sample for the run, for the requests scheduled in the window, and for those that ended in it. Right
        transactions count for both where they end: JMeter cuts those under way at the end, long ones most likely, so
        that the times of those that began in the window would be too short."""
        end_ns, start_ns, outcome, sample, alone, cut = ended
        if not cut:
            self._total.add(ended)
        if outcome == "ok" and not cut:
            self._since_histogram[sample.elapsed_ms] += 1
        if outcome == "status_rejected":
            self.rejected[sample.code] += 1
        if self.measure_ns is None:
            return
        opened_ns, closed_ns = self.measure_ns, self.measure_ns + self._duration_ns
        window = self._window
        if not cut and opened_ns <= (end_ns if alone and outcome == "ok" else start_ns) < closed_ns:
            self._cohort.add(ended)
            known = sample.label in self._labels or len(self._labels) < LABELS_MAX
            self._labels[sample.label if known else OTHER_LABELS].add(ended)
        if not cut and opened_ns <= end_ns < closed_ns:
            window.outcomes[outcome] += 1
            window.bytes_received += sample.bytes_received
            window.bytes_sent += sample.bytes_sent
            if outcome == "ok" and not sample.bytes_sent:
                self.sent_nothing[sample.label] += 1
            window.time_in_system_ns += ended.elapsed_ns
        if start_ns < opened_ns <= end_ns:
            window.carried_in_ns += ended.spent_ns(opened_ns)
            window.unanswered += end_ns >= closed_ns
        if start_ns < closed_ns <= end_ns:
            window.carried_out_ns += ended.spent_ns(closed_ns)

    def end(self) -> Iterator[Interval]:
        """Yields the remaining intervals, once all samples were added."""
        yield from self.advance(max(self.last_end_ns, self.measure_end_ns or 0) + INTERVAL_NS)

    def summary(self) -> Summary:
        """Returns the summary, once `end` has given the last intervals."""
        assert self.begun_ns is not None and self.measure_ns is not None
        window = self._window
        paused_ns = window.user_ns - window.time_in_system_ns + window.carried_in_ns - window.carried_out_ns
        return Summary(
            type="summary",
            go_ns=self.begun_ns,
            measure_start_ns=self.measure_ns,
            measure_end_ns=self.measure_ns + self._duration_ns,
            end_ns=max(self.last_end_ns, self.measure_ns + self._duration_ns),
            total=_counts(self._total),
            cohort=_counts(self._cohort),
            cohort_times=Times(
                response_time_ns=encode(_in_ns(self._cohort.ok_ms)),
                service_time_ns=encode(_in_ns(self._cohort.ok_ms)),
                failed_time_ns=encode(_in_ns(self._cohort.failed_ms)),
                send_lag_ns="",
                dropped_wait_ns="",
            ),
            steps=[
                StepSummary(
                    name=label,
                    outcomes=dict(counted.outcomes),
                    response_time_ns=encode(_in_ns(counted.ok_ms)),
                    service_time_ns=encode(_in_ns(counted.ok_ms)),
                )
                for label, counted in sorted(self._labels.items())
            ],
            window=Window(
                outcomes=dict(window.outcomes),
                bytes_received=window.bytes_received,
                bytes_sent=window.bytes_sent,
                time_in_system_ns_sum=window.time_in_system_ns,
                think_ns_sum=max(0, paused_ns),
                user_ns=window.user_ns,
                carried_in_ns_sum=window.carried_in_ns,
                carried_out_ns_sum=window.carried_out_ns,
                unanswered=window.unanswered,
            ),
            connections=Connections(opened=0, failed=0, closed_by_peer=0, open_max=0, connect_time_ns=""),
            cpu_user_ns=0,
            cpu_system_ns=0,
            thread_cpu_ns=[],
            max_rss_bytes=0,
            rejected_statuses=dict(self.rejected),
            ended_by="time",
        )


def _counts(counted: _Counted) -> Counts:
    """Returns counts in which all that were sent have ended, since a sample that never ended is not known."""
    sent = counted.outcomes.total()
    return Counts(scheduled=sent, sent=sent, dropped=0, outcomes=dict(counted.outcomes))


def _in_ns(by_ms: Counter[int]) -> dict[int, int]:
    return {elapsed_ms * _MS: count for elapsed_ms, count in by_ms.items()}
