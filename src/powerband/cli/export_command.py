"""The command export: writes a run's figures as a table, for a spreadsheet or a notebook."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from powerband.base.errors import EXIT_OK, UsageError

# The same as report.tables.RUN_TABLES, which is slow to import.
_TABLES = ("settings", "trials", "estimates", "series", "intervals", "history")


@click.command()
@click.argument("directories", type=click.Path(path_type=Path), metavar="DIRECTORY...", nargs=-1, required=True)
@click.option(
    "--what",
    type=click.Choice(_TABLES),
    default="trials",
    show_default=True,
    help="What each row is. series: values over time; intervals: of the load; history: settings "
    "with commit, date, host and noise.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["csv", "parquet"]),
    help="Format of the table.  [default: by the file's name; csv on stdout]",
)
@click.option("-o", "--output", "file", type=click.Path(path_type=Path), help="File to write.  [default: stdout]")
@click.option("--append", is_flag=True, help="Add to the file, and keep its rows of other runs.")
@click.option(
    "--commit",
    metavar="TEXT",
    help="With --what history: the server's commit.  [default: that of the folder the run was started in]",
)
def export(
    *,
    directories: tuple[Path, ...],
    what: str,
    form: str | None,
    file: Path | None,
    append: bool,
    commit: str | None,
) -> int:
    """Write a run's figures as a table, as csv or Parquet.

    DIRECTORY is a run directory; several are appended one after the other. Numbers are not rounded, and what is not
    known is left empty; the columns are listed in docs/reference/tables.md. Nothing is started.

    \b
    powerband export runs/20260101-120000-quickstart -o trials.csv
    powerband export runs/20260101-120000-quickstart --what series -o series.parquet
    powerband export runs/* --what history -o history.csv --append
    """
    from powerband.files.experiment_file import load_experiment
    from powerband.report.tables.export import export as write
    from powerband.report.tables.export import export_to_stdout
    from powerband.report.tables.rows import run_table
    from powerband.search.session import analyse_run
    from powerband.store import RunDir

    if (len(directories) > 1 or append) and (file is None or not append):
        raise UsageError("several runs become one table in a file: add -o FILE --append")
    for directory in directories:
        run = RunDir.open(directory)
        experiment = load_experiment(run.experiment)
        analysis = partial(analyse_run, experiment, run)
        table = run_table(what, run, experiment, analysis, commit)
        if file is None:
            export_to_stdout(table, form or "csv")
        else:
            write(table, file, form, beside=run.path.resolve().name if append else None)
    return EXIT_OK
