"""`load` without a subject: real engines load a server that the test started."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes.stand import MS, short_load
from powerband.base.errors import MeasurementError
from powerband.processes.engine_fleet import FleetInterval
from powerband.processes.ports import pick_port
from powerband.processes.stop_request import StopRequest
from powerband.trials.loadgen import run_load

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.usefixtures("no_process_left")]


def test_a_load_of_its_own(url: str, stop: StopRequest) -> None:
    seen: list[FleetInterval] = []
    result = run_load(url, short_load(), stop=stop, warmup_ns=100 * MS, on_interval=seen.append)
    (summary,) = result.summaries
    assert set(summary["total"]["outcomes"]) == {"ok"}
    assert not result.interrupted
    assert sum(interval.ok for interval in seen) == summary["total"]["outcomes"]["ok"]


def test_the_first_ctrl_c_drains_and_reports(url: str, stop: StopRequest) -> None:
    def request(interval: FleetInterval) -> None:  # once something was answered, however late the engine started
        if interval.ok and not stop.requested:
            stop.request()

    result = run_load(url, short_load(duration_ns=60_000 * MS), stop=stop, on_interval=request)
    assert result.interrupted
    assert result.summaries[0]["ended_by"] == "drain"
    assert result.summaries[0]["cohort"]["outcomes"]["ok"] > 0


def test_nobody_there_is_an_outcome_and_no_error(engine: Path, stop: StopRequest) -> None:
    result = run_load(f"http://127.0.0.1:{pick_port()}/", short_load(), stop=stop)
    assert set(result.summaries[0]["total"]["outcomes"]) == {"connect_refused"}


def test_why_handshakes_fail_is_told(url: str, stop: StopRequest) -> None:
    result = run_load(url.replace("http:", "https:"), short_load(), stop=stop)
    assert set(result.summaries[0]["total"]["outcomes"]) == {"tls_failed"}
    assert "speaks no TLS" in result.tls_failure


def test_an_engine_that_gives_up_is_quoted(engine: Path, stop: StopRequest) -> None:
    with pytest.raises(MeasurementError, match=r"missing\.pem"):
        run_load("https://127.0.0.1:1/", short_load(tls_ca_file="missing.pem"), stop=stop)


def test_the_ramp_is_no_part_of_the_window(url: str, stop: StopRequest) -> None:
    result = run_load(url, short_load(users=20, ramp_ns=400 * MS), stop=stop)
    (summary,) = result.summaries
    assert summary["measure_start_ns"] - summary["go_ns"] >= 400 * MS
