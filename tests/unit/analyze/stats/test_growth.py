"""Growth to the end of a window: leaks are found, and other growth is not taken for one."""

from __future__ import annotations

import numpy as np
import pytest

from powerband.analyze.stats.growth import steady_growth

S = 1_000_000_000
AT = np.arange(0, 10 * S, S // 10, dtype=float)
SECONDS = AT / S
RUNS = 200


def growth(levels: np.ndarray) -> float | None:
    return steady_growth(AT, levels, 0, 10 * S, least=4.0)


@pytest.mark.parametrize("per_s", [1.0, 300.0])
@pytest.mark.parametrize("sawtooth", [0.0, 5.0])
def test_a_leak_is_told_with_its_pace(per_s: float, sawtooth: float) -> None:
    """The leak is found under a collector too, which frees unused memory once a second."""
    levels = 1000 + per_s * SECONDS + sawtooth * (SECONDS % 1.0)
    assert growth(levels) == pytest.approx(per_s, rel=0.05)


def test_a_leak_is_told_from_few_readings_too() -> None:
    """Seven readings of a JVM's heap in six parts: the first part has two, which are 0.3 s apart like all."""
    at = np.array([0.03, 0.33, 0.64, 0.93, 1.23, 1.53, 1.83]) * S
    assert steady_growth(at, 27e6 * at / S, 0, 2 * S, least=4e6) == pytest.approx(27e6)


@pytest.mark.parametrize("period_s", [1.0, 2.0])
def test_a_leak_that_grows_in_stairs_is_found(period_s: float) -> None:
    """A runtime fills the memory that it freed before it takes more from the system, which gives stairs; the leak is
    found at any phase of them."""
    found = []
    for phase in np.linspace(0, period_s, 20, endpoint=False):
        stairs, within = np.divmod(SECONDS + phase, period_s)
        found.append(growth(1000 + 100 * period_s * (stairs + np.clip((within / period_s - 0.3) / 0.7, 0, 1))))
    assert all(found)


def test_a_leak_is_found_in_noise() -> None:
    dice = np.random.default_rng(1)
    found = [growth(1000 + 10 * SECONDS + dice.normal(0, 3, AT.size)) for _ in range(RUNS)]
    assert sum(bool(each) for each in found) >= 0.95 * RUNS


@pytest.mark.parametrize(
    "levels",
    [
        np.full(AT.size, 1000.0),
        1000 + 500 * (1 - np.exp(-SECONDS / 3)),  # a cache that fills
        1000 + np.minimum(100 * SECONDS, 600),  # a heap that reaches its bound
        1000 + 200 * (SECONDS % 2.0),  # a heap collected every two seconds
        1000 + 500 * (SECONDS > 5),  # a pool that grew once
        1000 - 10 * SECONDS,
        1000 + 0.3 * SECONDS,  # a growth too slow to matter
    ],
    ids=["constant", "cache", "bound", "sawtooth", "step", "falling", "little"],
)
def test_what_does_not_grow_to_the_end_is_none(levels: np.ndarray) -> None:
    assert growth(levels) == 0.0


def test_noise_alone_is_hardly_ever_growth() -> None:
    dice = np.random.default_rng(2)
    walks = [1000 + np.cumsum(dice.normal(0, 1, AT.size)) for _ in range(RUNS)]
    noise = [1000 + dice.normal(0, 20, AT.size) for _ in range(RUNS)]
    assert sum(bool(growth(levels)) for levels in noise) <= 0.01 * RUNS
    # A random walk is the hardest case: both of two trials must show growth.
    pairs = zip(walks[::2], walks[1::2], strict=True)
    assert sum(bool(growth(first)) and bool(growth(second)) for first, second in pairs) <= 0.05 * RUNS / 2


@pytest.mark.parametrize("kind", ["cache", "bound", "warming"])
def test_what_fills_within_the_window_is_seldom_taken_for_a_leak(kind: str) -> None:
    """Filling begins before the window in two trials of one server: in at most 1 of 20 pairs both seem to grow to the
    end."""
    dice = np.random.default_rng(4)

    def trial(fill_s: float) -> bool:
        since_s = SECONDS + dice.uniform(0, 1)
        if kind == "cache":  # keys are requested at random
            filled = 1 - np.exp(-since_s / (fill_s / 2))
        elif kind == "bound":  # a heap that grows steadily to its bound
            filled = np.minimum(since_s / fill_s, 1)
        else:  # classes and compiled code come in ever rarer steps, on the sawtooth of a collector
            steps = np.sort(dice.exponential(fill_s / 3, 40))
            filled = np.searchsorted(steps, since_s) / 40 + 0.2 * (since_s % 0.9)
        return bool(growth(1000 + 500 * filled + dice.normal(0, 5, AT.size)))

    fills_s = dice.uniform(0.5, 7, RUNS)
    assert sum(trial(fill_s) and trial(fill_s) for fill_s in fills_s) <= 0.05 * RUNS


def test_a_part_without_a_reading_tells_nothing() -> None:
    late = AT >= 3 * S
    assert steady_growth(AT[late], SECONDS[late], 0, 10 * S, least=0.0) is None
