"""Prints the answer of a run or of a comparison in the format that was asked for, and returns the exit code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from powerband.base.errors import EXIT_OK, EXIT_THRESHOLD, MeasurementError, SubjectError
from powerband.cli.options import for_a_reader, print_analysis, print_json, progress, say

if TYPE_CHECKING:
    from powerband.analyze.runs.changes import RunComparison
    from powerband.model.experiment import Experiment
    from powerband.model.results import Analysis
    from powerband.store import RunDir

    Answer = Callable[[Experiment, Analysis, RunDir, Path | None], int]  # prints the answer, returns the exit code


def answers_of(experiment: Experiment, output: str) -> Answer:
    """A function that prints a finished run in a format and returns its exit code: a comparison of two revisions as
    such, whichever command shows it."""
    from powerband.analyze.runs.revisions import holds_revisions

    return revision_answers(output) if holds_revisions(experiment) else answers(output)


def answers(output: str) -> Answer:
    """A function that prints an analysis in a format and returns its exit code."""

    def answer(_experiment: Experiment, analysis: Analysis, run_directory: RunDir, page: Path | None) -> int:
        print_analysis(analysis, run_directory, page, output)
        return exit_code(analysis)

    return answer


def revision_answers(output: str) -> Answer:
    """A function that prints a run of two revisions as a comparison of NEW with OLD, and returns its exit code."""
    from powerband.analyze.runs.revisions import compare_revisions, refuted_in

    def answer(experiment: Experiment, analysis: Analysis, run: RunDir, page: Path | None) -> int:
        found = compare_revisions(experiment, analysis)
        code = show_comparison(found, output, run, page, analysis)
        if code == EXIT_OK and refuted_in(analysis):
            return EXIT_THRESHOLD
        return with_fault(code, analysis)

    return answer


def show_comparison(
    found: RunComparison,
    output: str,
    run: RunDir | None = None,
    page: Path | None = None,
    analysis: Analysis | None = None,
) -> int:
    """Prints a comparison and returns its exit code. `analysis`: of the one run that measured both."""
    from powerband.model.results import Verdict

    _print_comparison(found, output, run, page, analysis)
    if found.verdict is Verdict.WORSE:
        return EXIT_THRESHOLD
    if found.decides:
        return EXIT_OK
    if output != "text":
        progress(f"powerband: {found.sentence}")
    return MeasurementError.exit_code


def with_fault(code: int, *analyses: Analysis) -> int:
    """The exit code of a comparison of these runs. If nothing can be compared, their trials may show that it is the
    server's fault, but not that NEW is worse."""
    fault = SubjectError.exit_code
    return fault if code == MeasurementError.exit_code and {exit_code(each) for each in analyses} == {fault} else code


@for_a_reader()
def _print_comparison(
    found: RunComparison, output: str, run: RunDir | None, page: Path | None, analysis: Analysis | None
) -> None:
    if output == "json":
        first, second = found.names if found.paired else (str(Path(name).resolve()) for name in found.names)
        print_json(
            {
                "first": first,
                "second": second,
                "run": None if run is None else str(run.path.resolve()),
                **found.to_json(),
            }
        )
    elif output == "junit":
        from powerband.report.documents.junit import render_changes

        click.echo(render_changes(found, analysis), nl=False)
    elif output == "md":
        from powerband.report.documents.markdown import render_changes as render_markdown

        say(render_markdown(found, run))
    elif output in ("csv", "parquet"):
        from powerband.report.tables.export import export_to_stdout
        from powerband.report.tables.rows import changes_table

        export_to_stdout(changes_table(found), output)
    else:
        from rich.text import Text

        from powerband.report.terminal.console import Terminal
        from powerband.report.terminal.text import figures_table
        from powerband.report.wording.comparison import render_comparison

        console = Terminal()
        console.print(render_comparison(found, *([] if analysis is None else [figures_table(analysis)])))
        if page is not None:
            console.print(Text(f"\nReport: {page}"), soft_wrap=True)


def exit_code(analysis: Analysis) -> int:
    """The exit code for a run's answer."""
    from powerband.analyze.runs.revisions import refuted_in
    from powerband.analyze.trial.faults import OWN_FAILURES
    from powerband.model.results import AnswerKind

    match analysis.answer.kind:
        case AnswerKind.NONE_FEASIBLE:
            return EXIT_THRESHOLD
        case AnswerKind.NONE_VALID:
            # If nothing ran, the server is not to blame.
            fatal = [(trial, problem) for trial in analysis.trials for problem in trial.problems if problem.fatal]
            by_subject = bool(fatal) and all(
                problem.code not in OWN_FAILURES and trial.status == "failed" for trial, problem in fatal
            )
            return (SubjectError if by_subject else MeasurementError).exit_code
    return EXIT_THRESHOLD if refuted_in(analysis) else EXIT_OK
