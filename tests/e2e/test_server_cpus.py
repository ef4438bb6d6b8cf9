"""The server runs on the CPUs that the answer names: a CPU-bound server of one process and of two."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from statistics import median

import pytest

from fakes.disturbance import run_disturbed_by, undisturbed
from fakes.needs import without
from fakes.stand import CALM, FAKES, MS, short_load
from powerband.model.experiment import Experiment, Measure, Objective, Subject
from powerband.model.host_use import HostUse
from powerband.model.results import Analysis, TrialResult
from powerband.processes.stop_request import StopRequest
from powerband.search.observer import Observer
from powerband.search.session import run_session, with_seed
from powerband.store import RunDir

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("engine", "no_process_left")]

FACTOR = 1.5


def raced(folder: Path, host: HostUse) -> Analysis:
    """A run with one worker and with two. A request is 40,000 rounds of Python, some 2 ms: at least thirty times the
    engine's CPU time."""
    command = (sys.executable, str(FAKES / "forking_server.py"), "{port}", "{workers}", "40000")
    made = Experiment(
        name="forking",
        subject=Subject(name="forking", command=command),
        factors={"workers": (1, 2)},
        load=short_load(users=16, duration_ns=1_000 * MS),
        measure=Measure(warmup_ns=500 * MS, repeats=2, **CALM),
        objective=Objective(),
        host=host,
    )
    stop = StopRequest()
    try:
        return run_session(with_seed(made), RunDir.create(folder, "forking", "name: f\n", {}), Observer(), stop)
    finally:
        stop.close()


def undisturbed_race(folder: Path, host: HostUse) -> Analysis:
    if len(os.sched_getaffinity(0)) < 2:
        without("there is one CPU")
    return undisturbed(
        lambda attempt: raced(folder / str(attempt), host),
        lambda analysis: run_disturbed_by(trial.metrics for trial in analysis.trials),
    )


def rate(trials: tuple[TrialResult, ...], workers: int) -> float:
    wanted = [t.metrics["goodput_per_s"] for t in trials if t.valid and t.setting.as_dict() == {"workers": workers}]
    return median(wanted)


def test_by_default_two_processes_serve_more_than_one_and_a_half_times_as_much_as_one(tmp_path: Path) -> None:
    analysis = undisturbed_race(tmp_path, HostUse())
    count = len(os.sched_getaffinity(0))
    assert {trial.cpus and trial.cpus.shared for trial in analysis.trials if trial.valid} == {True}
    first = analysis.answer.sentences[0]
    assert f"with 16 users that never pause, on all {count} CPUs of this machine (the load took " in first
    assert not any("kept from the server" in warning for warning in analysis.warnings)
    assert not {problem.code for trial in analysis.trials for problem in trial.problems} & {"not_pinned"}
    assert analysis.answer.leader is not None and analysis.answer.leader.id == "workers=2"
    assert rate(analysis.trials, 2) > FACTOR * rate(analysis.trials, 1)


@pytest.mark.long
def test_on_one_cpu_they_do_not_and_the_answer_says_that_it_was_one(tmp_path: Path) -> None:
    analysis = undisturbed_race(tmp_path, HostUse(cpus=1))
    count = len(os.sched_getaffinity(0))
    assert {trial.cpus and trial.cpus.server for trial in analysis.trials} == {1.0}
    others = "the other" if count == 2 else "others"
    told = f"with 16 users that never pause, on 1 of this machine's {count} CPUs, the load generator on {others}."
    assert told in analysis.answer.sentences[0]
    assert any(f"the server had 1 of this machine's {count} CPUs" in w for w in analysis.warnings)
    assert rate(analysis.trials, 2) < FACTOR * rate(analysis.trials, 1)
