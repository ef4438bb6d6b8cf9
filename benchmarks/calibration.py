"""Compares servers of known capacity with queueing theory: `powerband calibrate`, whose trials have their own
intervals."""

from __future__ import annotations

import json
from collections.abc import Iterator

from benchmarks import kept_lines
from benchmarks.pairs import MET, NOT_MET, UNDECIDED
from benchmarks.sweeps import powerband
from powerband.base.units import format_value
from powerband.search.calibrate import CalibrationCheck


def checks(engine: str, pairs: int) -> Iterator[str]:
    """The checks of each of so many calibrations; one takes five minutes."""
    yield "| server | quantity | measured | theory | deviation (95 % interval) | at most | |"
    yield "|---|---|---|---|---|---|---|"
    for _ in range(pairs):
        found = json.loads(powerband("calibrate", "--format", "json", engine=engine))
        for check in found["checks"]:
            yield check_row(CalibrationCheck(**check))


@kept_lines.row
def check_row(check: CalibrationCheck) -> str:
    """A line of the table. The verdict is the command's own."""
    if check.measured is None or check.deviation is None:
        return f"| {check.name} | {check.quantity} | {check.problem} | | | | {NOT_MET} |"
    ends = "" if check.low is None or check.high is None else f" ({100 * check.low:+.1f} to {100 * check.high:+.1f})"
    said = UNDECIDED if check.undecided else MET if check.passed else NOT_MET
    figures = " | ".join(format_value(value, check.unit) for value in (check.measured, check.expected))
    return (
        f"| {check.name} | {check.quantity} | {figures} | {100 * check.deviation:+.1f} %{ends} "
        f"| {100 * check.allowed:g} % | {said} |"
    )
