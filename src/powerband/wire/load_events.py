"""Events of `powerband-engine load`: what an engine process says of its load, a line each.

Two drivers that stand in for engines make the models; the typed dicts below them are the same events as JSON, whose
shape a type checker knows at no cost at run time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import (
    Annotated,
    Literal,
    NotRequired,  # pydantic takes those of typing from Python 3.12 on only
    cast,
    get_args,
)

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

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
Outcomes = Mapping[Outcome, Count]


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


@as_message
class Times(TypedDict):
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


@as_message
class Connections(TypedDict):
    opened: Count
    failed: Count
    closed_by_peer: Count
    open_max: Count
    connect_time_ns: str


@as_message
class WebSocketSummary(TypedDict):
    """Of the whole run, but `*_in_window`. `joined` counts `rejoined` too; `drops`: of joined users, by reason;
    `tallies`: the highest count that an answer held, by label."""

    joins_started: Count
    joined: Count
    rejoined: Count
    joins_failed: Mapping[OutcomeName, Count]
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
    rejected_statuses: Mapping[str, Count] = {}
    websocket: WebSocketSummary | None = None
    ended_by: str

    def recorded(self) -> RecordedSummary:
        return cast(RecordedSummary, self.model_dump(mode="json", exclude_none=True))


# --- as they are read back: JSON, which is what events.jsonl and record.json hold ------------------------------------


class RecordedInterval(TypedDict):
    """An `Interval`, with the number of the engine that said it."""

    engine: NotRequired[int]
    type: Literal["interval"]
    start_ns: int
    end_ns: int
    phase: PhaseName
    scheduled: int
    sent: int
    dropped: int
    outcomes: Mapping[str, int]
    in_flight_now: int
    connections_now: int
    users_now: int
    response_time_ns_sum: int
    response_time_ns_max: int
    service_time_ns_sum: int
    send_lag_ns_max: int
    cpu_ns: int
    response_time_ns: NotRequired[str | None]
    joined_now: NotRequired[int | None]
    drops: NotRequired[int | None]
    joins_failed: NotRequired[int | None]
    delivered: NotRequired[int | None]


class RecordedCounts(TypedDict):
    scheduled: int
    sent: int
    dropped: int
    outcomes: Mapping[str, int]


class RecordedStep(TypedDict):
    name: str
    outcomes: Mapping[str, int]
    response_time_ns: str
    service_time_ns: str


class RecordedWindow(TypedDict):
    outcomes: Mapping[str, int]
    bytes_received: int
    bytes_sent: int
    time_in_system_ns_sum: int
    think_ns_sum: int
    user_ns: int
    carried_in_ns_sum: int
    carried_out_ns_sum: int
    unanswered: int


class RecordedSummary(TypedDict):
    """A `Summary`."""

    type: Literal["summary"]
    go_ns: int
    measure_start_ns: int
    measure_end_ns: int
    end_ns: int
    total: RecordedCounts
    cohort: RecordedCounts
    cohort_times: Mapping[str, str]
    steps: list[RecordedStep]
    window: RecordedWindow
    connections: Connections
    cpu_user_ns: int
    cpu_system_ns: int
    thread_cpu_ns: list[int]
    max_rss_bytes: int
    rejected_statuses: NotRequired[Mapping[str, int]]
    websocket: NotRequired[WebSocketSummary]
    ended_by: str


LoadEvent = Annotated[Hello | Armed | PhaseBegan | Interval | Summary | ErrorEvent, Field(discriminator="type")]
LOAD_EVENT: TypeAdapter[Hello | Armed | PhaseBegan | Interval | Summary | ErrorEvent] = TypeAdapter(LoadEvent)
