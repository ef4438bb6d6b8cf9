"""Simulated races and grids for tests of planners: the true rate of each setting is known, and the noise is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fakes.landscapes import threads_of
from fakes.trials import experiment
from powerband.analyze.settings.compare import analyse
from powerband.analyze.trial.faults import with_first_start
from powerband.model.experiment import Experiment
from powerband.model.plan import Level, TrialSpec
from powerband.model.results import Analysis, Problem, TrialResult
from powerband.search.planner import Planner
from powerband.search.planners import planner_for

# The metrics of a trial, or the code of a problem that makes it invalid.
Outcome = Callable[[TrialSpec], Mapping[str, float] | str]
TookS = Callable[[TrialSpec], float]


def race_of(
    levels: int, *, repeats: int = 10, objective: Mapping[str, Any] | None = None, named: bool = False, **design: Any
) -> Experiment:
    """A race over `threads`, from 0 to levels - 1. `named`: the levels are names, `t0` for 0, so that the analysis
    judges no rule of thumb, which saves a third of the time of a simulated race."""
    factors: dict[str, tuple[Level, ...]] = {"threads": tuple(f"t{n}" if named else n for n in range(levels))}
    changes: dict[str, Any] = {"objective": objective} if objective is not None else {}
    return experiment(factors, measure={"repeats": repeats}, design={"order": "race", "seed": 7, **design}, **changes)


def threads(spec: TrialSpec) -> int:
    return threads_of(spec.setting)


def result_of(spec: TrialSpec, outcome: Mapping[str, float] | str, took_s: float = 1.0) -> TrialResult:
    code = outcome if isinstance(outcome, str) else ""
    status = "interrupted" if code == "interrupted" else "failed" if code in ("not_ready", "died") else "measured"
    return TrialResult(
        number=spec.number,
        block=spec.block,
        attempt=spec.attempt,
        setting=spec.setting,
        status=status,
        problems=(Problem(code, f"because of {code}"),) if code else (),
        metrics={} if isinstance(outcome, str) else outcome,
        stage=spec.stage,
        took_s=took_s,
        window_s=None if spec.window_ns is None else spec.window_ns / 1e9,
    )


def a_second(_spec: TrialSpec) -> float:
    """The time in s that a trial takes."""
    return 1.0


def run_planner(planner: Planner, outcome: Outcome, took_s: TookS = a_second) -> list[TrialResult]:
    """Runs the planner to its end; returns the results."""
    results = []
    while (spec := planner.ask()) is not None:
        results.append(with_first_start(result_of(spec, outcome(spec), took_s(spec)), results))
        planner.tell(results[-1])
    return results


def run_experiment(made: Experiment, outcome: Outcome, took_s: TookS = a_second) -> Analysis:
    planner = planner_for(made, made.design.seed or 0)
    results = run_planner(planner, outcome, took_s)
    return analyse(made, results, planner.progress)
