"""Goodput by Little's law against the count, in simulated closed loads whose long-run rate is known: threads that serve
users who never pause, first come first served, in windows of half a second after a warm-up of half a second from empty,
as short trials have them. Seeds are fixed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from heapq import heappop, heappush

import numpy as np
import pytest

from fakes.trials import Figures, record_of, spec
from powerband.analyze.stats.special import Array
from powerband.loads.measured import edgeless_goodput
from powerband.model.load import Load
from powerband.readings.fleet import SECOND_NS, MergedFleet, merge_fleet

WARMUP_S, WINDOW_S, LONG_S = 0.5, 0.5, 20.0  # the first two unless a test says otherwise
TRIALS = 60
TIMES = {
    "fixed, 1 % apart": lambda dice: 1 + 0.01 * dice.standard_normal(),
    "exponential": lambda dice: dice.exponential(),
    "heavy-tailed": lambda dice: dice.lognormal(-(1.27**2) / 2, 1.27),
}


@dataclass(frozen=True)
class Closed:
    """So many threads serve so many users; a request takes `mean_s` on average, with times of a kind of `TIMES`."""

    users: int
    threads: int
    mean_s: float
    times: str = "fixed, 1 % apart"

    def requests(self, dice: np.random.Generator, end_s: float) -> Array:
        """The requests of one start that end until `end_s`, in the order of their ends: (requests, 2), when each began
        and ended, in s."""
        waiting = [(0.0, user) for user in range(self.users)]
        free, found = [0.0] * self.threads, []
        while waiting[0][0] < end_s:
            begun, user = heappop(waiting)
            ended = max(begun, heappop(free)) + self.mean_s * max(0.0, TIMES[self.times](dice))
            heappush(free, ended)
            heappush(waiting, (ended, user))
            found.append((begun, ended))
        ordered = np.array(sorted(found, key=lambda each: each[1]))
        return ordered[ordered[:, 1] <= end_s]


def fleet_of(requests: Array, users: int, warmup_s: float = WARMUP_S, window_s: float = WINDOW_S) -> MergedFleet:
    """The fleet as its engines would report the window of these requests."""
    inside = requests[(requests[:, 1] > warmup_s) & (requests[:, 1] <= warmup_s + window_s)]
    rate, busy = len(inside) / window_s, float((inside[:, 1] - inside[:, 0]).sum()) / window_s
    plain = merge_fleet(record_of(spec(), Figures()).engines)
    assert plain is not None
    return replace(
        plain,
        start_ns=0,
        end_ns=round(window_s * SECOND_NS),
        goodput_per_s=rate,
        window_outcomes={"ok": len(inside)},
        users_mean=float(users),
        busy_users_mean=busy,
        summaries=tuple(
            {**each, "go_ns": each["measure_start_ns"] - round(warmup_s * SECOND_NS)} for each in plain.summaries
        ),
    )


@pytest.mark.parametrize(
    ("load", "gain"),
    [
        (Closed(64, 64, 0.05), 0.3),
        (Closed(64, 32, 0.05), 0.3),
        (Closed(64, 8, 0.02), 0.3),
        (Closed(64, 64, 0.02, "exponential"), 1.05),
        (Closed(64, 8, 0.005, "exponential"), 1.05),
        (Closed(32, 1, 0.001, "exponential"), 1.05),
        (Closed(32, 32, 0.02, "heavy-tailed"), 1.05),
    ],
    ids=str,
)
def test_it_is_nearer_to_the_truth_than_the_count(load: Closed, gain: float) -> None:
    """`gain`: its root mean square error is at most this share of the count's."""
    dice = np.random.default_rng(7)
    truth = len(load.requests(dice, LONG_S)) / LONG_S
    counted, edgeless = [], []
    for _ in range(TRIALS):
        fleet = fleet_of(load.requests(dice, WARMUP_S + WINDOW_S), load.users)
        rate = edgeless_goodput(fleet, Load(users=load.users))
        counted.append(fleet.goodput_per_s / truth - 1)
        edgeless.append(counted[-1] if rate is None else rate / truth - 1)
    assert np.sqrt(np.mean(np.square(edgeless))) <= gain * np.sqrt(np.mean(np.square(counted)))
    assert abs(np.mean(edgeless)) < 0.03


def test_the_count_stands_where_users_are_stuck() -> None:
    """20 of 64 users wait through the whole window: N / R would be 64/44 of the rate."""
    requests = Closed(44, 44, 0.02).requests(np.random.default_rng(7), WARMUP_S + WINDOW_S)
    assert edgeless_goodput(fleet_of(requests, 44), Load(users=44)) is not None
    assert edgeless_goodput(fleet_of(requests, 64), Load(users=64)) is None


def test_the_count_stands_where_the_window_holds_answers_from_before_the_queue_filled() -> None:
    """16 threads that take 0.5 s serve 32/s, so that 64 users wait 2 s once the queue is full, but the first of them
    0.5 s."""
    requests = Closed(64, 16, 0.5).requests(np.random.default_rng(7), 8.0)
    assert edgeless_goodput(fleet_of(requests, 64, 0.5, 3.0), Load(users=64)) is None
    filled = edgeless_goodput(fleet_of(requests, 64, 2.5, 3.0), Load(users=64))
    assert filled is not None and abs(filled / 32 - 1) < 0.02


def test_the_count_stands_where_users_join_one_after_the_other() -> None:
    fleet = fleet_of(Closed(44, 44, 0.02).requests(np.random.default_rng(7), WARMUP_S + WINDOW_S), 44)
    assert edgeless_goodput(fleet, Load(users=44, ramp_ns=100_000_000)) is None
