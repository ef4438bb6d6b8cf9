"""Nodes without Ray: the same actor in this process, and the same program below it, with links that can be cut."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from powerband.cluster.actor import NodeActor
from powerband.cluster.joining import Remote
from powerband.model.experiment import Experiment
from powerband.model.plan import TrialSpec
from powerband.model.results import TrialResult
from powerband.search.observer import Observer
from powerband.store import RunDir, TrialRecord


class GoneError(Exception):
    """The error of a call to a dead node, as Ray raises it for an actor that died."""


class FakeNode:
    """A node. `cut`: no message arrives, in either direction, and nobody is told so."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self.name, self.cut, self.dead = name, False, False
        self.facts: dict[str, Any] = {}  # these replace those of this machine
        self._loop = loop
        self.actor = NodeActor()

    def call(self, method: str, *arguments: object) -> Future[Any]:
        future: Future[Any] = Future()
        if self.dead:
            future.set_exception(GoneError(self.name))
        if self.cut or self.dead:
            return future

        def answered(done: Future[Any]) -> None:
            if self.cut:
                return
            if self.dead:
                future.set_exception(GoneError(self.name))
            elif (error := done.exception()) is not None:
                future.set_exception(error)
            else:
                answer = done.result()
                if method == "facts" and self.facts:
                    answer = {**answer, **self.facts}
                future.set_result(answer)

        asyncio.run_coroutine_threadsafe(getattr(self.actor, method)(*arguments), self._loop).add_done_callback(
            answered
        )
        return future

    @property
    def program(self) -> int | None:
        """The pid of the program that runs trials; None if there is none."""
        process = self.actor._program
        return None if process is None or process.returncode is not None else process.pid

    def kill_program(self) -> None:
        """Kills the program without asking it, as Ray does with the programs of an actor."""
        pid = self.program
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self.actor.close(), self._loop).result(60)


@contextmanager
def fake_nodes(*names: str) -> Iterator[list[FakeNode]]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    nodes = [FakeNode(name, loop) for name in names]
    try:
        yield nodes
    finally:
        for node in nodes:
            node.close()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def joining(nodes: Sequence[FakeNode]) -> Any:
    """A stand-in for `joining.joined` that joins these nodes."""

    @contextmanager
    def join() -> Iterator[list[Remote]]:
        yield [Remote(node.name, "127.0.0.1", node.call) for node in nodes]

    return join


class Watching(Observer):
    """An observer that calls `act` once, this long after a trial with this number or a later one has begun."""

    def __init__(self, number: int = 0, act: Callable[[], None] | None = None, *, after_s: float = 0.3) -> None:
        self.notes: list[str] = []
        # What the live page sees as a trial ends; a short trial may end before any of its phases is heard of.
        self.seen: list[dict[str, Any]] = []
        self._number, self._act, self._after_s = number, act, after_s
        self._run: RunDir | None = None

    def run_started(self, experiment: Experiment, run: RunDir, planned_total: int, done: int) -> None:
        self._run = run

    def trial_ended(self, record: TrialRecord, result: TrialResult) -> None:
        if self._run is not None and self._run.nodes_now.is_file():
            self.seen.append(json.loads(self._run.nodes_now.read_text())["nodes"])

    def note(self, text: str) -> None:
        self.notes.append(text)

    def trial_started(self, spec: TrialSpec, planned_total: int) -> None:
        if self._act is not None and spec.number >= self._number:
            act, self._act = self._act, None
            threading.Timer(self._after_s, act).start()
