"""The load of an experiment: users or arrivals, requests, and checks of responses. Frozen models with short forms.

This module describes one trial's load; `loads/engine_specs.py` splits it into engine processes.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, field_validator, model_validator

from powerband.base.units import duration_text, parse_rate
from powerband.model.fields import (
    DAY_NS,
    MINUTE_NS,
    RATE_MAX_PER_S,
    Argv,
    Frozen,
    HeaderName,
    HeaderValue,
    Ns,
    Rate,
    Section,
    Timeout,
    WithinDay,
    listed,
    pairs,
)
from powerband.model.websocket import Message, WebSocket

DAY_S = DAY_NS / 1e9
PACE_MIN_NS = 1000  # the load engine's own limit


class Constant(Frozen):
    """A time that is always the same. `ns`: the time; `kind`, in all three: the tag in JSON."""

    kind: Literal["constant"] = "constant"
    ns: WithinDay = 0


class Uniform(Frozen):
    """A random time, equally likely anywhere from `min_ns` to `max_ns`; `kind`: as in `Constant`."""

    kind: Literal["uniform"] = "uniform"
    min_ns: WithinDay = Field(alias="min")
    max_ns: WithinDay = Field(alias="max")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min_ns > self.max_ns:
            raise ValueError("the first time of uniform is longer than the second")
        return self


class Exponential(Frozen):
    """A random time with the mean `mean_ns`, distributed exponentially, as between the arrivals of independent users;
    `kind`: as in `Constant`."""

    kind: Literal["exponential"] = "exponential"
    mean_ns: WithinDay = Field(alias="mean")


def _distribution(value: Any) -> Any:
    """Converts `3s`, `{uniform: [1s, 2s]}`, `{exponential: 3s}` to the full form, which is returned unchanged."""
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return {"kind": "constant", "ns": value}
    match value:
        case {"kind": _} | BaseModel():
            return value
        case {"constant": ns, **rest} if not rest:
            return {"kind": "constant", "ns": ns}
        case {"uniform": [low, high], **rest} if not rest:
            return {"kind": "uniform", "min": low, "max": high}
        case {"exponential": mean, **rest} if not rest:
            return {"kind": "exponential", "mean": mean}
    raise ValueError("a time is written 3s, {uniform: [1s, 2s]} or {exponential: 3s}")


Distribution = Annotated[Constant | Uniform | Exponential, Field(discriminator="kind"), BeforeValidator(_distribution)]


def mean_ns(time: Distribution) -> int:
    """The mean of a distribution, in ns."""
    match time:
        case Constant():
            return time.ns
        case Uniform():
            return (time.min_ns + time.max_ns) // 2
        case Exponential():
            return time.mean_ns


def _pace(value: Any) -> Any:
    """Converts `1700/s` to a constant time."""
    if not isinstance(value, str) or "/" not in value:
        return value
    rate_per_s = parse_rate(value)
    if rate_per_s * DAY_S < 1:
        raise ValueError(f"{value} is less than one a day")
    return {"kind": "constant", "ns": duration_text(round(1e9 / rate_per_s))}


def _passes(time: Distribution) -> Distribution:
    if mean_ns(time) < PACE_MIN_NS:
        raise ValueError(
            "less than 1us between sends is no pace: leave it out, and each user sends once it was answered"
        )
    return time


Pace = Annotated[Distribution, BeforeValidator(_pace), AfterValidator(_passes)]


class Checks(Frozen):
    """Checks of a response. `status`: the allowed ones; empty: 200 to 399. `body_contains`: texts, all of which the
    body must contain."""

    status: Annotated[tuple[Annotated[int, Field(ge=200, le=999)], ...], BeforeValidator(listed)] = ()
    body_contains: Annotated[tuple[str, ...], BeforeValidator(listed)] = Field(default=(), alias="contains")


class Step(Frozen):
    """One request, or one message of a WebSocket load; in a file also as `{get: /test}`, `{message: ping}`. `name`:
    names it in results. `method`, `path`, `headers`, `body` (None: no body): of a request. `message`: None for a
    request; `answered`: False for a message that is complete once it is written. `checks`: whether the response counts
    as ok. `think`: the user's pause after it; None: that of the load."""

    name: str
    method: str = Field(default="GET", pattern=r"^[A-Z]+$")
    path: str = Field(default="/", pattern=r"^/[^\x00-\x20\x7f]*$")
    headers: Annotated[tuple[tuple[HeaderName, HeaderValue], ...], BeforeValidator(pairs)] = ()
    body: str | None = None
    message: Message | None = None
    answered: bool = True
    checks: Checks = Field(default=Checks(), alias="check")
    think: Distribution | None = None

    @field_validator("method")
    @classmethod
    def _is_request(cls, value: str) -> str:
        if value == "CONNECT":
            raise ValueError("CONNECT opens a tunnel, which is no request")
        return value

    @property
    def says_close(self) -> bool:
        """True if a header of the step asks that the connection be closed after the response."""
        values = (value for name, value in self.headers if name.lower() == "connection")
        return any(token.strip().lower() == "close" for value in values for token in value.split(","))


def _flag(value: Any) -> Any:
    """Writes true and false as JMeter does."""
    return str(value).lower() if isinstance(value, bool) else value


class Load(Section):
    """The load of one trial. It is closed (`users`) or open (`rate_per_s`): exactly one of the two is set. With
    `websocket` each user holds a WebSocket, and steps are messages. With `jmeter`, the path of a plan, neither is set:
    JMeter runs the plan with these `properties`.

    `ramp_ns`: the time over which users start (closed; `join_per_s` says the same as a rate), or over which the rate
    grows from `ramp_from_per_s` (open). `think`: a user's pause after a response. `pace`: the time between a user's
    sends, whether or not they were answered. `requests_per_user`: a user leaves after so many; None: no limit.
    `arrivals`: how the sends of an open load are spaced. `scenario`: the requests that each user or arrival sends, in
    order. `duration_ns`: the measured time; `drain_ns`: the longest wait for requests in flight after it,
    `timeout_ns` (a minute at most) unless it is given, so that each request ends as answered or timed out.

    `keep_alive`: False to open a connection for each request; `pipeline`: the most requests in flight on one
    connection; `timeout_ns`, `connect_timeout_ns`: of a request, of a connection (WebSocket: of joining).
    `engine_threads`: threads of the load engine; `precision_ns`: how late a scheduled request may leave, to share a
    wake-up. `tls_insecure`: accept any certificate; `tls_ca_file`: PEM file of trusted roots, None for Mozilla's.
    `jvm_args`: arguments of JMeter's JVM."""

    users: int | None = Field(default=None, ge=1, lt=2**32)
    join_per_s: Annotated[Rate, Field(gt=0, le=RATE_MAX_PER_S)] | None = Field(default=None, alias="join")
    think: Distribution = Constant()
    pace: Pace | None = None
    requests_per_user: int | None = Field(default=None, ge=1, lt=2**32 - 1)
    rate_per_s: Annotated[Rate, Field(gt=0, le=RATE_MAX_PER_S)] | None = Field(default=None, alias="rate")
    arrivals: Literal["constant", "poisson"] = "poisson"
    ramp_ns: WithinDay = Field(default=0, alias="ramp")
    ramp_from_per_s: Rate = Field(default=0.0, ge=0, le=RATE_MAX_PER_S, alias="ramp_from")
    max_in_flight: int | None = Field(default=None, ge=1, lt=2**32)  # None: 10,000, or what one engine process can hold
    duration_ns: Ns = Field(default=10_000_000_000, alias="duration")
    drain_ns: Ns = Field(default=10_000_000_000, alias="drain")
    scenario: tuple[Step, ...] = Field(default=(Step(name="GET /"),), min_length=1, max_length=2**14)
    websocket: WebSocket | None = None
    keep_alive: bool = True
    pipeline: int = Field(default=1, ge=1, le=1024)
    timeout_ns: Timeout = Field(default=30_000_000_000, alias="timeout")
    connect_timeout_ns: Timeout = Field(default=5_000_000_000, alias="connect_timeout")
    engine_threads: int = Field(default=1, ge=1, le=1024)
    precision_ns: WithinDay = Field(default=100_000, alias="precision")
    tls_insecure: bool = False
    tls_ca_file: str | None = None
    jmeter: str | None = Field(default=None, min_length=1)
    properties: dict[str, Annotated[str, BeforeValidator(_flag)]] | None = None
    jvm_args: Argv | None = None

    @model_validator(mode="after")
    def _one_model(self) -> Self:
        if self.duration_ns == 0:
            raise ValueError("a duration of 0 measures nothing")
        if self.jmeter is not None:
            if self.users is not None or self.rate_per_s is not None or self.websocket is not None:
                raise ValueError("the plan defines users and requests: leave users, rate and websocket out")
            return self
        if self.properties is not None or self.jvm_args is not None:
            raise ValueError("properties and jvm_args are JMeter's: name a plan in load.jmeter, or leave them out")
        if self.users is None and self.rate_per_s is None:
            raise ValueError("set users (closed: each waits for its answer) or rate (open: requests per second)")
        if self.users is not None and self.rate_per_s is not None:
            raise ValueError("users and rate are both set; users is the closed model, rate the open one: keep one")
        if self.rate_per_s is not None and self.requests_per_user is not None:
            raise ValueError("requests_per_user needs users; an open load (rate) has none")
        if self.join_per_s is not None and (self.users is None or self.ramp_ns):
            raise ValueError("join is the rate at which users begin: it needs users, and takes the place of ramp")
        if self.joining_ns > DAY_NS:
            raise ValueError("users would begin over more than a day: raise join, or lower users")
        if self.pace is not None and (self.websocket is None or self._thinks):
            raise ValueError("pace is of WebSocket users, and takes the place of think")
        if self.pipeline > 1 and not self.keep_alive:
            raise ValueError("pipeline above 1 needs keep_alive: a connection of one request has nothing to line up")
        if self.max_in_flight is not None and self.max_in_flight < self.engine_threads:
            raise ValueError(f"max_in_flight must be at least engine_threads ({self.engine_threads}): one for each")
        return self

    @model_validator(mode="after")
    def _drained(self) -> Self:
        if "drain_ns" not in self.model_fields_set:
            object.__setattr__(self, "drain_ns", max(self.drain_ns, min(self.timeout_ns, MINUTE_NS)))
        return self

    @model_validator(mode="after")
    def _messages_or_requests(self) -> Self:
        """Rejects invalid combinations. In files, `loads/*/checks.py` find these errors earlier, with their
        positions."""
        if self.websocket is None and any(step.message is not None or not step.answered for step in self.scenario):
            raise ValueError("messages need a WebSocket load, that is a url with ws:// or wss://")
        if self.websocket is not None and any(step.message is None for step in self.scenario):
            raise ValueError("each step of a WebSocket load is a message")
        if self.websocket is not None and (self.users is None or not self.keep_alive):
            raise ValueError("a WebSocket load has users, and keeps their connections")
        return self

    @property
    def _thinks(self) -> bool:
        return any(mean_ns(step.think or self.think) for step in self.scenario)

    @property
    def never_pauses(self) -> bool:
        """True if every user sends its next request as soon as the last one is answered, one at a time."""
        paced = self.pace is not None or self.requests_per_user is not None
        return self.users is not None and not paced and self.pipeline == 1 and not self._thinks

    @property
    def all_answered(self) -> bool:
        """True if each request or message is answered: else what was sent does not show what was served."""
        return all(step.answered for step in self.scenario)

    def with_users(self, users: int, *, duration_ns: int, drain_ns: int) -> Load:
        """This closed load with another number of users, all of whom begin at once."""
        changed = {"users": users, "join_per_s": None, "ramp_ns": 0, "duration_ns": duration_ns, "drain_ns": drain_ns}
        return self.model_copy(update=changed)

    @property
    def joining_ns(self) -> int:
        """Time from the start until the last user begins (closed), or until the rate has grown (open)."""
        if self.join_per_s is None or self.users is None:
            return self.ramp_ns
        return round(self.users / self.join_per_s * 1e9)

    @property
    def least_duration_ns(self) -> int:
        """The shortest measured time: `duration_ns`, or 0 if users leave once they have sent their requests."""
        return self.duration_ns if self.requests_per_user is None else 0

    @property
    def pauses_ns(self) -> int:
        """The mean pauses between the steps of the scenario, added up."""
        return sum(mean_ns(step.think or self.think) for step in self.scenario[:-1])

    @property
    def whole_pass_ns(self) -> int:
        """The mean pauses of a user's pass through several requests or messages, or the times between these, added up;
        0 if there is one of them, and in an open load."""
        if self.users is None or len(self.scenario) == 1:
            return 0
        if self.pace is not None:
            return len(self.scenario) * mean_ns(self.pace)
        return self.pauses_ns + mean_ns(self.scenario[-1].think or self.think)

    @property
    def pass_ns(self) -> int:
        """The time over which users are spread: `whole_pass_ns`, a minute at most. 0 for messages of users with a ramp:
        nothing but that spreads these."""
        return 0 if self.websocket is not None and self.joining_ns else min(MINUTE_NS, self.whole_pass_ns)

    @property
    def built_up_ns(self) -> int:
        """The time until the load is what it stays: all users have begun, each has paused once, and they are spread
        over the steps of the scenario; the first arrivals of an open load have come to its last step."""
        later_ns = max(self.pass_ns, self.longest_pause_ns) if self.rate_per_s is None else self.pauses_ns
        return self.joining_ns + later_ns

    @property
    def spread_ns(self) -> int:
        """The part of `built_up_ns` without which the load would not be what was asked for: users, or arrivals, would
        all be at the first of several steps. Users of one step ask as often from their first pause on, since that is
        cut."""
        return self.joining_ns + (self.pass_ns if self.rate_per_s is None else self.pauses_ns)

    @property
    def longest_pause_ns(self) -> int:
        """The longest mean pause between a user's sends, not counting waits for responses."""
        if self.pace is not None:
            return mean_ns(self.pace)
        return max(mean_ns(step.think or self.think) for step in self.scenario)
