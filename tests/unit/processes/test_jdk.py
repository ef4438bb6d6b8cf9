"""The choice of a JDK, from homes planted in folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from powerband.base.errors import SubjectError
from powerband.processes.jdk import find_jdk


def home(folder: Path, version: str, *, javac: bool = True) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "release").write_text(f'IMPLEMENTOR="X"\nJAVA_VERSION="{version}"\n')
    for name in ("java", *(["javac"] if javac else [])):
        (folder / "bin" / name).write_text("#!/bin/sh\n")
        (folder / "bin" / name).chmod(0o755)
    return folder


def test_java_home_comes_before_path_before_the_newest_installed(tmp_path: Path) -> None:
    own, on_path = home(tmp_path / "own", "21.0.2"), home(tmp_path / "path", "17.0.15")
    home(tmp_path / "jvm" / "a-21", "21.0.1")
    home(tmp_path / "jvm" / "b-25", "25.0.3")
    environment = {"JAVA_HOME": str(own), "PATH": str(on_path / "bin")}

    def found(least: int, **env: str) -> str:
        return find_jdk(least, environment={**environment, **env}, installed=tmp_path / "jvm").home.name

    assert found(17) == "own"
    assert found(17, JAVA_HOME="") == "path"
    assert found(21, JAVA_HOME="") == "b-25"
    assert found(25) == "b-25"


def test_a_preferred_version_comes_before_all_others(tmp_path: Path) -> None:
    home(tmp_path / "jvm" / "a-17", "17.0.1")
    home(tmp_path / "jvm" / "b-21", "21.0.1")
    home(tmp_path / "jvm" / "c-25", "25.0.3")
    environment = {"JAVA_HOME": str(home(tmp_path / "own", "11.0.2")), "PATH": str(tmp_path)}

    def found(preferred: int, newest: int = 21) -> str:
        jdk = find_jdk(11, newest=newest, preferred=preferred, environment=environment, installed=tmp_path / "jvm")
        return jdk.home.name

    assert found(17) == "a-17"
    assert found(19) == "own"
    assert found(25) == "own", "too new"


def test_a_runtime_compiles_nothing_and_old_versions_count_from_one(tmp_path: Path) -> None:
    runtime = home(tmp_path / "jre", "25", javac=False)
    old = home(tmp_path / "jvm" / "old", "1.8.0_402")
    environment = {"JAVA_HOME": str(runtime), "PATH": str(tmp_path)}
    assert find_jdk(21, environment=environment, installed=tmp_path / "jvm").home == runtime
    assert find_jdk(8, compiles=True, environment=environment, installed=tmp_path / "jvm").home == old


def test_what_does_not_do_is_named_with_its_reason(tmp_path: Path) -> None:
    environment = {"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(home(tmp_path / "path", "17.0.1") / "bin")}
    home(tmp_path / "jvm" / "runtime", "22", javac=False)
    with pytest.raises(SubjectError) as error:
        find_jdk(21, compiles=True, environment=environment, installed=tmp_path / "jvm")
    said = str(error.value)
    assert "needs a JDK of version 21 or later" in said and "openjdk-21-jdk" in said
    assert "JAVA_HOME" in said and "is no JDK" in said
    assert "is version 17" in said and "has no javac" in said


def test_nothing_installed_at_all(tmp_path: Path) -> None:
    with pytest.raises(SubjectError, match="JAVA_HOME is not set, there is no java on PATH"):
        find_jdk(17, environment={"PATH": str(tmp_path)}, installed=tmp_path / "none")
