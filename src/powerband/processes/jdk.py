"""Finds the JDK that builds and starts a subject: the first in the usual places that is new enough.

In: the lowest version, and the highest. Out: a `Jdk`. A JDK's `release` file contains its version, so none has to be
started.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from powerband.base.errors import SubjectError

_VERSION = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)
_INSTALLED = Path("/usr/lib/jvm")


@dataclass(frozen=True)
class Jdk:
    """A JDK. `home`: its folder, as in JAVA_HOME. `version`: its major version."""

    home: Path
    version: int

    @property
    def java(self) -> Path:
        """The command `java` of this JDK."""
        return self.home / "bin" / "java"


def find_jdk(
    least: int,
    *,
    newest: int | None = None,
    preferred: int | None = None,
    compiles: bool = False,
    who: str = "this server",
    environment: Mapping[str, str] | None = None,
    installed: Path = _INSTALLED,
) -> Jdk:
    """Returns the first JDK that does: that of JAVA_HOME, of `java` on PATH, then those below /usr/lib/jvm, the newest
    first. One whose version is `preferred` comes before all others. `compiles`: it must have javac. `who`: what needs
    it, in words.

    Raises SubjectError, which names each JDK that was looked at and why it does not do."""
    looked: list[str] = []
    first: Jdk | None = None
    places: dict[Path, str] = {}
    for found, home in _places(os.environ if environment is None else environment, installed):
        places.setdefault(home.resolve(), found)
    for home, found in places.items():
        version = _version(home)
        if version is None:
            looked.append(f"{found} ({home}) is no JDK: it has no `release` file that tells a version")
        elif version < least or (newest is not None and version > newest):
            looked.append(f"{found} ({home}) is version {version}")
        elif not os.access(home / "bin" / "java", os.X_OK):
            looked.append(f"{found} ({home}) has no bin/java that can be run")
        elif compiles and not os.access(home / "bin" / "javac", os.X_OK):
            looked.append(f"{found} ({home}) has no javac: it is a runtime, not a development kit")
        else:
            jdk = Jdk(home, version)
            if preferred in (None, version):
                return jdk
            first = first or jdk
    if first is not None:
        return first
    seen = "; ".join(looked) or f"JAVA_HOME is not set, there is no java on PATH, and nothing below {installed}"
    wanted, debian = f"{least} or later", f"openjdk-{least}-jdk or newer"
    if newest is not None:
        wanted, debian = f"{least} to {newest}", "openjdk-17-jdk-headless or openjdk-21-jdk-headless"
    raise SubjectError(
        f"{who} needs a JDK of version {wanted}, and none was found: {seen}. Install one (Debian: {debian}; or "
        "https://adoptium.net) and set JAVA_HOME to it"
    )


def _places(environment: Mapping[str, str], installed: Path) -> Iterator[tuple[str, Path]]:
    if environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(environment["JAVA_HOME"])
    java = shutil.which("java", path=environment.get("PATH", os.defpath))
    if java is not None:
        yield "java on PATH", Path(java).resolve().parent.parent
    try:
        homes = [home for home in installed.iterdir() if home.is_dir()]
    except OSError:
        return
    for home in sorted(homes, key=lambda home: (-(_version(home) or 0), home.name)):
        if _version(home) is not None:
            yield f"the installed {home.name}", home


def _version(home: Path) -> int | None:
    """Returns the major version; None if the folder is no JDK."""
    try:
        match = _VERSION.search((home / "release").read_text(errors="replace"))
    except OSError:
        return None
    return int(match[1]) if match else None
