"""A sample of `make faults`: kills at random moments of races that are resumed."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes.kills import Races

KILLS = 6

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.long, pytest.mark.usefixtures("engine")]


def test_nothing_is_lost_but_the_trial_in_flight(tmp_path: Path) -> None:
    told = Races(tmp_path, seed=11).run(KILLS)
    assert told.wrong == []
    assert told.kills.total() >= KILLS
