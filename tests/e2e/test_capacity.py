"""Capacity searches on real servers of known capacity: a pool of 4 threads at 5 ms a request serves 800/s, and a
server that runs already as much as its knob allows."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from fakes.deployed import KNOB, knob_server, tune
from fakes.disturbance import run_disturbed_by, undisturbed
from fakes.stand import CALM, MS, experiment, reference, short_load
from powerband.model.bottlenecks import BottleneckName
from powerband.model.experiment import Experiment, Measure, Objective
from powerband.model.plan import Stage
from powerband.model.results import Analysis, AnswerKind
from powerband.processes.stop_request import StopRequest
from powerband.search.observer import Observer
from powerband.search.session import analyse_run, run_session, with_seed
from powerband.store import RunDir

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("engine", "no_process_left")]

# Problems of the engine's own delays, for which no limit can be raised.
LATE = {"generator_lag", "generator_starved", "generator_cpu", "generator_schedule"}
SEARCHES = 3


@pytest.mark.long
def test_the_capacity_of_a_pool_is_found(tmp_path: Path) -> None:
    """The search is repeated, three times at most, until neither other programs nor the hypervisor disturb it, by the
    median of its trials: an engine that waits for a CPU cannot offer what the pool would serve. Assertions that hold on
    any machine are made of each search."""
    made = with_seed(
        experiment(
            reference("--threads", "{threads}", "--wait", "5ms"),
            short_load(users=16, duration_ns=150 * MS),  # a window has at most ten times as much
            factors={"threads": (4,)},
            measure=Measure(warmup_ns=200 * MS, repeats=2, slots=False, **CALM),
            objective=Objective(metric="capacity", subject_to=["p50 < 80ms", "errors < 1%"]),
        )
    )
    analysis = undisturbed(
        lambda attempt: searched(made, tmp_path / str(attempt)),
        lambda analysis: run_disturbed_by(trial.metrics for trial in analysis.trials),
        SEARCHES,
    )
    (row,) = analysis.settings
    assert row.capacity is not None and analysis.answer.kind is AnswerKind.BEST, analysis.answer
    found = row.capacity.estimate
    assert found is not None, row.capacity.note
    assert 0 < (found.low or 0) < 880


@pytest.mark.long
def test_a_capacity_that_freezes_end_is_not_laid_to_the_pool(tmp_path: Path) -> None:
    """The server freezes for 8 ms in each 200 ms. The higher the rate, the longer it takes to serve what waited, so
    that the p95 breaks its limit far below the most that the pool serves."""
    made = with_seed(
        experiment(
            reference("--threads", "{threads}", "--wait", "1ms", "--stall-every", "200ms", "--stall-for", "8ms"),
            short_load(users=16, duration_ns=500 * MS),
            factors={"threads": (4,)},
            measure=Measure(warmup_ns=200 * MS, repeats=2, slots=False, **CALM),
            objective=Objective(metric="capacity", subject_to=["p95 < 5ms", "errors < 1%"]),
        )
    )

    def search(attempt: int) -> Analysis:
        run = RunDir.create(tmp_path / str(attempt), "capacity", "name: test\n", {})
        with StopRequest.on_signals() as stop:
            return run_session(made, run, Observer(), stop)

    analysis = undisturbed(search, lambda found: run_disturbed_by(trial.metrics for trial in found.trials), SEARCHES)
    (row,) = analysis.settings
    assert row.bottleneck is not None and row.bottleneck.name is BottleneckName.SLOW_ANSWERS, row.bottleneck


def searched(made: Experiment, folder: Path) -> Analysis:
    run = RunDir.create(folder, "capacity", "name: test\n", {})
    with StopRequest.on_signals() as stop:
        analysis = run_session(made, run, Observer(), stop)
    looks = [trial for trial in analysis.trials if trial.stage is Stage.SATURATE]
    assert len(looks) == 1
    assert 1 < len(analysis.trials) <= math.ceil((1 + 2 * 5) * (1 + made.measure.retry_budget))
    (row,) = analysis.settings
    if row.capacity is None:
        # With little CPU the engine may be late in every trial: then all are invalid, and each says why.
        told = [{problem.code for problem in trial.problems if problem.fatal} for trial in analysis.trials]
        assert not any(trial.valid for trial in analysis.trials) and all(codes & LATE for codes in told), told
        assert analysis.answer.kind is not AnswerKind.BEST
    else:
        assert row.capacity.curve
        overloaded = [point for point in row.capacity.curve if point.rate_per_s > 1200]
        assert not any(point.held for point in overloaded), "1.5 times what the pool gives is no capacity"
    assert analyse_run(made, run) == analysis
    return analysis


@pytest.mark.long
def test_capacity_of_a_server_that_runs_already(tmp_path: Path) -> None:
    """The server serves 400/s with n=8, and 100/s with n=2. A p50 needs 55/s for its requests in the longest window of
    2 s; a p99 would need 220/s, where n=2 has no capacity. Above its capacity a window of 2 s shows 100 ms from 1.1
    times on."""
    with knob_server(n=3) as server:
        done, analysis = tune(
            tmp_path, server.url, "-P", "n=2,8", *KNOB, "--objective", "capacity", "--slo", "p50<100ms,errors<1%",
            "--restore", "n=3", "--repeats", "1", "--duration", "200ms",
        )  # fmt: skip
        assert len(analysis["settings"]) == 2, done.stderr
        found = {row["setting"]["id"]: row["capacity"]["estimate"] for row in analysis["settings"] if row["capacity"]}
        assert found["n=8"]["value"] > 2 * found["n=2"]["value"]
        assert server.knob() == 3
