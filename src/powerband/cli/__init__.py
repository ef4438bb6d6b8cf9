"""The command line: each command parses its options, calls one function, and prints. Data goes to stdout, messages for
people go to stderr.

Every error ends here, and only here, in one clear message and its exit code (`base/errors.py`). Neither an error of the
user nor a defect of powerband shows a traceback; the details of a defect go to a file. Commands import what they need
when they run, so that `--help` answers at once.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Sequence
from io import StringIO, TextIOWrapper
from typing import NoReturn

import click

from powerband.base.errors import EXIT_DEFECT, EXIT_OK, MeasurementError, PowerbandError, UserInterruptError
from powerband.base.logs import printable
from powerband.base.version import __version__, commit
from powerband.cli.calibration import calibrate
from powerband.cli.completion import completion
from powerband.cli.experiment_commands import check, list_command, plan
from powerband.cli.export_command import export
from powerband.cli.import_plan import import_plan
from powerband.cli.live import watch
from powerband.cli.reading import compare, report
from powerband.cli.running import resume, run, tune
from powerband.cli.scraping import prometheus
from powerband.cli.tools import doctor, load

_EPILOG = """\b
Exit codes: 0 ok; 1 a claim or threshold failed; 2 usage; 3 invalid experiment;
4 the server failed; 5 measurements invalid; 70 a defect of powerband; 130 interrupted."""
_SHOWN = 200  # characters of an unexpected error's text: arbitrary, since the file has all of it
_LONG_WORD = re.compile(r"(\S{100})\S{200,}(\S{50})")


class _InOrder(click.Group):
    """A group that lists its commands in the order in which they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


def _tell_version(context: click.Context, _parameter: click.Parameter, asked: bool) -> None:
    if not asked or context.resilient_parsing:
        return
    # Imported here, so that other commands do not wait for it.
    from powerband.processes.engine_fleet import find_engine
    from powerband.processes.host import engine_version

    try:
        engine = engine_version(find_engine())
    except MeasurementError:
        engine = None
    click.echo(f"powerband {__version__} (commit {commit() or 'unknown'}, {engine or 'no engine found'})")
    context.exit()


@click.group(
    cls=_InOrder, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_tell_version,
    help="Show the version, its commit and its engine, and exit.",
)  # fmt: skip
def powerband() -> None:
    """Finds a server's best concurrency setting: starts it with each, loads it, watches it, and says which serves
    best, how sure that is, and why.

    \b
    powerband tune -P threads=1..64 -- ./my-server --port {port} --threads {threads}
    powerband run quickstart
    """


COMMANDS = (
    tune,
    run,
    plan,
    check,
    import_plan,
    resume,
    watch,
    report,
    export,
    compare,
    prometheus,
    load,
    list_command,
    doctor,
    calibrate,
    completion,
)
for command in COMMANDS:
    powerband.add_command(command)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs one command line (None: that of this process), and ends the process with its exit code."""
    sys.exit(invoke(arguments))


def invoke(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line (None: that of this process), and returns its exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started this process (`>&-`)
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115
        if isinstance(stream := getattr(sys, name), TextIOWrapper):  # a narrow locale loses a character, not the answer
            stream.reconfigure(errors="replace")
    code = EXIT_OK
    try:
        code = int(powerband.main(arguments, prog_name="powerband", standalone_mode=False) or EXIT_OK)
        sys.stdout.flush()
        return code
    except (SystemExit, BrokenPipeError):
        # click raises SystemExit for a closed pipe: the reader of our output has gone (`| head`), which is no error.
        _drop_output()
        return code
    except click.ClickException as error:
        if isinstance(error, click.NoSuchOption) and error.ctx is not None:
            names = [name for each in error.ctx.command.params for name in each.opts]
            if longer := [name for name in names if name.startswith(f"{error.option_name}-")]:
                error = click.NoSuchOption(error.option_name, possibilities=longer, ctx=error.ctx)
        said = StringIO()
        error.show(said)
        click.echo(_shown(said.getvalue()), err=True, nl=False)
        return error.exit_code
    except (Exception, KeyboardInterrupt) as error:
        sentence, code = _ending(error)
        _drop_output()
        with contextlib.suppress(OSError):
            click.echo(f"powerband: {_shown(sentence)}", err=True)
        return code


def _shown(text: str) -> str:
    """The text of a message without the middle of very long words and without control characters, since messages quote
    the content of files and options, which may be anything."""
    return _LONG_WORD.sub(r"\1...\2", printable(text))


def _ending(error: BaseException) -> tuple[str, int]:
    """The sentence for an error, and its exit code."""
    match error:
        case PowerbandError():
            return str(error), error.exit_code
        case click.Abort() | KeyboardInterrupt():
            return "interrupted", UserInterruptError.exit_code
        case OSError():
            return _sentence(error), MeasurementError.exit_code
    return _defect(error), EXIT_DEFECT


def _sentence(error: OSError) -> str:
    """The sentence for an OSError that was not handled nearer to its cause, such as a full disk under stdout or under a
    temporary folder."""
    what = str(error.strerror or error)
    place = f"{error.filename}: " if error.filename else ""
    return f"the system refuses: {place}{what}; free some space or check permissions (TMPDIR for temporary files)"


def _defect(error: BaseException) -> str:
    """The sentence for an unexpected error: a defect, or exhausted memory. The traceback goes to a file."""
    import tempfile
    import traceback

    what = f"this is a defect of powerband ({type(error).__name__}: {str(error)[:_SHOWN]})"
    try:
        with tempfile.NamedTemporaryFile("wb", prefix="powerband-defect-", suffix=".txt", delete=False) as file:
            file.write("".join(traceback.format_exception(error)).encode(errors="replace"))
    except OSError as refused:
        return f"{what}; its details could not be written: {refused.strerror or refused}"
    return f"{what}; please report it with {file.name}, which holds the details"


def _drop_output() -> None:
    """Discards output that could not be written, so that Python does not try again when it ends."""
    try:
        sys.stdout.flush()
    except OSError:
        with open(os.devnull, "w") as nowhere:  # noqa: PTH123
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
