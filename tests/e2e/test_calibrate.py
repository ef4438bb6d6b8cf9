"""The whole chain agrees with queueing theory: the real engine, real reference servers, a short
`powerband calibrate`."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from fakes.disturbance import CpuUse, await_calm
from fakes.needs import without
from fakes.smoke import LATE
from powerband.analyze.trial.honesty import MACHINE_CODES
from powerband.analyze.trial.measure import measure
from powerband.model.experiment import Experiment
from powerband.model.results import TrialResult
from powerband.processes.stop_request import StopRequest
from powerband.search import pilot
from powerband.search.calibrate import SERVICE_S, Calibration, CalibrationCheck, calibrate
from powerband.store import TrialDir, TrialRecord

CALIBRATIONS = 3
AT_ONCE = 16  # all reference servers of the longest check


@pytest.mark.long
@pytest.mark.e2e
@pytest.mark.usefixtures("engine", "no_process_left")
def test_reference_servers_show_what_theory_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a quiet machine each check is within 5 % and its sampling error. On a busy one servers wait longer than asked,
    so the theory does not apply, but none is faster than asked. The calibration is repeated, three times at most, while
    the kernel's counters say that a check was disturbed; each check is judged by its first measurement on a quiet
    machine."""
    monkeypatch.setattr("powerband.search.calibrate.AT_ONCE", AT_ONCE)
    judged: dict[str, CalibrationCheck] = {}
    for attempt in range(CALIBRATIONS):
        found, (quiet_before, *quiet) = watched(tmp_path / str(attempt))
        if found.served is None:
            assert not quiet_before, found.problem
            continue
        _nothing_is_faster_than_asked(found)
        fair = [
            check for check, was_quiet in zip(found.checks, quiet, strict=True) if was_quiet and not check.disturbed
        ]
        if quiet_before:
            judged = {check.name: check for check in fair} | judged
        if len(judged) == len(found.checks):
            break
        await_calm()
    else:
        without(f"this machine is too busy to hold its figures against theory, {CALIBRATIONS} times in a row")
    # So short a calibration may be inconclusive (its mean is known too loosely), but not wrong.
    for check in judged.values():
        assert check.deviation is not None and abs(check.deviation) <= check.allowed, check


def watched(folder: Path) -> tuple[Calibration, list[bool]]:
    """A calibration, and for each of its parts (the time of a request, then each check) whether the machine was
    quiet."""
    marks: list[CpuUse] = []
    with closing(StopRequest()) as stop:
        found = calibrate(quick=True, directory=folder, stop=stop, starting=lambda _: marks.append(CpuUse.now()))
    marks.append(CpuUse.now())
    return found, [now.quiet_since(before) for before, now in pairwise(marks)]


def _nothing_is_faster_than_asked(found: Calibration) -> None:
    """Checks bounds that hold on any machine: c servers end at most c / S requests per second, apart from those that
    the window's edges cut, and a constant service takes at least S."""
    assert found.served is not None, found.problem
    assert found.served.service_s >= 0.99 * SERVICE_S
    throughput, constant, exponential = found.checks
    quantities = [check.quantity for check in found.checks]
    assert quantities == ["throughput", "mean response time", "mean response time"]
    for check in found.checks:
        assert (check.measured is None) == (check.deviation is None)
        assert check.measured is not None or check.problem
        assert not (check.passed and check.allowed > 0.10 + 1e-9)
    if throughput.measured is not None:
        assert throughput.measured <= 1.02 * 4 / SERVICE_S
    if constant.measured is not None:
        assert constant.measured >= 0.99e9 * SERVICE_S
    if exponential.measured is not None:
        assert exponential.measured > 0


def on_any_machine(directory: TrialDir, record: TrialRecord, of: Experiment) -> TrialResult:
    """Measures a trial, and drops the problems that other programs cause: a busy machine fails no test."""
    busy = of.measure.model_copy(update={"foreign_cpu_max": 1.0})
    found = measure(directory, record, of.model_copy(update={"measure": busy}))
    theirs = tuple(problem for problem in found.problems if problem.code not in MACHINE_CODES | LATE)
    return replace(found, problems=theirs)


@pytest.mark.e2e
@pytest.mark.crowded
@pytest.mark.usefixtures("engine", "no_process_left")
def test_the_pilot_tells_how_small_a_difference_can_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pilot, "PILOT_TRIALS", 3)
    monkeypatch.setattr(pilot, "PILOT_SECONDS", 1)
    monkeypatch.setattr(pilot, "measure", on_any_machine)
    with closing(StopRequest()) as stop:
        found = pilot.run_pilot(tmp_path, stop)
    assert found.trials == 3 and found.smallest_difference is not None and found.smallest_difference > 0
