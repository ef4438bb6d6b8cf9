"""export: a run's figures as a table, for a spreadsheet or a notebook."""

from __future__ import annotations

from pathlib import Path

import click

from powerband.base.errors import EXIT_OK

_TABLES = ("settings", "trials", "estimates", "series", "intervals")  # report.tables.RUN_TABLES, slow to import


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--what",
    type=click.Choice(_TABLES),
    default="trials",
    show_default=True,
    help="A row for each setting, trial, estimate with its interval, value over time, or interval of the load.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["csv", "parquet"]),
    help="How it is written.  [default: by the file's name; csv on stdout]",
)
@click.option("-o", "--output", "file", type=click.Path(path_type=Path), help="The file.  [default: stdout]")
def export(directory: Path, what: str, form: str | None, file: Path | None) -> int:
    """Write a run's figures as a table, as csv or Parquet.

    DIRECTORY is a run directory. Numbers are not rounded, and what is not known is left empty; the columns are listed
    in docs/reference/tables.md. Nothing is started.

    \b
    powerband export runs/20260101-120000-quickstart -o trials.csv
    powerband export runs/20260101-120000-quickstart --what series -o series.parquet
    """
    from powerband.files.experiment_file import load_experiment
    from powerband.report.tables.export import export as write
    from powerband.report.tables.export import export_to_stdout
    from powerband.report.tables.rows import run_table
    from powerband.search.session import analyse_run
    from powerband.store import RunDir

    run = RunDir.open(directory)
    experiment = load_experiment(run.experiment)
    table = run_table(what, run, experiment, lambda: analyse_run(experiment, run))
    if file is None:
        export_to_stdout(table, form or "csv")
    else:
        write(table, file, form)
    return EXIT_OK
