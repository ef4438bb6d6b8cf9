"""Calibration that is cut short says nothing of the machine: no trial is run here, only the order of things."""

from __future__ import annotations

from pathlib import Path

import pytest

from powerband.analyze.results import TrialResult
from powerband.plan import Setting
from powerband.run.stop import StopRequest
from powerband.search import calibrate as module
from powerband.search.calibrate import calibrate


def run(monkeypatch: pytest.MonkeyPatch, *, stop_in_case: int | None) -> tuple[module.Calibration, list[str]]:
    """All cases measured as 100/s and 10 ms at once; a person stops in the case of that number."""
    cases, said = 0, []
    stop = StopRequest()

    def measured(_bench: object, case: module._Case) -> list[TrialResult]:
        nonlocal cases
        cases += 1
        if cases == stop_in_case:
            stop.request()
            return [TrialResult(1, 0, 1, Setting(()), "interrupted", (), {})]
        metrics = dict.fromkeys(("goodput_per_s", "offered_rate_per_s", "achieved_rate_per_s"), 100.0)
        return [TrialResult(1, 0, 1, Setting(()), "measured", (), {**metrics, "response_time_ns_mean": 1e7})]

    monkeypatch.setattr(module._Bench, "run", measured)
    found = calibrate(quick=True, directory=Path("unused"), stop=stop, starting=said.append)
    stop.close()
    return found, said


def test_each_check_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    found, said = run(monkeypatch, stop_in_case=None)
    assert (len(found.checks), found.planned, found.interrupted) == (3, 3, False)
    assert said[0] == "what a request takes"
    assert [line.split(": ")[0] for line in said[1:]] == ["1 of 3", "2 of 3", "3 of 3"]
    assert [line.split(": ")[1] for line in said[1:]] == [check.name for check in found.checks]


@pytest.mark.parametrize(("stopped_in", "finished"), [(1, 0), (2, 0), (3, 0), (4, 1), (5, 2)])
def test_what_was_cut_short_is_no_verdict(monkeypatch: pytest.MonkeyPatch, stopped_in: int, finished: int) -> None:
    found, _ = run(monkeypatch, stop_in_case=stopped_in)
    assert found.interrupted and not found.passed
    assert (len(found.checks), found.planned, found.problem) == (finished, 3, None)
