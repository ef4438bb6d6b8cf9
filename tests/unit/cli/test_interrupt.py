"""Ctrl-C in a command that judges: it says how far it got, gives no judgement, and exits with 130."""

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from powerband.cli import invoke
from powerband.model.plan import Setting
from powerband.model.results import TrialResult
from powerband.processes.stop_request import StopRequest
from powerband.search import calibrate, noise, pilot


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens the doctor's checks of the machine, which take seconds and have a test of their own."""
    for name, few in (("IDLE_S", 0.01), ("PING_PONGS", 10), ("SLEEPS", 10), ("SPINS", 10)):
        monkeypatch.setattr(noise, name, few)


@pytest.fixture
def ctrl_c_in_trial(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """A function that makes the trial of this number receive Ctrl-C. No trial is run; those before measure 100/s."""

    def arm(number: int) -> None:
        trials = 0

        def run(*_: object, **__: object) -> None:
            nonlocal trials
            trials += 1
            if trials == number:
                signal.raise_signal(signal.SIGINT)

        def measured(*_: object) -> TrialResult:
            return TrialResult(1, 0, 1, Setting(()), "measured", (), {"goodput_per_s": 100.0})

        monkeypatch.setattr(pilot, "run_trial", run)
        monkeypatch.setattr(pilot, "measure", measured)

    return arm


@pytest.mark.parametrize("number", [1, 5, 6])
def test_doctor_s_pilot(
    number: int, ctrl_c_in_trial: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    ctrl_c_in_trial(number)
    assert invoke(["doctor", "--pilot"]) == 130
    captured = capsys.readouterr()
    assert captured.out.endswith(f"interrupted: {number - 1} of 6 trials\n")
    assert captured.err.endswith(f"trial {number} of 6\n")
    ctrl_c_in_trial(number)
    assert invoke(["doctor", "--pilot", "--format", "json"]) == 130
    said = json.loads(capsys.readouterr().out)["pilot"]
    assert said["interrupted"] is True and said["smallest_difference"] is None


def test_a_pilot_that_was_not_stopped_tells(
    ctrl_c_in_trial: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    ctrl_c_in_trial(99)
    assert invoke(["doctor", "--pilot"]) in (0, 5)
    assert "Equal trials differ by 0.0 %" in capsys.readouterr().out


def test_calibrate(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def cut(*, stop: StopRequest, directory: Path, **_: object) -> calibrate.Calibration:
        signal.raise_signal(signal.SIGINT)
        assert stop.requested and directory.is_dir()
        check = calibrate.CalibrationCheck("M/D/1", "mean response time", "ns", 1e7, 1e7, 0.0, None, None, 0.05, 1, 100)
        return calibrate.Calibration(0.01, calibrate.Served(0.01, 0.0), (check,), None, 6, interrupted=True)

    monkeypatch.setattr(calibrate, "calibrate", cut)
    assert invoke(["calibrate"]) == 130
    out = capsys.readouterr().out
    assert out.endswith("interrupted: 1 of 6 checks\n")
    assert "theory." not in out
    assert invoke(["calibrate", "--format", "json"]) == 130
    said = json.loads(capsys.readouterr().out)
    assert (said["passed"], said["interrupted"], said["planned"], len(said["checks"])) == (False, True, 6, 1)
