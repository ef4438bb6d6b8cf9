"""The wire contract of `powerband-engine link`: its spec and its events. It mirrors engine/src/contract/link.rs field
by field; the commands are those of `specs.py`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from powerband.wire.message import PROTOCOL, Count, ErrorEvent, Wire


class LinkSpec(Wire):
    """The spec of a link. `delay_ns`: one way; `rate_bits_per_s`: None for no limit; `queue_bytes`: None for as many as
    a round trip needs."""

    protocol: Count = PROTOCOL
    delay_ns: Count
    rate_bits_per_s: Count | None = None
    queue_bytes: Count | None = None
    form: Literal["auto", "netem", "bridge"] = "auto"


class LinkEnd(Wire):
    """One end of the link. `namespace`: a path for `nsenter --net=`."""

    namespace: str
    address: str


class LinkUp(Wire):
    """The link is up: both ends can be used until the engine ends."""

    type: Literal["up"]
    at_ns: Count
    pid: Count
    form: Literal["netem", "bridge"]
    queue_bytes: Count
    a: LinkEnd
    b: LinkEnd


class Carried(Wire):
    """The traffic in one direction. `packets`, `bytes`: those that arrived; `dropped`: packets that found the queue
    full; `missed`: packets that a bridge was too slow for."""

    packets: Count
    bytes: Count
    dropped: Count
    missed: Count


class LinkSummary(Wire):
    """The last line. `late_ns_*`: how late packets left; None if the kernel delayed them, or if there were none."""

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
