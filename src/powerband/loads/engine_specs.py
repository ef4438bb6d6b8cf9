"""Turns an experiment's load into the specs of a fleet of engine processes. Pure: nothing is started or looked up.

The number of processes, and each one's share of users or rate, follow from the connections that the load may need, the
descriptors that one process may open, and the connections that one pair of addresses carries well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from ipaddress import IPv4Address
from types import MappingProxyType
from urllib.parse import urlsplit

from pydantic import TypeAdapter

from powerband.base.hosts import http_url, is_loopback, request_target
from powerband.model.load import Distribution, Load, Step
from powerband.model.templates import headers_sent
from powerband.model.websocket import dialect_named
from powerband.processes.engine_process import raising_descriptors
from powerband.processes.failures import Code, TrialFailed
from powerband.wire import specs as wire

CONNECTIONS_PER_TUPLE = 12_000  # past about 14,000 to one (source, destination, port), connect() is 15 times slower
LOCAL_PORTS = 28_232  # Linux's default, from net.ipv4.ip_local_port_range
PORTS_IN_USE = 0.9  # at most this share of them: connections closed a moment ago hold others
DESCRIPTORS_RESERVED = 48  # stdio, epoll, timers, resolver
MAX_ENGINES = 64  # arbitrary: with 1,024 descriptors each, 62,000 connections; each is a process
MAX_IN_FLIGHT = 10_000  # arbitrary: at 1,000/s ten seconds of arrivals; a server further behind is overloaded
HELD_MOST = 100_000  # arbitrary: connections that are opened without being asked for; each takes memory at both ends
SPREADS = 5  # a Poisson number lies further above its mean, in standard deviations, in 1 of 3 million cases
START_APART_NS, STARTED_NS = 1_000_000, 100_000_000  # a process that accepts is back in its queue in less; an interval
DEADLINE_SLACK_NS = 30_000_000_000  # for commands that come late on a busy machine; only a defect meets the deadline
FIRST_SOURCE = IPv4Address("127.0.0.2")


# Times, messages and nearly all of a WebSocket have the same fields in a file as on the wire.
_TIME: TypeAdapter[wire.Time] = TypeAdapter(wire.Time)
_MESSAGE: TypeAdapter[wire.Message] = TypeAdapter(wire.Message)


def fleet_specs(
    load: Load,
    *,
    url: str,
    environment: Mapping[str, str] = MappingProxyType({}),
    seed: int,
    descriptor_limit: int,
    local_ports: int = LOCAL_PORTS,
    machines: int = 1,
    cpus: tuple[int, ...] = (),
    allow_remote: bool = False,
    warmup_ns: int | None = None,
    warmup_max_ns: int = 0,
    fixed_ns: int | None = None,
    acknowledge_at_once: bool = False,
    at_once: bool = False,
    under_way: float = 0.0,
) -> list[wire.LoadSpec]:
    """Returns one spec for each engine process; users, rate and in-flight bound add up to the load's.

    `environment`: where headers take values from. `descriptor_limit`: of one process. `local_ports`: of one address.
    The processes are dealt out to `machines` in turn, as many to each if there are enough users. `warmup_ns` None: the
    warm-up lasts until the command, at most `warmup_max_ns`. `fixed_ns`: the instant of that command; None: it comes
    once the load is built up. `at_once`: users without a ramp all start in one instant. `under_way`: the mean number of
    arrivals for which an open load without a bound of its own must have room, as far as the largest fleet has it.
    Raises TrialFailed(descriptor_limit, port_limit) if even that cannot hold the connections."""
    parts = urlsplit(http_url(url))
    bound = in_flight_bound(load, descriptor_limit)
    if load.max_in_flight is None:
        room = load.pipeline * _most_held(descriptor_limit, parts.hostname or "", local_ports, machines)
        bound = max(bound, min(room, math.ceil(under_way + SPREADS * math.sqrt(under_way))))
    most = connections_of(load, bound)
    busy = min(machines, most if load.users is not None else bound // load.engine_threads)
    fleet = fleet_shape(most, descriptor_limit, parts.hostname or "", local_ports, max(1, busy))
    longest_warmup_ns = warmup_max_ns if warmup_ns is None else warmup_ns
    whole_ns = longest_warmup_ns + load.joining_ns + load.duration_ns + load.drain_ns
    settles_ns = fixed_ns if warmup_ns is None else warmup_ns
    starting_ns = load.joining_ns if at_once else _starting_ns(load, settles_ns)
    first_pause_ns = 0 if at_once else _first_pause_ns(load, starting_ns, settles_ns)
    specs = []
    first_user = 0
    for index, sources in enumerate(fleet):
        model, users = _model(load, bound, index, len(fleet), starting_ns=starting_ns, first_pause_ns=first_pause_ns)
        specs.append(
            wire.LoadSpec(
                target=wire.Target(
                    url=f"{parts.scheme}://{parts.netloc}",
                    source_addresses=sources,
                    tls=wire.Tls(insecure=load.tls_insecure, ca_file=load.tls_ca_file),
                    allow_remote=allow_remote,
                ),
                scenario=tuple(_step(step, environment, paced=load.pace is not None) for step in load.scenario),
                model=model,
                connection=wire.ConnectionPolicy(
                    keep_alive=load.keep_alive,
                    pipeline=load.pipeline,
                    websocket=_websocket(load, request_target(url), environment),
                    acknowledge_at_once=acknowledge_at_once,
                ),
                timeouts=wire.Timeouts(connect_ns=load.connect_timeout_ns, request_ns=load.timeout_ns),
                phases=wire.Phases(
                    warmup_ns=warmup_ns,
                    measure_ns=load.duration_ns,
                    drain_ns=load.drain_ns,
                    deadline_ns=whole_ns + DEADLINE_SLACK_NS,
                ),
                threads=load.engine_threads,
                cpus=cpus,
                precision_ns=load.precision_ns,
                seed=seed,
                first_user=first_user,
            )
        )
        first_user += users
    return specs


def in_flight_bound(load: Load, descriptor_limit: int) -> int:
    """Returns the most requests of an open load in flight. Unless the load sets that, it is what one engine process can
    hold: a low limit of descriptors must not start a large fleet for a low rate."""
    if load.max_in_flight is not None:
        return load.max_in_flight
    return max(load.pipeline, min(MAX_IN_FLIGHT, (descriptor_limit - DESCRIPTORS_RESERVED) * load.pipeline))


def connections_of(load: Load, in_flight: int) -> int:
    """Returns the most connections that a load may hold at once. `in_flight`: the bound of an open load."""
    if load.users is not None:
        return load.users
    return math.ceil(in_flight / load.pipeline)


def _most_held(descriptor_limit: int, host: str, local_ports: int, machines: int) -> int:
    """Returns the most connections for which a fleet grows without being asked for so many."""
    held = min(HELD_MOST, MAX_ENGINES // machines * machines * max(0, descriptor_limit - DESCRIPTORS_RESERVED))
    return min(held, machines * int(local_ports * PORTS_IN_USE)) if _one_source(host) else held


def _one_source(host: str) -> bool:
    """Returns True if all connections to a host have the same source address."""
    return not is_loopback(host) or ":" in host


def most_connections(descriptor_limit: int) -> int:
    """Returns the most connections that the largest fleet can hold."""
    return MAX_ENGINES * max(0, descriptor_limit - DESCRIPTORS_RESERVED)


def fleet_shape(
    connections: int, descriptor_limit: int, host: str, local_ports: int = LOCAL_PORTS, machines: int = 1
) -> list[tuple[str, ...]]:
    """Returns the source addresses of each engine process, for the smallest fleet whose processes stay within their
    descriptors. They are empty (the kernel chooses), or 127.0.0.x if one pair of addresses would carry too many
    connections (loopback targets only). Each of `machines` gets equally many processes. Raises
    TrialFailed(descriptor_limit, port_limit)."""
    room = descriptor_limit - DESCRIPTORS_RESERVED
    engines = math.ceil(connections / room / machines) * machines if room > 0 else MAX_ENGINES + 1
    if engines > MAX_ENGINES:
        needed = math.ceil(connections / MAX_ENGINES) + DESCRIPTORS_RESERVED
        raise TrialFailed(
            Code.DESCRIPTOR_LIMIT,
            f"the load may need {connections} connections, but a process may open only {descriptor_limit} descriptors "
            f"and at most {MAX_ENGINES} processes of the load generator are started: raise the limit to {needed} "
            f"({raising_descriptors(needed)}), or lower load.users or load.max_in_flight",
        )
    one_address = int(local_ports * PORTS_IN_USE)
    per_source = max(1, min(CONNECTIONS_PER_TUPLE, one_address))
    engines = min(engines, connections)
    if connections <= per_source:
        return [()] * engines
    if _one_source(host):
        if math.ceil(connections / machines) > one_address:
            where = "this machine has" if machines == 1 else f"each of {machines} machines has"
            raise TrialFailed(
                Code.PORT_LIMIT,
                f"the load may need {connections} connections to {host}, and {where} {local_ports} ports for "
                "them: widen net.ipv4.ip_local_port_range, lower load.users or load.max_in_flight, or load a server on "
                "127.0.0.1, where more source addresses follow by themselves",
            )
        return [()] * engines
    per_engine = math.ceil(math.ceil(connections / engines) / per_source)
    return [
        tuple(str(FIRST_SOURCE + engine * per_engine + index) for index in range(per_engine))
        for engine in range(engines)
    ]


def _starting_ns(load: Load, warmup_ns: int | None) -> int:
    """Returns the time over which users start. Those that have no ramp start a little apart, as clients of a server do:
    of connections that come at once, whichever of its processes wakes first takes all, and keeps them. With pauses
    between several steps they start over one pass through the scenario: else all would be at the same steps. They do so
    within the first half of the warm-up, or all of it if that is a pass, or the first hundredth of a window without
    one, unless its length is the result. `warmup_ns`: None if the window waits for the load to build up."""
    if load.joining_ns or load.users is None:
        return load.joining_ns
    apart_ns = max(min(load.users * START_APART_NS, STARTED_NS), load.pass_ns)
    if warmup_ns is None:
        return apart_ns
    if load.requests_per_user is not None:
        return 0
    half_ns = warmup_ns // 2
    within_ns = load.pass_ns if half_ns < load.pass_ns <= warmup_ns else half_ns
    return min(apart_ns, within_ns or load.duration_ns // 100)


def _first_pause_ns(load: Load, starting_ns: int, warmup_ns: int | None) -> int:
    """Returns the longest first pause of users who start together or over a ramp: a random part of one pass through the
    scenario spreads them over its steps, as the start itself does for others. 0: as long as any. So it is for messages,
    and if the window begins before that pause is over, in which they would be missing. `warmup_ns`: as for
    `_starting_ns`."""
    late = warmup_ns is not None and starting_ns + load.pass_ns > warmup_ns
    other = load.requests_per_user is not None or load.websocket is not None
    return 0 if late or other or starting_ns == load.pass_ns else load.pass_ns


def _model(
    load: Load, in_flight: int, index: int, engines: int, *, starting_ns: int, first_pause_ns: int
) -> tuple[wire.Closed | wire.Open, int]:
    """Returns one engine's share of the load, and how many user numbers it takes."""
    if load.users is not None:
        users = _share(load.users, index, engines)
        return wire.Closed(
            users=users,
            think=_time(load.think),
            pace=None if load.pace is None else _time(load.pace),
            ramp_ns=starting_ns,
            first_pause_ns=first_pause_ns,
            requests_per_user=load.requests_per_user,
        ), users
    assert load.rate_per_s is not None
    ramp = wire.Ramp(from_per_s=load.ramp_from_per_s / engines, over_ns=load.ramp_ns) if load.ramp_ns else None
    return wire.Open(
        arrivals=load.arrivals,
        rate_per_s=load.rate_per_s / engines,
        ramp=ramp,
        max_in_flight=_share(in_flight, index, engines),
        think=_time(load.think),
    ), load.engine_threads


def _share(total: int, index: int, engines: int) -> int:
    """Returns one engine's share. Shares differ by at most one and add up to the total."""
    return total // engines + (1 if index < total % engines else 0)


def _step(step: Step, environment: Mapping[str, str], *, paced: bool) -> wire.Step:
    return wire.Step(
        name=step.name,
        method=step.method,
        path=step.path,
        headers=headers_sent(step.headers, environment),
        body=step.body,
        message=None if step.message is None else _MESSAGE.validate_python(step.message.model_dump(), strict=False),
        answered=step.answered,
        checks=wire.Checks(status=step.checks.status, body_contains=step.checks.body_contains),
        think=None if step.think is None or paced else _time(step.think),
    )


def _websocket(load: Load, path: str, environment: Mapping[str, str]) -> wire.WebSocket | None:
    """Returns the WebSocket part of a spec; None if the load has none. `path`: that of the url, for the handshake."""
    of = load.websocket
    if of is None:
        return None
    match = wire.MatchByOrder() if of.match == "order" else wire.MatchById(after=of.match.id_after)
    same = of.model_dump(exclude={"path", "dialect", "match"})
    given = {
        **same,
        "headers": headers_sent(of.headers, environment),
        "path": of.path or path,
        "dialect": dialect_named(of.dialect),
        "matching": match,
    }
    return wire.WebSocket.model_validate(given, strict=False)


def _time(time: Distribution) -> wire.Time:
    return _TIME.validate_python(time.model_dump(), strict=False)
