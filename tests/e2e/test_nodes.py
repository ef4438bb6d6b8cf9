"""Blocks run side by side on nodes, which are all this machine, without Ray; some nodes fail.

The tests assert where trials ran and that they are complete, never how fast anything was."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.nodes import FakeNode, Watching, fake_nodes, joining
from powerband.base.errors import MeasurementError, SubjectError
from powerband.base.procfs import all_processes
from powerband.cluster import actor, nodes_bench
from powerband.cluster.actor import environment
from powerband.cluster.nodes_bench import cluster_bench
from powerband.cluster.parcels import unpack
from powerband.files.experiment_file import experiment_of
from powerband.files.resolved import resolved_yaml
from powerband.model.experiment import Experiment
from powerband.model.results import Analysis, TrialResult
from powerband.processes.stop_request import StopRequest
from powerband.search.session import analyse_run, run_session
from powerband.store import RunDir

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.usefixtures("engine", "no_process_left")]


def short(**more: Any) -> Experiment:
    """An experiment with trials of half a second on a server that mostly waits."""
    return experiment_of(
        {
            "name": "nodes",
            "subject": {"use": "reference", "set": {"wait": "5ms"}},
            "factors": {"threads": [1, 2, 4]},
            "load": {"users": 4, "duration": "300ms"},
            "measure": {"warmup": "100ms", "repeats": 3, "retries": 0},
            "design": {"order": "blocks", "seed": 5},
            **more,
        }
    )


@pytest.fixture
def leased() -> Iterator[list[FakeNode]]:
    with fake_nodes("a", "b", "c") as made:
        yield made


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[FakeNode]]:
    """Nodes that a machine which pauses for seconds does not lose."""
    monkeypatch.setattr(actor, "LEASE_S", 60.0)
    monkeypatch.setattr(nodes_bench, "SILENT_S", 120.0)
    with fake_nodes("a", "b", "c") as made:
        yield made


def run_of(folder: Path, experiment: Experiment) -> RunDir:
    return RunDir.create(folder, experiment.name, resolved_yaml(experiment), {})


def go(
    experiment: Experiment, run: RunDir, nodes: list[FakeNode], stop: StopRequest, watching: Watching | None = None
) -> Analysis:
    return run_session(experiment, run, watching or Watching(), stop, bench=cluster_bench(joining(nodes)))


def nodes_of_blocks(analysis: Analysis) -> dict[int, set[str]]:
    found: dict[int, set[str]] = defaultdict(set)
    for trial in analysis.trials:
        found[trial.block].add(trial.node)
    return found


def check_whole(experiment: Experiment, run: RunDir, analysis: Analysis) -> None:
    """Checks that each setting has its blocks, each block on one node, and that the files give the same analysis
    again."""
    assert all(len(nodes) == 1 for nodes in nodes_of_blocks(analysis).values())
    measured: dict[int, set[str]] = defaultdict(set)
    for trial in analysis.trials:
        if trial.status == "measured":
            measured[trial.block].add(trial.setting.id)
            assert (run.trial(trial.number).path / "probe.jsonl").stat().st_size > 0
    whole = [block for block, settings in measured.items() if len(settings) == len(experiment.settings())]
    assert len(whole) >= experiment.measure.repeats
    assert [trial.number for trial in analysis.trials] == list(range(1, len(analysis.trials) + 1))
    again = analyse_run(experiment, run)
    assert (again.answer, again.trials, again.nodes) == (analysis.answer, analysis.trials, analysis.nodes)
    assert not [path for path in run.trials.iterdir() if path.name.startswith(".")]


def lost(analysis: Analysis) -> list[TrialResult]:
    return [trial for trial in analysis.trials if trial.lost]


def below(pid: int) -> set[int]:
    """The pids of a process and all its descendants; the process may have ended meanwhile."""
    children = defaultdict(set)
    for process in all_processes():
        children[process.parent].add(process.pid)
    found, open_ones = set(), {pid}
    while open_ones:
        found |= open_ones
        open_ones = {child for parent in open_ones for child in children[parent]} - found
    return found


def test_blocks_run_whole_on_each_node_at_the_same_time(
    tmp_path: Path, nodes: list[FakeNode], stop: StopRequest
) -> None:
    made = short()
    run = run_of(tmp_path, made)
    watching = Watching()
    analysis = go(made, run, nodes, stop, watching)
    check_whole(made, run, analysis)
    assert set().union(*nodes_of_blocks(analysis).values()) == {"a", "b", "c"}
    assert watching.notes[0] == "3 nodes of the cluster: a, b, c; whole rounds run on each"
    told = json.loads(run.nodes.read_text())
    assert set(told["nodes"]) == {"a", "b", "c"} and "actor_cores" in told["overhead"]["a"]
    assert analysis.nodes is not None and [row.blocks for row in analysis.nodes.rows] == [1, 1, 1]
    assert all(row.ray_cores is not None and row.cpus for row in analysis.nodes.rows)
    assert any(all("trial" in seen.get(name, {}) for name in "abc") for seen in watching.seen)
    assert not run.nodes_now.exists()


def test_the_time_between_two_trials_is_that_of_the_node_with_all_that_the_driver_does_meanwhile(
    tmp_path: Path, nodes: list[FakeNode], stop: StopRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It once began after the trial had been packed, sent and unpacked."""

    def slow(parcel: bytes, folder: Path) -> None:
        unpack(parcel, folder)
        time.sleep(1)

    monkeypatch.setattr(nodes_bench, "unpack", slow)
    made = short(factors={"threads": [1, 2]}, measure={"warmup": "100ms", "repeats": 1})
    run = run_of(tmp_path, made)
    go(made, run, nodes[:1], stop)
    assert json.loads(run.nodes.read_text())["overhead"]["a"]["between_s_max"] > 1


@pytest.mark.long
def test_a_node_whose_program_is_killed_loses_its_block_which_runs_again(
    tmp_path: Path, nodes: list[FakeNode], stop: StopRequest
) -> None:
    made = short()
    run = run_of(tmp_path, made)
    watching = Watching(5, nodes[1].kill_program)
    analysis = go(made, run, nodes, stop, watching)
    assert [trial.node for trial in lost(analysis)] == ["b"]
    check_whole(made, run, analysis)
    assert any("b is lost" in note and "stopped unexpectedly" in note for note in watching.notes)


@pytest.mark.long
def test_a_node_that_is_not_heard_ends_its_trial_by_itself_and_its_block_runs_elsewhere(
    tmp_path: Path, leased: list[FakeNode], stop: StopRequest
) -> None:
    nodes = leased
    long = {"load": {"users": 4, "duration": "8s"}, "factors": {"threads": [1]}}
    made = short(**long, measure={"warmup": "100ms", "repeats": 1})
    run = run_of(tmp_path, made)
    left: list[set[int]] = []

    def cut() -> None:
        pid, until_s = nodes[0].program, time.monotonic() + 30
        assert pid is not None
        while len(seen := below(pid)) < 5 and time.monotonic() < until_s:  # program, engine, probe, keeper, server
            time.sleep(0.05)
        nodes[0].cut = True
        while (still := seen & {process.pid for process in all_processes()}) and time.monotonic() < until_s:
            time.sleep(0.05)
        left.append(still if len(seen) >= 5 else seen)

    watching = Watching(1, cut)
    analysis = go(made, run, nodes[:2], stop, watching)
    assert [trial.node for trial in lost(analysis)] == ["a"]
    assert {trial.node for trial in analysis.trials if trial.status == "measured"} == {"b"}
    assert any("did not report" in note for note in watching.notes)
    assert left == [set()]


@pytest.mark.long
def test_a_node_that_is_heard_again_takes_part_again(tmp_path: Path, leased: list[FakeNode], stop: StopRequest) -> None:
    nodes = leased
    made = short(measure={"warmup": "100ms", "repeats": 12})
    run = run_of(tmp_path, made)

    def cut() -> None:
        nodes[0].cut = True
        time.sleep(7)
        nodes[0].cut = False

    watching = Watching(4, cut)
    analysis = go(made, run, nodes[:2], stop, watching)
    check_whole(made, run, analysis)
    assert "a is back" in watching.notes
    back = max(trial.number for trial in lost(analysis))
    assert any(trial.node == "a" and trial.number > back for trial in analysis.trials)


@pytest.mark.long
def test_a_stopped_run_goes_on_with_other_nodes(tmp_path: Path, nodes: list[FakeNode], stop: StopRequest) -> None:
    made = short(measure={"warmup": "100ms", "repeats": 4})
    run = run_of(tmp_path, made)
    go(made, run, nodes[:2], stop, Watching(4, stop.request))
    first = [record.spec.number for record in run.records()]
    assert 3 < len(first) < 12
    again = StopRequest()
    analysis = go(made, run, nodes[1:], again)
    again.close()
    check_whole(made, run, analysis)
    assert {"b", "c"} <= {trial.node for trial in analysis.trials}
    assert all(trial.node != "a" for trial in analysis.trials if trial.number > max(first) and not trial.lost)


@pytest.mark.long
@pytest.mark.parametrize("by_hand", ["", "raise SystemExit('an older server')"], ids=["none", "an older one"])
def test_a_resumed_run_builds_in_each_new_copy_of_the_sources(
    tmp_path: Path, nodes: list[FakeNode], stop: StopRequest, by_hand: str
) -> None:
    """The copy that the first session built in was removed at its end. The user's own folder may hold a server."""
    folder = tmp_path / "server"
    folder.mkdir()
    (folder / "source.py").write_text(SERVER)
    if by_hand:
        (folder / "server.py").write_text(by_hand)
    command = ["python3", "server.py", "{port}", "{threads}"]
    own = {"name": "own", "build": ["cp", "source.py", "server.py"], "command": command, "cwd": str(folder)}
    few = {"factors": {"threads": [1, 2]}, "measure": {"warmup": "100ms", "repeats": 3}}
    made = short(subject=own, **few, cluster={"files": [str(folder)]})
    run = run_of(tmp_path, made)
    go(made, run, nodes[:1], stop, Watching(3, stop.request))
    assert 2 < len(list(run.records())) < 6
    again = StopRequest()
    analysis = go(made, run, nodes[1:2], again)
    again.close()
    check_whole(made, run, analysis)
    assert {trial.status for trial in analysis.trials if trial.node == "b"} == {"measured"}


@pytest.mark.long
def test_a_node_of_another_cluster_that_has_an_old_one_s_name_is_told_apart(
    tmp_path: Path, nodes: list[FakeNode], stop: StopRequest
) -> None:
    made = short(measure={"warmup": "100ms", "repeats": 4})
    run = run_of(tmp_path, made)
    go(made, run, nodes[:2], stop, Watching(4, stop.request))
    nodes[0].facts = {"cpu": {"model": "Example 4000", "allowed": [0, 1, 2, 3]}}
    again, watching = StopRequest(), Watching()
    analysis = go(made, run, nodes, again, watching)
    again.close()
    check_whole(made, run, analysis)
    assert any("a is another machine than when this run was left" in note for note in watching.notes)
    assert analysis.nodes is not None and {row.node for row in analysis.nodes.rows} >= {"a", "a (127.0.0.1)", "c"}
    assert set(json.loads(run.nodes.read_text())["nodes"]) == {"a", "a (127.0.0.1)", "b", "c"}


def test_nodes_that_differ_are_named_before_anything_starts(
    tmp_path: Path, nodes: list[FakeNode], stop: StopRequest
) -> None:
    made = short()
    nodes[2].facts = {"versions": {"powerband": "0.1.0", "engine": "powerband-engine 0.0.9", "python": "3.11.2"}}
    with pytest.raises(MeasurementError, match=r"c has engine powerband-engine 0\.0\.9.*; c has python 3\.11\.2, this"):
        go(made, run_of(tmp_path, made), nodes, stop)
    assert nodes[0].program is None


def test_what_cannot_start_on_a_node_ends_the_run_with_its_name(
    tmp_path: Path, nodes: list[FakeNode], stop: StopRequest
) -> None:
    folder = tmp_path / "server"
    folder.mkdir()
    made = short(subject={"name": "own", "command": ["./none", "{port}", "{threads}"], "cwd": str(folder)})
    with pytest.raises(SubjectError, match="none"):
        go(made, run_of(tmp_path, made), nodes, stop)


def test_the_folder_of_a_subject_is_copied_to_each_node_named_and_removed(
    tmp_path: Path, nodes: list[FakeNode], stop: StopRequest
) -> None:
    """Without a build nothing makes anew what such folders hold."""
    folder = tmp_path / "server"
    (folder / "node_modules").mkdir(parents=True)
    (folder / "node_modules" / "server.py").write_text(SERVER)
    own = {"name": "own", "command": ["python3", "node_modules/server.py", "{port}", "{threads}"], "cwd": str(folder)}
    made = short(subject=own, factors={"threads": [1, 2]}, cluster={"files": [str(folder)]})
    run = run_of(tmp_path, made)
    watching = Watching()
    analysis = go(made, run, nodes[:2], stop, watching)
    check_whole(made, run, analysis)
    assert f"copied to each node, and removed there at the end: {folder} (1 file, 0.0 MB)" in watching.notes
    where = {Path((run.trial(trial.number).path / "subject.log").read_text().strip()) for trial in analysis.trials}
    assert len(where) == 2 and not any(path == folder or path.exists() for path in where)


@pytest.mark.parametrize("there", ["of ray start", None])
def test_variables_are_taken_from_the_environment_that_powerband_is_started_in(
    tmp_path: Path, nodes: list[FakeNode], stop: StopRequest, monkeypatch: pytest.MonkeyPatch, there: str | None
) -> None:
    """Ray's own may hold older values, or none: those that the server or a header names are sent to each node."""
    older = {} if there is None else dict.fromkeys(("NODES_MODE", "NODES_TOKEN", "NODES_UNSET"), there)
    raylet = environment() | older
    monkeypatch.setattr(actor, "environment", lambda: raylet)
    monkeypatch.setenv("NODES_MODE", "of powerband")
    monkeypatch.setenv("NODES_TOKEN", "secret")
    (tmp_path / "server.py").write_text(SERVER.replace("os.getcwd()", "os.environ['NODES_MODE']"))
    command = ["python3", "server.py", "{port}", "{threads}"]
    own: dict[str, Any] = {"name": "own", "command": command, "cwd": str(tmp_path), "env": {"NODES_MODE": None}}
    step = {"path": "/", "headers": {"Authorization": "Bearer {env:NODES_TOKEN}"}}
    load = {"users": 4, "duration": "300ms", "scenario": [step]}
    few = {"factors": {"threads": [1, 2]}, "measure": {"warmup": "100ms", "repeats": 1}, "load": load}
    made = short(subject=own, **few)
    run = run_of(tmp_path, made)
    analysis = go(made, run, nodes[:1], stop)
    assert {trial.status for trial in analysis.trials} == {"measured"}
    assert {(run.trial(trial.number).path / "subject.log").read_text() for trial in analysis.trials} == {
        "of powerband\n"
    }
    unset = short(subject=own | {"env": {"NODES_UNSET": None}}, **few)
    with pytest.raises(SubjectError, match="a: NODES_UNSET is not set"):
        go(unset, run_of(tmp_path / "unset", unset), nodes[:1], stop)


SERVER = """
import http.server, os, sys
print(os.getcwd(), flush=True)
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(200 if self.headers.get("Authorization") in (None, "Bearer secret") else 401)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
