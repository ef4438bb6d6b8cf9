"""Reads files of a run directory that is being followed: they grow, they may be cut short, and in a foreign directory
they may be anything. Only plain files are opened here, never a link, a pipe or a device, so that no read blocks. Files
that other code opens by name are checked by `refused` first.

In: paths. Out: bytes, the complete lines appended since the last read, the times of day that files tell, and whether a
run's lock is held.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from powerband.model.host_facts import host_fact
from powerband.store import NOT_AS_WRITTEN, RunDir, is_alive

CHUNK_BYTES = 1 << 19
"""Bytes read per call, so that an hour of series never delays other tasks."""
_OWNER_BYTES = 200  # of a lock file that names its owner
LINE_BYTES_MAX = 1 << 24  # longer than any valid line: a file without a line end in so many bytes is no such file
FILE_BYTES_MAX = 1 << 28  # larger than any analysis or report
_DAY_S_MAX = 1e11  # in the year 5138


def is_out_of_files(error: BaseException) -> bool:
    """True if this process or the machine can open no more files, so that the error says nothing about this one."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


def raise_if_out_of_files(error: Exception) -> None:
    """Raises the error again if `is_out_of_files`; the caller handles any other."""
    if is_out_of_files(error):
        raise error


def open_plain(path: Path) -> BinaryIO | None:
    """A file open for reading, unbuffered; None if there is no plain file that this user may read. Raises OSError if
    `is_out_of_files`."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise_if_out_of_files(error)
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    return os.fdopen(descriptor, "rb", buffering=0)


def read_plain(path: Path, most_bytes: int = FILE_BYTES_MAX) -> bytes | None:
    """The first bytes of the file, which are all of it if it is no larger; None like `open_plain`."""
    file = open_plain(path)
    if file is None:
        return None
    with file:
        try:
            return file.read(min(most_bytes, os.fstat(file.fileno()).st_size))
        except OSError:
            return None


def refused(paths: Iterable[Path]) -> str:
    """The reason why these paths must not be opened by name like plain files; empty if they may be. A link leads
    elsewhere, and opening a pipe blocks. Changes made after this check are not seen."""
    for path in paths:
        with contextlib.suppress(OSError):
            mode = path.lstat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                return f"{path.name} is a link, a pipe or a device, and none of these is opened"
    return ""


def run_refused(run: RunDir) -> str:
    """Like `refused`, for the files of a run that are opened, except those of its trials."""
    named = (run.experiment, run.host, run.plan, run.turns, run.nodes, run.trials, run.analysis, run.seen, run.left)
    return refused(named)


def within(folder: Path) -> Iterator[Path]:
    """The folder itself, and everything in it. Raises OSError if `is_out_of_files`."""
    yield folder
    for at, folders, names in os.walk(folder, onerror=raise_if_out_of_files):
        yield from (Path(at, name) for name in (*folders, *names))


def plain_text(text: str) -> str:
    """The text without characters that cannot be sent, which a file name or foreign JSON may contain."""
    return text.encode(errors="replace").decode()


def changed_at(path: Path) -> tuple[int, int, int] | None:
    """The version of a file, which differs once the file was rewritten: inode, size, and time of the last change in ns.
    None: no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def begun_s(host: Path) -> float | None:
    """The time of day at which a run was begun, by its host.json; None if that does not tell. The files' own times are
    those of the copy once a run was copied."""
    try:
        return _time_of_day_s(host_fact(json.loads(read_plain(host) or b""), "began"))
    except NOT_AS_WRITTEN:
        return None


def ended_s(record: Path) -> float | None:
    """The time of day at which a trial ended, by its record; None like `begun_s`."""
    try:
        told = json.loads(read_plain(record) or b"")
        lasted_ns = max(told["phases"].values(), default=told["monotonic_ns"]) - told["monotonic_ns"]
        return _time_of_day_s((told["wall_ns"] + lasted_ns) / 1e9)
    except NOT_AS_WRITTEN:
        return None


def _time_of_day_s(told: Any) -> float | None:
    return float(told) if isinstance(told, int | float) and 0 < told < _DAY_S_MAX else None


class Lines(NamedTuple):
    """The result of one read of a growing file. `lines`: the complete ones, without line ends. `again`: the file was
    replaced or truncated, and is read from its start. `more`: there is more to read at once."""

    lines: list[bytes]
    again: bool = False
    more: bool = False


class Tail:
    """The complete lines of a growing file; each line is read once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._inode = self._offset = 0
        self._rest = b""

    def read(self) -> Lines:
        """The lines added since the last call, up to one chunk. An incomplete last line is kept for the next call."""
        again = self._check()
        if self._file is None:
            return Lines([], again)
        try:
            data = self._file.read(CHUNK_BYTES) or b""
        except OSError:
            data = b""
        if not data:
            return Lines([], again)
        self._offset += len(data)
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop() if len(lines[-1]) <= LINE_BYTES_MAX else b""
        return Lines(lines, again, more=len(data) == CHUNK_BYTES)

    def close(self) -> None:
        """Closes the file; the next read begins at its start."""
        if self._file is not None:
            self._file.close()
        self._file, self._offset, self._rest = None, 0, b""

    def __del__(self) -> None:
        self.close()

    def _check(self) -> bool:
        """Opens the file when needed; returns True if it is another file than before, or is shorter now."""
        try:
            now = self._path.lstat()
        except OSError:
            was_open = self._file is not None
            self.close()
            return was_open
        if self._file is not None and (now.st_ino != self._inode or now.st_size < self._offset):
            self.close()
            self._open()
            return True
        if self._file is None:
            self._open()
        return False

    def _open(self) -> None:
        self._file = open_plain(self._path)
        self._inode = os.fstat(self._file.fileno()).st_ino if self._file is not None else 0


def is_held(lock: Path) -> bool:
    """True if a living process holds the lock of a run, by the kernel's list of locks, by the lock itself or, if the
    file system has no locks, by the content of the file. Raises OSError if `is_out_of_files`, so that a run in progress
    never looks ended."""
    try:
        wanted = lock.stat()
        with open("/proc/locks", "rb") as file:  # noqa: PTH123
            table = file.read()
    except OSError as error:
        raise_if_out_of_files(error)
        return False
    device = f"{os.major(wanted.st_dev):02x}:{os.minor(wanted.st_dev):02x}".encode()
    for line in table.splitlines():
        words = line.split()
        # 12: FLOCK  ADVISORY  WRITE 3284 08:01:131 0 EOF; a waiting lock has `->` in the second place
        if len(words) < 6 or words[1] != b"FLOCK" or words[3] != b"WRITE":
            continue
        where, _, inode = words[5].rpartition(b":")
        if inode == str(wanted.st_ino).encode() and (where == device or _has_open(words[4], wanted)):
            return True
    return _refuses(lock) or is_alive((read_plain(lock, _OWNER_BYTES) or b"").decode(errors="replace"))


def _refuses(lock: Path) -> bool:
    """True if the lock refuses to be shared: a process of another container has it, which is in no list here. A run
    that starts waits for the shared lock, which is released at once."""
    file = open_plain(lock)
    if file is None:
        return False
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            return error.errno == errno.EWOULDBLOCK
    return False


def _has_open(pid: bytes, wanted: os.stat_result) -> bool:
    """True if the process has the file open. Some file systems (btrfs) show another device in the list of locks than in
    the file's own metadata."""
    folder = Path("/proc") / pid.decode() / "fd"
    try:
        return any(os.path.samestat(found.stat(), wanted) for found in folder.iterdir() if found.exists())
    except OSError as error:
        raise_if_out_of_files(error)
        return False
