"""report, compare: from run directories that are there already."""

from __future__ import annotations

from pathlib import Path

import click

from powerband.cli.measure import exit_code
from powerband.cli.options import format_option, print_analysis, print_json
from powerband.errors import EXIT_OK, EXIT_THRESHOLD, MeasurementError


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


@click.command()
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
@format_option
def compare(first: Path, second: Path, output: str) -> int:
    """Compare two runs, setting by setting.

    FIRST and SECOND are run directories. The exit code is 1 where a setting became worse.
    """
    from powerband.analyze.between import compare_runs
    from powerband.analyze.results import Analysis, Verdict
    from powerband.experiment_file import load_experiment
    from powerband.search.session import analyse_run
    from powerband.store import RunDir

    def analysis(directory: Path) -> Analysis:
        run = RunDir.open(directory)
        return analyse_run(load_experiment(run.experiment), run)

    found = compare_runs(analysis(first), analysis(second))
    if not found.changes:
        raise MeasurementError(
            f"no setting has a valid trial in both {first} and {second}: there is nothing to compare"
        )
    if output == "json":
        print_json({"first": str(first.resolve()), "second": str(second.resolve()), **found.to_json()})
    else:
        from rich.console import Console

        from powerband.report.comparison import render_comparison

        Console().print(render_comparison(found))
    return EXIT_THRESHOLD if any(change.verdict is Verdict.WORSE for change in found.changes) else EXIT_OK
