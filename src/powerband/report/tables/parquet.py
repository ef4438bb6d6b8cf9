"""Writes a table as a Parquet file, by pyarrow (extra `powerband[parquet]`), which is imported only here.

Columns are typed, texts stay unchanged, unknown values are null; each column's unit is in its metadata. Rows are
written in groups as they are made, so that a long table takes no memory."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import IO, Any

from powerband.base.errors import UsageError
from powerband.report.tables.rows import Cell, Kind, Row, Table

GROUP_ROWS = 50_000  # arbitrary: some MB in memory; smaller groups compress less
_TYPES = {Kind.TEXT: "string", Kind.WHOLE: "int64", Kind.NUMBER: "float64", Kind.TRUTH: "bool_"}


def write_parquet(table: Table, file: IO[bytes]) -> None:
    """Writes the table. Raises UsageError, before any row is made, if pyarrow is missing."""
    arrow, parquet = need_arrow()
    schema = arrow.schema(
        [
            arrow.field(
                column.name, getattr(arrow, _TYPES[column.kind])(),
                metadata={"unit": column.unit} if column.unit else None,
            )
            for column in table.columns
        ],
        metadata={"powerband.table": table.name},
    )  # fmt: skip
    with parquet.ParquetWriter(file, schema) as writer:
        for group in _groups(table.rows):
            columns = [
                arrow.array([_value(row[place], column.kind) for row in group], schema.field(place).type)
                for place, column in enumerate(table.columns)
            ]
            writer.write_table(arrow.Table.from_arrays(columns, schema=schema))


def append_parquet(table: Table, file: IO[bytes], old: Path, run: str) -> None:
    """Writes the rows of the file `old`, except those of `run`, and then the rows of the table; all are held in memory.
    Raises UsageError if `old` is no table of powerband, or if a column has another type there."""
    arrow, parquet = need_arrow()
    made = BytesIO()
    write_parquet(table, made)
    try:
        kept = parquet.read_table(old)
        kept = kept.filter(arrow.compute.field("run") != run)
        both = arrow.concat_tables([kept, parquet.read_table(made)], promote_options="default")
    except (arrow.ArrowInvalid, arrow.ArrowTypeError, KeyError) as error:
        raise UsageError(f"cannot append to {old} ({error}): choose another file") from error
    parquet.write_table(both, file)


def _groups(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while group := list(islice(rows, GROUP_ROWS)):
        yield group


def _value(cell: Cell, kind: Kind) -> Cell:
    if isinstance(cell, str):  # lone surrogates, which a damaged log may contain
        return cell.encode("utf-8", errors="replace").decode()
    return float(cell) if cell is not None and kind is Kind.NUMBER else cell


def need_arrow() -> tuple[Any, Any]:
    """The modules pyarrow and pyarrow.parquet. Raises UsageError if they are missing."""
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ModuleNotFoundError:
        raise UsageError(
            "Parquet files are written by pyarrow, which is not installed: pip install 'powerband[parquet]', or ask "
            "for csv"
        ) from None
