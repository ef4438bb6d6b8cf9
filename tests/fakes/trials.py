"""Made-up trials for tests of measuring, planning and analysis: records, engine summaries and probe samples from a few
figures, consistent with each other unless a test asks otherwise."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from hdrh.histogram import HdrHistogram

from powerband.analyze.trial.series import TrialSeries, series_of
from powerband.model.experiment import Experiment, Measure, Objective, Subject
from powerband.model.load import Load
from powerband.model.plan import Level, Setting, TrialSpec
from powerband.readings.probe_samples import read_probe
from powerband.store import Failure, TrialDir, TrialRecord

START_NS = 1_000_000_000_000
SECOND = 1_000_000_000


def experiment(factors: Mapping[str, tuple[Level, ...]] | None = None, *, seed: int = 7, **changes: Any) -> Experiment:
    parts: dict[str, Any] = {
        "name": "fake",
        "subject": Subject(name="fake", command=("fake", "--threads", "{threads}")),
        "factors": factors or {"threads": (1, 2, 4)},
        "load": Load(users=10, duration=10 * SECOND),
        "measure": Measure(repeats=3),
        "objective": Objective(),
        "design": {"seed": seed},
    }
    return Experiment.model_validate({**parts, **changes})


def histogram(values: Sequence[int]) -> str:
    return _encoded(tuple(sorted(Counter(values).items())))


def joins(**changes: Any) -> dict[str, Any]:
    """Returns what an engine reports of 10 WebSocket users. All join and stay, unless `changes` says otherwise."""
    return {
        "joins_started": 10,
        "joined": 10,
        "rejoined": 0,
        "joins_failed": {},
        "join_time_ns": histogram([2_000_000] * 9 + [30_000_000]),
        "drops": {},
        "close_codes": {},
        "messages_received": 10_000,
        "unsolicited": 0,
        "unmatched": 0,
        "published": 0,
        "delivered": 0,
        "delivery_time_ns": histogram([]),
        "published_in_window": 0,
        "delivered_in_window": 0,
        "tallies": {},
        **changes,
    }


@lru_cache(maxsize=1000)
def _encoded(counts: tuple[tuple[int, int], ...]) -> str:
    """The histogram of values with their counts. Kept, since most made-up trials have the same times."""
    made = HdrHistogram(1, 3_600_000_000_000, 3)
    for value, count in counts:
        made.record_value(value, count)
    return str(made.encode().decode())


@lru_cache(maxsize=1000)
def _response_times(count: int, mean_ns: float) -> tuple[int, ...]:
    dice = random.Random(5)
    return tuple(max(1, round(dice.expovariate(1 / mean_ns))) for _ in range(count))


@dataclass(frozen=True)
class Figures:
    """The figures that a made-up trial shows; times in ns, over a window of `window_s`."""

    goodput_per_s: float = 1000.0
    failed: int = 0
    users: int = 10
    response_ns: float = 10_000_000
    think_ns: float = 0.0
    window_s: float = 10.0
    thread_share: float = 0.3
    send_lag_ns: int = 50_000
    dropped: int = 0
    starved: int = 0
    """Number of users that wait from the beginning of the window, and get no answer within it."""
    refused: int = 0
    """Number of users all of whose requests fail; `failed` counts these requests."""
    away: float = 0.0
    """Number of these who had lost their WebSocket, on average over the window."""
    engine_wait: float = 0.01
    """Thread-seconds per second that the engine waits for a CPU."""
    subject_cores: float = 0.5
    busy_cores: float = 0.85
    loud_s: float = 0.0
    """Another program uses one more CPU for so long, from the start of the window. A thread of the server waits."""
    loud_rate: float = 0.5
    """The rate beside that program over the rate without it. `goodput_per_s` is the mean over the window."""
    cpus: int = 2
    steal_share: float = 0.0
    memory_pressure: float = 0.0
    io_pressure: float = 0.0
    threads: int = 4
    forks_per_s: int = 0
    rss_bytes: int = 50_000_000
    engines: int = 1
    stopped_ns: int = 0
    """For so long an engine did not run in the window."""
    summary: Mapping[str, Any] = field(default_factory=dict)
    """Overrides fields of each engine's summary."""

    def loud_ns(self, at: int) -> int:
        """The time for which the other program has run at a time."""
        return max(0, min(at - START_NS, round(self.loud_s * SECOND)))

    @property
    def quiet_goodput_per_s(self) -> float:
        return self.goodput_per_s / (1 - self.loud_s / self.window_s * (1 - self.loud_rate))


def summary(figures: Figures) -> dict[str, Any]:
    """The summary of one engine, with its share of the load."""
    share = 1 / figures.engines
    ok = round(figures.goodput_per_s * figures.window_s * share)
    outcomes = {"ok": ok} | ({"timeout": round(figures.failed * share)} if figures.failed else {})
    sent = sum(outcomes.values())
    dropped = round(figures.dropped * share)
    counts = {"scheduled": sent + dropped, "sent": sent, "dropped": dropped, "outcomes": outcomes}
    times = _response_times(min(ok, 500), figures.response_ns)
    window_ns = round(figures.window_s * SECOND)
    window = {
        "outcomes": outcomes,
        "bytes_received": 100 * sent,
        "bytes_sent": 100 * sent,
        "time_in_system_ns_sum": round(sent * figures.response_ns),
        "think_ns_sum": round(sent * figures.think_ns),
        "user_ns": round(figures.users * share * window_ns),
        "carried_in_ns_sum": 0,
        "carried_out_ns_sum": round(figures.starved * share * window_ns),
        "unanswered": round(figures.starved * share),
        "users_unserved": round((figures.starved + figures.refused) * share),
        "users_unserved_away_ns": round(figures.away * share * window_ns),
        "users_unserved_requests": round(figures.failed * share) if figures.refused else 0,
        "late_ns_max": figures.stopped_ns,
    }
    cpu_ns = round(figures.thread_share * window_ns)
    return {
        "type": "summary",
        "go_ns": START_NS - 2 * SECOND,
        "measure_start_ns": START_NS,
        "measure_end_ns": START_NS + window_ns,
        "end_ns": START_NS + window_ns + SECOND,
        "total": counts,
        "cohort": counts,
        "cohort_times": {
            "response_time_ns": histogram(times),
            "service_time_ns": histogram(times),
            "failed_time_ns": histogram([]),
            "send_lag_ns": histogram([figures.send_lag_ns] * 100),
            "dropped_wait_ns": histogram([]),
        },
        "steps": [
            {
                "name": "GET /",
                "outcomes": outcomes,
                "response_time_ns": histogram(times),
                "service_time_ns": histogram(times),
            }
        ],
        "window": window,
        "connections": {
            "opened": figures.users,
            "failed": 0,
            "closed_by_peer": 0,
            "open_max": figures.users,
            "connect_time_ns": histogram([100_000] * figures.users),
        },
        "cpu_user_ns": cpu_ns // 2,
        "cpu_system_ns": cpu_ns - cpu_ns // 2,
        "thread_cpu_ns": [cpu_ns],
        "max_rss_bytes": 5_000_000,
        "ended_by": "time",
        **figures.summary,
    }


def probe_lines(figures: Figures, period_ns: int = 100_000_000) -> list[dict[str, Any]]:
    """Samples from a second before the window to a second after it, with counters that grow evenly."""
    lines: list[dict[str, Any]] = [{"type": "hello", "monotonic_ns": START_NS - SECOND}]
    end_ns = START_NS + round((figures.window_s + 1) * SECOND)
    for at in range(START_NS - SECOND, end_ns + 1, period_ns):
        passed = at - START_NS + SECOND
        steal = figures.steal_share * figures.cpus
        lines.append(
            {
                "type": "sample",
                "at_ns": at,
                "trees": [
                    _tree("subject", figures.subject_cores, passed, figures)
                    | {"run_wait_ns": passed // 10 + figures.loud_ns(at)},
                    _tree("engine", figures.thread_share, passed, figures)
                    | {"run_wait_ns": round(figures.engine_wait * passed)},
                ],
                "host": {
                    "cpu_busy_ns": round(figures.busy_cores * passed) + figures.loud_ns(at),
                    "cpu_idle_ns": round((figures.cpus - figures.busy_cores - steal) * passed) - figures.loud_ns(at),
                    "cpu_steal_ns": round(steal * passed),
                    "cpu_busy_ns_each": [(round(figures.busy_cores * passed) + figures.loud_ns(at)) // figures.cpus]
                    * figures.cpus,
                    "cpu_steal_ns_each": [round(figures.steal_share * passed)] * figures.cpus,
                    "context_switches": passed // 10_000,
                    "forks": 0,
                    "runnable_now": 1,
                    "load_average_1m": 1.0,
                    "memory_available_bytes_now": 10**9,
                    "psi_cpu_some_ns": passed // 100,
                    "psi_memory_some_ns": round(figures.memory_pressure * passed),
                    "psi_io_some_ns": round(figures.io_pressure * passed),
                    "listen_overflows": 0,
                    "listen_drops": 0,
                    "accept_queue_now": 0,
                    "accept_queue_limit": 128,
                },
            }
        )
        if passed % SECOND == 0:
            lines.append({"type": "threads", "at_ns": at, "tree": "subject", "pools": [_pool(figures, passed)]})
    lines.append({"type": "end", "at_ns": end_ns, "killed": 0, "cpu_ns": 120_000_000, "samples": 1, "samples_late": 0})
    return lines


def _tree(name: str, cores: float, passed: int, figures: Figures) -> dict[str, Any]:
    return {
        "name": name,
        "processes_now": 1 + figures.forks_per_s * passed // SECOND,
        "threads_now": figures.threads,
        "threads_started": passed // SECOND,
        "cpu_user_ns": round(cores * passed * 0.75),
        "cpu_system_ns": round(cores * passed * 0.25),
        "rss_bytes_now": figures.rss_bytes,
        "pss_bytes_now": None,
        "context_switches": 2000 * passed // SECOND,
        "voluntary_switches": 1500 * passed // SECOND,
        "involuntary_switches": 500 * passed // SECOND,
        "run_wait_ns": 0,
        "minor_faults": 10 * passed // SECOND,
        "major_faults": 0,
        "descriptors_now": 20,
        "sockets_now": 10,
    }


def _pool(figures: Figures, passed: int) -> dict[str, Any]:
    on_cpu, wait = round(figures.subject_cores * passed), passed // 10
    return {
        "pool": "worker",
        "threads_now": figures.threads,
        "on_cpu_ns": on_cpu,
        "run_wait_ns": wait,
        "blocked_ns": figures.threads * passed - on_cpu - wait,
        "voluntary_switches": 0,
        "involuntary_switches": 0,
        "states_now": {"S": figures.threads},
        "wait_channels_now": {},
    }


def interval_lines(figures: Figures, period_ns: int = 100_000_000) -> list[dict[str, Any]]:
    """Intervals of equal length of one engine, from the start of the load to the end of the window."""
    lines = []
    end_ns = START_NS + round(figures.window_s * SECOND)
    for number, start in enumerate(range(START_NS - 2 * SECOND, end_ns, period_ns)):
        is_loud = figures.loud_ns(start + period_ns) > figures.loud_ns(start)
        rate_per_s = figures.quiet_goodput_per_s * (figures.loud_rate if is_loud else 1)
        per_interval = round(rate_per_s * period_ns / SECOND)
        line: dict[str, Any] = {
            "type": "interval",
            "engine": 0,
            "start_ns": start,
            "end_ns": start + period_ns,
            "phase": "warmup" if start < START_NS else "measure",
            "scheduled": per_interval,
            "sent": per_interval,
            "dropped": 0,
            "outcomes": {"ok": per_interval},
            "in_flight_now": figures.users,
            "connections_now": figures.users,
            "users_now": figures.users,
            "response_time_ns_sum": round(per_interval * figures.response_ns),
            "response_time_ns_max": round(5 * figures.response_ns),
            "service_time_ns_sum": round(per_interval * figures.response_ns),
            "send_lag_ns_max": 100_000,
            "cpu_ns": round(figures.thread_share * period_ns),
        }
        if number % 10 == 9:
            line["response_time_ns"] = histogram([round(figures.response_ns)] * max(1, per_interval * 10))
        lines.append(line)
    return lines


def record_of(spec: TrialSpec, figures: Figures) -> TrialRecord:
    window_ns = round(figures.window_s * SECOND)
    return TrialRecord(
        spec=spec,
        status="measured",
        failure=None,
        wall_ns=0,
        monotonic_ns=START_NS - 3 * SECOND,
        phases={
            "launched": START_NS - 3 * SECOND,
            "ready": START_NS - 2 * SECOND - SECOND // 2,
            "go": START_NS - 2 * SECOND,
            "measure": START_NS,
            "drain": START_NS + window_ns,
            "end": START_NS + window_ns + SECOND,
        },
        warmup_ended_by="steady",
        engines=tuple(summary(figures) for _ in range(figures.engines)),
        cpus={"subject": [0], "engine": [1], "probe": [1]},
    )


def failed_record(spec: TrialSpec, code: str = "not_ready", message: str = "it never got ready") -> TrialRecord:
    return TrialRecord(spec, "failed", Failure(code, message), 0, 0, {}, None)


def write_trial(directory: TrialDir, record: TrialRecord, figures: Figures | None) -> TrialRecord:
    """Writes all files of a trial; without figures, only its record."""
    directory.begin(record.spec)
    if figures is not None:
        directory.events.write_text("".join(json.dumps(line) + "\n" for line in interval_lines(figures)))
        directory.probe.write_text("".join(json.dumps(line) + "\n" for line in probe_lines(figures)))
    directory.write_record(record)
    return record


def spec(setting: Mapping[str, Level] | None = None, *, number: int = 1, block: int = 0) -> TrialSpec:
    return TrialSpec(number, block, 1, Setting(tuple((setting or {"threads": 4}).items())), 1)


def trial_series(directory: TrialDir, record: TrialRecord, measured: Measure | None = None) -> TrialSeries:
    """All series over time that the files of one trial contain."""
    return series_of(record, list(directory.read_events()), read_probe(directory.read_probe()), measured)
