"""Writes a table as comma-separated values: one row a line, numbers with all their digits, unknown values empty.

Only texts are changed, in two ways. A text that a spreadsheet would take for a formula gets a leading apostrophe, as
such programs write it themselves (OWASP, "CSV Injection"). A text that begins with an apostrophe gets another, so that
removing the first one always restores the text. Control characters, which could break a line or a terminal, are
replaced: line breaks and tabs by a space."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable
from typing import Protocol

from powerband.base.errors import UsageError
from powerband.report.tables.rows import Cell, Table

_FORMULA = tuple("=+-@'＝＋－＠")
_BREAK = re.compile(r"[\t\n\r]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class TextSink(Protocol):
    """A file, or anything else that takes text."""

    def write(self, text: str, /) -> object:
        """Takes more text, after what it has taken before."""


def write_csv(table: Table, file: TextSink) -> None:
    """Writes the column names, then each row as it is made, so that a long table takes no memory. The file determines
    the encoding (UTF-8 expected); lines end with a newline alone."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([safe_text(column.name) for column in table.columns])
    writer.writerows([cell_text(cell) for cell in row] for row in table.rows)


def append_csv(table: Table, file: TextSink, old: Iterable[str], run: str) -> None:
    """Writes the rows of `old`, a file made by `write_csv`, except those of `run`, and then the rows of the table. A
    column that one of the two lacks is empty in its rows. Raises UsageError if `old` is no such file."""
    reader = csv.reader(old)
    names = next(reader, [])
    if "run" not in names:
        raise UsageError("the file to append to has no column `run`, so it is none of powerband's: choose another file")
    new = [safe_text(column.name) for column in table.columns]
    added = [name for name in new if name not in names]
    at, width = names.index("run"), len(names) + len(added)
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*names, *added])
    writer.writerows([*row, *[""] * (width - len(row))] for row in reader if row[at : at + 1] != [safe_text(run)])
    for row in table.rows:
        cells = dict(zip(new, map(cell_text, row), strict=True))
        writer.writerow([cells.get(name, "") for name in (*names, *added)])


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
    """The text, made safe: it stays in its cell and its line, and is no formula."""
    clean = _CONTROL.sub("\ufffd", _BREAK.sub(" ", text))
    return f"'{clean}" if clean.startswith(_FORMULA) else clean
