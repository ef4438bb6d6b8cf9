"""Files that grow, are cut, are replaced, or are no files: only complete lines are read, and no read blocks."""

from __future__ import annotations

import fcntl
import io
import os
import threading
from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from powerband.live import growing_files
from powerband.live.growing_files import CHUNK_BYTES, Tail, is_held, open_plain, read_plain, refused, within
from powerband.store import RunDir


def read_all(tail: Tail) -> list[bytes]:
    found: list[bytes] = []
    while True:
        lines, _, more = tail.read()
        found += lines
        if not more:
            return found


def test_lines_come_once_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    tail = Tail(path)
    assert tail.read() == ([], False, False)
    path.write_bytes(b"one\ntw")
    assert tail.read().lines == [b"one"]
    assert tail.read().lines == []
    with path.open("ab") as file:
        file.write(b"o\nthree\n")
    assert tail.read().lines == [b"two", b"three"]


@given(st.lists(st.binary(max_size=20).filter(lambda b: b"\n" not in b), max_size=20), st.data())
def test_cut_anywhere_nothing_is_lost_or_doubled(lines: list[bytes], data: st.DataObject) -> None:
    content = b"".join(line + b"\n" for line in lines)
    with NamedTemporaryFile() as file:
        tail, found, at = Tail(Path(file.name)), list[bytes](), 0
        while at < len(content):
            step = data.draw(st.integers(1, len(content) - at))
            file.write(content[at : at + step])
            file.flush()
            at += step
            found += read_all(tail)
        tail.close()
    assert found == lines


def test_a_large_file_is_read_in_turns(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(b"x" * 99 + b"\n" + (b"y" * 99 + b"\n") * (CHUNK_BYTES // 50))
    tail = Tail(path)
    first = tail.read()
    assert first.more and 0 < len(first.lines) < CHUNK_BYTES // 50
    assert len(first.lines) + len(read_all(tail)) == 1 + CHUNK_BYTES // 50


@pytest.mark.parametrize("how", ["replaced", "cut"])
def test_a_file_that_begins_anew_is_read_from_its_start(tmp_path: Path, how: str) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"one\ntwo\n")
    tail = Tail(path)
    tail.read()
    if how == "replaced":
        (tmp_path / "new").write_bytes(b"uno\n")
        (tmp_path / "new").replace(path)
    else:
        path.write_bytes(b"uno\n")
    lines = tail.read()
    assert lines.again and lines.lines == [b"uno"]


def test_only_plain_files_are_opened(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "pipe")  # opening it to read would wait for a writer
    for name in ("link", "pipe", "absent", "."):
        assert open_plain(tmp_path / name) is None
        assert Tail(tmp_path / name).read().lines == []
    assert read_plain(tmp_path / "secret") == b"secret"
    assert read_plain(tmp_path / "secret", 3) == b"sec"


def test_what_others_would_open_is_looked_at_first(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "plain").write_text("")
    assert refused(within(folder)) == "" == refused((folder / "absent",))
    (tmp_path / "link").symlink_to(folder)
    assert refused(within(tmp_path / "link")).startswith("link is a link, a pipe or a device")
    os.mkfifo(folder / "deep" / "pipe")
    assert refused(within(folder)).startswith("pipe is a link, a pipe or a device")


@pytest.mark.parametrize("listed", [True, False])
def test_a_lock_is_seen_also_where_the_kernel_does_not_list_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: bool
) -> None:
    """The kernel lists no lock of another container."""
    if not listed:
        monkeypatch.setattr(growing_files, "open", lambda *_: io.BytesIO(), raising=False)
    lock = tmp_path / ".lock"
    assert not is_held(lock)
    with lock.open("w") as file:
        assert not is_held(lock)
        fcntl.flock(file, fcntl.LOCK_EX)
        assert is_held(lock)
        fcntl.flock(file, fcntl.LOCK_UN)
        assert not is_held(lock)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # no look holds it on


def test_a_run_starts_while_viewers_look_at_its_lock(tmp_path: Path) -> None:
    run, ended = RunDir.create(tmp_path, "x", "name: x\n", {}), threading.Event()
    (run.path / ".lock").touch()

    def look() -> None:
        while not ended.is_set():
            is_held(run.path / ".lock")

    viewers = [threading.Thread(target=look, daemon=True) for _ in range(4)]
    try:
        with (run.path / ".lock").open() as file:
            fcntl.flock(file, fcntl.LOCK_SH)  # as a viewer that is stopped in its look
            for viewer in [*viewers, threading.Timer(0.1, file.close)]:
                viewer.start()
            for _ in range(200):
                with run.locked():
                    assert is_held(run.path / ".lock")
    finally:
        ended.set()
