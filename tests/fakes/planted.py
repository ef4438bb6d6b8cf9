"""Planted bottlenecks of the reference subject, and healthy trials of it: the options, the load and the expected name
of each. `confusion.py` runs and scores them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fakes.stand import MS, experiment, reference, run_one
from powerband.analyze.trial.measure import measure
from powerband.model.bottlenecks import BottleneckName
from powerband.model.experiment import Experiment, Measure
from powerband.model.load import Load
from powerband.model.results import TrialResult
from powerband.store import TrialDir

WARMUP_NS = 500 * MS
WINDOW_NS = 1300 * MS
B = BottleneckName


@dataclass(frozen=True)
class Case:
    """A planted case. `options` of the reference subject; `burners`: the CPUs on which another program runs a busy
    loop; `slots`: the number of requests that it serves at once, 0 if that is not scored."""

    name: str
    options: str
    load: dict[str, Any]
    expected: BottleneckName
    burners: Sequence[int] = ()
    slots: int = 0

    @property
    def beside_cores(self) -> float:
        """The number of CPUs that the case's own burners use."""
        return len(set(self.burners))

    def experiment(self) -> Experiment:
        load = Load(**{"duration_ns": WINDOW_NS, "drain_ns": 500 * MS, "timeout_ns": 5_000 * MS, **self.load})
        measured = Measure(warmup_ns=WARMUP_NS, foreign_cpu_max=1.0)
        return experiment(reference(*self.options.split()), load, measure=measured)

    def run(self, folder: Path) -> TrialResult:
        case = self.experiment()
        with burning(self.burners):
            record = run_one(case, folder)
        return measure(TrialDir(folder / "0001"), record, case)


@contextmanager
def burning(cpus: Sequence[int]) -> Iterator[None]:
    """Runs another program on each of these CPUs, which uses all of it that it gets."""
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
    """An open load. Arrivals within 3 ms share a wake-up, since none of these cases depends on the exact instant."""
    return {"users": None, "rate_per_s": per_s, "max_in_flight": 500, "precision_ns": 3 * MS, **fields}


SUBJECT_CPU, ENGINE_CPU = 0, max(os.sched_getaffinity(0))

FIXED, EACH, LOOP = "--model fixed --threads", "--model thread-per-connection", "--model event-loop"

CASES: tuple[Case, ...] = (
    Case("pool: 8 threads sleep", f"{FIXED} 8 --wait 10ms", users(64), B.POOL_TOO_SMALL),
    Case("pool: 4 threads sleep, open load", f"{FIXED} 4 --wait 10ms", rate(600), B.POOL_TOO_SMALL),
    Case(
        "pool: bounded, 16 threads, some CPU",
        "--model bounded --core 4 --max 16 --queue 20 --wait 20ms --cpu 200us",
        users(36),
        B.POOL_TOO_SMALL,
    ),
    Case(
        "pool: bounded, no queue, open load",
        "--model bounded --core 8 --max 8 --queue 0 --policy abort --wait 10ms",
        rate(1200),
        B.POOL_TOO_SMALL,
    ),
    Case("pool: a thread keeps its connection", f"{FIXED} 8 --unit connection --wait 5ms", users(64), B.POOL_TOO_SMALL),
    Case("pool: random waits", f"{FIXED} 8 --wait 10ms --wait-distribution exponential", users(40), B.POOL_TOO_SMALL),
    Case(
        "pool: waits on sockets",
        f"{FIXED} 8 --downstream-kind tcp --downstream-limit 64 --downstream-wait 10ms",
        users(48),
        B.POOL_TOO_SMALL,
    ),
    Case("CPU: pool", f"{FIXED} 4 --cpu 2ms", users(16), B.SUBJECT_CPU),
    Case("CPU: event loop", f"{LOOP} --cpu 1ms", users(16), B.SUBJECT_CPU),
    Case("CPU: open load", f"{FIXED} 4 --cpu 2ms", rate(800), B.SUBJECT_CPU),
    Case("CPU: and waits, more threads", f"{FIXED} 12 --cpu 1ms --wait 5ms", users(24), B.SUBJECT_CPU),
    Case("crowd: 200 that switch", f"{FIXED} 200 --yields 1000", users(200), B.TOO_MANY_RUNNABLE_THREADS),
    Case("crowd: a thread for each of 150", f"{EACH} --cpu 4ms", users(150), B.TOO_MANY_RUNNABLE_THREADS),
    Case("crowd: cached", "--model cached --cpu 4ms", users(150), B.TOO_MANY_RUNNABLE_THREADS),
    Case("lock: pool", f"{FIXED} 32 --lock 2ms", users(32), B.LOCK),
    Case("lock: 8 threads for 64", f"{FIXED} 8 --lock 2ms --cpu 100us", users(64), B.LOCK),
    Case("lock: cached", "--model cached --lock 3ms", users(40), B.LOCK),
    Case("lock: burns", f"{FIXED} 16 --lock 2ms --lock-kind burn", users(16), B.LOCK),
    Case("lock: a thread for each", f"{EACH} --lock 2ms --cpu 100us", users(48), B.LOCK),
    # The server has the permits itself, and calls nothing over a connection.
    Case("hidden: 4 permits", f"{FIXED} 32 --downstream-limit 4 --downstream-wait 10ms", users(48), B.HIDDEN_LIMIT),
    Case("hidden: a thread for each", f"{EACH} --downstream-limit 8 --downstream-wait 20ms", users(64), B.HIDDEN_LIMIT),
    Case("hidden: event loop", f"{LOOP} --downstream-limit 4 --downstream-wait 10ms", users(48), B.HIDDEN_LIMIT),
    Case(
        "hidden: few connections to a database",
        f"{FIXED} 32 --downstream-kind tcp --downstream-limit 64 --downstream-connections 4 --downstream-wait 10ms",
        users(48),
        B.HIDDEN_LIMIT,
    ),
    Case(
        "downstream: a slow database",
        f"{FIXED} 48 --downstream-kind tcp --downstream-limit 4 --downstream-wait 10ms",
        users(48),
        B.DOWNSTREAM,
    ),
    Case(
        "collector: beside waits",
        f"{FIXED} 16 --wait 10ms --gc-every 200ms --gc-for 60ms",
        users(32),
        B.GARBAGE_COLLECTION,
    ),
    Case(
        "collector: beside CPU", f"{FIXED} 8 --cpu 1ms --gc-every 100ms --gc-for 40ms", users(16), B.GARBAGE_COLLECTION
    ),
    Case("memory: pool", f"{FIXED} 4 --memory 1048576", users(16), B.MEMORY),
    Case("memory: event loop", f"{LOOP} --memory 4194304", users(16), B.MEMORY),
    Case(
        "accept: slow, a queue of 1",
        f"{EACH} --backlog 1 --accept-delay 10ms",
        users(32, keep_alive=False),
        B.ACCEPT_BACKLOG,
    ),
    Case("accept: slow, a long queue", f"{EACH} --accept-delay 10ms", users(32, keep_alive=False), B.ACCEPT_BACKLOG),
    Case("descriptors: 64 for 100", f"{EACH} --descriptors 64 --wait 10ms", users(100), B.DESCRIPTORS),
    Case("descriptors: 40, event loop", f"{LOOP} --descriptors 40 --wait 10ms", users(64), B.DESCRIPTORS),
    Case("loop: blocks in waits", f"{LOOP} --loop-waits block --wait 5ms", users(32), B.EVENT_LOOP_BLOCKED),
    Case("loop: waits for a lock", f"{LOOP} --instances 4 --lock 5ms", users(32), B.EVENT_LOOP_BLOCKED),
    Case(
        "loop: blocks in the database",
        f"{LOOP} --instances 2 --loop-waits block --downstream-kind tcp --downstream-limit 64 --downstream-wait 5ms",
        users(32),
        B.EVENT_LOOP_BLOCKED,
    ),
    Case("host: beside a pool", f"{FIXED} 4 --cpu 2ms", users(16), B.HOST_CPU, burners=(SUBJECT_CPU,) * 2),
    Case("host: beside an event loop", f"{LOOP} --cpu 2ms", users(16), B.HOST_CPU, burners=(SUBJECT_CPU,) * 3),
    Case("generator: beside burners", f"{LOOP}", users(64), B.GENERATOR, burners=(ENGINE_CPU,) * 4),
    Case(
        "generator: late",
        f"{FIXED} 64 --wait 5ms",
        rate(800, precision_ns=MS // 10),
        B.GENERATOR,
        burners=(ENGINE_CPU,) * 4,
    ),
)
HEALTHY: tuple[Case, ...] = (
    Case("pool at a third", f"{FIXED} 8 --wait 10ms", rate(260), B.NONE),
    Case("CPU at 40 %", f"{FIXED} 8 --cpu 1ms", rate(400), B.NONE),
    Case("bounded at 40 %", "--model bounded --core 8 --max 16 --wait 10ms", rate(320), B.NONE),
    Case("cached", "--model cached --wait 10ms", rate(300), B.NONE),
    Case("a thread for each connection", f"{EACH} --wait 10ms", rate(300), B.NONE),
    Case("event loop", f"{LOOP} --cpu 500us --wait 5ms", rate(600), B.NONE),
    Case("lock at 30 %", f"{FIXED} 16 --lock 2ms", rate(150), B.NONE),
    Case("downstream at a third", f"{FIXED} 16 --downstream-limit 4 --downstream-wait 10ms", rate(130), B.NONE),
    Case("users that pause", f"{FIXED} 8 --wait 5ms", users(20, think="150ms", precision_ns=3 * MS), B.NONE),
    Case("a thread for each user", f"{FIXED} 32 --wait 20ms", users(16), B.NONE),
    Case("event loop, all users", f"{LOOP} --wait 20ms", users(32), B.NONE),
    Case("event loop, random waits", f"{LOOP} --wait 20ms --wait-distribution exponential", users(32), B.NONE),
    Case(
        "a database for each",
        f"{FIXED} 32 --downstream-kind tcp --downstream-limit 64 --downstream-wait 20ms",
        users(32),
        B.NONE,
    ),
)
