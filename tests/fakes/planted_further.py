"""Bottlenecks planted in servers that the rules were never tried on: more of Python's, of Java's, Go's and Rust's,
Node's threads, and Apache, Caddy and unicorn if they are installed. Each case's name was decided, and committed, before
its first trial; a case for which another name is arguable says why. A case that is named wrongly stays as it is."""

from __future__ import annotations

import sys
from dataclasses import replace

from fakes.planted import users
from fakes.planted_real import RealCase, allowed, few_descriptors, slow_disk
from fakes.real_builds import REAL
from powerband.model.bottlenecks import BottleneckName

B = BottleneckName


def python(
    kind: str,
    name: str,
    expected: B,
    plant: str,
    limit: int = 1,
    *,
    size: int = 1,
    count: int = 64,
    slots: int = 0,
    cpus: str = "auto",
) -> RealCase:
    """A case of waitress, cheroot, aiohttp, tornado, twisted or sanic; `size`: its threads, if it has its own."""
    command = ("{further-python}", str(REAL / "further_app.py"), kind, "{port}", str(size))
    env = {"PLANT": plant, "LIMIT": str(limit)}
    return RealCase(f"{kind}: {name}", "", users(count), expected, (), slots, command, env, cpus=cpus)


def module(
    kind: str,
    name: str,
    expected: B,
    plant: str,
    *options: str,
    count: int = 64,
    slots: int = 0,
    cpus: str = "auto",
) -> RealCase:
    """A case of hypercorn, granian or uWSGI, started by its own command line."""
    command = {
        "hypercorn": ("-m", "hypercorn", "-b", "127.0.0.1:{port}", *options, "asgi_app:app"),
        "granian": ("-m", "granian", "--host", "127.0.0.1", "--port", "{port}", *options, "wsgi_app:app"),
        "uWSGI": (str(REAL / "uwsgi_server.py"), "{port}", *options),
    }[kind]
    env = {"PLANT": plant, "LIMIT": "1", "PYTHONPATH": str(REAL)}
    command = ("{further-python}", *command)
    return RealCase(f"{kind}: {name}", "", users(count), expected, (), slots, command, env, cpus=cpus)


def axum(
    name: str, expected: B, plant: str, limit: int = 1, *, loops: int = 2, count: int = 64, slots: int = 0
) -> RealCase:
    command = ("{axum}", "{port}", plant, str(limit), str(loops))
    return RealCase(f"axum: {name}", "", users(count), expected, (), slots, command, programs=("cargo",))


def undertow(
    name: str, expected: B, plant: str, limit: int = 1, *, threads: int = 32, count: int = 64, slots: int = 0
) -> RealCase:
    java = ("java", "-Xmx64m", "-XX:+UseSerialGC", "-cp", "{containers}", "Worker")
    command = (*java, "{port}", plant, str(limit), str(threads))
    return RealCase(f"Undertow: {name}", "", users(count), expected, (), slots, command, programs=("java", "mvn"))


def virtual(name: str, expected: B, plant: str, limit: int = 1, *, count: int = 64, slots: int = 0) -> RealCase:
    """A case of the JDK's own server with a virtual thread for each request, on JDK 21 or later."""
    java = ("{java-21}", "-Xmx64m", "-XX:+UseSerialGC", "-Dsun.net.httpserver.nodelay=true", "-cp", "{classes-21}")
    command = (*java, "VirtualServer", "{port}", plant, str(limit))
    return RealCase(f"JDK, virtual threads: {name}", "", users(count), expected, (), slots, command)


def fasthttp(name: str, expected: B, plant: str, limit: int = 1, *, count: int = 64, slots: int = 0) -> RealCase:
    command = ("{fasthttp}", "127.0.0.1:{port}", plant, str(limit))
    return RealCase(f"fasthttp: {name}", "", users(count), expected, (), slots, command, programs=("go",))


def node(name: str, expected: B, plant: str, threads: int, *, slots: int = 0, cpus: str = "auto") -> RealCase:
    command = ("node", str(REAL / "threads.js"), "{port}", plant, str(threads))
    return RealCase(f"Node's threads: {name}", "", users(64), expected, (), slots, command, cpus=cpus)


def behind(
    kind: str, program: str, name: str, expected: B, limit: int, *, backend: int = 0, count: int = 64, slots: int = 0
) -> RealCase:
    """A case of Apache or Caddy in front of another server, or of unicorn."""
    command = (sys.executable, str(REAL / "behind.py"), kind.lower(), "{port}", str(limit))
    case = RealCase(f"{kind}: {name}", "", users(count), expected, (), slots, command, programs=(program,))
    return replace(case, backend=backend)


WSGI = ("--interface", "wsgi")
FURTHER_CASES: tuple[RealCase, ...] = (
    python("waitress", "4 threads sleep", B.POOL_TOO_SMALL, "sleep", size=4, slots=4),
    python("waitress", "4 threads compute", B.SUBJECT_CPU, "cpu", size=4),
    allowed(0.5, python("waitress", "4 threads compute", B.CPU_QUOTA, "cpu", size=4)),
    python("cheroot", "10 threads sleep", B.POOL_TOO_SMALL, "sleep", size=10, slots=10),
    python("cheroot", "16 threads, a lock held 1 ms", B.LOCK, "lock", size=16, slots=1),
    slow_disk(python("cheroot", "16 threads sync a journal", B.DISK, "fsync", 16, size=16)),
    module("uWSGI", "4 processes sleep", B.POOL_TOO_SMALL, "sleep", "4", "1", slots=4),
    # The server's other threads belong to its own loop, which hands the requests to these four.
    module("granian", "4 threads sleep", B.POOL_TOO_SMALL, "sleep", *WSGI, "--blocking-threads", "4", slots=4),
    module("granian", "2 processes compute on 2 CPUs", B.SUBJECT_CPU, "cpu", *WSGI, "--workers", "2", cpus="all"),
    python("aiohttp", "a semaphore of 4", B.HIDDEN_LIMIT, "semaphore", 4, slots=4),
    python("aiohttp", "a loop blocked", B.EVENT_LOOP_BLOCKED, "blocked", slots=1),
    python("aiohttp", "a pool of 4 behind the loop", B.POOL_TOO_SMALL, "pool", 4, slots=4),
    replace(python("aiohttp", "calls a server that serves 4", B.DOWNSTREAM, "proxy", slots=4), backend=4),
    # Only one thread lacks CPU: named as in the table of followed advice.
    python("tornado", "one loop computes, two CPUs", B.EVENT_LOOP_BLOCKED, "cpu", cpus="all"),
    python("tornado", "a semaphore of 8", B.HIDDEN_LIMIT, "semaphore", 8, slots=8),
    # The lock is one of tasks: no thread waits for it, so it is a limit of one that no thread shows.
    module("hypercorn", "a lock of tasks held 20 ms", B.HIDDEN_LIMIT, "lock", slots=1),
    python("twisted", "a pool of 10 behind the reactor", B.POOL_TOO_SMALL, "pool", size=10, slots=10),
    python("twisted", "the reactor blocked", B.EVENT_LOOP_BLOCKED, "blocked", slots=1),
    axum("4 threads for blocking calls sleep", B.POOL_TOO_SMALL, "pool", 4, slots=4),
    # The threads belong to loops, which a wait for a lock blocks. Without the lock eight would sleep at once, so the
    # lock is the first limit, not the loops.
    axum("8 loops, a lock held 1 ms", B.LOCK, "lock", loops=8, slots=1),
    axum("32 threads for blocking calls, a lock held 1 ms", B.LOCK, "pool-lock", 32, slots=1),
    axum("a semaphore of 4", B.HIDDEN_LIMIT, "semaphore", 4, slots=4),
    axum("2 loops blocked", B.EVENT_LOOP_BLOCKED, "blocked", loops=2, slots=2),
    axum("computes", B.SUBJECT_CPU, "cpu"),
    few_descriptors(axum("sleeps", B.NONE, "sleep"), "40 descriptors", 40),
    undertow("4 threads sleep", B.POOL_TOO_SMALL, "sleep", threads=4, slots=4),
    undertow("an I/O thread blocked", B.EVENT_LOOP_BLOCKED, "blocked", threads=0, slots=1),
    undertow("a lock held 1 ms", B.LOCK, "lock", slots=1),
    undertow("garbage", B.GARBAGE_COLLECTION, "garbage"),
    virtual("a semaphore of 4", B.HIDDEN_LIMIT, "semaphore", 4, slots=4),
    # Virtual threads are parked without a thread, like tasks. Go's goroutines show some of theirs; a virtual thread's
    # carrier is free.
    virtual("a lock held 1 ms", B.HIDDEN_LIMIT, "lock", slots=1),
    # Goroutines wait without a thread.
    fasthttp("a lock held 5 ms", B.HIDDEN_LIMIT, "lock", slots=1),
    fasthttp("8 slots", B.HIDDEN_LIMIT, "semaphore", 8, slots=8),
    fasthttp("computes", B.SUBJECT_CPU, "cpu"),
    node("2 of its own sleep", B.POOL_TOO_SMALL, "threads", 2, slots=2),
    node("4 of libuv compute on 2 CPUs", B.SUBJECT_CPU, "scrypt", 4, cpus="all"),
    behind("unicorn", "unicorn", "4 processes sleep", B.POOL_TOO_SMALL, 4, slots=4),
    behind(
        "Apache-prefork",
        "apache2",
        "8 processes call a server that serves 64",
        B.POOL_TOO_SMALL,
        8,
        backend=64,
        slots=8,
    ),
    behind("Caddy", "caddy", "in front of a server that serves 4", B.DOWNSTREAM, 0, backend=4, slots=4),
)
FURTHER_HEALTHY: tuple[RealCase, ...] = (
    python("waitress", "32 threads sleep", B.NONE, "sleep", size=32, count=12),
    python("aiohttp", "sleeps", B.NONE, "sleep", count=16),
    python("sanic", "sleeps", B.NONE, "sleep", count=16),
    module("hypercorn", "sleeps", B.NONE, "sleep", count=12),
    axum("sleeps", B.NONE, "sleep", count=48),
    undertow("64 threads sleep", B.NONE, "sleep", threads=64, count=16),
    virtual("sleep", B.NONE, "sleep", count=32),
    fasthttp("sleeps", B.NONE, "sleep", count=48),
    behind("Apache-worker", "apache2", "64 threads call a server that serves 64", B.NONE, 64, backend=64, count=12),
)
