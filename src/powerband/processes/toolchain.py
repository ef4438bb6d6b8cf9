"""The tools and folders of a subject's build: the values of `{java}`, `{folder}`, `{build}` and similar placeholders.

In: a subject. Out: the values of these placeholders, and the right to build, once for the same sources. Results of a
build are kept in the cache folder under a hash of all their inputs, so that neither a checkout nor an installed package
is written to. `opening.py` runs the build itself.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from powerband.base.hosts import LOCAL
from powerband.base.machine import alone_in_cache, cache_folder
from powerband.model.experiment import Subject
from powerband.model.subjects import ADDRESS, SERVICES, templates_of
from powerband.model.templates import placeholders
from powerband.processes.dotnet import Dotnet, find_dotnet
from powerband.processes.jdk import Jdk, find_jdk
from powerband.store import slug

KEPT_S = 30 * 24 * 3600  # arbitrary: older sources that are used again later are built again
_DIGITS = 16  # of a build's hash, in its folder's name
_LAYOUT = 2  # version of the cache's layout: a folder for each attempt, and a link to the one that was completed
_NO_SOURCES = {"target", "node_modules", "obj", ".git", "__pycache__"}


def given_values(subject: Subject, engine: Path) -> dict[str, str]:
    """Returns the values of the built-in placeholders that the subject uses; ports are picked elsewhere.

    Raises SubjectError if no JDK or .NET SDK does."""
    wanted = placeholders([*templates_of(subject), *(subject.build or ())])
    given = {"engine": str(engine), **{name: "" for name in SERVICES if name in wanted}}
    given |= {ADDRESS: LOCAL} if ADDRESS in wanted else {}
    jdk = None if subject.jdk is None else find_jdk(subject.jdk, compiles=subject.build is not None)
    if jdk is not None:
        given |= {"java": str(jdk.java), "java_home": str(jdk.home)}
    sdk = None if subject.dotnet is None else find_dotnet(subject.dotnet)
    if sdk is not None:
        given |= {"dotnet": str(sdk.program), "dotnet_version": str(sdk.major)}
    if "folder" in wanted:
        given["folder"] = subject.folder or str(Path.cwd())
    if "build" in wanted:
        given["build"] = str(_build_folder(subject, jdk, sdk))
    return given


def build_once(given: Mapping[str, str], build: Callable[[Mapping[str, str]], bool]) -> None:
    """Calls `build` with the values of the placeholders, unless the same sources were built before; `build` returns
    whether it is done. Nobody else builds the same sources meanwhile.

    Each attempt fills a folder of its own, and `{build}` becomes a link to it once it is done: the remains of an
    attempt that was cut short, or still goes on somewhere, are never taken for a build. A build may write its own path
    into its results, since they stay there.

    Raises MeasurementError if the cache folder cannot be written, and whatever `build` raises."""
    if "build" not in given:
        build(given)
        return
    folder = Path(given["build"])
    with alone_in_cache(folder, "what subjects are built into is kept there"):
        if folder.is_dir():
            return
        for left in folder.parent.glob(f"{folder.name}.*/"):
            shutil.rmtree(left, ignore_errors=True)
        attempt = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
        attempt.chmod(0o755)  # a subject may change to another user
        if build({**given, "build": str(attempt)}):
            os.sync()  # after a power cut, there is a whole build or none
            folder.unlink(missing_ok=True)
            folder.symlink_to(attempt.name)
            _remove_old(folder)
        else:
            shutil.rmtree(attempt, ignore_errors=True)


def _remove_old(folder: Path) -> None:
    """Removes builds of the same subject from other sources that nobody used for `KEPT_S`; each use touches the
    lock."""
    name = folder.name.rpartition("-")[0]
    for lock in folder.parent.glob(f"{name}-{'[0-9a-f]' * _DIGITS}.lock"):
        with suppress(OSError):
            if time.time() - lock.stat().st_mtime > KEPT_S:
                old = lock.with_suffix("")
                old.unlink(missing_ok=True)
                for attempt in lock.parent.glob(f"{old.name}.*/"):
                    shutil.rmtree(attempt, ignore_errors=True)
                lock.unlink()


def _build_folder(subject: Subject, jdk: Jdk | None, sdk: Dotnet | None) -> Path:
    made_by: list[object] = [_LAYOUT, subject.build, None if jdk is None else (str(jdk.home), jdk.version)]
    if sdk is not None:
        made_by.append((str(sdk.home), sdk.version))
    digest = hashlib.sha256(repr(tuple(made_by)).encode())
    for path in _sources(Path(subject.folder)) if subject.folder else ():
        digest.update(f"{path}\0".encode())
        digest.update(path.read_bytes())
    return cache_folder() / "subjects" / f"{slug(subject.name)}-{digest.hexdigest()[:_DIGITS]}"


def _sources(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _NO_SOURCES)
        yield from (Path(parent) / name for name in sorted(files))
