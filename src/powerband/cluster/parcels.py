"""Packs folders into compressed bytes and unpacks them, to send them between the driver and its nodes. In: a folder or
bytes. Out: the other.

A parcel that is too large is refused with a sentence, on either side, since both hold it whole in memory.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import tarfile
import zlib
from collections.abc import Collection
from functools import partial
from pathlib import Path

from powerband.base.errors import MeasurementError, UsageError
from powerband.base.units import plural

PACKED_MOST = 256 * 2**20
"""The most bytes of one parcel. A trial of ten seconds takes some 100 kB; logs of a server that prints every request
take some MB."""
UNPACKED_MOST = 4 * 2**30
_READ_BYTES = 1 << 18  # arbitrary
_LEVEL = 1  # JSON lines shrink to a tenth; more effort costs a node CPU between its trials
NEVER_NEEDED = frozenset({".git", "__pycache__"})
MADE_BY_BUILDS = frozenset({"node_modules", "target", "obj", ".venv"})
"""Folders that a build makes from its sources. They may be large; a server without a build may need them."""


def pack(folder: Path, without: Collection[str] = ()) -> bytes:
    """Packs a folder, without links that lead out of it and without folders of these names. Raises MeasurementError if
    it is too large."""
    out = io.BytesIO()
    size = 0
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=_LEVEL) as archive:
        for path in _files(folder, without)[0]:
            size += path.lstat().st_size
            archive.add(path, str(path.relative_to(folder)), recursive=False, filter=partial(_movable, path))
            if size > UNPACKED_MOST or out.tell() > PACKED_MOST:
                raise MeasurementError(
                    f"{folder} is too large to be sent: more than {PACKED_MOST >> 20} MiB compressed or "
                    f"{UNPACKED_MOST >> 30} GiB in full; {_largest(folder, without)}"
                )
    return out.getvalue()


def unpack(parcel: bytes, folder: Path) -> None:
    """Unpacks a parcel into a new folder. Raises MeasurementError if the parcel is damaged or too large, OSError if the
    disk cannot be written."""
    folder.mkdir(mode=0o700, parents=True)
    size = 0
    try:
        with tarfile.open(fileobj=io.BytesIO(parcel), mode="r:gz") as archive:
            for member in archive:
                size += member.size
                if size > UNPACKED_MOST:
                    raise MeasurementError(f"what was sent is larger than {UNPACKED_MOST >> 30} GiB in full")
                _extract(archive, member, folder.resolve())
            _check_links(folder.resolve())
            while archive.fileobj is not None and archive.fileobj.read(_READ_BYTES):
                pass  # the checksum of the whole comes last
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise MeasurementError(f"what was sent arrived damaged ({error})") from error


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Writes a member of an archive as a new file of this user. Python before 3.11.4 has no filter that makes its own
    `extract` safe. Raises TarError if anything would be written, or a link would lead, outside of the folder."""
    to = _within(member.name, folder)
    if os.path.lexists(to):
        raise tarfile.ReadError(f"{member.name} is there twice")
    if member.isdir():
        to.mkdir(mode=member.mode & 0o755 | 0o700)
    elif member.issym():
        if not (to.parent / member.linkname).resolve().is_relative_to(folder):
            raise tarfile.ReadError(f"{member.name} leads outside")
        to.symlink_to(member.linkname)
    elif member.islnk():
        to.hardlink_to(_within(member.linkname, folder))
    elif (content := archive.extractfile(member)) is not None:
        with content, to.open("xb") as out:
            shutil.copyfileobj(content, out, _READ_BYTES)
        to.chmod(member.mode & 0o755 | 0o600)
        os.utime(to, (member.mtime, member.mtime))
    else:
        raise tarfile.ReadError(f"{member.name} is no file")


def _check_links(folder: Path) -> None:
    """Raises TarError if a link in the folder leads out of it, and removes it: once all are there, a later one may have
    changed where it leads, or it may have a second name elsewhere."""
    for root, folders, names in os.walk(folder):
        for path in (Path(root) / name for name in [*folders, *names]):
            if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(folder):
                path.unlink()
                raise tarfile.ReadError(f"{path.relative_to(folder)} leads outside")


def _within(name: str, folder: Path) -> Path:
    """The path of a member in the folder. Raises TarError if it leads outside, or through a link."""
    path = folder / name
    if Path(name).is_absolute() or ".." in Path(name).parts or path.parent.resolve() != path.parent:
        raise tarfile.ReadError(f"{name} is outside")
    return path


def size_text(folder: Path, without: Collection[str] = ()) -> str:
    """The size of what `pack` packs in words, and what it leaves out that a server may need: `12 files, 3.4 MB, without
    node_modules`."""
    found, left_out = _files(folder, without)
    sizes = [path.stat().st_size for path in found if path.is_file()]
    rest = f", without {', '.join(sorted(left_out))}" if left_out else ""
    return f"{plural(len(sizes), 'file')}, {sum(sizes) / 1e6:.1f} MB{rest}"


def _files(folder: Path, without: Collection[str] = ()) -> tuple[list[Path], set[str]]:
    """The folders and files in a folder, each folder before its content, and what is left out that may be needed, in
    words. Raises UsageError if there is no such folder."""
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder, so it cannot be copied to the nodes")
    found, left_out = list[Path](), set[str]()
    inside = folder.resolve()
    for root, folders, names in os.walk(folder):
        left_out |= set(without) & set(folders) - NEVER_NEEDED
        folders[:] = sorted(name for name in folders if name not in without)
        here = Path(root)
        for path in (here / name for name in sorted([*folders, *names])):
            usable = path.is_dir() or path.is_file()  # no sockets, no pipes, no links to nowhere
            if usable and path.is_symlink() and not path.resolve().is_relative_to(inside):
                left_out.add("links that lead out of it")
            elif usable:
                found.append(path)
    return found, left_out


def _movable(path: Path, entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """The entry of a path in an archive; a link by an absolute path becomes one from where it is."""
    if entry.issym() and Path(entry.linkname).is_absolute():
        entry.linkname = os.path.relpath(path.resolve(), path.parent.resolve())
    return entry


def _largest(folder: Path, without: Collection[str]) -> str:
    sizes = {path: path.stat().st_size for path in _files(folder, without)[0] if path.is_file()}
    largest = max(sizes, key=lambda path: sizes[path])
    return f"the largest file is {largest.relative_to(folder)} with {sizes[largest] / 1e6:.0f} MB"
