"""Capacity searches on servers of known capacity: how often the interval covers it, at what cost, and how often a
setting is called best, or leaves, wrongly. Figures are printed (`pytest -s`) for docs/methods/capacity.md."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

import numpy as np
import pytest

from fakes.edges import Server, answers_of, capacity_experiment, search, setting
from powerband.analyze.settings.capacity import search_of
from powerband.analyze.settings.compare import analyse
from powerband.model.results import AnswerKind


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


@dataclass(frozen=True)
class Shape:
    name: str
    server: Server
    drift: float = 0.0
    searches: int = 32


SHAPES = [
    Shape("steep, quiet", Server(sd=0.002, p99_sd=0.01), searches=8),
    Shape("30 % of starts 10 % slower", Server(sd=0.01, slow=0.3, slower_by=0.1), searches=8),
    Shape("1 % between starts", Server(sd=0.01)),
    Shape("2 % between starts", Server(sd=0.02)),
    Shape("2 %, 5 % of trials disturbed", Server(sd=0.02, lapses=0.05)),
    Shape("4 % between starts", Server(sd=0.04)),
    Shape("8 % between starts, disturbed", Server(sd=0.08, lapses=0.05)),
    Shape("shallow knee, noisy p99", Server(base_ns=5e6, excess_ns=20e6, sd=0.02, p99_sd=0.10)),
    Shape("SLO far below saturation", Server(base_ns=5e6, excess_ns=40e6, sd=0.01, p99_sd=0.02)),
    Shape("2 %, machine slows by 2 % on the way", Server(sd=0.02), drift=0.001),
    Shape("cliff, 10 % of trials fall short", Server(sd=0.005, p99_sd=0.01, lapses=0.1)),
    Shape("cliff, 30 % of trials fall short", Server(sd=0.01, p99_sd=0.01, lapses=0.3)),
    Shape("20 % of starts 26 % slower", Server(sd=0.02, slow=0.2, slower_by=0.3)),
    Shape("half of the starts 18 % slower", Server(sd=0.01, slow=0.5, slower_by=0.2)),
]


@pytest.mark.parametrize(
    "shape",
    [
        *SHAPES[:2],
        *(pytest.param(shape, marks=pytest.mark.long) for shape in SHAPES[3::2]),
        *(pytest.param(shape, marks=pytest.mark.table) for shape in SHAPES[2::2]),
    ],
    ids=lambda shape: shape.name,
)
def test_intervals_cover_the_capacity(shape: Shape) -> None:
    made = capacity_experiment()
    covered, trials, widths, errors = 0, [], [], []
    for seed in range(shape.searches):
        dice = np.random.default_rng([seed, 1])
        server = Server(**{**vars(shape.server), "most_per_s": 1000 * math.exp(dice.uniform(-0.5, 0.5))})
        _, results = search(made, answers_of({1: server}, dice, shape.drift), seed)
        edge = search_of(made, setting(1), results).edge
        low, high = edge.interval(0.95)
        truth = math.log(server.capacity_per_s) - shape.drift * len(results) / 2  # the middle of what it was
        covered += low <= truth <= high
        trials.append(len(results))
        widths.append((high - low) / 2)
        errors.append(edge.quantile(0.5) - truth)
    share = covered / shape.searches
    say(
        f"\n{shape.name}: {share:.0%} covered, {np.mean(trials):.1f} trials, half-width {np.median(widths):.1%}, "
        f"error {math.sqrt(float(np.mean(np.square(errors)))):.1%}"
    )
    assert share >= 0.93 - 1.64 * math.sqrt(0.07 * 0.93 / shape.searches)


@pytest.mark.long
def test_equal_settings_have_no_best() -> None:
    """A/A: at most 5 % of the searches may name a best, whatever they stop at."""
    made = capacity_experiment((1, 2, 4))
    kinds = []
    for seed in range(16):
        dice = np.random.default_rng([seed, 2])
        servers = dict.fromkeys((1, 2, 4), Server(sd=0.03))
        planner, results = search(made, answers_of(servers, dice), seed)
        kinds.append(analyse(made, results, planner.progress).answer.kind)
    say(f"\nA/A: {kinds.count(AnswerKind.BEST)} of {len(kinds)} name a best; "
          f"{kinds.count(AnswerKind.EQUIVALENT_SET)} an equivalent set")  # fmt: skip
    assert kinds.count(AnswerKind.BEST) <= 0.05 * len(kinds) + 1.64 * math.sqrt(0.05 * 0.95 * len(kinds))


@pytest.mark.long
def test_the_best_does_not_leave_and_is_named() -> None:
    """Five settings, 30 % apart, 25 trials at most: no other is used; the best one is, or the trials are said to be too
    few, as in one search of five: a start that stalls weighs heavily in what 95 % of 25 starts hold."""
    levels = (1, 2, 4, 8, 16)
    made = capacity_experiment(levels)
    named = wrong = trials = 0
    for seed in range(6):
        dice = np.random.default_rng([seed, 3])
        servers = {level: Server(1000 * 1.3**index, sd=0.02, lapses=0.02) for index, level in enumerate(levels)}
        planner, results = search(made, answers_of(servers, dice), seed)
        answer = analyse(made, results, planner.progress).answer
        named += answer.setting == setting(16)
        wrong += answer.setting not in (None, setting(16))
        trials += len(results)
    say(f"\n5 settings, 30 % apart: named {named}, wrong {wrong} of 6; {trials / 6 / 5:.1f} trials a setting")
    assert wrong == 0
    assert named >= 4
