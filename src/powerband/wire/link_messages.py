"""The wire contract of `powerband-engine link`: its spec, and what it says. Mirrors engine/src/contract/link.rs field
by field; its commands are those of `specs.py`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from powerband.wire.message import PROTOCOL, Count, ErrorEvent, Wire


class LinkSpec(Wire):
    """`delay_ns`: one way; `rate_bits_per_s` None: without limit; `queue_bytes` None: what a round trip needs."""

    protocol: Count = PROTOCOL
    delay_ns: Count
    rate_bits_per_s: Count | None = None
    queue_bytes: Count | None = None
    form: Literal["auto", "netem", "bridge"] = "auto"


class LinkEnd(Wire):
    """`namespace`: a path for `nsenter --net=`."""

    namespace: str
    address: str


class LinkUp(Wire):
    """Both ends can be used until the engine ends."""

    type: Literal["up"]
    at_ns: Count
    pid: Count
    form: Literal["netem", "bridge"]
    queue_bytes: Count
    a: LinkEnd
    b: LinkEnd


class Carried(Wire):
    """One direction: what arrived, what found the queue full, what a bridge was too slow for."""

    packets: Count
    bytes: Count
    dropped: Count
    missed: Count


class LinkSummary(Wire):
    """The last line; lateness is absent where the kernel held the packets back, or where there were none."""

    type: Literal["summary"]
    at_ns: Count
    a_to_b: Carried
    b_to_a: Carried
    late_ns_p50: Count | None = None
    late_ns_p99: Count | None = None
    late_ns_max: Count | None = None
    cpu_ns: Count


LinkEvent = LinkUp | LinkSummary | ErrorEvent
LINK_EVENT: TypeAdapter[LinkEvent] = TypeAdapter(Annotated[LinkEvent, Field(discriminator="type")])
