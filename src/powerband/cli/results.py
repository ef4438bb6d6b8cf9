"""report: from a run directory that is there already."""

from __future__ import annotations

from pathlib import Path

import click

from powerband.cli.measure import exit_code
from powerband.cli.options import format_option, print_analysis


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@format_option
def report(directory: Path, output: str) -> int:
    """Analyse a run again, and write its report anew.

    DIRECTORY is a run directory, for example runs/20260101-120000-quickstart. Nothing is started.
    """
    from powerband.experiment_file import load_experiment
    from powerband.report.html import write_report
    from powerband.search.session import analyse_run
    from powerband.store import RunDir

    run = RunDir.open(directory)
    analysis = analyse_run(load_experiment(run.experiment), run)
    print_analysis(analysis, run, write_report(run, analysis), output)
    return exit_code(analysis)
