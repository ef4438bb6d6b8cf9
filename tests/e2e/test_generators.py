"""Real engines are started by the program that runs them on another node, against a real server: clocks, counts,
faults.

All programs run on this machine; two of the three have a clock that is a day ahead."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from fakes.generators import clock_apart, generator_up
from fakes.hosts import hosts
from fakes.needs import need_hosts
from fakes.nodes import FakeNode, Watching, fake_nodes, joining
from fakes.stand import MS, short_load
from powerband.base.errors import UsageError
from powerband.cluster.far_engines import FarEngines, GeneratorLostError
from powerband.cluster.loading import far_engines
from powerband.cluster.nodes_bench import cluster_bench
from powerband.files.experiment_file import experiment_of
from powerband.files.resolved import resolved_yaml
from powerband.model.experiment import Experiment
from powerband.processes.engine_fleet import FleetInterval
from powerband.processes.stop_request import StopRequest
from powerband.readings.fleet import merge_fleet
from powerband.report.wording.findings import clock_sentences
from powerband.search.observer import Observer
from powerband.search.session import analyse_run, run_session
from powerband.store import RunDir
from powerband.trials.loadgen import run_load

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.usefixtures("no_process_left")]

DAY_S = 86_400


def served(url: str) -> int:
    """The number of requests that the server counts as answered, without this one."""
    page = urlopen(url + "metrics").read().decode()
    found = re.findall(r"^requests_total (\d+)$", page, re.MULTILINE)
    return int(found[0])


def test_clocks_a_day_apart_give_one_load_whose_sum_the_server_counted(
    url: str, stop: StopRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Beside other tests one of three nodes may hear of the start after the usual 50 ms, and would begin at once.
    monkeypatch.setattr("powerband.cluster.far_engines.REACH_NS", 3_000 * MS)
    warmup_ns = 200 * MS
    with ExitStack() as up:
        nodes = [
            up.enter_context(generator_up(name=name, before=clock_apart(seconds) if seconds else ()))[0]
            for name, seconds in (("b", 0), ("c", DAY_S), ("d", 2 * DAY_S))
        ]
        before = served(url)
        load = short_load(users=7, duration_ns=500 * MS)
        far, seen = FarEngines(nodes, "127.0.0.1"), list[FleetInterval]()
        result = run_load(url, load, stop=stop, warmup_ns=warmup_ns, engines=far, on_interval=seen.append)
    assert [clock.node for clock in result.generators] == ["b", "c", "d"]
    if clock_apart(DAY_S):
        for clock, days in zip(result.generators, (0, 1, 2), strict=True):
            assert abs(clock.offset_ns - days * DAY_S * 1000 * MS) <= clock.uncertainty_ns
    # All engines start at one instant of one clock, and their windows have the same edges.
    assert len({summary["go_ns"] for summary in result.summaries}) == 1
    assert {s["measure_start_ns"] - s["go_ns"] for s in result.summaries} == {warmup_ns}
    assert seen and all(interval.start_ns < 10**18 for interval in seen)
    answered = sum(summary["total"]["outcomes"]["ok"] for summary in result.summaries)
    assert {outcome for summary in result.summaries for outcome in summary["total"]["outcomes"]} == {"ok"}
    assert answered == served(url) - before
    merged = merge_fleet(result.summaries)
    assert merged is not None
    assert merged.times("response_time_ns").count == merged.cohort.ok, "histograms are merged exactly"
    assert len(result.summaries) == 3


@pytest.mark.parametrize("who", ["engine", "program"])
def test_a_kill_ends_the_load_with_a_reason_and_leaves_nothing(url: str, stop: StopRequest, who: str) -> None:
    with generator_up() as (node, process):
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        killed: list[int] = []

        def kill(interval: FleetInterval) -> None:  # once something was answered, however late the engine started
            if interval.ok and not killed:
                killed.append(process.pid if who == "program" else int(children.read_text().split()[0]))
                os.kill(killed[0], signal.SIGKILL)

        expected = "b, which makes the load, is gone" if who == "program" else r"ended without a summary \(signal 9\)"
        load, far = short_load(duration_ns=30_000 * MS), FarEngines([node], "127.0.0.1")
        with pytest.raises(Exception, match=expected) as raised:
            run_load(url, load, stop=stop, engines=far, on_interval=kill)
        assert killed and isinstance(raised.value, GeneratorLostError) == (who == "program")


@pytest.mark.long
def test_a_way_that_is_cut_ends_both_sides(engine: Path, tmp_path: Path) -> None:
    """The server and the driver run on one host, the engine on another. Both sides end long before the load of a
    minute; test_cluster.py, with the machine to itself, holds them to five seconds."""
    need_hosts()
    with hosts(2) as made:
        near, far = made.hosts
        url = f"http://{near.address}:18080/"
        near.start([str(engine), "serve", "--host", near.address, "--port", "18080"], {}, tmp_path / "server")
        inside = ["nsenter", f"--net=/run/netns/{far.name}"]
        with generator_up(before=inside, address=far.address) as (node, process):
            script = str(Path(__file__).parents[1] / "fakes" / "run_load.py")
            told = json.dumps(vars(node))
            driver = near.start(
                [sys.executable, script, url, "users=2", "seconds=60", f"generator={told}"], {}, tmp_path / "said"
            )
            engines = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            wait_for(lambda: engines.read_text().split() != [], 40)
            time.sleep(0.7)
            far.cut()
            wait_for(lambda: not engines.read_text().split(), 40)
            driver.wait(40)
        assert "b, which makes the load, is gone" in (tmp_path / "said").read_text()


def wait_for(what: Callable[[], bool], timeout_s: float) -> None:
    began = time.monotonic()
    while not what():
        assert time.monotonic() - began < timeout_s, "in vain"
        time.sleep(0.05)


# The tests below make whole runs, on nodes that are all this machine.


def experiment(**more: Any) -> Experiment:
    return experiment_of(
        {
            "name": "apart",
            "subject": {"use": "reference", "set": {"wait": "5ms"}},
            "factors": {"threads": [1, 4]},
            "load": {"users": 4, "duration": "300ms"},
            "measure": {"warmup": "100ms", "repeats": 2, "retries": 0},
            "design": {"order": "blocks", "seed": 5},
            "cluster": {"generators": 1},
            **more,
        }
    )


def go(made: Experiment, folder: Path, nodes: list[FakeNode], stop: StopRequest, observer: Observer) -> Any:
    run = RunDir.create(folder, made.name, resolved_yaml(made), {})
    return run, run_session(made, run, observer, stop, bench=cluster_bench(joining(nodes)))


def test_each_server_is_loaded_from_another_node(tmp_path: Path, stop: StopRequest) -> None:
    with fake_nodes("a", "b", "c", "d", "e") as nodes:
        watching = Watching()
        run, analysis = go(experiment(), tmp_path, nodes, stop, watching)
    assert watching.notes[0] == (
        "2 nodes of the cluster: b, d; whole rounds run on each, its load comes from: c for b; e for d"
    )
    assert {trial.status for trial in analysis.trials} == {"measured"}
    assert {tuple(nodes["b"]["load_from"]) for nodes in watching.seen} == {("c",)}
    late_ns = []
    for trial in analysis.trials:
        (clock,) = trial.generators
        assert (trial.node, clock.node) in {("b", "c"), ("d", "e")}
        assert abs(clock.offset_ns) <= clock.uncertainty_ns, "it is the same clock"
        record = run.trial(trial.number).read_record()
        (summary,) = record.engines
        late_ns.append(summary["go_ns"] - record.phases["go"])
        assert trial.metrics["engine_run_wait_ns_mean"] > 0, "how long engines over there waited for a CPU is known"
        assert record.cpus["subject"] == [] and trial.cpus is not None and not trial.cpus.shared
        assert not {problem.code for problem in trial.problems} & {"not_pinned", "clock_unknown", "engines_apart"}
        assert not any(
            line["name"].startswith("engine") for line in run.trial(trial.number).read_probe() if "name" in line
        )
    # On a busy machine an engine may get the start time too late; it then begins at once.
    assert min(late_ns) == 0 and max(late_ns) < 60e9, "by a clock that is a day ahead it would be hours"
    told = json.loads(run.nodes.read_text())["nodes"]
    assert told["c"]["loads"] == "b" and "loads" not in told["b"]
    assert analyse_run(experiment(), run).trials == analysis.trials
    # On a busy machine all trials of a node may be spoilt, and sentences are of valid ones: here all trials count.
    valid = replace(analysis, trials=tuple(replace(trial, problems=()) for trial in analysis.trials))
    text = "\n".join(clock_sentences(valid))
    # On a busy machine one node may run all rounds before the other is ready: only its generator's clock is told then.
    clocks = {clock.node for trial in analysis.trials for clock in trial.generators}
    assert clocks and all(f"clock of {node}: " in text for node in clocks) and " ± " in text


@pytest.mark.long
def test_a_node_whose_generator_is_killed_runs_no_trial_without_it(tmp_path: Path, stop: StopRequest) -> None:
    with fake_nodes("a", "b", "c", "d") as nodes:
        watching = Watching(3, nodes[2].kill_program)
        _, analysis = go(experiment(), tmp_path, nodes, stop, watching)
    assert {trial.node for trial in analysis.trials if trial.lost} <= {"b"}
    assert sum(trial.status == "measured" for trial in analysis.trials) >= 4
    assert any("c, which" in note for note in watching.notes), watching.notes


@pytest.mark.long
def test_a_node_whose_generator_is_not_heard_of_loses_its_block_which_runs_elsewhere(
    tmp_path: Path, stop: StopRequest
) -> None:
    """Each trial lasts longer than it takes to notice that the node is silent."""
    long = {"load": {"users": 4, "duration": "7s"}, "factors": {"threads": [1]}}
    made = experiment(**long, measure={"warmup": "100ms", "repeats": 1, "retries": 0})
    with fake_nodes("a", "b", "c", "d") as nodes:
        watching = Watching(1, lambda: setattr(nodes[2], "cut", True))
        _, analysis = go(made, tmp_path, nodes, stop, watching)
        nodes[2].cut = False
    assert {trial.node for trial in analysis.trials if trial.lost} == {"b"}
    assert {trial.node for trial in analysis.trials if trial.status == "measured"} == {"d"}
    assert any("c, which" in note for note in watching.notes), watching.notes


def test_too_few_nodes_are_told(tmp_path: Path, stop: StopRequest) -> None:
    with fake_nodes("a") as nodes, pytest.raises(UsageError, match="takes 2 nodes at least"):
        go(experiment(), tmp_path, nodes, stop, Observer())


def test_a_load_from_all_nodes_of_a_server_elsewhere(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="another server on each node"), far_engines(joining([]), url, ()):
        pass
