"""A real server exits at once in two of five starts at one level, and is faster there than at any other level."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import powerband
from fakes.stand import FAKES
from powerband.cli import invoke
from powerband.model.results import AnswerKind

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.usefixtures("engine", "no_process_left")]


def test_a_level_that_fails_starts_is_not_named_however_fast_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [sys.executable, str(FAKES / "flaky_server.py"), "{port}", "{level}", str(tmp_path / "starts")]
    case: dict[str, Any] = {
        "name": "flaky",
        "subject": {"command": command},
        "factors": {"level": [1, 2, 3]},
        "load": {"users": 8, "duration": "1s", "drain": "200ms", "scenario": [{"name": "get", "path": "/"}]},
        "measure": {"warmup": "200ms", "repeats": 4, "slots": False, "foreign_cpu_max": "100%", "steal_max": "100%"},
        "objective": {"maximise": "goodput"},
        "design": {"order": "race", "confirm": 2, "seed": 3},
    }
    run = powerband.run(case, runs=tmp_path)
    analysis = run.analysis
    flaky = analysis.settings[2]
    assert flaky.starts is not None and flaky.starts.failed >= 1
    assert flaky.estimates["goodput_per_s"].value > 1.2 * analysis.settings[1].estimates["goodput_per_s"].value
    assert not flaky.feasible and f"failed {flaky.starts.failed} of {flaky.starts.made} starts" in str(
        flaky.infeasible_because
    )
    assert analysis.answer.leader == analysis.settings[1].setting
    if analysis.answer.kind not in (AnswerKind.NOT_ENOUGH_DATA, AnswerKind.BOUNDED):  # they occur beside other tests
        assert analysis.answer.setting == analysis.settings[1].setting
    first = analysis.answer.sentences[0]
    assert "level=3 gave" in first and f"failed {flaky.starts.failed} of {flaky.starts.made} starts" in first
    capsys.readouterr()
    assert invoke(["report", str(run.path)]) == 0
    shown = capsys.readouterr().out
    assert "failed starts" in shown and "found its cache half written" in shown
