"""How many CPUs the language runtime of a server takes itself to have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class RuntimeView:
    """Processes of a server with one runtime and one view. `runtime`: `JVM`, `Go`, `.NET`, `Node.js` or `Python`.
    `call`: what a program asks, `GOMAXPROCS` say, and `cpus` what that says, None where it cannot be known from
    outside. `source`: `asked` (it said so itself), `read` (from its memory), `set` (by its environment or an option),
    or `derived` (from what the runtime is documented to do). `usable`: CPUs that the kernel lets the processes use.
    `chosen`: what the runtime made of it, or was given, by name: the `collector` of the JVM or of .NET, Node.js's
    `UV_THREADPOOL_SIZE`."""

    runtime: str
    processes: int
    call: str
    cpus: int | None
    source: str
    usable: float
    chosen: Mapping[str, str] = field(default_factory=dict)

    @property
    def says(self) -> str:
        """`GOMAXPROCS 2`, `availableProcessors 1 and the Serial collector`; of an unknown number only the call."""
        collector = self.chosen.get("collector")
        known = f"{self.call} {'unknown' if self.cpus is None else self.cpus}"
        return known if collector is None else f"{known} and the {collector} collector"

    @property
    def runs_at_once(self) -> float:
        """CPUs that its processes can use together by their own counts, and by what the kernel allows each."""
        return self.processes * (self.usable if self.cpus is None else min(self.cpus, self.usable))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RuntimeView:
        """Raises TypeError for other fields."""
        return cls(**data)
