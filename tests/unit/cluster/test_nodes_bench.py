"""A bench of nodes that do as a test says: what it tells a node that gets ready, for the first time or again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from fakes.nodes import Watching
from fakes.trials import experiment
from powerband.base.errors import MeasurementError
from powerband.cluster import loading, nodes_bench
from powerband.cluster.heartbeat import ClusterNode
from powerband.cluster.joining import Remote
from powerband.cluster.node import LOST
from powerband.cluster.nodes_bench import ClusterBench, _Place
from powerband.processes.stop_request import StopRequest
from powerband.store import RunDir
from powerband.trials.bench import Job

Answers = Callable[[str, Future[Any]], None]


@pytest.fixture
def watching() -> Watching:
    return Watching()


@pytest.fixture
def job(tmp_path: Path, stop: StopRequest, watching: Watching) -> Job:
    return Job(experiment(), RunDir.create(tmp_path, "x", "name: x\n", {}), watching, stop, lambda _: True)


def bench_of(job: Job, answers: Answers) -> tuple[ClusterBench, _Place]:
    """A bench of one node, which was heard just now. `answers`: gets the name of each call, and its answer to make."""

    def call(method: str, *_: object) -> Future[Any]:
        answer: Future[Any] = Future()
        answers(method, answer)
        return answer

    bench = ClusterBench(job, [Remote("b", "127.0.0.1", call)])
    (node,) = bench._nodes.values()
    node.answered_s = time.monotonic()
    return bench, node


def test_a_node_that_did_not_heed_a_stop_is_told_again(job: Job) -> None:
    """Its actor forgets it while it unpacks, and the whole build would run before the run ends."""
    opening: list[Future[Any]] = []
    stops: list[str] = []

    def answers(method: str, answer: Future[Any]) -> None:
        if method == "open":
            opening.append(answer)
        else:
            stops.append(method)
            if len(stops) == 2:
                opening[0].set_result({"said": "ready"})

    bench, node = bench_of(job, answers)
    node.trial = bench._opening(node)
    job.stop.request()
    bench._wait_open(node)
    assert stops == ["stop"] * 2


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (TimeoutError(), "powerband's actor did not answer for 30 s"),
        (RuntimeError("of Ray"), "powerband's actor gave no answer: of Ray"),
    ],
)
def test_a_node_that_goes_away_before_its_engine_listens_is_named(
    job: Job, monkeypatch: pytest.MonkeyPatch, error: Exception, why: str
) -> None:
    """Whether it loads the server of another node, or one of nobody's."""

    def call(method: str, *_: object) -> Future[Any]:
        answer: Future[Any] = Future()
        if method == "generate":
            answer.set_exception(error)
        else:
            answer.set_result("")
        return answer

    gone = Remote("b", "127.0.0.1", call)
    bench, node = bench_of(job, lambda *_: None)
    node.generators = (ClusterNode(gone),)
    answer = bench._opened(node, {"generators": []})
    assert answer == {"failed": {"kind": LOST, "message": f"b, which is to load it: {why}"}}
    monkeypatch.setattr(loading, "read_facts", lambda nodes: None)
    loaded = loading.far_engines(lambda: nullcontext([gone]), "http://10.0.0.1/", ["10.0.0.1"])
    with pytest.raises(MeasurementError, match=f"^b: {why}$"), loaded:
        pass


@pytest.mark.parametrize(("kind", "out"), [("SubjectError", True), ("MeasurementError", True), (LOST, False)])
def test_a_lost_node_that_cannot_get_ready_again_is_out_and_says_why(
    job: Job, watching: Watching, kind: str, *, out: bool
) -> None:
    calls: list[str] = []

    def answers(method: str, answer: Future[Any]) -> None:
        calls.append(method)
        answer.set_result({"failed": {"kind": kind, "message": "the server's build failed"}})

    bench, node = bench_of(job, answers)
    node.lost = "it did not report for 6 s"
    for _ in range(6):
        bench._welcome_back()
    assert node.out is out and bench._there == []
    assert watching.notes == (["b does not come back: the server's build failed"] if out else [])
    assert node.now() == {"lost": "the server's build failed" if out else "it did not report for 6 s"}
    assert calls == ["open"] * (1 if out else 3)


def test_a_lost_node_that_gets_ready_again_takes_part_again(job: Job, watching: Watching) -> None:
    calls: list[str] = []

    def answers(method: str, answer: Future[Any]) -> None:
        calls.append(method)
        if len(calls) == 1:
            answer.set_exception(RuntimeError("of Ray"))
        else:
            answer.set_result({"said": "ready"})

    bench, node = bench_of(job, answers)
    node.lost = "it did not report for 6 s"
    for _ in range(4):
        bench._welcome_back()
    assert list(bench.places) == ["b"] and watching.notes == ["b is back"] and calls == ["open"] * 2


@pytest.mark.parametrize(
    ("what", "left"), [("it builds", ["b"]), ("it fails", []), ("it is silent", []), ("a stop is requested", [])]
)
def test_the_only_node_is_waited_for_as_long_as_it_gets_ready_again(
    job: Job, monkeypatch: pytest.MonkeyPatch, what: str, left: list[str]
) -> None:
    """Its build may take longer than a node that is gone is waited for."""
    monkeypatch.setattr(nodes_bench, "BACK_S", 0.2)
    opening: list[Future[Any]] = []
    bench, node = bench_of(job, lambda _, answer: opening.append(answer))
    node.lost = "it did not report for 6 s"

    def later() -> None:
        if what == "it is silent":
            node.answered_s -= nodes_bench.SILENT_S
        elif what == "a stop is requested":
            job.stop.request()
        else:
            failed = {"failed": {"kind": "SubjectError", "message": "the server's build failed"}}
            opening[0].set_result({"said": "ready"} if left else failed)

    threading.Timer(0.8, later).start()
    began_s = time.monotonic()
    assert list(bench.places) == left and len(opening) == 1
    assert time.monotonic() - began_s > 0.7
