"""Commands that are .NET programs, and cases without the startup hook: planted folders, nothing is run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from powerband.processes.dotnet_hook import (
    HOOKS,
    DotnetProgram,
    HookBuild,
    NoHookError,
    check_loads,
    dotnet_program,
    hook_build,
    hook_variables,
)


def config(file: Path, version: str = "8.0.0", kind: str = "framework", **properties: object) -> Path:
    framework: Any = {"name": "Microsoft.NETCore.App", "version": version}
    options = {kind: framework if kind == "framework" else [framework], "configProperties": properties}
    file.write_text(json.dumps({"runtimeOptions": options}))
    return file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("dotnet", "taskset", "MyApp", "native"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    config(tmp_path / "MyApp.runtimeconfig.json")
    return tmp_path


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("./MyApp --port 1", "MyApp.runtimeconfig.json"),
        ("dotnet MyApp.dll", "MyApp.runtimeconfig.json"),
        ("taskset -c 0 dotnet exec MyApp.dll", "MyApp.runtimeconfig.json"),
        ("dotnet exec --runtimeconfig MyApp.runtimeconfig.json other.dll", "MyApp.runtimeconfig.json"),
        ("dotnet run", None),
    ],
)
def test_a_net_program_is_known_by_what_is_run(folder: Path, command: str, found: str | None) -> None:
    program = dotnet_program(command.split(), str(folder), str(folder))
    assert program == DotnetProgram(None if found is None else folder / found)


@pytest.mark.parametrize("command", ["./native", "taskset -c 0 ./native MyApp.dll", "gone", "sh -c true"])
def test_nothing_else_is_taken_for_one(folder: Path, command: str) -> None:
    assert dotnet_program(command.split(), str(folder), str(folder)) is None


@pytest.mark.parametrize(("kind", "version", "major"), [("framework", "8.0.0", 8), ("includedFrameworks", "9.0.4", 9)])
def test_the_runtime_is_that_of_the_configuration(tmp_path: Path, kind: str, version: str, major: int) -> None:
    assert DotnetProgram(config(tmp_path / "a.json", version, kind)).major == major


@pytest.mark.parametrize(
    "text", ["", "[]", '{"runtimeOptions": 1}', '{"runtimeOptions": {"framework": {"version": 8}}}']
)
def test_a_configuration_that_says_nothing_is_no_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    assert DotnetProgram(tmp_path / "a.json").major in (None, 8)


def test_a_program_that_runs_no_hooks_or_runs_on_an_older_runtime_gets_none(tmp_path: Path) -> None:
    build = HookBuild((), tmp_path, 9)
    check_loads(DotnetProgram(config(tmp_path / "a.json", "9.0.0")), build)
    with pytest.raises(NoHookError, match=r"asks for \.NET 8, and the SDK that was found compiles for 9 or later"):
        check_loads(DotnetProgram(config(tmp_path / "a.json")), build)
    off = config(tmp_path / "a.json", "9.0.0", **{"System.StartupHookProvider.IsSupported": False})
    with pytest.raises(NoHookError, match=r"a\.json switches startup hooks off"):
        check_loads(DotnetProgram(off), build)


def sdk(folder: Path, *references: str) -> Path:
    """Plants an SDK. `references`: the runtimes beside it, or `standard` for the reference pack of netstandard."""
    (folder / "sdk" / "10.0.100").mkdir(parents=True)
    (folder / "dotnet").write_text("#!/bin/sh\n")
    (folder / "dotnet").chmod(0o755)
    for each in references:
        file = folder / "shared" / "Microsoft.NETCore.App" / each / "System.Private.CoreLib.dll"
        if each == "standard":
            file = folder / "packs/NETStandard.Library.Ref/2.1.0/ref/netstandard2.1/netstandard.dll"
        file.parent.mkdir(parents=True)
        file.touch()
    return folder


@pytest.mark.parametrize(
    ("runtimes", "expected"),
    [
        (("10.0.1", "9.0.3", "8.0.11"), (8, "8.0.11/System.Private.CoreLib.dll")),
        (("10.0.1", "standard"), (3, "netstandard2.1/netstandard.dll")),
    ],
)
def test_the_hook_is_compiled_against_the_oldest_that_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtimes: tuple[str, ...], expected: tuple[int, str]
) -> None:
    monkeypatch.setenv("DOTNET_ROOT", str(sdk(tmp_path, *runtimes)))
    build = hook_build()
    reference = next(word for word in build.argv if word.startswith("-reference:"))
    assert (build.major, reference.endswith(expected[1])) == (expected[0], True), reference


def test_without_an_sdk_there_is_no_hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("powerband.processes.dotnet._INSTALLED", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DOTNET_ROOT", str(tmp_path))
    with pytest.raises(NoHookError, match=r"no \.NET SDK of version 8 or later"):
        hook_build()


@pytest.mark.parametrize(("before", "hooks"), [("", "/h.dll"), ("/own.dll", "/own.dll:/h.dll")])
def test_hooks_of_the_programs_own_run_first(before: str, hooks: str) -> None:
    set_to: Mapping[str, str] = hook_variables(Path("/h.dll"), Path("/t"), before)
    assert set_to == {HOOKS: hooks, "POWERBAND_DOTNET_FIGURES": "/t"}
