"""Bottlenecks planted in servers that others wrote: gunicorn, uvicorn, Go's net/http, Node. Each application of `real/`
has one limit; what else is to be seen comes from the server."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from fakes.planted import Case, burning, users
from fakes.stand import FAKES, MS, run_one
from powerband.analyze.trial.measure import measure
from powerband.model.bottlenecks import BottleneckName
from powerband.model.experiment import Experiment, HostUse, Measure, Ready, Subject
from powerband.model.load import Load
from powerband.model.results import TrialResult
from powerband.store import TrialDir

REAL = FAKES / "real"
B = BottleneckName
WINDOW_NS, WARMUP_NS = 2_000 * MS, 1_000 * MS


@dataclass(frozen=True)
class RealCase(Case):
    """`command` of the server, with `{port}` and `{go}`, the built server of Go; `env`: added to its environment."""

    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    def experiment(self) -> Experiment:
        command = tuple(word.replace("{go}", go_server()) if "{go}" in word else word for word in self.command)
        subject = Subject(name="real", command=command, env=dict(self.env), ready=Ready(timeout_ns=20_000 * MS))
        load = Load(**{"duration_ns": WINDOW_NS, "drain_ns": 500 * MS, "timeout_ns": 5_000 * MS, **self.load})
        measured = Measure(warmup_ns=WARMUP_NS, foreign_cpu_max=1.0)
        return Experiment(name="real", subject=subject, load=load, measure=measured, host=HostUse(pinning="auto"))

    def run(self, folder: Path) -> TrialResult:
        case = self.experiment()
        with burning(self.burners):
            record = run_one(case, folder)
        return measure(TrialDir(folder / "0001"), record, case)


@cache
def go_server() -> str:
    """The server of Go, built once for the tests of this process."""
    folder = tempfile.mkdtemp(prefix="powerband-go-")
    subprocess.run(["go", "build", "-o", f"{folder}/server", str(REAL / "server.go")], check=True, timeout=300)
    return f"{folder}/server"


def gunicorn(name: str, expected: B, plant: str, limit: int, *options: str, count: int = 64, **env: str) -> RealCase:
    command = (
        sys.executable,
        "-m",
        "gunicorn",
        "-b",
        "127.0.0.1:{port}",
        "--chdir",
        str(REAL),
        *options,
        "wsgi_app:app",
    )
    env = {"PLANT": plant, "LIMIT": str(limit), **env}
    return RealCase(f"gunicorn: {name}", "", users(count), expected, (), command, env)


def uvicorn(name: str, expected: B, plant: str, limit: int, *options: str, count: int = 64) -> RealCase:
    command = (
        sys.executable, "-m", "uvicorn", "--port", "{port}", "--app-dir", str(REAL), "--log-level", "warning",
        "--no-access-log", *options, "asgi_app:app",
    )  # fmt: skip
    return RealCase(f"uvicorn: {name}", "", users(count), expected, (), command, {"PLANT": plant, "LIMIT": str(limit)})


def go(name: str, expected: B, plant: str, limit: int = 1, count: int = 64, **env: str) -> RealCase:
    command = ("{go}", "127.0.0.1:{port}", plant, str(limit))
    return RealCase(f"Go: {name}", "", users(count), expected, (), command, env)


def node(
    name: str, expected: B, plant: str, limit: int = 1, *, processes: int = 1, count: int = 64, **env: str
) -> RealCase:
    command = ("node", str(REAL / "server.js"), "{port}", plant, str(limit), str(processes))
    return RealCase(f"Node: {name}", "", users(count), expected, (), command, env)


THREADS = ("-k", "gthread", "--threads")
REAL_CASES: tuple[RealCase, ...] = (
    gunicorn("4 threads sleep", B.POOL_TOO_SMALL, "sleep", 1, *THREADS, "4"),
    gunicorn("2 processes of 8 threads sleep", B.POOL_TOO_SMALL, "sleep", 1, "-w", "2", *THREADS, "8"),
    gunicorn("2 processes sleep", B.POOL_TOO_SMALL, "sleep", 1, "-w", "2"),
    gunicorn("4 processes sleep", B.POOL_TOO_SMALL, "sleep", 1, "-w", "4"),
    gunicorn("1 process computes", B.SUBJECT_CPU, "cpu", 1, "-w", "1"),
    gunicorn("16 threads, a lock", B.LOCK, "lock", 1, *THREADS, "16"),
    gunicorn("32 threads, a pool of 4 behind", B.POOL_TOO_SMALL, "pool", 4, *THREADS, "32"),
    gunicorn("32 threads, a semaphore of 4", B.HIDDEN_LIMIT, "semaphore", 4, *THREADS, "32"),
    gunicorn("1 thread sleeps", B.POOL_TOO_SMALL, "sleep", 1, *THREADS, "1"),
    gunicorn("greenlets compute", B.SUBJECT_CPU, "cpu", 1, "-k", "gevent"),
    gunicorn("greenlets, a semaphore of 4", B.HIDDEN_LIMIT, "semaphore", 4, "-k", "gevent"),
    uvicorn("a loop blocked", B.EVENT_LOOP_BLOCKED, "blocked", 1),
    uvicorn("2 loops blocked", B.EVENT_LOOP_BLOCKED, "blocked", 1, "--workers", "2"),
    uvicorn("a semaphore of 4", B.HIDDEN_LIMIT, "semaphore", 4),
    uvicorn("a semaphore of 32", B.HIDDEN_LIMIT, "semaphore", 32),
    uvicorn("a pool of 4 behind the loop", B.POOL_TOO_SMALL, "pool", 4),
    uvicorn("computes", B.SUBJECT_CPU, "cpu", 1),
    go("computes", B.SUBJECT_CPU, "cpu", GOMAXPROCS="1"),
    go("a lock held 1 ms", B.LOCK, "lock"),
    go("a semaphore of 4", B.HIDDEN_LIMIT, "semaphore", 4),
    go("garbage", B.GARBAGE_COLLECTION, "garbage", GOGC="20"),
    node("a loop blocked", B.EVENT_LOOP_BLOCKED, "blocked"),
    node("computes", B.SUBJECT_CPU, "cpu"),
    node("2 processes blocked", B.EVENT_LOOP_BLOCKED, "blocked", processes=2),
    node("a semaphore of 4", B.HIDDEN_LIMIT, "semaphore", 4),
)
REAL_HEALTHY: tuple[RealCase, ...] = (
    gunicorn("64 threads sleep, 16 users", B.NONE, "sleep", 1, *THREADS, "64", count=16),
    uvicorn("sleeps", B.NONE, "sleep", 1, count=8),
    go("sleeps", B.NONE, "sleep", count=16),
    node("sleeps", B.NONE, "sleep", count=16),
)
