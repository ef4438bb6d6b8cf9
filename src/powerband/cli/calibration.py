"""The command calibrate: checks that this machine, with this engine, measures what theory says."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from powerband.base.errors import EXIT_OK, EXIT_THRESHOLD, MeasurementError, UserInterruptError
from powerband.base.units import format_duration, format_value
from powerband.cli.options import format_option, print_json, progress

if TYPE_CHECKING:
    from powerband.search.calibrate import Calibration, CalibrationCheck


@click.command()
@click.option("--quick", is_flag=True, help="Fewer and shorter trials: a minute instead of five.")
@click.option(
    "--keep", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Keep the trials in this folder."
)
@format_option
def calibrate(quick: bool, keep: Path | None, output: str) -> int:
    """Measure servers of known capacity and compare the results with theory.

    Throughput of closed loads, mean response time of Poisson loads; each must agree within 5 %. The exit code is 1
    where one does not.
    """
    from powerband.processes.stop_request import StopRequest
    from powerband.search.calibrate import calibrate as run_calibration

    with ExitStack() as stack:
        folder = keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="powerband-calibrate-")))
        stop = stack.enter_context(StopRequest.on_signals())
        found = run_calibration(quick=quick, directory=folder, stop=stop, starting=progress)
    if output == "json":
        print_json({"format": 1, "passed": found.passed, **asdict(found)})
    else:
        _print(found)
    if found.interrupted:
        return UserInterruptError.exit_code
    if found.problem or found.undecided or any(check.measured is None for check in found.checks):
        return MeasurementError.exit_code
    return EXIT_OK if found.passed else EXIT_THRESHOLD


def _print(found: Calibration) -> None:
    if found.served is not None:
        click.echo(
            f"A request asked to wait {format_duration(found.service_asked_s * 1e9)} holds its thread for "
            f"{format_duration(found.served.service_s * 1e9)}; a single user waits "
            f"{format_duration(found.served.overhead_s * 1e9)} more."
        )
    for check in found.checks:
        click.echo(_line(check))
    if found.interrupted:
        click.echo(f"interrupted: {len(found.checks)} of {found.planned} checks")
    elif found.served is None:
        click.echo(f"Nothing could be measured: {found.problem}")
    elif found.undecided:
        those = "checks is" if found.undecided == 1 else "checks are"
        click.echo(f"{found.undecided} of {len(found.checks)} {those} inconclusive; none disagrees with theory.")
    else:
        click.echo("All agree with theory." if found.passed else "Not all agree with theory: is this machine quiet?")


def _line(check: CalibrationCheck) -> str:
    if check.measured is None or check.deviation is None:
        return f"failed  {check.name}: {check.problem}"
    outcome = "ok" if check.passed else "unsure" if check.undecided else "failed"
    interval = (
        "" if check.low is None or check.high is None else f" ({100 * check.low:+.1f} % to {100 * check.high:+.1f} %)"
    )
    disturbed = f"; {check.disturbed} of {check.trials} trials disturbed" if check.disturbed else ""
    notes = disturbed + (f"; {check.problem}" if check.undecided else "")
    return (
        f"{outcome:6}  {check.name}: {check.quantity} "
        f"{format_value(check.measured, check.unit)}, theory {format_value(check.expected, check.unit)}: "
        f"{100 * check.deviation:+.1f} %{interval}, {100 * check.allowed:.1f} % allowed; "
        f"{check.requests:,} requests{notes}"
    )
