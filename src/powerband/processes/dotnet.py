"""Finds the .NET SDK that builds and starts a subject: the first in the usual places that is new enough.

In: the lowest version. Out: a `Dotnet`. The folder of an SDK is named after its version, so none has to be started.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from powerband.base.errors import SubjectError

_INSTALLED = (Path("/usr/lib/dotnet"), Path("/usr/share/dotnet"))
ENV = (
    ("DOTNET_CLI_TELEMETRY_OPTOUT", "1"),
    ("DOTNET_NOLOGO", "1"),
    ("DOTNET_CLI_WORKLOAD_UPDATE_NOTIFY_DISABLE", "true"),
    ("DOTNET_GENERATE_ASPNET_CERTIFICATE", "false"),
)
"""The environment of a build, which should fetch packages and do nothing else over the network."""


@dataclass(frozen=True)
class Dotnet:
    """A .NET installation. `home`: its folder, as in DOTNET_ROOT. `version`: that of its newest SDK, which builds."""

    home: Path
    version: str

    @property
    def major(self) -> int:
        """The first number of the version: that of the framework that a build targets."""
        return numbers(self.version)[0]

    @property
    def program(self) -> Path:
        """The command `dotnet` of this installation."""
        return self.home / "dotnet"


def find_dotnet(
    least: int, *, environment: Mapping[str, str] | None = None, installed: Sequence[Path] = _INSTALLED
) -> Dotnet:
    """Returns the first installation whose major version is at least `least`: that of DOTNET_ROOT, of `dotnet` on PATH,
    then of Linux distributions.

    Raises SubjectError, which names each place that was looked at and why it does not do."""
    looked: list[str] = []
    places: dict[Path, str] = {}
    for found, home in _places(os.environ if environment is None else environment, installed):
        places.setdefault(home.resolve(), found)
    for home, found in places.items():
        version = max(_versions(home), key=numbers, default="")
        if not os.access(home / "dotnet", os.X_OK):
            looked.append(f"{found} ({home}) has no program dotnet that can be run")
        elif not version:
            looked.append(f"{found} ({home}) has no SDK: it is a runtime, not a development kit")
        elif numbers(version)[0] < least:
            looked.append(f"{found} ({home}) has the SDK {version}")
        else:
            return Dotnet(home, version)
    seen = "; ".join(looked) or (
        "DOTNET_ROOT is not set, there is no dotnet on PATH, and nothing in " + " or ".join(map(str, installed))
    )
    raise SubjectError(
        f"this server needs a .NET SDK of version {least} or later, and none was found: {seen}. Install one "
        "(https://dotnet.microsoft.com/download; Ubuntu: dotnet-sdk-10.0) and set DOTNET_ROOT to its folder"
    )


def _places(environment: Mapping[str, str], installed: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    if environment.get("DOTNET_ROOT"):
        yield "DOTNET_ROOT", Path(environment["DOTNET_ROOT"])
    program = shutil.which("dotnet", path=environment.get("PATH", os.defpath))
    if program is not None:
        yield "dotnet on PATH", Path(program).resolve().parent
    for home in installed:
        if home.is_dir():
            yield "the installed one", home


def _versions(home: Path) -> Iterator[str]:
    try:
        yield from (path.name for path in (home / "sdk").iterdir() if path.name[:1].isdigit())
    except OSError:
        return


def numbers(version: str) -> tuple[int, ...]:
    """Returns the numbers of a version: (10, 0, 100) for `10.0.100-rc.1`."""
    return tuple(int(part) for part in version.partition("-")[0].split(".") if part.isdigit())
