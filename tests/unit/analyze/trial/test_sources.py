"""Every metric comes from the source that it names, whatever the kind of load."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes.trials import SECOND, START_NS, Figures, experiment, histogram, probe_lines, record_of, spec, write_trial
from powerband.analyze.trial.measure import evidence_of, sources_of
from powerband.loads import HTTP, JMETER, SELF_DRIVEN, WEBSOCKET, kind_of
from powerband.loads.kind import LoadKind
from powerband.model.experiment import Experiment, Measure
from powerband.model.load import Load
from powerband.model.metrics import METRICS, metric_named
from powerband.readings.evidence import Evidence
from powerband.readings.fleet import merge_fleet
from powerband.store import TrialDir

KINDS = (HTTP, WEBSOCKET, JMETER, SELF_DRIVEN)
JOINS = {
    **dict.fromkeys(("joins_started", "joined", "unmatched", "published_in_window", "delivered_in_window"), 10),
    **{"rejoined": 0, "joins_failed": {}, "drops": {}, "close_codes": {}, "tallies": {"": 10}},
    **{"join_time_ns": histogram([1000]), "delivery_time_ns": histogram([1000])},
}
LOADS: dict[LoadKind, dict[str, Any]] = {
    HTTP: {"load": Load(users=10, requests_per_user=100)},
    WEBSOCKET: {
        "load": Load.model_validate(
            {
                "users": 10,
                "websocket": {"stamp_after": "sent", "tally": {"count_after": "count"}},
                "scenario": [{"name": "x", "message": "x"}],
            }
        )
    },
    JMETER: {"load": Load(jmeter="plan.jmx")},
    SELF_DRIVEN: {"subject": {"name": "s", "command": ["s", "{threads}"], "counts": {"series": "n"}}},
}
STEP = {"name": "x", "path": "/"}
MEASURED = {
    "metrics": {"app_lost": "final(lost)", "app_n": "max(n)"},
    "burst": 2 * SECOND,
    "bars": SECOND,
    "rate_counter": True,
    "visitor": True,
    "acknowledged": {"write": STEP, "read": STEP, "expect": 10},
}
WAY = {"dropped": 0, "missed": 0}
RECORDED: dict[str, Any] = {
    "link": {"a_to_b": WAY, "b_to_a": WAY, "late_ns_p99": 1, "delay_ns": 1},
    "visits": ({"at_ns": START_NS + SECOND, "took_ns": 5, "error": ""},),
    "acknowledged": ({"acknowledged_ns": 1, "seen": 5, "visible_ns": 2, "failed": ""},),
    "last_words": {"lost": 0.0},
    "control_cpu_ns": 1,
    "wall_ns": START_NS - 3 * SECOND,
}


def jvm(at_ns: int, more: int) -> dict[str, Any]:
    heap = {"heap_used_bytes_now": more << 20, "heap_committed_bytes_now": 1, "threads_live_now": 1}
    collectors = [{"name": "G1", "count": more, "time_ns": 1}]
    counters = {"safepoint_ns": 1, "compile_ns": 1, "threads_started": 1, "collectors": collectors}
    return {"type": "jvm", "at_ns": at_ns, "pid": 1, **heap, **counters}


def watched(figures: Figures) -> Iterator[dict[str, Any]]:
    """The probe's lines of a JVM with a collector, beside a database, with a series on its page; everything grows."""
    yield jvm(START_NS - 3 * SECOND, 1)
    for line in probe_lines(figures):
        if line["type"] == "sample":
            more = 1000 + (line["at_ns"] - START_NS) * 100 // SECOND
            counts = {"threads_now": more, "threads_left_now": 9, "descriptors_now": more}
            counts["descriptors_left_now"] = 9000 - more
            counts["memory_left_bytes_now"] = (9000 - more) << 20
            quota = {"cpu_quota_now": 1.5, "quota_periods": 2 * more, "throttled_periods": more}
            subject = line["trees"][0] | {"pss_bytes_now": 1, **counts, **quota}
            yield {**line, "trees": [subject, *line["trees"][1:], {**subject, "name": "postgresql"}]}
            yield {"type": "scrape", "at_ns": line["at_ns"], "took_ns": 0, "values": {"n": 1.0}}
            yield jvm(line["at_ns"], more)
        elif line["type"] == "threads":
            (pool,) = line["pools"]
            passed = line["at_ns"] - START_NS + SECOND
            collector = {**pool, "pool": "GC Thread", "on_cpu_ns": passed // 10, "on_cpu_ns_max": SECOND // 10}
            yield {**line, "pools": [pool, {**collector, "threads_now": 1}]}
        else:
            yield line


def rich(kind: LoadKind, folder: Path) -> Evidence:
    """The evidence of a trial that has every measurement possible with this kind of load."""
    of: Experiment = experiment(measure=Measure.model_validate(MEASURED), **LOADS[kind])
    assert kind_of(of) is kind
    figures = Figures(
        forks_per_s=1, summary={"ended_by": "work", **({"websocket": JOINS} if kind is WEBSOCKET else {})}
    )
    directory = TrialDir(folder / "0001")
    record = replace(record_of(spec(), figures), **RECORDED)
    looks = {
        "alone": list(record.engines),
        "doubled": list(record.engines),
        "outgoing": 0,
        "prompt": list(record.engines),
    }
    record = write_trial(directory, replace(record, slots=looks), figures)
    directory.probe.write_text("".join(json.dumps(line) + "\n" for line in watched(figures)))
    if kind is WEBSOCKET:
        told = [json.loads(line) | {"joined_now": 10} for line in directory.events.read_text().splitlines()]
        directory.events.write_text("".join(json.dumps(line) + "\n" for line in told))
    directory.dotnet.mkdir()
    figures_of_dotnet = ("gc_count", "gc_gen2_count", "gc_ns", "allocated_bytes", "work_items", "lock_contentions")
    levels = ("heap_bytes_now", "pool_threads_now", "pool_busy_now", "pool_queue_now")
    start, end = record.phases["measure"], record.phases["end"]
    rows = [{"at_ns": at, **dict.fromkeys((*figures_of_dotnet, *levels), 1)} for at in (start, (start + end) // 2, end)]
    (directory.dotnet / "7.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    directory.snapshots.mkdir()
    for when, size in (("before", 500), ("after", 1 << 40)):
        (directory.snapshots / f"{when}-7.txt").write_text(f"   1:  5  {size}  [C\n")
    fleet = merge_fleet(record.engines)
    assert fleet is not None
    return evidence_of(directory, record, of, fleet)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: type(kind).__name__)
def test_a_source_makes_the_metrics_that_name_it_and_no_others(kind: LoadKind, tmp_path: Path) -> None:
    evidence = rich(kind, tmp_path)
    for source in sources_of(kind):
        made = dict(source.metrics(evidence))
        assert {METRICS[name].source for name in made} <= {source.name}


def test_every_metric_is_made_by_some_kind(tmp_path: Path) -> None:
    trials = [(kind, rich(kind, tmp_path / type(kind).__name__)) for kind in KINDS]
    closed = trials[0][1]
    waiting = [{**interval, "in_flight_now": 10 * index} for index, interval in enumerate(closed.intervals)]
    trials.append((HTTP, replace(closed, load=Load(rate=100), intervals=waiting)))
    answered = [{**interval, "in_flight_now": 0} for interval in closed.intervals]
    trials.append((HTTP, replace(closed, intervals=answered)))
    assert closed.probe is not None
    kept_awake = replace(closed.probe, awake=(closed.probe.trees["subject"],))
    trials.append((HTTP, replace(closed, probe=kept_awake)))
    disturbed = Figures(forks_per_s=1, loud_s=5.0)
    record = write_trial(beside := TrialDir(tmp_path / "beside"), record_of(spec(), disturbed), disturbed)
    fleet = merge_fleet(record.engines)
    assert fleet is not None
    trials.append((HTTP, evidence_of(beside, record, experiment(), fleet)))
    made = {name for kind, trial in trials for source in sources_of(kind) for name in dict(source.metrics(trial))}
    assert made - {"app_lost", "app_n"} == {name for name, metric in METRICS.items() if metric.source != "search"}


def test_a_metric_of_the_subjects_own_names_its_source() -> None:
    assert metric_named("app_lost").source == "own"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: type(kind).__name__)
def test_a_kind_has_each_source_once(kind: LoadKind) -> None:
    names = [source.name for source in sources_of(kind)]
    assert len(names) == len(set(names))
