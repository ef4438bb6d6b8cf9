"""The commands load and doctor: load a server without trials, and examine the machine."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from powerband.base.errors import EXIT_OK, MeasurementError, SubjectError, UsageError, UserInterruptError
from powerband.cli.options import (
    allow_host_option,
    duration_of,
    format_option,
    key_options,
    print_json,
    progress,
    request_options,
    say,
)
from powerband.files.key_options import KEY_OPTIONS

if TYPE_CHECKING:
    from powerband.model.load import Load
    from powerband.processes.engine_fleet import FleetInterval
    from powerband.processes.engines import Engines
    from powerband.search.pilot import Pilot


@click.command()
@click.argument("url")
@click.option("-c", "--users", metavar="N", help="Closed load: N users, each with its connection.  [default: 64]")
@click.option("-r", "--rate", metavar="R", help="Open load instead: R requests per second.")
@key_options("--arrivals", "--max-in-flight")
@click.option("-d", "--duration", metavar="TIME", help="How long to measure.  [default: 10s]")
@click.option("--warmup", "warmup", metavar="TIME", default="0s", help="Load before the measured time.  [default: 0s]")
@key_options("--think", "--ramp", "--join", "--pace")
@click.option("-t", "--threads", metavar="N", help=KEY_OPTIONS["--threads"].help)
@key_options("--pipeline", "--keep-alive", "--timeout", "--connect-timeout", "--precision")
@request_options
@click.option("--ca-file", metavar="FILE", help="PEM file of trusted roots.  [default: Mozilla's]")
@key_options("--insecure")
@allow_host_option("A host that may be loaded besides this machine.")
@click.option(
    "--cluster",
    metavar="ADDRESS",
    help="Load it from all nodes of a Ray cluster: `auto`, or its head's host:6379.  [default: from here]",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of every random choice.")
@format_option
def load(
    *,
    url: str,
    warmup: str,
    allow_hosts: tuple[str, ...],
    cluster: str | None,
    seed: int,
    output: str,
    **options: Any,
) -> int:
    """Load a server that runs already, and print the figures.

    \b
    powerband load http://127.0.0.1:8080/ -c 64 -d 10s
    powerband load http://127.0.0.1:8080/ -r 5000 --format json
    powerband load ws://127.0.0.1:8080/ -c 1000 --join 100/s --pace 1s --message ping --expect pong

    The exit code is 4 if no request was answered correctly.
    """
    from powerband.files.tune_options import load_of, split_options
    from powerband.loads.websocket.measured import with_absent
    from powerband.processes.stop_request import StopRequest
    from powerband.readings.crowd import crowd_of
    from powerband.readings.fleet import merge_fleet
    from powerband.report.terminal.load_text import load_document, load_text
    from powerband.trials.loadgen import run_load

    expect, headers = options.pop("expect"), options.pop("headers")
    wanted = load_of(url, *split_options(options), expect, headers)
    with StopRequest.on_signals() as stop, _engines(cluster, url, allow_hosts, wanted) as engines, _live_line() as show:
        result = run_load(
            url,
            wanted,
            stop=stop,
            allow_hosts=allow_hosts,
            warmup_ns=duration_of("--warmup", warmup),
            seed=seed,
            on_interval=show,
            engines=engines,
        )
    fleet = merge_fleet(result.summaries)
    if fleet is None and not result.interrupted:
        raise MeasurementError("the load ended before anything was measured")
    if fleet is not None:
        crowd = crowd_of(result.summaries, result.joined, fleet)
        of = with_absent(fleet, crowd, wanted), wanted, crowd, result.generators
        print_json(load_document(*of)) if output == "json" else say(f"{load_text(*of)}\n")
    if fleet is None or result.interrupted:
        return UserInterruptError.exit_code
    if not fleet.cohort.ok:  # a server without one right answer has failed, as in a trial
        cure = result.tls_failure or "see the outcomes"
        if fleet.cohort.outcomes.keys() == {"connect_refused"}:
            cure = "nothing listens there: start the server, or correct the address"
        raise SubjectError(f"no request was answered correctly; {cure}")
    return EXIT_OK


def _engines(
    cluster: str | None, url: str, allow_hosts: tuple[str, ...], load: Load
) -> AbstractContextManager[Engines | None]:
    """The engines on a cluster's nodes, or None for those of this machine."""
    if cluster is None:
        return nullcontext()
    from powerband.cluster.joining import joined
    from powerband.cluster.loading import far_engines

    if load.tls_ca_file is not None:
        raise UsageError("--ca-file: this file is not on the nodes of the cluster: use --insecure")
    return far_engines(lambda: joined(cluster), url, allow_hosts)


@contextmanager
def _live_line() -> Iterator[Callable[[FleetInterval], None]]:
    """Yields a function that shows each interval in one line on stderr, which is removed at the end; it shows nothing
    if stderr is no terminal."""
    from powerband.report.terminal.load_text import interval_text

    if not sys.stderr.isatty():
        yield lambda interval: None
        return
    began_ns = 0

    def show(interval: FleetInterval) -> None:
        nonlocal began_ns
        began_ns = began_ns or interval.start_ns
        click.echo(f"\r\x1b[K{interval_text(interval, began_ns)}", err=True, nl=False)

    try:
        yield show
    finally:
        click.echo("\r\x1b[K", err=True, nl=False)


@click.command()
@click.option(
    "--pilot", is_flag=True, help="Also run six equal trials and say how small a difference can be found; 40 s."
)
@format_option
def doctor(pilot: bool, output: str) -> int:
    """Look for what disturbs measurements on this machine.

    Says what to do about each thing found, and changes nothing. What --pilot finds is remembered: forecasts of later
    runs rest on it.
    """
    from powerband.doctor import CheckStatus, examine

    findings = examine()
    found = _pilot() if pilot else None
    if output == "json":
        part = {} if found is None else {"pilot": asdict(found)}
        print_json({"format": 1, "findings": [asdict(finding) for finding in findings], **part})
    else:
        width = max(len(finding.name) for finding in findings)
        for finding in findings:
            click.echo(f"{finding.status:7}  {finding.name:{width}}  {finding.found}")
            if finding.advice:
                click.echo(f"{'':7}  {'':{width}}  -> {finding.advice}")
        if found is not None:
            click.echo(_pilot_text(found))
    if found is not None and found.interrupted:
        return UserInterruptError.exit_code
    failed = any(finding.status is CheckStatus.FAILURE for finding in findings)
    return MeasurementError.exit_code if failed else EXIT_OK


def _pilot() -> Pilot:
    """Runs the pilot, and remembers its noise for forecasts."""
    from powerband.base.machine import remember_noise
    from powerband.processes.stop_request import StopRequest
    from powerband.search.pilot import run_pilot

    with tempfile.TemporaryDirectory(prefix="powerband-doctor-") as folder, StopRequest.on_signals() as stop:
        found = run_pilot(Path(folder), stop=stop, starting=progress)
    if found.sd is not None and not remember_noise(found.sd):
        progress("powerband: this is not remembered, since the cache folder cannot be written: set XDG_CACHE_HOME")
    return found


def _pilot_text(pilot: Pilot) -> str:
    from powerband.search.forecast import found_by
    from powerband.search.pilot import PILOT_TRIALS, RACE_FINDS

    if pilot.interrupted:
        return f"interrupted: {pilot.trials} of {PILOT_TRIALS} trials"
    if pilot.sd is None or pilot.smallest_difference is None:
        return f"The pilot is inconclusive: only {pilot.trials} trials were valid, {pilot.invalid} were not."
    difference = f"{100 * RACE_FINDS:.0f} % nearly always"
    if pilot.race_blocks is None:
        race = f"No race of reasonable length finds {difference}: make the machine quieter, or measure for longer."
    else:
        race = f"A race of 6 settings finds a difference of {difference} within {pilot.race_blocks} rounds."
    return (
        f"Equal trials differ by {100 * pilot.sd:.1f} % (standard deviation of {pilot.trials}, {pilot.invalid} "
        f"invalid): with 6 settings, {found_by('5 rounds', pilot.smallest_difference)}. {race}"
    )
