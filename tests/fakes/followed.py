"""Planted bottlenecks whose advice is followed: the change, and the gain in throughput.

There is a case of each kind whose advice is a change of a setting. `python -m fakes.followed`, with tests/ on the path,
runs them all and prints a table of them."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from fakes.confusion import Tried, machine, try_all
from fakes.planted import EACH, FIXED, Case, rate, users
from fakes.planted_real import (
    THREADS,
    RealCase,
    allowed,
    few_descriptors,
    go,
    gunicorn,
    jdk,
    little_memory,
    node,
    slow_disk,
    uvicorn,
)
from powerband.model.bottlenecks import BottleneckName as B

GAIN_LEAST = 1.2
MOVED = 1.2  # a figure has changed if it is larger or smaller by this factor
FIGURES = ("slots", "subject_cpu_cores", "doubled_users_gain", "gc_cpu_share")


@dataclass(frozen=True)
class Followed:
    """A case before and after its advice is followed. `done`: the change, in words. The name expected of `after` is not
    checked."""

    before: Case
    after: Case
    done: str

    @property
    def name(self) -> str:
        return f"{self.before.name}, {self.done}"


@dataclass(frozen=True)
class Outcome:
    followed: Followed
    before: Tried
    after: Tried

    @property
    def gain(self) -> float:
        """The ratio of right answers per second, after to before."""
        return self.after.result.metrics["goodput_per_s"] / self.before.result.metrics["goodput_per_s"]

    @property
    def disturbed_by(self) -> str:
        """The disturbance of the first of the two trials that was disturbed; empty if there is none."""
        return self.before.disturbed_by or self.after.disturbed_by

    @property
    def moved(self) -> bool:
        """True if another bottleneck is named, or one of its figures has changed."""
        if self.after.named is not self.before.named:
            return True
        pairs = ((each.result.metrics.get(name, 0.0) for each in (self.before, self.after)) for name in FIGURES)
        return any(max(pair) > MOVED * min(pair) for pair in map(tuple, pairs))

    def __str__(self) -> str:
        return f"{self.followed.done}: {self.gain:.2f} times as much; {self.before}; then {self.after}"


def sleeping_threads(count: int) -> RealCase:
    expected = B.POOL_TOO_SMALL if count < 64 else B.NONE
    return gunicorn(f"{count} threads sleep", expected, "sleep", 1, *THREADS, str(count))


def sleeping_processes(count: int) -> RealCase:
    return gunicorn(f"{count} processes sleep", B.POOL_TOO_SMALL, "sleep", 1, "-w", str(count))


def on_all(case: RealCase) -> RealCase:
    return replace(case, cpus="all")


def roomy(case: RealCase) -> RealCase:
    """The case with a JVM heap of 512 MiB."""
    command = tuple("-Xmx512m" if word == "-Xmx64m" else word for word in case.command)
    return replace(case, command=command)


SLOW_ACCEPT = Case(
    "accept: slow", f"{EACH} --backlog 1 --accept-delay 10ms", users(32, keep_alive=False), B.ACCEPT_BACKLOG
)
BURNT = Case("host: beside a pool", f"{FIXED} 4 --cpu 2ms", users(16), B.HOST_CPU, burners=(0, 0))
TURNS_AWAY = "--model bounded --core {0} --max {0} --queue 0 --policy abort --wait 10ms"
COMPUTES = gunicorn("2 processes compute", B.SUBJECT_CPU, "cpu", 1, "-w", "2")
HELD = replace(COMPUTES, expected=B.CPU_QUOTA)
ALONE = go("computes", B.SUBJECT_CPU, "cpu", GOMAXPROCS="1")
READS = little_memory(gunicorn("16 threads read a file", B.MEMORY, "pages", 20, *THREADS, "16"))
SYNCED = slow_disk(gunicorn("16 threads sync a journal", B.DISK, "fsync", 16, *THREADS, "16"))
PROXY = replace(go("calls a server that serves 4", B.DOWNSTREAM, "proxy"), backend=4)
CALLING = replace(
    gunicorn("64 threads call a server that serves 4", B.DOWNSTREAM, "proxy", 1, *THREADS, "64"), backend=4
)
FOLLOWED: tuple[Followed, ...] = (
    Followed(sleeping_threads(4), sleeping_threads(64), "64 threads"),
    Followed(sleeping_processes(2), sleeping_processes(8), "8 processes"),
    Followed(
        jdk("4 threads sleep", B.POOL_TOO_SMALL, "sleep", threads=4),
        jdk("64 threads sleep", B.NONE, "sleep", threads=64),
        "64 threads",
    ),
    Followed(
        uvicorn("a pool of 4 behind the loop", B.POOL_TOO_SMALL, "pool", 4),
        uvicorn("a pool of 64 behind the loop", B.NONE, "pool", 64),
        "64 threads",
    ),
    Followed(
        Case("pool: 4 threads sleep, open load", f"{FIXED} 4 --wait 10ms", rate(600), B.POOL_TOO_SMALL),
        Case("pool: 8 threads sleep, open load", f"{FIXED} 8 --wait 10ms", rate(600), B.NONE),
        "8 threads",
    ),
    Followed(
        Case("pool: turns away", TURNS_AWAY.format(8), rate(1200), B.POOL_TOO_SMALL),
        Case("pool: turns few away", TURNS_AWAY.format(16), rate(1200), B.NONE),
        "16 threads",
    ),
    Followed(
        uvicorn("a loop blocked", B.EVENT_LOOP_BLOCKED, "blocked", 1),
        uvicorn("a loop and a pool", B.SUBJECT_CPU, "moved", 32),
        "the blocking call in a pool",
    ),
    Followed(
        node("a loop blocked", B.EVENT_LOOP_BLOCKED, "blocked"),
        node("a timer", B.NONE, "moved"),
        "a timer that does not block",
    ),
    Followed(
        uvicorn("one loop computes, two CPUs", B.EVENT_LOOP_BLOCKED, "cpu", 1, cpus="all"),
        uvicorn("two loops compute, two CPUs", B.SUBJECT_CPU, "cpu", 1, "--workers", "2", cpus="all"),
        "2 processes",
    ),
    Followed(
        on_all(node("one loop computes, two CPUs", B.EVENT_LOOP_BLOCKED, "cpu")),
        on_all(node("two loops compute, two CPUs", B.SUBJECT_CPU, "cpu", processes=2)),
        "2 processes",
    ),
    Followed(COMPUTES, on_all(COMPUTES), "2 CPUs"),
    Followed(ALONE, on_all(go("computes, two Ps", B.SUBJECT_CPU, "cpu")), "GOMAXPROCS 2 and 2 CPUs"),
    Followed(
        gunicorn("16 threads, a lock", B.LOCK, "lock", 1, *THREADS, "16"),
        gunicorn("16 threads, 16 locks", B.SUBJECT_CPU, "lock", 16, *THREADS, "16"),
        "split into 16 locks",
    ),
    Followed(
        uvicorn("a semaphore of 4", B.HIDDEN_LIMIT, "semaphore", 4),
        uvicorn("a semaphore of 32", B.HIDDEN_LIMIT, "semaphore", 32),
        "32 at once",
    ),
    Followed(
        gunicorn("greenlets, a semaphore of 4", B.HIDDEN_LIMIT, "semaphore", 4, "-k", "gevent"),
        gunicorn("greenlets, a semaphore of 32", B.HIDDEN_LIMIT, "semaphore", 32, "-k", "gevent"),
        "32 at once",
    ),
    Followed(
        go("a semaphore of 4", B.HIDDEN_LIMIT, "semaphore", 4),
        go("a semaphore of 32", B.HIDDEN_LIMIT, "semaphore", 32),
        "32 at once",
    ),
    Followed(
        jdk("a semaphore of 4", B.HIDDEN_LIMIT, "semaphore", 4),
        jdk("a semaphore of 32", B.HIDDEN_LIMIT, "semaphore", 32),
        "32 at once",
    ),
    Followed(
        replace(node("4 connections to a server that serves 64", B.HIDDEN_LIMIT, "connections", 4), backend=64),
        replace(node("64 connections to a server that serves 64", B.NONE, "connections", 64), backend=64),
        "64 connections",
    ),
    Followed(PROXY, replace(PROXY, backend=64, expected=B.SUBJECT_CPU), "a server that serves 64"),
    Followed(CALLING, replace(CALLING, backend=64, expected=B.SUBJECT_CPU), "a server that serves 64"),
    Followed(
        jdk("Nagle's algorithm", B.DELAYED_ACK, "none", nodelay=False),
        jdk("no delay", B.SUBJECT_CPU, "none"),
        "TCP_NODELAY",
    ),
    Followed(
        jdk("Nagle's algorithm, sleeps", B.DELAYED_ACK, "sleep", nodelay=False),
        jdk("no delay, sleeps", B.NONE, "sleep"),
        "TCP_NODELAY",
    ),
    Followed(
        jdk("garbage", B.GARBAGE_COLLECTION, "garbage"),
        roomy(jdk("garbage, a larger heap", B.SUBJECT_CPU, "garbage")),
        "-Xmx512m instead of -Xmx64m",
    ),
    Followed(
        few_descriptors(go("sleeps", B.NONE, "sleep"), "40 descriptors", 40),
        go("sleeps, many descriptors", B.NONE, "sleep"),
        "no limit of open files",
    ),
    Followed(allowed(0.5, HELD), allowed(1.5, HELD), "a quota of 1.5 CPUs"),
    Followed(SYNCED, replace(SYNCED, writes_per_s=0, expected=B.NONE), "a faster disk"),
    Followed(READS, replace(READS, memory_mib=0, expected=B.NONE), "as much memory as it reads"),
    Followed(
        SLOW_ACCEPT,
        replace(SLOW_ACCEPT, load=users(32), expected=B.SUBJECT_CPU),
        "connections kept alive",
    ),
    Followed(BURNT, replace(BURNT, burners=(), expected=B.SUBJECT_CPU), "the other programs stopped"),
    Followed(
        go("sleeps", B.NONE, "sleep", count=16), go("sleeps, twice the users", B.NONE, "sleep", count=32), "32 users"
    ),
)


def outcome(followed: Followed) -> Outcome:
    """Runs both cases, each until the machine does not disturb it, up to a limit."""
    before, after = try_all((followed.before, followed.after))
    return Outcome(followed, before, after)


def table(outcomes: Iterable[Outcome]) -> str:
    rows = [
        "| planted | named | advice followed by | served, /s | then, /s | times | named then |",
        "|---|---|---|---|---|---|---|",
    ]
    for each in outcomes:
        before, after = (tried.result.metrics["goodput_per_s"] for tried in (each.before, each.after))
        rows.append(
            f"| {each.followed.before.name} | `{each.before.named}` | {each.followed.done} | {before:,.0f} | "
            f"{after:,.0f} | {each.gain:.1f} | {f'`{each.after.named}`' if each.after.named else 'no name'} |"
        )
    return "\n".join(rows)


def main() -> None:
    fair = []
    for followed in FOLLOWED:
        if all(getattr(case, "installed", True) for case in (followed.before, followed.after)):
            found = outcome(followed)
            sys.stderr.write(f"{found}\n")
            if not found.disturbed_by:
                fair.append(found)
    when = f"{datetime.now(UTC):%Y-%m-%d}, {machine()}"
    sys.stdout.write(f"{when}\n\n{table(fair)}\n")


if __name__ == "__main__":
    main()
