"""Jars are compared with the hashes that the sources contain."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from powerband.processes.locked_jars import wrong_jars


@pytest.fixture
def hashes(tmp_path: Path) -> Path:
    """A build of two jars, and a third one made here with another jar inside; the file returned lists their hashes."""
    (tmp_path / "build/lib").mkdir(parents=True)
    (tmp_path / "build/lib/a.jar").write_bytes(b"a")
    (tmp_path / "build/lib/b.jar").write_bytes(b"b")
    with zipfile.ZipFile(tmp_path / "build/own.jar", "w") as own:
        own.writestr("BOOT-INF/lib/c.jar", b"c")
        own.writestr("META-INF/MANIFEST.MF", b"made just now")
    lines = [f"{hashlib.sha256(name.encode()).hexdigest()}  {name}.jar" for name in "abc"]
    (tmp_path / "jars.sha256").write_text("\n".join([*lines, "-  own.jar", ""]))
    return tmp_path / "jars.sha256"


def test_jars_as_listed(hashes: Path) -> None:
    assert wrong_jars(hashes.parent / "build", hashes) == []


def test_each_jar_that_differs_is_named(hashes: Path) -> None:
    build = hashes.parent / "build"
    (build / "lib/a.jar").write_bytes(b"another")
    (build / "lib/b.jar").unlink()
    (build / "lib/d.jar").write_bytes(b"d")
    with zipfile.ZipFile(build / "own.jar", "w") as own:
        own.writestr("BOOT-INF/lib/c.jar", b"changed inside")
    assert wrong_jars(build, hashes) == [
        "a.jar is another file",
        "b.jar is missing",
        "c.jar is another file",
        "d.jar is not expected",
    ]


@pytest.mark.parametrize("place", ["deps", "zlib"])
def test_a_jar_that_is_there_twice_is_compared_twice(place: str, hashes: Path) -> None:
    """Only the last of two jars of one name was once compared, and another on the class path went unnoticed."""
    other = hashes.parent / "build" / place
    other.mkdir()
    (other / "a.jar").write_bytes(b"another")
    assert wrong_jars(hashes.parent / "build", hashes) == ["a.jar is another file"]
