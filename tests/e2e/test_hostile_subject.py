"""Servers that answer byte by byte or without end, or print without end: each whole trial ends in time with a message,
and takes little memory and disk."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from fakes.stand import CALM, FAKES, MS, experiment, run_one, short_load
from powerband.model.experiment import Measure, Ready, Subject, WorkCounter
from powerband.model.load import Load, Step
from powerband.processes.stop_request import StopRequest

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.usefixtures("engine", "no_process_left")]


def server(kind: str, **fields: Any) -> Subject:
    command = (sys.executable, str(FAKES / "hostile_server.py"), "{port}", kind)
    return Subject(name="hostile", command=command, **fields)


@pytest.mark.parametrize("kind", ["drip", "headers", "continue"])
def test_ready_ends_in_time_whatever_the_server_answers(kind: str, tmp_path: Path) -> None:
    begun_s = time.monotonic()
    record = run_one(experiment(server(kind, ready=Ready(http="/", timeout_ns=1500 * MS))), tmp_path)
    assert record.failure is not None and record.failure.code == "not_ready"
    assert time.monotonic() - begun_s < 30, "the server goes on for a minute"


@pytest.mark.parametrize("kind", ["drip", "endless"])
def test_a_person_who_stops_waits_for_no_knob(kind: str, tmp_path: Path) -> None:
    stop = StopRequest()
    timer = threading.Timer(2.0, stop.request)
    timer.start()
    begun_s = time.monotonic()
    case = experiment(server(kind, apply=(Step(name="PUT /knob", method="PUT", path="/knob"),)))
    record = run_one(case, tmp_path, stop=stop)
    timer.cancel()  # the trial may have failed before
    timer.join()
    stop.close()
    assert record.status in ("interrupted", "failed") and time.monotonic() - begun_s < 9
    if kind == "drip":
        assert record.status == "interrupted"


def test_a_page_without_end_has_no_counter(tmp_path: Path) -> None:
    page = server("endless", counts=WorkCounter(series="n_total"), metrics_url="http://127.0.0.1:{port}/",
                  ready=Ready(timeout_ns=4_000 * MS))  # fmt: skip
    record = run_one(experiment(page, load=Load(users=1, duration_ns=1000 * MS)), tmp_path)
    assert record.failure is not None and record.failure.code == "no_counter"


def test_a_server_that_prints_without_end_is_measured_all_the_same(tmp_path: Path) -> None:
    flood = server("flood", ready=Ready(log=r"^ready now$", timeout_ns=20_000 * MS))
    case = experiment(flood, load=short_load(timeout_ns=200 * MS, duration_ns=1000 * MS),
                      measure=Measure(warmup_ns=100 * MS, slots=False, **CALM))  # fmt: skip
    record = run_one(case, tmp_path)
    assert record.failure is not None and record.failure.code == "no_response", record.failure
    assert record.subject["log_bytes"] - record.subject["log_dropped_bytes"] == 2 << 20
    assert record.subject["log_dropped_bytes"] > 3 << 20
    log = tmp_path / "0001" / "subject.log"
    assert log.stat().st_size < (2 << 20) + 100
    assert [path.name for path in log.parent.glob("subject*")] == ["subject.json", "subject.log"]


def test_what_a_dying_server_printed_does_not_reach_the_terminal_as_codes(tmp_path: Path) -> None:
    code = "import sys; print('\x1b[2J\x1b]0;owned\x07gone'); sys.exit(3)"
    record = run_one(experiment(Subject(name="dies", command=(sys.executable, "-c", code, "{port}"))), tmp_path)
    assert record.failure is not None and record.failure.code == "died_before_ready"
    assert record.failure.message.endswith("\n  gone") and record.failure.message.replace("\n", "").isprintable()
