"""The wire contract seen from the control plane: specs and commands that go to engine processes, events that come back.

Mirrors engine/src/contract/{spec,events}.rs field by field (`protocol/*.schema.json`; a contract test holds both to the
same examples). While a trial runs, lines are copied to disk as they came: `kind_of` looks at a line without decoding
it. All times are integer ns; instants are CLOCK_MONOTONIC, which every process of one host shares.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

PROTOCOL = 1
SAMPLE_EVERY_NS = 100_000_000  # of a probe, unless it is told otherwise


class Wire(BaseModel):
    """Base of all messages: exact types, unknown keys refused, values never change."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


Count = Annotated[int, Field(ge=0, lt=2**64)]
Cpus = tuple[Count, ...]


# --- specs: the first line on stdin -----------------------------------------------------------------------------------


class ConstantTime(Wire):
    kind: Literal["constant"] = "constant"
    ns: Count


class UniformTime(Wire):
    kind: Literal["uniform"] = "uniform"
    min_ns: Count
    max_ns: Count


class ExponentialTime(Wire):
    kind: Literal["exponential"] = "exponential"
    mean_ns: Count


Time = Annotated[ConstantTime | UniformTime | ExponentialTime, Field(discriminator="kind")]
NO_TIME = ConstantTime(ns=0)


class Tls(Wire):
    ca_file: str | None = None
    insecure: bool = False
    server_name: str | None = None


class Target(Wire):
    """`url` has no path; `source_addresses` are dealt to connections in turn."""

    url: str
    addresses: tuple[str, ...] = ()
    source_addresses: tuple[str, ...] = ()
    tls: Tls = Tls()
    allow_remote: bool = False


class Checks(Wire):
    status: tuple[Annotated[int, Field(ge=0, lt=2**16)], ...] = ()
    body_contains: tuple[str, ...] = ()


class TextMessage(Wire):
    kind: Literal["text"] = "text"
    text: str


class BinaryMessage(Wire):
    kind: Literal["binary"] = "binary"
    base64: str


class EventMessage(Wire):
    kind: Literal["event"] = "event"
    event: str
    data: str
    answer: str | None = None


class CallMessage(Wire):
    kind: Literal["call"] = "call"
    event: str
    data: str


class PublishMessage(Wire):
    kind: Literal["publish"] = "publish"
    channel: str
    data: str


Message = Annotated[
    TextMessage | BinaryMessage | EventMessage | CallMessage | PublishMessage, Field(discriminator="kind")
]


class Step(Wire):
    """A request; with `ConnectionPolicy.websocket` a message. `answered` False: one-way."""

    name: str
    method: str = "GET"
    path: str = "/"
    headers: tuple[tuple[str, str], ...] = ()
    body: str | None = None
    message: Message | None = None
    answered: bool = True
    checks: Checks = Checks()
    think: Time | None = None


class Closed(Wire):
    kind: Literal["closed"] = "closed"
    users: Count
    think: Time = NO_TIME
    ramp_ns: Count = 0
    requests_per_user: Count | None = None
    pace: Time | None = None


class Ramp(Wire):
    from_per_s: float
    over_ns: Count


class Open(Wire):
    kind: Literal["open"] = "open"
    arrivals: Literal["constant", "poisson"]
    rate_per_s: float
    ramp: Ramp | None = None
    max_in_flight: Count
    think: Time = NO_TIME


Model = Annotated[Closed | Open, Field(discriminator="kind")]


class MatchByOrder(Wire):
    kind: Literal["order"] = "order"


class MatchById(Wire):
    kind: Literal["id"] = "id"
    after: str


class Tally(Wire):
    label_after: str | None = None
    count_after: str


Dialect = Literal["plain", "socketcluster14", "socketcluster20"]
DIALECTS: tuple[Dialect, ...] = ("plain", "socketcluster14", "socketcluster20")


class WebSocket(Wire):
    """Each user holds one, and steps are messages on it."""

    path: str = "/"
    headers: tuple[tuple[str, str], ...] = ()
    subprotocols: tuple[str, ...] = ()
    dialect: Dialect = "plain"
    matching: Annotated[MatchByOrder | MatchById, Field(discriminator="kind")] = MatchByOrder()
    unsolicited: tuple[str, ...] = ()
    greetings: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()
    stamp_after: str | None = None
    tally: Tally | None = None
    message_bytes_max: Count = 16 * 2**20
    rejoin_after_ns: Count | None = None


class ConnectionPolicy(Wire):
    keep_alive: bool = True
    pipeline: Count = 1
    websocket: WebSocket | None = None


class Timeouts(Wire):
    connect_ns: Count
    request_ns: Count


DEFAULT_TIMEOUTS = Timeouts(connect_ns=5_000_000_000, request_ns=30_000_000_000)


class Phases(Wire):
    """`warmup_ns` None: until the `measure` command; `measure_ns` None: until all users have left, or `drain`."""

    warmup_ns: Count | None = None
    measure_ns: Count | None = None
    drain_ns: Count
    deadline_ns: Count
    go_at_once: bool = False


class LoadSpec(Wire):
    """One engine process's share of a load."""

    protocol: Count = PROTOCOL
    target: Target
    scenario: tuple[Step, ...]
    model: Model
    connection: ConnectionPolicy = ConnectionPolicy()
    timeouts: Timeouts = DEFAULT_TIMEOUTS
    phases: Phases
    threads: Count = 1
    cpus: Cpus = ()
    precision_ns: Count = 100_000
    interval_ns: Count = 100_000_000
    histogram_every: Count = 10
    seed: Count = 0
    first_user: Count = 0


class Launch(Wire):
    """A command that the probe starts, watches and ends together with everything it forked."""

    name: str
    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    cwd: str | None = None
    log_file: str
    cpus: Cpus = ()
    stop_signal: int = 15
    grace_ns: Count = 5_000_000_000


class Watch(Wire):
    name: str
    pid: int


class ScrapePage(Wire):
    """A Prometheus text page, read again and again; `names`: metrics whose series are told of."""

    url: str
    interval_ns: Count = 1_000_000_000
    timeout_ns: Count = 1_000_000_000
    names: tuple[str, ...]


class StatsdSink(Wire):
    """Where a subject may push metrics to: `udp` an address with a port, `unix` the path of a socket; at least one."""

    udp: str | None = None
    unix: str | None = None
    interval_ns: Count = 1_000_000_000


class ProbeSpec(Wire):
    """`host_cpus`: whose time the host samples add up; empty: those that the probe was allowed when it started."""

    protocol: Count = PROTOCOL
    launch: Launch | None = None
    watch: tuple[Watch, ...] = ()
    interval_ns: Count = SAMPLE_EVERY_NS
    ports: tuple[Annotated[int, Field(ge=0, lt=2**16)], ...] = ()
    scrape: ScrapePage | None = None
    statsd: StatsdSink | None = None
    exact_counts: bool = True
    cpus: Cpus = ()
    host_cpus: Cpus = ()


# --- commands: every later line on stdin ------------------------------------------------------------------------------


class Go(Wire):
    type: Literal["go"] = "go"
    at_ns: Count


class StartMeasure(Wire):
    type: Literal["measure"] = "measure"
    at_ns: Count


class Drain(Wire):
    type: Literal["drain"] = "drain"


class WatchAlso(Wire):
    type: Literal["watch"] = "watch"
    name: str
    pid: int


class Stop(Wire):
    type: Literal["stop"] = "stop"


Command = Annotated[Go | StartMeasure | Drain | WatchAlso | Stop, Field(discriminator="type")]


# --- events: lines on stdout ------------------------------------------------------------------------------------------

PhaseName = Literal["warmup", "measure", "drain"]
OUTCOMES = (
    "ok",
    "connect_refused",
    "connect_timeout",
    "connect_failed",
    "tls_failed",
    "reset",
    "closed_early",
    "timeout",
    "bad_response",
    "status_rejected",
    "check_failed",
    "no_descriptors",
    "no_ports",
    "unfinished",
    "handshake_refused",
    "violation",
)
Outcome = Literal[
    "ok",
    "connect_refused",
    "connect_timeout",
    "connect_failed",
    "tls_failed",
    "reset",
    "closed_early",
    "timeout",
    "bad_response",
    "status_rejected",
    "check_failed",
    "no_descriptors",
    "no_ports",
    "unfinished",
    "handshake_refused",
    "violation",
]
Outcomes = Mapping[Outcome, Count]


class Hello(Wire):
    type: Literal["hello"]
    protocol: Count
    version: str
    pid: Count
    monotonic_ns: Count
    wall_ns: Count
    descriptor_limit: Count


class Armed(Wire):
    type: Literal["armed"]
    at_ns: Count


class PhaseBegan(Wire):
    type: Literal["phase"]
    phase: PhaseName
    at_ns: Count


class Interval(Wire):
    """Counts are events within [start, end); `*_now` are levels at its end; times are sums over `ok` requests. The last
    four are those of a WebSocket load."""

    type: Literal["interval"]
    start_ns: Count
    end_ns: Count
    phase: PhaseName
    scheduled: Count
    sent: Count
    dropped: Count
    outcomes: Outcomes
    in_flight_now: Count
    connections_now: Count
    users_now: Count
    response_time_ns_sum: Count
    response_time_ns_max: Count
    service_time_ns_sum: Count
    send_lag_ns_max: Count
    cpu_ns: Count
    response_time_ns: str | None = None
    joined_now: Count | None = None
    drops: Count | None = None
    joins_failed: Count | None = None
    delivered: Count | None = None


class Counts(Wire):
    """scheduled == sent + dropped; sent == sum of outcomes."""

    scheduled: Count
    sent: Count
    dropped: Count
    outcomes: Outcomes


class Times(Wire):
    """Histograms, base64 of HdrHistogram V2-deflate, ns."""

    response_time_ns: str
    service_time_ns: str
    failed_time_ns: str
    send_lag_ns: str
    dropped_wait_ns: str


class StepSummary(Wire):
    name: str
    outcomes: Outcomes
    response_time_ns: str
    service_time_ns: str


class Window(Wire):
    """What ended within the measured window, whenever it was intended, and what its edges cut: the ages of requests in
    flight and of pauses under way. user_ns x pipeline == time in system + think - carried in + carried out."""

    outcomes: Outcomes
    bytes_received: Count
    bytes_sent: Count
    time_in_system_ns_sum: Count
    think_ns_sum: Count
    user_ns: Count
    carried_in_ns_sum: Count
    carried_out_ns_sum: Count
    unanswered: Count


class Connections(Wire):
    opened: Count
    failed: Count
    closed_by_peer: Count
    open_max: Count
    connect_time_ns: str


class WebSocketSummary(Wire):
    """Of the whole run, but `*_in_window`. `joined` counts `rejoined` too; `drops`: of joined users, by reason;
    `tallies`: the highest count that an answer held, by label."""

    joins_started: Count
    joined: Count
    rejoined: Count
    joins_failed: Outcomes
    join_time_ns: str
    drops: dict[str, Count]
    close_codes: dict[str, Count]
    messages_received: Count
    unsolicited: Count
    unmatched: Count
    published: Count
    delivered: Count
    delivery_time_ns: str
    published_in_window: Count
    delivered_in_window: Count
    tallies: dict[str, Count]


class Summary(Wire):
    """An engine's last line: the whole run (`total`), the requests intended in the window (`cohort`), the window."""

    type: Literal["summary"]
    go_ns: Count
    measure_start_ns: Count
    measure_end_ns: Count
    end_ns: Count
    total: Counts
    cohort: Counts
    cohort_times: Times
    steps: tuple[StepSummary, ...]
    window: Window
    connections: Connections
    cpu_user_ns: Count
    cpu_system_ns: Count
    thread_cpu_ns: tuple[Count, ...]
    max_rss_bytes: Count
    rejected_statuses: dict[str, Count] = {}
    websocket: WebSocketSummary | None = None
    ended_by: str


class ErrorEvent(Wire):
    """`kind`: spec, limit, resolve, internal, launch."""

    type: Literal["error"]
    kind: str
    message: str


LoadEvent = Annotated[Hello | Armed | PhaseBegan | Interval | Summary | ErrorEvent, Field(discriminator="type")]


class Launched(Wire):
    type: Literal["launched"]
    name: str
    pid: int
    at_ns: Count


class TreeSample(Wire):
    name: str
    processes_now: Count
    threads_now: Count
    threads_started: Count | None = None
    cpu_user_ns: Count
    cpu_system_ns: Count
    rss_bytes_now: Count
    pss_bytes_now: Count | None = None
    context_switches: Count | None = None
    voluntary_switches: Count
    involuntary_switches: Count
    run_wait_ns: Count
    minor_faults: Count
    major_faults: Count
    descriptors_now: Count
    descriptors_left_now: Count | None = None
    sockets_now: Count


class HostSample(Wire):
    """CPU times are those of the spec's `host_cpus`; everything else is the whole host's."""

    cpu_busy_ns: Count
    cpu_idle_ns: Count
    cpu_steal_ns: Count
    context_switches: Count
    forks: Count
    runnable_now: Count
    load_average_1m: float
    memory_available_bytes_now: Count
    psi_cpu_some_ns: Count | None = None
    psi_memory_some_ns: Count | None = None
    psi_io_some_ns: Count | None = None
    listen_overflows: Count
    listen_drops: Count
    accept_queue_now: Count
    accept_queue_limit: Count


class Sample(Wire):
    type: Literal["sample"]
    at_ns: Count
    trees: tuple[TreeSample, ...]
    host: HostSample


WaitKind = Literal["lock", "sleep", "socket", "poll", "disk", "memory", "other"]


class PoolSample(Wire):
    """Counters are cumulative; `blocked_on_samples` too: observations of a blocked thread by what it waited on (a
    kind's growth over the growth of all is its share of the blocked time; empty where the kernel does not tell).
    `on_cpu_ns_max`: the most that one thread ran since the last event. Recordings of older engines have neither."""

    pool: str
    threads_now: Count
    on_cpu_ns: Count
    run_wait_ns: Count
    blocked_ns: Count
    voluntary_switches: Count
    involuntary_switches: Count
    states_now: Mapping[str, Count]
    wait_channels_now: Mapping[str, Count]
    blocked_on_samples: Mapping[WaitKind, Count] = {}
    on_cpu_ns_max: Count = 0


class ThreadSample(Wire):
    """`name`: as the kernel knows it, 15 bytes at most; counters are its own since it was first met."""

    tid: Count
    name: str
    on_cpu_ns: Count
    run_wait_ns: Count
    switches: Count


class Threads(Wire):
    """`threads`: those that ran since the last event, the busiest first."""

    type: Literal["threads"]
    at_ns: Count
    tree: str
    pools: tuple[PoolSample, ...]
    threads: tuple[ThreadSample, ...] = ()


class Collector(Wire):
    name: str
    count: Count
    time_ns: Count


class Jvm(Wire):
    """One JVM of the launched tree, as it tells of itself."""

    type: Literal["jvm"]
    at_ns: Count
    tree: str
    pid: Count
    heap_used_bytes_now: Count
    heap_committed_bytes_now: Count
    collectors: tuple[Collector, ...]
    safepoint_ns: Count | None = None
    threads_live_now: Count
    threads_daemon_now: Count
    threads_peak: Count
    threads_started: Count


class Scrape(Wire):
    """One reading of the metrics page: values by series, as on the page."""

    type: Literal["scrape"]
    at_ns: Count
    took_ns: Count
    values: Mapping[str, float]


class ScrapeFailed(Wire):
    type: Literal["scrape_failed"]
    at_ns: Count
    took_ns: Count
    reason: str


class Statsd(Wire):
    """What the sink has taken in since the start: values by series, named as on a Prometheus page; `updates`: values
    accepted; `malformed`: lines refused; `dropped`: datagrams that the kernel threw away."""

    type: Literal["statsd"]
    at_ns: Count
    values: Mapping[str, float]
    packets: Count
    bytes: Count
    updates: Count
    malformed: Count
    dropped: Count


class Exited(Wire):
    """The launched process ended; rusage covers it and its waited-for children."""

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
    """The probe's last line; `killed`: processes of the launched tree that had to be killed."""

    type: Literal["end"]
    at_ns: Count
    killed: Count
    cpu_ns: Count
    samples: Count
    samples_late: Count


ProbeEvent = Annotated[
    Hello | Launched | Sample | Threads | Jvm | Scrape | ScrapeFailed | Statsd | Exited | End | ErrorEvent,
    Field(discriminator="type"),
]

LOAD_EVENT: TypeAdapter[Hello | Armed | PhaseBegan | Interval | Summary | ErrorEvent] = TypeAdapter(LoadEvent)
PROBE_EVENT: TypeAdapter[
    Hello | Launched | Sample | Threads | Jvm | Scrape | ScrapeFailed | Statsd | Exited | End | ErrorEvent
] = TypeAdapter(ProbeEvent)
COMMAND: TypeAdapter[Go | StartMeasure | Drain | WatchAlso | Stop] = TypeAdapter(Command)


@dataclass(frozen=True)
class WarmupSeries:
    """What a trial has shown so far, fleet-merged, one entry per interval since `go`; what decides that it is steady
    sees only this.

    `rate_per_s`: requests that ended ok per second; `response_time_ns_mean`: of those, NaN where there was none."""

    interval_s: float
    rate_per_s: tuple[float, ...]
    response_time_ns_mean: tuple[float, ...]
    elapsed_s: float


_TYPE = b'{"type":"'


def kind_of(line: bytes) -> str:
    """An event line's type without decoding the line; empty where the line does not begin with it."""
    if not line.startswith(_TYPE):
        return ""
    return line[len(_TYPE) : line.find(b'"', len(_TYPE))].decode("ascii", "replace")


def encode(message: Wire) -> bytes:
    """One line, newline included; absent values are left out."""
    return message.model_dump_json(exclude_none=True).encode() + b"\n"
