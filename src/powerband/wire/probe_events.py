"""The events of `powerband-engine probe`: the life of a server, and samples of its processes, threads, JVMs and series.

The few events of its life are decoded; samples are read back as plain JSON, so they are typed dicts, which cost nothing
at run time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, NotRequired

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict  # pydantic takes the one of typing from Python 3.12 on only

from powerband.wire.message import Count, ErrorEvent, Hello, Wire, as_message


class Launched(Wire):
    """The probe started the command (`type`: launched) at `at_ns`. `name`: that of its tree in later events; `pid`: its
    process."""

    type: Literal["launched"]
    name: str
    pid: int
    at_ns: Count


@as_message
class TreeSample(TypedDict):
    """The process tree `name` at one instant, summed over its processes. Fields `*_now` are levels, all others count
    since the tree was first seen. None, or an absent field: the kernel does not show it, or there is no such limit.

    `processes_now`, `threads_now`: how many live; `threads_started`: threads created, ended ones included.
    `cpu_user_ns`, `cpu_system_ns`: CPU time of all threads; `context_switches`: all of them, counted by perf.
    `voluntary_switches`, `involuntary_switches`, `run_wait_ns` (time in which threads waited for a CPU), `minor_faults`
    and `major_faults` (page faults): sums over what lives, plus the last seen values of what ended; with over 64
    threads they are read about once a second.

    `rss_bytes_now`, `pss_bytes_now`: resident and proportional set size; `anonymous_bytes_now`: what of the first is
    neither of files nor of shared memory, never in events of older engines; `memory_left_bytes_now`: what the cgroups
    still allow. `descriptors_now`, `sockets_now`: how many are open; `descriptors_left_now`: how many the process
    nearest to its limit may still open; `threads_left_now`: how many threads may still be started. `cpus_now`: number
    of CPUs that the affinity allows; `cpu_quota_now`: mean number of CPUs that the narrowest quota allows;
    `quota_periods`, `throttled_periods`: periods of that quota since its cgroup was made, and those in which it was
    used up.
    """

    name: str
    processes_now: Count
    threads_now: Count
    threads_started: NotRequired[Count | None]
    cpu_user_ns: Count
    cpu_system_ns: Count
    rss_bytes_now: Count
    anonymous_bytes_now: NotRequired[Count | None]
    pss_bytes_now: NotRequired[Count | None]
    context_switches: NotRequired[Count | None]
    voluntary_switches: Count
    involuntary_switches: Count
    run_wait_ns: Count
    minor_faults: Count
    major_faults: Count
    descriptors_now: Count
    descriptors_left_now: NotRequired[Count | None]
    threads_left_now: NotRequired[Count | None]
    memory_left_bytes_now: NotRequired[Count | None]
    sockets_now: Count
    cpus_now: NotRequired[Count | None]
    cpu_quota_now: NotRequired[float | None]
    quota_periods: NotRequired[Count | None]
    throttled_periods: NotRequired[Count | None]


@as_message
class HostSample(TypedDict):
    """The host at one instant. Fields `*_now` are levels; counters are the kernel's own and do not start at 0.
    `cpu_busy_ns`, `cpu_idle_ns`, `cpu_steal_ns` (taken by the hypervisor): sums over the spec's `host_cpus`; all else
    is of the whole host. `cpu_interrupts_ns`: the part of `cpu_busy_ns` in interrupts, if the kernel counts it apart
    from the tasks that they interrupt. `cpu_busy_ns_each`, `cpu_steal_ns_each`: of each of these CPUs, by their
    numbers, once a second, and never in events of older engines. `context_switches`, `forks`: counts; `runnable_now`:
    tasks that run or wait for a CPU; `load_average_1m`: the kernel's; `memory_available_bytes_now`: as in
    /proc/meminfo.

    `psi_cpu_some_ns`, `psi_memory_some_ns`, `psi_io_some_ns`: time in which some task waited for CPU, memory or I/O;
    None without PSI. `listen_overflows`, `listen_drops`: connections refused by full accept queues, and all refused, in
    the probe's network namespace. `accept_queue_now`, `accept_queue_limit`: connections that wait in the accept queues
    of the watched ports, and the sum of the limits of these.
    """

    cpu_busy_ns: Count
    cpu_idle_ns: Count
    cpu_steal_ns: Count
    cpu_interrupts_ns: NotRequired[Count | None]
    cpu_busy_ns_each: NotRequired[list[Count]]
    cpu_steal_ns_each: NotRequired[list[Count]]
    context_switches: Count
    forks: Count
    runnable_now: Count
    load_average_1m: float
    memory_available_bytes_now: Count
    psi_cpu_some_ns: NotRequired[Count | None]
    psi_memory_some_ns: NotRequired[Count | None]
    psi_io_some_ns: NotRequired[Count | None]
    listen_overflows: Count
    listen_drops: Count
    accept_queue_now: Count
    accept_queue_limit: Count


@as_message
class Sample(TypedDict):
    """One reading at `at_ns` (`type`: sample) of all process `trees` and of the `host`."""

    type: Literal["sample"]
    at_ns: Count
    trees: list[TreeSample]
    host: HostSample


WaitKind = Literal["lock", "sleep", "socket", "poll", "disk", "memory", "other"]


@as_message
class PoolSample(TypedDict):
    """A pool of threads at one instant. `pool`: their name without its trailing number; `threads_now`: how many live.
    Counters are cumulative: `on_cpu_ns`, `run_wait_ns` (runnable without a CPU) and `blocked_ns` add up to the
    lifetimes of the live threads; `voluntary_switches`, `involuntary_switches`: context switches. `states_now`: threads
    by the kernel's letter (R, S, D, ...); `wait_channels_now`: sleeping threads by the kernel's wait channel, where it
    can be read.

    `blocked_on_samples`: how often a blocked thread was observed, by the cause of its wait: the growth of one kind over
    the growth of all is its share of the blocked time; empty if the kernel does not show causes. `on_cpu_ns_max`: the
    longest time that one thread ran since the last event. Recordings of older engines have neither.
    """

    pool: str
    threads_now: Count
    on_cpu_ns: Count
    run_wait_ns: Count
    blocked_ns: Count
    voluntary_switches: Count
    involuntary_switches: Count
    states_now: Mapping[str, Count]
    wait_channels_now: Mapping[str, Count]
    blocked_on_samples: NotRequired[Mapping[WaitKind, Count]]
    on_cpu_ns_max: NotRequired[Count]


@as_message
class ThreadSample(TypedDict):
    """One thread at one instant. `tid`, `name`: its id and name in the kernel, the name of 15 bytes at most; `pid`,
    `pool`: its process and its pool. Counters are cumulative since the thread was first seen: `on_cpu_ns`,
    `run_wait_ns` (runnable without a CPU), `blocked_ns`; `switches`: context switches; `preemptions`: the involuntary
    ones of these; `blocked_on_samples`: as in `PoolSample`. Recordings of older engines end with `switches`."""

    tid: Count
    name: str
    on_cpu_ns: Count
    run_wait_ns: Count
    switches: Count
    pid: NotRequired[Count]
    pool: NotRequired[str]
    preemptions: NotRequired[Count]
    blocked_ns: NotRequired[Count]
    blocked_on_samples: NotRequired[Mapping[WaitKind, Count]]


@as_message
class Threads(TypedDict):
    """The threads of the process tree `tree` at `at_ns` (`type`: threads), by pool in `pools`. `threads`: at most 160,
    those that ran longest since the last event first; older engines list only those that ran."""

    type: Literal["threads"]
    at_ns: Count
    tree: str
    pools: list[PoolSample]
    threads: NotRequired[list[ThreadSample]]


@as_message
class Collector(TypedDict):
    """The garbage collector `name` of a JVM: the `count` of its collections so far, and their total time, `time_ns`."""

    name: str
    count: Count
    time_ns: Count


@as_message
class Jvm(TypedDict):
    """One JVM of the process tree `tree` at `at_ns` (`type`: jvm), by its own counters; `pid`: its process.
    `heap_used_bytes_now`, `heap_committed_bytes_now`: as recent as the JVM keeps them
    (docs/methods/process-counters.md); `heap_left_bytes_now`: how much the old generation may still take. `collectors`:
    each garbage collector; `safepoint_ns`: time in which all threads were stopped; `compile_ns`: time of finished
    compilations, over the compilers' threads. None: the JVM does not publish it. `threads_live_now`,
    `threads_daemon_now` (daemons among these), `threads_peak`, `threads_started`: Java threads."""

    type: Literal["jvm"]
    at_ns: Count
    tree: str
    pid: Count
    heap_used_bytes_now: Count
    heap_committed_bytes_now: Count
    heap_left_bytes_now: NotRequired[Count | None]
    collectors: list[Collector]
    safepoint_ns: NotRequired[Count | None]
    compile_ns: NotRequired[Count | None]
    threads_live_now: Count
    threads_daemon_now: Count
    threads_peak: Count
    threads_started: Count


@as_message
class Scrape(TypedDict):
    """One reading of the metrics page (`type`: scrape), requested at `at_ns`; `took_ns`: until its last byte. `values`:
    by series, named as on the page, those that are finite."""

    type: Literal["scrape"]
    at_ns: Count
    took_ns: Count
    values: Mapping[str, float]


@as_message
class ScrapeFailed(TypedDict):
    """A reading of the metrics page, requested at `at_ns`, failed after `took_ns` (`type`: scrape_failed); the next
    comes on schedule. `reason`: worded as the end of a sentence."""

    type: Literal["scrape_failed"]
    at_ns: Count
    took_ns: Count
    reason: str


@as_message
class Statsd(TypedDict):
    """The metrics that the StatsD sink received from the start until `at_ns` (`type`: statsd). `values`: by series,
    named as on a Prometheus page; `packets`, `bytes`: datagrams read, and their length; `updates`: number of values
    accepted; `malformed`: lines refused; `dropped`: datagrams that the kernel dropped because the UDP socket's buffer
    was full."""

    type: Literal["statsd"]
    at_ns: Count
    values: Mapping[str, float]
    packets: Count
    bytes: Count
    updates: Count
    malformed: Count
    dropped: Count


class Exited(Wire):
    """The launched process `name` ended at `at_ns` (`type`: exited). `exit_code`: None if a signal ended it; `signal`:
    number of that signal, else None. `asked`: the probe had been ordered to end it. Resource figures cover it and the
    children that it waited for: `cpu_user_ns`, `cpu_system_ns`, `max_rss_bytes` (largest resident memory),
    `voluntary_switches`, `involuntary_switches`."""

    type: Literal["exited"]
    name: str
    at_ns: Count
    exit_code: int | None = None
    signal: int | None = None
    asked: bool
    cpu_user_ns: Count
    cpu_system_ns: Count
    max_rss_bytes: Count
    voluntary_switches: Count
    involuntary_switches: Count


class End(Wire):
    """The probe's last line, at `at_ns` (`type`: end). `killed`: number of processes of the launched tree that had to
    be killed. `cpu_ns`: CPU time of the probe; `samples`: samples taken; `samples_late`: points of their schedule
    missed, or met over half a period late. `log_bytes`: how much the launched command printed; `log_dropped_bytes`: how
    much of that was not kept; both are None without a command, and in older recordings."""

    type: Literal["end"]
    at_ns: Count
    killed: Count
    cpu_ns: Count
    samples: Count
    samples_late: Count
    log_bytes: Count | None = None
    log_dropped_bytes: Count | None = None


ProbeEvent = Hello | Launched | Sample | Threads | Jvm | Scrape | ScrapeFailed | Statsd | Exited | End | ErrorEvent
PROBE_EVENT: TypeAdapter[ProbeEvent] = TypeAdapter(Annotated[ProbeEvent, Field(discriminator="type")])
