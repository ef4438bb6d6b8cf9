"""Truths that a bench must show on real servers: a freeze in the p99 of the response time, and a capacity that
arithmetic gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from powerband.analyze.measure import measure
from powerband.analyze.results import TrialResult
from powerband.experiment import Experiment, Load, Measure, Subject
from powerband.observer import Observer
from powerband.plan import Setting, TrialSpec
from powerband.run.stop import StopRequest
from powerband.run.trial import run_trial
from powerband.store import TrialDir

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("no_process_left")]


def trial_of(tmp_path: Path, options: tuple[str, ...], **load: Any) -> TrialResult:
    """One trial of the reference subject, measured."""
    experiment = Experiment(
        name="truth",
        subject=Subject(name="reference", command=("{engine}", "serve", "--port", "{port}", *options)),
        load=Load(**load),
        measure=Measure(warmup=300_000_000),
    )
    directory, stop = TrialDir(tmp_path / "0001"), StopRequest()
    try:
        spec = TrialSpec(1, 0, 1, Setting(()), seed=1)
        record = run_trial(experiment, spec, directory, steady=lambda _: True, observer=Observer(), stop=stop)
    finally:
        stop.close()
    result = measure(directory, record, experiment)
    assert result.status == "measured", record.failure
    return result


def test_a_freeze_of_one_second_in_ten_shows_in_the_p99_of_the_response_time(tmp_path: Path, engine: Path) -> None:
    """Open load over one whole period: a tenth of the arrivals meet the freeze and wait half a second on average, so
    the p99 of the response time is some 0.9 s, while half of all requests notice nothing. A generator that waits for
    answers before it sends again would have met the freeze with a handful of requests, and its p99 would be clean."""
    result = trial_of(
        tmp_path,
        ("--model", "event-loop", "--stall-every", "10s", "--stall-for", "1s"),
        rate=100.0,
        arrivals="constant",
        duration=10_000_000_000,
        max_in_flight=1_000,
    )
    assert result.metrics["error_rate"] == 0
    assert 0.7e9 < result.metrics["response_time_ns_p99"] < 1.3e9
    assert result.metrics["response_time_ns_p50"] < 0.1e9


def test_a_lock_held_5_ms_serves_no_more_than_200_a_second(tmp_path: Path, engine: Path) -> None:
    result = trial_of(
        tmp_path,
        ("--model", "cached", "--lock", "5ms"),
        users=16,
        duration=2_000_000_000,
    )
    assert 100 < result.metrics["goodput_per_s"] <= 202
    # Little's law: 16 users at no more than 200 a second wait at least 80 ms.
    assert result.metrics["response_time_ns_mean"] > 0.98 * 16 / 202 * 1e9
