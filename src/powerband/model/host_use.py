"""Describes a run's use of this machine: which CPUs server and load get, and how much CPU and memory the server may
use.

Values only; `processes/cpus.py` deals out the CPUs, `processes/cgroups.py` sets the limits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from powerband.base.units import parse_bytes
from powerband.model.fields import Frozen, Section, field_named

LIMITS = ("cpu_quota", "memory_limit")
"""Keys of `host` that may vary, as factors `host.cpu_quota` and `host.memory_limit`."""
CPU_QUOTA_LEAST = 0.01  # the kernel accepts no less than 1 ms of a period of 100 ms
CPU_QUOTA_MOST = 4096
MEMORY_LEAST = 2**20  # arbitrary: no program starts with less


class Pinning(Frozen):
    """The CPUs of each process, as lists in the kernel's format (`0-3,6`). `subject`: those of the server; `engine`:
    those of all load engines; `probe`: None for those of the engines."""

    subject: str
    engine: str
    probe: str | None = None


def _server_cpus(value: Any) -> Any:
    if isinstance(value, str):
        known = value in ("auto", "all")
        known |= re.fullmatch(r"\d+(-\d+)?(,\d+(-\d+)?)*", value) is not None and not value.isdigit()
    else:
        known = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    if not known:
        raise ValueError("write auto, all, a number of CPUs (2), or a list of them (0-1, 0,2)")
    return value


def _bytes(value: Any) -> Any:
    return None if value is None else round(min(parse_bytes(value), 2.0**62))


class HostUse(Section):
    """The use of this machine by a run. `pinning`: `off` to pin nothing, a `Pinning` with exact lists, or `auto` to
    follow `cpus`.

    `awake`: loops of idle priority keep the trial's CPUs from sleeping while it is loaded.

    `cpus`: the CPUs of the server: `all`, a number of them, a list in the kernel's format (`0-2`, `0,2`), or `auto`:
    all if a request costs the server much more CPU than the load engine, else a set disjoint from the engine's
    (`search/cpu_choice.py`).

    `cpu_quota`: CPU seconds per second that the server and all that it starts may use on average. `memory_limit_bytes`:
    the memory that they may use together, including cached files that they read, without swap. None: no limit is
    set."""

    pinning: Literal["auto", "off"] | Pinning = "auto"
    awake: bool = False
    cpus: Annotated[int | str, BeforeValidator(_server_cpus)] = "auto"
    cpu_quota: float | None = Field(default=None, ge=CPU_QUOTA_LEAST, le=CPU_QUOTA_MOST, allow_inf_nan=False)
    memory_limit_bytes: Annotated[int | None, BeforeValidator(_bytes)] = Field(
        default=None, alias="memory_limit", ge=MEMORY_LEAST
    )

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.cpus != "auto" and self.pinning != "auto":
            raise ValueError("cpus and pinning both say which CPUs the server gets: keep one of them")
        return self

    @property
    def deals_freely(self) -> bool:
        """True if neither `cpus` nor `pinning` says which CPUs the server gets."""
        return self.cpus == "auto" and self.pinning == "auto"

    def with_levels(self, levels: Mapping[str, object]) -> HostUse:
        """The host use with the levels of factors named `host.cpu_quota` and `host.memory_limit`. Raises
        ValidationError."""
        changes = {
            field_named(HostUse, name.removeprefix("host.")): level
            for name, level in levels.items()
            if name.startswith("host.")
        }
        return HostUse.model_validate({**vars(self), **changes}) if changes else self
