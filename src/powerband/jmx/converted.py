"""The result of a conversion before it is written: a load and the steps of its scenario. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from powerband.jmx.elements.assertions import AssertionCheck
from powerband.jmx.elements.http import Request, RequestTarget
from powerband.jmx.elements.timers import Pause


@dataclass(frozen=True)
class ConvertedStep:
    """One step of the scenario. `name`: that of the plan's element. `request`: what is sent. `check`: what a right
    answer is. `pause`: the pause after it."""

    name: str
    request: Request
    check: AssertionCheck
    pause: Pause


@dataclass(frozen=True)
class ConvertedLoad:
    """A load, closed (`users`) or open (`rate_per_s` scenarios, with `arrivals`; `users` is then the most at once).
    `ramp_ns`: within which all users begin. `duration_ns`, `requests_per_user`: its end; None if the plan has none.
    `warmup_ns`: None for an automatic warm-up. `keep_alive`: connections are used again. `timeout_ns`,
    `connect_timeout_ns`: None if JMeter waits without end."""

    users: int
    rate_per_s: float | None
    arrivals: Literal["constant", "poisson"]
    ramp_ns: int
    duration_ns: int | None
    requests_per_user: int | None
    warmup_ns: int | None
    keep_alive: bool
    timeout_ns: int | None
    connect_timeout_ns: int | None


@dataclass(frozen=True)
class Conversion:
    """The input of the writer. `plan`, `group`: names of the test plan and of its thread group. `target`: the server
    that the plan loads. `load` and its `steps`. `notes`: each difference from JMeter, with the names of the elements
    that it concerns. `left_out`: paths of elements. `defaults`: properties that were not given, with the default used
    for each."""

    plan: str
    group: str
    target: RequestTarget
    load: ConvertedLoad
    steps: tuple[ConvertedStep, ...]
    notes: Mapping[str, tuple[str, ...]]
    left_out: tuple[str, ...]
    defaults: Mapping[str, str]
