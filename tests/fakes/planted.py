"""Planted bottlenecks of the reference subject, and healthy trials of it: what each is, how it is loaded, what it must
be called. `python -m fakes.planted` (in tests/, with the engine found) runs all and prints the confusion table.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fakes.stand import MS, experiment, reference, run_one
from powerband.analyze.measure import measure
from powerband.analyze.results import BottleneckName, TrialResult
from powerband.experiment import Experiment, HostUse, Load, Measure
from powerband.store import TrialDir

WARMUP_NS = 600 * MS
WINDOW_NS = 1500 * MS
B = BottleneckName


@dataclass(frozen=True)
class Case:
    """`burners`: busy loops of another program, on these CPUs; `wide`: the subject may use all CPUs of the machine."""

    name: str
    options: str
    load: dict[str, Any]
    expected: BottleneckName
    burners: Sequence[int] = ()
    host: HostUse = field(default_factory=HostUse)

    def experiment(self) -> Experiment:
        load = Load(**{"duration_ns": WINDOW_NS, "drain_ns": 500 * MS, "timeout_ns": 5_000 * MS, **self.load})
        measured = Measure(warmup_ns=WARMUP_NS, foreign_cpu_max=1.0)
        return experiment(reference(*self.options.split()), load, measure=measured, host=self.host)

    def run(self, folder: Path) -> TrialResult:
        case = self.experiment()
        with burning(self.burners):
            record = run_one(case, folder)
        return measure(TrialDir(folder / "0001"), record, case)


@contextmanager
def burning(cpus: Sequence[int]) -> Iterator[None]:
    """Another program that uses all it can get of each of these CPUs."""
    code = "import os,sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"
    burners = [subprocess.Popen([sys.executable, "-c", code, str(cpu)]) for cpu in cpus]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def users(count: int, **fields: Any) -> dict[str, Any]:
    return {"users": count, **fields}


def rate(per_s: float, **fields: Any) -> dict[str, Any]:
    return {"users": None, "rate_per_s": per_s, "max_in_flight": 500, **fields}


SUBJECT_CPU, ENGINE_CPU = 0, max(os.sched_getaffinity(0))

CASES: tuple[Case, ...] = (
    Case("fixed, 8 threads sleep", "--model fixed --threads 8 --wait 10ms", users(64), B.POOL_TOO_SMALL),
    Case("fixed, 4 threads sleep, open", "--model fixed --threads 4 --wait 10ms", rate(600), B.POOL_TOO_SMALL),
    Case(
        "bounded, 16 threads, some CPU",
        "--model bounded --core 4 --max 16 --queue 20 --wait 20ms --cpu 200us",
        users(36),
        B.POOL_TOO_SMALL,
    ),
    Case(
        "a thread for a connection, 8 of 64",
        "--model fixed --threads 8 --unit connection --wait 5ms",
        users(64),
        B.POOL_TOO_SMALL,
    ),
    Case(
        "fixed, random waits",
        "--model fixed --threads 8 --wait 10ms --wait-distribution exponential",
        users(40),
        B.POOL_TOO_SMALL,
    ),
    Case("CPU, fixed", "--model fixed --threads 4 --cpu 2ms", users(16), B.SUBJECT_CPU),
    Case("CPU, event loop", "--model event-loop --cpu 1ms", users(16), B.SUBJECT_CPU),
    Case("CPU, open overload", "--model fixed --threads 4 --cpu 2ms", rate(800), B.SUBJECT_CPU),
    Case("CPU and waits, many threads", "--model fixed --threads 32 --cpu 1ms --wait 5ms", users(32), B.SUBJECT_CPU),
    Case(
        "a thread for each of 250", "--model thread-per-connection --cpu 4ms", users(250), B.TOO_MANY_RUNNABLE_THREADS
    ),
    Case("cached, 200 runnable", "--model cached --cpu 5ms", users(200), B.TOO_MANY_RUNNABLE_THREADS),
    Case("fixed, 128 runnable", "--model fixed --threads 128 --cpu 5ms", users(160), B.TOO_MANY_RUNNABLE_THREADS),
    Case("lock, fixed", "--model fixed --threads 32 --lock 2ms", users(32), B.LOCK),
    Case("lock, 8 of 64", "--model fixed --threads 8 --lock 2ms --cpu 100us", users(64), B.LOCK),
    Case("lock, cached, open", "--model cached --lock 3ms", rate(600), B.LOCK),
    Case("lock that burns", "--model fixed --threads 16 --lock 2ms --lock-kind burn", users(16), B.LOCK),
    Case("lock, a thread for each", "--model thread-per-connection --lock 2ms --cpu 100us", users(48), B.LOCK),
    Case(
        "downstream of 4, 32 threads",
        "--model fixed --threads 32 --downstream-limit 4 --downstream-wait 10ms",
        users(48),
        B.DOWNSTREAM,
    ),
    Case(
        "downstream of 8, a thread for each",
        "--model thread-per-connection --downstream-limit 8 --downstream-wait 20ms",
        users(64),
        B.DOWNSTREAM,
    ),
    Case(
        "downstream of 4, event loop",
        "--model event-loop --downstream-limit 4 --downstream-wait 10ms",
        users(48),
        B.DOWNSTREAM,
    ),
    Case("event loop waits for a lock", "--model event-loop --lock 5ms", users(32), B.EVENT_LOOP_BLOCKED),
    Case(
        "another program on the subject's CPU",
        "--model fixed --threads 4 --cpu 2ms",
        users(16),
        B.HOST_CPU,
        burners=(SUBJECT_CPU, SUBJECT_CPU),
    ),
    Case(
        "other programs beside an event loop",
        "--model event-loop --cpu 2ms",
        users(16),
        B.HOST_CPU,
        burners=(SUBJECT_CPU,) * 3,
    ),
    Case(
        "another program on the engine's CPU",
        "--model fixed --threads 64 --wait 1ms",
        users(64),
        B.GENERATOR,
        burners=(ENGINE_CPU,) * 4,
    ),
)
HEALTHY: tuple[Case, ...] = (
    Case("fixed, a third of its pool", "--model fixed --threads 8 --wait 10ms", rate(260), B.NONE),
    Case("fixed, half of its CPU", "--model fixed --threads 8 --cpu 1ms", rate(400), B.NONE),
    Case("bounded, 40 %", "--model bounded --core 8 --max 16 --wait 10ms", rate(320), B.NONE),
    Case("cached", "--model cached --wait 10ms", rate(300), B.NONE),
    Case("a thread for each connection", "--model thread-per-connection --wait 10ms", rate(300), B.NONE),
    Case("event loop", "--model event-loop --cpu 500us --wait 5ms", rate(600), B.NONE),
    Case("lock at a third", "--model fixed --threads 16 --lock 2ms", rate(150), B.NONE),
    Case(
        "downstream at a third",
        "--model fixed --threads 16 --downstream-limit 4 --downstream-wait 10ms",
        rate(130),
        B.NONE,
    ),
    Case("users that pause", "--model fixed --threads 8 --wait 5ms", users(20, think="150ms"), B.NONE),
    Case("a thread for each user", "--model fixed --threads 32 --wait 20ms", users(16), B.NONE),
    Case("event loop, all users served", "--model event-loop --wait 20ms", users(32), B.NONE),
    Case(
        "event loop, random waits", "--model event-loop --wait 20ms --wait-distribution exponential", users(32), B.NONE
    ),
)
