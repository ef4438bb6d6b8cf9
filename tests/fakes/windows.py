"""Measured windows of simulated servers, and how often the test for a steady window says that one is still changing.
`make statistics` writes the table into docs/methods/steady-state.md."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from fakes.made import Made
from powerband.analyze.stats.special import Array
from powerband.analyze.trial.steady import settled

INTERVAL_S = 0.1
WINDOWS_S = (3.0, 10.0, 30.0)
COUNT = 500

Server = Callable[[np.random.Generator, Array], tuple[Array, Array]]
"""From the dice and the times of the intervals in s: the requests that ended in each, and their mean time in ns."""


def level(shape: Callable[[Array], Array], noise: float = 0.03, rate: float = 500) -> Server:
    """A server whose throughput follows `shape`, and its response time the inverse; both have independent noise in each
    interval."""

    def server(dice: np.random.Generator, t: Array) -> tuple[Array, Array]:
        wave = shape(t)
        counts = rate * INTERVAL_S * wave * (1 + noise * dice.standard_normal(t.size))
        return np.maximum(counts, 0), 1e6 / np.maximum(wave, 1e-3) * (1 + noise * dice.standard_normal(t.size))

    return server


def poisson(rate: float) -> Server:
    def server(dice: np.random.Generator, t: Array) -> tuple[Array, Array]:
        counts = dice.poisson(rate * INTERVAL_S, t.size).astype(float)
        times = np.where(counts > 0, 1e6 * (1 + 0.3 * dice.standard_normal(t.size) / np.sqrt(counts + 1e-9)), math.nan)
        return counts, times

    return server


def dependent(dice: np.random.Generator, t: Array) -> tuple[Array, Array]:
    """A steady server with a queue: each interval keeps 0.7 of the last one's deviation."""
    noise = 0.03 * dice.standard_normal((2, t.size))
    for at in range(1, t.size):
        noise[:, at] += 0.7 * noise[:, at - 1]
    return 50 * (1 + noise[0]), 1e6 * (1 + noise[1])


def slope(rise: float, window_s: float) -> Server:
    return level(lambda t: 1 + rise * t / window_s)


def step(rise: float, window_s: float) -> Server:
    return level(lambda t: np.where(t < window_s / 3, 1.0, 1 + rise))


def compiler(window_s: float) -> Server:
    """A warm-up that goes on in the window: it begins at half speed, and settles with a quarter of it."""
    return level(lambda t: 1 - 0.5 * np.exp(-4 * t / window_s))


def called_unsteady(server: Server, window_s: float, windows: int = 150) -> float:
    """The share of measured windows that are called still changing."""
    t = np.arange(0, window_s, INTERVAL_S)
    drawn = (server(np.random.default_rng(seed), t) for seed in range(windows))
    return float(np.mean([settled(counts, times, truncate=False) is False for counts, times in drawn]))


SERVERS: dict[str, Callable[[float], Server]] = {
    "1 % noise": lambda _window_s: level(np.ones_like, 0.01),
    "20 % noise": lambda _window_s: level(np.ones_like, 0.2),
    "500 arrivals/s": lambda _window_s: poisson(500),
    "50 arrivals/s": lambda _window_s: poisson(50),
    "memory": lambda _window_s: dependent,
    "drift of 5 %": partial(slope, 0.05),
    "step of 5 %": partial(step, 0.05),
    "drift of 10 %": partial(slope, 0.1),
    "warm-up": compiler,
}
"""By name the server of a window of so many seconds."""
ROWS: dict[str, tuple[Callable[..., float], tuple[str, ...]]] = {
    "steady, 1 % noise": (max, ("1 % noise",)),
    "steady, 20 % noise, or Poisson arrivals": (max, ("20 % noise", "500 arrivals/s", "50 arrivals/s")),
    "steady, each interval takes over 0.7 of the last one's deviation": (max, ("memory",)),
    "drift of 5 % over the window": (min, ("drift of 5 %",)),
    "step of 5 %, drift of 10 %, or a warm-up cut short": (min, ("step of 5 %", "drift of 10 %", "warm-up")),
}
"""By name the servers of a row, and which of their shares is shown: the worst one."""


def window_table(found: Mapping[str, float]) -> str:
    """The table of shares of windows that are called still changing."""
    lines = ["| server | 3 s | 10 s | 30 s |", "|---|---|---|---|"]
    for name, (worst, servers) in ROWS.items():
        shares = (worst(found[_case(server, window_s)] for server in servers) for window_s in WINDOWS_S)
        lines.append(f"| {name} | {' | '.join(f'{share:.0%}' for share in shares)} |")
    return "\n".join(lines) + "\n"


def _case(server: str, window_s: float) -> str:
    return f"{server}, {window_s:.0f} s"


def _simulated(server: str, window_s: float) -> Any:
    return called_unsteady(SERVERS[server](window_s), window_s, COUNT)


WINDOWS = Made(
    "windows",
    "steady-state.md",
    {_case(server, window_s): partial(_simulated, server, window_s) for window_s in WINDOWS_S for server in SERVERS},
    window_table,
    cheap=_case("1 % noise", 3.0),
)
