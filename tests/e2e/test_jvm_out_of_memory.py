"""A real JVM runs out of memory under load. If it dies, the trial fails with the last figures of its heap; if it goes
on, the trial has a note.

Needs a JDK, as test_jvm_warmup.py does."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes.disturbance import stood_still, undisturbed
from fakes.stand import MS, experiment, run_one, short_load
from powerband.analyze.trial.measure import measure
from powerband.model.experiment import Measure, Ready, Subject
from powerband.model.load import Constant
from powerband.model.results import TrialResult
from powerband.store import TrialDir

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.usefixtures("engine", "no_process_left")]


def leaky(classes: Path, kib: int, *options: str) -> Subject:
    command = ("java", "-Xmx32m", "-XX:+UseSerialGC", *options, "-cp", str(classes), "LeakyServer", "{port}", str(kib))
    return Subject(name="leaky", command=command, ready=Ready(timeout_ns=60_000 * MS))


def test_a_jvm_that_dies_of_it_is_told_with_its_last_heap_figures(classes: Path, tmp_path: Path) -> None:
    """The load allocates at most 10 MiB a second, so that the JVM lives for seconds in which it reports its heap."""
    load = short_load(users=4, duration_ns=60_000 * MS, think=Constant(ns=10 * MS))
    case = experiment(
        leaky(classes, 40, "-XX:+ExitOnOutOfMemoryError"),
        load,
        measure=Measure(warmup_ns=100 * MS, retries=0, slots=False),
    )
    record = run_one(case, tmp_path)
    assert record.failure is not None and record.failure.code == "died"
    said = record.failure.message
    assert "it ran out of memory (java.lang.OutOfMemoryError" in said
    assert " MiB of heap " in said and "were in use when it last reported" in said


def test_one_that_goes_on_is_noted_and_counted(classes: Path, tmp_path: Path) -> None:
    """Requests soon ask for more memory than the heap has left, so they fail, but the JVM lives. The first few are
    answered, however late on a busy machine."""
    load = short_load(users=2, duration_ns=1_500 * MS, timeout_ns=20_000 * MS)
    case = experiment(leaky(classes, 6_000), load, measure=Measure(warmup_ns=100 * MS, slots=False))

    def measured(attempt: int) -> TrialResult:
        record = run_one(case, tmp_path / str(attempt))
        assert record.status == "measured", record.failure
        return measure(TrialDir(tmp_path / str(attempt) / "0001"), record, case)

    found = undisturbed(measured, stood_still)  # within a window in which the machine stands still nothing is asked for
    (problem,) = [problem for problem in found.problems if problem.code == "out_of_memory"]
    assert not problem.fatal and "java.lang.OutOfMemoryError: Java heap space" in problem.message
    assert any("OutOfMemoryError" in error.cause for error in found.errors), found.errors
