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
    type: Literal["launched"]
    name: str
    pid: int
    at_ns: Count


@as_message
class TreeSample(TypedDict):
    name: str
    processes_now: Count
    threads_now: Count
    threads_started: NotRequired[Count | None]
    cpu_user_ns: Count
    cpu_system_ns: Count
    rss_bytes_now: Count
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
    """A sample of the host. CPU times are those of the spec's `host_cpus`; all else is of the whole host."""

    cpu_busy_ns: Count
    cpu_idle_ns: Count
    cpu_steal_ns: Count
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
    type: Literal["sample"]
    at_ns: Count
    trees: list[TreeSample]
    host: HostSample


WaitKind = Literal["lock", "sleep", "socket", "poll", "disk", "memory", "other"]


@as_message
class PoolSample(TypedDict):
    """A sample of a pool of threads; counters are cumulative. `blocked_on_samples`: how often a blocked thread was
    observed, by the cause of its wait: the growth of one kind over the growth of all is its share of the blocked time;
    empty if the kernel does not show causes. `on_cpu_ns_max`: the longest time that one thread ran since the last
    event. Recordings of older engines have neither."""

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
    """A sample of one thread. `name`: that of the kernel, 15 bytes at most. Counters are cumulative since the thread
    was first seen. `preemptions`: the involuntary ones of `switches`. Recordings of older engines end with
    `switches`."""

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
    """The threads of a process tree. `threads`: at most 160, those that ran longest since the last event first; older
    engines list only those that ran."""

    type: Literal["threads"]
    at_ns: Count
    tree: str
    pools: list[PoolSample]
    threads: NotRequired[list[ThreadSample]]


@as_message
class Collector(TypedDict):
    name: str
    count: Count
    time_ns: Count


@as_message
class Jvm(TypedDict):
    """A sample of one JVM of the launched tree, from its own counters."""

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
    """One reading of the metrics page. `values`: by series, named as on the page."""

    type: Literal["scrape"]
    at_ns: Count
    took_ns: Count
    values: Mapping[str, float]


@as_message
class ScrapeFailed(TypedDict):
    type: Literal["scrape_failed"]
    at_ns: Count
    took_ns: Count
    reason: str


@as_message
class Statsd(TypedDict):
    """The metrics that the StatsD sink received since the start. `values`: by series, named as on a Prometheus page;
    `updates`: number of values accepted; `malformed`: lines refused; `dropped`: datagrams that the kernel dropped."""

    type: Literal["statsd"]
    at_ns: Count
    values: Mapping[str, float]
    packets: Count
    bytes: Count
    updates: Count
    malformed: Count
    dropped: Count


class Exited(Wire):
    """The launched process ended. Resource figures cover it and the children that it waited for. `asked`: the probe had
    been told to end it."""

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
    """The probe's last line. `killed`: number of processes of the launched tree that had to be killed. `log_bytes`: how
    much the launched command printed; `log_dropped_bytes`: how much of that was not kept; both are absent in older
    recordings."""

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
