"""A table as a data frame of pandas or polars, whichever is installed; both are imported only here.

Columns are typed: whole numbers and booleans keep their type even if some values are unknown."""

from __future__ import annotations

import importlib
from typing import Any

from powerband.base.errors import UsageError, did_you_mean
from powerband.report.tables.rows import Cell, Kind, Table

LIBRARIES = ("pandas", "polars")
_PANDAS = {Kind.TEXT: "string", Kind.WHOLE: "Int64", Kind.NUMBER: "float64", Kind.TRUTH: "boolean"}
_POLARS = {Kind.TEXT: "String", Kind.WHOLE: "Int64", Kind.NUMBER: "Float64", Kind.TRUTH: "Boolean"}


def frame(table: Table, library: str | None = None) -> Any:
    """A `pandas.DataFrame` or `polars.DataFrame`; None: pandas if it is installed, else polars.

    Raises UsageError if the library is not installed, or is neither of the two."""
    if library is not None and library not in LIBRARIES:
        raise UsageError(f"there are no data frames of {library}; {did_you_mean(library, LIBRARIES)}")
    for name in LIBRARIES if library is None else (library,):
        try:
            module: Any = importlib.import_module(name)
        except ModuleNotFoundError:
            continue
        columns = _columns(table)
        return _of_pandas(module, table, columns) if name == "pandas" else _of_polars(module, table, columns)
    wanted = "neither pandas nor polars" if library is None else f"no {library}"
    raise UsageError(
        f"{wanted} is installed, which data frames are made of: pip install 'powerband[notebook]' brings pandas; "
        "without one, export writes csv"
    )


def _columns(table: Table) -> list[list[Cell]]:
    columns: list[list[Cell]] = [[] for _ in table.columns]
    for row in table.rows:
        for column, cell in zip(columns, row, strict=True):
            column.append(cell)
    return columns


def _of_pandas(pandas: Any, table: Table, columns: list[list[Cell]]) -> Any:
    made = {
        column.name: pandas.Series(cells, dtype=_PANDAS[column.kind])
        for column, cells in zip(table.columns, columns, strict=True)
    }
    return pandas.DataFrame(made, columns=[column.name for column in table.columns])


def _of_polars(polars: Any, table: Table, columns: list[list[Cell]]) -> Any:
    schema = {column.name: getattr(polars, _POLARS[column.kind]) for column in table.columns}
    made = {column.name: cells for column, cells in zip(table.columns, columns, strict=True)}
    return polars.DataFrame(made, schema=schema, strict=False)
