"""Turns the lines of a trial's load generators and probe into figures second by second, as they arrive.

In: lines of events.jsonl and probe.jsonl, in order. Out: the figures of load and probe for each whole second since
go, as `analyze/trial/series.py` would compute them for the finished trial. The probe takes ten samples a second; only
one is decoded, since its counters only grow and the others would add nothing. No file is read here.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from powerband.analyze.trial.own_metrics import own_series
from powerband.analyze.trial.series import one_second
from powerband.analyze.trial.threads import is_counter
from powerband.model.own_expression import OwnExpression
from powerband.readings.probe_samples import MANY_THREADS, PER_THREAD, Counters, own_readings
from powerband.wire.message import kind_of

SECOND_NS = 1_000_000_000
LAG_SECONDS = 3  # a source (a load generator, the probe) that is silent for longer is not waited for
GAUGES_MAX = 48  # arbitrary: four times what the page plots; a metrics page may have thousands
SECONDS_MAX = 7 * 86_400  # longer than any trial: a line beyond it is invalid
_EARLY_LINES = 400  # of the probe before go is known: rates start from the last of them
_AT = b'"at_ns":'
EVERYTHING = 1 << 62

Json = Mapping[str, Any]


class LoadSeconds:
    """The figures of the load generators by second. `origin_ns`: go, which is the beginning of the first phase, on the
    monotonic clock; None until it is known. `phases_ns`: when each phase began. `wall_less_monotonic_ns`: what to add
    to the monotonic clock for the time of day; None until it is known."""

    def __init__(self) -> None:
        self.origin_ns: int | None = None
        self.phases_ns: dict[str, int] = {}
        self.wall_less_monotonic_ns: int | None = None
        self._engines: set[int] = set()
        self._ended: set[int] = set()
        self._newest: dict[int, int] = {}
        self._seconds: dict[int, list[Json]] = {}
        self._phases_are_told = False  # stays False for a self-driven server, whose intervals contain the phases

    @property
    def ended(self) -> bool:
        """True if every load generator has sent its last event."""
        return bool(self._engines) and self._ended >= self._engines

    @property
    def whole(self) -> int:
        """Number of seconds since go that are complete."""
        if self.ended:
            return EVERYTHING
        if self.origin_ns is None or not self._newest:
            return 0
        slowest = min(self._newest.get(engine, self.origin_ns) for engine in self._engines - self._ended)
        newest = max(self._newest.values()) - LAG_SECONDS * SECOND_NS
        return (max(slowest, newest) - self.origin_ns) // SECOND_NS

    @property
    def last(self) -> int:
        """The last second with any data; -1: none."""
        return max(self._seconds, default=-1)

    def take(self, line: bytes) -> None:
        """Processes one line. Raises ValueError, KeyError or TypeError for a line that no load generator writes."""
        event = json.loads(line)
        engine = event.get("engine", 0)
        match event["type"]:
            case "hello":
                self._engines.add(engine)
                self.wall_less_monotonic_ns = event["wall_ns"] - event["monotonic_ns"]
            case "phase":
                self._phases_are_told = True
                self.phases_ns.setdefault(event["phase"], event["at_ns"])
                if self.origin_ns is None:
                    self.origin_ns = event["at_ns"]
            case "interval":
                self._engines.add(engine)
                self._interval(engine, event)
            case "summary" | "error":
                self._engines.add(engine)
                self._ended.add(engine)

    def pop(self, second: int) -> dict[str, float | None]:
        """The figures of this second, which are then discarded; empty if no interval ended in it."""
        intervals = self._seconds.pop(second, [])
        if not intervals:
            return {}
        found = one_second(intervals)
        timed = sum(interval["response_time_ns_sum"] for interval in intervals)
        ok = sum(interval["outcomes"].get("ok", 0) for interval in intervals)
        last = {interval.get("engine", 0): interval for interval in intervals}
        found["response_time_ns_mean"] = timed / ok if ok and timed else None
        found["users"] = sum(interval["users_now"] for interval in last.values())
        return found

    def _interval(self, engine: int, event: Json) -> None:
        start_ns, end_ns = event["start_ns"], event["end_ns"]
        if self.origin_ns is None:
            self.origin_ns = start_ns
        if not self._phases_are_told and (phase := event.get("phase")):
            self.phases_ns.setdefault(phase, start_ns)
        second = _second(end_ns - self.origin_ns - 1)
        self._newest[engine] = end_ns
        if second >= 0:
            self._seconds.setdefault(second, []).append(event)


@dataclass
class ProbeSecond:
    """The probe's figures for one second: `cpu_cores`, `rss_bytes`, `threads`, `context_switches_per_s` and `gauges`
    are those of `state.Figures`."""

    cpu_cores: dict[str, float] = field(default_factory=dict)
    rss_bytes: dict[str, float] = field(default_factory=dict)
    threads: dict[str, float] = field(default_factory=dict)
    context_switches_per_s: float | None = None
    gauges: dict[str, float] = field(default_factory=dict)


class ProbeSeconds:
    """The figures of the probe by second. `launched_ns`: when the server was launched, on the monotonic clock; None
    until then. `wall_less_monotonic_ns`: as for `LoadSeconds`."""

    def __init__(self, own: Mapping[str, OwnExpression]) -> None:
        """`own`: the metrics that the experiment defines from the server's series."""
        self.launched_ns: int | None = None
        self.wall_less_monotonic_ns: int | None = None
        self._own = {name: expression for name, expression in own.items() if not expression.is_final}
        self._origin_ns: int | None = None
        self._early: deque[bytes] = deque(maxlen=_EARLY_LINES)
        self._kept: tuple[int, bytes] | None = None
        self._sample: Json | None = None
        self._counted: tuple[int, Json] | None = None  # the last sample whose context switches were read, not repeated
        self._pools: tuple[int, dict[str, Json]] | None = None
        self._jvm: int | None = None
        self._readings: dict[str, list[Json]] = {}
        self._seconds: dict[int, ProbeSecond] = {}
        self._threads: dict[str, float] = {}
        self._gauges: dict[str, float] = {}

    @property
    def whole(self) -> int:
        """Number of seconds since go that are complete."""
        return 0 if self._kept is None else max(0, self._kept[0])

    @property
    def last(self) -> int:
        """The last second with any data; -1: none."""
        return max(self._seconds, default=-1)

    def begin(self, origin_ns: int) -> None:
        """Sets go, once it is known, and processes the earlier lines again. Raises like `take`."""
        self._origin_ns = origin_ns
        early, self._early = list(self._early), deque(maxlen=_EARLY_LINES)
        for line in early:
            self.take(line)

    def take(self, line: bytes) -> None:
        """Processes one line. Raises ValueError, KeyError, TypeError or AttributeError for a line that no probe
        writes."""
        kind = kind_of(line)
        if kind in ("hello", "launched"):
            event = json.loads(line)
            if kind == "hello":
                self.wall_less_monotonic_ns = event["wall_ns"] - event["monotonic_ns"]
            else:
                self.launched_ns = event["at_ns"]
        elif kind not in ("sample", "threads", "jvm", "scrape", "statsd"):
            return
        elif self._origin_ns is None:
            self._early.append(line)
        elif kind == "sample":
            self._keep(line)
        else:
            self._event(kind, json.loads(line))

    def pop(self, second: int) -> ProbeSecond:
        """The figures of this second, which are then discarded. Threads and gauges keep their last values."""
        found = self._seconds.pop(second, None) or ProbeSecond()
        self._threads = found.threads or self._threads
        self._gauges = {**self._gauges, **found.gauges}
        found.threads, found.gauges = self._threads, self._gauges
        return found

    def finish(self) -> None:
        """Processes the last kept line; no more lines follow."""
        kept, self._kept = self._kept, None
        if kept is not None:
            self._level(*kept)

    def _second(self, at_ns: int) -> int:
        assert self._origin_ns is not None
        return max(-1, _second(at_ns - self._origin_ns))

    def _keep(self, line: bytes) -> None:
        """Keeps the last sample of each second; it is decoded once the next second has begun."""
        begin = line.index(_AT) + len(_AT)
        end = begin
        while line[end : end + 1].isdigit():
            end += 1
        second = self._second(int(line[begin:end]))
        if self._kept is not None and second > self._kept[0]:
            self._level(*self._kept)
        self._kept = (second, line)

    def _level(self, second: int, line: bytes) -> None:
        sample = json.loads(line)
        before, self._sample = self._sample, sample
        switches = next((self._switches(sample["at_ns"], t) for t in sample["trees"] if t["name"] == "subject"), None)
        if before is None or second < 0:
            return
        into = self._seconds.setdefault(second, ProbeSecond())
        into.context_switches_per_s = switches
        passed = max(1, sample["at_ns"] - before["at_ns"])
        earlier = {tree["name"]: tree for tree in before["trees"]}
        for tree in sample["trees"]:
            name = tree["name"]
            if name.startswith("awake-"):
                continue  # a loop that keeps a CPU awake counts as idle time
            into.rss_bytes[name] = float(tree["rss_bytes_now"])
            if name in earlier:
                grown = sum(tree[key] - earlier[name][key] for key in ("cpu_user_ns", "cpu_system_ns"))
                into.cpu_cores[name] = max(0.0, grown / passed)

    def _switches(self, at_ns: int, now: Json) -> float | None:
        """Context switches per second: exact if the kernel allows it, otherwise those of the living threads. None if
        the sample only repeats the counts, as those of many threads do between two readings."""
        counts = ("context_switches",) if now.get("context_switches") is not None else PER_THREAD
        many, before = now["threads_now"] > MANY_THREADS, self._counted
        if before is None:
            self._counted = 0 if many else at_ns, now  # 0: when these were read is not known
            return None
        if many and all(now.get(name) == before[1].get(name) for name in counts):
            return None
        self._counted = at_ns, now
        if not before[0]:
            return None
        grown = sum(now[name] - (before[1].get(name) or 0) for name in counts if name.endswith("_switches"))
        return float(max(0, grown)) * SECOND_NS / max(1, at_ns - before[0])

    def _event(self, kind: str, event: Json) -> None:
        second = self._second(event["at_ns"])
        into = self._seconds.setdefault(second, ProbeSecond()) if second >= 0 else ProbeSecond()
        if kind == "threads":
            if event["tree"] == "subject":
                into.threads = self._states(event)
        elif kind == "jvm":
            self._jvm = event["pid"] if self._jvm is None else self._jvm
            if event["pid"] == self._jvm:
                if used := event["heap_used_bytes_now"]:  # 0: some collectors report only at their first collection
                    into.gauges["jvm heap used bytes"] = float(used)
                into.gauges["jvm heap committed bytes"] = float(event["heap_committed_bytes_now"])
        else:
            into.gauges.update(self._own_figures(kind, event))

    def _states(self, event: Json) -> dict[str, float]:
        """Thread-seconds per second of all pools together, by state."""
        at_ns, pools = event["at_ns"], {pool["pool"]: pool for pool in event["pools"]}
        before, self._pools = self._pools, (at_ns, pools)
        if before is None or at_ns <= before[0]:
            return {}
        passed = at_ns - before[0]
        found = {"running": 0.0, "runnable": 0.0}
        for name, pool in pools.items():
            earlier = before[1].get(name)
            if earlier is None:
                continue
            found["running"] += max(0, pool["on_cpu_ns"] - earlier["on_cpu_ns"]) / passed
            found["runnable"] += max(0, pool["run_wait_ns"] - earlier["run_wait_ns"]) / passed
            blocked = max(0, pool["blocked_ns"] - earlier["blocked_ns"]) / passed
            for kind, share in _blocked_on(earlier, pool).items():
                found[kind] = found.get(kind, 0.0) + blocked * share
        return found

    def _own_figures(self, kind: str, event: Json) -> dict[str, float]:
        """The figures at this reading: the experiment's own metrics, then series from which they are made, `GAUGES_MAX`
        in all."""
        readings = self._readings.setdefault(kind, [])
        readings.append(event)
        del readings[:-2]
        counters = own_readings([reading for each in self._readings.values() for reading in each])
        if counters is None:
            return {}
        found = {name: _last(values) for name, values in own_series(self._own, counters).items()}
        own = {name: last[0] for name, last in found.items() if last}
        return {**own, **_raw(counters, GAUGES_MAX - len(own)), **own}


def _second(since_go_ns: float) -> int:
    """The second since go. Raises ValueError for a moment outside any trial, and for a value that is no number."""
    if not abs(since_go_ns) < SECONDS_MAX * SECOND_NS:
        raise ValueError(f"{since_go_ns} ns after go is in no trial")
    return int(since_go_ns // SECOND_NS)


def _blocked_on(before: Json, now: Json) -> dict[str, float]:
    """Shares of the blocked time by cause; all of it `blocked` if the kernel does not give the cause."""
    earlier = before.get("blocked_on_samples") or {}
    grown = {kind: count - earlier.get(kind, 0) for kind, count in (now.get("blocked_on_samples") or {}).items()}
    total = sum(count for count in grown.values() if count > 0)
    if total <= 0:
        return {"blocked": 1.0}
    return {f"blocked: {kind}": count / total for kind, count in grown.items() if count > 0}


def _raw(counters: Counters, most: int) -> dict[str, float]:
    """The last values of the first `most` series of the metrics page; for counters, their growth per second since the
    previous reading, unless they began again."""
    found: dict[str, float] = {}
    for name, values in counters.fields.items():
        if len(found) >= most:
            break
        if not is_counter(name.partition("{")[0]):
            if (last := _last(values.tolist())) is not None:
                found[name] = last[0]
        elif (slope := _last(counters.slopes(name))) is not None and slope[0] >= 0:
            found[f"{name} per second"] = slope[0] * SECOND_NS
    return found


def _last(values: Sequence[float | None]) -> tuple[float] | None:
    """The last known value, in a tuple to distinguish 0 from none."""
    return next(((float(value),) for value in reversed(values) if value is not None and np.isfinite(value)), None)
