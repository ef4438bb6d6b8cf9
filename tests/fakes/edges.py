"""Servers of known capacity, which answer a capacity search as real ones would: noise between starts, a p99 with a
knee, disturbed trials, a drifting machine. Results are computed: nothing is run or measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from fakes.trials import experiment
from powerband.model.experiment import Experiment, Measure, Objective
from powerband.model.plan import Level, Setting, Stage, TrialSpec
from powerband.model.results import Problem, TrialResult
from powerband.search.capacity_search import CapacityPlanner

LIMIT_NS = 50e6


@dataclass(frozen=True)
class Server:
    """A server whose p99 is `base` + `excess` / (1 - rate / most) below the rate `most`, where `most` and the p99
    itself vary between starts (log standard deviations). `lapses`: the share of trials in which the machine stalls
    once. `slow`: the share of starts whose `most` is lower by `slower_by` (log)."""

    most_per_s: float = 1000.0
    base_ns: float = 10e6
    excess_ns: float = 2e6
    sd: float = 0.02
    p99_sd: float = 0.05
    lapses: float = 0.0
    slow: float = 0.0
    slower_by: float = 0.0

    @property
    def capacity_per_s(self) -> float:
        """The rate at which 95 % of starts keep p99 < 50 ms, by 20,000 simulated starts without stalls."""
        dice = np.random.default_rng(1)
        most = np.exp(self.sd * dice.standard_normal(20_000) - self.slower_by * (dice.random(20_000) < self.slow))
        excess_ns = self.excess_ns * np.exp(self.p99_sd * dice.standard_normal(20_000))
        bearable = self.most_per_s * most * (1 - excess_ns / (LIMIT_NS - self.base_ns))
        return float(np.quantile(bearable, 0.05))

    def p99_ns(self, rate_per_s: float, dice: np.random.Generator) -> float:
        slower = self.slower_by if self.slow and dice.random() < self.slow else 0.0
        most = self.most_per_s * math.exp(self.sd * dice.standard_normal() - slower)
        noise = math.exp(self.p99_sd * dice.standard_normal())
        if dice.random() < self.lapses or rate_per_s >= most:
            return 5e9
        return self.base_ns + self.excess_ns * noise / (1 - rate_per_s / most)


Answer = Callable[[TrialSpec], TrialResult]


def search(made: Experiment, answer: Answer, seed: int = 1) -> tuple[CapacityPlanner, list[TrialResult]]:
    """Runs a whole search, in which every trial is answered at once."""
    planner = CapacityPlanner(made, seed)
    results = []
    while (spec := planner.ask()) is not None:
        results.append(answer(spec))
        planner.tell(results[-1])
    return planner, results


def answers_of(servers: Mapping[Level, Server], dice: np.random.Generator, drift: float = 0.0) -> Answer:
    """A function that gives the result of each trial, with these servers by number of threads. `drift`: how much the
    machine slows down from trial to trial (log)."""

    def answer(spec: TrialSpec) -> TrialResult:
        server = servers[spec.setting.as_dict()["threads"]]
        slowed = math.exp(-drift * spec.number)
        if spec.stage is Stage.SATURATE:
            return result(
                spec, {"goodput_per_s": slowed * server.most_per_s * float(np.exp(0.05 * dice.standard_normal()))}
            )
        assert spec.rate_per_s is not None
        p99 = server.p99_ns(spec.rate_per_s / slowed, dice)
        return result(spec, {"response_time_ns_p99": p99, "error_rate": 0.0})

    return answer


def result(spec: TrialSpec, metrics: Mapping[str, float], code: str = "", status: str = "measured") -> TrialResult:
    problems = (Problem(code, f"because of {code}"),) if code else ()
    threads = {"threads_max": float(level)} if isinstance(level := spec.setting.as_dict()["threads"], int) else {}
    return TrialResult(
        number=spec.number,
        block=spec.block,
        attempt=spec.attempt,
        setting=spec.setting,
        status=status,
        problems=problems,
        metrics={**threads, **metrics} if status == "measured" else {},
        stage=spec.stage,
        rate_per_s=spec.rate_per_s,
        window_s=None if spec.window_ns is None else spec.window_ns / 1e9,
        took_s=10.0,
    )


def capacity_experiment(threads: tuple[Level, ...] = (1,), repeats: int = 5, **changes: object) -> Experiment:
    parts: dict[str, object] = {
        "objective": Objective(metric="capacity", subject_to=["p99 < 50ms", "errors < 0.1%"]),
        "measure": Measure(repeats=repeats),
    }
    return experiment({"threads": threads}, **{**parts, **changes})


def setting(threads: Level) -> Setting:
    return Setting((("threads", threads),))
