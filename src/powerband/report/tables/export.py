"""Writes a table as csv or Parquet into a file or onto stdout. A file holds either its old content or the whole new
one."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import IO

from powerband.base.errors import UsageError, did_you_mean
from powerband.report.tables.csv import append_csv, write_csv
from powerband.report.tables.parquet import append_parquet, need_arrow, write_parquet
from powerband.report.tables.rows import Table

FORMS = ("csv", "parquet")


def export(table: Table, file: Path, form: str | None = None, *, beside: str | None = None) -> Path:
    """Writes the table and returns the file. `form` None: chosen by the suffix of the file's name. `beside`: the name
    of the table's run: its rows replace the rows of that run in the file, and those of other runs stay; None: the file
    is replaced.

    Raises UsageError for an unknown form, if a library is missing, and if the file cannot be written."""
    form = form or file.suffix.removeprefix(".").lower()
    if form not in FORMS:
        raise UsageError(f"{file}: tables are written as csv or parquet, not as {form or 'nothing'}; "
                         f"{did_you_mean(form, FORMS)}")  # fmt: skip
    target = Path(os.path.realpath(file))  # what a link leads to is replaced, not the link
    temporary = target.with_name(f".{target.name}.tmp")
    try:
        if file.exists() and not file.is_file():  # such as /dev/null, which root could replace
            raise UsageError(f"cannot write {file}: it is no file: choose another, or leave it out for stdout")
        with temporary.open("wb") as out:
            if beside is None or not file.exists():
                _write(table, out, form)
            else:
                _append(table, out, form, file, beside)
        temporary.replace(target)
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror or error}: choose another file") from error
    finally:
        temporary.unlink(missing_ok=True)
    return file


def export_to_stdout(table: Table, form: str) -> None:
    """Writes csv row by row. Parquet goes through a temporary file, since its index is at its end."""
    if form == "csv":
        write_csv(table, sys.stdout)
        return
    check_stdout(form)
    with tempfile.TemporaryFile() as made:
        write_parquet(table, made)
        made.seek(0)
        sys.stdout.flush()
        shutil.copyfileobj(made, sys.stdout.buffer)


def check_stdout(form: str) -> None:
    """Raises UsageError if stdout cannot take this form, or if its library is missing."""
    if form == "parquet":
        need_arrow()
        if sys.stdout.isatty():
            raise UsageError("Parquet is no text for a terminal: redirect the output, or use `powerband export -o`")


def _write(table: Table, out: IO[bytes], form: str) -> None:
    if form == "parquet":
        write_parquet(table, out)
        return
    with _as_text(out) as text:
        write_csv(table, text)


def _append(table: Table, out: IO[bytes], form: str, file: Path, run: str) -> None:
    if form == "parquet":
        append_parquet(table, out, file, run)
        return
    with file.open(encoding="utf-8-sig", errors="replace", newline="") as old, _as_text(out) as text:
        append_csv(table, text, old, run)


@contextmanager
def _as_text(out: IO[bytes]) -> Iterator[TextIOWrapper]:
    text = TextIOWrapper(out, encoding="utf-8", errors="replace", newline="")
    try:
        yield text
    finally:
        text.detach()  # flushes the text and leaves the file open for its owner
