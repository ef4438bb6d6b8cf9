"""The warm-up of a real JVM is detected and excluded from the measured window.

Needs a JDK: without one these tests are skipped, and fail if POWERBAND_NO_SKIP=1. They compare only rates of the same
process, in a trial that nothing disturbed: compiled code is several times faster, but a program that uses the CPUs for
seconds can hide it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from fakes.disturbance import trial_disturbed_by, undisturbed
from fakes.needs import need_javac
from fakes.stand import MS, experiment, run_one, short_load
from powerband.analyze.trial.measure import measure
from powerband.analyze.trial.steady import is_steady
from powerband.model.experiment import Measure, Ready, Subject
from powerband.model.results import TrialResult
from powerband.store import TrialDir, TrialRecord

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("engine", "no_process_left")]

SOURCE = Path(__file__).parents[2] / "examples" / "JitServer.java"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    """A server that is compiled beforehand: if started from its source, the JVM would warm up while it compiles that
    source."""
    need_javac()
    classes = tmp_path_factory.mktemp("classes")
    subprocess.run(["javac", "-d", classes, SOURCE], check=True, timeout=120)
    command = ("java", "-cp", str(classes), "JitServer", "{port}", "4")
    return Subject(name="jit", command=command, ready=Ready(timeout_ns=60_000 * MS))


def trial(server: Subject, folder: Path, measuring: Measure) -> tuple[TrialRecord, TrialResult]:
    case = experiment(server, short_load(users=4, duration_ns=2000 * MS), measure=measuring)
    record = run_one(case, folder, steady=is_steady)
    assert (record.status, record.failure) == ("measured", None)
    return record, measure(TrialDir(folder / "0001"), record, case)


def rates(folder: Path, start_ns: int, end_ns: int) -> list[float]:
    """The rate of answered requests in each interval between two times."""
    return [
        line["outcomes"].get("ok", 0) / (line["end_ns"] - line["start_ns"]) * 1e9
        for line in TrialDir(folder / "0001").read_events()
        if line["type"] == "interval" and start_ns <= line["start_ns"] and line["end_ns"] <= end_ns
    ]


def quiet_trial(server: Subject, folder: Path, measuring: Measure) -> tuple[Path, TrialRecord, TrialResult]:
    """The first trial that neither other programs nor the hypervisor disturbed, nor a machine that stood still, with
    its folder."""

    def measured(attempt: int) -> tuple[Path, TrialRecord, TrialResult]:
        return folder / str(attempt), *trial(server, folder / str(attempt), measuring)

    return undisturbed(measured, lambda found: trial_disturbed_by(found[2]))


def test_the_warm_up_lasts_until_the_compiler_is_done_and_is_not_measured(server: Subject, tmp_path: Path) -> None:
    """The warm-up lasts longer than its minimum of 1 s, and the measured window is faster than the start."""
    folder, record, _ = quiet_trial(server, tmp_path, Measure(warmup_max=20_000 * MS, slots=False))
    begun, measured, drained = (record.phases[name] for name in ("go", "measure", "drain"))
    assert measured - begun > 1500 * MS
    first, window = rates(folder, begun, begun + 700 * MS), rates(folder, measured, drained)
    assert float(np.mean(first)) < 0.7 * float(np.median(window))


def test_a_warm_up_cut_short_is_seen_in_the_window(server: Subject, tmp_path: Path) -> None:
    _, _, result = quiet_trial(server, tmp_path, Measure(warmup=50 * MS, slots=False))
    assert result.steady is False
    assert "not_steady" in {problem.code for problem in result.problems}
