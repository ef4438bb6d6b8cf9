"""Logs of malicious servers: the text that reaches a terminal, and the wait for a line while a log grows."""

from __future__ import annotations

from pathlib import Path

import pytest

from powerband.base.logs import LogSearch, end_of, out_of_memory, printable, size_of


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m and\ttab\nline", "red and\ttab\nline"),
        ("\x1b[2J\x1b[1;1Hgone", "gone"),
        ("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\\\link\x1b]8;;\x1b\\\\", "alink"),
        ("\x1bP+q544e\x1b\\\\b\x9b31mc\x9d0;t\x9cd", "bcd"),
        ("a\x1bc\x1b(0b\x1b", "ab"),
        ("over\rwritten\x08\x00\x7f\x85", "overwritten"),
        ("\u202egnp.exe\u2066", "gnp.exe"),
        ("한글 übrig", "한글 übrig"),
        ("\x1b]never ends\nnext", "\nnext"),
    ],
)
def test_what_a_terminal_would_obey_is_left_out(text: str, shown: str) -> None:
    assert printable(text.replace("\\\\", "\\")) == shown


def test_a_log_s_end_holds_no_codes(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"\x1b[31mjava.lang.OutOfMemoryError: \x1b]0;x\x07heap\xff\n")
    assert end_of(log, 1000) == "java.lang.OutOfMemoryError: heap\ufffd\n"
    assert out_of_memory(end_of(log, 1000)) == "java.lang.OutOfMemoryError: heap\ufffd"


def test_a_line_in_colour_is_found_as_it_is_seen(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"\x1b[32mINFO\x1b[0m Listening on \x1b[1mhttp://127.0.0.1\x1b[0m\n")
    with LogSearch(log, r"^INFO Listening on http://127\.0\.0\.1$") as search:
        assert search.found()


def test_only_what_is_new_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    with LogSearch(log, r"^ready$") as search, log.open("wb", buffering=0) as file:
        assert not search.found()
        file.write(b"x" * (20 << 20))
        assert [search.found() for _ in range(4)] == [False] * 4
        read = search._file.tell() if search._file else 0
        assert read == 20 << 20
        file.write(b"\nnot ready\nrea")
        assert not search.found()
        file.write(b"dy\n")
        assert search.found()


def test_a_line_is_found_beyond_the_place_where_a_log_was_cut(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"first\n")
    with LogSearch(log, r"^ready \d+$") as search:
        assert not search.found()
        log.rename(tmp_path / "old")
        with (tmp_path / "old").open("ab") as old:
            old.write(b"ready 1\n")
        log.write_bytes(b"first\n[let go]\nready 2\n")
        assert search.found(), "the rest of the old file"
        assert search.found(), "the new one"
        assert not search.found()


def test_what_an_earlier_start_wrote_does_not_count(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"ready\nport in use\n")
    before = size_of(log)
    assert size_of(tmp_path / "none") == 0
    with LogSearch(log, r"^ready$", before) as search, log.open("ab", buffering=0) as file:
        assert not search.found()
        file.write(b"starting\n")
        assert not search.found() and end_of(log, 1000, before) == "starting\n"
        file.write(b"ready\n")
        assert search.found() and end_of(log, 3, before) == "dy\n"
