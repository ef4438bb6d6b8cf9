"""`powerband export`, and the formats md, csv and parquet of the commands that answer. Nothing is started."""

from __future__ import annotations

import csv
import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pyarrow import parquet

from powerband.cli import invoke
from powerband.cli.export_command import _TABLES
from powerband.report.tables.rows import RUN_TABLES

GOLDEN = Path(__file__).parents[2] / "golden" / "run-small"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    shutil.copytree(GOLDEN, tmp_path / "run-small")
    return tmp_path / "run-small"


def lines(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_the_tables_of_the_command_are_those_there_are() -> None:
    assert _TABLES == RUN_TABLES


@pytest.mark.parametrize("what", RUN_TABLES)
def test_each_table_on_stdout_and_in_a_file(
    what: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["export", str(run), "--what", what]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert captured.out.startswith("run,")
    assert {row["run"] for row in lines(captured.out)} == (set() if what == "estimates" else {"run-small"})
    file = tmp_path / "x.csv"
    assert invoke(["export", str(run), "--what", what, "-o", str(file)]) == 0
    assert file.read_text() == captured.out
    assert capsys.readouterr().out == ""


def test_parquet_in_a_file_and_through_a_pipe(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "x.parquet"
    assert invoke(["export", str(run), "--what", "series", "-o", str(file)]) == 0
    command = [sys.executable, "-m", "powerband", "export", str(run), "--what", "series", "--format", "parquet"]
    done = subprocess.run(command, capture_output=True, check=True)
    assert parquet.read_table(io.BytesIO(done.stdout)).equals(parquet.read_table(file))


def test_a_report_as_csv_has_a_row_for_each_trial(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = invoke(["report", str(run), "--format", "csv"])
    found = lines(capsys.readouterr().out)
    assert [row["trial"] for row in found] == ["1", "2", "3", "4", "5", "6"]
    assert invoke(["report", str(run)]) == code
    for row in found:
        assert float(row["goodput_per_s"]) > 0
        assert row["valid"] in ("true", "false")


def test_a_report_as_markdown(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    invoke(["report", str(run), "--format", "md"])
    captured = capsys.readouterr()
    assert captured.out.startswith("### powerband: Which pool size")
    assert captured.err == ""


def test_a_comparison_as_csv_and_markdown(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    invoke(["compare", str(run), str(run), "--format", "csv"])
    found = lines(capsys.readouterr().out)
    assert all(row["first"] == row["second"] == str(run) for row in found)
    invoke(["compare", str(run), str(run), "--format", "md"])
    assert capsys.readouterr().out.startswith(f"### powerband: `{run}` and `{run}`")


def test_what_is_no_file_is_not_replaced_by_one(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`-o /dev/stdout` and `-o /dev/null` once made plain files of them, where root typed it."""
    os.mkfifo(tmp_path / "pipe")
    before = sorted(tmp_path.iterdir())
    assert invoke(["export", str(run), "--format", "csv", "-o", str(tmp_path / "pipe")]) == 2
    assert "pipe: it is no file" in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before and (tmp_path / "pipe").is_fifo()


def test_what_a_link_leads_to_is_written(run: Path, tmp_path: Path) -> None:
    (tmp_path / "link.csv").symlink_to("table.csv")
    for _ in range(2):
        assert invoke(["export", str(run), "-o", str(tmp_path / "link.csv"), "--append"]) == 0
        assert (tmp_path / "link.csv").is_symlink()
        assert [row["trial"] for row in lines((tmp_path / "table.csv").read_text())] == ["1", "2", "3", "4", "5", "6"]


def test_a_table_that_a_spreadsheet_saved_can_be_appended_to(run: Path, tmp_path: Path) -> None:
    """Excel puts a mark of the encoding before the first column's name, which is `run`."""
    file = tmp_path / "table.csv"
    assert invoke(["export", str(run), "-o", str(file)]) == 0
    whole = file.read_text()
    file.write_text(whole, encoding="utf-8-sig")
    assert invoke(["export", str(run), "-o", str(file), "--append"]) == 0
    assert file.read_text() == whole


def test_mistakes(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for arguments, said in (
        ([str(tmp_path)], "is no run directory: it has no experiment.yaml; runs lie under runs/ by default"),
        ([str(run.with_name("nothing"))], f"it has no experiment.yaml; the newest beside it is {run}"),
        ([str(run), "-o", str(tmp_path / "x.xlsx")], "tables are written as csv or parquet, not as xlsx"),
        ([str(run), "-o", str(tmp_path / "no" / "x.csv")], "No such file or directory: choose another file"),
    ):
        assert invoke(["export", *arguments]) == 2
        captured = capsys.readouterr()
        assert captured.out == "" and said in captured.err and "Traceback" not in captured.err
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert invoke(["export", str(run), "--format", "parquet"]) == 2
    assert "Parquet is no text for a terminal" in capsys.readouterr().err


def test_what_cannot_be_written_is_said_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr("powerband.report.tables.parquet.import_module", missing)
    arguments = ["run", "quickstart", "--runs", str(tmp_path / "runs"), "--format", "parquet"]
    assert invoke(arguments) == 2
    assert "pip install 'powerband[parquet]'" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
