"""The feed of a run to its viewers: polls the run while there are viewers, and sends each of them server-sent events.

In: a `RunFollower`. Out: for each viewer a stream of messages, each with the changes since that viewer's previous one.
There is no queue: the next message is made from the newest state, once the viewer has taken the previous one. A viewer
that stalls skips updates, costs no memory, and delays nobody, least of all the run, which knows nothing of viewers.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any, NamedTuple

from powerband.live.follow import RunFollower
from powerband.live.payload import as_json, current_row, point_rows, run_row, trial_row
from powerband.live.state import RunState, RunStatus, TrialState

POLL_S = 0.5  # half of the second that each point stands for: none is shown more than that late
POLL_AT_REST_S = 2.0  # arbitrary: only a `resume` changes a run at rest
BEAT_S = 15.0  # interval of keep-alives while nothing changes, which detect a broken connection
VIEWERS_MAX = 256  # arbitrary: each holds a descriptor, of which a user has 1,024 by default
LEAVE_S = 3.0  # longest wait for viewers on close; they may still request the last trial's seconds
_LAST_POLLS = 20  # read at the end, CHUNK_BYTES each: 10 MB, and a run leaves far less unread
_GOES_ON = (RunStatus.RUNNING, RunStatus.UNKNOWN)
_GO_ON_S = 0.005  # pause between two polls while there is a backlog to read, so that other tasks can run


class Cursor(NamedTuple):
    """The position of a viewer in the feed: what it has got so far. `version`: that of the run's state. `trials`: the
    newest change of a trial's line, counted by the feed. Of the trial in flight, its `number` (0: none), its `phase`,
    and `points`: how many of its seconds."""

    version: int = 0
    trials: int = 0
    number: int = 0
    phase: str = ""
    points: int = 0


class Feed:
    """One run directory and its viewers. Used from one event loop; polls run in a thread, one at a time."""

    def __init__(self, follower: RunFollower, clock: Callable[[], float] = time.time) -> None:
        self.follower = follower
        self.viewers = 0
        self.polls = 0
        self._clock = clock
        self._state: RunState | None = None
        self._polling = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._closing = False
        self._line_changed: dict[int, tuple[Any, int]] = {}  # by trial: its line, and the number of its latest change
        self._changes = 0
        self._made: dict[Cursor, tuple[Cursor, bytes]] = {}

    @property
    def idle(self) -> bool:
        """True if there is no viewer and no poll is reading the files."""
        return not self.viewers and not self._polling.locked()

    async def fresh(self) -> RunState:
        """The current state, read now, with or without viewers."""
        async with self._polling:
            state = await asyncio.to_thread(self.follower.poll)
            self.polls += 1
            self._take(state)
        return state

    async def messages(self) -> AsyncGenerator[bytes, None]:
        """Messages for one viewer, until the feed is closed; the first message has everything."""
        if not self.viewers:
            self._made.clear()  # their time of day is that of the last viewer
        self.viewers += 1
        self._empty.clear()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._poll_on())
        cursor = Cursor()
        try:
            yield b"retry: 2000\n\n"
            while True:
                changed, closing = self._changed, self._closing
                cursor, message = self._message(cursor)
                if message:
                    yield message
                    continue  # send changes that arrived in the meantime
                if closing:
                    yield b"event: end\ndata: the server ends\n\n"
                    await asyncio.sleep(LEAVE_S)
                    return
                try:
                    await asyncio.wait_for(changed.wait(), BEAT_S)
                except TimeoutError:
                    yield b": nothing new\n\n"
        finally:
            self.viewers -= 1
            if not self.viewers:
                self._empty.set()

    async def close(self) -> None:
        """Sends every viewer the last state, marked as the last. Viewers leave when they have all they need; streams
        that remain are ended after `LEAVE_S`."""
        if self.viewers:
            await self.fresh()
            for _ in range(_LAST_POLLS):
                if not self.follower.more:
                    break
                await self.fresh()
        self._closing = True
        self._wake()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._empty.wait(), LEAVE_S)

    async def _poll_on(self) -> None:
        while self.viewers and not self._closing:
            state = await self.fresh()
            if self.follower.more:
                await asyncio.sleep(_GO_ON_S)
            else:
                await asyncio.sleep(POLL_S if state.status in _GOES_ON else POLL_AT_REST_S)

    def _take(self, state: RunState) -> None:
        before, self._state = self._state, state
        if before is None or before.version != state.version:
            self._changes += 1
            for line in state.trials:
                known = self._line_changed.get(line.number)
                if known is None or known[0] != line:
                    self._line_changed[line.number] = line, self._changes
        self._made.clear()  # they have the time of day
        if before is None or before.version != state.version or _place(before.current) != _place(state.current):
            self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _message(self, cursor: Cursor) -> tuple[Cursor, bytes]:
        """The changes since this cursor, as one event; empty if there are none. Viewers with the same cursor share
        it."""
        if self._state is None:
            return cursor, b""
        made = self._made.get(cursor)
        if made is None:
            made = self._make(cursor, self._state)
            self._made[cursor] = made
        return made

    def _make(self, cursor: Cursor, state: RunState) -> tuple[Cursor, bytes]:
        told: dict[str, Any] = {}
        if state.version != cursor.version:
            told["run"] = run_row(state, self.follower.run.path.name)
            told["trials"] = [
                trial_row(line, state.unit)
                for line, change in self._line_changed.values()
                if change > cursor.trials or cursor.version == 0
            ]
        number, phase, points = _place(state.current)
        if cursor.version == 0 or (number, phase, points) != (cursor.number, cursor.phase, cursor.points):
            told["current"] = None if state.current is None else _current(state.current, cursor)
        now = Cursor(state.version, self._changes, number, phase, points)
        if not told:
            return now, b""
        told |= {"eta_s": state.eta_s, "now_s": self._clock()}
        return now, f"data: {as_json(told)}\n\n".encode()


def _place(current: TrialState | None) -> tuple[int, str, int]:
    if current is None:
        return 0, "", 0
    return current.number, current.phase.value, current.points_before + len(current.points)


def _current(current: TrialState, cursor: Cursor) -> dict[str, Any]:
    """The trial in flight, with the seconds that the viewer has not seen; `begin`: with all of them, for a new plot."""
    begin = current.number != cursor.number or _place(current)[2] < cursor.points
    seen = 0 if begin else max(0, cursor.points - current.points_before)
    return {**current_row(current), "begin": begin, "points": point_rows(current.points[seen:])}
