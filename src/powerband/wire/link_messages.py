"""The wire contract of `powerband-engine link`: its spec and its events. It mirrors engine/src/contract/link.rs field
by field; the commands are those of `specs.py`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from powerband.wire.message import PROTOCOL, Count, ErrorEvent, Wire


class LinkSpec(Wire):
    """A link to make between two new network namespaces, the same in both directions. `protocol`: the version of the
    wire contract. `delay_ns`: one way, from the sending of a packet's last bit to its arrival; `rate_bits_per_s`:
    counts IP packets with their Ethernet headers; None for no limit. `queue_bytes`: the most bytes that may wait for
    one direction's transmitter, further packets are dropped; None for as many as a round trip needs. `form`: what
    delays the packets: `netem` in the kernel, a `bridge` in user space, or with `auto` netem where the kernel has
    it."""

    protocol: Count = PROTOCOL
    delay_ns: Count
    rate_bits_per_s: Count | None = None
    queue_bytes: Count | None = None
    form: Literal["auto", "netem", "bridge"] = "auto"


class LinkEnd(Wire):
    """One end of the link. `namespace`: path of its network namespace, for `nsenter --net=`; `address`: its IPv4
    address."""

    namespace: str
    address: str


class LinkUp(Wire):
    """The link is up (`type`: up): both ends, `a` and `b`, can be used until the engine ends. `at_ns`: when it came up;
    `pid`: the engine's process; `form`: what delays the packets; `queue_bytes`: the most bytes that may wait in one
    direction."""

    type: Literal["up"]
    at_ns: Count
    pid: Count
    form: Literal["netem", "bridge"]
    queue_bytes: Count
    a: LinkEnd
    b: LinkEnd


class Carried(Wire):
    """The traffic in one direction. `packets`, `bytes`: those that arrived, Ethernet headers included; `dropped`:
    packets that found the queue full; `missed`: packets that the kernel dropped because a bridge was too slow, 0 with
    netem."""

    packets: Count
    bytes: Count
    dropped: Count
    missed: Count


class LinkSummary(Wire):
    """The last line (`type`: summary): the traffic of the whole run, `a_to_b` and `b_to_a`, until `at_ns`.
    `late_ns_p50`, `late_ns_p99`, `late_ns_max`: how much later than planned packets left the bridge; None with netem,
    and if there were no packets. `cpu_ns`: CPU time of the engine."""

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
