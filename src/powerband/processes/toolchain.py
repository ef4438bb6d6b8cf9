"""The tools and folders of a subject's build: the values of `{java}`, `{folder}`, `{build}` and similar placeholders.

In: a subject. Out: the values of these placeholders, and the right to build, once for the same sources. Results of a
build are kept in the cache folder under a hash of all their inputs, so that neither a checkout nor an installed package
is written to. `opening.py` runs the build itself.
"""

from __future__ import annotations

import hashlib
import math
import os
import secrets
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

from powerband.base.errors import SubjectError
from powerband.base.hosts import LOCAL
from powerband.base.machine import alone_in_cache, cache_folder, writing_cache
from powerband.model.experiment import Subject
from powerband.model.plan import Setting
from powerband.model.subjects import ADDRESS, SERVICES, render_text, templates_of, values_of
from powerband.model.templates import placeholders
from powerband.processes.dotnet import Dotnet, find_dotnet
from powerband.processes.jdk import Jdk, find_jdk
from powerband.store import slug

KEPT_S = 30 * 24 * 3600  # arbitrary: older sources that are used again later are built again
_DIGITS = 16  # of a build's hash, in its folder's name
_LAYOUT = 2  # version of the cache's layout: a folder for each attempt, and a link to the one that was completed
_KEPT = "built servers are kept there"
FILES_MOST, BYTES_MOST = 10_000, 256 << 20  # arbitrary: read in about a second
_NO_SOURCES = {".git", "__pycache__"}
# Folders that build tools make, and the files beside them by which a folder of that name is known to be one.
_MADE_BESIDE = {
    "target": ("pom.xml", "Cargo.toml", "build.sbt", "build.properties", "project.clj"),
    "obj": ("*.csproj", "*.fsproj", "*.vbproj"),
    "node_modules": ("package.json",),
}


def given_values(subject: Subject, engine: Path) -> dict[str, str]:
    """Returns the values of the built-in placeholders that the subject uses; ports are picked elsewhere.

    Raises SubjectError if no JDK or .NET SDK does, or if a source cannot be read."""
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
        given["build"] = str(_build_folder(subject, given, jdk, sdk))
    return given


def build_once(
    given: Mapping[str, str],
    build: Callable[[Mapping[str, str]], bool],
    stopped: Callable[[], bool | None] = lambda: None,
    note: Callable[[str], None] = lambda text: None,
) -> None:
    """Calls `build` with the values of the placeholders, unless the same sources were built before; `build` returns
    whether it is done. Nobody else builds the same sources meanwhile.

    Each attempt fills a folder of its own, and `{build}` becomes a link to it once it is done: the remains of an
    attempt that was cut short, or still goes on somewhere, are never taken for a build. A build may write its own path
    into its results, since they stay there. `stopped`, `note`: for the wait while somebody else builds them.

    Raises MeasurementError if the cache folder cannot be written, UserInterruptError, and whatever `build` raises."""
    if "build" not in given:
        build(given)
        return
    folder = Path(given["build"])
    with alone_in_cache(folder, _KEPT, stopped, note):
        if folder.is_dir():
            return
        for left in folder.parent.glob(f"{folder.name}.*/"):
            shutil.rmtree(left, ignore_errors=True)
        with writing_cache(folder, _KEPT):
            attempt = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
            attempt.chmod(0o755)  # a subject may change to another user
        if build({**given, "build": str(attempt)}):
            os.sync()  # after a power cut, there is a whole build or none
            with writing_cache(folder, _KEPT):
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


def _build_folder(subject: Subject, given: Mapping[str, str], jdk: Jdk | None, sdk: Dotnet | None) -> Path:
    """Returns the folder of a build, which is named after its inputs. A server without a folder of its own, with a
    `subject.yaml`, has its sources where it is built; if these cannot all be read, or are too many, nobody shares the
    build."""
    made_by: list[object] = [_LAYOUT, subject.build, None if jdk is None else (str(jdk.home), jdk.version)]
    if sdk is not None:
        made_by.append((str(sdk.home), sdk.version))
    values = values_of(subject, Setting(()), {})
    used = sorted(placeholders(subject.build or ()) & values.keys() - given.keys())
    if used:
        made_by.append([(name, values[name]) for name in used])
    digest = hashlib.sha256(repr(tuple(made_by)).encode())
    folder, is_own = _sources_folder(subject, given)
    if is_own:
        try:
            _take_in(digest, folder, math.inf, math.inf)
        except OSError as error:
            raise SubjectError(
                f"the source {error.filename} of {subject.name} cannot be read: {error.strerror}: make it readable, or "
                f"move it out of {subject.folder}"
            ) from error
    else:
        digest.update(os.fsencode(folder))
        try:
            whole = _take_in(digest, folder, FILES_MOST, BYTES_MOST)
        except OSError:
            whole = False
        if not whole:
            digest.update(secrets.token_bytes())
    return cache_folder() / "subjects" / f"{slug(subject.name)}-{digest.hexdigest()[:_DIGITS]}"


def _sources_folder(subject: Subject, given: Mapping[str, str]) -> tuple[Path, bool]:
    """Returns the folder of the sources, and whether it is one of the subject's own, with a `subject.yaml`."""
    if subject.folder and Path(subject.folder, "subject.yaml").is_file():
        return Path(subject.folder), True
    values = {**given, "build": os.curdir}
    return Path.cwd() / render_text(subject, Setting(()), values, subject.cwd or os.curdir), False


def built_before(subject: Subject, given: Mapping[str, str]) -> str:
    """Returns a sentence that says so if a server without a folder of its own will not be built, since it was built
    before: its sources may lie elsewhere, too. Else empty."""
    folder, is_own = _sources_folder(subject, given)
    build = given.get("build", "")
    if is_own or not build or not Path(build).is_dir():
        return ""
    return (
        f"the server that was built earlier is used, since no file below {folder} has changed (files elsewhere are not "
        f"looked at: `rm {shlex.quote(build)}` lets it be built anew)"
    )


def is_edited_since(subject: Subject, given: Mapping[str, str], at_s: float) -> bool:
    """Returns True if a source or its folder changed after this instant of the wall clock, or cannot be looked at."""
    try:
        sources = _sources(_sources_folder(subject, given)[0])
        return any(each.lstat().st_ctime > at_s for path in sources for each in (path, path.parent))
    except OSError:
        return True


def _take_in(digest: hashlib._Hash, folder: Path, files_most: float, bytes_most: float) -> bool:
    """Adds the path and the content of each source to the digest, of a link also where it leads to. Returns False if
    there are more sources than these. Raises OSError if one cannot be read."""
    files, size = 0, 0
    for path in _sources(folder):
        digest.update(os.fsencode(path) + b"\0")
        if path.is_symlink():
            digest.update(os.fsencode(path.readlink()) + b"\0")
        if path.is_file():  # no pipe, no link to nothing
            files, size = files + 1, size + path.stat().st_size
            if files > files_most or size > bytes_most:
                return False
            digest.update(path.read_bytes())
    return True


def _sources(folder: Path) -> Iterator[Path]:
    """Yields the files of a folder, and links to folders, without what is made from sources, runs and the cache."""
    for parent, folders, files in os.walk(folder):
        if ("experiment.yaml" in files and "trials" in folders) or Path(parent) == cache_folder():
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if not _is_made(Path(parent), name, files))
        links = [name for name in folders if (Path(parent) / name).is_symlink()]
        yield from (Path(parent) / name for name in sorted([*files, *links]))


def _is_made(parent: Path, name: str, files: Sequence[str]) -> bool:
    """True if a folder is made from sources. `files`: the names of those beside it."""
    if name not in _MADE_BESIDE:
        return name in _NO_SOURCES
    beside = any(fnmatchcase(file, pattern) for file in files for pattern in _MADE_BESIDE[name])
    return beside or (parent / name / "CACHEDIR.TAG").is_file()
