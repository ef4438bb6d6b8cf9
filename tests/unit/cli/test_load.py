"""`powerband load` on a terminal and off it: no engine is started here."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import pytest

from fakes.trials import Figures, summary
from powerband.base.errors import MeasurementError
from powerband.cli import invoke
from powerband.processes.engine_fleet import FleetInterval
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
