"""The rows that benchmarks keep are read back as they were, also those of a benchmark that was killed."""

from dataclasses import dataclass
from pathlib import Path

from benchmarks.kept_rows import append_row, read_rows, write_rows


@dataclass(frozen=True)
class Row:
    name: str
    rates: tuple[float | None, ...]


ROWS = [Row("first", (1.5, None)), Row("second", ())]


def test_there_are_none_before_the_first(tmp_path: Path) -> None:
    assert read_rows(tmp_path / "rows.jsonl", Row) == []


def test_rows_are_read_as_they_were_kept(tmp_path: Path) -> None:
    path = tmp_path / "kept" / "rows.jsonl"
    for row in ROWS:
        append_row(path, row)
    assert read_rows(path, Row) == ROWS
    write_rows(path, ROWS[1:])
    assert read_rows(path, Row) == ROWS[1:]


def test_a_line_that_a_kill_cut_short_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    write_rows(path, ROWS)
    with path.open("a") as file:
        file.write('{"name": "thi')
    assert read_rows(path, Row) == ROWS
    append_row(path, ROWS[0])
    assert read_rows(path, Row) == [*ROWS, ROWS[0]]
