"""Engines are started by the program that runs them on another node: two processes of this machine, no Ray, no root."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.generators import generator_up
from powerband.base.procfs import all_processes
from powerband.cluster.far_engines import FarEngine, FarEngines, Generator, GeneratorLostError, in_our_time
from powerband.cluster.generator import proof
from powerband.model.clocks import Offset
from powerband.wire.specs import Drain, Go

HOUR_NS = 3_600_000_000_000
# Stands in for an engine: repeats its input, and ends with it.
ECHO = """#!{python}
import os, sys
print('{{"type":"hello","pid":%d,"monotonic_ns":7}}' % os.getpid(), flush=True)
for line in sys.stdin:
    if "drain" in line:
        print("last words", file=sys.stderr)
        print("half a line", end="", flush=True)
        sys.exit(3)
    print(line, end="", flush=True)
"""


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Generator]:
    with echoing(tmp_path, monkeypatch) as (made, _):
        yield made


def echoing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    engine = folder / "engine"
    engine.write_text(ECHO.format(python=sys.executable))
    engine.chmod(0o755)
    monkeypatch.setenv("POWERBAND_ENGINE", str(engine))
    return generator_up()


def lines(engine: FarEngine, count: int) -> list[Any]:
    found: list[Any] = []
    deadline = time.monotonic() + 10
    while len(found) < count and time.monotonic() < deadline:
        found += map(json.loads, engine.read_lines() or [])
        time.sleep(0.005)
    return found


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not what():
        assert time.monotonic() < deadline, "in vain"
        time.sleep(0.01)


def is_there(pid: int) -> bool:
    return any(process.pid == pid for process in all_processes())


def test_instants_go_out_by_the_clock_there_and_come_back_by_ours(node: Generator, tmp_path: Path) -> None:
    with FarEngine(node, Offset(HOUR_NS, 10), tmp_path / "log") as engine:
        engine.send(Go(at_ns=1000))
        hello, go = lines(engine, 2)
    assert go == {"type": "go", "at_ns": HOUR_NS + 1000}
    assert hello["monotonic_ns"] == 0


def test_lengths_and_instants_that_were_never_reached_stay_as_they_are() -> None:
    summary = b'{"type":"summary","go_ns":500,"measure_start_ns":0,"window":{"user_ns":44},"end_ns":900}\n'
    assert json.loads(in_our_time(summary, Offset(100, 1))) == {
        **{"type": "summary", "go_ns": 400, "measure_start_ns": 0},
        **{"window": {"user_ns": 44}, "end_ns": 800},
    }
    assert in_our_time(b"no event\n", Offset(100, 1)) == b"no event\n"
    assert in_our_time(b'{"type":"phase"}\n', Offset(100, 1)) == b'{"type":"phase"}\n'


def test_an_engine_that_ends_tells_its_status_and_its_last_words(node: Generator, tmp_path: Path) -> None:
    with FarEngine(node, Offset(0, 1), tmp_path / "log") as engine:
        (hello,) = lines(engine, 1)
        assert engine.wait(0) is None
        engine.send(Drain())
        until(lambda: engine.read_lines() is None)
        assert engine.wait(0) == 3
    assert (tmp_path / "log").read_text() == "last words\n"
    assert not is_there(hello["pid"])


def test_whoever_leaves_ends_the_engine(node: Generator, tmp_path: Path) -> None:
    with FarEngine(node, Offset(0, 1), tmp_path / "log") as engine:
        (hello,) = lines(engine, 1)
    assert not is_there(hello["pid"])
    assert node.clock().uncertainty_ns > 0, "the program is there for the next"


def test_without_the_secret_there_is_no_engine_and_no_time(node: Generator, tmp_path: Path) -> None:
    other = Generator(node.name, node.address, node.port, "guessed", 0, 0)
    with pytest.raises(GeneratorLostError):
        other.clock()
    with FarEngine(other, Offset(0, 1), tmp_path / "log") as engine:
        until(lambda: engine.read_lines() is None)
        with pytest.raises(GeneratorLostError):
            engine.wait(0)
    assert proof("a", "n") != proof("b", "n")


def test_a_program_that_is_killed_is_told_from_an_engine_that_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        echoing(tmp_path, monkeypatch) as (node, process),
        FarEngine(node, Offset(0, 1), tmp_path / "log") as engine,
    ):
        (hello,) = lines(engine, 1)
        os.kill(process.pid, signal.SIGKILL)
        until(lambda: engine.read_lines() is None)
        with pytest.raises(GeneratorLostError, match="b, which makes the load, is gone"):
            engine.wait(0)
        until(lambda: not is_there(hello["pid"]))
        with pytest.raises(GeneratorLostError):
            node.clock()


def test_the_end_of_its_stdin_ends_all_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with echoing(tmp_path, monkeypatch) as (node, process):
        engine = FarEngine(node, Offset(0, 1), tmp_path / "log")
        (hello,) = lines(engine, 1)
        process.stdin.close()
        assert process.wait(10) == 0
        assert not is_there(hello["pid"])
        engine.close()


def test_nodes_take_turns_and_each_tells_its_clock(node: Generator, tmp_path: Path) -> None:
    engines = FarEngines([node, Generator("c", node.address, node.port, node.secret, 100, 50)], "10.0.0.1")
    assert (engines.machines, engines.descriptor_limit, engines.local_ports) == (2, 100, 50)
    engines.before()
    for index in range(3):
        engines.start(index, tmp_path / "log").close()
    told = engines.after()["generators"]
    assert [(each["node"], each["engines"]) for each in told] == [("b", [0, 2]), ("c", [1])]
    assert all(abs(each["offset_ns"]) <= each["uncertainty_ns"] for each in told), "it is the same clock"
