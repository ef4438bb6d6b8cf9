"""A server that runs already: how its setting is changed where it is, and what it is left at. Nothing here starts it,
and nothing ends it. Pure."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from powerband.model.fields import Argv, Section
from powerband.model.plan import Level


class Deployed(Section):
    """Written `deployed: true` where the requests of `subject.apply` are all that changes the setting. `command`
    changes it as well, before them: it is run without a shell, once for each trial, and must come back. `restore`: the
    setting that the server gets back at the end; empty: it keeps the last one. `pid`: its process, where it runs on
    this machine, to be watched and no more; `pid_started`: when that started, in clock ticks since the machine did,
    found when a run begins."""

    command: Argv | None = None
    restore: dict[str, Level] = {}
    pid: int | None = Field(default=None, ge=1)
    pid_started: int | None = None


def _from_bool(value: Any) -> Any:
    if isinstance(value, bool):
        return {} if value else None
    return value


WrittenDeployed = Annotated[Deployed | None, BeforeValidator(_from_bool)]
