"""Keeps in touch with the nodes of a run: their facts, whether they are alike, and when each was last heard from.

The actor on a node has a lease (`actor.py`), so the driver must tell it again and again that it is still there.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from powerband.base.errors import MeasurementError
from powerband.cluster.actor import LEASE_S
from powerband.cluster.joining import JOIN_S, Remote, why_missing
from powerband.cluster.node import END_S, KINDS, LOST
from powerband.processes.engine_fleet import find_engine
from powerband.processes.host import versions

SILENT_S = LEASE_S + END_S + 1.0
"""A node that was not heard from for so long counts as lost; its lease has ended by then."""
BEAT_S = 1.0
CLOSE_S = 5.0
_REACHED_BY = ("address", "port", "secret", "descriptor_limit", "local_ports")


@dataclass
class ClusterNode:
    """A node with its facts and its heartbeat. `remote`: its actor; `facts`: as in `host.json`, empty until read.
    `answered_s`, `asked_s`: when the last heartbeat was answered, and when it was sent, by the monotonic clock; `beat`:
    the last heartbeat, None before the first; `phase`: the phase of the node's trial, empty if none runs."""

    remote: Remote
    facts: dict[str, Any] = field(default_factory=dict)
    answered_s: float = 0.0
    asked_s: float = 0.0
    beat: Future[Any] | None = None
    phase: str = ""

    @property
    def name(self) -> str:
        """The node's name in messages and records."""
        return self.remote.name

    def answered(self, beat: Future[Any]) -> None:
        """Notes the answer to a heartbeat; an error is no sign of life."""
        if beat.exception() is None:
            self.phase, self.answered_s = beat.result(), time.monotonic()

    def generate(self) -> dict[str, Any]:
        """Starts the program that runs engines on this node for another machine, and waits until it listens. Returns
        the fields of a `Generator`, or `failed`, also if no answer came."""
        order = {"address": self.remote.address, "secret": secrets.token_hex(32)}
        answer = _answer(self.remote.call("generate", order), JOIN_S)
        return answer if "failed" in answer else {"name": self.name, **{name: answer[name] for name in _REACHED_BY}}


class Heartbeat:
    """Sends each node a heartbeat every second, from its own thread; one call to each at a time."""

    def __init__(self, nodes: Sequence[ClusterNode]) -> None:
        self._nodes = nodes
        self._closed = threading.Event()

    def begin(self) -> None:
        """Starts the thread; each node counts as heard now."""
        for node in self._nodes:
            node.answered_s = time.monotonic()
        threading.Thread(target=self._beat, daemon=True).start()

    def end(self) -> None:
        """Stops the heartbeat, and ends what runs on the nodes. Safe to call without `begin`."""
        self._closed.set()
        calls = []
        for node in self._nodes:
            with suppress(Exception):
                calls.append(node.remote.call("close"))
        wait(calls, CLOSE_S)

    def _beat(self) -> None:
        while not self._closed.wait(BEAT_S):
            for node in self._nodes:
                waits = node.beat is not None and not node.beat.done()
                if waits and time.monotonic() - node.asked_s < SILENT_S:
                    continue
                node.asked_s = time.monotonic()
                with suppress(Exception):
                    node.beat = node.remote.call("heard")
                    node.beat.add_done_callback(node.answered)


def read_facts(nodes: Iterable[ClusterNode]) -> None:
    """Gets the facts of each node. Raises MeasurementError if a node does not answer, or if nodes have other versions
    than this machine, since results of unlike nodes do not make one experiment."""
    asked = [(node, node.remote.call("facts")) for node in nodes]
    for node, future in asked:
        node.facts = node_answer(node.name, future, JOIN_S)
    here = versions(find_engine())
    wrong = [
        f"{node.name} has {name} {node.facts['versions'][name]}, this machine {here[name]}"
        for node, _ in asked
        for name in here
        if node.facts["versions"][name] != here[name]
    ]
    if wrong:
        raise MeasurementError(
            f"the nodes are not alike: {'; '.join(wrong)}. Install the same on each, Python to its patch level, "
            "and start Ray there anew; or leave a node out (cluster.nodes)"
        )


def node_answer(name: str, future: Future[Any], timeout_s: float) -> Any:
    """Waits for the answer of a node and returns it. Raises the error of the node, with the node's name."""
    return checked(name, _answer(future, timeout_s))


def _answer(future: Future[Any], timeout_s: float) -> Any:
    """Waits for the answer of a node and returns it; if none comes, an answer that says so (`failed`)."""
    try:
        return future.result(timeout_s)
    except TimeoutError:
        message = f"powerband's actor did not answer for {timeout_s:.0f} s"
    except Exception as error:  # Ray's own
        message = why_missing(error)
    return {"failed": {"kind": LOST, "message": message}}


def checked(name: str, answer: Any) -> Any:
    """The answer of a node. Raises the error that went wrong there if it has `failed`."""
    if failed := answer.get("failed"):
        log = f"\n{failed['build_log'][-2000:]}" if failed.get("build_log") else ""
        raise KINDS.get(failed["kind"], MeasurementError)(f"{name}: {failed['message']}{log}")
    return answer
