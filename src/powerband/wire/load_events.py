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
OutcomeName = Annotated[str, Field(pattern=f"^({'|'.join(OUTCOMES)})$")]
Outcomes = Mapping[OutcomeName, Count]


class Armed(Wire):
    type: Literal["armed"]
    at_ns: Count


class PhaseBegan(Wire):
    type: Literal["phase"]
    phase: PhaseName
    at_ns: Count


@as_message
class Interval(TypedDict):
    """The load in one interval. Counts are events within [start, end); `*_now` are levels at its end; times are sums or
    maxima over `ok` requests. The last four fields belong to WebSocket loads."""

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
    """An interval as in events.jsonl, with the number of the engine that reported it."""

    engine: NotRequired[int]


@as_message
class Counts(TypedDict):
    """Counts of requests: scheduled == sent + dropped; sent == sum of outcomes."""

    scheduled: Count
    sent: Count
    dropped: Count
    outcomes: Outcomes


@as_message
class Times(TypedDict):
    """Histograms of times in ns, each as base64 of HdrHistogram V2-deflate."""

    response_time_ns: str
    service_time_ns: str
    failed_time_ns: str
    send_lag_ns: str
    dropped_wait_ns: str


@as_message
class StepSummary(TypedDict):
    name: str
    outcomes: Outcomes
    response_time_ns: str
    service_time_ns: str


@as_message
class Window(TypedDict):
    """Requests that ended within the measured window, whenever they were scheduled, and the times that its edges cut:
    ages of requests in flight and of pauses under way. user_ns x pipeline == time in system + think - carried in +
    carried out."""

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
    late_ns_max: NotRequired[Count]


@as_message
class Connections(TypedDict):
    opened: Count
    failed: Count
    closed_by_peer: Count
    open_max: Count
    connect_time_ns: str


@as_message
class WebSocketSummary(TypedDict):
    """The WebSockets of a load; counts are of the whole run, except `*_in_window`. `joined`: includes `rejoined`;
    `drops`: lost connections of joined users, by reason; `tallies`: the highest count in a response, by label."""

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
    """An engine's last line. `total`: the whole run; `cohort`: the requests scheduled in the measured window; `window`:
    those that ended in it."""

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
    websocket: NotRequired[WebSocketSummary]
    ended_by: str


LoadEvent = Hello | Armed | PhaseBegan | Interval | Summary | ErrorEvent
LOAD_EVENT: TypeAdapter[LoadEvent] = TypeAdapter(Annotated[LoadEvent, Field(discriminator="type")])
