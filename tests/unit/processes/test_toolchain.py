"""Builds are kept by what they are made from."""

from __future__ import annotations

from pathlib import Path

import pytest

from powerband.base.errors import MeasurementError
from powerband.model.experiment import Subject
from powerband.processes.toolchain import built_once, given_values, mark_built

ENGINE = Path("/bin/true")


@pytest.fixture
def subject(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Subject:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "own" / "src").mkdir(parents=True)
    (tmp_path / "own" / "src" / "main.c").write_text("int main;")
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
    (tmp_path / "own" / "target").mkdir()
    (tmp_path / "own" / "target" / "x.o").write_text("made")
    assert given_values(subject, ENGINE) == first, "what a build made is no source"
    (tmp_path / "own" / "src" / "main.c").write_text("int main(){}")
    assert given_values(subject, ENGINE)["build"] != first["build"]


def test_it_is_built_once_and_again_where_that_did_not_end_well(subject: Subject) -> None:
    given = given_values(subject, ENGINE)
    with built_once(given) as is_built:
        assert not is_built
        (Path(given["build"]) / "half").touch()
    with built_once(given) as is_built:
        assert not is_built and not list(Path(given["build"]).iterdir())
        mark_built(given)
    with built_once(given) as is_built:
        assert is_built


def test_only_what_is_used_is_looked_for() -> None:
    assert given_values(Subject(name="s", command=("./server", "{port}")), ENGINE) == {"engine": "/bin/true"}


def test_a_cache_that_cannot_be_written(subject: Subject, tmp_path: Path) -> None:
    given = given_values(subject, ENGINE)
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(MeasurementError, match="XDG_CACHE_HOME"), built_once(given):
        pass
