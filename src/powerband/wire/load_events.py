"""The events of `powerband-engine load`, in which an engine process reports on its load, one a line.

Intervals and summaries are kept and read back as plain JSON, so they are typed dicts, which cost nothing at run
time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, NotRequired, get_args

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict  # pydantic takes the one of typing from Python 3.12 on only

from powerband.wire.message import Count, ErrorEvent, Hello, Wire, as_message

PhaseName = Literal["warmup", "measure", "drain"]
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
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
"""The ways in which a request, or a user's join, may end; engine/src/contract/outcome.rs describes each."""
OutcomeName = Annotated[str, Field(pattern=f"^({'|'.join(OUTCOMES)})$")]
Outcomes = Mapping[OutcomeName, Count]


class Armed(Wire):
    """The engine waits for `go` (`type`: armed): since `at_ns`, the spec is accepted, addresses are resolved and
    threads are ready."""

    type: Literal["armed"]
    at_ns: Count


class PhaseBegan(Wire):
    """The run entered `phase` at `at_ns` (`type`: phase)."""

    type: Literal["phase"]
    phase: PhaseName
    at_ns: Count


@as_message
class Interval(TypedDict):
    """The load of one engine process from `start_ns` to `end_ns`, all of it within `phase` (`type`: interval).

    Counts are of events within [start, end). `scheduled`: requests that became due; `sent`: requests sent; `dropped`:
    requests that became due and were given up unsent; `outcomes`: requests that ended, by outcome. `in_flight_now`,
    `connections_now`: requests without an answer and open connections at the end; `users_now`: users present at the end
    (open model: arrivals under way).

    Times of the `ok` requests that ended: `response_time_ns_sum` and `response_time_ns_max` of done - scheduled,
    `service_time_ns_sum` of done - sent. `send_lag_ns_max`: the longest lag of a request sent; `cpu_ns`: CPU time of
    the process, user and kernel. `response_time_ns`: histogram (as in `Times`) of all `ok` requests since the last
    interval that had one; most intervals have none.

    With WebSockets only: `joined_now`: users that have joined; `drops`: joined users that lost their connection;
    `joins_failed`: joins that failed; `delivered`: messages received that say when they were sent.
    """

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
    response_time_ns: NotRequired[str]
    joined_now: NotRequired[Count]
    drops: NotRequired[Count]
    joins_failed: NotRequired[Count]
    delivered: NotRequired[Count]


class EngineInterval(Interval):
    """An interval as in events.jsonl. `engine`: number of the engine that reported it; if absent, 0."""

    engine: NotRequired[int]


@as_message
class Counts(TypedDict):
    """Counts of requests: `scheduled` (became due), `sent`, `dropped` (became due and were given up unsent), and how
    the sent ones ended, in `outcomes`. scheduled == sent + dropped; sent == sum of outcomes."""

    scheduled: Count
    sent: Count
    dropped: Count
    outcomes: Outcomes


@as_message
class Times(TypedDict):
    """Histograms of times in ns, each as base64 of HdrHistogram V2-deflate, present even if empty. `response_time_ns`:
    done - scheduled, and `service_time_ns`: done - sent, both of `ok` requests; `failed_time_ns`: done - scheduled of
    all others. `send_lag_ns`: sent - scheduled of all sent requests; with a `pace`, a wait for answers to other
    messages is left out. `dropped_wait_ns`: given up - scheduled of dropped requests."""

    response_time_ns: str
    service_time_ns: str
    failed_time_ns: str
    send_lag_ns: str
    dropped_wait_ns: str


@as_message
class StepSummary(TypedDict):
    """The requests of the measured window for the step `name` of the scenario: their `outcomes`, and the histograms
    `response_time_ns` and `service_time_ns` (as in `Times`) of those that were `ok`."""

    name: str
    outcomes: Outcomes
    response_time_ns: str
    service_time_ns: str


@as_message
class Window(TypedDict):
    """Requests that ended within the measured window, whenever they were scheduled, and the times that its edges cut.

    `outcomes`: how they ended; `bytes_received`, `bytes_sent`: what the sockets carried within it, TLS included.
    `time_in_system_ns_sum`: sum of done - scheduled over all outcomes; `think_ns_sum`: sum of the pauses that ended
    within the window. `user_ns`: time integral over the window of the number of users present (open model: of arrivals
    under way). `carried_in_ns_sum`, `carried_out_ns_sum`: ages, at the start and at the end of the window, of requests
    in flight and of pauses under way. `unanswered`: requests in flight from before the start until after the end.

    Little's law (J. D. C. Little, 1961) holds exactly: user_ns x requests that a user keeps in flight == time in system
    + think - carried in + carried out; not with a `pace`, whose schedule does not wait for answers.

    `users_unserved`: users of the closed model without an `ok` answer within the window, although a request was in
    flight all through it, or failed and was retried in vain; `users_unserved_requests`: requests of theirs scheduled
    within it; `users_unserved_away_ns`: sum of the times within it for which they had lost their WebSocket.
    `late_ns_max`: the longest time for which an event loop of the engine did not run. Older recordings lack these four.
    """

    outcomes: Outcomes
    bytes_received: Count
    bytes_sent: Count
    time_in_system_ns_sum: Count
    think_ns_sum: Count
    user_ns: Count
    carried_in_ns_sum: Count
    carried_out_ns_sum: Count
    unanswered: Count
    users_unserved: NotRequired[Count]
    users_unserved_requests: NotRequired[Count]
    users_unserved_away_ns: NotRequired[Count]
    late_ns_max: NotRequired[Count]


@as_message
class Connections(TypedDict):
    """The connections of the whole run. `opened`, `failed`: attempts that succeeded and that did not; `closed_by_peer`:
    how many the server closed; `open_max`: most open at once, with several threads an upper bound; `connect_time_ns`:
    histogram (as in `Times`) of the time to connect, TLS included."""

    opened: Count
    failed: Count
    closed_by_peer: Count
    open_max: Count
    connect_time_ns: str


@as_message
class WebSocketSummary(TypedDict):
    """The WebSockets of a load. Counts are of the whole run, but `published_in_window` and `delivered_in_window` of
    messages sent within the measured window. Histograms are as in `Times`.

    `joins_started` == `joined` + sum of `joins_failed` (by outcome); `rejoined`: those of `joined` by users that had
    joined before; `join_time_ns`: histogram of joined - scheduled. `drops`: lost connections of joined users, by
    reason: `closed`, `reset`, `violation`, `heartbeat` or `timeout`; `close_codes`: close frames with which the server
    ended connections, by code, `none` for one without a code.

    `messages_received`: whole messages, without control frames and those of joining; `unsolicited`: those that the spec
    or the dialect marks so; `unmatched`: those that answered nothing though they were neither unsolicited nor
    deliveries. `published`: messages sent with a `{stamp}`; `delivered`: messages received with one;
    `delivery_time_ns`: histogram of delivered - sent, of messages sent within the window. `tallies`: the highest count
    in a response, by label.
    """

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


@as_message
class Summary(TypedDict):
    """The last line of an engine process (`type`: summary). `go_ns`, `end_ns`: when the run began and ended;
    `measure_start_ns`, `measure_end_ns`: when the measured window did. `total`: requests of the whole run; `cohort`:
    those scheduled in the window, with `cohort_times`, and by step, in the scenario's order, in `steps`; `window`:
    those that ended in it. `connections`: of the whole run.

    CPU time of the engine process within the window: `cpu_user_ns`, `cpu_system_ns`, and `thread_cpu_ns` of each
    thread; `max_rss_bytes`: its largest resident memory. `rejected_statuses`: responses of the whole run whose HTTP
    status was refused, opening handshakes included, by status; `redirects`: accepted responses that are redirects.
    `websocket`: absent without WebSockets. `ended_by`: why the run ended: `time`, `work` (all users left), `drain`,
    `stop`, `deadline` or `interrupted`.
    """

    type: Literal["summary"]
    go_ns: Count
    measure_start_ns: Count
    measure_end_ns: Count
    end_ns: Count
    total: Counts
    cohort: Counts
    cohort_times: Times
    steps: list[StepSummary]
    window: Window
    connections: Connections
    cpu_user_ns: Count
    cpu_system_ns: Count
    thread_cpu_ns: list[Count]
    max_rss_bytes: Count
    rejected_statuses: NotRequired[Mapping[str, Count]]
    redirects: NotRequired[Count]
    websocket: NotRequired[WebSocketSummary]
    ended_by: str


LoadEvent = Hello | Armed | PhaseBegan | Interval | Summary | ErrorEvent
LOAD_EVENT: TypeAdapter[LoadEvent] = TypeAdapter(Annotated[LoadEvent, Field(discriminator="type")])
