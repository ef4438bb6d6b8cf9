"""Makes a link between two network namespaces for the length of one trial, by `powerband-engine link`.

The trial itself moves to end A, so that all that it starts and asks meanwhile (subject, probe, engines, the metrics
page) is found on loopback as usual. Only processes that the subject starts with `nsenter --net={link_b}` are at the
other end. Devices and namespaces have no names on this machine, so that they vanish with the processes, even after a
kill.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from powerband.base.errors import SubjectError
from powerband.processes.engine_process import EngineProcess, Pump, describe_status
from powerband.processes.failures import Code, TrialFailed
from powerband.processes.subject_process import RunningSubject
from powerband.trials.instruments.instrument import Instrument
from powerband.wire import link_messages as wire
from powerband.wire.message import ErrorEvent, encode
from powerband.wire.specs import Stop

_UP_TIMEOUT_S = 10.0  # arbitrary: it takes 0.1 s
_END_TIMEOUT_S = 5.0  # arbitrary: it takes ms
_CLONE_NEWNET = 0x40000000
_HERE = "/proc/thread-self/ns/net"


class Link:
    """A link that is up; `link_up` makes one."""

    def __init__(self, process: EngineProcess, spec: wire.LinkSpec) -> None:
        self.up: wire.LinkUp | None = None
        self.summary: wire.LinkSummary | None = None
        self.error: ErrorEvent | None = None
        self.ended = False
        self._spec = spec
        self._process = process

    @property
    def pid(self) -> int:
        """The pid of the process that carries the packets, or holds the namespaces."""
        return self._process.pid

    def given(self) -> dict[str, str]:
        """The values of the placeholders of a link."""
        assert self.up is not None, "link_up yields it once it is up"
        a, b = self.up.a, self.up.b
        return {
            "link_a": a.namespace,
            "link_b": b.namespace,
            "link_a_address": a.address,
            "link_b_address": b.address,
        }

    def facts(self) -> dict[str, Any]:
        """The facts for the trial's record: the link as it was asked for and made, and its traffic."""
        told = {} if self.up is None else self.up.model_dump(include={"form", "queue_bytes"})
        if self.summary is not None:
            told |= self.summary.model_dump(exclude={"type", "at_ns"})
        return {**self._spec.model_dump(include={"delay_ns", "rate_bits_per_s"}), **told}

    def on_line(self, line: bytes) -> None:
        """Keeps one event of the link's process."""
        match wire.LINK_EVENT.validate_json(line):
            case wire.LinkUp() as event:
                self.up = event
            case wire.LinkSummary() as event:
                self.summary = event
            case ErrorEvent() as event:
                self.error = event

    def on_end(self) -> None:
        """Notes that the process has ended. Raises TrialFailed(link_failed) if it reported an error, or no summary."""
        self.ended = True
        if self.error is not None:
            raise TrialFailed(Code.LINK_FAILED, f"the link between the two network namespaces: {self.error.message}")
        if self.summary is None:
            status = describe_status(self._process.wait(1.0))
            raise TrialFailed(
                Code.LINK_FAILED,
                f"the link's process ended without a summary ({status}); its last log lines are in engine.log of "
                "the trial",
            )


Linked = Callable[[Pump], AbstractContextManager[Link | None]]
"""A function that opens the link of a setting; it yields None if the setting uses none."""


class LinkInstrument(Instrument):
    """The link of a trial whose setting uses one. The probe watches the process that carries the packets."""

    def __init__(self, linked: Linked) -> None:
        self._linked = linked
        self._link: Link | None = None

    @contextmanager
    def around_trial(self, pump: Pump) -> Iterator[None]:
        """Makes the link, if the setting uses one, for the length of the trial."""
        with self._linked(pump) as self._link:
            yield

    def given(self) -> Mapping[str, str]:
        """The values of the link's placeholders; empty without a link."""
        return {} if self._link is None else self._link.given()

    def when_ready(self, subject: RunningSubject) -> None:
        """Has the probe watch the link's process."""
        if self._link is not None:
            subject.probe.watch("link", self._link.pid)

    def record(self) -> dict[str, Any]:
        return {} if self._link is None else {"link": self._link.facts()}


@contextmanager
def link_up(engine: Path, spec: wire.LinkSpec, stderr_file: Path, pump: Pump) -> Iterator[Link]:
    """Makes the link, and moves the calling thread to end A until the block is left; then the link has reported its
    traffic and is gone.

    Raises TrialFailed(link_failed), and MeasurementError if the engine cannot be run."""
    with EngineProcess([str(engine), "link"], stderr_file) as process:
        link = Link(process, spec)
        process.send(spec)
        pump.add(process, link.on_line, link.on_end)
        try:
            if not pump.wait(lambda: link.up is not None, _UP_TIMEOUT_S):
                raise TrialFailed(Code.LINK_FAILED, f"the link was not up within {_UP_TIMEOUT_S:.0f} s")
            assert link.up is not None
            with _moved_to(link.up.a.namespace):
                yield link
            _end(link, process, pump)
        except TrialFailed:
            with suppress(TrialFailed):
                _end(link, process, pump)
            raise
        finally:
            pump.remove(process)


def check_link(engine: Path) -> str:
    """Makes a link and removes it again, which takes about 0.1 s. Returns in words what delays the packets of a link.

    Raises SubjectError with what this machine lacks."""
    if shutil.which("nsenter") is None:
        raise SubjectError(
            "a link between two network namespaces needs the program nsenter, by which the server reaches the other "
            "end: install util-linux"
        )
    done = subprocess.run(
        [str(engine), "link"], input=encode(wire.LinkSpec(delay_ns=0)), capture_output=True, check=False
    )
    try:
        first = wire.LINK_EVENT.validate_json(done.stdout.partition(b"\n")[0])
    except ValidationError:
        said = done.stderr.decode(errors="replace").strip()[-300:] or describe_status(done.returncode)
        raise SubjectError(f"the engine {engine} makes no link ({said}): install powerband again") from None
    if isinstance(first, wire.LinkUp):
        return {"netem": "netem in the kernel", "bridge": "a bridge in user space (no netem)"}[first.form]
    assert isinstance(first, ErrorEvent)
    raise SubjectError(f"two network namespaces joined by a link cannot be made on this machine: {first.message}")


@contextmanager
def _moved_to(namespace: str) -> Iterator[None]:
    """Moves the calling thread, and so all that it starts meanwhile, to another network namespace. Raises
    TrialFailed(link_failed)."""
    with Path(_HERE).open("rb") as home, Path(namespace).open("rb") as there:
        _enter(there.fileno())
        try:
            yield
        finally:
            _enter(home.fileno())


def _enter(namespace: int) -> None:
    # os.setns came with Python 3.12.
    if ctypes.CDLL(None, use_errno=True).setns(namespace, _CLONE_NEWNET) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise TrialFailed(Code.LINK_FAILED, f"cannot enter a network namespace ({reason}): run as root")


def _end(link: Link, process: EngineProcess, pump: Pump) -> None:
    """Asks the link to end, and waits for its last line. Raises TrialFailed(link_failed)."""
    if link.ended:
        return
    process.send(Stop())
    if not pump.wait(lambda: link.ended, _END_TIMEOUT_S, stoppable=False):
        raise TrialFailed(Code.LINK_FAILED, "the link did not report its end in time")
