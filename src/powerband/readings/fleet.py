"""Merges the `summary` events of all engine processes of a trial: counts are added, histograms are merged.

In: the summaries of `record.json`. Out: a `MergedFleet`. Quantiles are taken of merged histograms only, never averaged.
Not here: any judgement of the numbers (`loads/measured.py`), the probe (`probe_samples.py`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from powerband.readings.histogram import bounds, decode, merge
from powerband.wire.load_events import Counts, Summary, Window

SECOND_NS = 1e9
QUANTILES: Mapping[str, float] = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}


class MergedTimes:
    """A distribution of times in ns: HdrHistograms with 3 significant digits, merged without loss."""

    def __init__(self, encoded: Iterable[str]) -> None:
        cells, self._counts = merge([decode(text) for text in encoded if text])
        low, size = bounds(cells)
        self._highest = low + size - 1
        self._middle = (low + self._highest) / 2
        self._passed = np.cumsum(self._counts)

    @property
    def count(self) -> int:
        """The number of times."""
        return int(self._passed[-1]) if self._passed.size else 0

    def quantile(self, q: float) -> float:
        """The smallest value not exceeded by at least a share `q` in [0, 1] of all values; 0 if there are none."""
        if not self._passed.size:
            return 0.0
        rank = max(1, math.ceil(q * self.count - 1e-9))
        return float(self._highest[np.searchsorted(self._passed, rank)])

    @property
    def maximum(self) -> float:
        """The longest time; 0 if there are none."""
        return self.quantile(1.0)

    def moment(self, order: int) -> float:
        """The mean of value ** order, with each value at the middle of its cell; 0 if there are no values."""
        return float(np.dot(self._middle**order, self._counts) / self.count) if self.count else 0.0

    def beyond(self, limit: float) -> float:
        """The sum of the parts of all times beyond `limit`."""
        return float(np.dot(np.maximum(self._middle - limit, 0.0), self._counts)) if self.count else 0.0


@dataclass(frozen=True)
class Unserved:
    """The number of `users` who got no `ok` answer within the window although one was due, and the number of their
    `requests` in the cohort. `away`: those whom the engine counts and who had lost their WebSocket, `absent`: those of
    the users who had no connection, both on average over the window."""

    users: float
    requests: int
    away: float = 0.0
    absent: float = 0.0


@dataclass(frozen=True)
class RequestCounts:
    """Counts of requests: those that became due (`scheduled`), those of them that were `sent` or given up unsent
    (`dropped`), and how the sent ones ended (`outcomes`, by outcome). scheduled == sent + dropped; sent == sum of
    outcomes."""

    scheduled: int
    sent: int
    dropped: int
    outcomes: Mapping[str, int]

    @property
    def ended(self) -> int:
        """The number of requests that ended, whatever their outcome."""
        return sum(self.outcomes.values())

    @property
    def ok(self) -> int:
        """The number of requests that were answered correctly."""
        return self.outcomes.get("ok", 0)


@dataclass(frozen=True)
class MergedFleet:
    """All engine processes of one trial merged into one.

    The engines' windows, if they end by time, differ by microseconds: each rate is computed over its engine's own
    window, then the rates are added, and `start_ns` to `end_ns` is the part common to all windows. If an engine ended
    because its users had done their work, everything is computed over the whole span instead, since a process that
    finishes early sends no more load.

    `total`: requests of the whole run; `cohort`: requests that were scheduled within the window, followed to their end;
    `window_outcomes`: requests that ended within the window, whenever they were scheduled. `goodput_per_s`,
    `achieved_per_s`: ok ones of these and all of these; `offered_per_s`: the cohort's rate. `users_mean`: mean number
    of users present; `cpu_cores`: CPU of all engines; `connections_opened`: in the whole run; `summaries`: of the
    engines that reached the window."""

    start_ns: int
    end_ns: int
    total: RequestCounts
    cohort: RequestCounts
    window_outcomes: Mapping[str, int]
    goodput_per_s: float
    achieved_per_s: float
    offered_per_s: float
    users_mean: float
    busy_users_mean: float
    """Mean number of requests in the system by Little's law: time in the system per second of the window."""
    thinking_users_mean: float
    """Mean number of users in a pause, by Little's law."""
    carried_users_mean: float
    """The part that the window's edges cut off from the sum of the two means above: the ages of requests in flight and
    of pauses at the window's end, less those at its start, per second of the window."""
    unanswered: int
    """Requests scheduled before the window and still without an answer at its end."""
    unserved: Unserved | None
    """Users who were never served; None if the engines did not report them (JMeter, runs of earlier versions)."""
    late_ns: int
    """The longest time for which an engine thread did not run although the window or one of its intervals ended; 0 if
    the engines did not report it."""
    cpu_cores: float
    cpu_share_max: float
    """CPU share of the busiest engine thread."""
    threads: int
    """Engine threads, each an event loop."""
    connections_opened: int
    summaries: tuple[Summary, ...]

    @property
    def window_s(self) -> float:
        """The length of the window in s."""
        return (self.end_ns - self.start_ns) / SECOND_NS

    @property
    def ended(self) -> int:
        """The number of requests that ended within the window, whatever their outcome."""
        return sum(self.window_outcomes.values())

    @property
    def rejected_statuses(self) -> Counter[str]:
        """The number of requests of the whole run that were rejected because of their status, by status."""
        return sum((Counter(summary.get("rejected_statuses", {})) for summary in self.summaries), Counter())

    @property
    def redirects(self) -> int:
        """The number of accepted answers of the whole run that were redirects."""
        return sum(summary.get("redirects", 0) for summary in self.summaries)

    def times(self, name: str) -> MergedTimes:
        """A distribution of the cohort by its name on the wire, e.g. `response_time_ns`."""
        return MergedTimes(encoded_times(self.summaries, name))

    def connect_times(self) -> MergedTimes:
        """The times that connections took to open, over the whole run."""
        return MergedTimes(summary["connections"]["connect_time_ns"] for summary in self.summaries)


def encoded_times(summaries: Iterable[Summary], name: str) -> Iterator[str]:
    """Yields each engine's encoded histogram of this name, a key of `Times`."""
    for summary in summaries:
        yield cast(Mapping[str, str], summary["cohort_times"])[name]


def merge_fleet(summaries: Sequence[Summary]) -> MergedFleet | None:
    """The merged summaries; None if no engine reported, or none reached its measured window."""
    reached = [s for s in summaries if s["measure_end_ns"] > s["measure_start_ns"] > 0]
    if not reached:
        return None
    starts, ends = [s["measure_start_ns"] for s in reached], [s["measure_end_ns"] for s in reached]
    worked = any(s["ended_by"] == "work" for s in reached)
    start_ns, end_ns = (min(starts), max(ends)) if worked else (max(starts), min(ends))
    windows = [(start_ns, end_ns)] * len(reached) if worked else list(zip(starts, ends, strict=True))
    lengths_s = [(end - start) / SECOND_NS for start, end in windows]

    def per_s(values: Iterable[float]) -> float:
        return math.fsum(value / length for value, length in zip(values, lengths_s, strict=True))

    shares = [
        cpu / SECOND_NS / length for s, length in zip(reached, lengths_s, strict=True) for cpu in s["thread_cpu_ns"]
    ]
    return MergedFleet(
        start_ns=start_ns,
        end_ns=end_ns,
        total=_add(s["total"] for s in summaries),
        cohort=_add(s["cohort"] for s in reached),
        window_outcomes=_add_outcomes(s["window"]["outcomes"] for s in reached),
        goodput_per_s=per_s(s["window"]["outcomes"].get("ok", 0) for s in reached),
        achieved_per_s=per_s(sum(s["window"]["outcomes"].values()) for s in reached),
        offered_per_s=per_s(s["cohort"]["scheduled"] for s in reached),
        users_mean=per_s(s["window"]["user_ns"] / SECOND_NS for s in reached),
        busy_users_mean=per_s(s["window"]["time_in_system_ns_sum"] / SECOND_NS for s in reached),
        thinking_users_mean=per_s(s["window"]["think_ns_sum"] / SECOND_NS for s in reached),
        carried_users_mean=per_s(
            (s["window"]["carried_out_ns_sum"] - s["window"]["carried_in_ns_sum"]) / SECOND_NS for s in reached
        ),
        unanswered=sum(s["window"]["unanswered"] for s in reached),
        unserved=_unserved(
            [s["window"] for s in reached],
            per_s(s["window"].get("users_unserved_away_ns", 0) / SECOND_NS for s in reached),
        ),
        late_ns=max(s["window"].get("late_ns_max", 0) for s in reached),
        cpu_cores=per_s((s["cpu_user_ns"] + s["cpu_system_ns"]) / SECOND_NS for s in reached),
        cpu_share_max=max(shares, default=0.0),
        threads=len(shares),
        connections_opened=sum(s["connections"]["opened"] for s in summaries),
        summaries=tuple(reached),
    )


def _unserved(windows: Iterable[Window], away: float) -> Unserved | None:
    """The sum over all windows; None if one of them does not report it. `away`: as in `Unserved`."""
    users = requests = 0
    for window in windows:
        if "users_unserved" not in window:
            return None
        users += window["users_unserved"]
        requests += window.get("users_unserved_requests", 0)
    return Unserved(users, requests, away)


def _add(parts: Iterable[Counts]) -> RequestCounts:
    parts = list(parts)
    return RequestCounts(
        scheduled=sum(part["scheduled"] for part in parts),
        sent=sum(part["sent"] for part in parts),
        dropped=sum(part["dropped"] for part in parts),
        outcomes=_add_outcomes(part["outcomes"] for part in parts),
    )


def _add_outcomes(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    merged: Counter[str] = Counter()
    for part in parts:
        merged.update(part)
    return dict(sorted(merged.items()))
