"""Reads single facts about the machine from the content of `host.json`, by names for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_PATHS = {
    "CPU": ("cpu", "model"),
    "CPUs allowed": ("cpu", "allowed"),
    "CPU governor": ("cpu", "governor"),
    "turbo": ("cpu", "turbo"),
    "CPU limit of the cgroup": ("cpu", "cgroup_cpus_max"),
    "memory": ("memory", "total_bytes"),
    "system": ("distribution",),
    "kernel": ("kernel",),
    "machine": ("machine",),
    "virtualisation": ("virtualisation",),
    "container": ("container",),
    "clock": ("clock_source",),
    "descriptors": ("limits", "descriptors_soft"),
    "accept queue limit": ("network", "somaxconn"),
    "load average at the start": ("load_average",),
    "host name": ("hostname",),
    "engine": ("versions", "engine"),
    "powerband": ("versions", "powerband"),
    "commit": ("commit",),
    "began": ("wall_s",),
}


def host_fact(host: Mapping[str, Any], name: str) -> Any:
    """One fact by its name for people; None if it is not known."""
    value: Any = host
    for key in _PATHS[name]:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
