"""A trial that is followed while it grows gives the same figures, second by second, as the report after it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from fakes.live_trials import GO_NS, SECOND_NS, WALL_LESS_MONOTONIC_NS, WARMUP_S, event_lines, write_lines
from fakes.trials import trial_series
from powerband.analyze.trial.series import TrialSeries
from powerband.live import growing_files
from powerband.live.state import POINTS_MAX, Figures, TrialPhase
from powerband.live.trial_seconds import TrialFollower
from powerband.model.experiment import Measure
from powerband.model.plan import Setting, TrialSpec
from powerband.store import TrialDir, TrialRecord

SECONDS = 8
SPEC = TrialSpec(1, 2, 1, Setting((("threads", 16),)), 7)
MEASURE = Measure(metrics={"app_queued": "mean(queue_length)", "app_jobs": "rate(jobs_total)"})


@pytest.fixture
def recorded(tmp_path: Path) -> TrialDir:
    directory = TrialDir(tmp_path / "recorded")
    write_lines(directory, SECONDS, engines=2)
    return directory


@pytest.fixture
def growing(tmp_path: Path) -> TrialDir:
    """The empty folder of a trial that is about to begin."""
    (tmp_path / "0001").mkdir()
    return TrialDir(tmp_path / "0001")


def follower(directory: TrialDir) -> TrialFollower:
    return TrialFollower(directory, SPEC, MEASURE)


def read(directory: TrialDir, *, over: bool = True) -> tuple[Figures, ...]:
    followed = follower(directory)
    while followed.read(over=over):
        pass
    return followed.state.points


def series(directory: TrialDir) -> TrialSeries:
    record = TrialRecord(SPEC, "measured", None, 0, 0, {"go": GO_NS}, None)
    return trial_series(directory, record, MEASURE)


def test_the_load_is_that_of_the_report(recorded: TrialDir) -> None:
    points, load = read(recorded), series(recorded).load
    told = [point for point in points if point.rate_per_s is not None]
    assert len(told) == len(load.t_s) > 3
    assert [point.t_s for point in told] == list(load.t_s)
    assert [point.rate_per_s for point in told] == list(load.rate_per_s)
    assert [point.errors_per_s for point in told] == list(load.failed_per_s)
    assert [point.in_flight for point in told] == [round(count) for count in load.in_flight]
    assert [point.response_time_ns_p50 for point in told] == list(load.response_time_ns_p50)
    assert [point.response_time_ns_p99 for point in told] == list(load.response_time_ns_p99)


def test_what_the_probe_saw_is_there_by_second(recorded: TrialDir) -> None:
    points, seen = read(recorded), series(recorded)
    for point in points[:-1]:
        assert point.cpu_cores == pytest.approx({"subject": 0.5, "engine": 0.1})
        assert point.rss_bytes["subject"] in seen.subject.rss_bytes
        assert point.context_switches_per_s == pytest.approx(5000, rel=0.01)
        assert point.threads == pytest.approx(
            {"running": 0.5, "runnable": 0.1, "blocked: lock": 2.55, "blocked: socket": 0.85}
        )
        assert point.gauges["jvm heap committed bytes"] == 8_000_000
        assert point.gauges['jobs_total{pool="a"} per second'] == pytest.approx(30)
    own = {each.name: each.values for each in seen.own}
    assert [point.gauges["app_queued"] for point in points] == list(own["app_queued"][-SECONDS:])
    assert [point.gauges["app_jobs"] for point in points] == pytest.approx(list(own["app_jobs"][-SECONDS:]))
    assert [point.gauges["queue_length"] for point in points] == list(own["app_queued"][-SECONDS:])
    names = list(points[-1].gauges)
    assert names.index("app_queued") < names.index("queue_length"), "what was asked for before what it is made of"


def test_a_counter_that_began_again_never_falls_by_the_second(recorded: TrialDir) -> None:
    lines = [json.loads(line) for line in recorded.probe.read_text().splitlines()]
    for line in lines:
        if line["type"] == "scrape" and line["at_ns"] > GO_NS + 4 * SECOND_NS:
            line["values"] = {name: value - 100 for name, value in line["values"].items()}
    recorded.probe.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    points = read(recorded)
    for name in ("app_jobs", 'jobs_total{pool="a"} per second'):
        assert [point.gauges[name] for point in points] == pytest.approx([30] * SECONDS)
    assert min(point.gauges["queue_length"] for point in points) < 0


def test_a_heap_that_its_collector_has_not_reported_yet_is_not_shown_as_empty(recorded: TrialDir) -> None:
    lines = [json.loads(line) for line in recorded.probe.read_text().splitlines()]
    for line in lines:
        if line["type"] == "jvm" and line["at_ns"] < GO_NS + 3 * SECOND_NS:
            line["heap_used_bytes_now"] = 0
    recorded.probe.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    points = read(recorded)
    used = [point.gauges.get("jvm heap used bytes") for point in points]
    assert used == [None] * 3 + [1_000_000 + second for second in range(3, SECONDS)]
    assert all(point.gauges["jvm heap committed bytes"] == 8_000_000 for point in points)


@pytest.mark.parametrize("exact", [True, False])
def test_switches_of_many_threads_are_not_read_each_second(recorded: TrialDir, exact: bool) -> None:
    """The probe repeats what it read. Loops that keep CPUs awake are no processes of the trial."""
    lines = [json.loads(line) for line in recorded.probe.read_text().splitlines()]
    for line in lines:
        for tree in line.get("trees", ()):
            read_s = (line["at_ns"] - GO_NS) // SECOND_NS // 3 * 3
            tree |= {"threads_now": 65, "voluntary_switches": 1000 * read_s, "run_wait_ns": read_s}
            tree["context_switches"] = 1000 * read_s if exact else None
        if "trees" in line:
            line["trees"].append({**line["trees"][0], "name": "awake-0"})
    recorded.probe.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    points = read(recorded)
    assert [point.context_switches_per_s for point in points] == [None, None, None, 1000, None, None, 1000, None]
    assert set(points[0].cpu_cores) == set(points[0].rss_bytes) == {"subject", "engine"}


@pytest.mark.parametrize("piece", [333, 4096, 1 << 20])
def test_it_says_the_same_while_it_grows(recorded: TrialDir, growing: TrialDir, piece: int) -> None:
    whole = read(recorded)
    followed = follower(growing)
    assert followed.state.phase is TrialPhase.STARTING
    events, probe = recorded.events.read_bytes(), recorded.probe.read_bytes()
    # The probe writes more, in step with the events by time, as in a real trial.
    per_turn = piece, piece * len(probe) // len(events)
    phases, turn = [], 0
    while turn * per_turn[0] < len(events):
        for path, content, size in ((growing.probe, probe, per_turn[1]), (growing.events, events, per_turn[0])):
            with path.open("ab") as file:
                file.write(content[turn * size : (turn + 1) * size])
        turn += 1
        while followed.read():
            pass
        state = followed.state
        assert [point.rate_per_s for point in state.points] == [
            point.rate_per_s for point in whole[: len(state.points)]
        ]
        phases.append(state.phase)
    with growing.probe.open("ab") as file:
        file.write(probe[turn * per_turn[1] :])
    while followed.read(over=True):
        pass
    assert followed.state.points == whole
    assert followed.damaged == 0
    met = list(dict.fromkeys(phases))
    assert met == [phase for phase in TrialPhase if phase in met]  # the phases come in order
    assert met[-1] is TrialPhase.ENDING and (piece > 4096 or TrialPhase.MEASURE in met)


@pytest.mark.parametrize("over", [True, False])
@pytest.mark.parametrize(("events", "probe"), [(1, 1), (1, 0.3), (0.3, 1), (1, 0), (0, 1)])
def test_a_backlog_gives_the_same_however_much_is_read_at_once(
    growing: TrialDir, monkeypatch: pytest.MonkeyPatch, events: float, probe: float, over: bool
) -> None:
    """Also where one of the sources is silent from some time on, or throughout. Of each: the share that it wrote."""
    write_lines(growing, 30)
    for path, share in ((growing.events, events), (growing.probe, probe)):
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[: int(share * len(lines))]))
    whole = read(growing, over=over)
    assert bool(whole) is (events > 0)
    assert all(point.cpu_cores for point in whole) or probe < 1
    monkeypatch.setattr(growing_files, "CHUNK_BYTES", 4096)
    assert read(growing, over=over) == whole


def test_its_phases_and_moments(recorded: TrialDir, growing: TrialDir) -> None:
    lines = recorded.events.read_text().splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if '"phase":"drain"' in line and '"type":"phase"' in line)
    growing.events.write_text("".join(lines[:at]))
    followed = follower(growing)
    while followed.read():
        pass
    state = followed.state
    assert state.phase is TrialPhase.MEASURE
    assert state.phase_began_s == (GO_NS + WARMUP_S * SECOND_NS + WALL_LESS_MONOTONIC_NS) / 1e9
    assert state.phases_s == {"warmup": 0, "measure": WARMUP_S}
    assert (state.number, state.setting, state.block, state.stage) == (1, "threads=16", 2, "compare")
    assert state.figures == state.points[-1]


def test_what_an_engine_has_not_told_yet_is_waited_for(growing: TrialDir) -> None:
    """The wait is limited: an engine that is silent for three seconds is no longer waited for."""
    lines = [line for line in event_lines(SECONDS, engines=2) if line["type"] != "summary"]
    silent = [line for line in lines if line["engine"] == 0 or line.get("end_ns", 0) <= GO_NS + SECOND_NS]
    growing.events.write_text("".join(json.dumps(line) + "\n" for line in silent))
    followed = follower(growing)
    while followed.read():
        pass
    points = followed.state.points
    assert len(points) == SECONDS - 3 - 3  # the probe is silent throughout
    assert points[0].rate_per_s == pytest.approx(2 * points[1].rate_per_s, rel=0.2)  # type: ignore[operator]


def test_lines_of_nobody_are_counted_and_left_out(recorded: TrialDir, growing: TrialDir) -> None:
    junk = [b"\x00\xff", b"[]", b"{}", b'{"type":"interval"}', b'{"type":"sample","at_ns":x}', b"nonsense", b"",
            b'{"type":"threads","at_ns":1}', b'{"type":"sample","at_ns":9999999999999999999999}']  # fmt: skip
    for source, target in ((recorded.events, growing.events), (recorded.probe, growing.probe)):
        lines = source.read_bytes().splitlines()
        spoilt = [line for i, each in enumerate(lines) for line in ((each, junk[i % len(junk)]) if i > 20 else (each,))]
        target.write_bytes(b"\n".join(spoilt) + b"\n")
    followed = follower(growing)
    while followed.read(over=True):
        pass
    assert followed.damaged > 50
    assert [point.rate_per_s for point in followed.state.points] == [point.rate_per_s for point in read(recorded)]


def test_a_trial_that_begins_anew_forgets_the_earlier_one(recorded: TrialDir, growing: TrialDir) -> None:
    followed = follower(growing)
    shutil.copy(recorded.events, growing.events)
    while followed.read():
        pass
    assert followed.state.points
    shutil.rmtree(growing.path)
    growing.path.mkdir()
    growing.events.write_bytes(b"".join(recorded.events.read_bytes().splitlines(keepends=True)[:4]))
    followed.read()
    followed.read()
    assert followed.state.points == ()


def test_an_hour_of_seconds_is_the_most(growing: TrialDir) -> None:
    """A longer trial keeps its last hour, and the number of seconds before it."""
    seconds = POINTS_MAX + 100
    interval = next(line for line in event_lines(1) if line["type"] == "interval")
    with growing.events.open("w") as file:
        for second in range(seconds):
            interval |= {"start_ns": second * SECOND_NS, "end_ns": (second + 1) * SECOND_NS}
            file.write(json.dumps(interval) + "\n")
    followed = follower(growing)
    while followed.read(over=True):
        pass
    state = followed.state
    assert (len(state.points), state.points_before) == (POINTS_MAX, 100)
    assert state.points[-1].t_s == seconds
