"""The whole chain against queueing theory: the real engine, real reference servers, `powerband calibrate` in short."""

from __future__ import annotations

import os
import resource
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from fakes.needs import without
from powerband.analyze.trial.honesty import MACHINE_CODES
from powerband.analyze.trial.measure import measure
from powerband.model.experiment import FOREIGN_CPU_MAX, STEAL_MAX, Experiment
from powerband.model.results import TrialResult
from powerband.search import pilot
from powerband.search.calibrate import SERVICE_S, Calibration, calibrate
from powerband.search.noise import cpu_times
from powerband.store import TrialDir, TrialRecord


@pytest.mark.long
@pytest.mark.e2e
@pytest.mark.usefixtures("engine", "no_process_left")
def test_reference_servers_show_what_theory_says(tmp_path: Path) -> None:
    """On a quiet machine each within 5 % and its sampling error. A busy one makes servers wait longer than they were
    asked to, so that theory fails them; but nothing makes one faster than asked, and that must hold anywhere."""
    before = Use.now()
    found = calibrate(quick=True, directory=tmp_path)
    quiet = Use.now().quiet_since(before)
    if found.served is None and not quiet:
        without(f"this machine is too busy to measure anything: {found.problem}")
    _nothing_is_faster_than_asked(found)
    if not quiet or any(check.disturbed for check in found.checks):
        without("this machine is too busy to hold its figures against theory")
    # So short a calibration may say that it could not tell (its mean is known too loosely), but nothing wrong.
    told = [check for check in found.checks if check.deviation is not None]
    assert len(told) == 3, "\n".join(str(check) for check in found.checks)
    assert all(abs(check.deviation or 0) <= check.allowed for check in told), "\n".join(map(str, told))


def _nothing_is_faster_than_asked(found: Calibration) -> None:
    """Bounds that hold whatever else the machine does: c servers end at most c / S requests per second, but for those
    that a window cuts at its edges, and a constant service takes S at least."""
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


@dataclass(frozen=True)
class Use:
    """CPU seconds since boot: of the whole machine, of this process and its ended children, stolen; and the time."""

    busy_s: float
    ours_s: float
    steal_s: float
    at_s: float

    @classmethod
    def now(cls) -> Use:
        ticks = cpu_times()
        hertz = os.sysconf("SC_CLK_TCK")
        own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        ours_s = sum(use.ru_utime + use.ru_stime for use in own)
        return cls(ticks["busy"] / hertz, ours_s, ticks["steal"] / hertz, time.monotonic())

    def quiet_since(self, before: Use) -> bool:
        """As for a trial: little CPU went to others, and little was stolen."""
        cpu_s = (self.at_s - before.at_s) * (os.cpu_count() or 1)
        foreign_s = (self.busy_s - before.busy_s) - (self.ours_s - before.ours_s)
        return foreign_s <= FOREIGN_CPU_MAX * cpu_s and self.steal_s - before.steal_s <= STEAL_MAX * cpu_s


def on_any_machine(directory: TrialDir, record: TrialRecord, of: Experiment) -> TrialResult:
    """Measured, and not held invalid for what other programs did: a busy machine fails no test."""
    busy = of.measure.model_copy(update={"foreign_cpu_max": 1.0})
    found = measure(directory, record, of.model_copy(update={"measure": busy}))
    theirs = tuple(problem for problem in found.problems if problem.code not in MACHINE_CODES)
    return replace(found, problems=theirs)


@pytest.mark.e2e
@pytest.mark.usefixtures("engine", "no_process_left")
def test_the_pilot_tells_how_small_a_difference_can_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pilot, "PILOT_TRIALS", 3)
    monkeypatch.setattr(pilot, "PILOT_SECONDS", 1)
    monkeypatch.setattr(pilot, "measure", on_any_machine)
    found = pilot.run_pilot(tmp_path)
    assert found.trials == 3 and found.smallest_difference is not None and found.smallest_difference > 0
