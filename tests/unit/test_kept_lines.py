"""The lines of a section are kept with the values they are made from, and a page has what is made of them again."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks import __main__ as bench
from benchmarks import kept_lines
from benchmarks.kept_lines import Kept, blocks, file_of, put, read, write
from benchmarks.pairs import HEAD, Comparison, figure, row

LINES = (
    "skipped: k6",
    HEAD,
    figure("CPU", [1.0, 3.0], "s", ".1f", at_most=5),
    row("wrk", 64, Comparison([1.0, 2.0], [2.0, 8.0]), 0.9),
    "\ntargets: none\n",
)
FOUND = Kept("http", "2026-12-01", "A CPU, 2 CPUs", "abc1234", "python", 2, "pairs", 0.001, LINES)


def test_every_value_of_every_repeat_is_kept_and_no_line_of_a_table_as_text(tmp_path: Path) -> None:
    path = write(FOUND, tmp_path)
    assert read(path) == FOUND
    _, _, _, first, second, _ = map(json.loads, path.read_text().splitlines())
    assert first["given"] == {"name": "CPU", "values": [1.0, 3.0], "unit": "s", "form": ".1f", "at_most": 5}
    assert second["given"]["result"] == {"is": "Comparison", "ours": [1.0, 2.0], "theirs": [2.0, 8.0]}
    assert "2.0 (1.0–3.0)" not in path.read_text()


def test_another_value_makes_another_line(tmp_path: Path) -> None:
    path = write(FOUND, tmp_path)
    path.write_text(path.read_text().replace('"values": [1.0, 3.0]', '"values": [1.0, 9.0]'))
    assert read(path).lines[2] == "| CPU | 5.0 (1.0–9.0) s | at most 5 s | undecided |"
    assert read(path) != FOUND


def test_a_page_gets_the_section_between_its_marks() -> None:
    page = put("before\n<!-- http -->\nold\n<!-- /http -->\nafter\n", FOUND, "data")
    text = blocks(LINES)
    assert text == f"skipped: k6\n\n{HEAD}\n{LINES[2]}\n{LINES[3]}\n\ntargets: none"
    footer = "*2026-12-01, commit abc1234, repeats: 2: [data](data/http.jsonl).*"
    assert page == f"before\n<!-- http -->\n{text}\n\n{footer}\n<!-- /http -->\nafter\n"
    assert put(page, FOUND, "data") == page
    with pytest.raises(ValueError, match="lacks the marks"):
        put(page, replace(FOUND, section="probe"), "data")


def test_only_a_section_that_ends_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(engine: str, pairs: int) -> Iterator[str]:
        yield from LINES

    def failed(engine: str, pairs: int) -> Iterator[str]:
        yield from LINES
        raise RuntimeError("no server")

    def skipped(engine: str, pairs: int) -> Iterator[str]:
        yield LINES[0]

    for name, measured in (("http", ended), ("live", skipped), ("probe", failed)):
        monkeypatch.setitem(bench.SECTIONS, name, bench.Section(measured, "pairs"))
    only = ["--only", "http", "live", "probe"]
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--engine", "e", "--pairs", "2", "--keep", str(tmp_path), *only])
    with pytest.raises(RuntimeError, match="no server"):
        bench.main()
    assert [kept.section for kept in kept_lines.all_kept(tmp_path)] == ["http"]
    assert read(file_of("http", tmp_path)).lines == LINES
