"""The visits in a browser's log, and the end of a real browser."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from fakes.needs import need_browser
from powerband.processes.engine_process import Pump
from powerband.processes.stop_request import StopRequest
from powerband.store import TrialDir
from powerband.trials.instruments import visitor
from powerband.trials.instruments.visitor import NoVisitorError, Visit, Visitor, visitor_up

HEAD = "[42:42:1121/110651.1:INFO:CONSOLE"
LOG = (
    HEAD + r':7] "powerband visit {\"at_ms\":1700000000123,\"took_ms\":3.5}", source: http://x/visit.mjs (7)' + "\n"
    + HEAD + r'(7)] "powerband visit {"at_ms":1700000001123,"error":"no answer"}", source: http://x/ (7)' + "\n"
    + HEAD + r'(7)] "powerband visit {"at_ms":"soon"}", source: http://x/ (7)' + "\n"
    + HEAD + r'(7)] "powerband visit {"at_ms":1700000002123,"error":"not \"ok\""}", source: http://x/ (7)' + "\n"
    + HEAD + r':7] "powerband visit {\"at_ms\":1700000003123,\"error\":\"not \\\"ok\\\"\"}", source: x (7)' + "\n"
    + HEAD + r'(7)] "powerband visit {"at_ms":1700000004123,"error":""}", source: http://x/ (7)' + "\n"
    + HEAD + r'(9)] "something else", source: http://x/ (9)' + "\n"
    + "[42:42:1121/110654.1:WARNING:content/zygote.cc:325] Socket closed prematurely.\n"
)  # fmt: skip


def test_visits_are_read_off_the_console_and_nothing_else_is(tmp_path: Path) -> None:
    log = tmp_path / "visitor.log"
    log.write_text(LOG)
    assert Visitor(1, log).visits() == [
        Visit(1_700_000_000_123_000_000, 3_500_000),
        Visit(1_700_000_001_123_000_000, None, "no answer"),
        Visit(1_700_000_002_123_000_000, None, 'not "ok"'),
        Visit(1_700_000_003_123_000_000, None, 'not "ok"'),
        Visit(1_700_000_004_123_000_000, None, "no reason given"),
    ]
    assert Visitor(1, tmp_path / "none").visits() == []


def test_without_a_browser_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visitor, "NAMES", ("no-such-browser",))
    stop = StopRequest()
    with (
        Pump(stop) as pump,
        pytest.raises(NoVisitorError, match="no Chromium on PATH"),
        visitor_up(Path("/bin/true"), "file:///", TrialDir(tmp_path), (), pump),
    ):
        pass
    stop.close()


@pytest.mark.usefixtures("no_process_left")
def test_a_real_browser_visits_and_ends(engine: Path, tmp_path: Path) -> None:
    need_browser()
    page = tmp_path / "page.html"
    page.write_text(
        "<script>setInterval(() => console.log('powerband visit '"
        " + JSON.stringify({at_ms: Date.now(), took_ms: 1.5})), 100)</script>"
    )
    stop = StopRequest()
    with Pump(stop) as pump, visitor_up(engine, page.as_uri(), TrialDir(tmp_path), (), pump) as person:
        deadline_s = time.monotonic() + 60
        while not pump.wait(lambda: bool(person.visits()), 0.1):  # no engine says anything, so nothing wakes the wait
            assert time.monotonic() < deadline_s
        assert person.visits()[0].took_ns == 1_500_000
    stop.close()
