"""A language runtime's own view of how many CPUs it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class RuntimeView:
    """The view of one or more `processes` of a server with the same runtime and the same view. `runtime`: `JVM`, `Go`,
    `.NET`, `Node.js` or `Python`; empty, in a trial's record only, for processes of which none of these is known, and
    nothing else. `call`: the call or variable by which a program learns its number of CPUs, such as `GOMAXPROCS`;
    `cpus`: that number, None if it cannot be known from outside. `source`: how the number was found: `asked` (the
    process said so), `read` (in its memory), `set` (by its environment or an option), or `derived` (from the runtime's
    documentation). `usable`: CPUs that the kernel lets the processes use. `chosen`: what the runtime chose by that
    number, or was given, by name: the `collector` of the JVM or of .NET, Node.js's `UV_THREADPOOL_SIZE`."""

    runtime: str
    processes: int
    call: str
    cpus: int | None
    source: str
    usable: float
    chosen: Mapping[str, str] = field(default_factory=dict)

    @property
    def says(self) -> str:
        """The view in words: `GOMAXPROCS 2`, `GOMAXPROCS unknown`, `availableProcessors 1 and the Serial collector`."""
        collector = self.chosen.get("collector")
        known = f"{self.call} {'unknown' if self.cpus is None else self.cpus}"
        return known if collector is None else f"{known} and the {collector} collector"

    @property
    def runs_at_once(self) -> float:
        """CPUs that the processes can use together: for each, the smaller of its own number and the kernel's limit."""
        return self.processes * (self.usable if self.cpus is None else min(self.cpus, self.usable))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RuntimeView:
        """Reads the fields of a view. Raises TypeError for other fields."""
        return cls(**data)
