from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from powerband.cli.tools import _pilot_text
from powerband.search.noise import cpu_times, spin_times_ns, timer_lateness_ns, wake_ups_ns
from powerband.search.pilot import blocks_to_find, pilot_of, smallest_difference


def test_the_pilot_recovers_the_noise_and_ignores_drift() -> None:
    dice = np.random.default_rng(1)
    logs = 0.02 * dice.standard_normal(2000) + np.linspace(0, 1, 2000)
    pilot = pilot_of(list(np.exp(logs)))
    assert pilot.sd == pytest.approx(0.02, rel=0.1)
    assert pilot.smallest_difference == pytest.approx(smallest_difference(0.02), rel=0.1)
    assert smallest_difference(0.02) > smallest_difference(0.02, blocks=20)
    assert pilot_of([1.0, 2.0]).smallest_difference is None
    assert pilot.race_blocks == blocks_to_find(0.03, pilot.sd or 0.0, 6, race=True)
    assert pilot_of([1.0, 3.0, 1.0, 3.0]).race_blocks is None, "no race of reasonable length"


def test_what_doctor_says_of_a_pilot() -> None:
    found = pilot_of([100.0, 101.0, 99.0, 100.0, 101.0, 100.0])
    assert _pilot_text(found).endswith(
        f"A race of 6 settings finds a difference of 3 % nearly always within {found.race_blocks} rounds."
    )
    assert "No race of reasonable length finds 3 %" in _pilot_text(pilot_of([1.0, 3.0, 1.0, 3.0]))


def test_the_smallest_difference_is_what_real_sweeps_show() -> None:
    """The smallest difference agrees with the half-widths of the comparison itself, for the same noise."""
    from powerband.analyze.stats.intervals import compare_with_leader

    y = 0.02 * np.random.default_rng(2).standard_normal((400, 5, 6))
    half = compare_with_leader(y, 0.95).half
    assert float(np.expm1(np.median(half[half > 0]))) == pytest.approx(smallest_difference(0.02), rel=0.15)


@pytest.mark.parametrize("settings", [2, 4, 16])
@pytest.mark.parametrize("blocks", [5, 8, 12])
def test_the_smallest_difference_of_a_race_is_what_its_looks_show(settings: int, blocks: int) -> None:
    from powerband.analyze.stats.intervals import compare_with_leader
    from powerband.analyze.stats.spending import Glance

    y = 0.02 * np.random.default_rng(2).standard_normal((300, blocks, settings))
    half = compare_with_leader(y, 0.95, glance=Glance.of(blocks, 12, settings)).half
    said = smallest_difference(0.02, settings, blocks, most=12)
    assert 0.8 < said / float(np.expm1(np.median(half[half > 0]))) < 1.25


def test_probing_gives_plausible_figures(tmp_path: Path) -> None:
    assert min(wake_ups_ns()) > 0
    assert min(timer_lateness_ns()) >= 0
    assert min(spin_times_ns()) > 0
    stat = tmp_path / "stat"
    stat.write_text("cpu  10 1 5 100 4 2 3 7 0 0\ncpu0 1 1 1 1\n")
    assert cpu_times(stat) == {"busy": 21.0, "idle": 104.0, "steal": 7.0}
    assert cpu_times(stat, {0, 3}) == {"busy": 3.0, "idle": 1.0, "steal": 0.0}, "those that are allowed"
    assert cpu_times(stat, {3}) == cpu_times(stat), "not listed: all"
