"""A real server exits at once in two of five starts at one level, and is faster there than at any other level; another
is ready only after its very first start."""

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

CASE: dict[str, Any] = {
    "name": "flaky",
    "factors": {"level": [1, 2, 3]},
    "load": {"users": 16, "duration": "1s", "drain": "1s", "scenario": [{"name": "get", "path": "/"}]},
    "measure": {"warmup": "200ms", "repeats": 4, "slots": False, "foreign_cpu_max": "100%", "steal_max": "100%"},
    "objective": {"maximise": "goodput"},
    "design": {"order": "race", "confirm": 2, "seed": 3},
}


def test_a_level_that_fails_starts_is_not_named_however_fast_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [sys.executable, str(FAKES / "flaky_server.py"), "{port}", "{level}", str(tmp_path / "starts")]
    run = powerband.run({**CASE, "subject": {"command": command}}, runs=tmp_path)
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


ONCE = """
import pathlib, socket, sys, threading, time

port, level, first = int(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
if not first.exists():
    first.write_text(level)
    print("pulling the image", flush=True)
    time.sleep(600)
pause_s = 0.05 if first.read_text() == level else 0.16


def serve(connection):
    while received := connection.recv(65_536):
        time.sleep(pause_s)
        connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok" * received.count(b"\\r\\n\\r\\n"))


listener = socket.create_server(("127.0.0.1", port), backlog=64)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""


def test_a_server_whose_very_first_start_takes_long_bars_no_level(tmp_path: Path) -> None:
    """The level that has the first start is the fastest: its answers, too, take so long that a load engine which other
    tests hold up for some ms is not too late."""
    (tmp_path / "server.py").write_text(ONCE)
    command = [sys.executable, str(tmp_path / "server.py"), "{port}", "{level}", str(tmp_path / "first")]
    subject = {"command": command, "ready": {"timeout": "5s"}}
    analysis = powerband.run({**CASE, "subject": subject}, runs=tmp_path).analysis
    first = analysis.trials[0]
    assert [problem.code for problem in first.problems] == ["not_ready", "first_start"]
    (row,) = [row for row in analysis.settings if row.setting == first.setting]
    assert row.starts is not None and row.starts.failed == 0 and row.feasible
    assert analysis.answer.leader == first.setting
    if analysis.answer.kind not in (AnswerKind.NOT_ENOUGH_DATA, AnswerKind.BOUNDED):  # they occur beside other tests
        assert analysis.answer.setting == first.setting
    (said,) = [warning for warning in analysis.warnings if "the first start failed" in warning]
    assert "was not ready within 5 s" in said and "pulling the image" in said
