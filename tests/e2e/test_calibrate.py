"""The whole chain against queueing theory: the real engine, real reference servers, `powerband calibrate` in short."""

from __future__ import annotations

from pathlib import Path

import pytest

from powerband.search import pilot
from powerband.search.calibrate import calibrate


@pytest.mark.e2e
@pytest.mark.usefixtures("engine", "no_process_left")
def test_reference_servers_show_what_theory_says(tmp_path: Path) -> None:
    """Each within 5 % and its sampling error."""
    found = calibrate(quick=True, directory=tmp_path)
    assert found.problem is None
    assert found.served is not None and found.served.service_s == pytest.approx(0.010, rel=0.05)
    assert [check.quantity for check in found.checks] == ["throughput", "mean response time", "mean response time"]
    assert found.passed, "\n".join(str(check) for check in found.checks)


@pytest.mark.e2e
@pytest.mark.usefixtures("engine", "no_process_left")
def test_the_pilot_tells_how_small_a_difference_can_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pilot, "PILOT_TRIALS", 3)
    monkeypatch.setattr(pilot, "PILOT_SECONDS", 1)
    found = pilot.run_pilot(tmp_path)
    assert found.trials == 3 and found.smallest_difference is not None and found.smallest_difference > 0
