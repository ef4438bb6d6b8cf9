"""Cgroups with a limit on CPU, disk writes or memory, made where this user may."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
PERIOD_US = 100_000
NUMBERS = count()


@contextmanager
def cgroup(old: str, new: str) -> Iterator[tuple[Path, bool]]:
    """Yields a new cgroup below the controller `old` of version 1, or `new` of version 2, and whether it is of version
    1. Raises OSError if this user may make none."""
    is_old = (MOUNT / old).is_dir()
    if not is_old:
        (MOUNT / "cgroup.subtree_control").write_text(f"+{new}")
    group = (MOUNT / old if is_old else MOUNT) / f"powerband-test-{os.getpid()}-{next(NUMBERS)}"
    group.mkdir()
    try:
        yield group, is_old
    finally:
        until_s = time.monotonic() + 5
        while (group / "cgroup.procs").read_text() and time.monotonic() < until_s:
            time.sleep(0.01)
        group.rmdir()


@contextmanager
def of_cpus(cpus: float, period_us: int = PERIOD_US) -> Iterator[Path]:
    """Yields a cgroup that may use so many CPUs in each period."""
    with cgroup("cpu", "cpu") as (group, is_old):
        quota_us = round(cpus * period_us)
        if is_old:
            (group / "cpu.cfs_period_us").write_text(str(period_us))
            (group / "cpu.cfs_quota_us").write_text(str(quota_us))
        else:
            (group / "cpu.max").write_text(f"{quota_us} {period_us}")
        yield group


@contextmanager
def of_writes(per_s: int) -> Iterator[Path]:
    """Yields a cgroup with so many writes a second at most to the disk of the temporary folder."""
    with cgroup("blkio", "io") as (group, is_old):
        device = Path(tempfile.gettempdir()).stat().st_dev
        disk = f"{os.major(device)}:{os.minor(device)}"
        if is_old:
            (group / "blkio.throttle.write_iops_device").write_text(f"{disk} {per_s}")
        else:
            (group / "io.max").write_text(f"{disk} wiops={per_s}")
        yield group


@contextmanager
def of_memory(mib: int) -> Iterator[Path]:
    """Yields a cgroup with so many MiB at most, its page cache included."""
    with cgroup("memory", "memory") as (group, is_old):
        (group / ("memory.limit_in_bytes" if is_old else "memory.max")).write_text(str(mib << 20))
        yield group


@contextmanager
def limited(
    command: Sequence[str], cpus: float = 0, writes_per_s: int = 0, memory_mib: int = 0
) -> Iterator[tuple[str, ...]]:
    """Yields the command, which enters cgroups with these limits before it starts; 0: no limit."""
    with ExitStack() as stack:
        groups = [stack.enter_context(of_cpus(cpus))] if cpus else []
        groups += [stack.enter_context(of_writes(writes_per_s))] if writes_per_s else []
        groups += [stack.enter_context(of_memory(memory_mib))] if memory_mib else []
        enter = "".join(f"echo $$ > {group}/cgroup.procs; " for group in groups)
        yield ("sh", "-c", f'{enter}exec "$@"', "sh", *command) if groups else tuple(command)


def can_limit(cpus: float = 0, writes_per_s: int = 0, memory_mib: int = 0) -> bool:
    try:
        with limited((), cpus, writes_per_s, memory_mib):
            return True
    except OSError:
        return False
