"""What a subject is built with and where that goes: the values of `{java}`, `{folder}`, `{build}` and the like.

In: a subject. Out: what these placeholders stand for, and the right to build, once for the same sources. What is built
is kept below the cache folder, by a hash of all that it is made from, so that neither a checkout nor an installed
package is written to. The build itself is run by `opening.py`.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from powerband.base.errors import MeasurementError
from powerband.base.machine import cache_folder
from powerband.model.experiment import Subject
from powerband.model.subjects import SERVICES, templates_of
from powerband.model.templates import placeholders
from powerband.processes.jdk import Jdk, find_jdk

_STAMP = ".built"
_NO_SOURCES = {"target", "node_modules", ".git", "__pycache__"}


def given_values(subject: Subject, engine: Path) -> dict[str, str]:
    """What the built-in placeholders stand for, as far as the subject uses them; ports are picked elsewhere.

    Raises SubjectError where no JDK does."""
    wanted = placeholders([*templates_of(subject), *(subject.build or ())])
    given = {"engine": str(engine), **{name: "" for name in SERVICES if name in wanted}}
    jdk = None if subject.jdk is None else find_jdk(subject.jdk, compiles=subject.build is not None)
    if jdk is not None:
        given |= {"java": str(jdk.java), "java_home": str(jdk.home)}
    if "folder" in wanted:
        given["folder"] = subject.folder or str(Path.cwd())
    if "build" in wanted:
        given["build"] = str(_build_folder(subject, jdk))
    return given


@contextmanager
def built_once(given: Mapping[str, str]) -> Iterator[bool]:
    """Yields whether the build folder is filled already. If not, the caller fills it and says so by `mark_built`: it is
    empty then, and nobody else builds meanwhile.

    Raises MeasurementError where the cache folder cannot be written."""
    if "build" not in given:
        yield False
        return
    folder = Path(given["build"])
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = folder.with_suffix(".lock").open("w")
    except OSError as error:
        raise MeasurementError(
            f"cannot write {error.filename}: {error.strerror}: what subjects are built into is kept there; set "
            "XDG_CACHE_HOME to a folder that can be written"
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / _STAMP).is_file():
            yield True
            return
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        yield False


def mark_built(given: Mapping[str, str]) -> None:
    """What was built is used again from now on."""
    if "build" in given:
        (Path(given["build"]) / _STAMP).touch()


def _build_folder(subject: Subject, jdk: Jdk | None) -> Path:
    digest = hashlib.sha256(repr((subject.build, None if jdk is None else (str(jdk.home), jdk.version))).encode())
    for path in _sources(Path(subject.folder)) if subject.folder else ():
        digest.update(f"{path}\0".encode())
        digest.update(path.read_bytes())
    return cache_folder() / "subjects" / f"{subject.name}-{digest.hexdigest()[:16]}"


def _sources(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _NO_SOURCES)
        yield from (Path(parent) / name for name in sorted(files))
