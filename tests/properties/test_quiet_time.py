"""The quiet time of trials beside a program that burns CPU in bursts. The server's rate without that program is known
here, and so are the errors of the kernel's ticks and of the two clocks. docs/methods/disturbance.md says what is
asked for; `pytest -s` prints the figures."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence

import numpy as np
import pytest

from fakes.trials import SECOND, Figures, summary
from powerband.readings.fleet import merge_fleet
from powerband.readings.probe_samples import Array, Counters, ProbeSamples
from powerband.readings.quiet_time import QuietTime, quiet_time_of

MS = 1_000_000
TICK_NS = 10 * MS
ALONE_PER_S = 2000.0
WINDOW_S = 4.0
TRIALS = 200
STARVED = 0.5
"""A burner takes this share of its CPU while it runs. A server that computes loses as much."""


def trial(number: int, burnt: float, *, computes: bool) -> QuietTime | None:
    """The quiet time of a trial on two CPUs, on each of which a burner runs for a share `burnt` of the time. A burst
    and its pause take a second together, on average."""
    dice = np.random.default_rng([number, round(100 * burnt)])
    ms = np.arange(round(1000 * (WINDOW_S + 2)))
    others = STARVED * (bursts(dice, burnt, ms.size) + bursts(dice, burnt, ms.size))  # cores
    rate = ALONE_PER_S * (1 - others / 2 if computes else np.ones(ms.size))
    answers = np.concatenate(([0], np.cumsum(dice.poisson(rate / 1000))))
    used = 1.8 - others if computes else np.full(ms.size, 0.2)
    at_ms = np.sort(np.arange(0, ms.size, 100) + dice.integers(0, 6, ms.size // 100))
    sampled = at_ms.astype(float) * MS
    busy, own = ticks(dice, others + used, at_ms), ticks(dice, used, at_ms)
    edges = np.arange(int(dice.integers(0, 100)), ms.size, 100)
    return quiet_of(sampled, busy, own, [(edge, int(answers[edge])) for edge in edges.tolist()], WINDOW_S)


def crowded(number: int, cpus: int, others: Array) -> QuietTime | None:
    """The quiet time of 10 s on so many CPUs, half of which a server that loses nothing uses. `others`: the CPUs that
    other programs use in each tenth of a second, from a second before the window to a second after it. 250 times a
    second the kernel sees of each CPU whether it is busy."""
    dice = np.random.default_rng([number, cpus])
    sampled = np.arange(others.size + 1) * 100.0 * MS
    busy = np.concatenate(([0], np.cumsum(dice.binomial(25 * cpus, 0.5 + others / cpus)))) * 4.0 * MS
    answers = [(100 * turn, round(ALONE_PER_S / 10) * turn) for turn in range(sampled.size)]
    return quiet_of(sampled, busy, cpus / 2 * sampled, answers, others.size / 10 - 2)


def quiet_of(
    sampled: Array, busy: Array, own: Array, answers: Sequence[tuple[int, int]], window_s: float
) -> QuietTime | None:
    """The quiet time of a window that begins after a second. `sampled`: times in ns, `busy`, `own`: what all programs
    and the server used until then; `answers`: times in ms, and the number of answers until then."""
    probe = ProbeSamples(
        trees={"subject": Counters(sampled, {"cpu_user_ns": own, "cpu_system_ns": 0 * own})},
        host=Counters(sampled, {"cpu_busy_ns": busy, "cpu_steal_ns": 0 * busy}),
        threads=(),
        own_cores=0.0,
    )
    intervals = [
        {"start_ns": a * MS, "end_ns": b * MS, "outcomes": {"ok": until_b - until_a}}
        for (a, until_a), (b, until_b) in itertools.pairwise(answers)
    ]
    window = {"measure_start_ns": 1 * SECOND, "measure_end_ns": round((1 + window_s) * SECOND)}
    fleet = merge_fleet([summary(Figures(window_s=window_s, summary=window))])  # type: ignore[list-item]
    assert fleet is not None
    return quiet_time_of(probe, intervals, fleet, settle_ns=20 * MS)  # type: ignore[arg-type]


def bursts(dice: np.random.Generator, share: float, size: int) -> Array:
    """For each ms 1 if the burner runs, else 0."""
    spans = dice.exponential((1000 * share / 2, 1000 * (1 - share) / 2), (size, 2)).ravel().round().astype(int)
    on = np.tile([1.0, 0.0], size)
    return np.roll(np.repeat(on, spans)[: 2 * size], int(dice.integers(0, size)))[:size]


def ticks(dice: np.random.Generator, cores: Array, at_ms: Array) -> Array:
    """CPU time at these times in whole ticks, as the kernel shows it."""
    used = np.concatenate(([0.0], np.cumsum(cores))) * MS + dice.integers(0, TICK_NS)
    return np.floor(used[at_ms] / TICK_NS) * TICK_NS


@pytest.mark.parametrize("burnt", [0.1, 0.25, 0.5])
def test_a_server_that_loses_what_others_take_shows_in_quiet_time_what_it_gives_alone(burnt: float) -> None:
    found = [quiet for number in range(TRIALS) if (quiet := trial(number, burnt, computes=True)) is not None]
    assert len(found) > TRIALS / 3
    rates = np.array([quiet.goodput_per_s for quiet in found]) / ALONE_PER_S
    sys.stdout.write(f"\n{burnt:.0%}: {len(found) / TRIALS:.0%} of windows, their rates deviate by {rates.std():.1%}\n")
    assert np.median(rates) == pytest.approx(1, abs=0.025), "bursts of 25 ms at most are in it"
    low = rates * (1 - 3 * np.array([quiet.error for quiet in found]))
    high = rates * (1 + 3 * np.array([quiet.error for quiet in found])) / (1 - np.array([q.held_up for q in found]))
    assert np.mean((low <= 1) & (high >= 1)) > 0.95


def test_a_server_that_waits_shows_the_same_in_quiet_time() -> None:
    found = [quiet for number in range(TRIALS) if (quiet := trial(number, 0.25, computes=False)) is not None]
    rates = np.array([quiet.goodput_per_s for quiet in found]) / ALONE_PER_S
    assert rates.mean() == pytest.approx(1, abs=0.005)


@pytest.mark.parametrize(("cpus", "cores"), [(2, 0.3), (4, 0.2), (8, 0.3), (16, 0.3), (64, 0.4)])
def test_ticks_of_many_cpus_make_no_quiet_time_beside_a_program_that_never_rests(cpus: int, cores: float) -> None:
    found = [quiet for number in range(TRIALS) if (quiet := crowded(number, cpus, np.full(120, cores))) is not None]
    assert sum(quiet.foreign < 2 / 3 * cores for quiet in found) < TRIALS / 10


@pytest.mark.parametrize("cpus", [2, 8, 16])
@pytest.mark.parametrize(("runs", "every"), [(3, 10), (20, 100)])
def test_beside_bursts_of_one_cpu_quiet_time_is_found_on_many(cpus: int, runs: int, every: int) -> None:
    """`runs` of `every` tenths of a second."""
    others = np.where(np.arange(120) % every < runs, 1.0, 0.0)
    found = [quiet for number in range(TRIALS) if (quiet := crowded(number, cpus, others)) is not None]
    assert len(found) > TRIALS * 3 / 4
    assert np.mean([quiet.foreign for quiet in found]) < 0.1
