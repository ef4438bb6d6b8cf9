"""Bottlenecks planted in real servers: gunicorn, uvicorn, Go's net/http, Node, the JDK's. Each application of `real/`
has one limit; everything else comes from the server."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from fakes.cgroups import can_limit, limited
from fakes.pages import ROOT
from fakes.planted import Case, burning, users
from fakes.real_builds import REAL, built
from fakes.real_database import database_up
from fakes.stand import MS, run_one
from powerband.analyze.trial.measure import measure
from powerband.model.bottlenecks import BottleneckName
from powerband.model.experiment import Experiment, Measure, Ready, Subject
from powerband.model.host_use import HostUse
from powerband.model.load import Load
from powerband.model.results import TrialResult
from powerband.processes.ports import pick_ports, someone_listens
from powerband.store import TrialDir

UVICORN = (
    sys.executable, "-m", "uvicorn", "--app-dir", str(REAL), "--log-level", "warning", "--no-access-log",
)  # fmt: skip
B = BottleneckName
WINDOW_NS, WARMUP_NS = 2_000 * MS, 1_000 * MS


@dataclass(frozen=True)
class RealCase(Case):
    """A case of a real server. `command`: of the server, with `{port}` and the names of what is built
    (`real_builds.py`). `env`: added to its environment. `backend`: how many requests at once the server behind it
    serves; 0: there is none. `database`: the CPUs that its PostgreSQL may use; 0: it has none. `cpus`: those of the
    server, as `host.cpus`. `programs`: what must be installed, which our tests do not do. `quota`: the CPUs that its
    cgroup may use; `writes_per_s`: its limit of disk writes; `memory_mib`: its limit of memory; 0: no limit."""

    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    backend: int = 0
    database: float = 0.0
    cpus: str = "auto"
    programs: tuple[str, ...] = ()
    quota: float = 0.0
    writes_per_s: int = 0
    memory_mib: int = 0

    @property
    def installed(self) -> bool:
        limits = can_limit(self.quota, self.writes_per_s, self.memory_mib) and can_limit(self.database)
        return all(map(shutil.which, self.programs)) and limits

    @property
    def beside_cores(self) -> float:
        return super().beside_cores + (self.database if self.database < 1 else 0.0)

    def experiment(self) -> Experiment:
        subject = Subject(
            name="real", command=built(self.command), env=dict(self.env), ready=Ready(timeout_ns=20_000 * MS)
        )
        load = Load(**{"duration_ns": WINDOW_NS, "drain_ns": 500 * MS, "timeout_ns": 5_000 * MS, **self.load})
        measured = Measure(warmup_ns=WARMUP_NS, foreign_cpu_max=1.0)
        return Experiment(name="real", subject=subject, load=load, measure=measured, host=HostUse(cpus=self.cpus))

    def run(self, folder: Path) -> TrialResult:
        with (
            serving(self.backend) as url,
            database_up(self.database) as database,
            burning(self.burners),
            limited(self.command, self.quota, self.writes_per_s, self.memory_mib) as command,
        ):
            case = replace(self, command=command, env={**self.env, "BACKEND": url, "DATABASE": database}).experiment()
            record = run_one(case, folder)
        return measure(TrialDir(folder / "0001"), record, case)


@contextmanager
def serving(at_once: int) -> Iterator[str]:
    """Yields the address of a server that serves so many requests at once, 20 ms each, and that is not below
    powerband's processes."""
    if not at_once:
        yield ""
        return
    (port,) = pick_ports(1)
    env = {**os.environ, "PLANT": "semaphore", "LIMIT": str(at_once)}
    server = subprocess.Popen([*UVICORN, "--port", str(port), "asgi_app:app"], env=env)
    try:
        deadline_s = time.monotonic() + 20
        while not someone_listens("127.0.0.1", port) and time.monotonic() < deadline_s:
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/"
    finally:
        server.kill()
        server.wait()


def gunicorn(
    name: str, expected: B, plant: str, limit: int, *options: str, count: int = 64, slots: int = 0, **env: str
) -> RealCase:
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
    return RealCase(f"gunicorn: {name}", "", users(count), expected, (), slots, command, env)


def uvicorn(
    name: str, expected: B, plant: str, limit: int, *options: str, count: int = 64, slots: int = 0, cpus: str = "auto"
) -> RealCase:
    command = (*UVICORN, "--port", "{port}", *options, "asgi_app:app")
    env = {"PLANT": plant, "LIMIT": str(limit)}
    return RealCase(f"uvicorn: {name}", "", users(count), expected, (), slots, command, env, cpus=cpus)


def go(name: str, expected: B, plant: str, limit: int = 1, *, count: int = 64, slots: int = 0, **env: str) -> RealCase:
    command = ("{go}", "127.0.0.1:{port}", plant, str(limit))
    return RealCase(f"Go: {name}", "", users(count), expected, (), slots, command, env)


def node(
    name: str,
    expected: B,
    plant: str,
    limit: int = 1,
    *,
    processes: int = 1,
    count: int = 64,
    slots: int = 0,
    **env: str,
) -> RealCase:
    command = ("node", str(REAL / "server.js"), "{port}", plant, str(limit), str(processes))
    return RealCase(f"Node: {name}", "", users(count), expected, (), slots, command, env)


def jdk(
    name: str,
    expected: B,
    plant: str,
    limit: int = 1,
    *,
    threads: int = 64,
    count: int = 64,
    slots: int = 0,
    nodelay: bool = True,
) -> RealCase:
    option = f"-Dsun.net.httpserver.nodelay={str(nodelay).lower()}"
    java = ("java", "-Xmx64m", "-XX:+UseSerialGC", option, "-cp", "{classes}", "Server")
    command = (*java, "{port}", plant, str(limit), str(threads))
    return RealCase(f"JDK: {name}", "", users(count), expected, (), slots, command)


def python(name: str, expected: B, plant: str, limit: int, *, count: int = 64) -> RealCase:
    """A case of Python's own `http.server`, with a thread for each connection."""
    command = (sys.executable, str(REAL / "own_server.py"), "{port}")
    env = {"PLANT": plant, "LIMIT": str(limit)}
    return RealCase(f"Python's own: {name}", "", users(count), expected, (), 0, command, env)


def example(name: str, threads: int, *, count: int) -> RealCase:
    """A case of the tutorial's server: a pool of Python's threads behind the first thread, which accepts."""
    server = ROOT / "examples" / "threads_server.py"
    command = (sys.executable, str(server), "--port", "{port}", "--threads", str(threads))
    return RealCase(f"Python's own: {name}", "", users(count), B.POOL_TOO_SMALL, (), threads, command)


def behind(kind: str, name: str, expected: B, plant: str, limit: int, *, count: int = 64, slots: int = 0) -> RealCase:
    """A case of nginx, HAProxy, or PHP-FPM behind nginx."""
    command = (sys.executable, str(REAL / "behind.py"), kind.lower(), "{port}", str(limit), php_fpm())
    programs = {"haproxy": ("haproxy",), "nginx": ("nginx",)}.get(kind.lower(), ("nginx", php_fpm()))
    env = {"PLANT": plant}
    return RealCase(f"{kind}: {name}", "", users(count), expected, (), slots, command, env, programs=programs)


def php_fpm() -> str:
    """The path of PHP-FPM, whose name on Debian contains its version."""
    return next(map(str, sorted(Path("/usr/sbin").glob("php-fpm*"))), "php-fpm")


def puma(name: str, expected: B, plant: str, threads: int, *, count: int = 64, slots: int = 0) -> RealCase:
    listen = ("-b", "tcp://127.0.0.1:{port}", "-t", f"{threads}:{threads}")
    command = ("puma", "-q", "-e", "production", *listen, str(REAL / "config.ru"))
    env = {"PLANT": plant}
    return RealCase(f"Puma: {name}", "", users(count), expected, (), slots, command, env, programs=("puma",))


def few_descriptors(case: RealCase, name: str, limit: int) -> RealCase:
    command = ("sh", "-c", f'ulimit -n {limit}; exec "$@"', "sh", *case.command)
    return replace(case, name=f"{case.name}, {name}", expected=B.DESCRIPTORS, command=command)


def allowed(cpus: float, case: RealCase) -> RealCase:
    """The case on all CPUs, with a cgroup for the server that may use only so many of them."""
    return replace(case, name=f"{case.name}, {cpus:g} CPUs allowed", cpus="all", quota=cpus)


def slow_disk(case: RealCase) -> RealCase:
    """The case on a disk limited to 200 writes a second: a machine's own disk may be too fast to be the limit."""
    return replace(case, name=f"{case.name}, 200 writes/s", writes_per_s=200)


def little_memory(case: RealCase) -> RealCase:
    """The case with 96 MiB of memory, which hold half of the file that it reads, as on a machine that swaps."""
    return replace(case, name=f"{case.name}, 96 MiB", memory_mib=96)


THREADS = ("-k", "gthread", "--threads")
REAL_CASES: tuple[RealCase, ...] = (
    gunicorn("4 threads sleep", B.POOL_TOO_SMALL, "sleep", 1, *THREADS, "4", slots=4),
    gunicorn("2 processes of 8 threads sleep", B.POOL_TOO_SMALL, "sleep", 1, "-w", "2", *THREADS, "8", slots=16),
    gunicorn("2 processes sleep", B.POOL_TOO_SMALL, "sleep", 1, "-w", "2", slots=2),
    gunicorn("4 processes sleep", B.POOL_TOO_SMALL, "sleep", 1, "-w", "4", slots=4),
    gunicorn("1 process computes", B.SUBJECT_CPU, "cpu", 1, "-w", "1"),
    gunicorn("16 threads, a lock", B.LOCK, "lock", 1, *THREADS, "16", slots=1),
    gunicorn("32 threads, a pool of 4 behind", B.POOL_TOO_SMALL, "pool", 4, *THREADS, "32", slots=4),
    gunicorn("32 threads, a semaphore of 4", B.HIDDEN_LIMIT, "semaphore", 4, *THREADS, "32", slots=4),
    gunicorn("1 thread sleeps", B.POOL_TOO_SMALL, "sleep", 1, *THREADS, "1", slots=1),
    gunicorn("greenlets compute", B.SUBJECT_CPU, "cpu", 1, "-k", "gevent"),
    gunicorn("greenlets, a semaphore of 4", B.HIDDEN_LIMIT, "semaphore", 4, "-k", "gevent", slots=4),
    replace(behind("HAProxy", "lets 4 pass at once", B.HIDDEN_LIMIT, "", 4, slots=4), backend=64),
    behind("PHP-FPM", "4 processes sleep", B.POOL_TOO_SMALL, "sleep", 4, slots=4),
    behind("PHP-FPM", "computes", B.SUBJECT_CPU, "cpu", 4),
    puma("4 threads sleep", B.POOL_TOO_SMALL, "sleep", 4, slots=4),
    puma("a lock held 1 ms", B.LOCK, "lock", 16, slots=1),
    uvicorn("a loop blocked", B.EVENT_LOOP_BLOCKED, "blocked", 1, slots=1),
    uvicorn("2 loops blocked", B.EVENT_LOOP_BLOCKED, "blocked", 1, "--workers", "2", slots=2),
    uvicorn("a semaphore of 4", B.HIDDEN_LIMIT, "semaphore", 4, slots=4),
    uvicorn("a semaphore of 32", B.HIDDEN_LIMIT, "semaphore", 32, slots=32),
    uvicorn("a pool of 4 behind the loop", B.POOL_TOO_SMALL, "pool", 4, slots=4),
    uvicorn("computes", B.SUBJECT_CPU, "cpu", 1),
    go("computes", B.SUBJECT_CPU, "cpu", GOMAXPROCS="1"),
    # Goroutines wait without a thread.
    go("a lock held 1 ms", B.HIDDEN_LIMIT, "lock", slots=1),
    go("a semaphore of 4", B.HIDDEN_LIMIT, "semaphore", 4, slots=4),
    go("garbage", B.GARBAGE_COLLECTION, "garbage", GOGC="20"),
    node("a loop blocked", B.EVENT_LOOP_BLOCKED, "blocked", slots=1),
    node("computes", B.SUBJECT_CPU, "cpu"),
    node("2 processes blocked", B.EVENT_LOOP_BLOCKED, "blocked", processes=2, slots=2),
    node("a semaphore of 4", B.HIDDEN_LIMIT, "semaphore", 4, slots=4),
    jdk("4 threads sleep", B.POOL_TOO_SMALL, "sleep", threads=4, slots=4),
    jdk("a monitor held 1 ms", B.LOCK, "monitor", slots=1),
    jdk("a semaphore of 4", B.HIDDEN_LIMIT, "semaphore", 4, slots=4),
    jdk("computes", B.SUBJECT_CPU, "cpu", threads=2),
    jdk("garbage", B.GARBAGE_COLLECTION, "garbage"),
    replace(go("calls a server that serves 4", B.DOWNSTREAM, "proxy"), backend=4, slots=4),
    replace(node("calls a server that serves 4", B.DOWNSTREAM, "proxy"), backend=4, slots=4),
    replace(behind("nginx", "in front of a server that serves 4", B.DOWNSTREAM, "", 0, slots=4), backend=4),
    replace(behind("HAProxy", "in front of a server that serves 4", B.DOWNSTREAM, "", 0, slots=4), backend=4),
    replace(
        gunicorn("64 threads call a server that serves 4", B.DOWNSTREAM, "proxy", 1, *THREADS, "64"), backend=4, slots=4
    ),
    few_descriptors(go("sleeps", B.NONE, "sleep"), "40 descriptors", 40),
    few_descriptors(node("sleeps", B.NONE, "sleep"), "60 descriptors", 60),
    uvicorn("one loop computes, two CPUs", B.EVENT_LOOP_BLOCKED, "cpu", 1, cpus="all"),
    replace(node("one loop computes, two CPUs", B.EVENT_LOOP_BLOCKED, "cpu"), cpus="all"),
    jdk("Nagle's algorithm", B.DELAYED_ACK, "none", nodelay=False),
    jdk("Nagle's algorithm, sleeps", B.DELAYED_ACK, "sleep", nodelay=False),
    python("head and body in two writes", B.DELAYED_ACK, "sleep", 1),
    example("8 threads sleep behind the one that accepts", 8, count=16),
    uvicorn("2 processes sleep, Nagle's algorithm", B.DELAYED_ACK, "sleep", 1, "--workers", "2"),
    allowed(0.5, gunicorn("2 processes compute", B.CPU_QUOTA, "cpu", 1, "-w", "2")),
    allowed(1.5, go("computes", B.CPU_QUOTA, "cpu")),
    allowed(0.5, node("computes", B.CPU_QUOTA, "cpu")),
    allowed(0.5, gunicorn("4 threads sleep", B.POOL_TOO_SMALL, "sleep", 1, *THREADS, "4", slots=4)),
    allowed(0.5, jdk("computes", B.CPU_QUOTA, "cpu", threads=64)),
    slow_disk(gunicorn("16 threads sync a journal, one at a time", B.DISK, "fsync", 1, *THREADS, "16")),
    slow_disk(gunicorn("16 threads sync a journal", B.DISK, "fsync", 16, *THREADS, "16")),
    slow_disk(gunicorn("4 processes sync a journal", B.DISK, "fsync", 1, "-w", "4")),
    slow_disk(go("syncs a journal", B.DISK, "fsync")),
    slow_disk(node("syncs a journal", B.DISK, "fsync", 4)),
    little_memory(gunicorn("16 threads read a file", B.MEMORY, "pages", 20, *THREADS, "16")),
    little_memory(go("reads a file", B.MEMORY, "pages", 20)),
)
REAL_HEALTHY: tuple[RealCase, ...] = (
    gunicorn("64 threads sleep, 16 users", B.NONE, "sleep", 1, *THREADS, "64", count=16),
    uvicorn("sleeps", B.NONE, "sleep", 1, count=8),
    go("sleeps", B.NONE, "sleep", count=16),
    node("sleeps", B.NONE, "sleep", count=16),
    jdk("64 threads sleep", B.NONE, "sleep", count=16),
    gunicorn("greenlets sleep", B.NONE, "sleep", 1, "-k", "gevent", count=16),
    node("head first, body 45 ms later", B.NONE, "head", count=16),
    replace(behind("nginx", "in front of a server that serves 64", B.NONE, "", 0, count=12), backend=64),
    replace(behind("HAProxy", "in front of a server that serves 64", B.NONE, "", 0, count=12), backend=64),
    behind("PHP-FPM", "64 processes sleep", B.NONE, "sleep", 64, count=16),
    puma("32 threads sleep", B.NONE, "sleep", 32, count=16),
    uvicorn("a pool of 32 behind the loop", B.NONE, "pool", 32, count=12),
    go("sleeps, many users", B.NONE, "sleep", count=48),
    node("2 processes sleep", B.NONE, "sleep", processes=2, count=16),
    allowed(1, go("sleeps", B.NONE, "sleep", count=16)),
)
