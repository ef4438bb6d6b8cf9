"""The findings of `doctor --pilot` are kept, and later forecasts rest on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from powerband.cli import invoke
from powerband.search import noise, pilot
from powerband.search.pilot import Pilot, pilot_of


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("powerband.doctor.examine", lambda: [])


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens the doctor's checks of the machine, which take seconds and have a test of their own."""
    for name, few in (("IDLE_S", 0.01), ("PING_PONGS", 10), ("SLEEPS", 10), ("SPINS", 10)):
        monkeypatch.setattr(noise, name, few)


def planned(capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert invoke(["plan", "quickstart"]) == 0
    return capsys.readouterr().out


def piloted(monkeypatch: pytest.MonkeyPatch, found: Pilot) -> int:
    def run(*_: Any, **__: Any) -> Pilot:
        return found

    monkeypatch.setattr(pilot, "run_pilot", run)
    return invoke(["doctor", "--pilot", "--format", "json"])


def test_what_the_pilot_finds_is_what_forecasts_rest_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "If equal trials differ by 2.0 % (assumed; " in planned(capsys)
    found = pilot_of([1000.0, 1010.0, 1000.0, 1010.0])
    assert found.sd == pytest.approx(0.00704, rel=0.01)
    piloted(monkeypatch, found)
    assert "If equal trials differ by 0.7 % (measured here on 20" in planned(capsys)


def test_a_cache_that_cannot_be_written_is_told_of(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    piloted(monkeypatch, pilot_of([1000.0, 1010.0, 1000.0, 1010.0]))
    assert "this is not remembered, since the cache folder cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize("found", [Pilot(2, 4, None, None), Pilot(1, 0, None, None, interrupted=True)])
def test_a_pilot_that_found_nothing_changes_nothing(
    found: Pilot, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    piloted(monkeypatch, found)
    assert "(assumed; " in planned(capsys)
