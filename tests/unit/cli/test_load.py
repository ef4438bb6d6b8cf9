"""`powerband load` on a terminal and off it: no engine is started here."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import pytest

from fakes.trials import SECOND, START_NS, Figures, joins, summary
from powerband.base.errors import MeasurementError
from powerband.cli import invoke
from powerband.processes.engine_fleet import FleetInterval
from powerband.readings.crowd import Joined
from powerband.trials import loadgen


@pytest.fixture(autouse=True)
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object, on_interval: Callable[[FleetInterval], None], **__: object) -> loadgen.LoadResult:
        on_interval(FleetInterval(10**9, 10**9 + 10**8, 500, 500, 1e6, 64))
        return loadgen.LoadResult((summary(Figures()),), interrupted=False)

    monkeypatch.setattr(loadgen, "run_load", run)


def test_a_terminal_sees_what_happens_now(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert invoke(["load", "http://127.0.0.1/", "--format", "json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == "\r\x1b[K   0.1 s  5,000/s, mean 1.00 ms, 64 in flight\r\x1b[K"
    assert json.loads(captured.out)["goodput_per_s"] == 1000


def test_the_line_is_gone_before_an_error_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MeasurementError("no disk")

    monkeypatch.setattr(loadgen, "run_load", fail)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert invoke(["load", "http://127.0.0.1/"]) == 5
    assert capsys.readouterr().err == "\r\x1b[Kpowerband: no disk\n"


def test_a_file_gets_no_live_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["load", "http://127.0.0.1/"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert captured.out.startswith("goodput        1,000/s")


def test_users_who_lost_their_websocket_would_have_had_messages(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half of the users are lost for good after half of the window; all that was sent is answered."""
    told = summary(Figures(summary={"websocket": joins(drops={"closed": 5})}))
    joined = tuple(Joined(START_NS + second * SECOND, 10 if second <= 5 else 5) for second in range(11))
    result = loadgen.LoadResult((told,), interrupted=False, joined=joined)
    monkeypatch.setattr(loadgen, "run_load", lambda *_, **__: result)
    assert invoke(["load", "ws://127.0.0.1/", "-c", "10", "--message", "x", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["error_rate"] == pytest.approx(0.25)
    assert document["response_time_ns"]["p90"] == 10 * SECOND
