"""Files of a run directory as whoever follows it may read them: they grow, they may be cut short, and in a directory
from elsewhere they may be anything. Only plain files are opened here, never a link, a pipe or a device, so that nothing
here waits; what others open by its name passes `refused` first.

In: paths. Out: bytes, the whole lines that were appended since the last look, and whether a run's lock is held.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from powerband.store import RunDir

CHUNK_BYTES = 1 << 19
"""Read at one look, so that an hour of series never keeps others waiting."""
LINE_BYTES_MAX = 1 << 24  # longer than any line of ours: what has none in so many bytes is no such file


def open_plain(path: Path) -> BinaryIO | None:
    """A file open for reading, unbuffered; None where there is no plain file that this user may read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    return os.fdopen(descriptor, "rb", buffering=0)


def read_plain(path: Path, most_bytes: int = -1) -> bytes | None:
    """Its content, or the first `most_bytes` of it; None as `open_plain`."""
    file = open_plain(path)
    if file is None:
        return None
    with file:
        try:
            return file.readall() if most_bytes < 0 else file.read(most_bytes)  # type: ignore[attr-defined]
        except OSError:
            return None


def refused(paths: Iterable[Path]) -> str:
    """Why these must not be opened by their names, as one would open plain files; empty where they may be. A link leads
    elsewhere, and a pipe keeps whoever opens it. What is put there after this look is not seen."""
    for path in paths:
        with contextlib.suppress(OSError):
            mode = path.lstat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                return f"{path.name} is a link, a pipe or a device, and none of these is opened"
    return ""


def run_refused(run: RunDir) -> str:
    """The same of what is opened of a run, but for its trials."""
    return refused((run.experiment, run.host, run.plan, run.trials))


def within(folder: Path) -> Iterator[Path]:
    """The folder itself, and everything in it."""
    yield folder
    for at, folders, names in os.walk(folder):
        yield from (Path(at, name) for name in (*folders, *names))


def plain_text(text: str) -> str:
    """Text that can be sent: a name from a disk, or from somebody's JSON, may hold what is no character."""
    return text.encode(errors="replace").decode()


def changed_at(path: Path) -> tuple[int, int, int] | None:
    """What differs once a file was written again: inode, size, and time of the last change in ns. None: no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


class Lines(NamedTuple):
    """`again`: the file was replaced or cut, and is read from its start. `more`: there is more to read at once."""

    lines: list[bytes]
    again: bool = False
    more: bool = False


class Tail:
    """The whole lines of a file that grows; what was read is not read again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._inode = self._offset = 0
        self._rest = b""

    def read(self) -> Lines:
        """Those that came since the last look, as far as one chunk goes. A last line without its end waits for it."""
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
        if self._file is not None:
            self._file.close()
        self._file, self._offset, self._rest = None, 0, b""

    def __del__(self) -> None:
        self.close()

    def _check(self) -> bool:
        """Opens the file where that is due; whether it is another one than before, or is shorter now."""
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
    """Whether a living process holds the lock of a run, by the kernel's list of locks: to try the lock oneself would
    keep a run from starting in that moment."""
    try:
        wanted = lock.stat()
        with open("/proc/locks", "rb") as file:  # noqa: PTH123
            table = file.read()
    except OSError:
        return False
    device = f"{os.major(wanted.st_dev):02x}:{os.minor(wanted.st_dev):02x}".encode()
    for line in table.splitlines():
        words = line.split()
        # 12: FLOCK  ADVISORY  WRITE 3284 08:01:131 0 EOF; one that waits has `->` in the second place
        if len(words) < 6 or words[1] != b"FLOCK" or words[3] != b"WRITE":
            continue
        where, _, inode = words[5].rpartition(b":")
        if inode == str(wanted.st_ino).encode() and (where == device or _has_open(words[4], wanted)):
            return True
    return False


def _has_open(pid: bytes, wanted: os.stat_result) -> bool:
    """Some file systems (btrfs) show another device in the list of locks than in the file's own facts."""
    folder = Path("/proc") / pid.decode() / "fd"
    try:
        return any(os.path.samestat(found.stat(), wanted) for found in folder.iterdir() if found.exists())
    except OSError:
        return False
