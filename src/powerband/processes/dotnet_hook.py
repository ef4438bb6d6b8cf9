"""Adds a startup hook to .NET servers: an assembly that the runtime runs before Main, without a change to the program,
and that writes the runtime's figures about itself (`static/StartupHook.cs`).

In: a command with its environment. Out: the variables that make the runtime load the hook, or the reason why there is
none. The SDK's own compiler compiles it once, without a restore; the result is kept in the cache folder under a hash of
its inputs. It loads in every runtime that is no older than the one it was compiled against. Not here: what the figures
mean. Source: "Host startup hook", a design page of https://github.com/dotnet/runtime.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from powerband.base.errors import SubjectError
from powerband.base.machine import cache_folder
from powerband.processes.dotnet import Dotnet, find_dotnet, numbers

HOOKS, FOLDER = "DOTNET_STARTUP_HOOKS", "POWERBAND_DOTNET_FIGURES"
SDK_LEAST = 8  # the same as the subjects ask for
_SOURCE = Path(__file__).parent / "static" / "StartupHook.cs"
_ASSEMBLY = "PowerbandHook.dll"
_STANDARD_MAJOR = 3  # .NET Core 3.0 is the first runtime with netstandard 2.1
_CONFIG = ".runtimeconfig.json"
_SWITCH = "System.StartupHookProvider.IsSupported"


class NoHookError(Exception):
    """The hook cannot be used; the message gives the reason, as the end of a sentence."""


@dataclass(frozen=True)
class DotnetProgram:
    """A .NET program, found by its command. `config`: its runtimeconfig.json; None if it is unknown (`dotnet run`)."""

    config: Path | None

    @property
    def major(self) -> int | None:
        """The lowest major version of the runtime that the program accepts; None if it is unknown. Raises NoHookError
        if the program runs no hook."""
        if self.config is None:
            return None
        options = _options(self.config)
        properties = options.get("configProperties")
        if isinstance(properties, dict) and properties.get(_SWITCH) in (False, "false"):
            raise NoHookError(f"{self.config.name} switches startup hooks off ({_SWITCH}), as trimmed programs do")
        frameworks = [options.get("framework"), *_list(options, "frameworks"), *_list(options, "includedFrameworks")]
        versions = [str(each.get("version", "")) for each in frameworks if isinstance(each, dict)]
        return min((found[0] for version in versions if (found := numbers(version))), default=None)


@dataclass(frozen=True)
class HookBuild:
    """The way to compile the hook. `argv`: the command, with the placeholder `{build}`. `folder`: where the result is
    kept. `major`: the version of the oldest runtime in which it loads."""

    argv: tuple[str, ...]
    folder: Path
    major: int

    @property
    def assembly(self) -> Path:
        """The compiled hook: the file that .NET loads."""
        return self.folder / _ASSEMBLY


def dotnet_program(argv: Sequence[str], cwd: str | None, path: str | None) -> DotnetProgram | None:
    """Returns the .NET program that a command runs; None if it names none. A launcher before the program (taskset, env)
    is skipped; a program that a script starts is not found. `path`: the PATH in which the command is looked up."""
    folder = Path(cwd or ".")
    for at, word in enumerate(argv):
        file = _file(word, folder, path)
        if file is None:
            continue
        if file.name == "dotnet":
            return DotnetProgram(_managed(argv[at + 1 :], folder))
        config = file.with_name(file.name + _CONFIG)
        if config.is_file():
            return DotnetProgram(config)
    return None


def hook_build() -> HookBuild:
    """Returns how to compile the hook. Raises NoHookError if no SDK can."""
    try:
        sdk = find_dotnet(SDK_LEAST)
    except SubjectError as error:
        raise NoHookError(f"no .NET SDK of version {SDK_LEAST} or later, which compiles it, was found") from error
    compiler = sdk.home / "sdk" / sdk.version / "Roslyn" / "bincore" / "csc.dll"
    reference, major = _reference(sdk)
    argv = (
        *(str(sdk.program), "exec", str(compiler), "-nologo", "-noconfig", "-nostdlib+", "-nullable:enable"),
        *("-langversion:latest", "-target:library", "-optimize+", "-deterministic+", f"-reference:{reference}"),
        *(f"-out:{{build}}/{_ASSEMBLY}", str(_SOURCE)),
    )
    made_from = repr((argv, sdk.version)).encode() + _SOURCE.read_bytes()
    folder = cache_folder() / "dotnet-hook" / hashlib.sha256(made_from).hexdigest()[:16]
    return HookBuild(argv, folder, major)


def check_loads(program: DotnetProgram, build: HookBuild) -> None:
    """Raises NoHookError if the program may run on a runtime in which the hook does not load: it would then not
    start."""
    major = program.major
    if major is not None and major < build.major:
        raise NoHookError(
            f"the program asks for .NET {major}, and the SDK that was found compiles for {build.major} or later: "
            f"install the runtime of .NET {major} beside the SDK"
        )


def hook_variables(assembly: Path, folder: Path, before: str) -> dict[str, str]:
    """Returns the variables that load the hook. `folder`: where it writes; `before`: the hooks that the program already
    has."""
    return {HOOKS: f"{before}:{assembly}" if before else str(assembly), FOLDER: str(folder)}


def _file(word: str, folder: Path, path: str | None) -> Path | None:
    """Returns the file that a word of a command would start, with links followed; None if there is none."""
    found = shutil.which(word, path=path) if "/" not in word else str(folder / word)
    if found is None or not os.path.isfile(found):  # noqa: PTH113 - False for a closed folder, where Path raises
        return None
    return Path(found).resolve()


def _managed(words: Sequence[str], folder: Path) -> Path | None:
    """Returns the configuration of the program that `dotnet WORDS` runs; None if it is unknown."""
    for at, word in enumerate(words):
        if word == "--runtimeconfig" and at + 1 < len(words):
            return _existing(folder / words[at + 1])
        if word.endswith(".dll"):
            return _existing(folder / f"{word.removesuffix('.dll')}{_CONFIG}")
    return None


def _existing(file: Path) -> Path | None:
    return file if file.is_file() else None


def _options(config: Path) -> Mapping[str, Any]:
    """Returns the runtime options; none if they cannot be read, which .NET itself will report."""
    try:
        options = json.loads(config.read_text(encoding="utf-8-sig"))["runtimeOptions"]
    except (OSError, ValueError, LookupError, TypeError):
        return {}
    return options if isinstance(options, dict) else {}


def _list(options: Mapping[str, Any], name: str) -> list[Any]:
    found = options.get(name)
    return found if isinstance(found, list) else []


def _reference(sdk: Dotnet) -> tuple[Path, int]:
    """Returns what the hook is compiled against, and the oldest runtime that has it: netstandard if the SDK contains
    it, else the oldest runtime beside the SDK. Raises NoHookError."""
    for standard in (sdk.home / "packs" / "NETStandard.Library.Ref").glob("2.1*/ref/netstandard2.1/netstandard.dll"):
        return standard, _STANDARD_MAJOR
    runtimes = (sdk.home / "shared" / "Microsoft.NETCore.App").glob("[0-9]*/System.Private.CoreLib.dll")
    oldest = min(runtimes, key=lambda file: numbers(file.parent.name), default=None)
    if oldest is None:
        raise NoHookError(f"the .NET SDK in {sdk.home} has no runtime beside it")
    return oldest, numbers(oldest.parent.name)[0]
