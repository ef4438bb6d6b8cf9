"""The messages to an engine process: its spec, which is the first line on its stdin, and the commands that follow."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from powerband.wire.dialects import Dialect
from powerband.wire.message import PROTOCOL, Count, Cpus, Wire

SAMPLE_EVERY_NS = 100_000_000  # between two samples of a probe, by default
THREADS_EVERY_NS = 1_000_000_000  # between two reports of a probe on threads, by default


class ConstantTime(Wire):
    """A time that is always `ns` (`kind`: constant)."""

    kind: Literal["constant"] = "constant"
    ns: Count


class UniformTime(Wire):
    """A random time, uniform from `min_ns` to `max_ns` (`kind`: uniform)."""

    kind: Literal["uniform"] = "uniform"
    min_ns: Count
    max_ns: Count


class ExponentialTime(Wire):
    """A random time, exponential with the mean `mean_ns` (`kind`: exponential)."""

    kind: Literal["exponential"] = "exponential"
    mean_ns: Count


Time = Annotated[ConstantTime | UniformTime | ExponentialTime, Field(discriminator="kind")]
NO_TIME = ConstantTime(ns=0)


class Tls(Wire):
    """How https is verified. `ca_file`: PEM file of trusted roots, None for the Mozilla roots; `insecure`: any
    certificate is accepted; `server_name`: the name to verify and to send as SNI, None for the URL's host."""

    ca_file: str | None = None
    insecure: bool = False
    server_name: str | None = None


class Target(Wire):
    """The server to load. `url`: `http://host:port` or `https://host:port`, without a path; `tls`: for https.
    `addresses`: `IP:port` to connect to, taken in turn; empty: the URL's host is resolved once. `source_addresses`:
    local addresses, taken in turn; empty: the kernel chooses. `allow_remote`: False refuses all but loopback
    addresses."""

    url: str
    addresses: tuple[str, ...] = ()
    source_addresses: tuple[str, ...] = ()
    tls: Tls = Tls()
    allow_remote: bool = False


class Checks(Wire):
    """The conditions for a response to count as `ok`. `status`: accepted status codes, empty for 200 to 399;
    `body_contains`: texts that must all occur in the body."""

    status: tuple[Annotated[int, Field(ge=0, lt=2**16)], ...] = ()
    body_contains: tuple[str, ...] = ()


class TextMessage(Wire):
    """A text message of the dialect `plain` (`kind`: text). In `text`, as in `data` of SocketCluster's messages, `{id}`
    becomes a number unique on the connection, `{stamp}` the instant of writing in ns, and `{user}` the user's index."""

    kind: Literal["text"] = "text"
    text: str


class BinaryMessage(Wire):
    """A binary message of the dialect `plain` (`kind`: binary). `base64`: its bytes, sent as they are."""

    kind: Literal["binary"] = "binary"
    base64: str


class EventMessage(Wire):
    """A SocketCluster event without a call id (`kind`: event). `event`: its name; `data`: JSON. `answer`: the name of
    the event that answers it, None if the step is not answered."""

    kind: Literal["event"] = "event"
    event: str
    data: str
    answer: str | None = None


class CallMessage(Wire):
    """A SocketCluster call (`kind`: call), answered under its call id; an error as the answer fails the check. `event`:
    its name; `data`: JSON."""

    kind: Literal["call"] = "call"
    event: str
    data: str


class PublishMessage(Wire):
    """A SocketCluster `#publish` of `data` (JSON) to `channel` (`kind`: publish). Its answer only confirms it."""

    kind: Literal["publish"] = "publish"
    channel: str
    data: str


Message = Annotated[
    TextMessage | BinaryMessage | EventMessage | CallMessage | PublishMessage, Field(discriminator="kind")
]


class Step(Wire):
    """A request of the scenario, or with `ConnectionPolicy.websocket` a message. `name`: in results. A request has
    `method`, `path` (with its query), `headers` (names and values, sent in this order; `Host`, `Content-Length` and
    `Connection` are added if absent) and `body`; a message has `message` instead. `answered`: False for a one-way
    message, which is `ok` once written. `checks`: on the answer; `think`: the pause afterwards, None for the
    model's."""

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
    """A closed load (`kind`: closed): `users` who each send the next request once the last is answered and the pause
    `think` is over. `ramp_ns`: time over which the users start, evenly; `first_pause_ns`: longest first pause, random
    and not of messages, 0 for a random part of the pause itself; `requests_per_user`: after so many a user leaves, None
    for never. `pace`: time between two sends of a user, answered or not, over a WebSocket and without pauses; None to
    wait for answers."""

    kind: Literal["closed"] = "closed"
    users: Count
    think: Time = NO_TIME
    ramp_ns: Count = 0
    first_pause_ns: Count = 0
    requests_per_user: Count | None = None
    pace: Time | None = None


class Ramp(Wire):
    """A rate that grows linearly from `from_per_s` to the load's own over the first `over_ns`."""

    from_per_s: float
    over_ns: Count


class Open(Wire):
    """An open load (`kind`: open): arrivals on a schedule that does not wait for answers; each runs the whole scenario
    once, with pauses `think` between steps. `arrivals`: at even distances, or as a Poisson process; `rate_per_s`:
    arrivals per second of this engine; `ramp`: None for a constant rate. `max_in_flight`: most arrivals under way, each
    thread has an even share; an arrival beyond it is dropped and counted."""

    kind: Literal["open"] = "open"
    arrivals: Literal["constant", "poisson"]
    rate_per_s: float
    ramp: Ramp | None = None
    max_in_flight: Count
    think: Time = NO_TIME


Model = Annotated[Closed | Open, Field(discriminator="kind")]


class MatchByOrder(Wire):
    """Each message from the server answers the user's oldest request without an answer (`kind`: order)."""

    kind: Literal["order"] = "order"


class MatchById(Wire):
    """A message answers the request whose `{id}` follows the text `after` in it (`kind`: id); without that text, or
    with an unknown number, it answers nothing."""

    kind: Literal["id"] = "id"
    after: str


class Tally(Wire):
    """A running count in answers: the digits after the text `count_after`. The highest is kept for each label, the word
    after the text `label_after`; None: one label, the empty one."""

    label_after: str | None = None
    count_after: str


class WebSocket(Wire):
    """The WebSockets of a load: each user holds one, and steps are messages on it. `path`, `headers`, `subprotocols`
    (the preferred first): of the opening handshake; `dialect`: the protocol on top. `matching`: which answer belongs to
    which message, in the dialect `plain`; `unsolicited`: texts that mark messages from the server that answer nothing.

    A user who has joined sends `greetings`, which nothing answers; joining includes subscribing to the SocketCluster
    channels `subscribe`. `stamp_after`: the text before the instant of sending (`{stamp}`) in a message from the
    server, which makes it a delivery; None: there are none. `tally`: a count to read from answers. `message_bytes_max`:
    a longer message from the server is a violation. `rejoin_after_ns`: pause before a user without a connection joins
    again; None: it never does.
    """

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
    """How requests use connections. `keep_alive`: False for one connection a request; `pipeline`: most requests in
    flight on one connection, which each user of a closed load keeps in flight; `websocket`: None for HTTP requests.
    `acknowledge_at_once`: each part of a response is acknowledged (TCP) when read, else the kernel may wait up to 40
    ms."""

    keep_alive: bool = True
    pipeline: Count = 1
    websocket: WebSocket | None = None
    acknowledge_at_once: bool = False


class Timeouts(Wire):
    """The longest times allowed: `connect_ns` to connect (over a WebSocket: to join), `request_ns` from the sending of
    a request to the end of its response."""

    connect_ns: Count
    request_ns: Count


DEFAULT_TIMEOUTS = Timeouts(connect_ns=5_000_000_000, request_ns=30_000_000_000)


class Phases(Wire):
    """The lengths of the phases. `warmup_ns`: None to wait for the `measure` command; `measure_ns`: None to measure
    until all users have left, or until the `drain` command; `drain_ns`: the longest time that requests in flight then
    have to finish. `deadline_ns`: time after `go` at which the engine ends, whatever happens. `go_at_once`: the run
    starts without the `go` command."""

    warmup_ns: Count | None = None
    measure_ns: Count | None = None
    drain_ns: Count
    deadline_ns: Count
    go_at_once: bool = False


class LoadSpec(Wire):
    """One engine process's share of a load. `protocol`: the version of the wire contract. `target`, `scenario` (steps
    that a user goes through in order, again and again), `model`, `connection`, `timeouts`, `phases`: what is sent, how
    and for how long.

    `threads`: number of event loops; `cpus`: where they may run, empty for anywhere. `precision_ns`: how late a send
    may be to share a wake-up with others; 0: never, and the thread spins before each send. `interval_ns`: period of
    `interval` events, of which every `histogram_every`th has a histogram. `seed`: of every random choice, the same in
    all engines of a load; `first_user`: index among all engines' users (closed load) or arrival streams (open load) of
    this engine's first.
    """

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
    """A command that the probe starts, watches, and ends together with everything it forked. `name`: that of its tree
    in events; `argv`: program and arguments, no shell; `env`: names and values added to the environment; `cwd`: None
    for the probe's; `log_file`: stdout and stderr are appended to it; `cpus`: where the tree may run, empty for
    anywhere; `cgroups`: folders of the cgroups that it is in from its first instruction on; None: those of the probe.
    `stop_signal`: number of the signal that asks it to end; after `grace_ns` what is left is killed."""

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
    """A running process tree to watch. `name`: that in events; `pid`: its root process."""

    name: str
    pid: int


class ScrapePage(Wire):
    """A Prometheus text page, at `url`, that the probe reads every `interval_ns` over plain HTTP. `timeout_ns`: for one
    reading, from connecting to the last byte. `names`: metrics whose series are reported."""

    url: str
    interval_ns: Count = 1_000_000_000
    timeout_ns: Count = 1_000_000_000
    names: tuple[str, ...]


class StatsdSink(Wire):
    """The sink to which a server may send metrics. `udp`: an address with a port; `unix`: the path of a socket; at
    least one is set. `interval_ns`: period of `statsd` events."""

    udp: str | None = None
    unix: str | None = None
    interval_ns: Count = 1_000_000_000


class ProbeSpec(Wire):
    """The first message to a probe: it lists what to start and what to observe. `protocol`: the version of the wire
    contract. `launch`: the command to start, `watch`: running process trees, `ports`: listening TCP ports whose accept
    queues are watched, `scrape`: a metrics page, `statsd`: a sink; None or empty for none.

    `interval_ns`, `threads_interval_ns`: periods of `sample` and `threads` events; the latter come less often if many
    threads make them costly. `exact_counts`: perf counts every context switch and thread start, which makes each switch
    dearer; False: switches are summed over the threads that samples meet, and thread starts are unknown. `cpus`: where
    the probe runs, empty for anywhere; `host_cpus`: the CPUs whose time the host samples add up; empty: those that the
    probe was allowed when it started.
    """

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
    """Starts the schedule of a load (`type`: go) at `at_ns`; 0 for now."""

    type: Literal["go"] = "go"
    at_ns: Count


class StartMeasure(Wire):
    """Ends the warm-up of a load and starts the measured window (`type`: measure) at `at_ns`; 0 for now."""

    type: Literal["measure"] = "measure"
    at_ns: Count


class Drain(Wire):
    """Ends the measured window of a load now, and drains (`type`: drain)."""

    type: Literal["drain"] = "drain"


class WatchAlso(Wire):
    """Has a probe watch one more process tree (`type`: watch): `name` in events, `pid` of its root."""

    type: Literal["watch"] = "watch"
    name: str
    pid: int


class Stop(Wire):
    """Ends the engine (`type`: stop): a load without draining, a probe after it stopped what it launched; each reports
    first."""

    type: Literal["stop"] = "stop"


Command = Go | StartMeasure | Drain | WatchAlso | Stop
COMMAND: TypeAdapter[Command] = TypeAdapter(Annotated[Command, Field(discriminator="type")])
