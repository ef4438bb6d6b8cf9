"""Runs engines on other nodes through the program of `generator.py` there, as a fleet needs them
(`processes/engines.py`).

Instants are converted to the engine's clock in commands and to ours in events, by the offset of the clocks that is read
before the fleet starts; after its end the offset is read again, and both are recorded. Durations stay as the engine
measured them. If a node is lost, GeneratorLostError is raised, and the trial did not happen; an engine that ends by
itself is no lost node.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from powerband.base.errors import MeasurementError
from powerband.cluster.generator import END_S, GREETING_S, proof, watch_peer
from powerband.model.clocks import Exchange, GeneratorNode, Offset, offset_of
from powerband.store import open_private, writing
from powerband.wire.message import Wire, encode, kind_of
from powerband.wire.specs import Go, StartMeasure

EXCHANGES = 24  # arbitrary: some ms in all; one of so many meets no delay but that of the network
REACH_NS = 50_000_000
"""The time for a command to arrive on a busy node, besides the network: two programs pass it on."""
_READ_BYTES = 1 << 18
# The fields of each event that hold instants of the engine's clock; 0 is an instant that was never reached.
_INSTANTS: Mapping[str, tuple[str, ...]] = {
    "hello": ("monotonic_ns",),
    "armed": ("at_ns",),
    "phase": ("at_ns",),
    "interval": ("start_ns", "end_ns"),
    "summary": ("go_ns", "measure_start_ns", "measure_end_ns", "end_ns"),
}


class GeneratorLostError(MeasurementError):
    """A node that makes the load is lost, or the connection to it."""

    def __init__(self, node: str, why: str) -> None:
        super().__init__(f"{node}, which makes the load, is gone: {why}")


@dataclass(frozen=True)
class Generator:
    """A node that runs engines (`generator.py`), and how to reach it. `name`: in messages and records; `address`,
    `port`: where its program listens; `secret`: the one that the program was given; `descriptor_limit`: how many
    descriptors one engine there may open; `local_ports`: how many connections to one destination the node may open."""

    name: str
    address: str
    port: int
    secret: str
    descriptor_limit: int
    local_ports: int

    def connect(self, wants: str) -> socket.socket:
        """Opens a connection for `clock` or `engine`. Raises GeneratorLostError."""
        try:
            connection = socket.create_connection((self.address, self.port), GREETING_S)
            watch_peer(connection)
            nonce = _read_line(connection).decode()
            connection.sendall(json.dumps({"proof": proof(self.secret, nonce), "wants": wants}).encode() + b"\n")
        except (OSError, ValueError) as error:
            raise GeneratorLostError(self.name, f"no connection ({error})") from error
        return connection

    def clock(self) -> Offset:
        """Reads the node's clock, and returns its offset from ours now. Raises GeneratorLostError."""
        with self.connect("clock") as connection:
            try:
                return offset_of([_exchange(connection) for _ in range(EXCHANGES)])
            except (OSError, ValueError) as error:
                raise GeneratorLostError(self.name, f"it does not report its time ({error})") from error


def _exchange(connection: socket.socket) -> Exchange:
    sent_ns = time.monotonic_ns()
    connection.sendall(b"\n")
    line = _read_line(connection)
    back_ns = time.monotonic_ns()
    got, answered = line.split()
    return Exchange(sent_ns, int(got), int(answered), back_ns)


def _read_line(connection: socket.socket) -> bytes:
    """A short line, without its end. Raises OSError."""
    data = b""
    while not data.endswith(b"\n"):
        if not (more := connection.recv(4096)):
            raise ConnectionResetError("it closed the connection")
        data += more
    return data[:-1]


class FarEngine(contextlib.AbstractContextManager["FarEngine", None]):
    """An engine on another node, as `Engine`; a context manager that ends it. `pid`: None, since it is no process of
    this machine."""

    pid: int | None = None

    def __init__(self, node: Generator, offset: Offset, stderr_file: Path, gone: set[Generator] | None = None) -> None:
        """Starts the engine. `gone`: lost nodes, whose engines are not waited for; the engines of a fleet share it."""
        self._node, self._offset, self._stderr_file = node, offset, stderr_file
        self._gone = set() if gone is None else gone
        self._connection = node.connect("engine")
        self._connection.settimeout(None)
        self._tail = b""
        self._ended = False
        self._status: int | None = None
        self.waited: tuple[int, int] | None = None
        """How long the engine's threads waited for a CPU in the measured window, in ns, and how often they got one;
        None if that is not known."""
        self._lost = "the connection ended"

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        """The descriptor that becomes readable when lines of the engine, or its end, arrive."""
        return self._connection.fileno()

    def send(self, message: Wire) -> None:
        """Sends a command. A lost connection is no error here, since `read_lines` will meet its end."""
        if isinstance(message, Go | StartMeasure):
            message = message.model_copy(update={"at_ns": self._offset.there(message.at_ns)})
        with contextlib.suppress(OSError):
            self._connection.sendall(encode(message))

    def read_lines(self) -> list[bytes] | None:
        try:
            data = self._connection.recv(_READ_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        except OSError as error:
            self._lost = error.strerror or str(error)
            data = b""
        if not data:
            self._ended = True
            if self._status is None:
                self._gone.add(self._node)
            return None
        lines = (self._tail + data).splitlines(keepends=True)
        self._tail = b"" if lines[-1].endswith(b"\n") else lines.pop()
        return [in_our_time(line, self._offset) for line in lines if not self._takes(line)]

    def wait(self, timeout_s: float) -> int | None:
        """The engine's exit status; None if it has not ended, without waiting. Raises GeneratorLostError if the
        connection ended without an exit status."""
        if not self._ended:
            return None
        if self._status is None:
            raise GeneratorLostError(self._node.name, self._lost)
        return self._status

    def close(self) -> None:
        """Ends the engine, and waits until it has ended. Safe to call twice."""
        if self._connection.fileno() < 0:
            return
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)
        deadline = time.monotonic() + END_S + 1.0
        while not self._ended and self._node not in self._gone and (left := deadline - time.monotonic()) > 0:
            if select.select([self._connection], [], [], left)[0]:
                self.read_lines()
        self._connection.close()

    def _takes(self, line: bytes) -> bool:
        """True if the line is the last one, which the program there writes and not the engine."""
        if kind_of(line) != "gone":
            return False
        gone = json.loads(line)
        self._status = gone["status"]
        if "run_wait_ns" in gone:
            self.waited = gone["run_wait_ns"], gone["turns"]
        if gone["stderr"]:
            with writing(self._stderr_file), open_private(self._stderr_file, "a") as file:
                file.write(gone["stderr"])
        return True


def in_our_time(line: bytes, offset: Offset) -> bytes:
    """The engine's line with its instants converted to the clock of this machine; a line that is no event is
    unchanged."""
    if (names := _INSTANTS.get(kind_of(line))) is None:
        return line
    try:
        event = json.loads(line)
        event |= {name: offset.here(event[name]) for name in names if event.get(name)}
    except (ValueError, TypeError):
        return line  # the reader will report it
    return encode(event)


class FarEngines:
    """The engines on a number of nodes, which take turns. `address`: the address of this machine, where the nodes reach
    the server."""

    apart = True

    def __init__(self, nodes: Sequence[Generator], address: str) -> None:
        self.address = address
        self._nodes = nodes
        self._before: list[Offset] = []
        self._started: list[FarEngine] = []
        self._gone: set[Generator] = set()

    @property
    def machines(self) -> int:
        """The number of nodes."""
        return len(self._nodes)

    @property
    def descriptor_limit(self) -> int:
        return min(node.descriptor_limit for node in self._nodes)

    @property
    def local_ports(self) -> int:
        return min(node.local_ports for node in self._nodes)

    @property
    def lead_ns(self) -> int:
        return REACH_NS + 4 * max((offset.uncertainty_ns for offset in self._before), default=0)

    def before(self) -> None:
        """Reads the clocks of all nodes before a fleet starts. Raises GeneratorLostError."""
        self._before, self._started = [node.clock() for node in self._nodes], []
        self._gone = set()

    def start(self, index: int, stderr_file: Path) -> FarEngine:
        """Starts engine number `index`; nodes take turns. Raises GeneratorLostError."""
        at = index % self.machines
        self._started.append(FarEngine(self._nodes[at], self._before[at], stderr_file, self._gone))
        return self._started[-1]

    def after(self) -> dict[str, Any]:
        """Reads the clocks again after the fleet has ended, and returns the record of the nodes. Raises
        GeneratorLostError."""
        told = []
        for at, (node, before) in enumerate(zip(self._nodes, self._before, strict=True)):
            if not (engines := self._started[at :: self.machines]):
                continue
            after = node.clock()
            waits = [engine.waited for engine in engines if engine.waited is not None]
            known = len(waits) == len(engines)
            told.append(
                GeneratorNode(
                    node=node.name,
                    engines=tuple(range(at, len(self._started), self.machines)),
                    offset_ns=before.ns,
                    uncertainty_ns=before.uncertainty_ns,
                    after_offset_ns=after.ns,
                    after_uncertainty_ns=after.uncertainty_ns,
                    run_wait_ns=sum(ns for ns, _ in waits) if known else None,
                    turns=sum(turns for _, turns in waits) if known else None,
                )
            )
        return {"generators": tuple(each.to_json() for each in told)}
