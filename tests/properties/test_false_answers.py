"""A/A sweeps through the whole analysis: all settings are the same, so every answer `best` is false. At most 5 % of
sweeps may get one: with invalid trials, with a constraint at whose limit all settings are, and with both."""

from __future__ import annotations

import numpy as np
import pytest

from fakes.trials import experiment
from powerband.analyze.settings.compare import analyse
from powerband.model.experiment import Objective
from powerband.model.plan import Setting
from powerband.model.results import AnswerKind, Problem, TrialResult

SWEEPS = 500
SD = 0.03
INVALID = 0.10
# 5 % and 1.64 standard errors of a share of 5 % in so many sweeps.
FALSE_MAX = 0.05 + 1.64 * (0.05 * 0.95 / SWEEPS) ** 0.5
LIMIT_NS = 50e6
DISTURBED = (Problem("host_steal", "the machine was disturbed"),)


def sweep(dice: np.random.Generator, settings: int, blocks: int, response_ns: float) -> list[TrialResult]:
    """The trials of one run: throughput and response time of each vary by 3 %, and a tenth of the trials is invalid."""
    goodput = 1000 * np.exp(SD * dice.standard_normal((blocks, settings)))
    response = response_ns * np.exp(SD * dice.standard_normal((blocks, settings)))
    spoilt = dice.random((blocks, settings)) < INVALID
    return [
        TrialResult(
            number=1 + block * settings + index,
            block=block,
            attempt=1,
            setting=Setting((("threads", index),)),
            status="measured",
            problems=DISTURBED if spoilt[block, index] else (),
            metrics={
                "goodput_per_s": float(goodput[block, index]),
                "response_time_ns_p99": float(response[block, index]),
            },
        )
        for block in range(blocks)
        for index in range(settings)
    ]


# `from_limit`: None: no constraint; 0: all settings exactly at the limit; -0.03: slightly within it.
@pytest.mark.parametrize(
    ("settings", "blocks", "from_limit"),
    [(2, 5, None), (2, 5, 0.0), (2, 5, -0.03), (4, 5, None), (4, 5, 0.0), (4, 5, -0.03), (4, 1, 0.0)],
)
def test_equal_settings_have_no_best(settings: int, blocks: int, from_limit: float | None) -> None:
    constrained = [] if from_limit is None else ["p99 < 50ms"]
    """Seeds are fixed, so the figures are the same every time."""
    made = experiment({"threads": tuple(range(settings))}, objective=Objective(subject_to=constrained))
    dice = np.random.default_rng([settings, blocks, 0 if from_limit is None else 1 + round(-100 * from_limit)])
    response_ns = LIMIT_NS * (1 + (from_limit or 0.0))
    kinds = [analyse(made, sweep(dice, settings, blocks, response_ns)).answer.kind for _ in range(SWEEPS)]
    assert kinds.count(AnswerKind.BEST) / SWEEPS <= FALSE_MAX
