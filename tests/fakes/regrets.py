"""The error rate of the bound of an answer (`regret`) if the data pick the moment to look; the truth is known.

It is tested twice: the statistic alone, for every setting at every look, which is the worst case of picking; and races
through planner and analysis, each at the look at which its bound was smallest. `make statistics` writes the table into
docs/methods/regret.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from fakes.landscapes import threads_of
from fakes.made import Made
from fakes.races import race_of, result_of, threads
from fakes.starts import BLOCKS, SHAPES, Shape
from powerband.analyze.settings.compare import analyse
from powerband.analyze.stats.intervals import compare_with_leader, fit_of
from powerband.analyze.stats.special import Array
from powerband.analyze.stats.spending import Glance
from powerband.model.plan import TrialSpec
from powerband.search.planners import planner_for

SETTINGS = (2, 4, 8, 16)
TRUTHS = (
    (0.0, 0.0, 0.0, 0.0),
    (0.0, -0.03, -0.06, -0.1),
    (0.0, -0.02, -0.02, -0.02, -0.02, -0.02, -0.02, -0.02),
    (0.0, -0.1, -0.2, -0.3, -0.4, -0.5, -0.6, -0.7),
)
"""Logs of the true rates of a race's settings: equal, close, one a little ahead, far apart."""


def bounds_missed(shape: Shape, settings: int, sweeps: int) -> float:
    """The share of sweeps in which the best exceeds any setting, at any look, by more than that setting's bound. The
    best is far ahead of all others, and no setting is eliminated, so only its own distances count: the hardest case."""
    dice = np.random.default_rng([SHAPES.index(shape), settings, 11])
    truth = np.full(settings, -0.7)
    truth[0] = 0.0
    y = shape.draw(dice, sweeps, BLOCKS, settings) + truth
    missed = np.zeros(sweeps, dtype=bool)
    for blocks in range(2, BLOCKS + 1):
        glance, seen = Glance.of(blocks, BLOCKS, settings), y[:, :blocks]
        fit = fit_of(seen)
        for setting in range(settings):
            found = compare_with_leader(seen, 0.95, np.arange(settings) == setting, glance, fit=fit)
            bound = np.maximum(found.difference + found.half_tost, 0).max(axis=1)
            missed |= truth[0] - truth[setting] > bound + 1e-12
    return float(missed.mean())


def race_bounds(shape: Shape, truth: tuple[float, ...], races: int) -> Counter[str]:
    """Races of these settings that go on to their end. Returns how many had a bound and in how many it was wrong, at
    the smallest bound and at any look."""
    count: Counter[str] = Counter()
    for number in range(races):
        dice = np.random.default_rng([SHAPES.index(shape), TRUTHS.index(truth), number])
        y = shape.draw(dice, 1, BLOCKS, len(truth))[0] + np.array(truth)

        def serve(spec: TrialSpec, y: Array = y) -> Mapping[str, float]:
            rate = 1e6 * float(np.exp(y[spec.block, threads(spec)]))
            return {"goodput_per_s": rate, "threads_max": threads(spec) + 1.0}

        made = race_of(len(truth), repeats=BLOCKS, confirm=0, seed=number, named=True)
        planner = planner_for(made, number)
        results = []
        looks: list[tuple[float, float]] = []  # the bound, and how much better the best truly is
        while (spec := planner.ask()) is not None:
            results.append(result_of(spec, serve(spec)))
            planner.tell(results[-1])
            if not planner.block_ended:
                continue
            answer = analyse(made, results, planner.progress).answer
            if answer.setting is None or answer.regret is None:
                continue
            used = truth[threads_of(answer.setting)]
            looks.append((answer.regret, float(np.expm1(max(truth) - used))))
        count["races"] += 1
        if looks:
            bound, lost = min(looks)
            count["bounded"] += 1
            count["missed"] += lost > bound + 1e-9
            count["missed anywhere"] += any(lost > bound + 1e-9 for bound, lost in looks)
    return count


SWEEPS, RACES = 1000, 30


def regret_table(found: Mapping[str, Any]) -> str:
    """The table of errors by shape: the statistic at any look, with its worst number of settings in brackets; then
    races of all truths."""
    of = len(TRUTHS) * RACES
    lines = [f"| starts | any setting, any look | races wrong at any look, of {of} |", "|---|---|---|"]
    for shape in SHAPES:
        worst, k = max((found[_looked(shape, k)], k) for k in SETTINGS)
        count = sum((Counter(found[_raced(shape, number)]) for number in range(len(TRUTHS))), Counter[str]())
        wrong = count["missed anywhere"]
        unless_all = f" of {count['bounded']} with a bound" if count["bounded"] < of else ""
        lines.append(f"| {shape.name} | {worst:.1%} ({k}) | {wrong}{unless_all} |")
    return "\n".join(lines) + "\n"


def _looked(shape: Shape, settings: int) -> str:
    return f"{shape.name}: {settings} settings, any look"


def _raced(shape: Shape, truth: int) -> str:
    return f"{shape.name}: races, truth {truth}"


def _cases() -> dict[str, Callable[[], Any]]:
    cases: dict[str, Callable[[], Any]] = {}
    for shape in SHAPES:
        cases |= {_looked(shape, k): partial(bounds_missed, shape, k, SWEEPS) for k in SETTINGS}
        cases |= {_raced(shape, at): partial(race_bounds, shape, truth, RACES) for at, truth in enumerate(TRUTHS)}
    return cases


BOUNDS = Made("bounds", "regret.md", _cases(), regret_table, cheap=_looked(SHAPES[0], 2))
