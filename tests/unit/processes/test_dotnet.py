"""The choice of a .NET SDK, from homes planted in folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from powerband.base.errors import SubjectError
from powerband.processes.dotnet import find_dotnet


def home(folder: Path, *sdks: str) -> Path:
    for version in sdks:
        (folder / "sdk" / version).mkdir(parents=True)
    folder.mkdir(exist_ok=True)
    (folder / "dotnet").write_text("#!/bin/sh\n")
    (folder / "dotnet").chmod(0o755)
    return folder


def test_dotnet_root_comes_before_path_before_the_installed(tmp_path: Path) -> None:
    own, real = home(tmp_path / "own", "9.0.100"), home(tmp_path / "real", "8.0.404")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "dotnet").symlink_to(real / "dotnet")
    environment = {"DOTNET_ROOT": str(own), "PATH": str(tmp_path / "bin")}
    installed = (tmp_path / "none", home(tmp_path / "lib", "10.0.401"))

    def found(least: int, **env: str) -> str:
        return find_dotnet(least, environment={**environment, **env}, installed=installed).home.name

    assert found(8) == "own"
    assert found(8, DOTNET_ROOT="") == "real", "what a link on PATH leads to"
    assert found(9, DOTNET_ROOT="") == "lib"
    assert found(10) == "lib"


def test_the_newest_of_several_sdks_builds(tmp_path: Path) -> None:
    folder = home(tmp_path / "own", "8.0.404", "10.0.100-rc.1.25451.107", "9.0.310")
    (folder / "sdk" / "NuGetFallbackFolder").mkdir()
    found = find_dotnet(8, environment={"DOTNET_ROOT": str(folder)}, installed=())
    assert (found.version, found.major) == ("10.0.100-rc.1.25451.107", 10)
    assert found.program == folder / "dotnet"


def test_what_does_not_do_is_named_with_its_reason(tmp_path: Path) -> None:
    environment = {"DOTNET_ROOT": str(tmp_path / "gone"), "PATH": str(home(tmp_path / "path"))}
    with pytest.raises(SubjectError) as error:
        find_dotnet(8, environment=environment, installed=(home(tmp_path / "lib", "6.0.428"),))
    said = str(error.value)
    assert "needs a .NET SDK of version 8 or later" in said and "Install one (https://dotnet.microsoft.com" in said
    assert "DOTNET_ROOT" in said and "has no program dotnet" in said
    assert "has no SDK: it is a runtime" in said and "has the SDK 6.0.428" in said


def test_nothing_installed_at_all(tmp_path: Path) -> None:
    with pytest.raises(SubjectError, match="DOTNET_ROOT is not set, there is no dotnet on PATH"):
        find_dotnet(8, environment={"PATH": str(tmp_path)}, installed=(tmp_path / "none",))
