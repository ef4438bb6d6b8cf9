"""Scenes for the rules of bottlenecks: pools of threads, and the other figures of a trial that the rules use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from powerband.analyze.stats.slots import UsersServed, estimate_slots
from powerband.analyze.trial.bottleneck.scene import Scene
from powerband.analyze.trial.tried_slots import Tried
from powerband.model.results import PoolUse, Problem
from powerband.readings.pools import WatchedPool

MS = 1e6


def pool(
    name: str, on_cpu: float = 0.0, run_wait: float = 0.0, *, busiest: float = 0.0, **blocked: float
) -> WatchedPool:
    """A pool whose threads wake 1,000 times a second in all. `blocked`: threads by what they wait on."""
    waiting = sum(blocked.values())
    use = PoolUse(
        pool=name,
        threads=on_cpu + run_wait + waiting,
        on_cpu=on_cpu,
        run_wait=run_wait,
        blocked=waiting,
        blocked_on={kind: count / waiting for kind, count in blocked.items()} if waiting else {},
    )
    polled = use.blocked_on.get("poll", 0.0)
    return WatchedPool(use=use, busiest=busiest, switches_per_s=1000.0, preemptions_per_s=0.0, polled=polled)


POLLER = pool("poller", 0.02, 0.01, poll=0.97)


def scene(
    *pools: WatchedPool, metrics: Mapping[str, float] | None = None, codes: tuple[str, ...] = (), **changes: Any
) -> Scene:
    """A trial of a subject with one CPU and 800 requests a second from 64 users. Its CPU use is that of its pools."""
    on_cpu = sum(each.use.on_cpu for each in pools)
    figures = {
        "subject_cpu_share": on_cpu,
        "subject_cpu_cores": on_cpu,
        "run_wait_cores": sum(each.use.run_wait for each in pools),
        "goodput_per_s": 800.0,
        "subject_cpu_ns_per_request": on_cpu / 800 * 1e9,
    }
    fields: dict[str, Any] = {
        "metrics": {**figures, **(metrics or {})},
        "problems": {code: Problem(code, f"the message of {code}: what to do") for code in codes},
        "pools": pools,
        "cpus": 1.0,
        "users": 64,
        "present": 64.0,
        "rate_per_s": 800.0,
        "load_served": False,
        "turned_away_share": 0.0,
        "failed_connections": 0,
        "accept_queue": 0.0,
        "accept_queue_limit": 4096.0,
        "descriptors_left": 900.0,
        "major_faults_per_s": 0.0,
        "empty_ns": 10 * MS,
        "loaded_ns": 60 * MS,
        "outgoing": None if changes.get("tried") is None else 0,
    }
    return Scene(**{**fields, **changes})


def tried(slots: float, gain: float = 1.0, *, users: int = 64, network_ns: float = 0.0) -> Tried:
    """The looks at a server that serves so many requests at once: with one user, whose requests take 20 ms, and with
    twice the users. `network_ns`: so long each is on the network, so that fewer are served at once."""
    alone, loaded = UsersServed(1, 50, 1.0), UsersServed(users, round(250 * slots), 5.0)
    doubled = UsersServed(2 * users, round(50 * slots * gain), 1.0)
    found = estimate_slots(alone, loaded, doubled, 0.0, network_ns=network_ns)
    return Tried(found, found.alone_ns, doubled.rate_per_s)


MORE = tried(64, 2.0)
"""Twice the users were served twice as much."""
SLEEPERS = pool("pool", 0.02, 0.1, sleep=7.8)
IDLE = pool("pool", 0.02, 0.1, lock=7.8)
