"""Reads from a program's memory how much time Go's garbage collector has used.

In: pids. Out: the time that collections took, and the time of everything that Go's processors did. Since Go 1.20 the
runtime keeps these as `cpuStats` (`runtime/mstats.go`): eleven sums that add up in two ways, and are updated when a
collection ends. That arithmetic finds them among the program's variables, so that neither symbols nor the layout of one
version are needed. Nothing is written, and the program is not stopped. Sources: docs/methods/process-counters.md.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from powerband.base.procfs import TICKS_PER_S, process_stat
from powerband.processes.elf import Elf, ElfError

GO_SECTION = ".go.buildinfo"
GO_VERSION = re.compile(rb"go(\d+)\.(\d+)")
_VARIABLES = ".bss"  # variables that are zero at the start and may hold pointers: `runtime.work` contains the sums
_VARIABLES_MAX = 64 << 20  # bytes; arbitrary: those of a server are some 300 KB
_FIRST_VERSION = (1, 20)
_LOOKS = 5  # arbitrary: less than one look in a thousand catches the sums in the middle of an update
# A collection in progress is in its own sum before it is in the total: the largest such share.
_AHEAD_SHARE = 0.01
_LEAST_NS = 10_000_000  # chance sums are smaller, and a collector that ran for less limits nothing
PROCESSES_MAX = 64  # arbitrary: worker processes are alike, and each look takes ms

Words = npt.NDArray[np.int64]


@dataclass(frozen=True)
class GoVariables:
    """The variables of a Go program at an instant. `words`: None if they cannot be read, or if the program is too old
    to keep the sums. `cpu_ns`: the CPU time that the process had used by then."""

    words: Words | None
    cpu_ns: float


@dataclass(frozen=True)
class GoCollected:
    """The CPU use of a Go program between two instants. `collecting_ns`: time that its processors (GOMAXPROCS of them)
    spent on collections, apart from marking that they did only because they were idle. `busy_ns`: time in which they
    were not idle. `cpu_ns`: the process's CPU time."""

    collecting_ns: float
    busy_ns: float
    cpu_ns: float


def go_variables(pids: Iterable[int]) -> dict[int, GoVariables]:
    """Returns the variables of the Go programs among the first 64 processes, by pid; other programs, and processes that
    have ended, are left out."""
    found = {}
    for pid in sorted(pids)[:PROCESSES_MAX]:
        with suppress(OSError, ElfError, struct.error):
            if (variables := _variables(pid)) is not None:
                found[pid] = variables
    return found


def _variables(pid: int) -> GoVariables | None:
    folder = Path("/proc", str(pid))
    with Elf(folder / "exe") as exe:
        information = exe.section(GO_SECTION)
        if information is None:
            return None
        cpu_ns = process_stat(pid).cpu_ticks / TICKS_PER_S * 1e9
        version = GO_VERSION.search(information)
        old = version is not None and (int(version[1]), int(version[2])) < _FIRST_VERSION
        place = exe.place(_VARIABLES)
        if old or place is None or place[1] > _VARIABLES_MAX:
            return GoVariables(None, cpu_ns)
        with suppress(OSError, ValueError):
            address = place[0] + (loaded_at(folder) - exe.first_address if exe.movable else 0)
            return GoVariables(_read(folder, address, place[1]), cpu_ns)
    return GoVariables(None, cpu_ns)


def _read(folder: Path, address: int, size: int) -> Words:
    """Reads the memory as words. Raises OSError if it may not be read."""
    begin = -address % 8
    with (folder / "mem").open("rb", buffering=0) as memory:
        memory.seek(address + begin)
        data = memory.read((size - begin) // 8 * 8)
    return np.frombuffer(data[: len(data) // 8 * 8], dtype="<i8")


def loaded_at(folder: Path) -> int:
    """Returns the address at which a process's executable begins. `folder`: the process's folder below /proc
    (proc_pid_maps(5)). Raises ValueError if it is not mapped."""
    own = f" {(folder / 'exe').readlink()}"
    for line in (folder / "maps").read_text(errors="replace").splitlines():
        if line.endswith(own):
            addresses, _, offset = line.split()[:3]
            return int(addresses.partition("-")[0], 16) - int(offset, 16)
    raise ValueError(f"{own} is not mapped")


def collected(before: Mapping[int, GoVariables], pids: Iterable[int]) -> dict[int, GoCollected | None]:
    """Returns what each Go program has used since `before`, by pid; None if it cannot be known. A program that has not
    collected since is left out; one that began later is counted from its beginning."""
    found: dict[int, GoCollected | None] = {}
    for pid in pids:
        for _ in range(_LOOKS):
            now = go_variables([pid]).get(pid)
            if now is None:
                break
            if now.words is None:
                found[pid] = None
                break
            if (at := sums_at(now.words)) is not None:
                found.update(between(pid, at, before.get(pid), now))
                break
    return found


def between(pid: int, at: int, before: GoVariables | None, now: GoVariables) -> dict[int, GoCollected | None]:
    """Returns the entry of one process in `collected`. `at`: the index of its sums; `before` None: it had not begun."""
    assert now.words is not None
    sums = now.words[at : at + _FIELDS].astype(np.float64)
    if before is not None:
        if before.words is None or len(before.words) != len(now.words):
            return {pid: None}  # another program by now, with the same pid
        sums -= before.words[at : at + _FIELDS]
    idle_marking, collecting, idle, total = sums[2], sums[4], sums[8], sums[10]
    busy_ns = float(total - idle)
    if busy_ns <= 0 or collecting < idle_marking:
        return {}
    cpu_ns = now.cpu_ns - (0.0 if before is None else before.cpu_ns)
    return {pid: GoCollected(float(collecting - idle_marking), busy_ns, cpu_ns)}


# The fields of `cpuStats`: assist, dedicated, idle marking, pauses, and their sum; the scavenger's assist and
# background, and their sum; idle, user, and the total, which is GOMAXPROCS times the time that passed.
_FIELDS = 11


def sums_at(words: Words) -> int | None:
    """Returns the index of the first of the sums; None unless they add up at exactly one place."""
    count = len(words) - _FIELDS + 1
    if count < 1:
        return None
    field = [words[at : at + count] for at in range(_FIELDS)]
    places = np.flatnonzero(
        (field[4] > 0)
        & (field[10] >= _LEAST_NS)
        & (field[4] == field[0] + field[1] + field[2] + field[3])
        & (field[7] == field[5] + field[6])
    )
    adding_up = [int(at) for at in places if _adds_up(words[at : at + _FIELDS].astype(np.float64))]
    return adding_up[0] if len(adding_up) == 1 else None


def _adds_up(sums: npt.NDArray[np.float64]) -> bool:
    parts = sums[4] + sums[7] + sums[8] + sums[9]
    return bool((sums >= 0).all()) and 0 <= parts - sums[10] <= _AHEAD_SHARE * sums[10]
