"""The nodes of a followed run: which trials run, which nodes are idle or lost; and the label `node`."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fakes.live_runs import on_nodes
from powerband.cluster.nodes_now import NodesNow
from powerband.live.follow import RunFollower
from powerband.live.openmetrics import exposition
from powerband.live.payload import run_row
from powerband.live.state import Outcome, RunState, TrialPhase
from powerband.store import RunDir

NOW_S = 1_800_000_000.0
NODES = {
    "a": {"trial": 1, "began_s": NOW_S, "phase": "measure", "phase_began_s": NOW_S + 2},
    "b": {"trial": 2, "began_s": NOW_S + 1, "phase": "ready", "phase_began_s": NOW_S + 1},
    "c": {"lost": "it did not report for 6 s"},
    "d": {},
}


@contextmanager
def held(run: RunDir) -> Iterator[None]:
    with (run.path / ".lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def settled(follower: RunFollower) -> RunState:
    state = follower.poll()
    while follower.more:
        state = follower.poll()
    return state


def test_each_node_is_told_with_what_it_runs(tmp_path: Path) -> None:
    run = on_nodes(tmp_path / "run", trials=3)
    follower = RunFollower(run.path, clock=lambda: NOW_S + 5)
    with held(run):
        NodesNow(run).write(NODES)
        state = settled(follower)
        assert [(node.name, node.does) for node in state.nodes] == [
            ("a", "runs"), ("b", "runs"), ("c", "lost"), ("d", "idle"),
        ]  # fmt: skip
        first, second = state.nodes[0].trial, state.nodes[1].trial
        assert first is not None and (first.number, first.phase, first.phase_began_s) == (
            1, TrialPhase.MEASURE, NOW_S + 2,
        )  # fmt: skip
        assert second is not None and second.phase is TrialPhase.LAUNCHED
        assert state.current is None
        assert [(line.node, line.outcome) for line in state.trials] == [
            ("a", Outcome.RUNNING), ("b", Outcome.RUNNING), ("", Outcome.RUNNING),
        ]  # fmt: skip
        assert state.started_s == NOW_S
        json.dumps(run_row(state, "run"), allow_nan=False)
        NodesNow(run).write({**NODES, "b": {"load_from": ["e"]}})
        after = settled(follower)
        assert after.nodes[1].does == "idle" and after.version > state.version
        assert [node.load_from for node in after.nodes[:2]] == [(), ("e",)]
        NodesNow(run).close()
        assert settled(follower).nodes == ()
    assert not run.nodes_now.exists()


def test_what_a_killed_run_left_says_nothing_of_one_at_rest(tmp_path: Path) -> None:
    run = on_nodes(tmp_path / "run", trials=2)
    NodesNow(run).write(NODES)
    state = settled(RunFollower(run.path))
    assert state.nodes == () and {line.outcome for line in state.trials} == {Outcome.LOST}


def test_a_run_on_one_machine_has_no_nodes_whatever_lies_there(tmp_path: Path) -> None:
    run = on_nodes(tmp_path / "run", trials=2, cluster=False)
    with held(run):
        NodesNow(run).write(NODES)
        state = settled(RunFollower(run.path))
        assert state.nodes == () and state.current is not None and state.current.number == 2


@pytest.mark.parametrize(
    "nodes",
    ["3", '{"a": 1}', '{"a": {"trial": "x", "lost": 2}}', '{"a": {"trial": 99}}', '{"a": {"trial": 1'],
)
def test_a_damaged_file_is_no_trouble(nodes: str, tmp_path: Path) -> None:
    run = on_nodes(tmp_path / "run", trials=1)
    run.nodes_now.write_text(f'{{"nodes": {nodes}}}')
    with held(run):
        assert all(node.does == "idle" for node in settled(RunFollower(run.path)).nodes)


def test_metrics_of_trials_on_nodes_have_their_label(tmp_path: Path) -> None:
    run = on_nodes(tmp_path / "run", trials=3)
    with held(run):
        NodesNow(run).write(NODES)
        page = exposition([settled(RunFollower(run.path))], None)[0].decode()
    measuring = [
        line for line in page.splitlines() if line.startswith("powerband_trial_phase{") and line.endswith(" 1.0")
    ]
    assert len(measuring) == 2 and 'node="a"' in measuring[0] and 'phase="measure"' in measuring[0]
    assert 'powerband_node_status{node="c",run="run",status="lost"} 1.0' in page
    assert 'powerband_node_status{node="d",run="run",status="idle"} 1.0' in page
    lines: Any = [line for line in page.splitlines() if line.startswith("powerband_run_")]
    assert lines and not any("node=" in line for line in lines)


def test_a_disk_that_is_full_costs_only_the_view(tmp_path: Path) -> None:
    NodesNow(RunDir(tmp_path / "gone")).write(NODES)
