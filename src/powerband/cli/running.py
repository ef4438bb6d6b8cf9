"""The commands tune, run and resume, which measure."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from powerband.base.errors import UserInterruptError
from powerband.cli.answering import answers, answers_of
from powerband.cli.options import (
    allow_host_option,
    answer_format_option,
    experiment_options,
    key_options,
    load,
    progress,
    report_page,
    request_options,
    runs_option,
    seed_option,
    view_options,
)
from powerband.files.key_options import DEFAULT_URL, PROFILES

if TYPE_CHECKING:
    from powerband.cli.answering import Answer
    from powerband.model.experiment import Experiment
    from powerband.search.observer import Observer
    from powerband.store import RunDir


_SERVER = "SERVER AND ARGUMENTS"


@click.command()
@click.option(
    "-P",
    "parameters",
    multiple=True,
    metavar="NAME=VALUES",
    help="A parameter to vary, {NAME} in the command: 1,2,4, 1..64 (doubling), '1..9 step 2' or a,b. "
    "Several make a grid. Also `load.users=...`, `host.cpu_quota=...`.",
)
@click.option("--url", default=DEFAULT_URL, show_default=True, help="URL that the load requests.")
@click.option("--apply", metavar="'METHOD PATH BODY'", multiple=True,
              help="A request that changes the setting of a running server: 'POST /knob {n}'. Without a command after "
              "-- the server is never started or ended. May be repeated.")  # fmt: skip
@key_options("--apply-command")
@click.option("--restore", metavar="NAME=VALUE", multiple=True,
              help="The value that a server that runs already gets back at the end.  [default: it keeps the "
              "last]")  # fmt: skip
@key_options("--pid")
@click.option("--counts", metavar="SERIES",
              help="For a program without requests: the counter of its work, sent to {statsd_port} or "
              "{statsd_socket}, or on its metrics page.")  # fmt: skip
@click.option("--metrics-url", metavar="URL",
              help="Prometheus page of the program.  [default with --counts: http://127.0.0.1:{metrics_port}/metrics "
              "where {metrics_port} is used]")  # fmt: skip
@key_options("--users", "--rate", "--arrivals", "--think", "--ramp", "--join", "--pace", "--pipeline", "--timeout")
@request_options
@key_options("--ca-file", "--insecure")
@allow_host_option("A host that --url may name, besides this one.")
@click.option("--slo", multiple=True, metavar="CONDITION",
              help="Condition that a setting must meet, for example 'p99<50ms,errors<0.1%'. May be repeated.  "
              "[besides, unless given: error_rate < 1%]")  # fmt: skip
@click.option("--objective", metavar="METRIC",
              help="Metric that decides; `capacity` searches for the highest rate at which --slo holds.  "
              "[default: goodput]")  # fmt: skip
@click.option("--maximise", metavar="METRIC", help="Metric of which more is better.")
@click.option("--minimise", metavar="METRIC", help="Metric of which less is better: p99, memory, ...")
@click.option("--profile", type=click.Choice(list(PROFILES)),
              help="How much is measured: 5 rounds of 3 s, 12 of 10 s or 25 of 20 s; of shorter trials more.  "
              "[default: by --budget: quick to 150 s, normal to 15 min or if none]")  # fmt: skip
@key_options(
    *("--duration", "--warmup", "--repeats", "--budget", "--order", "--confirm", "--regret", "--soak"),
    *("--margin", "--confidence", "--cluster", "--generators"),
    *(
        "--allow-unserved",
        "--allow-failed-starts",
        "--ready-http",
        "--ready-log",
        "--ready-timeout",
        "--stop-signal",
        "--stop-grace",
    ),
)
@click.option(
    "--env",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="A variable of the server's environment; {NAME} works in it. Without a value: yours.",
)
@key_options("--cpus", "--cpu-quota", "--memory-limit", "--cwd", "--name")
@seed_option
@runs_option
@view_options
@answer_format_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- " + _SERVER)
def tune(*, command: tuple[str, ...], runs: Path, progress: bool, live: bool, output: str, **options: Any) -> int:
    """Find the best setting of a server of your own.

    Settings race: after each round of trials, those shown worse are eliminated. The race ends when the rest are
    equivalent, or after the last round. Large spaces are explored first.

    Without arguments, on a terminal, it asks for the command and proposes the line.

    The command after -- starts the server; {port} is a free port that powerband picks, and each {NAME} a value of
    -P NAME. It is started without a shell, once for each trial. A server that runs already needs no command: --apply
    or --apply-command changes its setting.

    \b
    powerband tune -P threads=1..64 --slo 'p99<50ms' -- ./my-server --port {port} --threads {threads}
    powerband tune -P workers=1,2,4 -P threads=8,16 --ready-http /health -- gunicorn -b :{port} -w {workers} ...
    powerband tune -P workers=1,2 --url ws://127.0.0.1:{port}/ --message ping --expect pong -- node app.js {port} ...
    powerband tune -P n=1..64 --url http://127.0.0.1:8080/ --apply 'POST /knob {n}' --restore n=8
    powerband tune -P threads=1..8 --counts jobs_total -- ./worker --threads {threads} --statsd 127.0.0.1:{statsd_port}
    """
    if not command and not any(map(_was_given, click.get_current_context().params)):
        from powerband.cli.asking import ask, can_ask

        if can_ask():
            return ask()
    return measure(tuned(command, **options), runs, View(progress, live), answers(output))


def _was_given(name: str) -> bool:
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def tuned(command: tuple[str, ...], *, revisions: tuple[str, str] | None = None, **options: Any) -> Experiment:
    """The experiment that the options of `tune` ask for; if `revisions` are given, of these two of the server."""
    from powerband.files.tune_options import tuning

    given = [f"--{name}" for name in ("objective", "maximise", "minimise") if options.get(name)]
    if len(given) > 1:
        raise click.UsageError(f"{given[0]} and {given[1]} exclude each other")
    return tuning(command, options.pop("parameters"), options, revisions).experiment()


@click.command()
@experiment_options
@key_options("--budget", "--regret", "--soak", "--cluster", "--generators")
@runs_option
@view_options
@answer_format_option
def run(*, runs: Path, progress: bool, live: bool, output: str, **asked: Any) -> int:
    """Run an experiment, and answer its question.

    FILE_OR_NAME is a YAML file, or an experiment that `powerband list` names. The first Ctrl-C stops in order and
    saves, the second quits at once; `powerband resume` goes on.
    """
    experiment = load(**asked)
    return measure(experiment, runs, View(progress, live), answers_of(experiment, output))


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--cluster",
    metavar="ADDRESS",
    help="Go on with all nodes of this Ray cluster, in place of the one that the run was begun on.",
)
@view_options
@answer_format_option
def resume(directory: Path, cluster: str | None, progress: bool, live: bool, output: str) -> int:
    """Go on with a run that was interrupted or killed; finished trials are kept."""
    from powerband.api.measuring import on_cluster
    from powerband.files.experiment_file import load_experiment
    from powerband.store import RunDir

    run_directory = RunDir.open(directory)
    experiment = on_cluster(load_experiment(run_directory.experiment), run_directory, cluster)
    return _go_on(experiment, run_directory, View(progress, live), answers_of(experiment, output))


@dataclass(frozen=True)
class View:
    """The views of a run in progress. `progress`: on the terminal; `live`: on a page."""

    progress: bool = True
    live: bool = False


def measure(experiment: Experiment, runs: Path, view: View, answer: Answer) -> int:
    """Runs an experiment in a new run directory under `runs`, prints its answer, and returns the exit code."""
    from powerband.api.measuring import new_run

    return _go_on(*new_run(experiment, runs, sys.argv), view, answer)


def _go_on(experiment: Experiment, run_directory: RunDir, view: View, answer: Answer) -> int:
    from powerband.api.measuring import carry_out
    from powerband.processes.stop_request import StopRequest

    def announce(observer: Observer) -> None:
        if not run_directory.planned():
            _announce(experiment, observer)

    advice = f"the trial in flight is lost, finished trials are kept; `powerband resume {run_directory.path}` goes on"
    with StopRequest.on_signals(advice) as stop:
        with _page(run_directory, view.live):
            analysis = carry_out(experiment, run_directory, stop, progress=view.progress, announce=announce)
            page = report_page(run_directory, analysis)
        code = answer(experiment, analysis, run_directory, page)
    if stop.cut_short and not analysis.answer.bound_met:
        raise UserInterruptError(
            f"interrupted; finished trials are kept: `powerband resume {run_directory.path}` goes on"
        )
    return code


def _announce(experiment: Experiment, observer: Observer) -> None:
    """Announces the size and time of the run, and which differences it can detect."""
    from powerband.base.machine import known_noise
    from powerband.search.forecast import duration_text, forecast, run_notes, size_text

    expected = forecast(experiment, known_noise())
    observer.note(f"{size_text(experiment, expected)}; {duration_text(experiment, expected)}")
    for text in run_notes(experiment, expected):
        observer.note(text)


def _page(run_directory: RunDir, live: bool) -> AbstractContextManager[None]:
    """A context that serves the live page, until the run has ended and its report is there."""
    if not live:
        return nullcontext()
    from powerband.live.beside import page_beside

    return page_beside(run_directory.path, progress)
