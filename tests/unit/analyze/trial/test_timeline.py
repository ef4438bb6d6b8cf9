"""The limit over the time of a trial, on a made-up trial whose limit changes halfway."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fakes.trials import SECOND, START_NS, Figures, experiment, failed_record, record_of, spec, write_trial
from powerband.analyze.trial.bottleneck.scene import scene_of
from powerband.analyze.trial.measure import evidence_of, measure
from powerband.analyze.trial.timeline import STRETCHES_MAX, LimitSpan, _part, limits_over_time
from powerband.model.bottlenecks import BottleneckName
from powerband.model.load import Load
from powerband.readings.fleet import merge_fleet
from powerband.readings.probe_samples import read_probe
from powerband.store import TrialDir, TrialRecord

LOAD = Load(users=10, duration=10 * SECOND)


def spans(tmp_path: Path, figures: Figures, change: Any = None) -> tuple[LimitSpan, ...]:
    """The spans of a made-up trial. `change`: applied to each probe line before it is read."""
    directory = TrialDir(tmp_path / "0001")
    record = write_trial(directory, record_of(spec(), figures), figures)
    lines = [json.loads(line) for line in directory.probe.read_text().splitlines()]
    if change is not None:
        lines = [change(line) for line in lines]
        directory.probe.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return limits(directory, record)


def limits(directory: TrialDir, record: TrialRecord, load: Load = LOAD) -> tuple[LimitSpan, ...]:
    of = experiment(load=load)
    result = measure(directory, record, of)
    probe = read_probe(directory.read_probe())
    return limits_over_time(result, record, list(directory.read_events()), probe, of)


def busy_from(second: float) -> Any:
    """A change of probe lines: from this second of the window on the subject's only CPU is full."""

    def change(line: dict[str, Any]) -> dict[str, Any]:
        passed = max(0.0, line.get("at_ns", 0) - START_NS - second * SECOND)
        for tree in line.get("trees", ()):
            if tree["name"] == "subject":
                tree["cpu_user_ns"] += round(0.49 * passed)
                tree["run_wait_ns"] += round(1.5 * passed)
        if "host" in line:
            line["host"]["cpu_busy_ns"] += round(0.49 * passed)
            line["host"]["cpu_idle_ns"] -= round(0.49 * passed)
        return line

    return change


def test_a_limit_that_comes_halfway_is_seen_from_then_on(tmp_path: Path) -> None:
    found = spans(tmp_path, Figures(), busy_from(6.0))
    named = [(span.from_s, span.to_s, span.bottleneck.name if span.bottleneck else None) for span in found]
    assert named[-1] == (pytest.approx(8.0), pytest.approx(12.0), BottleneckName.SUBJECT_CPU)
    assert all(name is not BottleneckName.SUBJECT_CPU for *_, name in named[:-1])
    assert found[-1].bottleneck is not None
    assert "99 %" in found[-1].bottleneck.evidence[0] or "98 %" in found[-1].bottleneck.evidence[0]


def test_spans_cover_the_load_without_gaps_and_neighbours_differ(tmp_path: Path) -> None:
    found = spans(tmp_path, Figures(), busy_from(6.0))
    assert found[0].from_s == 0 and found[-1].to_s == pytest.approx(12.0)
    for before, after in pairwise(found):
        assert before.to_s == after.from_s
        names = [span.bottleneck.name if span.bottleneck else None for span in (before, after)]
        assert names[0] != names[1]


def test_an_even_trial_is_one_span_of_what_its_window_names(tmp_path: Path) -> None:
    found = spans(tmp_path, Figures(), busy_from(-3.0))
    assert [span.bottleneck.name for span in found if span.bottleneck] == [BottleneckName.SUBJECT_CPU]


def test_what_a_runtime_tells_of_itself_is_named_over_time_too(tmp_path: Path) -> None:
    """Collections of .NET stop all threads for a fifth of the time from the fourth second of the window on."""
    figures = Figures()
    record = write_trial(directory := TrialDir(tmp_path / "0001"), record_of(spec(), figures), figures)
    readings = [
        {"type": "dotnet", "pid": 7, "at_ns": at, "gc_ns": max(0, at - START_NS - 4 * SECOND) // 5}
        for at in range(START_NS - 2 * SECOND, START_NS + 11 * SECOND, SECOND)
    ]
    with directory.probe.open("a") as lines:
        lines.writelines(f"{json.dumps(reading)}\n" for reading in readings)
    found = limits(directory, record)
    assert [span.bottleneck.name for span in found if span.bottleneck] == [BottleneckName.GARBAGE_COLLECTION]
    assert found[-1].from_s == pytest.approx(6.0)


def test_waits_of_jmeter_are_shared_by_its_threads_over_time_too(tmp_path: Path) -> None:
    """On average 0.4 of the program's 100 threads wait for a CPU."""
    figures = Figures(users=100, engine_wait=0.4, summary={"thread_cpu_ns": []})
    record = write_trial(directory := TrialDir(tmp_path / "0001"), record_of(spec(), figures), figures)
    found = limits(directory, record, Load(jmeter="plan.jmx"))
    assert found and BottleneckName.GENERATOR not in {span.bottleneck.name for span in found if span.bottleneck}


def test_a_long_trial_has_a_bounded_number_of_stretches(tmp_path: Path) -> None:
    figures = Figures(window_s=200.0)
    flips = busy_from(1e9)

    def change(line: dict[str, Any]) -> dict[str, Any]:
        return flips(line)

    found = spans(tmp_path, figures, change)
    assert 1 <= len(found) <= STRETCHES_MAX


def test_a_trial_that_was_not_measured_or_not_watched_has_none(tmp_path: Path) -> None:
    directory = TrialDir(tmp_path / "0001")
    assert limits(directory, write_trial(directory, failed_record(spec()), None)) == ()
    figures = Figures()
    record = write_trial(directory, record_of(spec(), figures), figures)
    directory.probe.write_text("")
    assert limits(directory, record) == ()
    assert limits(directory, replace(record, phases={})) == ()


def test_while_users_begin_only_those_that_are_there_have_requests(tmp_path: Path) -> None:
    """Six of the ten users are there in the warm-up, on average."""
    figures = Figures()
    record = write_trial(directory := TrialDir(tmp_path / "0001"), record_of(spec(), figures), figures)
    lines = [json.loads(line) for line in directory.events.read_text().splitlines()]
    joining = [{**line, "users_now": 6} if line["start_ns"] < START_NS else line for line in lines]
    directory.events.write_text("".join(f"{json.dumps(line)}\n" for line in joining))
    fleet, of = merge_fleet(record.engines), experiment(load=LOAD)
    assert fleet is not None
    whole = evidence_of(directory, record, of, fleet)
    edges = ((START_NS - 2 * SECOND, START_NS), (START_NS, START_NS + 2 * SECOND))
    assert [scene_of(_part(whole, *each), {}, ()).present for each in edges] == pytest.approx([6, 10])
