"""The coverage of capacity intervals: searches by the real planner, read by the real analysis, on simulated servers of
known capacity. `make statistics` writes the table into docs/methods/capacity.md."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from fakes.edges import Server, answers_of, capacity_experiment, search
from fakes.made import Made
from fakes.queues import Queue, queue_answers
from powerband.analyze.settings.compare import analyse
from powerband.analyze.stats.shares import share_least
from powerband.model.experiment import Objective
from powerband.model.load import Load

WANTED = 0.93


@dataclass(frozen=True)
class Shape:
    """A server to be searched. `drift`: how much the machine slows down from trial to trial (log)."""

    family: str
    name: str
    server: Server | Queue
    drift: float = 0.0


@dataclass(frozen=True)
class Found:
    """One search: the true capacity and the estimated interval, in log rates; NaN if no capacity was found."""

    truth: float
    low: float
    middle: float
    high: float
    trials: int
    measured_s: float

    @property
    def covered(self) -> bool:
        return self.low <= self.truth <= self.high


def _bistable(slow: float, slower_by: float) -> Shape:
    name = f"{slow:.0%} of starts {1 - math.exp(-slower_by):.0%} slower"
    return Shape("bistable", name, Server(sd=0.01, p99_sd=0.02, slow=slow, slower_by=slower_by))


def _cliff(lapses: float) -> Shape:
    return Shape("cliff", f"cliff, {lapses:.0%} of trials fall short", Server(sd=0.01, p99_sd=0.01, lapses=lapses))


SHAPES = (
    Shape("M/M/1", "M/M/1, p99 at 10 services", Queue(1, "exponential", 0.002, 0.02)),
    Shape("M/M/1", "M/M/1, p99 at 50 services", Queue(1, "exponential", 0.002, 0.1)),
    Shape("M/M/1", "M/M/1, starts differ by 3 %", Queue(1, "exponential", 0.002, 0.04, sd=0.03)),
    Shape("M/G/1", "M/D/1", Queue(1, "fixed", 0.002, 0.04)),
    Shape("M/G/1", "M/D/1, starts differ by 3 %", Queue(1, "fixed", 0.002, 0.04, sd=0.03)),
    Shape("M/G/1", "M/G/1, heavy-tailed", Queue(1, "heavy", 0.002, 0.1)),
    Shape("M/G/k", "M/D/4", Queue(4, "fixed", 0.01)),
    Shape("M/G/k", "M/D/8", Queue(8, "fixed", 0.02)),
    Shape("M/G/k", "M/M/8", Queue(8, "exponential", 0.02, 0.2)),
    Shape("M/G/k", "M/G/16, heavy-tailed", Queue(16, "heavy", 0.02, 0.2)),
    Shape("M/G/k", "M/M/4, starts differ by 3 %", Queue(4, "exponential", 0.01, sd=0.03)),
    *map(_cliff, (0.0, 0.05, 0.1, 0.2, 0.3)),
    *(_bistable(slow, by) for slow, by in ((0.1, 0.1), (0.1, 0.3), (0.2, 0.3), (0.3, 0.1), (0.3, 0.3), (0.5, 0.2))),
    Shape("starts differ", "starts differ by 0.3 %", Server(sd=0.002, p99_sd=0.01)),
    Shape("starts differ", "starts differ by 2 %", Server(sd=0.02)),
    Shape("starts differ", "starts differ by 4 %", Server(sd=0.04)),
    Shape("starts differ", "starts differ by 8 %, 5 % of trials fall short", Server(sd=0.08, lapses=0.05)),
    Shape(
        "starts differ", "starts differ by 2 %, shallow knee", Server(base_ns=5e6, excess_ns=20e6, sd=0.02, p99_sd=0.10)
    ),
    Shape("starts differ", "starts differ by 2 %, the machine slows by 2 %", Server(sd=0.02), drift=0.001),
)


def searched(shape: Shape, seed: int, repeats: int = 5) -> Found:
    dice = np.random.default_rng([seed, 1])
    scale = math.exp(dice.uniform(-0.3, 0.3))
    if isinstance(shape.server, Queue):
        # The limit is scaled too, so that the load at the edge stays the same.
        queue = replace(shape.server, mean_s=shape.server.mean_s * scale, limit_s=shape.server.limit_s * scale)
        made = capacity_experiment(
            repeats=repeats,
            load=Load(users=64, duration_ns=3_000_000_000),
            objective=Objective(metric="capacity", subject_to=[f"p99 < {queue.limit_s * 1e6:.0f}us", "errors < 0.1%"]),
        )
        answer, truth = queue_answers(queue, dice, 3.0), shape.server.capacity_per_s / scale
    else:
        server = replace(shape.server, most_per_s=shape.server.most_per_s * scale)
        made = capacity_experiment(repeats=repeats)
        answer, truth = answers_of({1: server}, dice, shape.drift), shape.server.capacity_per_s * scale
    planner, results = search(made, answer, seed)
    (row,) = analyse(made, results, planner.progress).settings
    told = None if row.capacity is None else row.capacity.estimate
    values = (math.nan,) * 3 if told is None else (told.low or math.nan, told.value, told.high or math.nan)
    middle_of_drift = math.log(truth) - shape.drift * len(results) / 2
    measured_s = sum(trial.window_s or made.load.duration_ns / 1e9 for trial in results)
    low, middle, high = (math.log(value) for value in values)
    return Found(middle_of_drift, low, middle, high, len(results), measured_s)


def shape_figures(found: Sequence[Found]) -> tuple[float, float, float]:
    """Median half-width, bias and root mean square error of the searches of one server."""
    told = [each for each in found if not math.isnan(each.middle)]
    errors = np.array([each.middle - each.truth for each in told])
    half = float(np.median([(each.high - each.low) / 2 for each in told]))
    return half, float(errors.mean()), math.sqrt(float((errors**2).mean()))


def coverage_line(shape: Shape, found: Sequence[Found]) -> str:
    """The row of one server, which `pytest -s` prints: coverage, half-width, bias, error, trials, measured time."""
    half, bias, error = shape_figures(found)
    covered = sum(each.covered for each in found)
    cells = [
        shape.name,
        f"{covered / len(found):.0%} of {len(found)}",
        f"{half:.1%}",
        f"{bias:+.1%}",
        f"{error:.1%}",
        f"{np.mean([each.trials for each in found]):.0f}",
        f"{np.mean([each.measured_s for each in found]):.0f} s",
    ]
    return f"| {' | '.join(cells)} |"


HEAD = (
    "| servers | intervals that hold the truth | at least | half-width | bias | error at most |",
    "|---|---|---|---|---|---|",
)


def family_line(family: str, found: Sequence[Sequence[Found]]) -> str:
    """The row of a family. `found`: the searches of each of its servers. `at least`: the one-sided bound at 95 %
    (Clopper & Pearson 1934); half-width and bias: the least and the most of the servers; `error`: the largest root mean
    square of a server."""
    held, made = sum(each.covered for some in found for each in some), sum(map(len, found))
    shapes = [shape_figures(some) for some in found]
    halves, biases, errors = zip(*shapes, strict=True)
    cells = [
        family,
        f"{held} of {made}",
        f"{share_least(held, made, 0.05):.1%}",
        f"{min(halves):.1%} to {max(halves):.1%}",
        f"{min(biases):+.1%} to {max(biases):+.1%}",
        f"{max(errors):.1%}",
    ]
    return f"| {' | '.join(cells)} |"


SEARCHES = 18


def coverage_table(found: Mapping[str, Mapping[str, Any]]) -> str:
    """The table of all families, and what the searches took. `found`: the searches by the names of their cases."""
    by_shape = {shape.name: [Found(**found[_case(shape, seed)]) for seed in range(SEARCHES)] for shape in SHAPES}
    families = dict.fromkeys(shape.family for shape in SHAPES)
    pooled = [
        family_line(family, [by_shape[shape.name] for shape in SHAPES if shape.family == family]) for family in families
    ]
    trials = _range([float(np.mean([each.trials for each in some])) for some in by_shape.values()])
    windows = _range([float(np.mean([each.measured_s for each in some])) for some in by_shape.values()])
    took = f"{SEARCHES} searches a server, each of {trials} trials and {windows} s of windows."
    return "\n".join([*HEAD, *pooled, "", took]) + "\n"


def _range(values: Sequence[float]) -> str:
    """The least and the most, rounded; one figure if they are alike."""
    return " to ".join(dict.fromkeys((f"{min(values):.0f}", f"{max(values):.0f}")))


def _case(shape: Shape, seed: int) -> str:
    return f"{shape.name}, search {seed}"


def _searched(shape: Shape, seed: int) -> dict[str, Any]:
    return asdict(searched(shape, seed))


COVERAGE = Made(
    "capacity's coverage",
    "capacity.md",
    {_case(shape, seed): partial(_searched, shape, seed) for seed in range(SEARCHES) for shape in SHAPES},
    coverage_table,
    cheap=_case(next(shape for shape in SHAPES if shape.name == "starts differ by 2 %"), 0),
)
