"""Measures, after the load, how long after the acknowledgement of a write a read sees all of it. A server that answers
first and works afterwards is fast on paper only.

In: the requests of `measure.acknowledged`, and a server without load; its background work is waited for, since a read
would count it. Out: one `Round` for each write. Not here: the figures of all rounds together
(`analyze/trial/acknowledgements.py`).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from powerband.model.experiment import Acknowledged
from powerband.processes.engine_process import Pump
from powerband.processes.requests import Client, HttpAnswer, RequestFailedError
from powerband.processes.subject_process import RunningSubject
from powerband.trials.instruments.instrument import Instrument

_PAUSE_FIRST_S = 0.001  # between the first reads
_PAUSE_LONGEST_S = 0.05  # the error of long delays; more reads would cost the working server more
_REQUEST_TIMEOUT_S = 60.0  # arbitrary: a write of many items may take tens of seconds
_SETTLED_S = 0.5  # a count that has not changed for so long is taken to be final
_SETTLING_PAUSE_S = 0.1  # five reads to `_SETTLED_S`

_Pause = Callable[[float], None]
"""A function that waits for so many seconds."""


@dataclass(frozen=True)
class Round:
    """One write. `acknowledged_ns`: from its sending to its acknowledgement. `seen`: the count of the first read after
    that; `visible_ns`: from the acknowledgement to the sending of the first read that saw all, None if none did in
    time; `read_ns`: how long that read took, which limits how exact `visible_ns` is. `failed`: the reason why the round
    says nothing; empty if it says something."""

    acknowledged_ns: int | None = None
    seen: int | None = None
    visible_ns: int | None = None
    read_ns: int | None = None
    failed: str = ""


class AcknowledgedWrites(Instrument):
    """Makes its rounds after the load, so that only the server's own work is timed."""

    def __init__(self, asked: Acknowledged, announce: Callable[[str], None]) -> None:
        self._asked = asked
        self._announce = announce
        self._rounds: list[Round] = []

    def after_load(self, subject: RunningSubject, pump: Pump) -> None:
        """Makes all rounds. Raises TrialFailed if the server ends, TrialInterrupted on a stop request."""
        self._announce("acknowledged")
        with Client(subject.rendered.url, _REQUEST_TIMEOUT_S, pump) as client:
            self._rounds = check_acknowledged(self._asked, client, partial(_pause, subject, pump))

    def record(self) -> dict[str, Any]:
        return {"acknowledged": tuple(asdict(row) for row in self._rounds)}


def check_acknowledged(of: Acknowledged, client: Client, pause: _Pause) -> list[Round]:
    """Writes and reads for `of.rounds` rounds. A request that fails is noted in its round; errors that end the check
    come from `pause` and `client`. Without `of.reset`, a write must replace what the one before it left: if a read
    counts more than before, the round has failed."""
    rounds: list[Round] = []
    full: int | None = None  # what reads counted before a write, once it was as much as one adds
    for _ in range(of.rounds):
        pause(0)
        if not rounds or rounds[-1].visible_ns is None or of.reset is None:
            count = _settle(of, client, pause)
            if of.reset is None and full is None and (count or 0) >= of.expect:
                full = count
        found = _round(of, client, pause)
        if full is not None and found.seen is not None and found.seen > full:
            told = f"a read counted {full:,} before a write, and {found.seen:,} after one"
            found = Round(failed=f"{told}: name reset (measure.acknowledged)")
        rounds.append(found)
    return rounds


def _pause(subject: RunningSubject, pump: Pump, length_s: float) -> None:
    """Waits. Raises TrialFailed if the server has ended, TrialInterrupted on a stop request."""
    pump.wait(lambda: False, length_s)
    pump.check_stop()
    subject.check_alive()


def _settle(of: Acknowledged, client: Client, pause: _Pause) -> int | None:
    """Waits until reads count the same for a while, so that earlier acknowledged writes are done, but no longer than a
    write may take; returns that count. If a read fails, it returns None: the round that follows will report it."""
    begun = unchanged_since = time.monotonic()
    count: int | None = None
    while time.monotonic() - begun < of.timeout_ns / 1e9:
        try:
            found = count_in(client.send(of.read).body, of.count)
        except RequestFailedError:
            return None
        if found != count:
            count, unchanged_since = found, time.monotonic()
        elif time.monotonic() - unchanged_since >= _SETTLED_S:
            break
        pause(_SETTLING_PAUSE_S)
    return count


def _round(of: Acknowledged, client: Client, pause: _Pause) -> Round:
    try:
        if of.reset is not None:
            client.send(of.reset)
        written = client.send(of.write)
        return _read_until_all(of, client, written, pause)
    except RequestFailedError as error:
        return Round(failed=str(error))


def _read_until_all(of: Acknowledged, client: Client, written: HttpAnswer, pause: _Pause) -> Round:
    acknowledged_ns = written.answered_ns - written.sent_ns
    pause_s, first = _PAUSE_FIRST_S, None
    while True:
        answer = client.send(of.read)
        seen = count_in(answer.body, of.count)
        first = seen if first is None else first
        after_ns = answer.sent_ns - written.answered_ns
        if seen >= of.expect:
            return Round(acknowledged_ns, first, after_ns, answer.answered_ns - answer.sent_ns)
        if after_ns > of.timeout_ns:
            return Round(acknowledged_ns, first)
        pause(pause_s)
        pause_s = min(pause_s * 1.3, _PAUSE_LONGEST_S)


def count_in(body: bytes, count: str) -> int:
    """The number of items in a response. `count`: `json` for the elements of a JSON array or object, or the number
    itself; `lines` for lines that are not empty; else a regular expression, whose matches count. With `json`, a
    response that is no JSON has none."""
    text = body.decode(errors="replace")
    if count == "lines":
        return sum(1 for line in text.splitlines() if line.strip())
    if count != "json":
        return sum(1 for _ in re.finditer(count, text))
    try:
        found = json.loads(text)
        if isinstance(found, int | float) and not isinstance(found, bool):
            return int(found)
    except (ValueError, OverflowError, RecursionError):
        return 0
    return len(found) if isinstance(found, list | dict) else 0
