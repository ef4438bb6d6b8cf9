"""The WebSocket part of a load: how a user joins, and the messages it sends. Frozen models with short forms.

`loads/websocket/checks.py` validates combinations of them in the YAML tree, so that each error has its position; the
engine defines their meaning on the wire.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, field_validator

from powerband.base.errors import did_you_mean
from powerband.base.units import parse_bytes
from powerband.model.fields import Frozen, HeaderName, HeaderValue, Section, WithinDay, listed, pairs
from powerband.model.templates import fill, placeholders
from powerband.wire.dialects import DIALECTS, Dialect

# Placeholders that the engine fills in while it sends: the number of the request, the time in ns, the user's index.
TOKENS = ("{id}", "{stamp}", "{user}")
_TOKEN = re.compile("|".join(re.escape(token) for token in TOKENS))
MESSAGE_BYTES_MAX = 16 * 2**20  # the reference server's own limit; a user holds one whole message
# The load engine's own limits, so that `check` refuses the same values.
MESSAGE_BYTES_MOST = 2**30
REJOIN_MIN_NS = 1_000_000  # the load engine's own limit
OWN_HEADERS = ("host", "upgrade", "connection")


def _json_text(value: Any) -> Any:
    """The data of an event as JSON text. The value is such a text, in which tokens stand for numbers, or plain data."""
    if not isinstance(value, str):
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    try:
        json.loads(_TOKEN.sub("0", value), parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{value!r} is no JSON ({error}): write a mapping, a list or a number, or JSON as text; a text of its own "
            "stands in two pairs of quotes, '\"hello\"'"
        ) from None
    return value


def _no_number(name: str) -> None:
    raise ValueError(f"it has no {name}")


def _size(value: Any) -> Any:
    return round(parse_bytes(value)) if isinstance(value, str) else value


def _match(value: Any) -> Any:
    match value:
        case "order" | BaseModel():
            return value
        case {"id_after": _, **rest} if not rest:
            return value
    raise ValueError("""a match is written order, or {id_after: '"rid":'} where answers hold the number of a request""")


def _tally(value: Any) -> Any:
    return {"count_after": value} if isinstance(value, str) else value


def _message(value: Any) -> Any:
    return {"kind": "text", "text": value} if isinstance(value, str | int | float) else value


Word = Annotated[str, Field(min_length=1)]
Words = Annotated[tuple[Word, ...], BeforeValidator(listed)]
Json = Annotated[str, BeforeValidator(_json_text)]


class Text(Frozen):
    """A text message: `text` with its tokens (`TOKENS`) filled in. `kind`, in every message: the tag in JSON."""

    kind: Literal["text"] = "text"
    text: str


class Binary(Frozen):
    """A binary message: the bytes that `base64` encodes; `kind`: as in `Text`."""

    kind: Literal["binary"] = "binary"
    base64: str

    @field_validator("base64")
    @classmethod
    def _is_base64(cls, value: str) -> str:
        try:
            exact = base64.b64encode(base64.b64decode(value, validate=True)).decode()
        except ValueError as error:
            raise ValueError(f"{value!r} is no base64 ({error}): write a binary message as base64") from None
        if exact != value:  # bits that stand for no byte: the load engine refuses them
            raise ValueError(f"{value!r} is no base64: its bytes are written {exact}")
        return value


class Event(Frozen):
    """An event that a user sends. `event`: its name; `data`: JSON, in which tokens (`TOKENS`) are filled in; `answer`:
    the name of the event that answers it; None for a one-way event; `kind`: as in `Text`."""

    kind: Literal["event"] = "event"
    event: Word
    data: Json = "null"
    answer: Word | None = None


class Call(Frozen):
    """A call of the remote procedure `event` with `data`; its answer has the number of the call; `kind`: as in
    `Text`."""

    kind: Literal["call"] = "call"
    event: Word
    data: Json = "null"


class Publish(Frozen):
    """A message with `data`, which the server passes on to all subscribers of `channel`; `kind`: as in `Text`."""

    kind: Literal["publish"] = "publish"
    channel: Word
    data: Json = "null"


Message = Annotated[Text | Binary | Event | Call | Publish, Field(discriminator="kind"), BeforeValidator(_message)]


class IdAfter(Frozen):
    """Responses contain the number of their request after the text `id_after`."""

    id_after: Word


class Tally(Frozen):
    """Every response contains, after `count_after`, the number of messages that its worker has received so far; after
    `label_after`, the name of that worker."""

    count_after: Word
    label_after: Word | None = None


class WebSocket(Section):
    """Each user holds one WebSocket. `headers`, `subprotocols`: of the opening handshake. In `dialect`, placeholders
    are replaced by the values of parameters and factors. `match`: how answers are matched in the dialect `plain`: by
    `order` (the oldest without an answer), or by number. `unsolicited`: a message with one of these texts answers
    nothing. `greetings`: texts that a user sends once it has joined, which nothing answers; `subscribe`: channels that
    it subscribes to as part of joining. `stamp_after`: a message with this text and digits after it is a delivery,
    timed from these digits (`{stamp}`); None: deliveries are not timed. `tally`: where responses contain the server's
    own count of messages; None: they do not. `message_bytes_max`: a longer message from the server is a violation.
    `rejoin_after_ns`: the pause after which a user without a connection joins again; None: never."""

    path: str | None = Field(default=None, pattern=r"^/[^\x00-\x20\x7f]*$")  # None: that of subject.url
    headers: Annotated[tuple[tuple[HeaderName, HeaderValue], ...], BeforeValidator(pairs)] = ()
    subprotocols: Annotated[tuple[HeaderName, ...], BeforeValidator(listed)] = ()
    dialect: str = "plain"
    match: Annotated[Literal["order"] | IdAfter, BeforeValidator(_match)] = "order"
    unsolicited: Words = ()
    greetings: Words = ()
    subscribe: Words = ()
    stamp_after: Word | None = None
    tally: Annotated[Tally | None, BeforeValidator(_tally)] = None
    message_bytes_max: Annotated[int, BeforeValidator(_size), Field(ge=1, le=MESSAGE_BYTES_MOST)] = MESSAGE_BYTES_MAX
    rejoin_after_ns: WithinDay | None = Field(default=None, alias="rejoin_after")

    @field_validator("headers")
    @classmethod
    def _not_the_engines(cls, value: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        for name, _ in value:
            if name.lower() in OWN_HEADERS or name.lower().startswith("sec-websocket-"):
                raise ValueError(f"{name} is a header that the handshake has itself: leave it out")
        return value

    @field_validator("rejoin_after_ns")
    @classmethod
    def _with_a_pause(cls, value: int | None) -> int | None:
        if value is not None and value < REJOIN_MIN_NS:
            raise ValueError("less than 1ms would hammer a server that refuses")
        return value

    @field_validator("dialect")
    @classmethod
    def _known(cls, value: str) -> str:
        return value if placeholders([value]) else dialect_named(value)

    def with_values(self, values: Mapping[str, str]) -> WebSocket:
        """The load with placeholders in its dialect replaced. Raises ExperimentError for an unknown placeholder,
        ValueError for an unknown dialect."""
        if not placeholders([self.dialect]):
            return self
        filled = fill(self.dialect, values, "load.websocket.dialect")
        try:
            return self.model_copy(update={"dialect": dialect_named(filled)})
        except ValueError as error:
            raise ValueError(f"{self.dialect} stands for {filled}: {error}") from None


def dialect_named(name: str) -> Dialect:
    """The dialect of this name. Raises ValueError with the nearest known name."""
    for dialect in DIALECTS:
        if dialect == name:
            return dialect
    raise ValueError(f"there is no dialect {name}; {did_you_mean(name, DIALECTS)}")
