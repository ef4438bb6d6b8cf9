"""A trial without a load: its metrics, its validity, its limits; and series that are sent beside a metrics page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fakes.trials import SECOND, START_NS, Figures, experiment, interval_lines, probe_lines, record_of, spec
from powerband.analyze.trial.bottleneck.rules import bottleneck_of, rules_of
from powerband.analyze.trial.bottleneck.scene import Scene
from powerband.analyze.trial.faults import is_failed_start
from powerband.analyze.trial.measure import measure
from powerband.analyze.trial.own_metrics import own_metrics, own_series
from powerband.analyze.trial.steady import window_is_steady
from powerband.loads import SELF_DRIVEN
from powerband.model.bottlenecks import BottleneckName
from powerband.model.experiment import Experiment, Measure, Subject
from powerband.model.own_expression import parse_own
from powerband.model.results import PoolUse, TrialResult
from powerband.readings.pools import WatchedPool
from powerband.readings.probe_samples import read_probe
from powerband.store import TrialDir, TrialRecord

COUNTS = {"series": "n_total", "noun": "message"}
FIGURES = Figures(goodput_per_s=50_000, thread_share=0.0, engine_wait=0.0, busy_cores=0.52)


def case(**measured: Any) -> Experiment:
    subject = Subject.model_validate(
        {"name": "s", "command": ["s", "{threads}", "{statsd_port}"], "counts": COUNTS, "last_words": "^final: "}
    )
    return experiment(subject=subject, measure=Measure.model_validate(measured))


def readings(dropped: Sequence[int] = (), **series: Sequence[float]) -> list[dict[str, Any]]:
    """Readings of StatsD, one a second from two seconds before the window on."""
    count = len(next(iter(series.values())))
    return [
        {
            "type": "statsd",
            "at_ns": START_NS + (at - 2) * SECOND,
            "values": {name: values[at] for name, values in series.items()},
            "packets": at,
            "updates": at,
            "bytes": at,
            "malformed": 0,
            "dropped": dropped[at] if dropped else 0,
        }
        for at in range(count)
    ]


def measured(folder: Path, of: Experiment, lines: Sequence[Mapping[str, Any]] = (), **changes: Any) -> TrialResult:
    figures = replace(FIGURES, **{key: changes.pop(key) for key in list(changes) if hasattr(FIGURES, key)})
    record: TrialRecord = replace(
        record_of(spec(), figures), cpus={"subject": [], "engine": [], "probe": []}, **changes
    )
    # The summary is one of `Counted`: no times, no users, no engine's CPU.
    none = dict.fromkeys(record.engines[0]["cohort_times"], "")
    window = {**record.engines[0]["window"], "time_in_system_ns_sum": 0, "user_ns": 0}
    said = {**record.engines[0], "cohort_times": none, "window": window, "thread_cpu_ns": [], "steps": []}
    record = replace(record, engines=({**said, "cpu_user_ns": 0, "cpu_system_ns": 0},))
    directory = TrialDir(folder / "0001")
    directory.begin(record.spec)
    events = [{**line, "response_time_ns_sum": 0, "response_time_ns": None} for line in interval_lines(figures)]
    probe = [*probe_lines(figures)[:-1], *lines, probe_lines(figures)[-1]]
    directory.events.write_text("".join(json.dumps(line) + "\n" for line in events))
    directory.probe.write_text("".join(json.dumps(line) + "\n" for line in probe))
    directory.write_record(record)
    return measure(directory, record, of)


def codes(result: TrialResult) -> dict[str, bool]:
    return {problem.code: problem.fatal for problem in result.problems}


def test_nothing_of_a_load_is_measured_nor_judged(tmp_path: Path) -> None:
    found = measured(tmp_path, case())
    assert found.valid and codes(found) == {}
    assert found.metrics["goodput_per_s"] == pytest.approx(50_000)
    assert found.metrics["context_switches_per_request"] == pytest.approx(2000 / 50_000)
    absent = ("error_rate", "offered_rate_per_s", "users_mean", "in_flight_mean", "engine_cpu_cores", "send_lag_ns_p99")
    assert [name for name in absent if name in found.metrics] == []
    assert not any("time_ns" in name for name in found.metrics)
    assert found.pools and all(pool.held_ns is None for pool in found.pools)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"steal_share": 0.3}, "host_steal"),
        ({"busy_cores": 1.5}, "host_foreign_some"),
        ({"io_pressure": 0.5}, "io_pressure"),
    ],
)
def test_the_machine_is_judged_as_ever(tmp_path: Path, change: dict[str, Any], code: str) -> None:
    assert code in codes(measured(tmp_path, case(), **change))


def test_last_words_become_metrics_and_invariants_must_hold(tmp_path: Path) -> None:
    of = case(metrics={"app_lost": "final(sent - received)"}, invariants=["app_lost == 0"])
    right = measured(tmp_path / "a", of, last_words={"sent": 5.0, "received": 5.0})
    assert right.valid and right.metrics["app_lost"] == 0
    wrong = measured(tmp_path / "b", of, last_words={"sent": 5.0, "received": 3.0})
    assert codes(wrong) == {"invariant": True}
    assert wrong.problems[0].message.startswith("app_lost == 0 does not hold: app_lost was 2.00;")
    silent = measured(tmp_path / "c", of)
    assert codes(silent) == {"invariant_unknown": True} and not is_failed_start(silent), "nobody computed wrongly"
    assert silent.problems[0].message.startswith("app_lost == 0 cannot be checked")


def test_last_words_that_are_series_too_are_those_of_the_last_words(tmp_path: Path) -> None:
    wanted = {"app_left": "final(queue)", "app_total": "final(n_total)"}
    lines = readings(queue=[3.0] * 14, n_total=[1000.0 * at for at in range(14)])
    found = measured(tmp_path, case(metrics=wanted), lines, last_words={"queue": 5.0, "n_total": 12_000.0})
    assert (found.metrics["app_left"], found.metrics["app_total"]) == (5, 12_000)


def test_bars_are_metrics(tmp_path: Path) -> None:
    found = measured(tmp_path, case(bars="2s"))
    assert found.metrics["bar_rate_per_s_min"] == pytest.approx(50_000)
    assert found.metrics["bar_rate_per_s_max"] == pytest.approx(50_000)


def test_packets_that_the_kernel_dropped_spoil_what_is_counted_by_them(tmp_path: Path) -> None:
    grown = [1000.0 * at for at in range(14)]
    lost = [0, 0, 0, *range(11)]
    lines = readings(lost, n_total=grown)
    assert codes(measured(tmp_path / "a", case(), lines)) == {"counts_lost": True}
    page = [{"type": "scrape", "at_ns": line["at_ns"], "took_ns": 0, "values": {"n_total": 1.0}} for line in lines]
    assert codes(measured(tmp_path / "b", case(), [*page, *readings(lost, sent_total=grown)])) == {
        "statsd_dropped": False
    }
    before = [7] * 14
    assert codes(measured(tmp_path / "c", case(), readings(before, n_total=grown))) == {}


def test_lines_that_could_not_be_read_are_told_of(tmp_path: Path) -> None:
    grown = [1000.0 * at for at in range(14)]
    lines = [{**line, "malformed": 3 * at} for at, line in enumerate(readings(n_total=grown))]
    found = measured(tmp_path / "a", case(), lines)
    assert codes(found) == {"statsd_malformed": False}
    assert found.problems[0].message.startswith("30 lines that the program sent")
    before = [{**line, "malformed": 7} for line in readings(n_total=grown)]
    assert codes(measured(tmp_path / "b", case(), before)) == {}


def test_what_is_sent_and_what_a_page_has_are_asked_for_alike() -> None:
    """The page is read each second, and StatsD half a second later; both count 10 a second."""
    samples = probe_lines(FIGURES)
    page = [
        {"type": "scrape", "at_ns": START_NS + at * SECOND, "took_ns": 0, "values": {"p_total": 10.0 * at, "both": 1.0}}
        for at in range(11)
    ]
    sent = [
        {**line, "at_ns": line["at_ns"] + SECOND // 2}
        for line in readings(g=[4.0] * 14, s_total=[10.0 * at for at in range(14)], both=[2.0] * 14)
    ]  # fmt: skip
    probe = read_probe([*samples, *sent, *page])
    assert probe is not None and probe.scrapes is not None
    assert probe.on_page == {"p_total", "both"}
    assert (np.diff(probe.scrapes.at_ns) >= 0).all()
    wanted = {
        "app_p_per_s": "rate(p_total)",
        "app_s_per_s": "rate(s_total)",
        "app_share": "increase(s_total / p_total)",
        "app_g": "mean(g)",
        "app_both": "max(both)",
        "app_packets_per_s": "rate(statsd_packets_total)",
    }
    parsed = {name: parse_own(text) for name, text in wanted.items()}
    found = own_metrics(parsed, probe.scrapes, START_NS, START_NS + 10 * SECOND)
    assert found == pytest.approx(
        {"app_p_per_s": 10, "app_s_per_s": 10, "app_share": 1, "app_g": 4, "app_both": 1, "app_packets_per_s": 1}
    )
    late = [
        {"type": "scrape", "at_ns": START_NS + at * SECOND, "took_ns": 0, "values": {"e_total": 5.0 * (at - 4)}}
        for at in range(5, 11)
    ]
    both = read_probe([*samples, *sent, *page[:5], *late])
    assert both is not None and both.scrapes is not None
    grown = own_metrics({"app_e": parse_own("increase(e_total)")}, both.scrapes, START_NS, START_NS + 10 * SECOND)
    assert grown == {"app_e": 30}, "a counter that begins in the window"
    over_time = own_series(parsed, probe.scrapes)["app_s_per_s"]
    assert sum(value is not None for value in over_time) > 20
    assert all(value == pytest.approx(10) for value in over_time if value is not None)


def test_readings_that_come_early_or_late_or_not_at_all_are_no_change() -> None:
    """The counter grows evenly, and is read at uneven times."""
    dice = np.random.default_rng(3)
    at = np.cumsum(np.full(60, 0.2)) + dice.uniform(-0.01, 0.01, 60)
    at = np.delete(at, [20, 33, 34]) * SECOND
    edges = [START_NS + round(instant) for instant in at]
    events = [
        {
            "type": "interval",
            "start_ns": begun,
            "end_ns": ended,
            "outcomes": {"ok": round((ended - begun) / 1000 * (1 + dice.normal(0, 0.005)))},
            "response_time_ns_sum": 0,
        }
        for begun, ended in pairwise(edges)
    ]
    assert window_is_steady(events, edges[0], edges[-1]) is True
    falling = [
        {**event, "outcomes": {"ok": round(event["outcomes"]["ok"] * (1 - index / 100))}}
        for index, event in enumerate(events)
    ]
    assert window_is_steady(falling, edges[0], edges[-1]) is False


def pool(
    name: str, on_cpu: float, *, switches_per_s: float = 0.0, busiest: float | None = None, waits: str = "lock"
) -> WatchedPool:
    use = PoolUse(name, 4.0, on_cpu, 0.0, 4 - on_cpu, {waits: 1.0})
    return WatchedPool(use, min(1.0, on_cpu) if busiest is None else busiest, switches_per_s, 0.0, 0.0)


def scene(*pools: WatchedPool, cpu_share: float = 0.5, **metrics: float) -> Scene:
    cores = 2 * cpu_share
    return Scene(
        metrics={
            "subject_cpu_cores": cores,
            "subject_cpu_share": cpu_share,
            "subject_cpu_ns_per_request": 100.0,
            **metrics,
        },
        problems={},
        pools=pools,
        cpus=2,
        users=None,
        present=0.0,
        rate_per_s=1e6,
        load_served=False,
        turned_away_share=0.0,
        failed_connections=0,
        accept_queue=0.0,
        accept_queue_limit=0.0,
        descriptors_left=None,
        major_faults_per_s=0.0,
        empty_ns=None,
        loaded_ns=None,
        noun="message",
    )  # fmt: skip


FAULTING = scene(pool("actors", 1.9), cpu_share=0.95, page_faults_per_s=2e7, subject_cpu_system_share=0.6)


@pytest.mark.parametrize(
    ("of", "name", "said"),
    [
        (scene(pool("actors", 1.0, switches_per_s=250_000)), BottleneckName.WAKE_UPS, "0.25 times per message"),
        (scene(pool("actors", 1.9, switches_per_s=400), cpu_share=0.95), BottleneckName.SUBJECT_CPU, "a message uses"),
        (scene(pool("actors", 1.0, busiest=0.97)), BottleneckName.ONE_THREAD, "one `actors` thread is on a CPU 97 %"),
        (scene(replace(pool("actors", 1.0, busiest=0.97), busiest_at_most=True)), None, ""),
        (
            scene(pool("actors", 1.0, busiest=0.97), replace(pool("brief", 0.5, busiest=1.0), busiest_at_most=True)),
            BottleneckName.ONE_THREAD,
            "one `actors` thread is on a CPU 97 %",
        ),
        (scene(pool("actors", 0.5, switches_per_s=100)), None, ""),
        (scene(pool("G1 Conc#0", 1.0, busiest=1.0)), None, ""),
        (scene(pool("C2 CompilerThre", 1.0, busiest=1.0)), None, ""),
        (scene(pool("GC Thread", 0.5), pool("actors", 0.5)), BottleneckName.GARBAGE_COLLECTION, "GC Thread"),
        (replace(FAULTING, host_starts_per_s=5.0), BottleneckName.MEMORY, "20.0 page faults per message"),
        (replace(FAULTING, host_starts_per_s=1e6), BottleneckName.SUBJECT_CPU, "a message uses"),
    ],
)  # fmt: skip
def test_what_limits_a_program_that_drives_itself(of: Scene, name: BottleneckName | None, said: str) -> None:
    found = bottleneck_of(of, rules_of(SELF_DRIVEN))
    assert (None if found is None else found.name) == name
    if found is not None:
        assert said in "; ".join(found.evidence)
        assert "request" not in "; ".join((*found.evidence, found.advice))


@pytest.mark.parametrize("waits", ["socket", "sleep", "disk", "lock", "poll", "other"])
def test_consumers_that_wait_for_another_program_beside_idle_cpus_are_not_too_many(waits: str) -> None:
    """8 threads take a message and write it to a database: 24 ms of wake-ups a second, 160 ms of CPU time."""
    idle = scene(pool("consumers", 0.16, switches_per_s=4800, waits=waits), cpu_share=0.08)
    full = scene(pool("consumers", 1.9, switches_per_s=57_000, waits=waits), cpu_share=0.95)
    for seen, named in ((idle, waits in ("lock", "poll", "other")), (full, True)):
        found = bottleneck_of(seen, rules_of(SELF_DRIVEN))
        assert (found is not None and found.name is BottleneckName.WAKE_UPS) is named


def test_threads_in_turns_are_named_beside_one_that_waits_at_its_socket() -> None:
    """Two processes pass a byte to and fro through pipes; a third, of the same name, serves the metrics page."""
    turns = pool("python3", 1.0, switches_per_s=100_000)
    beside = replace(turns, use=replace(turns.use, blocked_on={"other": 0.4, "socket": 0.6}))
    found = bottleneck_of(scene(beside), rules_of(SELF_DRIVEN))
    assert found is not None and found.name is BottleneckName.WAKE_UPS
