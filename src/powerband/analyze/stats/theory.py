"""Queueing models with known answers: the figures that a server of known capacity must show. Pure functions; times in
seconds, rates per second. Used by `powerband calibrate`, whose reference servers are built to match these models, and
by the search for a capacity.

Sources: Denning & Buzen 1978 (operational laws, asymptotic bounds); Erlang 1917; Pollaczek 1930 and Khinchine 1932;
Cosmetatos 1975 (M/D/c); Gross & Harris, "Fundamentals of Queueing Theory" (machine repairman).
"""

from __future__ import annotations

import math


def closed_throughput_bound(users: float, service_s: float, think_s: float, servers: int) -> float:
    """The highest throughput of a closed system, min(users / (Z + S), servers / S); constant times reach it."""
    return min(users / (think_s + service_s), servers / service_s)


def machine_repairman_throughput(users: int, service_s: float, think_s: float, servers: int) -> float:
    """Exact throughput of `users` that think for exponential times and are served by `servers` in exponential times.

    The balance equations of the birth-death chain, in a form that does not overflow. think_s > 0."""
    weight, total, busy = 1.0, 1.0, 0.0
    for present in range(1, users + 1):
        weight *= (users - present + 1) / think_s * service_s / min(present, servers)
        total += weight
        busy += min(present, servers) * weight
        if total > 1e200:
            weight, total, busy = weight / 1e200, total / 1e200, busy / 1e200
    return busy / total / service_s


def erlang_c(servers: int, offered: float) -> float:
    """Probability that an arrival waits in M/M/c, `offered` = rate x service time < servers (Erlang B's recursion)."""
    blocking = 1.0
    for n in range(1, servers + 1):
        blocking = offered * blocking / (n + offered * blocking)
    return blocking / (1 - offered / servers * (1 - blocking))


def mmc_response_s(rate_per_s: float, service_s: float, servers: int = 1) -> float:
    """Mean response time of M/M/c; infinite if the load is not less than the capacity."""
    offered = rate_per_s * service_s
    if offered >= servers:
        return math.inf
    return service_s + erlang_c(servers, offered) * service_s / (servers - offered)


def mmc_waits_longer(than_s: float, rate_per_s: float, service_s: float, servers: int = 1) -> float:
    """The share of arrivals that wait for longer than `than_s` in M/M/c: P(Wq > t) = C(c, a) exp(-(c - a) t / S). 1 if
    the load is not less than the capacity, or the time less than none."""
    offered = rate_per_s * service_s
    if offered >= servers or than_s < 0:
        return 1.0
    return erlang_c(servers, offered) * math.exp(-(servers - offered) * than_s / service_s)


def mg1_response_s(rate_per_s: float, service_s: float, service_s_squared: float) -> float:
    """Mean response time of M/G/1 by Pollaczek-Khinchine, from the first two moments of the service time."""
    utilisation = rate_per_s * service_s
    if utilisation >= 1:
        return math.inf
    return service_s + rate_per_s * service_s_squared / (2 * (1 - utilisation))


def relaxation_s(rate_per_s: float, most_per_s: float) -> float:
    """About how long a queue takes to forget how full it was, where at most `most_per_s` are served: service time over
    servers x (1 - utilisation)^2. Infinite at the limit. (Whitt 1989, "Planning queueing simulations", Management
    Science 35(11): the time that a mean needs to settle grows so.)"""
    idle = 1 - rate_per_s / most_per_s
    return math.inf if idle == 0 else 1 / (most_per_s * idle**2)


def mdc_response_s(rate_per_s: float, service_s: float, servers: int = 1) -> float:
    """Mean response time of M/D/c: exact for one server, Cosmetatos' approximation (within 1 or 2 %) beyond."""
    if servers == 1:
        return mg1_response_s(rate_per_s, service_s, service_s**2)
    utilisation = rate_per_s * service_s / servers
    if utilisation >= 1:
        return math.inf
    wait = mmc_response_s(rate_per_s, service_s, servers) - service_s
    factor = 1 + (1 - utilisation) * (servers - 1) * (math.sqrt(4 + 5 * servers) - 2) / (16 * utilisation * servers)
    return service_s + wait / 2 * factor
