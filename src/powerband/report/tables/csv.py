"""A table as comma-separated values: one row a line, numbers with all their digits, what is not known left empty.

Two things are done to texts, and to nothing else. What a spreadsheet would take for a formula gets an apostrophe in
front, as such programs write it themselves (OWASP, "CSV Injection"); a text that begins with one gets another, so that
taking the first away always gives the text back. Control characters, which could break a line or a terminal, are
replaced: line breaks and tabs by a space."""

from __future__ import annotations

import csv
import math
import re
from typing import Protocol

from powerband.report.tables.rows import Cell, Table

_FORMULA = tuple("=+-@'＝＋－＠")
_BREAK = re.compile(r"[\t\n\r]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class TextSink(Protocol):
    def write(self, text: str, /) -> object: ...


def write_csv(table: Table, file: TextSink) -> None:
    """The names of the columns, then each row as it is made, so that a long table takes no memory. UTF-8 is for the
    file to see to; lines end with a newline alone."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([safe_text(column.name) for column in table.columns])
    writer.writerows([cell_text(cell) for cell in row] for row in table.rows)


def cell_text(cell: Cell) -> str:
    """`true`, `17`, `0.1` (the shortest text that reads back as the same number), a safe text, or nothing."""
    match cell:
        case None:
            return ""
        case bool():
            return "true" if cell else "false"
        case str():
            return safe_text(cell)
        case float():
            return repr(float(cell)) if math.isfinite(cell) else ""
    return str(cell)


def safe_text(text: str) -> str:
    """A text that stays in its cell, in its line, and is no formula."""
    clean = _CONTROL.sub("\ufffd", _BREAK.sub(" ", text))
    return f"'{clean}" if clean.startswith(_FORMULA) else clean


def plain_text(cell: str) -> str:
    """What `safe_text` was given, but for control characters."""
    return cell.removeprefix("'")
