"""Rows of benchmarks that go on where they were stopped: one line of JSON for each row, in a file of its own."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_Row = TypeVar("_Row", bound="DataclassInstance")


def read_rows(path: Path, row: type[_Row]) -> list[_Row]:
    """The rows of a file, whose lists become tuples; none if there is no file. A last line that a kill cut short is
    removed from the file."""
    if not path.is_file():
        return []
    text = path.read_text()
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole)
    return [row(**{name: _frozen(value) for name, value in json.loads(line).items()}) for line in whole.splitlines()]


def write_rows(path: Path, rows: Iterable[DataclassInstance]) -> None:
    """Writes a file of these rows alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(map(_line, rows)))


def append_row(path: Path, row: DataclassInstance) -> None:
    """Adds a row to a file, which is made with its folder if it is not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(_line(row))


def _line(row: DataclassInstance) -> str:
    return json.dumps(asdict(row)) + "\n"


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
