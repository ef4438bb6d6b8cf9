"""A power cut at any moment: records what a program writes, syncs and renames below a folder, and makes the folders
that a disk may hold after a cut at each moment.

A disk holds what was synced; of the rest it may hold anything. Three disks stand for that: `strict` lost all that was
not synced, names included; `names` has the names as the program saw them, with empty files; `torn` has half of the
contents that were not synced."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

DISKS = ("strict", "names", "torn")
_WATCHED: list[Callable[[], None]] = []
_EVENTS = {"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir"}


@dataclass(frozen=True)
class Moment:
    """The folder as the program saw it, and as far as it was synced: names by folder, contents by file, each known by
    its inode. `done`: the numbers that had been announced by then."""

    names: dict[int, dict[str, int]]
    contents: dict[int, bytes]
    synced_names: dict[int, dict[str, int]]
    synced_contents: dict[int, bytes]
    done: frozenset[int]


@dataclass
class Recorder:
    """Records the moments of a folder. `done`: numbers that the program announces as finished."""

    root: Path
    moments: list[Moment] = field(default_factory=list)
    done: set[int] = field(default_factory=set)
    _synced_names: dict[int, dict[str, int]] = field(default_factory=dict)
    _synced_contents: dict[int, bytes] = field(default_factory=dict)
    _held: dict[int, int] = field(default_factory=dict)  # kept open, so that no inode is used twice

    def look(self) -> None:
        names: dict[int, dict[str, int]] = {}
        contents: dict[int, bytes] = {}
        for at, _, _ in os.walk(self.root):
            names[self._inode(Path(at))] = {entry.name: self._inode(entry) for entry in os.scandir(at)}
            contents |= {self._inode(e): Path(e).read_bytes() for e in os.scandir(at) if e.is_file()}
        seen = (dict(self._synced_names), dict(self._synced_contents), frozenset(self.done))
        moment = Moment(names, contents, *seen)
        if not self.moments or self.moments[-1] != moment:
            self.moments.append(moment)

    def synced(self, descriptor: int) -> None:
        found = os.fstat(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if not path.is_relative_to(self.root):
            return
        if stat.S_ISDIR(found.st_mode):
            self._synced_names[found.st_ino] = {entry.name: self._inode(entry) for entry in os.scandir(path)}
        else:
            self._synced_contents[found.st_ino] = path.read_bytes()

    def _inode(self, path: Path | os.DirEntry[str]) -> int:
        descriptor = os.open(path, os.O_RDONLY)
        inode = os.fstat(descriptor).st_ino
        if inode in self._held:
            os.close(descriptor)
        self._held[inode] = self._held.get(inode, descriptor)
        return inode

    def close(self) -> None:
        for descriptor in self._held.values():
            os.close(descriptor)


@contextmanager
def recorded(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    """Records the changes that this process makes below the folder until the end of the block."""
    recorder, fsync, busy = Recorder(root), os.fsync, False

    def look() -> None:
        nonlocal busy
        if not busy:
            busy = True
            try:
                recorder.look()
            finally:
                busy = False

    def synced(descriptor: int) -> None:
        nonlocal busy
        look()
        fsync(descriptor)
        busy = True
        recorder.synced(descriptor)
        busy = False
        look()

    if not _WATCHED:
        sys.addaudithook(_heard)
    monkeypatch.setattr(os, "fsync", synced)
    _WATCHED.append(look)
    try:
        yield recorder
        look()
    finally:
        _WATCHED.remove(look)
        monkeypatch.setattr(os, "fsync", fsync)
        recorder.close()


def _heard(event: str, _: Any) -> None:
    if event in _EVENTS:
        for look in _WATCHED:
            look()


def disk_after(moment: Moment, disk: str, root: Path, to: Path) -> Path:
    """Makes the folder that this kind of disk may hold after a cut at this moment."""
    strict = disk == "strict"

    def make(folder: int, path: Path) -> None:
        path.mkdir()
        for name, inode in (moment.synced_names if strict else moment.names).get(folder, {}).items():
            if inode in moment.names or inode in moment.synced_names:
                make(inode, path / name)
                continue
            kept, whole = moment.synced_contents.get(inode, b""), moment.contents.get(inode, b"")
            if disk == "torn" and whole.startswith(kept):
                kept = whole[: (len(kept) + len(whole)) // 2]
            (path / name).write_bytes(kept)

    shutil.rmtree(to, ignore_errors=True)
    make(root.stat().st_ino, to)
    return to
