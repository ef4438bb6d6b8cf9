"""From an experiment's load to the specs of a fleet of engine processes. Pure: nothing is started or looked up.

How many processes, with which share of users or rate each, is decided by the connections that the load may need, the
descriptors that one process may open, and the connections that one pair of addresses carries well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from ipaddress import IPv4Address, ip_address
from typing import assert_never
from urllib.parse import urlsplit

from powerband import protocol as wire
from powerband.experiment import Constant, Distribution, Exponential, Load, Step, Uniform
from powerband.run.failures import Code, TrialFailed

CONNECTIONS_PER_TUPLE = 12_000  # past about 14,000 to one (source, destination, port), connect() slows fifteen-fold
DESCRIPTORS_RESERVED = 48  # stdio, epoll, timers, resolver
MAX_ENGINES = 64
MAX_IN_FLIGHT = 10_000
DEADLINE_SLACK_NS = 30_000_000_000
FIRST_SOURCE = IPv4Address("127.0.0.2")


@dataclass(frozen=True)
class FleetShape:
    """Engine processes and the source addresses of each (empty: the kernel's choice)."""

    engines: int
    sources: tuple[tuple[str, ...], ...]


def fleet_specs(
    load: Load,
    *,
    url: str,
    seed: int,
    descriptor_limit: int,
    cpus: tuple[int, ...] = (),
    allow_remote: bool = False,
    warmup_ns: int | None = None,
    warmup_max_ns: int = 0,
) -> list[wire.LoadSpec]:
    """One spec for each engine process; users, rate and in-flight bound add up to the load's.

    `descriptor_limit` of one process. `warmup_ns` None: until told, at most `warmup_max_ns`.
    Raises TrialFailed(descriptor_limit) where even the largest fleet cannot hold the connections."""
    parts = urlsplit(url)
    bound = in_flight_bound(load, descriptor_limit)
    shape = fleet_shape(connections_of(load, bound), descriptor_limit, parts.hostname or "")
    longest_warmup_ns = warmup_max_ns if warmup_ns is None else warmup_ns
    whole_ns = longest_warmup_ns + load.ramp_ns + load.duration_ns + load.drain_ns
    specs = []
    first_user = 0
    for index in range(shape.engines):
        model, users = _model(load, bound, index, shape.engines)
        specs.append(
            wire.LoadSpec(
                target=wire.Target(
                    url=f"{parts.scheme}://{parts.netloc}",
                    source_addresses=shape.sources[index],
                    tls=wire.Tls(insecure=load.tls_insecure, ca_file=load.tls_ca_file),
                    allow_remote=allow_remote,
                ),
                scenario=tuple(_step(step) for step in load.scenario),
                model=model,
                connection=wire.ConnectionPolicy(keep_alive=load.keep_alive, pipeline=load.pipeline),
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
    """Of an open load, in requests. Where none is asked for, no more than one engine process can hold: a low limit must
    not start a large fleet for a low rate."""
    if load.max_in_flight is not None:
        return load.max_in_flight
    return max(load.pipeline, min(MAX_IN_FLIGHT, (descriptor_limit - DESCRIPTORS_RESERVED) * load.pipeline))


def connections_of(load: Load, in_flight: int) -> int:
    """The most connections that a load may hold at once; `in_flight` bounds an open one."""
    if load.users is not None:
        return load.users
    return math.ceil(in_flight / load.pipeline)


def fleet_shape(connections: int, descriptor_limit: int, host: str) -> FleetShape:
    """The smallest fleet whose processes stay within their descriptors; source addresses 127.0.0.x where one pair of
    addresses would carry too many connections (loopback targets only). Raises TrialFailed(descriptor_limit)."""
    room = descriptor_limit - DESCRIPTORS_RESERVED
    engines = math.ceil(connections / room) if room > 0 else MAX_ENGINES + 1
    if engines > MAX_ENGINES:
        needed = math.ceil(connections / MAX_ENGINES) + DESCRIPTORS_RESERVED
        raise TrialFailed(
            Code.DESCRIPTOR_LIMIT,
            f"the load may need {connections} connections, but a process may open only {descriptor_limit} descriptors "
            f"and at most {MAX_ENGINES} engine processes are started: raise the limit (ulimit -n {needed}) "
            "or lower load.users or load.max_in_flight",
        )
    if connections <= CONNECTIONS_PER_TUPLE or not _is_loopback_v4(host):
        return FleetShape(engines, ((),) * engines)
    per_engine = math.ceil(math.ceil(connections / engines) / CONNECTIONS_PER_TUPLE)
    sources = [
        tuple(str(FIRST_SOURCE + engine * per_engine + index) for index in range(per_engine))
        for engine in range(engines)
    ]
    return FleetShape(engines, tuple(sources))


def _is_loopback_v4(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return address.version == 4 and address.is_loopback


def _model(load: Load, in_flight: int, index: int, engines: int) -> tuple[wire.Closed | wire.Open, int]:
    """One engine's share of the load, and how many user numbers it takes."""
    if load.users is not None:
        users = _share(load.users, index, engines)
        return wire.Closed(
            users=users,
            think=_time(load.think),
            ramp_ns=load.ramp_ns,
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
    """Shares that differ by at most one and add up to the total."""
    return total // engines + (1 if index < total % engines else 0)


def _step(step: Step) -> wire.Step:
    return wire.Step(
        name=step.name,
        method=step.method,
        path=step.path,
        headers=step.headers,
        body=step.body,
        checks=wire.Checks(status=step.checks.status, body_contains=step.checks.body_contains),
        think=None if step.think is None else _time(step.think),
    )


def _time(time: Distribution) -> wire.ConstantTime | wire.UniformTime | wire.ExponentialTime:
    match time:
        case Constant():
            return wire.ConstantTime(ns=time.ns)
        case Uniform():
            return wire.UniformTime(min_ns=time.min_ns, max_ns=time.max_ns)
        case Exponential():
            return wire.ExponentialTime(mean_ns=time.mean_ns)
        case _:
            assert_never(time)
