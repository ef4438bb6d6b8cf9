"""Options that several commands share, and functions that make an Experiment of them or print its answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from powerband.base.errors import MeasurementError, UsageError
from powerband.base.logs import printable
from powerband.cli.completion import complete_experiment
from powerband.files.key_options import KEY_OPTIONS

if TYPE_CHECKING:
    from powerband.model.experiment import Experiment
    from powerband.model.results import Analysis
    from powerband.store import RunDir

Command = TypeVar("Command", bound=Callable[..., Any])

format_option = click.option(
    "--format",
    "output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="What stdout gets: text for people, or one JSON document.",
)


def _possible(_context: click.Context, _parameter: click.Parameter, output: str) -> str:
    """Refuses a format that cannot be written, before anything is measured."""
    if output == "parquet":
        from powerband.report.tables.export import check_stdout

        check_stdout(output)
    return output


answer_format_option = click.option(
    "--format",
    "output",
    callback=_possible,
    type=click.Choice(["text", "json", "junit", "md", "csv", "parquet"]),
    metavar="FORMAT",
    default="text",
    show_default=True,
    help="What stdout gets: text, json, junit (for CI), md (for a pull request), or the table of trials (of compare: "
    "of settings) as csv or parquet.",
)
profile_option = click.option("--profile", metavar="NAME", help="Apply a profile of the file (most have `smoke`).")
seed_option = click.option("--seed", type=click.IntRange(min=0), help=KEY_OPTIONS["--seed"].help)
set_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a key of the file, for example load.users=8 or 'factors.threads=[1, 2]'. May be repeated.",
)
runs_option = click.option(
    "--runs",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("runs"),
    show_default=True,
    help="Folder that run directories are made in.",
)
progress_option = click.option(
    "--progress/--no-progress",
    default=True,
    help="Progress on stderr: a table that is redrawn, or lines where it is no terminal.  [default: progress]",
)
live_option = click.option(
    "--live", is_flag=True, help="Serve a live page of the run while it goes on; its address is on stderr."
)


def in_order(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """A decorator that adds these options to a command, in this order."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


request_options = in_order(
    click.option("-X", "--method", metavar="NAME", help="HTTP method.  [default: GET, with --body POST]"),
    click.option(
        "-H",
        "--header",
        "headers",
        multiple=True,
        metavar="'NAME: VALUE'",
        help="Added to each request; {env:NAME} in VALUE is a variable of your environment.",
    ),
    click.option("--body", metavar="TEXT", help="Body of each request."),
    click.option("--message", metavar="TEXT", help="With a ws:// url: what each user sends, again and again."),
    click.option(
        "--expect", multiple=True, metavar="TEXT", help="Text that each answer must contain. May be repeated."
    ),
)
view_options = in_order(progress_option, live_option)
experiment_argument = click.argument("file_or_name", shell_complete=complete_experiment)
experiment_options = in_order(experiment_argument, profile_option, set_option, seed_option)


def key_options(*names: str) -> Callable[[Command], Command]:
    """A decorator that adds the options of these names, which stand for keys of an experiment file."""
    options = []
    for name in names:
        _, metavar, text = KEY_OPTIONS[name]
        flag: dict[str, Any] = {} if metavar else {"is_flag": True, "flag_value": "true", "default": None}
        options.append(click.option(name, metavar=metavar, help=text, **flag))
    return in_order(*options)


def allow_host_option(text: str) -> Callable[[Command], Command]:
    """A decorator that adds `--allow-host`, with `text` as its help."""
    return click.option("--allow-host", "allow_hosts", multiple=True, metavar="NAME", help=text)


def load(
    file_or_name: str, profile: str | None, overrides: Sequence[str], seed: int | None, **more: str | None
) -> Experiment:
    """The experiment that the options of `experiment_options` ask for. `more`: other options that stand for keys of the
    file, by name."""
    from powerband.files.experiment_file import load_experiment

    asked = {"design.seed": None if seed is None else str(seed)}
    asked |= {KEY_OPTIONS[f"--{name}"].key: text for name, text in more.items()}
    own = {key: text for key, text in asked.items() if text is not None}
    return load_experiment(file_or_name, profile, {**parse_overrides(overrides), **own}, to_run=True)


def parse_overrides(texts: Sequence[str]) -> dict[str, str]:
    """`KEY=VALUE` texts as a mapping. Raises UsageError."""
    return {key.strip(): value for key, value in parse_pairs("--set", texts, "KEY=VALUE", "load.users=8").items()}


def parse_pairs(option: str, texts: Sequence[str], form: str, example: str) -> dict[str, str]:
    """The values of a repeated option, `NAME=VALUE` each, by name. Raises UsageError with the option and an example."""
    pairs = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"{option} {text}: write {form}, for example {option} {example}")
        pairs[key] = value
    return pairs


def duration_of(option: str, text: str) -> int:
    """A duration in ns. Raises UsageError that names the option."""
    from powerband.base.units import parse_duration_ns

    try:
        return int(parse_duration_ns(text))
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def progress(text: str) -> None:
    """Prints a message on stderr, for people who wait."""
    click.echo(printable(text), err=True)


def say(text: str) -> None:
    """Prints text on stdout, without control characters, since it may quote a server."""
    click.echo(printable(text), nl=False)


def print_json(value: Any) -> None:
    """Prints a document on stdout as indented JSON. `value`: plain JSON types."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def report_page(run: RunDir, analysis: Analysis) -> Path | None:
    """Writes report.html and returns its path. If the disk refuses it, says so and returns None, since the run has an
    answer all the same."""
    from powerband.report.html.report import write_report

    try:
        return write_report(run, analysis)
    except MeasurementError as error:
        progress(f"no report.html: {error}")
        return None


@contextmanager
def for_a_reader() -> Iterator[None]:
    """A decorator of functions that print an answer: a reader who leaves before its end (`| head`) changes no exit
    code."""
    with suppress(BrokenPipeError, SystemExit):  # the latter from rich
        yield


@for_a_reader()
def print_analysis(analysis: Analysis, run: RunDir, page: Path | None, output: str) -> None:
    """Prints the answer on stdout: as text, as the documented JSON, as JUnit XML, as Markdown, or its trials as a
    table."""
    if output == "json":
        from powerband.report.documents.json import render_json

        click.echo(render_json(analysis, run.path), nl=False)
    elif output == "junit":
        from powerband.report.documents.junit import render_analysis

        click.echo(render_analysis(analysis, run.path), nl=False)
    elif output == "md":
        from powerband.report.documents.markdown import render_markdown

        say(render_markdown(analysis, run))
    elif output in ("csv", "parquet"):
        from powerband.report.tables.export import export_to_stdout
        from powerband.report.tables.rows import trials_table

        export_to_stdout(trials_table(analysis, run.path.resolve().name), output)
    else:
        from powerband.report.terminal.console import Terminal
        from powerband.report.terminal.text import print_answer

        print_answer(Terminal(), analysis, page)
