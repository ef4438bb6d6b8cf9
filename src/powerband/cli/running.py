"""tune, run, resume: the commands that take measurements."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from powerband.base.errors import EXIT_OK, EXIT_THRESHOLD, MeasurementError, SubjectError, UserInterruptError
from powerband.cli.options import (
    answer_format_option,
    experiment_options,
    load,
    print_analysis,
    progress,
    runs_option,
    seed_option,
    view_options,
)

if TYPE_CHECKING:
    from powerband.model.experiment import Experiment
    from powerband.model.results import Analysis
    from powerband.search.observer import Observer
    from powerband.store import RunDir

    Answer = Callable[[Experiment, Analysis, RunDir, Path], int]  # prints, and returns the exit code

_SERVER = "SERVER AND ARGUMENTS"


@click.command()
@click.option(
    "-P",
    "parameters",
    multiple=True,
    metavar="NAME=LEVELS",
    help="A setting to vary, which {NAME} stands for in the command: 1,2,4 or 1..64 (doubling) or '1..9 step 2' or "
    "1ms..100ms or a,b. Several -P make a grid. `load.users=...` varies the load itself.",
)
@click.option("--url", default="http://127.0.0.1:{port}/", show_default=True, help="What is requested.")
@click.option("--counts", metavar="SERIES",
              help="Of a program that drives itself, in place of a load: the counter that says how much it does, sent "
              "to {statsd_port} or {statsd_socket}, or on its metrics page.")  # fmt: skip
@click.option("--metrics-url", metavar="URL",
              help="Prometheus page of the program.  [default with --counts: http://127.0.0.1:{metrics_port}/metrics "
              "where {metrics_port} is used]")  # fmt: skip
@click.option("--users", metavar="N", help="Closed load: N users, each waiting for its answer.  [default: 64]")
@click.option("--rate", metavar="R", help="Open load instead: R requests per second, whatever the server does.")
@click.option("--arrivals", metavar="KIND", help="Of an open load: poisson or constant.  [default: poisson]")
@click.option(
    "--think", metavar="TIME", help="Pause between a user's requests: 3s, '{exponential: 3s}'.  [default: 0s]"
)
@click.option("--ramp", metavar="TIME", help="Users, or the rate, grow over this time.  [default: 0s]")
@click.option("--join", metavar="R", help="The same as a rate: users that begin per second, 160/s.")
@click.option(
    "--pace",
    metavar="TIME",
    help="Of a ws:// url: time between a user's messages, answered or not: 100/s, 6s, '{exponential: 6s}'.",
)
@click.option("--pipeline", metavar="N", help="Requests in flight on one connection.  [default: 1]")
@click.option("--timeout", metavar="TIME", help="Of one request.  [default: 30s]")
@click.option("-X", "--method", metavar="NAME", help="HTTP method.  [default: GET]")
@click.option("-H", "--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="Added to each request.")
@click.option("--body", metavar="TEXT", help="Body of each request.")
@click.option("--message", metavar="TEXT", help="Of a ws:// url: what each user sends, again and again.")
@click.option("--expect", multiple=True, metavar="TEXT", help="What each answer must hold. May be repeated.")
@click.option("--ca-file", metavar="FILE", help="Of an https url: PEM file of trusted roots.  [default: Mozilla's]")
@click.option("--insecure", is_flag=True, flag_value="true", default=None, help="Accept any certificate.")
@click.option(
    "--allow-host",
    "allow_hosts",
    multiple=True,
    metavar="NAME",
    help="A host that --url may name, besides this one.",
)
@click.option("--slo", multiple=True, metavar="CONDITION",
              help="What must hold, for example 'p99<50ms,errors<0.1%'. May be repeated.  "
              "[default: error_rate < 1%]")  # fmt: skip
@click.option("--maximise", "--objective", metavar="METRIC",
              help="What is best; `capacity`: the highest rate at which --slo holds, searched for.  "
              "[default: goodput]")  # fmt: skip
@click.option("--minimise", metavar="METRIC", help="What is best, the other way round: p99, memory, ...")
@click.option("--profile", type=click.Choice(["quick", "normal", "thorough"]), default="normal", show_default=True,
              help="How much is measured: trials of 3 s in at most 5 blocks, 10 s in 12, or 20 s in 25.")  # fmt: skip
@click.option("--duration", metavar="TIME", help="Measured time of one trial.  [default: by profile]")
@click.option("--warmup", metavar="TIME", help="Before that; `auto` ends when steady.  [default: auto]")
@click.option("--repeats", metavar="N", help="Most fresh starts of a setting (blocks).  [default: by profile]")
@click.option("--budget", metavar="TIME", help="Time for the whole run: 10m, 1h.  [default: none]")
@click.option("--order", metavar="KIND", help="race: what is shown worse leaves early; blocks: all run to the end.  "
              "[default: race]")  # fmt: skip
@click.option("--confirm", metavar="N", help="Fresh starts of the winner after a race.  [default: 3]")
@click.option("--margin", metavar="SHARE", help="Differences below this count as none.  [default: 3%]")
@click.option("--confidence", metavar="SHARE", help="Of all intervals and verdicts.  [default: 95%]")
@click.option("--ready-http", metavar="PATH", help="Ready when this answers.  [default: when {port} accepts]")
@click.option("--ready-log", metavar="REGEX", help="Ready when the server's output matches.")
@click.option("--ready-timeout", metavar="TIME", help="How long getting ready may take.  [default: 30s]")
@click.option("--stop-signal", metavar="NAME", help="What asks the server to stop.  [default: TERM]")
@click.option("--stop-grace", metavar="TIME", help="How long it may take to stop.  [default: 5s]")
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="Added to the server's environment; filled in too.")
@click.option("--cwd", metavar="DIR", help="Where the server is started.")
@click.option("--name", metavar="NAME", help="Names the run.  [default: tune]")
@seed_option
@runs_option
@view_options
@answer_format_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- " + _SERVER)
def tune(*, command: tuple[str, ...], runs: Path, progress: bool, live: bool, output: str, **options: Any) -> int:
    """Find the best setting of a server of your own.

    Settings race: after each block of trials, those shown worse leave; it ends when all that remain are equally good,
    or at the last block. Large spaces are explored first.

    The command after -- starts the server; {port} is a free port that powerband picks, and each {NAME} a level of
    -P NAME. It is started without a shell, once for each trial.

    \b
    powerband tune -P threads=1..64 --slo 'p99<50ms' -- ./my-server --port {port} --threads {threads}
    powerband tune -P workers=1,2,4 -P threads=8,16 --ready-http /health -- gunicorn -b :{port} -w {workers} ...
    powerband tune -P workers=1,2 --url ws://127.0.0.1:{port}/ --message ping --expect pong -- node app.js {port} ...
    powerband tune -P threads=1..8 --counts jobs_total -- ./worker --threads {threads} --statsd 127.0.0.1:{statsd_port}
    """
    return measure(tuned(command, **options), runs, View(progress, live), answers(output))


def tuned(
    command: tuple[str, ...],
    *,
    parameters: tuple[str, ...],
    url: str,
    method: str | None,
    body: str | None,
    message: str | None,
    expect: tuple[str, ...],
    headers: tuple[str, ...],
    allow_hosts: tuple[str, ...],
    slo: tuple[str, ...],
    maximise: str | None,
    minimise: str | None,
    profile: str,
    env: tuple[str, ...],
    seed: int | None,
    counts: str | None = None,
    metrics_url: str | None = None,
    revisions: tuple[str, str] | None = None,
    **options: str | None,
) -> Experiment:
    """The experiment that the options of `tune` ask for; of two `revisions` of the server where they are given."""
    from powerband.files.tune_options import tune_experiment

    if maximise and minimise:
        raise click.UsageError("--maximise and --minimise exclude each other")
    given = {f"--{name.replace('_', '-')}": str(text) for name, text in options.items() if text is not None}
    if seed is not None:
        given["--seed"] = str(seed)
    return tune_experiment(
        command,
        parameters,
        url=url,
        options=given,
        slo=slo,
        objective=("minimise", minimise) if minimise else ("maximise", maximise or "goodput"),
        env=env,
        request={
            key: text for key, text in (("method", method), ("body", body), ("message", message)) if text is not None
        },
        expect=expect,
        headers=headers,
        profile=profile,
        allow_hosts=allow_hosts,
        revisions=revisions,
        counts=counts,
        metrics_url=metrics_url,
    )


@click.command()
@experiment_options
@runs_option
@view_options
@answer_format_option
def run(
    *,
    file_or_name: str,
    profile: str | None,
    overrides: tuple[str, ...],
    seed: int | None,
    runs: Path,
    progress: bool,
    live: bool,
    output: str,
) -> int:
    """Run an experiment, and answer its question.

    FILE_OR_NAME is a YAML file, or an experiment that `powerband list` names. The first Ctrl-C drains and saves, the
    second quits; `powerband resume` goes on.
    """
    return measure(load(file_or_name, profile, overrides, seed), runs, View(progress, live), answers(output))


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@view_options
@answer_format_option
def resume(directory: Path, progress: bool, live: bool, output: str) -> int:
    """Go on with a run that was interrupted or killed; finished trials are kept."""
    from powerband.analyze.runs.revisions import holds_revisions
    from powerband.cli.reading import revision_answers
    from powerband.files.experiment_file import load_experiment
    from powerband.store import RunDir

    run_directory = RunDir.open(directory)
    experiment = load_experiment(run_directory.experiment)
    answer = revision_answers(output) if holds_revisions(experiment) else answers(output)
    return _go_on(experiment, run_directory, View(progress, live), answer)


@dataclass(frozen=True)
class View:
    """How a run is watched while it goes on: on the terminal, and on a page."""

    progress: bool = True
    live: bool = False


def measure(experiment: Experiment, runs: Path, view: View, answer: Answer) -> int:
    """Runs an experiment in a new run directory under `runs`, and answers."""
    from powerband.files.resolved import resolved_yaml
    from powerband.processes.engine_fleet import find_engine
    from powerband.processes.host import host_facts
    from powerband.search.session import with_seed
    from powerband.store import RunDir

    seeded = with_seed(experiment).started_in(str(Path.cwd()))
    facts = host_facts(find_engine())
    return _go_on(seeded, RunDir.create(runs, seeded.name, resolved_yaml(seeded), facts), view, answer)


def _go_on(experiment: Experiment, run_directory: RunDir, view: View, answer: Answer) -> int:
    from powerband.processes.stop_request import StopRequest
    from powerband.report.html.report import write_report
    from powerband.search.session import run_session

    advice = f"the trial in flight is lost, finished trials are kept; `powerband resume {run_directory.path}` goes on"
    with _page(run_directory, view.live):
        with StopRequest.on_signals(advice) as stop:
            with _terminal(view.progress) as observer:
                if not run_directory.planned():
                    _announce(experiment, observer)
                analysis = run_session(experiment, run_directory, observer, stop)
            interrupted = stop.requested
        page = write_report(run_directory, analysis)
    code = answer(experiment, analysis, run_directory, page)
    if interrupted:
        raise UserInterruptError(
            f"interrupted; finished trials are kept: `powerband resume {run_directory.path}` goes on"
        )
    return code


def answers(output: str) -> Answer:
    """Prints an analysis in a format and returns its exit code."""

    def answer(experiment: Experiment, analysis: Analysis, run_directory: RunDir, page: Path) -> int:
        del experiment
        print_analysis(analysis, run_directory, page, output)
        return exit_code(analysis)

    return answer


def _announce(experiment: Experiment, observer: Observer) -> None:
    """What the run can find out, before it starts."""
    from powerband.base.machine import known_noise
    from powerband.search.forecast import forecast, size_text, time_text, words

    expected = forecast(experiment, known_noise())
    observer.note(f"{size_text(experiment, expected)}; at most about {time_text(expected.longest_ns)}")
    for text in words(experiment, expected):
        observer.note(text)


def _terminal(progress: bool) -> AbstractContextManager[Observer]:
    """Progress on stderr; where that is no terminal it is written as lines."""
    from powerband.report.terminal.progress import LiveView
    from powerband.search.observer import Observer

    return LiveView() if progress else nullcontext(Observer())


def _page(run_directory: RunDir, live: bool) -> AbstractContextManager[None]:
    """The live page, until the run has ended and its report is there."""
    if not live:
        return nullcontext()
    from powerband.live.beside import page_beside

    return page_beside(run_directory.path, progress)


def exit_code(analysis: Analysis) -> int:
    """What a run's answer means to a script."""
    from powerband.analyze.trial.faults import OWN_FAILURES
    from powerband.model.results import AnswerKind, ClaimVerdict

    match analysis.answer.kind:
        case AnswerKind.NONE_FEASIBLE:
            return EXIT_THRESHOLD
        case AnswerKind.NONE_VALID:
            # Where nothing ran, nothing can be laid on the subject.
            fatal = [(trial, problem) for trial in analysis.trials for problem in trial.problems if problem.fatal]
            by_subject = bool(fatal) and all(
                problem.code not in OWN_FAILURES and trial.status == "failed" for trial, problem in fatal
            )
            return (SubjectError if by_subject else MeasurementError).exit_code
    refuted = any(claim.verdict is ClaimVerdict.REFUTED for claim in analysis.claims)
    return EXIT_THRESHOLD if refuted else EXIT_OK
