"""The CPUs of a trial, and the rule for when server and load generator had better share them than divide them. Pure."""

from __future__ import annotations

from dataclasses import dataclass

SHARES_FROM = 10.0
"""A server that uses this many times the generator's CPU time had better share all CPUs with it. At ten times, it loses
at most an eleventh of them so; with sets of their own, it would lose a quarter of four CPUs, and half of two."""


@dataclass(frozen=True)
class CpuUse:
    """The CPUs of a trial. `server`: how many the server may use, a fraction under a cgroup quota; `machine`: how many
    powerband may use; `shared`: the load generator runs on the server's CPUs."""

    server: float
    machine: int
    shared: bool


def shares_well(server_cores: float | None, generator_cores: float | None) -> bool:
    """True if sharing all CPUs takes less from the server than dividing them. Both are CPU seconds per second in the
    same window, so that their ratio is that of the CPU costs of a request. False if one is not known, or the server's
    is 0."""
    if not server_cores or generator_cores is None:
        return False
    return server_cores >= SHARES_FROM * generator_cores
