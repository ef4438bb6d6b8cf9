"""Two equal revisions race and are compared after every block, until the verdict seems certain. At most 5 % of all
comparisons may end with `better` or `worse`. A real difference beyond the margin is found."""

import math
import random

import pytest

from fakes.races import run_planner
from fakes.trials import experiment
from powerband.analyze.runs.revisions import compare_revisions
from powerband.analyze.settings.compare import analyse
from powerband.model.experiment import Objective
from powerband.model.plan import REVISION, TrialSpec
from powerband.model.results import Verdict
from powerband.search.planners import planner_for

BLOCKS = 8


def raced(ratio: float, noise: float, seed: int, p99_ms: float | None = None) -> tuple[Verdict, int]:
    """The verdict on NEW, and the number of trials that it took. The machine drifts by 10 % from block to block.
    `p99_ms`: that of both, which the SLO wants below 50 ms; None: there is no SLO."""
    of = experiment(
        {REVISION: ("old", "new")},
        seed=seed,
        measure={"repeats": BLOCKS},
        design={"order": "race", "confirm": 0, "seed": seed},
        objective=Objective.model_validate({"subject_to": [] if p99_ms is None else ["p99 < 50ms", "errors < 1%"]}),
    )
    dice = random.Random(seed)
    drift = [math.exp(dice.gauss(0, 0.1)) for _ in range(BLOCKS)]
    planner = planner_for(of, seed)

    def outcome(spec: TrialSpec) -> dict[str, float]:
        rate = 1000 * drift[spec.block] * (ratio if spec.setting.as_dict()[REVISION] == "new" else 1.0)
        metrics = {"goodput_per_s": rate * math.exp(dice.gauss(0, noise)), "error_rate": 0.0}
        return metrics | (
            {} if p99_ms is None else {"response_time_ns_p99": p99_ms * 1e6 * math.exp(dice.gauss(0, noise))}
        )

    results = run_planner(planner, outcome)
    (change,) = compare_revisions(of, analyse(of, results, planner.progress)).changes
    return change.verdict, len(results)


@pytest.mark.parametrize(("noise", "p99_ms"), [(0.005, None), (0.03, None), (0.03, 50.0), (0.03, 60.0)])
def test_equal_revisions_seldom_differ(noise: float, p99_ms: float | None) -> None:
    """Also where both violate an SLO, or lie at its limit."""
    sweeps = 200
    found = [raced(1.0, noise, seed, p99_ms)[0] for seed in range(sweeps)]
    false = sum(verdict in (Verdict.BETTER, Verdict.WORSE) for verdict in found)
    assert false / sweeps <= 0.05 + 1.64 * math.sqrt(0.05 * 0.95 / sweeps)


@pytest.mark.parametrize(("ratio", "verdict"), [(0.9, Verdict.WORSE), (1.1, Verdict.BETTER), (1.0, Verdict.EQUIVALENT)])
def test_what_is_clear_is_found_before_the_last_block(ratio: float, verdict: Verdict) -> None:
    found = [raced(ratio, 0.005, seed) for seed in range(50)]
    assert sum(each is verdict for each, _ in found) >= 48
    assert sum(trials for _, trials in found) < 0.7 * 50 * 2 * BLOCKS
