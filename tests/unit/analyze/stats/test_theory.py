"""Each formula is checked against a case with a known answer, and against a simulation of the queue itself."""

from __future__ import annotations

import heapq
import math

import numpy as np
import pytest

from powerband.analyze.stats.theory import (
    closed_throughput_bound,
    erlang_c,
    machine_repairman_throughput,
    mdc_response_s,
    mg1_response_s,
    mmc_response_s,
)


def simulated_response(rate: float, services: np.ndarray, servers: int, seed: int) -> float:
    """The mean response time of a simulated queue, first come, first served: the server that is free first takes the
    next arrival (Kiefer & Wolfowitz 1955)."""
    arrivals = np.cumsum(np.random.default_rng(seed).exponential(1 / rate, services.size))
    free = [0.0] * servers
    total = 0.0
    for at, service in zip(arrivals.tolist(), services.tolist(), strict=True):
        done = max(at, heapq.heappop(free)) + service
        heapq.heappush(free, done)
        total += done - at
    return total / services.size


@pytest.mark.parametrize(("servers", "utilisation"), [(1, 0.5), (1, 0.7), (4, 0.7), (8, 0.8)])
def test_open_queues_agree_with_simulation(servers: int, utilisation: float) -> None:
    rate = utilisation * servers
    n = 150_000
    constant = simulated_response(rate, np.ones(n), servers, 1)
    exponential = simulated_response(rate, np.random.default_rng(2).exponential(1, n), servers, 3)
    assert constant == pytest.approx(mdc_response_s(rate, 1.0, servers), rel=0.02)
    assert exponential == pytest.approx(mmc_response_s(rate, 1.0, servers), rel=0.03)


def test_known_values() -> None:
    assert mmc_response_s(0.5, 1.0) == pytest.approx(2.0)
    assert mg1_response_s(0.5, 1.0, 1.0) == pytest.approx(1.5)
    assert mg1_response_s(0.5, 1.0, 2.0) == pytest.approx(2.0)
    assert erlang_c(1, 0.3) == pytest.approx(0.3)
    assert erlang_c(2, 1.0) == pytest.approx(1 / 3)
    assert mmc_response_s(2.0, 1.0, 2) == mdc_response_s(2.0, 1.0, 2) == mg1_response_s(1.0, 1.0, 1.0) == math.inf


def test_closed_systems_stay_under_their_bound_and_reach_it_at_both_ends() -> None:
    assert closed_throughput_bound(32, 0.02, 0.0, 4) == pytest.approx(200)
    assert closed_throughput_bound(2, 0.02, 0.08, 4) == pytest.approx(20)
    for users in (1, 2, 5, 10, 50, 1000):
        exact = machine_repairman_throughput(users, 0.01, 0.1, 4)
        assert exact <= closed_throughput_bound(users, 0.01, 0.1, 4) * (1 + 1e-12)
    assert machine_repairman_throughput(1, 0.01, 0.1, 4) == pytest.approx(1 / 0.11)
    assert machine_repairman_throughput(1000, 0.01, 0.1, 4) == pytest.approx(400)
    # One server, two users: p0 : p1 : p2 = 1 : 2a : 2a^2 with a = S / Z.
    a = 0.1
    assert machine_repairman_throughput(2, 0.01, 0.1, 1) == pytest.approx(
        (2 * a + 2 * a**2) / (1 + 2 * a + 2 * a**2) / 0.01
    )
