"""A cgroup whose processes may use a given share of the CPUs, made where this user may."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import count
from os import getpid
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
PERIOD_US = 100_000
NUMBERS = count()


@contextmanager
def limited(cpus: float) -> Iterator[Path]:
    """The file to which a process writes its pid to be limited. Raises OSError where this user may make no cgroup."""
    old = MOUNT / "cpu"  # version 1
    parent = old if old.is_dir() else MOUNT
    group = parent / f"powerband-test-{getpid()}-{next(NUMBERS)}"
    if parent is MOUNT:
        (MOUNT / "cgroup.subtree_control").write_text("+cpu")
    group.mkdir()
    try:
        quota_us = round(cpus * PERIOD_US)
        if parent is old:
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(quota_us))
        else:
            (group / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
        yield group / "cgroup.procs"
    finally:
        until_s = time.monotonic() + 5
        while (group / "cgroup.procs").read_text() and time.monotonic() < until_s:
            time.sleep(0.01)
        group.rmdir()


def can_limit() -> bool:
    try:
        with limited(1):
            return True
    except OSError:
        return False


@contextmanager
def in_cgroup(command: Sequence[str], cpus: float) -> Iterator[tuple[str, ...]]:
    """The command, which enters such a cgroup before it starts; as it is with 0 CPUs."""
    with limited(cpus) if cpus else nullcontext() as processes:
        enter = ("sh", "-c", f'echo $$ > {processes}; exec "$@"', "sh") if processes else ()
        yield (*enter, *command)
