"""The warm-up test on simulated servers whose settling time is known. Seeds are fixed."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from fakes.trials import Figures, interval_lines
from fakes.windows import INTERVAL_S, Server, called_unsteady, compiler, dependent, level, poisson, slope, step
from powerband.analyze.stats.special import Array
from powerband.analyze.trial.steady import is_steady, mser, settled, window_is_steady
from powerband.model.warmup import WarmupSeries

MS = 1_000_000
LONGEST_S = 30.0
SERVERS = 60


def ends_s(server: Server, first_s: float = 0.5) -> Array:
    """The time at which each simulated server is called steady, checked twice a second from `first_s` on; infinite if
    never."""
    t = np.arange(0, LONGEST_S, INTERVAL_S)
    ends = []
    for seed in range(SERVERS):
        counts, times = server(np.random.default_rng(seed), t)
        asked = np.arange(first_s, LONGEST_S + 0.01, 0.5)
        steady = (at for at in asked if settled(counts[: round(at * 10)], times[: round(at * 10)], truncate=True))
        ends.append(next(steady, math.inf))
    return np.array(ends)


@pytest.mark.parametrize("noise", [0.0, 0.01, 0.05, 0.2])
def test_a_steady_server_is_mostly_let_go_at_once(noise: float) -> None:
    ends = ends_s(level(np.ones_like, noise))
    assert np.mean(ends <= 1.0) >= 0.8
    assert ends.max() <= 5
    if noise <= 0.01:
        assert np.mean(ends == 0.5) >= 0.9


@pytest.mark.parametrize(("rate", "longest_s"), [(5, 25), (30, 8), (500, 4)])
def test_low_rates_take_as_long_as_it_takes_to_see_something(rate: float, longest_s: float) -> None:
    ends = ends_s(poisson(rate))
    assert np.median(ends) >= 8 * 10 / rate * 0.9  # eight batches of ten requests
    assert ends.max() <= longest_s


@pytest.mark.parametrize("tau", [0.3, 1.0, 3.0])
def test_an_exponential_warm_up_is_not_cut_short(tau: float) -> None:
    """Like a JVM, the server begins at half speed and settles with the time constant tau: at 3 tau it is within 2.5
    %."""
    ends = ends_s(level(lambda t: 1 - 0.5 * np.exp(-t / tau)))
    assert np.mean(ends >= 3 * tau) >= 0.95
    assert np.median(ends) <= 10 * tau


def test_a_step_holds_the_warm_up_until_it_lies_well_behind() -> None:
    ends = ends_s(level(lambda t: np.where(t < 0.6, 0.5, 1.0)), first_s=1.0)  # the change precedes the first check
    assert np.mean(ends >= 1.2) >= 0.9  # with ten noisy intervals a rank test may miss a step
    assert np.median(ends) <= 6


def test_a_strong_drift_is_never_called_steady_before_it_flattens() -> None:
    ends = ends_s(level(lambda t: 0.2 + 0.08 * np.minimum(t, 10)))
    assert np.mean(ends >= 8) >= 0.95


def test_periodic_dips_of_a_collector_are_part_of_a_steady_server() -> None:
    def dips(t: Array) -> Array:
        return np.where(np.round(t / INTERVAL_S) % 13 == 5, 0.4, 1.0)

    assert np.mean(ends_s(level(dips)) <= 3) >= 0.9


def test_users_who_are_always_busy_are_judged_early_by_their_times() -> None:
    """Counts that swing by 8 % hide nothing: by Little's law the times would show it. What opens connections or fills a
    queue is over once the last three agree. Without an answer in each interval the counts are judged all the same."""
    counts, times = (100.0, 160.0, 160.0, 148.0, 140.0), (21e6, 20.6e6, 20.7e6, 20.7e6, 20.6e6)
    assert not is_steady(WarmupSeries(INTERVAL_S, counts, times))
    assert is_steady(WarmupSeries(INTERVAL_S, counts, times, busy_users=True))
    opening, filling = (74e6, 52.5e6, 51.1e6, 50.6e6, 50.8e6), (53e6, 109e6, 101.3e6, 101.3e6, 101.5e6)
    for settled_late in (opening, filling):
        assert is_steady(WarmupSeries(INTERVAL_S, counts, settled_late, busy_users=True))
    filled = (51e6, 105.8e6, 182.2e6, 203.5e6, 203.1e6, 203.2e6, 203.6e6, 203.8e6, 203.7e6, 203e6)
    for last, steady in ((203e6, True), (206e6, False)):
        longer = WarmupSeries(INTERVAL_S, (160.0, *[320.0] * 9), (*filled[:-1], last), busy_users=True)
        assert is_steady(longer) is steady
    rising = tuple(20e6 * (1 - 0.05 * at) for at in range(5))
    assert not is_steady(WarmupSeries(INTERVAL_S, counts, rising, busy_users=True))
    assert not is_steady(WarmupSeries(INTERVAL_S, (*counts[:4], 0.0), (*times[:4], math.nan), busy_users=True))


def test_between_two_looks_only_times_that_are_plainly_level_end_a_warm_up() -> None:
    """16 threads of 50 ms each for 64 users: the queue is full after 0.2 s, and no test finds a change from then on."""
    rates, filled = (160.0, *[320.0] * 5), (51e6, 104e6, 180e6, 202.5e6, 202.2e6, 202.4e6)
    full = WarmupSeries(INTERVAL_S, rates, filled, busy_users=True)
    assert is_steady(replace(full, between=True)) and not is_steady(replace(full, between=True, busy_users=False))
    sooner = replace(full, rate_per_s=rates[:5], response_time_ns_mean=filled[:5])
    assert not is_steady(sooner) and not is_steady(replace(sooner, between=True))
    swings = tuple(20e6 * (1 + 0.01 * (-1) ** at) for at in range(5))  # no trend, but not level
    swinging = WarmupSeries(INTERVAL_S, (1600.0,) * 5, swings, busy_users=True)
    assert is_steady(swinging) and not is_steady(replace(swinging, between=True))
    silent = replace(full, response_time_ns_mean=(math.nan, *filled[1:]))
    assert not is_steady(replace(silent, between=True))
    near = replace(full, response_time_ns_mean=(*filled[:5], 203.9e6))
    assert is_steady(near) and not is_steady(replace(near, between=True))


def test_nothing_ended_is_not_steady() -> None:
    none = WarmupSeries(INTERVAL_S, (0.0,) * 50, (math.nan,) * 50)
    assert not is_steady(none)
    assert not is_steady(WarmupSeries(INTERVAL_S, (), ()))
    even = WarmupSeries(INTERVAL_S, (500.0,) * 50, (1e6,) * 50)
    assert is_steady(even)


def test_the_first_answers_of_users_who_began_together_are_not_all() -> None:
    """64 users wait 3.5 s for their first answer, and 3.5 s more for the next."""
    first = WarmupSeries(INTERVAL_S, (*[0.0] * 35, 640.0), (*[math.nan] * 35, 3.5e9), busy_users=True)
    assert not is_steady(first)


def test_mser_finds_where_a_start_ends() -> None:
    dice = np.random.default_rng(1)
    series = np.concatenate([np.linspace(0, 0.9, 20), np.ones(80)]) + 0.01 * dice.standard_normal(100)
    assert 18 <= mser(series) <= 50


@pytest.mark.parametrize("size", range(12, 60))
def test_mser_leaves_out_nothing_of_equal_values(size: int) -> None:
    """Sums of 0.7 and of its square are rounded: what is left of their difference is no variance."""
    assert mser(np.full(size, 0.7)) == 0
    assert mser(np.concatenate([[0.1, 0.2], np.full(size, 0.7)])) == 2


@pytest.mark.parametrize("window_s", [3.0, 10.0])
def test_the_window_of_a_steady_server_is_rarely_called_unsteady(window_s: float) -> None:
    """Two tests of two series, each at 5 %, and the condition that a shift must matter give 10 %; noise with memory
    gives more."""
    for server in (level(np.ones_like, 0.03), level(np.ones_like, 0.2), poisson(500), poisson(50)):
        assert called_unsteady(server, window_s) <= 0.14
    assert called_unsteady(dependent, window_s) <= 0.28


@pytest.mark.parametrize("window_s", [3.0, 10.0])
def test_a_change_of_a_tenth_within_the_window_is_found(window_s: float) -> None:
    """A change of a twentieth is found nearly always too. The shapes are a slope, a step, and the warm-up of a
    compiler."""
    for server in (slope(0.1, window_s), step(0.1, window_s), compiler(window_s)):
        assert called_unsteady(server, window_s) >= 0.97
    assert called_unsteady(slope(0.05, window_s), window_s) >= 0.8


def test_the_window_is_judged_after_the_fact() -> None:
    even = interval_lines(Figures())
    start, end = even[0]["start_ns"], even[-1]["end_ns"]
    assert window_is_steady(even, start, end) is True
    rising = [
        {**line, "outcomes": {"ok": 100 + number}, "response_time_ns_sum": 10**8} for number, line in enumerate(even)
    ]
    assert window_is_steady(rising, start, end) is False
    assert window_is_steady(even[:5], start, end) is None


def readings(ends_ms: list[int], start_ms: int = 0) -> list[dict[str, object]]:
    """Intervals between readings of a counter that grows by one a millisecond."""
    return [
        {"type": "interval", "start_ns": begun * MS, "end_ns": ended * MS, "outcomes": {"ok": ended - begun},
         "response_time_ns_sum": 0}
        for begun, ended in itertools.pairwise([start_ms, *ends_ms])
    ]  # fmt: skip


def test_the_outermost_of_a_window_count_where_they_are_whole() -> None:
    """Eight intervals are enough for a verdict, and six are not."""
    eight = [*range(500, 4001, 500)]
    assert window_is_steady(readings(eight), 0, 4000 * MS) is True
    assert window_is_steady(readings([200, *eight[1:]]), 0, 4000 * MS) is None, "the first is shorter"
    assert window_is_steady(readings([*eight[:-1], 3600]), 0, 4000 * MS) is None, "the last is shorter"
    other = readings([ended + 200 for ended in eight[:-1]], 200)
    assert window_is_steady([*readings(eight), *other], 0, 4000 * MS) is None, "one engine alone tells of the last"
