"""Event loops, and workers that take their next connection as loops do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes.scenes import pool, scene, tried
from fakes.trials import Figures, experiment, record_of, spec
from powerband.analyze.trial.bottleneck.rules import bottleneck_of
from powerband.analyze.trial.bottleneck.scene import scene_of
from powerband.model.bottlenecks import BottleneckName
from powerband.readings.evidence import Evidence
from powerband.readings.fleet import merge_fleet

B = BottleneckName


def test_workers_told_apart_are_counted_together() -> None:
    first = replace(pool("uwsgi (event loop)", 0.1, 0.1, sleep=1.8), polled=1.0)
    seen = scene(pool("uwsgi", 0.2, 0.2, sleep=5.6), first, tried=tried(8), held={"uwsgi": 15})
    found = bottleneck_of(seen)
    assert found is not None and found.name is B.POOL_TOO_SMALL
    assert found.evidence[0] == "on average 7.4 of the 8 `uwsgi` threads are sleeping"
    assert found.evidence[1] == "56 requests wait until a thread takes their connection"


def test_a_loop_of_java_that_hangs_is_told_by_the_connections_of_its_process() -> None:
    """The loop has another name than its process. Most users wait until it accepts them."""
    loop = replace(pool("vert.x-eventloo", 0.01, 0.01, lock=0.98), polled=1.0)
    found = bottleneck_of(scene(loop, accept_queue=40.0, tried=tried(1), held={"java": 45}))
    assert found is not None and found.name is B.EVENT_LOOP_BLOCKED
    assert "start more" not in found.advice


def test_workers_that_outnumber_the_requests_let_none_wait() -> None:
    first = replace(pool("uwsgi (event loop)", 0.01, 0.1, sleep=1.5, poll=0.39), polled=1.0)
    threads = pool("uwsgi", 0.02, 0.1, sleep=3.9, lock=2.0)
    assert bottleneck_of(scene(threads, first, present=6.0, held={"uwsgi": 12})) is None


def test_loops_that_wait_for_each_other_are_not_to_be_more() -> None:
    """Eight workers block on a row that one of them holds."""
    loops = replace(pool("uvicorn", 0.1, 0.0, socket=7.8, poll=0.1), polled=8.0)
    one, each = (bottleneck_of(scene(loops, tried=tried(slots), held={"uvicorn": 90})) for slots in (1, 8))
    assert one is not None and each is not None and one.name is each.name is B.EVENT_LOOP_BLOCKED
    assert "would only wait for it, too" in one.advice and "run more event loops" in each.advice


@pytest.mark.parametrize(("sockets", "name"), [(7, B.POOL_TOO_SMALL), (130, B.EVENT_LOOP_BLOCKED)])
def test_workers_that_compute_are_no_loops_if_each_holds_a_connection(sockets: int, name: BottleneckName) -> None:
    """Two processes of gunicorn on four CPUs, which wait for their next connection in select."""
    workers = replace(pool("gunicorn", 1.96, 0.02, poll=0.02, busiest=0.98), polled=1.0)
    figures = {"subject_cpu_share": 0.49}
    found = bottleneck_of(scene(workers, cpus=4.0, metrics=figures, tried=tried(2), held={"gunicorn": sockets}))
    assert found is not None and found.name is name
    if name is B.POOL_TOO_SMALL:
        assert found.evidence[:2] == (
            "all 2 `gunicorn` threads are computing",
            "62 requests wait until a thread takes their connection",
        )
        assert found.advice.endswith("each serves one request at a time; from about 4 on, CPU is the limit")


def test_connections_within_a_server_are_read_from_its_record() -> None:
    record = replace(record_of(spec(), Figures()), slots={"outgoing": 0, "inside": {"nginx": 120, "node": 2}})
    fleet = merge_fleet(record.engines)
    assert fleet is not None
    read = scene_of(Evidence.read(record, experiment(), fleet, (), None), {}, ())
    assert read.inside == {"nginx": 120, "node": 2}
