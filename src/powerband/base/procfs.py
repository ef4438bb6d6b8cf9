"""Reads what the kernel says of processes (proc_pid_stat(5))."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class ProcessStat(NamedTuple):
    """`started`: clock ticks since the machine's start."""

    pid: int
    name: str
    state: str
    parent: int
    session: int
    started: int


def process_stat(pid: int) -> ProcessStat:
    """Raises OSError where there is no such process."""
    head, _, rest = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")
    fields = rest.split()
    return ProcessStat(pid, head.partition("(")[2], fields[0], int(fields[1]), int(fields[3]), int(fields[19]))


def all_processes() -> list[ProcessStat]:
    """Those that end meanwhile may be missing."""
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208 - cheap with many processes
        if name.isdigit():
            with suppress(OSError):
                found.append(process_stat(int(name)))
    return found
