"""Simulated races beside a neighbour that burns CPU in bursts, through the real planner and the real analysis: the true
rate of each setting is known, and so is the loss of each trial."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fakes.races import race_of, result_of, threads
from powerband.analyze.settings.compare import analyse
from powerband.model.results import Analysis, Verdict
from powerband.search.planners import planner_for

SD = 0.02  # standard deviation of the logs of undisturbed starts
AROUND_S, SHORT_S, FULL_S = 1.0, 0.5, 10.0  # what a trial takes besides its window; windows
SHORT_SD = 0.06  # within a short window
HELD_UP_MOST = 0.4  # the largest bound of a trial


def race_beside(
    number: int,
    truth: Sequence[float],
    hit: Sequence[float],
    *,
    bounded: bool = True,
    steady: bool = False,
    screened: bool = False,
) -> Analysis:
    """Analyses one race. `truth`: the undisturbed rate of each setting. `hit`: the probability that a trial of it meets
    a burst, which costs a uniform part of the trial's bound. `bounded`: the analysis knows the bounds. `steady`: every
    bound is half of the largest, and half of it is lost. `screened`: the race begins with short trials, and has noise
    within a window, too."""
    dice = np.random.default_rng([number, len(truth)])
    short = {"screen": "500ms", "confirm_early": True} if screened else {}
    made = race_of(len(truth), repeats=5, confirm=3, seed=number, named=True, **short)
    planner = planner_for(made, number)
    results = []
    while (spec := planner.ask()) is not None:
        setting = threads(spec)
        bound, part = (0.5, 0.5) if steady else dice.random(2)
        held_up = HELD_UP_MOST * bound if dice.random() < hit[setting] else 0.0
        window_s = FULL_S if spec.window_ns is None else spec.window_ns / 1e9
        sd = math.hypot(SD, SHORT_SD * math.sqrt(SHORT_S / window_s)) if screened else SD
        rate = truth[setting] * np.exp(sd * dice.standard_normal()) * (1 - held_up * part)
        result = result_of(spec, {"goodput_per_s": float(rate), "threads_max": setting + 1.0}, AROUND_S + window_s)
        results.append(replace(result, held_up=held_up if bounded else 0.0))
        planner.tell(results[-1])
    return analyse(made, results, planner.progress)


def has_false_winner(found: Analysis) -> bool:
    """True if one of the equal settings is called better or worse than another."""
    return any(row.verdict in (Verdict.BETTER, Verdict.WORSE) for row in found.settings)
