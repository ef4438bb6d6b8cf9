"""Builds are kept by the hash of their sources."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest

from powerband.base.errors import MeasurementError, SubjectError
from powerband.model.experiment import Experiment, Subject
from powerband.model.load import Load
from powerband.processes import toolchain
from powerband.processes.toolchain import KEPT_S, build_once, given_values

ENGINE = Path("/bin/true")


@pytest.fixture
def subject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Subject:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "own" / "src").mkdir(parents=True)
    (tmp_path / "own" / "src" / "main.c").write_text("int main;")
    (tmp_path / "own" / "subject.yaml").touch()
    return Subject(
        name="s",
        command=("{build}/server", "{port}"),
        build=("cc", "{folder}/src/main.c"),
        folder=str(tmp_path / "own"),
    )


def test_a_build_folder_is_that_of_its_sources_and_its_command(subject: Subject, tmp_path: Path) -> None:
    first = given_values(subject, ENGINE)
    assert first["folder"] == str(tmp_path / "own") and first["build"].startswith(str(tmp_path / "cache"))
    assert given_values(subject, ENGINE) == first
    assert given_values(subject.model_copy(update={"build": ("cc", "-O2")}), ENGINE)["build"] != first["build"]
    (tmp_path / "own" / "src" / "main.c").write_text("int main(){}")
    assert given_values(subject, ENGINE)["build"] != first["build"]


@pytest.mark.parametrize(
    ("name", "mark", "is_source"),
    [
        ("target", "Cargo.toml", False),
        ("target", "target/CACHEDIR.TAG", False),
        ("obj", "Server.csproj", False),
        ("node_modules", "package.json", False),
        ("__pycache__", "", False),
        ("target", "", True),
        ("target", "package.json", True),
        ("obj", "", True),
        ("build", "build/CACHEDIR.TAG", True),
    ],
)
def test_what_a_build_tool_made_is_no_source_but_a_folder_of_that_name_may_be(
    subject: Subject, tmp_path: Path, name: str, mark: str, is_source: bool
) -> None:
    (tmp_path / "own" / "src" / name).mkdir()
    if mark:
        (tmp_path / "own" / "src" / mark).touch()
    first = given_values(subject, ENGINE)["build"]
    (tmp_path / "own" / "src" / name / "plan.c").write_text("changed")
    assert (given_values(subject, ENGINE)["build"] != first) is is_source


def test_it_is_built_once_and_again_where_that_did_not_end_well(subject: Subject) -> None:
    given, attempts = given_values(subject, ENGINE), []

    def build(inside: Mapping[str, str], *, done: bool = True) -> bool:
        folder = Path(inside["build"])
        assert folder != Path(given["build"]) and not list(folder.iterdir())
        (folder / "server").touch()
        attempts.append(folder)
        return done

    build_once(given, partial(build, done=False))
    assert not Path(given["build"]).exists() and not attempts[0].exists()
    build_once(given, build)
    build_once(given, build)
    assert len(attempts) == 2 and (Path(given["build"]) / "server").is_file()
    assert (attempts[1] / "server").is_file(), "a path that the build wrote into its files goes on holding"


def test_an_attempt_that_was_cut_short_and_goes_on_is_never_taken_for_a_build(subject: Subject) -> None:
    given, orphaned = given_values(subject, ENGINE), []

    def killed(inside: Mapping[str, str]) -> bool:
        orphaned.append(Path(inside["build"]))
        raise KeyboardInterrupt

    def build(inside: Mapping[str, str]) -> bool:
        orphaned[0].mkdir(exist_ok=True)
        (orphaned[0] / "half").touch()  # the orphaned build still writes
        (Path(inside["build"]) / "whole").touch()
        return True

    with pytest.raises(KeyboardInterrupt):
        build_once(given, killed)
    assert not Path(given["build"]).exists()
    build_once(given, build)
    assert [path.name for path in Path(given["build"]).iterdir()] == ["whole"]


def test_a_new_build_removes_those_of_the_same_subject_that_nobody_used_for_a_month(subject: Subject) -> None:
    def build(inside: Mapping[str, str]) -> bool:
        (Path(inside["build"]) / "server").touch()
        return True

    builds = []
    for flags, unused_s in (("-O1", KEPT_S + 60), ("-O2", KEPT_S - 60), ("-O3", 0)):
        given = given_values(subject.model_copy(update={"build": ("cc", flags)}), ENGINE)
        build_once(given, build)
        builds.append(Path(given["build"]))
        used = time.time() - unused_s
        os.utime(builds[-1].with_name(f"{builds[-1].name}.lock"), (used, used))
    assert [path.is_dir() for path in builds] == [False, True, True]
    assert not list(builds[0].parent.glob(f"{builds[0].name}*"))


def test_only_what_is_used_is_looked_for() -> None:
    assert given_values(Subject(name="s", command=("./server", "{port}")), ENGINE) == {"engine": "/bin/true"}


def test_a_cache_that_cannot_be_written(subject: Subject, tmp_path: Path) -> None:
    given = given_values(subject, ENGINE)
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(MeasurementError, match="XDG_CACHE_HOME"):
        build_once(given, lambda inside: True)


def test_a_build_is_that_of_its_sdk_too(subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("9.0.100", "10.0.100"):
        home = tmp_path / version
        (home / "sdk" / version).mkdir(parents=True)
        (home / "dotnet").touch(mode=0o755)
    words = ("{dotnet}", "build", "-p:TargetFramework=net{dotnet_version}.0", "-o", "{build}")
    dotnet = subject.model_copy(update={"dotnet": 9, "build": words})
    monkeypatch.setenv("DOTNET_ROOT", str(tmp_path / "9.0.100"))
    nine = given_values(dotnet, ENGINE)
    monkeypatch.setenv("DOTNET_ROOT", str(tmp_path / "10.0.100"))
    ten = given_values(dotnet, ENGINE)
    assert (nine["dotnet_version"], ten["dotnet_version"]) == ("9", "10")
    assert ten["dotnet"] == str(tmp_path / "10.0.100" / "dotnet") and ten["build"] != nine["build"]


@pytest.fixture
def inline(subject: Subject, tmp_path: Path) -> Subject:
    return subject.model_copy(update={"folder": None, "cwd": str(tmp_path / "own"), "build": ("make", "TO={build}")})


def test_a_server_without_a_folder_is_built_from_the_sources_where_it_is_built(inline: Subject, tmp_path: Path) -> None:
    first = given_values(inline, ENGINE)["build"]
    run = tmp_path / "own" / "runs" / "one"
    (run / "trials").mkdir(parents=True)
    (run / "experiment.yaml").touch()
    assert given_values(inline, ENGINE)["build"] == first, "a run is no source"
    shutil.copytree(tmp_path / "own", tmp_path / "other")
    assert given_values(inline.model_copy(update={"cwd": str(tmp_path / "other")}), ENGINE)["build"] != first
    (tmp_path / "own" / "src" / "main.c").write_text("int main(){}")
    assert given_values(inline, ENGINE)["build"] != first


@pytest.mark.parametrize("most", ["FILES_MOST", "BYTES_MOST"])
@pytest.mark.parametrize("command", ["make", "{folder}/make"])
def test_where_too_much_lies_beside_the_sources_it_is_always_built_anew(
    inline: Subject, command: str, most: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, most, 0)
    (tmp_path / "own" / "subject.yaml").unlink()
    told = inline.model_copy(update={"build": (command, "TO={build}"), "cwd": None})
    begun = Experiment(name="x", subject=told, load=Load(users=1)).started_in(str(tmp_path / "own")).subject
    assert given_values(begun, ENGINE)["build"] != given_values(begun, ENGINE)["build"]


def test_a_build_is_that_of_the_values_in_its_command(subject: Subject) -> None:
    set_to = subject.model_copy(update={"build": ("cc", "-DV={v}"), "set": {"v": 1}})
    assert given_values(set_to, ENGINE) == given_values(set_to, ENGINE)
    other = set_to.model_copy(update={"set": {"v": 2}})
    assert given_values(set_to, ENGINE)["build"] != given_values(other, ENGINE)["build"]


def test_links_to_nothing_and_pipes_are_no_sources_to_read(subject: Subject, tmp_path: Path) -> None:
    lock = tmp_path / "own" / "src" / ".#main.c"
    lock.symlink_to("me@here.1:2")
    os.mkfifo(tmp_path / "own" / "pipe")
    first = given_values(subject, ENGINE)["build"]
    lock.unlink()
    lock.symlink_to("elsewhere")
    assert given_values(subject, ENGINE)["build"] != first


def test_a_source_that_cannot_be_read_is_named(
    subject: Subject, inline: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "own" / "subject.yaml"

    def closed(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", closed)
    with pytest.raises(SubjectError, match=f"the source {file} of s cannot be read: Permission denied"):
        given_values(subject, ENGINE)
    assert given_values(inline, ENGINE)["build"] != given_values(inline, ENGINE)["build"], "built anew"
