"""Describes a server that runs already (`deployed`): how its setting is changed while it runs, and at which setting it
is left. Nothing starts or ends it. Pure."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from powerband.model.fields import Argv, Section
from powerband.model.plan import Level


class Deployed(Section):
    """The ways to change the setting of a server that runs already. It is written `deployed: true` if only the requests
    of `subject.apply` change it. `command`: changes it too, before them; it is run without a shell, once for each
    trial, and must end. `restore`: the setting that the server gets back at the end; empty: it keeps the last one.
    `pid`: the server's process, if it runs on this machine, which is only watched. `pid_started`: when that process
    started, in clock ticks since the machine's start; found when a run begins."""

    command: Argv | None = None
    restore: dict[str, Level] = {}
    pid: int | None = Field(default=None, ge=1)
    pid_started: int | None = None


def _from_bool(value: Any) -> Any:
    if isinstance(value, bool):
        return {} if value else None
    return value


WrittenDeployed = Annotated[Deployed | None, BeforeValidator(_from_bool)]
