"""The commands report and compare: show the answer of a run again; compare two runs, or two revisions of a server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from powerband.base.errors import UsageError
from powerband.cli.answering import answers_of, revision_answers, show_comparison, with_fault
from powerband.cli.options import answer_format_option, report_page
from powerband.cli.running import View, measure, tune, tuned

if TYPE_CHECKING:
    from powerband.api.run_results import Run

_TWO = "name two revisions, OLD and NEW"
_TWO_BEFORE = f"{_TWO}, before the --"


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@answer_format_option
def report(directory: Path, output: str) -> int:
    """Analyse a run again, and write its report anew.

    DIRECTORY is a run directory, for example runs/20260101-120000-quickstart. Nothing is started.
    """
    from powerband.api.measuring import read

    run = read(directory)
    page = report_page(run.directory, run.analysis)
    return answers_of(run.experiment, output)(run.experiment, run.analysis, run.directory, page)


def _options_of_tune(command: click.Command) -> click.Command:
    """A decorator that adds every option of `tune` to a command: the two differ only in the revisions."""
    for parameter in reversed([found for found in tune.params if isinstance(found, click.Option)]):
        command.params.insert(0, parameter)
    return command


class _Compare(click.Command):
    """Takes OLD and NEW from before the `--` alone: what follows it is the server's command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses like any command. Raises UsageError if a command follows `--`, and fewer than two words come before
        it."""
        follows = "--" in args[:-1] and not ctx.resilient_parsing
        if not follows:
            return super().parse_args(ctx, args)
        at = args.index("--")
        rest = super().parse_args(ctx, [*args[:at], "--", *args[at:]])  # the second is left among the words
        if "--" in (ctx.params["first"], ctx.params["second"]):
            raise click.UsageError(_TWO_BEFORE, ctx)
        command = list(ctx.params["command"])
        if "--" in command:
            command.remove("--")
        ctx.params["command"] = tuple(command)
        return rest


@_options_of_tune
@click.command(cls=_Compare)
@click.argument("first", metavar="OLD")
@click.argument("second", metavar="[NEW]", required=False)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND WITH {revision}]")
@click.pass_context
def compare(
    context: click.Context, /, *, first: str, second: str | None, command: tuple[str, ...], output: str, **options: Any
) -> int:
    """Compare two revisions of a server, or two runs.

    With a command after --, OLD and NEW are what {revision} stands for in it: a binary, a jar, a folder, an image
    tag. Both are started in turn, in the same rounds, until the verdict is certain; of a server that runs already,
    --apply-command with {revision} puts each there. All options are those of `tune`, -P among them: then each setting
    gets a verdict. Without a command, OLD and NEW are run directories; OLD alone is the directory of such a comparison,
    shown again.

    The exit code is 1 if NEW is worse, or what --regret or --soak asked for was not reached; 4 if nothing can be
    compared because the server failed, and 5 if nothing can for another reason.

    \b
    powerband compare ./server-1.4 ./server-1.5 -- {revision} --port {port}
    powerband compare runs/20260101-120000-tune runs/20260102-120000-tune
    """
    if command or options["apply"] or options["apply_command"]:
        return _compare_revisions(first, second, command, output, options)
    if given := [name for name in options if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]:
        names = [option.opts[-1] for option in tune.params if option.name in given]
        raise click.UsageError(
            f"{', '.join(names)} is for two revisions of a server, whose command is missing: write it after --, with "
            "{revision} where OLD and NEW go; or, of a server that runs already, --apply-command"
        )
    if second is not None:
        return _compare_runs(Path(first), Path(second), output)
    run = _revisions_of(Path(first))
    return revision_answers(output)(run.experiment, run.analysis, run.directory, None)


def _compare_revisions(
    first: str, second: str | None, command: tuple[str, ...], output: str, options: dict[str, Any]
) -> int:
    if not first or not second:
        raise click.UsageError(_TWO_BEFORE if command else _TWO)
    runs, view = options.pop("runs"), View(options.pop("progress"), options.pop("live"))
    return measure(tuned(command, **options, revisions=(first, second)), runs, view, revision_answers(output))


def _revisions_of(directory: Path) -> Run:
    """The run of a run directory, which must be one of two revisions."""
    from powerband.analyze.runs.revisions import holds_revisions
    from powerband.api.measuring import read

    run = read(directory)
    if not holds_revisions(run.experiment):
        raise UsageError(
            f"{directory} compares no revisions (its experiment has no parameter `revision` of two values): name two "
            "runs, or write the server's command after --"
        )
    return run


def _compare_runs(first: Path, second: Path, output: str) -> int:
    from powerband.api.measuring import compare_two_runs, read

    try:
        runs = [read(path) for path in (first, second)]
    except UsageError as error:
        raise UsageError(f"{error}. To compare two revisions of a server, write its command after --") from None
    return with_fault(show_comparison(compare_two_runs(*runs), output), *(run.analysis for run in runs))
