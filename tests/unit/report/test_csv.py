"""csv that reads back unchanged, and in which nothing is a formula."""

from __future__ import annotations

import csv
import io
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from powerband.report.tables.csv import safe_text, write_csv
from powerband.report.tables.rows import Cell, Column, Kind, Row, Table

# csv replaces control characters and line ends, and surrogates are no text.
TEXTS = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]))
CELLS: dict[Kind, st.SearchStrategy[Any]] = {
    Kind.TEXT: TEXTS,
    Kind.WHOLE: st.integers(-(2**63), 2**63 - 1),
    Kind.NUMBER: st.floats(),
    Kind.TRUTH: st.booleans(),
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[tuple[Column, ...], list[Row]]:
    columns = tuple(draw(st.lists(st.builds(Column, TEXTS, st.sampled_from(Kind)), min_size=1, max_size=5)))
    row = st.tuples(*(st.none() | CELLS[column.kind] for column in columns))
    return columns, draw(st.lists(row, max_size=6))


def written(columns: tuple[Column, ...], rows: list[Row]) -> str:
    out = io.StringIO(newline="")
    write_csv(Table("x", columns, iter(rows)), out)
    return out.getvalue()


def read(cell: str, kind: Kind) -> Cell:
    if not cell:
        return None
    match kind:
        case Kind.TEXT:
            return cell.removeprefix("'")
        case Kind.WHOLE:
            return int(cell)
        case Kind.NUMBER:
            return float(cell)
    return {"true": True, "false": False}[cell]


def kept(cell: Cell) -> Cell:
    """The value as csv keeps it: an empty text and a number that is not finite become None."""
    return None if cell == "" or (isinstance(cell, float) and not math.isfinite(cell)) else cell


@given(tables())
def test_what_is_written_reads_back_the_same(table: tuple[tuple[Column, ...], list[Row]]) -> None:
    columns, rows = table
    heads, *lines = csv.reader(io.StringIO(written(columns, rows), newline=""))
    assert [head.removeprefix("'") for head in heads] == [column.name for column in columns]
    back = [tuple(read(cell, column.kind) for cell, column in zip(line, columns, strict=True)) for line in lines]
    assert back == [tuple(map(kept, row)) for row in rows]


@given(st.lists(st.tuples(st.text(st.characters()), st.text(st.characters())), max_size=5))
def test_whatever_a_text_holds_it_stays_in_its_cell_and_its_line(rows: list[Row]) -> None:
    text = written((Column("a"), Column("b")), rows)
    assert len(text.splitlines()) == len(rows) + 1
    text.encode()
    for line in csv.reader(io.StringIO(text, newline="")):
        assert len(line) == 2
        assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for cell in line)
        assert not any(ord(letter) < 32 or ord(letter) == 127 for cell in line for letter in cell)


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
        ("+1", "'+1"),
        ("-Xmx1g", "'-Xmx1g"),
        ("@SUM(1)", "'@SUM(1)"),
        ("＝1", "'＝1"),
        ("'quoted'", "''quoted'"),
        ("\t=1", " =1"),
        ("threads=4", "threads=4"),
        ("it\x1b[31m\nsaid", "it�[31m said"),
    ],
)
def test_formulas_and_control_characters(text: str, cell: str) -> None:
    assert safe_text(text) == cell


def test_numbers_keep_every_digit_and_are_no_texts() -> None:
    columns = (Column("n", Kind.NUMBER), Column("w", Kind.WHOLE), Column("t", Kind.TRUTH))
    assert written(columns, [(-0.1 - 0.2, -5, False), (None, None, None), (1e-300, 0, True)]) == (
        "n,w,t\n-0.30000000000000004,-5,false\n,,\n1e-300,0,true\n"
    )
