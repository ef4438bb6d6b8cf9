"""The CPUs of a trial, and when sharing them between server and load generator costs less than dividing them. Pure."""

from __future__ import annotations

from dataclasses import dataclass

SHARES_FROM = 10.0
"""A server with ten times the generator's CPU time loses at most an eleventh of the CPUs to it where all are shared;
with sets of their own it loses a quarter of four, and half of two."""


@dataclass(frozen=True)
class CpuUse:
    """CPUs of a trial: those that the server may use (a cgroup quota may leave a fraction), those of the machine that
    powerband may use, and whether the load generator runs on the server's."""

    server: float
    machine: int
    shared: bool


def shares_well(server_cores: float | None, generator_cores: float | None) -> bool:
    """Whether sharing all CPUs takes less from the server than a set of its own. Cores: CPU seconds per second of the
    same window, so that their ratio is that of what a request costs each. False where one is not known, or 0."""
    if not server_cores or generator_cores is None:
        return False
    return server_cores >= SHARES_FROM * generator_cores
