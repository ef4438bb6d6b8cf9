"""Folders sent to a node and back are complete and bounded, and nothing is written outside of them."""

from __future__ import annotations

import io
import os
import random
import stat
import tarfile
from pathlib import Path

import pytest

from powerband.base.errors import MeasurementError, UsageError
from powerband.cluster import parcels
from powerband.cluster.parcels import MADE_BY_BUILDS, NEVER_NEEDED, pack, size_text, unpack


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(autouse=True)
def an_early_311(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes this Python's archives those of 3.11.0 to 3.11.3, such as Debian 12's, which know no filter."""
    monkeypatch.delattr(tarfile, "data_filter", raising=False)
    monkeypatch.delattr(tarfile.TarFile, "extract")


def test_what_is_packed_comes_out_the_same(tmp_path: Path) -> None:
    (tmp_path / "from" / "deep" / "empty").mkdir(parents=True)
    (tmp_path / "from" / "record.json").write_bytes(b"{}")
    (tmp_path / "from" / "deep" / "events.jsonl").write_bytes(bytes(range(256)) * 100)
    (tmp_path / "from" / "same.json").hardlink_to(tmp_path / "from" / "record.json")
    (tmp_path / "from" / "run.sh").write_bytes(b"#!/bin/sh\n")
    (tmp_path / "from" / "run.sh").chmod(0o4555)
    os.utime(tmp_path / "from" / "run.sh", (1e9, 1e9))
    unpack(pack(tmp_path / "from"), tmp_path / "to")
    assert content(tmp_path / "to") == content(tmp_path / "from")
    assert (tmp_path / "to" / "deep" / "empty").is_dir()
    script = (tmp_path / "to" / "run.sh").stat()
    assert (stat.S_IMODE(script.st_mode), script.st_mtime, script.st_uid) == (0o755, 1e9, os.getuid())


@pytest.mark.parametrize(
    ("without", "goes", "said"),
    [
        (NEVER_NEEDED, ["inside", "lib/node_modules/file", "src/file", "target/file"], "4 files, 0.0 MB, "),
        (NEVER_NEEDED | MADE_BY_BUILDS, ["inside", "src/file"], "2 files, 0.0 MB, without links that lead out of it, "),
    ],
    ids=["as it is", "to be built"],
)
def test_what_a_build_makes_anew_and_links_out_of_a_folder_are_left_out_and_named(
    tmp_path: Path, without: frozenset[str], goes: list[str], said: str
) -> None:
    folder = tmp_path / "mine"
    for name in ("src", "target", "lib/node_modules", ".git"):
        (folder / name).mkdir(parents=True)
        (folder / name / "file").write_text(name)
    (folder / "inside").symlink_to("src/file")
    (tmp_path / "secret").write_text("secret")
    (folder / "outside").symlink_to(tmp_path / "secret")
    (folder / "nowhere").symlink_to("gone")
    unpack(pack(folder, without), tmp_path / "to")
    assert sorted(content(tmp_path / "to")) == goes
    assert size_text(folder, without).startswith(said)
    assert size_text(folder, without).endswith("node_modules, target") is (len(goes) == 2)
    assert size_text(folder / "src") == "1 file, 0.0 MB"


def test_links_by_absolute_paths_lead_to_the_same_place_in_the_copy(tmp_path: Path) -> None:
    """Deployments have such links (`current` leads to the newest release), which once made a whole parcel useless."""
    release = tmp_path / "mine" / "releases" / "3"
    release.mkdir(parents=True)
    (release / "server").write_text("3")
    (tmp_path / "mine" / "current").symlink_to(release)
    (tmp_path / "mine" / "releases" / "server").symlink_to(release / "server")
    unpack(pack(tmp_path / "mine"), tmp_path / "to")
    release.rename(tmp_path / "gone")
    assert (tmp_path / "to" / "current" / "server").read_text() == "3"
    assert (tmp_path / "to" / "releases" / "server").read_text() == "3"


def test_too_much_is_refused_with_the_largest_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "small").write_bytes(b"1")
    (tmp_path / "large").write_bytes(bytes(3_000_000))
    monkeypatch.setattr(parcels, "UNPACKED_MOST", 1_000_000)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "larger").write_bytes(bytes(4_000_000))
    with pytest.raises(MeasurementError, match="the largest file is large with 3 MB"):
        pack(tmp_path, NEVER_NEEDED)


def test_what_cannot_be_packed_small_enough_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "zeros").write_bytes(bytes(3_000_000))
    (tmp_path / "random").write_bytes(random.Random(1).randbytes(1_500_000))
    monkeypatch.setattr(parcels, "PACKED_MOST", 2**20)
    with pytest.raises(MeasurementError, match=r"more than 1 MiB compressed .*; the largest file is zeros with 3 MB"):
        pack(tmp_path)
    (tmp_path / "random").unlink()
    assert len(pack(tmp_path)) < 2**20


def test_what_expands_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "zeros").write_bytes(bytes(3_000_000))
    parcel = pack(tmp_path / "from")
    monkeypatch.setattr(parcels, "UNPACKED_MOST", 1_000_000)
    with pytest.raises(MeasurementError, match="larger than"):
        unpack(parcel, tmp_path / "to")


OUTSIDE = {
    "above": [("../out", tarfile.REGTYPE, "")],
    "absolute": [("{}/out", tarfile.REGTYPE, "")],
    "through a link": [("here", tarfile.SYMTYPE, "."), ("up", tarfile.SYMTYPE, "here/.."), ("up/out", b"0", "")],
    "through an inner link": [("here", tarfile.SYMTYPE, "."), ("here/in", tarfile.REGTYPE, "")],
    "into a link": [("file", tarfile.SYMTYPE, "gone"), ("file", tarfile.REGTYPE, "")],
    "a link": [("link", tarfile.SYMTYPE, "../secret")],
    "an absolute link": [("link", tarfile.SYMTYPE, "{}/secret")],
    "a link by a later one": [
        *((name, tarfile.DIRTYPE, "") for name in ("a", "a/a", "a/a/a")),
        ("x", tarfile.SYMTYPE, "a/a/a/b/../../../../secret"),
        ("a/a/a/b", tarfile.SYMTYPE, "../../.."),
    ],
    "a link of two names": [
        ("deep", tarfile.DIRTYPE, ""),
        ("deep/link", tarfile.SYMTYPE, "../secret"),
        ("link", tarfile.LNKTYPE, "deep/link"),
    ],
    "a hard link": [("link", tarfile.LNKTYPE, "../secret")],
    "a device": [("null", tarfile.CHRTYPE, "")],
    "a pipe": [("pipe", tarfile.FIFOTYPE, "")],
}


@pytest.mark.parametrize("members", OUTSIDE.values(), ids=OUTSIDE)
def test_nothing_is_written_outside(tmp_path: Path, members: list[tuple[str, bytes, str]]) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, kind, link in members:
            entry = tarfile.TarInfo(name.format(tmp_path / "in"))
            entry.type, entry.linkname = kind, link.format(tmp_path / "in")
            archive.addfile(entry, io.BytesIO())
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "secret").touch()
    with pytest.raises(MeasurementError, match="arrived damaged"):
        unpack(out.getvalue(), tmp_path / "in" / "to")
    assert sorted(path.name for path in (tmp_path / "in").iterdir()) == ["secret", "to"]
    assert not [path for path in (tmp_path / "in" / "to").rglob("*") if path.is_file()]


@pytest.mark.parametrize("damage", [lambda parcel: parcel[: len(parcel) // 2], lambda parcel: b"no archive"])
def test_a_damaged_parcel_is_said_to_be_so(tmp_path: Path, damage: object) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "file").write_bytes(bytes(100_000))
    with pytest.raises(MeasurementError, match="damaged"):
        unpack(damage(pack(tmp_path / "from")), tmp_path / "to")  # type: ignore[operator]


@pytest.mark.parametrize(
    "data", [random.Random(1).randbytes(50_000), b"a line of a log\n" * 10_000], ids=["random", "log"]
)
def test_each_changed_byte_is_noticed_or_changes_nothing(tmp_path: Path, data: bytes) -> None:
    """In a log of equal lines a copy from another distance may be the same."""
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "file").write_bytes(data)
    parcel = pack(tmp_path / "from")
    for at in range(20, len(parcel) - 8, len(parcel) // 40):  # after the header, which holds the time
        damaged = parcel[:at] + bytes([parcel[at] ^ 0xFF]) + parcel[at + 1 :]
        try:
            unpack(damaged, tmp_path / f"to-{at}")
        except MeasurementError as error:
            assert "damaged" in str(error)
        else:
            assert (tmp_path / f"to-{at}" / "file").read_bytes() == data


def test_what_is_no_folder_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no folder"):
        pack(tmp_path / "none")
