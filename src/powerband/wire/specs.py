"""The messages to an engine process: its spec, which is the first line on its stdin, and the commands that follow."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from powerband.wire.dialects import Dialect
from powerband.wire.message import PROTOCOL, Count, Cpus, Wire

SAMPLE_EVERY_NS = 100_000_000  # between two samples of a probe, by default
THREADS_EVERY_NS = 1_000_000_000  # between two reports of a probe on threads, by default


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
    """The server to load. `url`: without a path; `source_addresses`: connections take these in turn."""

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
    """A request, or with `ConnectionPolicy.websocket` a message. `answered`: False for a one-way message."""

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


class WebSocket(Wire):
    """The WebSockets of a load: each user holds one, and steps are messages on it."""

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
    acknowledge_at_once: bool = False


class Timeouts(Wire):
    connect_ns: Count
    request_ns: Count


DEFAULT_TIMEOUTS = Timeouts(connect_ns=5_000_000_000, request_ns=30_000_000_000)


class Phases(Wire):
    """The lengths of the phases. `warmup_ns`: None to wait for the `measure` command; `measure_ns`: None to measure
    until all users have left, or until the `drain` command."""

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
    """A command that the probe starts, watches, and ends together with everything it forked. `cgroups`: folders of the
    cgroups that it is in from its first instruction on; None: those of the probe."""

    name: str
    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    cwd: str | None = None
    log_file: str
    cpus: Cpus = ()
    cgroups: tuple[str, ...] | None = None
    stop_signal: int = 15
    grace_ns: Count = 5_000_000_000


class Watch(Wire):
    name: str
    pid: int


class ScrapePage(Wire):
    """A Prometheus text page that the probe reads periodically. `names`: metrics whose series are reported."""

    url: str
    interval_ns: Count = 1_000_000_000
    timeout_ns: Count = 1_000_000_000
    names: tuple[str, ...]


class StatsdSink(Wire):
    """The sink to which a server may send metrics. `udp`: an address with a port; `unix`: the path of a socket; at
    least one is set."""

    udp: str | None = None
    unix: str | None = None
    interval_ns: Count = 1_000_000_000


class ProbeSpec(Wire):
    """The spec of a probe. `host_cpus`: the CPUs whose time the host samples add up; empty: those that the probe was
    allowed when it started."""

    protocol: Count = PROTOCOL
    launch: Launch | None = None
    watch: tuple[Watch, ...] = ()
    interval_ns: Count = SAMPLE_EVERY_NS
    threads_interval_ns: Count = THREADS_EVERY_NS
    ports: tuple[Annotated[int, Field(ge=0, lt=2**16)], ...] = ()
    scrape: ScrapePage | None = None
    statsd: StatsdSink | None = None
    exact_counts: bool = True
    cpus: Cpus = ()
    host_cpus: Cpus = ()


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


Command = Go | StartMeasure | Drain | WatchAlso | Stop
COMMAND: TypeAdapter[Command] = TypeAdapter(Annotated[Command, Field(discriminator="type")])
