"""A window that may miss steps of the scenario is warned of."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.trials import experiment
from powerband.analyze.settings.compare import analyse
from powerband.analyze.settings.unseen_steps import unseen_steps
from powerband.model.experiment import Experiment
from powerband.model.load import Load
from powerband.model.results import TrialResult

SECOND = 10**9
BEGINS = "the measured window (3.00 s) is shorter than one pass through the scenario (10.0 s of pauses), and users"
ENDS = "set measure.warmup to auto, or set load.duration (--duration) to 10.0 s or longer"


def made(
    warmup: str, *, seconds: int = 3, steps: int = 5, burst: int = 0, more: dict[str, Any] | None = None
) -> Experiment:
    """Users who pause for two seconds after each of five steps."""
    scenario = [{"name": f"step {number}"} for number in range(steps)]
    load = {"users": 10, "think": 2 * SECOND, "duration": seconds * SECOND, "scenario": scenario, **(more or {})}
    return experiment(load=Load.model_validate(load), measure={"warmup": warmup, "repeats": 3, "burst": burst})


def with_messages(warmup: str, **more: Any) -> Experiment:
    """Users of a WebSocket, who send five messages in place of these requests."""
    steps = [{"name": f"step {number}", "message": "hello"} for number in range(5)]
    return made(warmup, more={"websocket": {}, "scenario": steps, **more})


@pytest.mark.parametrize(
    ("run", "told"),
    [
        pytest.param(made("4s"), True, id="a warm-up shorter than a pass"),
        pytest.param(made("12s", more={"ramp": "4s"}), True, id="a ramp that leaves too little of it"),
        pytest.param(made("auto"), False, id="until steady"),
        pytest.param(made("10s"), False, id="as long as a pass"),
        pytest.param(made("14s", more={"ramp": "4s"}), False, id="as long as ramp and pass"),
        pytest.param(made("4s", more={"ramp": "10s"}), False, id="a ramp as long as a pass"),
        pytest.param(made("4s", seconds=10), False, id="a window as long as a pass"),
        pytest.param(made("4s", steps=1), False, id="one step"),
        pytest.param(made("4s", more={"think": 0}), False, id="no pauses"),
        pytest.param(made("4s", more={"requests_per_user": 5}), False, id="until all users have left"),
        pytest.param(made("4s", more={"users": None, "rate": 5.0}), False, id="arrivals"),
    ],
)
def test_a_window_that_may_miss_steps_is_warned_of(run: Experiment, told: bool) -> None:
    found = list(unseen_steps(run, run.settings()))
    assert len(found) == told
    assert all(said.startswith(BEGINS) and said.endswith(ENDS) for said in found)


@pytest.mark.parametrize(
    ("run", "told"),
    [
        pytest.param(with_messages("auto"), False, id="they join over a pass"),
        pytest.param(with_messages("4s"), True, id="a warm-up shorter than that"),
        pytest.param(with_messages("auto", join_per_s=10), True, id="they join in a second"),
        pytest.param(with_messages("auto", join_per_s=1), False, id="in ten seconds"),
        pytest.param(with_messages("auto", join_per_s=10, think=0, pace=2 * SECOND), True, id="sends at a pace"),
        pytest.param(with_messages("auto", join_per_s=10, think=0), False, id="no pauses"),
    ],
)
def test_a_window_that_may_miss_messages_is_warned_of(run: Experiment, told: bool) -> None:
    found = list(unseen_steps(run, run.settings()))
    assert len(found) == told
    assert all(said.startswith(BEGINS) and said.endswith("to 10.0 s or longer") for said in found)


def test_a_ramp_of_users_who_send_messages_is_all_that_spreads_them() -> None:
    run = with_messages("12s", join_per_s=10)
    (said,) = unseen_steps(run, run.settings())
    assert "set measure.warmup" not in said


def test_users_are_spread_over_the_first_minute_of_a_longer_pass() -> None:
    short, long = made("auto", steps=50), made("auto", steps=50, seconds=40)
    (said,) = unseen_steps(short, short.settings())
    assert said.endswith("others not at all; set load.duration (--duration) to 100 s or longer")
    assert not list(unseen_steps(long, long.settings()))


def test_users_who_begin_all_at_once_are_not_spread_by_any_warm_up() -> None:
    run = made("auto", burst=SECOND)
    (said,) = unseen_steps(run, run.settings())
    assert said.endswith("others not at all; set load.duration (--duration) to 10.0 s or longer")


def test_the_warning_is_told_with_the_answer() -> None:
    run = made("4s")
    metrics = {"goodput_per_s": 5.0, "threads_max": 1.0}
    trials = [
        TrialResult(number, block, 1, setting, "measured", (), metrics)
        for number, (block, setting) in enumerate(((b, s) for b in range(3) for s in run.settings()), 1)
    ]
    assert [said for said in analyse(run, trials).warnings if said.startswith(BEGINS)]
