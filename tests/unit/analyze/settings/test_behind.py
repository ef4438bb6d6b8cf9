"""A server that falls behind its rate meets a limit on response times only as long as its trials are short."""

from __future__ import annotations

import pytest

from fakes.trials import experiment
from powerband.analyze.settings.compare import analyse
from powerband.model.load import Load, Step
from powerband.model.results import AnswerKind, TrialResult

SECOND = 10**9


def load(steps: int = 1) -> Load:
    return Load(rate_per_s=500 / steps, duration_ns=3 * SECOND, scenario=(Step(name="GET /"),) * steps)


@pytest.mark.parametrize(
    ("served", "p99_s", "repeats", "steps", "falls"),
    [
        pytest.param(450.0, 0.9, 3, 1, True, id="a tenth too much"),
        pytest.param(450.0, 0.9, 2, 1, None, id="two trials may end with a pause"),
        pytest.param(499.0, 0.02, 3, 1, False, id="it keeps up"),
        pytest.param(490.0, 0.9, 3, 1, False, id="by chance"),
        pytest.param(440.0, 6.0, 3, 1, False, id="answers that are due later"),
        pytest.param(485.0, 0.02, 3, 9, True, id="steps that wait for each other"),
    ],
)
def test_a_limit_on_times_is_missed_by_a_server_that_falls_behind_its_rate(
    served: float, p99_s: float, repeats: int, steps: int, falls: bool | None
) -> None:
    """Limits are 1 s, or 10 s for the slowest."""
    limit = "10s" if p99_s > 1 else "1s"
    made = experiment(load=load(steps), measure={"repeats": repeats}, objective={"subject_to": [f"p99 < {limit}"]})
    metrics = {"offered_rate_per_s": 500.0, "achieved_rate_per_s": served, "goodput_per_s": served, "error_rate": 0.0}
    times = {"response_time_ns_p99": p99_s * SECOND, "response_time_ns_mean": p99_s / 2 * SECOND}
    pairs = [(block, setting) for block in range(repeats) for setting in made.settings()]
    results = [
        TrialResult(
            n, block, 1, setting, "measured", (), {**metrics, **times, "threads_max": 1.0 + block}, warmup_s=5.0
        )
        for n, (block, setting) in enumerate(pairs, 1)
    ]
    found = analyse(made, results)
    said = "the server falls behind the rate by"
    if falls:
        assert found.answer.kind is AnswerKind.NONE_FEASIBLE
        assert all(said in row.infeasible_because[0] for row in found.settings)
    else:
        assert all(row.feasible for row in found.settings)
        assert all((said in " ".join(row.uncertain_because)) is (falls is None) for row in found.settings)
