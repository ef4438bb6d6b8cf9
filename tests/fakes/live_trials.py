"""The lines of a trial as engines and a probe would write them, made up and consistent: two seconds of warm-up, then
the window. Used by tests that follow a trial; nothing here is a measurement."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from typing import Any

from fakes.trials import histogram
from powerband.store import TrialDir

GO_NS = 5_000_000_000_000
SECOND_NS = 1_000_000_000
WARMUP_S = 2
STARTUP_S = 3  # the subject's time before the load
WALL_LESS_MONOTONIC_NS = 1_790_000_000_000_000_000
Line = dict[str, Any]


def write_lines(directory: TrialDir, seconds: int, *, engines: int = 1) -> None:
    """Writes both files of a trial that was loaded for so many seconds and has ended."""
    directory.path.mkdir(parents=True, exist_ok=True)
    directory.events.write_text(_text(event_lines(seconds, engines)))
    directory.probe.write_text(_text(probe_lines(seconds)))


def event_lines(seconds: int, engines: int = 1) -> Iterator[Line]:
    dice = random.Random(11)
    for engine in range(engines):
        yield {
            "engine": engine,
            "type": "hello",
            "protocol": 1,
            "version": "0.1.0",
            "pid": 50 + engine,
            "monotonic_ns": GO_NS - SECOND_NS,
            "wall_ns": GO_NS - SECOND_NS + WALL_LESS_MONOTONIC_NS,
            "descriptor_limit": 20000,
        }
        yield {"engine": engine, "type": "armed", "at_ns": GO_NS - SECOND_NS // 2}
    tenths = [dice.randint(80, 120) for _ in range(10 * seconds)]
    for tenth, count in enumerate(tenths):
        start = GO_NS + tenth * SECOND_NS // 10
        began = {0: "warmup", 10 * WARMUP_S: "measure", 10 * (seconds - 1): "drain"}.get(tenth)
        for engine in range(engines):
            if began is not None:
                yield {"engine": engine, "type": "phase", "phase": began, "at_ns": start}
            yield _interval(engine, tenth, count, dice)
    for engine in range(engines):
        yield {"engine": engine, "type": "summary", "ended_by": "time"}


def probe_lines(seconds: int) -> Iterator[Line]:
    yield {
        "type": "hello",
        "protocol": 1,
        "version": "0.1.0",
        "pid": 40,
        "monotonic_ns": GO_NS - 4 * SECOND_NS,
        "wall_ns": GO_NS - 4 * SECOND_NS + WALL_LESS_MONOTONIC_NS,
        "descriptor_limit": 20000,
    }
    yield {"type": "launched", "name": "subject", "pid": 41, "at_ns": GO_NS - STARTUP_S * SECOND_NS}
    for tenth in range(-10 * STARTUP_S, 10 * seconds):
        at = GO_NS + tenth * SECOND_NS // 10 + 7_000_000
        yield _sample(at, tenth)
        if tenth % 10 == 0:
            yield _threads(at, tenth // 10)
            yield _jvm(at, tenth // 10)
            yield {
                "type": "scrape",
                "at_ns": at,
                "took_ns": 0,
                "values": {"queue_length": 5.0 + tenth, 'jobs_total{pool="a"}': 30.0 * (tenth // 10 + 10)},
            }
    yield {
        "type": "end",
        "at_ns": GO_NS + seconds * SECOND_NS,
        "killed": 0,
        "cpu_ns": 1,
        "samples": 1,
        "samples_late": 0,
    }


def _interval(engine: int, tenth: int, count: int, dice: random.Random) -> Line:
    start = GO_NS + tenth * SECOND_NS // 10
    times = (
        {}
        if tenth % 10 != 9
        else {"response_time_ns": histogram([dice.randint(1_000_000, 9_000_000) for _ in range(50)])}
    )
    outcomes = {"ok": count} | ({"timeout": 2} if tenth % 7 == 0 else {})
    return {
        "engine": engine,
        "type": "interval",
        "start_ns": start,
        "end_ns": start + SECOND_NS // 10,
        "phase": "measure",
        "scheduled": count,
        "sent": count,
        "dropped": 0,
        "outcomes": outcomes,
        "in_flight_now": 3 + tenth % 5,
        "connections_now": 8,
        "users_now": 8,
        "response_time_ns_sum": count * 4_000_000,
        "response_time_ns_max": 9_000_000,
        "service_time_ns_sum": count * 4_000_000,
        "send_lag_ns_max": 0,
        "cpu_ns": 1_000_000,
        **times,
    }


def _sample(at: int, tenth: int) -> Line:
    """A sample in which the subject uses half a CPU, and the engine a tenth."""
    passed = max(0, tenth + 10 * STARTUP_S) * SECOND_NS // 10
    trees = [_tree("subject", passed // 2, 40_000_000 + tenth), _tree("engine", passed // 10, 9_000_000)]
    return {"type": "sample", "at_ns": at, "trees": trees, "host": {"cpu_busy_ns": passed, "cpu_idle_ns": passed}}


def _tree(name: str, cpu_ns: int, rss: int) -> Line:
    return {
        "name": name,
        "processes_now": 1,
        "threads_now": 4,
        "cpu_user_ns": cpu_ns // 4 * 3,
        "cpu_system_ns": cpu_ns // 4,
        "rss_bytes_now": rss,
        "context_switches": cpu_ns // 100_000,
        "voluntary_switches": 1,
        "involuntary_switches": 1,
        "run_wait_ns": 0,
        "minor_faults": 0,
        "major_faults": 0,
        "descriptors_now": 9,
        "sockets_now": 5,
    }


def _threads(at: int, second: int) -> Line:
    """A line with four threads: they use half a CPU, wait for a CPU for a tenth of a thread's time, and are blocked for
    the rest, three quarters of it on a lock."""
    passed = (second + STARTUP_S) * SECOND_NS
    pool = {
        "pool": "worker",
        "threads_now": 4,
        "on_cpu_ns": passed // 2,
        "run_wait_ns": passed // 10,
        "blocked_ns": passed * 34 // 10,
        "voluntary_switches": 0,
        "involuntary_switches": 0,
        "states_now": {"S": 4},
        "wait_channels_now": {},
        "blocked_on_samples": {"lock": 3 * (second + 9), "socket": second + 9},
    }
    return {"type": "threads", "at_ns": at, "tree": "subject", "pools": [pool], "threads": []}


def _jvm(at: int, second: int) -> Line:
    return {
        "type": "jvm",
        "at_ns": at,
        "tree": "subject",
        "pid": 41,
        "heap_used_bytes_now": 1_000_000 + second,
        "heap_committed_bytes_now": 8_000_000,
        "collectors": [],
        "threads_live_now": 4,
        "threads_daemon_now": 1,
        "threads_peak": 4,
        "threads_started": 4,
    }


def _text(lines: Iterator[Mapping[str, Any]]) -> str:
    """The lines as compact JSON, as the engine writes them: readers look at the beginning of a line."""
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
