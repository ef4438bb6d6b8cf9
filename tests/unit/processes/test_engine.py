from __future__ import annotations

import math
import random
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from powerband.base.errors import MeasurementError
from powerband.processes.engine_fleet import FleetInterval, IntervalMerger, find_engine
from powerband.wire.load_events import Interval

INTERVAL_NS = 100


def interval(place: int, ok: int, failed: int = 0, time_ns: int = 0) -> Interval:
    return Interval(
        type="interval",
        start_ns=place * INTERVAL_NS,
        end_ns=(place + 1) * INTERVAL_NS,
        phase="warmup",
        scheduled=ok,
        sent=ok,
        dropped=0,
        outcomes={"ok": ok, "timeout": failed},
        in_flight_now=2,
        connections_now=2,
        users_now=2,
        response_time_ns_sum=time_ns,
        response_time_ns_max=0,
        service_time_ns_sum=0,
        send_lag_ns_max=0,
        cpu_ns=0,
    )


def test_intervals_of_a_fleet_are_added_up_by_their_place() -> None:
    merger = IntervalMerger(2)
    assert list(merger.add(0, interval(0, 10, 1, 1000))) == []
    (merged,) = merger.add(1, interval(0, 30, 2, 7000))
    assert merged == FleetInterval(0, 100, ok=40, ended=43, response_time_ns_mean=200.0, in_flight=4)
    assert merged.rate_per_s == 40 / 100e-9


def test_without_answers_there_is_no_mean() -> None:
    (merged,) = IntervalMerger(1).add(0, interval(0, 0))
    assert math.isnan(merged.response_time_ns_mean)


@given(st.lists(st.lists(st.integers(0, 100), max_size=6), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_the_order_of_arrival_changes_nothing_and_no_request_is_lost(
    fleet: list[list[int]], order: random.Random
) -> None:
    merger = IntervalMerger(len(fleet))
    merged: list[FleetInterval] = []
    waiting = {engine: list(enumerate(counts)) for engine, counts in enumerate(fleet)}
    while waiting:
        engine = order.choice(sorted(waiting))
        if waiting[engine]:
            place, ok = waiting[engine].pop(0)
            merged.extend(merger.add(engine, interval(place, ok)))
        else:
            del waiting[engine]
            merged.extend(merger.end(engine))
    longest = max(len(counts) for counts in fleet)
    expected = [sum(counts[place] for counts in fleet if place < len(counts)) for place in range(longest)]
    assert [interval.ok for interval in merged] == expected


def test_the_engine_is_taken_from_the_environment_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binary = tmp_path / "engine"
    binary.write_text("#!/bin/sh\n")
    binary.chmod(0o755)
    monkeypatch.setenv("POWERBAND_ENGINE", str(binary))
    assert find_engine() == binary


def test_an_engine_that_is_not_there_lists_every_path_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POWERBAND_ENGINE", raising=False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr("sysconfig.get_path", lambda name, scheme: str(tmp_path / scheme))
    with pytest.raises(MeasurementError) as caught:
        find_engine()
    assert f"{tmp_path}/bin/powerband-engine" in str(caught.value)
    assert "POWERBAND_ENGINE" in str(caught.value)
