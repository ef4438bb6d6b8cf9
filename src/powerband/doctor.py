"""What of this machine stands in the way of good measurements, and what to do about it. Changes nothing."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from powerband.errors import MeasurementError
from powerband.run.engine import find_engine
from powerband.run.host import engine_version, host_facts
from powerband.units import format_duration

_DESCRIPTORS_WANTED = 10_000
_SLEEP_S = 0.001
_SLEEPS = 100


class Status(StrEnum):
    OK = "ok"
    WARNING = "warning"  # measurements work, but see the advice
    FAILURE = "failure"  # powerband cannot measure here


@dataclass(frozen=True)
class Finding:
    """One thing looked at; `advice` is empty where all is well."""

    name: str
    status: Status
    found: str
    advice: str = ""


def examine() -> list[Finding]:
    """Everything that is looked at, in a fixed order. Takes about a quarter of a second."""
    facts = host_facts()
    return [
        _engine(),
        *_cpu(facts),
        *_limits(facts),
        *_observability(facts),
        _wake_up(),
    ]


def _finding(name: str, good: bool, found: str, advice: str) -> Finding:
    return Finding(name, Status.OK if good else Status.WARNING, found, "" if good else advice)


def _engine() -> Finding:
    try:
        path = find_engine()
    except MeasurementError as error:
        return Finding("engine", Status.FAILURE, "not found", str(error))
    version = engine_version(path)
    if version is None:
        return Finding(
            "engine", Status.FAILURE, f"{path} does not run", "install powerband again: it builds the engine"
        )
    return Finding("engine", Status.OK, f"{version} at {path}")


def _cpu(facts: Mapping[str, Any]) -> Iterator[Finding]:
    cpu = facts["cpu"]
    cores = len(cpu["cores"])
    yield _finding(
        "cores",
        cores >= 2,
        f"{cores} ({cpu['model'] or 'unknown model'})",
        "with one core server and load generator take it from each other: results show that mixture",
    )
    governor = cpu["governor"]
    yield _finding(
        "frequency governor",
        governor in (None, "performance"),
        governor or "none visible",
        "the clock follows the load, so light loads look slow: `cpupower frequency-set -g performance`",
    )
    busy = (facts["load_average"] or [0.0])[0]
    yield _finding(
        "load average",
        busy < max(0.5, cores / 4),
        f"{busy:.2f}",
        "other programs are busy: end them, or expect trials that are invalid and repeated",
    )


def _limits(facts: Mapping[str, Any]) -> Iterator[Finding]:
    limits, network = facts["limits"], facts["network"]
    descriptors = limits["descriptors_hard"]
    yield _finding(
        "descriptors",
        descriptors is None or descriptors >= _DESCRIPTORS_WANTED,
        f"{descriptors} for each process" if descriptors else "no limit",
        "a load of many users needs more engine processes: raise it with `ulimit -Hn` or in limits.conf",
    )
    low, high = network["local_ports"] or (32768, 60999)
    yield _finding(
        "local ports",
        high - low >= 20_000,
        f"{low} to {high}",
        "a connection for each request runs out of ports: `sysctl net.ipv4.ip_local_port_range='10000 65000'`",
    )
    backlog = network["somaxconn"]
    yield _finding(
        "accept queue",
        backlog is None or backlog >= 1024,
        f"net.core.somaxconn {backlog}",
        "bursts of connections are refused before the server sees them: `sysctl net.core.somaxconn=4096`",
    )


def _observability(facts: Mapping[str, Any]) -> Iterator[Finding]:
    paranoid = facts["perf_event_paranoid"]
    yield _finding(
        "exact context switches",
        paranoid is not None and paranoid <= 2,
        f"perf_event_paranoid {paranoid}",
        "switches of exited threads cannot be counted: `sysctl kernel.perf_event_paranoid=2`",
    )
    yield _finding(
        "pressure (PSI)",
        bool(facts["psi"]),
        "readable" if facts["psi"] else "absent",
        "the kernel does not tell how long work waited for CPU, memory, disk; nothing else is lost",
    )


def _wake_up() -> Finding:
    """How late a sleeping thread wakes: what a blocking client adds to every response time on this machine."""
    late = []
    for _ in range(_SLEEPS):
        start = time.monotonic()
        time.sleep(_SLEEP_S)
        late.append(time.monotonic() - start - _SLEEP_S)
    median, high = statistics.median(late), sorted(late)[int(0.95 * _SLEEPS)]
    return _finding(
        "wake-up",
        median < 0.000_3,
        f"{format_duration(median * 1e9)} late at the median, {format_duration(high * 1e9)} at p95",
        "response times at low concurrency show this delay and not the server's: compare settings, not absolute times",
    )
