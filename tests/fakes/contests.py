"""Results of settings that differ in their threads, and how they compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fakes.trials import experiment
from powerband.analyze.settings.compare import analyse
from powerband.model.experiment import Objective
from powerband.model.plan import Setting
from powerband.model.results import Analysis, Problem, TrialResult

SAVING: dict[str, Any] = {"metric": "rss_bytes_max", "direction": "minimise"}


def setting(threads: int) -> Setting:
    return Setting((("threads", threads),))


def results(
    goodput: Mapping[int, Sequence[float | None]], extra: Mapping[int, Mapping[str, float]] | None = None
) -> list[TrialResult]:
    """One trial for each value; None stands for an invalid trial."""
    made = []
    for threads, values in goodput.items():
        for block, value in enumerate(values):
            metrics = {"goodput_per_s": value or 1.0, "threads_max": float(threads), "rss_bytes_max": 1e6 * threads}
            problems = () if value is not None else (Problem("host_steal", "the machine was disturbed"),)
            metrics |= (extra or {}).get(threads, {})
            made.append(TrialResult(len(made) + 1, block, 1, setting(threads), "measured", problems, metrics))
    return made


def judged(trials: Sequence[TrialResult], threads: tuple[int, ...] = (1, 2, 4), **objective: Any) -> Analysis:
    return analyse(experiment({"threads": threads}, objective=Objective(**objective)), trials)


def noisy(mean: float, seed: int, blocks: int = 5, sd: float = 0.005) -> list[float]:
    return list(mean * np.exp(sd * np.random.default_rng(seed).standard_normal(blocks)))


def with_p99(p99_ns: Mapping[int, Sequence[float | None]], errors: Mapping[int, float]) -> list[TrialResult]:
    """Trials of equal goodput with these p99 response times, in ns (None: not measured), and error rates."""
    trials = results({threads: noisy(100, threads, len(values)) for threads, values in p99_ns.items()})
    made = []
    for trial in trials:
        threads = int(trial.setting.as_dict()["threads"])
        value = p99_ns[threads][trial.block]
        metrics = {**trial.metrics, "error_rate": errors.get(threads, 0.0)}
        made.append(replace(trial, metrics=metrics if value is None else {**metrics, "response_time_ns_p99": value}))
    return made
