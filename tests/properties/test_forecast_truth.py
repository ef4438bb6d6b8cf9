"""The forecast duration of a run, before it begins and after each block, is compared with the time it took, in
simulated races through the real planner and the real analysis.

Noise and landscapes are those of `test_screening_truth.py`; a trial takes as long as the forecast has it, but for a
factor of 0.8 to 1.25 of the race's own. `make test-tables` prints the figures; docs/methods/forecast.md says what
is asked. Seeds are fixed."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from fakes.landscapes import BLOCKS, LANDS, NOISES, SDS, Land, Noise
from fakes.races import race_of, result_of, threads
from powerband.base import machine
from powerband.model.plan import Stage
from powerband.search.forecast import forecast
from powerband.search.outlook import SHORT_NOISE
from powerband.search.planners import planner_for

CONFIRM = 3
SHORT_S, FULL_S = 0.5, 10.0
AROUND_S = 2.0  # a second and a half to start and to warm up, half a second to stop
ROWS = 3  # so many rounds of 2 s take the time of one of 10 s
BETWEEN = 1 / 3  # of the noise of a short trial
LAST = "3"  # blocks of full trials
AFTER = ("one short", "short", "1", "2", LAST)
SCREENED: dict[str, Any] = {"screen": "500ms", "confirm_early": True}
PLAIN: dict[str, Any] = {"confirm_early": True}


@dataclass(frozen=True)
class Run:
    """One race; times in s. `told`, `assumed`: the first forecast with known and with assumed noise, and the bounds
    within which nine of ten such races end. `after`: the forecasts of the whole duration after one short trial of each
    setting, after two or three, and after one, two and three blocks of full ones."""

    took: float
    told: tuple[float, float, float]
    assumed: tuple[float, float, float]
    after: dict[str, float]


def runs(
    land: Land, noise: Noise, races: int, design: dict[str, Any], *, again: int = 0, told: bool = True
) -> Iterator[Run]:
    """Races of settings that differ from race to race. `again`: the same races with other chance; not `told`: without
    forecasts."""
    for number in range(races):
        seed = [LANDS.index(land), NOISES.index(noise), number, 21]
        dice = np.random.default_rng(seed)
        truth = land(dice)
        dice = np.random.default_rng([*seed, again]) if again else dice
        k, short_sd = len(truth), SHORT_NOISE * SDS[number % len(SDS)]
        rows = ROWS if "screen" in design else 1
        shape = 3 + rows * BLOCKS + CONFIRM, k, rows
        between = BETWEEN * short_sd * noise(dice, *shape)
        within = math.sqrt(1 - BETWEEN**2) * short_sd * noise(dice, *shape)
        off, slower = dice.uniform(-0.05, 0.05, k), math.exp(dice.uniform(-0.22, 0.22))
        made = race_of(k, repeats=BLOCKS, confirm=CONFIRM, seed=number, **design)
        planner = planner_for(made, number)
        known = machine.Noise(SDS[number % len(SDS)], "2026-11-25")
        assumed = machine.Noise(machine.ASSUMED_SD)
        took, after, blocks, shorts = 0.0, {}, 0, 0
        while (spec := planner.ask()) is not None:
            window_s = FULL_S if spec.window_ns is None else spec.window_ns / 1e9
            cell = spec.block, threads(spec)
            given = truth[cell[1]] + between[cell] + within[cell] * math.sqrt(SHORT_S / window_s)
            given += off[cell[1]] * (spec.stage is Stage.SCREEN)
            metrics = {"goodput_per_s": 1000 * float(np.exp(given)), "threads_max": cell[1] + 1.0}
            took_s = slower * (AROUND_S + window_s)
            planner.tell(result_of(spec, metrics, took_s))
            took += took_s
            if told and planner.block_ended and spec.stage is not Stage.CONFIRM:
                blocks += spec.stage is Stage.COMPARE
                shorts += spec.stage is Stage.SCREEN
                at = str(blocks) if blocks else "short" if shorts > 1 else "one short"
                if at in AFTER:
                    left_s = planner.left_s(known)
                    assert left_s is not None
                    after[at] = took + left_s
        none = (0.0, 0.0, 0.0)
        yield Run(took, _before(made, known) if told else none, _before(made, assumed) if told else none, after)


def _before(made: Any, noise: machine.Noise) -> tuple[float, float, float]:
    said = forecast(made, noise)
    assert said.between_ns is not None
    return said.expected_ns / 1e9, said.between_ns[0] / 1e9, said.between_ns[1] / 1e9


def holds(took: float, said: float) -> bool:
    return 0.75 * said <= took <= 1.25 * said


def line(name: str, found: list[Run]) -> str:
    def share(values: list[bool]) -> str:
        return f"{sum(values) / max(1, len(values)):4.0%}"

    cells = [
        share([holds(run.took, run.told[0]) for run in found]),
        share([run.told[1] <= run.took <= run.told[2] for run in found]),
        share([holds(run.took, run.assumed[0]) for run in found]),
        share([run.assumed[1] <= run.took <= run.assumed[2] for run in found]),
        *(share([holds(run.took, run.after[at]) for run in found if at in run.after]) for at in AFTER),
    ]
    return f"{name:16} {len(found):4} " + " ".join(cells)


def simulate(races: int, design: dict[str, Any], noises: list[Noise]) -> list[Run]:
    every: list[Run] = []
    for land in LANDS:
        found = [run for noise in noises for run in runs(land, noise, races, design)]
        sys.stdout.write(f"\n{line(land.__name__, found)}")
        every += found
    sys.stdout.write(f"\n{line('all', every)}\n")
    return every


RACES, RACES_OF_TABLE = 9, 20  # of each landscape under each noise: 180 and 400 in all


@pytest.mark.parametrize("design", [SCREENED, PLAIN], ids=["short trials first", "full trials"])
def test_most_runs_take_what_was_said_after_three_blocks(design: dict[str, Any]) -> None:
    every = [run for run in simulate(2, design, NOISES[:1]) if LAST in run.after]
    assert sum(holds(run.took, run.after[LAST]) for run in every) >= 0.6 * len(every)


@pytest.mark.parametrize(
    "races", [pytest.param(RACES, marks=pytest.mark.long), pytest.param(RACES_OF_TABLE, marks=pytest.mark.table)]
)
@pytest.mark.parametrize(
    ("design", "first", "two"), [(SCREENED, 0.45, 0.6), (PLAIN, 0.45, 0.82)], ids=["short trials first", "full trials"]
)
def test_the_shares_that_are_published(design: dict[str, Any], first: float, two: float, races: int) -> None:
    """`first`, `two`: the least shares of runs whose time is within a quarter of the forecast before the run, and of
    that after two blocks."""
    every = simulate(races, design, NOISES)
    later = [run for run in every if "2" in run.after]
    assert sum(holds(run.took, run.told[0]) for run in every) >= first * len(every)
    assert sum(holds(run.took, run.after["2"]) for run in later) >= two * len(later)
    for said in ("told", "assumed"):
        between = [getattr(run, said)[1] <= run.took <= getattr(run, said)[2] for run in every]
        assert sum(between) >= 0.9 * len(every), said


AGAIN = 20


@pytest.mark.table
@pytest.mark.parametrize("design", [SCREENED, PLAIN], ids=["short trials first", "full trials"])
def test_how_often_a_forecast_could_hold_that_knew_all_settings(design: dict[str, Any]) -> None:
    """A race is simulated `AGAIN` times, each with other noise. The best forecast of it is the one near most of these
    times; here is how often that one holds."""
    most: list[float] = []
    for land in LANDS:
        of_land = []
        for noise in NOISES:
            races = zip(*(runs(land, noise, 3, design, again=n + 1, told=False) for n in range(AGAIN)), strict=True)
            for race in races:
                took = [run.took for run in race]
                of_land.append(max(sum(holds(each, time / 0.75) for each in took) for time in took) / AGAIN)
        sys.stdout.write(f"\n{land.__name__:16} {np.mean(of_land):4.0%}")
        most += of_land
    sys.stdout.write(f"\n{'all':16} {np.mean(most):4.0%}\n")
    assert np.mean(most) < 0.9
