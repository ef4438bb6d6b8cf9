"""The table of bottlenecks, with the names, colour and advice of each. Values only; the rules that find them are in
`analyze/trial/bottleneck/`.

The schema of `analysis.json`, the report's palette and a table of docs/methods/bottlenecks.md are made from it. A new
bottleneck needs a row here, a rule there and a planted case; `make reference` does the rest.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class BottleneckName(StrEnum):
    """The one resource that limits a trial's throughput, or none; in the order of the palette.

    `words`: a clause that follows `with threads=8 ...`. `short`: the name for a column of a table. `colour`: hue,
    saturation and lightness (degrees, %, %) on a light page; None is grey. The hue says what is saturated: blue the
    CPU, violet threads, orange a lock, green a dependency, gold memory, red something outside of the server. `advice`:
    the general remedy; a rule fills in `{noun}`, `{a_noun}` and `{pool}`, or gives better advice if its figures allow
    it. `meaning`: what `short` says, for the legend of a table."""

    words: str
    short: str
    colour: tuple[int, int, int] | None
    advice: str
    meaning: str

    def __new__(  # noqa: PLR0917 - each row has its values by position
        cls, name: str, words: str, short: str, colour: tuple[int, int, int] | None, advice: str, meaning: str
    ) -> Self:
        member = str.__new__(cls, name)
        member._value_ = name
        member.words, member.short, member.colour, member.advice = words, short, colour, advice
        member.meaning = meaning
        return member

    SUBJECT_CPU = (
        "subject_cpu", "CPU is the limit", "CPU", (198, 62, 36),
        "give the server more CPUs, or make {a_noun} cheaper; more threads do not help",
        "the server uses all the CPU time that it may",
    )  # fmt: skip
    CPU_QUOTA = (
        "cpu_quota", "the CPU quota of its cgroup is the limit", "CPU quota", (236, 40, 58),
        "raise the quota (host.cpu_quota, docker's --cpus, Kubernetes' limits.cpu, systemd's CPUQuota=), or "
        "make {a_noun} cheaper; more threads do not help",
        "the quota stops the server, though CPUs may be idle",
    )  # fmt: skip
    TOO_MANY_RUNNABLE_THREADS = (
        "too_many_runnable_threads", "too many threads compete for the CPU", "too many threads", (222, 52, 46),
        "use fewer threads: a few for each CPU serve as much, with fewer switches and less memory",
        "many threads are ready to run for each CPU",
    )  # fmt: skip
    WAKE_UPS = (
        "wake_ups", "threads sleep and are woken too often", "wake-ups", (184, 48, 34),
        "let a thread do more before it sleeps (larger batches, more work in flight), or use fewer threads",
        "threads work in turns, and waking them costs CPU time",
    )  # fmt: skip
    ONE_THREAD = (
        "one_thread", "one thread is the limit", "one thread", (208, 44, 52),
        "spread its work over more threads, or make it cheaper",
        "one thread is always busy while CPUs are idle",
    )  # fmt: skip
    POOL_TOO_SMALL = (
        "pool_too_small", "the pool is too small", "pool too small", (288, 34, 46),
        "give {pool} more threads",
        "more requests at once than its pool has threads",
    )  # fmt: skip
    EVENT_LOOP_BLOCKED = (
        "event_loop_blocked", "the event loop is never idle", "event loop", (318, 42, 44),
        "run more event loops where CPUs are idle, and move what blocks off the loop, to a pool of threads or a call "
        "that does not block",
        "the thread that serves many connections never waits for work",
    )  # fmt: skip
    LOCK = (
        "lock", "a lock is the limit", "lock", (24, 70, 42),
        "hold the lock for less, split it, or do without; more threads only wait longer",
        "threads wait for what only one may do at a time",
    )  # fmt: skip
    DOWNSTREAM = (
        "downstream", "a dependency is the limit", "dependency", (96, 44, 34),
        "give the dependency (a connection pool, a database, another server) more capacity; more threads only wait "
        "longer",
        "threads wait for another server, such as a database",
    )  # fmt: skip
    HIDDEN_LIMIT = (
        "hidden_limit", "a semaphore, a connection pool or a rate limit inside the server is the limit", "hidden limit",
        (262, 40, 50),
        "find what lets only so many in at once (a semaphore, a connection pool, a limit in the server's settings), "
        "and raise it",
        "requests wait to be let in, though threads are free",
    )  # fmt: skip
    DELAYED_ACK = (
        "delayed_ack", "responses wait for a delayed acknowledgement", "delayed ACK", (128, 34, 42),
        "set TCP_NODELAY on the server's connections, or let it write the head and body of a response at once",
        "parts of a response wait until the client acknowledges others",
    )  # fmt: skip
    SLOW_ANSWERS = (
        "slow_answers", "some responses are slow before any resource is saturated", "slow responses", (336, 40, 44),
        "find what holds single requests up (a collector that pauses, a disk that is synced, batches, timers); more "
        "capacity does not help",
        "some responses are slow, though nothing is saturated",
    )  # fmt: skip
    ACCEPT_BACKLOG = (
        "accept_backlog", "connections are accepted too slowly", "accept queue", (152, 46, 32),
        "accept faster (an acceptor that does nothing else, or several), or keep connections alive",
        "connections wait to be accepted",
    )  # fmt: skip
    DESCRIPTORS = (
        "descriptors", "file descriptors run out", "descriptors", (166, 30, 42),
        "raise the server's limit of open files (ulimit -n, LimitNOFILE)",
        "the server can open no more connections or files",
    )  # fmt: skip
    GARBAGE_COLLECTION = (
        "garbage_collection", "garbage collection is the limit", "GC", (44, 66, 36),
        "give the heap more room, allocate less for each {noun}, or choose another collector",
        "collecting garbage stops the server, or takes its CPU time",
    )  # fmt: skip
    MEMORY = (
        "memory", "memory is the limit", "memory", (56, 54, 30),
        "give the machine or the container more memory, or keep buffers instead of giving them back for each {noun}",
        "threads wait for pages of memory",
    )  # fmt: skip
    DISK = (
        "disk", "the disk is the limit", "disk", (72, 52, 34),
        "write and sync less often (several requests' data at once), hold no lock meanwhile, or use a faster disk; "
        "where it takes more at once, more threads help",
        "threads wait for the disk",
    )  # fmt: skip
    GENERATOR = (
        "generator", "the load generator is the limit", "load generator", (2, 58, 42),
        "give it more threads (load.engine_threads) or CPUs, or lower the load",
        "it could not send all requests in time; the server may serve more",
    )  # fmt: skip
    HOST_CPU = (
        "host_cpu", "other programs take the CPU", "other programs", (348, 48, 50),
        "stop the other programs, or move the trial to a quieter machine",
        "they used CPU time that the server lacked",
    )  # fmt: skip
    NONE = (
        "none", "no resource is saturated at this load", "none yet", None,
        "raise the load to find the first bottleneck",
        "no resource is saturated at this load",
    )  # fmt: skip
