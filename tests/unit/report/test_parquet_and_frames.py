"""Tables as Parquet and as data frames: types, unknown values, and messages when a library is missing."""

from __future__ import annotations

import importlib
import io
from pathlib import Path
from typing import Any

import pandas
import polars
import pytest
from pyarrow import parquet

from fakes import synthetic
from powerband.base.errors import UsageError
from powerband.report.tables import parquet as our_parquet
from powerband.report.tables.export import export
from powerband.report.tables.frames import frame
from powerband.report.tables.rows import Column, Kind, Table, trials_table

COLUMNS = (
    Column("text"),
    Column("whole", Kind.WHOLE, "count"),
    Column("number", Kind.NUMBER, "ns"),
    Column("truth", Kind.TRUTH),
)
ROWS: list[tuple[Any, ...]] = [
    ("=1+1\n", 2**62, 0.1, True),
    (None, None, None, None),
    ("<b>", -1, 3, False),
]

READ = [("=1+1\n", 2**62, 0.1, True), (None,) * 4, ("<b>", -1, 3.0, False)]


def table(rows: list[tuple[Any, ...]] | None = None) -> Table:
    return Table("some", COLUMNS, iter(ROWS if rows is None else rows))


def test_parquet_keeps_types_texts_and_units() -> None:
    out = io.BytesIO()
    our_parquet.write_parquet(table(), out)
    read = parquet.read_table(io.BytesIO(out.getvalue()))
    assert [tuple(row.values()) for row in read.to_pylist()] == READ
    assert [str(field.type) for field in read.schema] == ["string", "int64", "double", "bool"]
    assert read.schema.field("number").metadata == {b"unit": b"ns"}
    assert read.schema.metadata[b"powerband.table"] == b"some"


def test_parquet_is_written_group_by_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(our_parquet, "GROUP_ROWS", 2)
    out = io.BytesIO()
    our_parquet.write_parquet(table(ROWS * 3), out)
    file = parquet.ParquetFile(io.BytesIO(out.getvalue()))
    assert (file.metadata.num_rows, file.metadata.num_row_groups) == (9, 5)


def test_a_table_without_rows(tmp_path: Path) -> None:
    assert parquet.read_table(export(table([]), tmp_path / "x.parquet")).num_rows == 0
    assert export(table([]), tmp_path / "x.csv").read_text() == "text,whole,number,truth\n"
    assert len(frame(table([]), "pandas")) == len(frame(table([]), "polars")) == 0


def test_a_file_is_replaced_only_by_a_whole_one(tmp_path: Path) -> None:
    def rows() -> Any:
        yield ROWS[0]
        raise UsageError("damaged")

    file = tmp_path / "x.csv"
    file.write_text("old")
    with pytest.raises(UsageError, match="damaged"):
        export(Table("some", COLUMNS, rows()), file)
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]
    assert file.read_text() == "old"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("x.xlsx", "tables are written as csv or parquet, not as xlsx"),
        ("x", "tables are written as csv or parquet, not as nothing"),
        ("no/such/folder.csv", "cannot write .*No such file or directory: choose another file"),
    ],
)
def test_files_that_cannot_be_written(name: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        export(table(), tmp_path / name)


def test_a_pandas_frame() -> None:
    made = frame(table(), "pandas")
    assert list(made.columns) == [column.name for column in COLUMNS]
    assert made["whole"][0] == 2**62 and made["whole"].isna().tolist() == [False, True, False]
    assert made["number"].dtype == "float64" and made["truth"].dtype == "boolean"
    assert made["text"][0] == "=1+1\n" and made["text"].isna()[1]
    trials = frame(trials_table(synthetic.analysis(), "run"))
    assert isinstance(trials, pandas.DataFrame)
    assert trials[trials["valid"]]["threads"].value_counts()[32] == 4


def test_a_polars_frame() -> None:
    made = frame(table(), "polars")
    assert made.rows() == READ
    assert made.dtypes == [polars.String, polars.Int64, polars.Float64, polars.Boolean]


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that makes libraries look as if they were not installed."""

    def hide(*names: str) -> None:
        real = importlib.import_module

        def missing(name: str, package: str | None = None) -> Any:
            if name.partition(".")[0] in names:
                raise ModuleNotFoundError(name=name)
            return real(name, package)

        monkeypatch.setattr("powerband.report.tables.parquet.import_module", missing)
        monkeypatch.setattr("powerband.report.tables.frames.importlib.import_module", missing)

    return hide


def test_what_is_not_installed_is_said_with_how_to_install_it(without: Any) -> None:
    without("pyarrow", "pandas")
    with pytest.raises(UsageError, match=r"pyarrow, which is not installed: pip install 'powerband\[parquet\]'"):
        our_parquet.write_parquet(table(), io.BytesIO())
    with pytest.raises(UsageError, match=r"no pandas is installed.*'powerband\[notebook\]'"):
        frame(table(), "pandas")
    assert type(frame(table())).__module__.startswith("polars")
    without("pyarrow", "pandas", "polars")
    with pytest.raises(UsageError, match="neither pandas nor polars is installed"):
        frame(table())


def test_another_library() -> None:
    with pytest.raises(UsageError, match="there are no data frames of pandsa; did you mean pandas"):
        frame(table(), "pandsa")
