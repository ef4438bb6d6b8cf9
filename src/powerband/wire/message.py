"""The base of every message between control plane and engine, and the conversion of messages to lines of JSON.

The modules beside this one mirror engine/src/contract/ field by field; a contract test holds both sides to
`protocol/*.schema.json` and to the same examples. All times are integer ns; instants are CLOCK_MONOTONIC, which all
processes of a host share.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, with_config
from pydantic_core import to_json

PROTOCOL = 1  # the version of the wire contract


_MESSAGE = ConfigDict(frozen=True, extra="forbid", strict=True)
as_message = with_config(_MESSAGE)
"""A decorator that makes a typed dict a message, or a part of one, which is validated like a `Wire`."""


class Wire(BaseModel):
    """Base of all messages that are decoded: exact types, unknown keys refused, values never change."""

    model_config = _MESSAGE


Count = Annotated[int, Field(ge=0, lt=2**64)]
Cpus = tuple[Count, ...]


class Hello(Wire):
    """The first line of every engine process (`type`: hello). `protocol`: the version of the wire contract that it
    speaks; `version`: its own; `pid`: its process id. `monotonic_ns`, `wall_ns`: one instant by both clocks,
    the wall clock in ns since 1970; `descriptor_limit`: how many descriptors the process may have open (its soft
    limit)."""

    type: Literal["hello"]
    protocol: Count
    version: str
    pid: Count
    monotonic_ns: Count
    wall_ns: Count
    descriptor_limit: Count


class ErrorEvent(Wire):
    """The engine ended early or never began (`type`: error); nothing follows. `kind`: `spec`, `limit`, `resolve`,
    `internal` or `launch`; `message`: one or two sentences: what is wrong, where, why, and what to do next."""

    type: Literal["error"]
    kind: str
    message: str


_TYPE = b'{"type":"'


def kind_of(line: bytes) -> str:
    """The type of an event line, without decoding the line; empty if the line does not begin with its type."""
    if not line.startswith(_TYPE):
        return ""
    return line[len(_TYPE) : line.find(b'"', len(_TYPE))].decode("ascii", "replace")


def encode(message: Wire | Mapping[str, object]) -> bytes:
    """The message as a line of JSON, newline included; values that are None are left out."""
    return to_json(message, exclude_none=True, inf_nan_mode="null") + b"\n"
