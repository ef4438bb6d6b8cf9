"""Reads the CPU quota of a process's cgroups, and makes cgroups that limit a server's CPU or memory.

A new cgroup lies below powerband's own if possible, and is named after powerband's process. It is removed after the
trial; cgroups of a killed powerband are removed by the next one. Not here: how the server enters its cgroups, which the
probe does before the server's first instruction. Sources: the kernel's Documentation/admin-guide/cgroup-v2.rst,
cgroup-v1/memory.rst and scheduler/sched-bwc.rst.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import count, zip_longest
from pathlib import Path

from powerband.base.errors import MeasurementError
from powerband.base.machine import take_lock
from powerband.base.procfs import process_stat
from powerband.base.units import format_bytes
from powerband.model.experiment import Experiment
from powerband.model.host_use import HostUse

PERIOD_US = 100_000
"""The kernel's default, by which containers are throttled too."""
REMOVED_WITHIN_S = 5.0  # arbitrary: a killed process is gone within ms
ALONE_WITHIN_S = 2.0  # arbitrary: another powerband changes a cgroup within ms
POLL_S = 0.005
_UNLIMITED_BYTES = 1 << 60  # a larger limit is none: version 1 then shows the largest multiple of a page
_MOUNT = "sys/fs/cgroup"
_NUMBERS = count()
_OURS = re.compile(r"powerband-(\d+)-(\d+)-(\d+)-\d+")


@dataclass(frozen=True)
class _Hierarchy:
    """The cgroups of a controller. `folders`: the cgroup of a process and those above it, as far as they are
    visible."""

    is_v2: bool
    folders: tuple[Path, ...]


@dataclass(frozen=True)
class Limits:
    """The limits of one launch. `folders`: cgroups that the server is to enter; empty if it has no limit.
    `memory_bytes`: None if there is no memory limit. `oom_files`: the files in which the kernel counts the server's
    processes that it killed for want of memory. `killed_before`: how many of each do not count, since they were killed
    before."""

    folders: tuple[Path, ...] = ()
    memory_bytes: int | None = None
    oom_files: tuple[Path, ...] = ()
    killed_before: tuple[int, ...] = ()

    def memory_kills(self) -> int | None:
        """Returns how many processes of the server the kernel killed because they needed more memory than the limit;
        None if there is no such limit, or if the kernel does not count them."""
        counted = zip_longest(map(_kills, self.oom_files), self.killed_before, fillvalue=0)
        # A cgroup that is made anew counts from 0.
        found = [max(0, kills - before) for kills, before in counted if kills is not None]
        return sum(found) if found else None

    def kill_words(self) -> str:
        """Returns the end of a sentence that says that the limit killed processes; empty if it killed none."""
        kills = self.memory_kills()
        if not kills or self.memory_bytes is None:
            return ""
        return (
            f": the kernel killed {kills} of its processes, which wanted more than its memory limit of "
            f"{format_bytes(self.memory_bytes)} (host.memory_limit)"
        )


NO_LIMITS = Limits()


def quota_of(pid: int | None = None, root: Path = Path("/")) -> float | None:
    """Returns how many CPUs the narrowest CPU quota of a process's cgroups allows on average; None without a quota.
    `pid` None: this process."""
    hierarchy = _hierarchy("cpu", pid, root)
    quotas = [] if hierarchy is None else [_quota(folder, hierarchy.is_v2) for folder in hierarchy.folders]
    return min((quota for quota in quotas if quota is not None), default=None)


def limits_of(pids: Iterable[int], root: Path = Path("/")) -> Limits:
    """Returns the memory limits that others, such as a container engine, have set for these processes: that of the
    nearest cgroup with one, which may hold other services, too. From now on kills within a process's own cgroup count.
    Without limits if there is none, if no process is known, or if this process is in those cgroups as well: then what
    is killed may be no part of the server."""
    own = _hierarchy("memory", root=root)
    theirs = {found for pid in pids if (found := _hierarchy("memory", pid, root)) is not None}
    counters = {file for each in theirs if (file := _counter_of(each, own)) is not None}
    if any(each.is_v2 for each in theirs):  # there a cgroup counts what happens below it, too
        folders = {file.parent for file in counters}
        counters = {file for file in counters if folders.isdisjoint(file.parent.parents)}
    files = tuple(sorted(counters))
    return Limits(oom_files=files, killed_before=tuple(_kills(file) or 0 for file in files))


def _counter_of(theirs: _Hierarchy, own: _Hierarchy | None) -> Path | None:
    """The file that counts the kills of a process with these cgroups; None without a limit that others have set for
    it."""
    limited_at = (at for at, folder in enumerate(theirs.folders) if _limits_memory(folder, theirs.is_v2))
    at = next(limited_at, None)
    if at is None or (own is not None and theirs.folders[at] in own.folders):
        return None
    # The kernel counts a kill where its victim lives, in version 2 also in all cgroups above. A cgroup for which the
    # controller is not enabled counts nothing: its processes belong to the nearest one above that does.
    counters = (_kill_counter(folder, theirs.is_v2) for folder in theirs.folders[: at + 1])
    return next((file for file in counters if file.is_file()), None)


def _kills(counter: Path) -> int | None:
    with suppress(OSError):
        if found := re.search(r"^oom_kill (\d+)$", counter.read_text(), re.MULTILINE):
            return int(found[1])
    return None


def _limits_memory(folder: Path, is_v2: bool) -> bool:
    with suppress(OSError, ValueError):  # no number: `max`
        return int(_limit_file(folder, is_v2).read_text()) < _UNLIMITED_BYTES
    return False


def _limit_file(group: Path, is_v2: bool) -> Path:
    return group / ("memory.max" if is_v2 else "memory.limit_in_bytes")


def _kill_counter(group: Path, is_v2: bool) -> Path:
    return group / ("memory.events" if is_v2 else "memory.oom_control")


def _quota(folder: Path, is_v2: bool) -> float | None:
    try:
        if is_v2:
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        return int(quota) / int(period) if int(quota) > 0 else None  # v1: -1 means none
    except (OSError, ValueError, ZeroDivisionError):  # v2: `max` means none
        return None


def _hierarchy(controller: str, pid: int | None = None, root: Path = Path("/")) -> _Hierarchy | None:
    """Returns the cgroups of a controller; None if nothing has it."""
    mount = root / _MOUNT
    try:
        lines = (root / "proc" / ("self" if pid is None else str(pid)) / "cgroup").read_text().splitlines()
    except OSError:
        lines = ["0::/"]  # the process's own path is unknown: take the mounted root
    unified = None
    for line in lines:
        _, names, path = line.split(":", 2)
        if not names:
            where = mount / "unified" if (mount / "unified").is_dir() else mount
            unified = _Hierarchy(True, _folders(where, path))
        elif controller in names.split(","):
            for name in (names, controller):
                if (mount / name).is_dir():
                    return _Hierarchy(False, _folders(mount / name, path))
    if unified is None or not unified.folders[-1].is_dir():
        return None
    known = unified.folders[-1] / "cgroup.controllers"
    is_there = not known.is_file() or controller in known.read_text().split()
    return unified if is_there else None


def _folders(mount: Path, path: str) -> tuple[Path, ...]:
    """Returns a cgroup and those above it. In a container the path may be the one outside, while only the container's
    part of the tree is mounted; the mounted root then takes its place."""
    own = mount / path.lstrip("/")
    first = own if own.is_dir() else mount
    return tuple(folder for folder in (first, *first.parents) if folder.is_relative_to(mount))


def check_limits(experiment: Experiment) -> None:
    """Checks that all limits of the experiment can be set: makes the cgroups of each combination, and removes them.
    Raises MeasurementError if one cannot be made."""
    remove_abandoned()
    for host in experiment.limited_hosts():
        with limited(host):
            pass


@contextmanager
def limited(host: HostUse, root: Path = Path("/")) -> Iterator[Limits]:
    """Makes cgroups with the limits that `host` asks for; on leaving, removes them and kills the processes left in
    them. Raises MeasurementError if they cannot be made."""
    wanted: dict[str, str] = {}
    if host.cpu_quota is not None:
        wanted["cpu"] = "cpu_quota"
    if host.memory_limit_bytes is not None:
        wanted["memory"] = "memory_limit"
    with ExitStack() as stack:
        made: dict[bool, Path] = {}
        oom: list[Path] = []
        folders: list[Path] = []
        for controller, key in wanted.items():
            hierarchy = _hierarchy(controller, root=root)
            if hierarchy is None:
                raise _impossible(key, f"this machine has no cgroups that limit it (no {controller} in /{_MOUNT})")
            try:
                # In version 2 one cgroup has all controllers.
                if not hierarchy.is_v2 or True not in made:
                    group = stack.enter_context(_made(hierarchy, list(wanted) if hierarchy.is_v2 else [controller]))
                    made[hierarchy.is_v2] = group
                    folders.append(group)
                oom += _limit(made[hierarchy.is_v2], controller, host, hierarchy.is_v2)
            except OSError as error:
                raise _impossible(key, f"{error.filename}: {error.strerror}") from error
        yield Limits(tuple(folders), host.memory_limit_bytes, tuple(oom))


def _limit(group: Path, controller: str, host: HostUse, is_v2: bool) -> list[Path]:
    """Writes the limits of one controller; returns the files in which the kernel counts its kills."""
    if controller == "cpu":
        quota_us = round((host.cpu_quota or 0.0) * PERIOD_US)
        if is_v2:
            _write(group / "cpu.max", f"{quota_us} {PERIOD_US}")
        else:
            _write(group / "cpu.cfs_period_us", str(PERIOD_US))
            _write(group / "cpu.cfs_quota_us", str(quota_us))
        return []
    size = str(host.memory_limit_bytes)
    _write(_limit_file(group, is_v2), size)
    # Swapped-out memory does not count against the limit, so swap is limited too: otherwise the server would get slow
    # instead of being killed. A kernel without swap accounting has no such file.
    swap = group / ("memory.swap.max" if is_v2 else "memory.memsw.limit_in_bytes")
    if swap.exists():
        _write(swap, "0" if is_v2 else size)
    return [_kill_counter(group, is_v2)]


def _write(file: Path, text: str) -> None:
    """Writes a file. Raises an OSError that names the file, which the one of a refused write does not."""
    try:
        file.write_text(text)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(file)) from error


@contextmanager
def _made(hierarchy: _Hierarchy, controllers: Sequence[str]) -> Iterator[Path]:
    """Makes a cgroup, and removes it on leaving. If it can be made nowhere, raises the OSError of the nearest place."""
    group, enabled_in, before = _make(hierarchy, controllers)
    try:
        yield group
    finally:
        _remove(group)
        if enabled_in is not None:
            with _alone_in(enabled_in), suppress(OSError):  # other cgroups may use them by now
                # A cgroup that was made since, such as another powerband's, would lose its limits.
                if _children(enabled_in) <= before:
                    (enabled_in / "cgroup.subtree_control").write_text(" ".join(f"-{name}" for name in controllers))


def _make(hierarchy: _Hierarchy, controllers: Sequence[str]) -> tuple[Path, Path | None, set[Path]]:
    """Makes a cgroup below the nearest one, powerband's own or one above it, that allows this. Returns it, the cgroup
    in which controllers were enabled for it, if any, and the cgroups that were in there before. In version 2 the places
    whose children already have the controllers come first."""
    name = f"powerband-{_namespace()}-{os.getpid()}-{process_stat(os.getpid()).started}-{next(_NUMBERS)}"
    places = sorted(hierarchy.folders, key=lambda folder: hierarchy.is_v2 and not _enabled(folder, controllers))
    refused: OSError | None = None
    for folder in places:
        enabled_in = None
        remove_abandoned([folder])
        with _alone_in(folder):
            before = _children(folder)
            try:
                if hierarchy.is_v2 and not _enabled(folder, controllers):
                    _write(folder / "cgroup.subtree_control", " ".join(f"+{name}" for name in controllers))
                    enabled_in = folder
                # A process may be moved only if its user may write in the cgroup above its old and its new place.
                if not os.access(folder / "cgroup.procs", os.W_OK):
                    raise PermissionError(1, "no processes may be moved below it", str(folder))
                (folder / name).mkdir()
            except OSError as error:
                refused = refused or error
                continue
        return folder / name, enabled_in, before
    raise refused or FileNotFoundError(2, "no cgroups are mounted", f"/{_MOUNT}")


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Keeps other powerbands from making cgroups below `folder`, and from enabling or disabling controllers there,
    while the block lasts. Does without the lock where it is not had in time: whoever may read the folder can hold
    it."""
    with ExitStack() as stack:
        with suppress(OSError):
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            stack.callback(os.close, handle)
            until_s = time.monotonic() + ALONE_WITHIN_S
            while not take_lock(handle) and time.monotonic() < until_s:
                time.sleep(POLL_S)
        yield


def _children(folder: Path) -> set[Path]:
    with suppress(OSError):
        return {path for path in folder.iterdir() if path.is_dir()}
    return set()


def _enabled(folder: Path, controllers: Sequence[str]) -> bool:
    with suppress(OSError):
        return set(controllers) <= set((folder / "cgroup.subtree_control").read_text().split())
    return False


def _namespace() -> str:
    """Returns the number of this process's pid namespace: processes of another namespace may have the same pids."""
    with suppress(OSError):
        return "".join(filter(str.isdigit, os.readlink("/proc/self/ns/pid")))  # noqa: PTH115 - it points to no file
    return "0"


def remove_abandoned(folders: Sequence[Path] | None = None) -> None:
    """Removes the cgroups below `folders` that belong to ended powerbands; None: wherever this one would make its
    own."""
    if folders is None:
        found = [_hierarchy(controller) for controller in ("cpu", "memory")]
        folders = [folder for each in found if each is not None for folder in each.folders]
    for folder in dict.fromkeys(folders):
        with suppress(OSError):
            for name in os.listdir(folder):  # noqa: PTH208
                if (ours := _OURS.fullmatch(name)) and ours[1] == _namespace() and not _lives(ours[2], ours[3]):
                    _remove(folder / name)


def _lives(pid: str, started: str) -> bool:
    with suppress(OSError):
        return process_stat(int(pid)).started == int(started)
    return False


def _remove(group: Path) -> None:
    """Removes a cgroup and those that the server made below it, and kills the processes left in them: they are the
    server's, or were started by it. If one cannot be killed, its cgroup stays and the next powerband removes it."""
    until_s = time.monotonic() + REMOVED_WITHIN_S
    while time.monotonic() < until_s:
        folders = [Path(folder) for folder, _, _ in os.walk(group, topdown=False)]
        try:
            for folder in folders:
                folder.rmdir()
            return
        except OSError:
            for folder in folders:
                _kill(folder)
            time.sleep(POLL_S)


def _kill(group: Path) -> None:
    with suppress(OSError, ValueError):
        if (group / "cgroup.kill").is_file():  # version 2, from Linux 5.14 on
            (group / "cgroup.kill").write_text("1")
        for pid in map(int, (group / "cgroup.procs").read_text().split()):
            with suppress(ProcessLookupError, PermissionError):
                if pid > 0:  # 0: in another pid namespace
                    os.kill(pid, signal.SIGKILL)


def _impossible(key: str, why: str) -> MeasurementError:
    return MeasurementError(
        f"host.{key} cannot be set here: {why}. It takes a cgroup of the server's own: run powerband as root; as a "
        "user of systemd start it by `systemd-run --user --scope -p Delegate=yes powerband ...`; in a container leave "
        "it out, and limit the container (docker's --cpus and --memory)"
    )
