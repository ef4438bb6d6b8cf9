"""Viewers get changes only and always the newest state, whatever other viewers do; without viewers nothing is read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fakes.live_runs import recorded, written
from powerband.live import feed as feeds
from powerband.live.feed import Feed
from powerband.live.follow import RunFollower
from powerband.live.state import Figures, RunState, RunStatus, TrialPhase, TrialState


class Scripted(RunFollower):
    """A follower of a run that returns the state it was given."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.state = RunState(path=str(path), name="x", status=RunStatus.RUNNING, version=1)
        self.asked = 0

    def poll(self) -> RunState:
        self.asked += 1
        return self.state

    def second(self, seconds: int, number: int = 1, phase: TrialPhase = TrialPhase.MEASURE) -> None:
        """Gives the trial in flight so many seconds."""
        points = tuple(Figures(t_s=t + 1.0, rate_per_s=100.0 + t) for t in range(seconds))
        trial = TrialState(
            number, "threads=1", 0, "compare", None, phase, 1.0, 1.0, points[-1] if points else None, points
        )
        self.state = RunState(**{**vars(self.state), "current": trial})


Told = dict[str, Any]


def told(message: bytes) -> Told:
    assert message.startswith(b"data: ") and message.endswith(b"\n\n") and message.count(b"\n") == 2
    found = json.loads(message[6:])
    assert isinstance(found, dict)
    return found


async def next_of(stream: AsyncGenerator[bytes, None]) -> Told:
    while True:
        message = await asyncio.wait_for(anext(stream), 20)
        if message.startswith(b"data: "):
            return told(message)


def run(case: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        await case()

    asyncio.run(whole())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the feed poll as often as possible, so that tests do not wait."""
    monkeypatch.setattr(feeds, "POLL_S", 0.001)
    monkeypatch.setattr(feeds, "POLL_AT_REST_S", 0.001)


def test_the_first_message_has_everything_and_the_next_what_changed(tmp_path: Path) -> None:
    async def case() -> None:
        follower = Scripted(tmp_path)
        follower.second(2)
        feed = Feed(follower)
        stream = feed.messages()
        first = await next_of(stream)
        assert first["run"]["status"] == "running" and first["trials"] == []
        assert first["current"]["begin"] is True
        assert [point["t_s"] for point in first["current"]["points"]] == [1.0, 2.0]
        follower.second(5)
        second = await next_of(stream)
        assert "run" not in second and second["current"]["begin"] is False
        assert [point["rate_per_s"] for point in second["current"]["points"]] == [102.0, 103.0, 104.0]
        follower.second(1, number=2)
        third = await next_of(stream)
        assert third["current"]["begin"] is True and third["current"]["number"] == 2
        follower.state = RunState(path="p", name="x", status=RunStatus.FINISHED, version=2)
        last = await next_of(stream)
        assert last["run"]["status"] == "finished" and last["current"] is None
        await stream.aclose()

    run(case)


def test_who_comes_back_between_two_trials_is_told_that_none_runs(tmp_path: Path) -> None:
    async def case() -> None:
        stream = Feed(Scripted(tmp_path)).messages()
        assert (await next_of(stream))["current"] is None
        await stream.aclose()

    run(case)


def test_a_number_that_is_none_is_told_as_null(tmp_path: Path) -> None:
    async def case() -> None:
        follower = Scripted(tmp_path)
        points = (Figures(t_s=1.0, rate_per_s=float("nan"), gauges={"\ud800": float("inf"), "queued": 3.0}),)
        trial = TrialState(1, "\ud800", 0, "compare", None, TrialPhase.MEASURE, 1.0, 1.0, points[0], points)
        follower.state = RunState(**{**vars(follower.state), "current": trial})
        stream = Feed(follower).messages()
        (point,) = (await next_of(stream))["current"]["points"]
        assert point == {"t_s": 1.0, "rate_per_s": None, "gauges:\ud800": None, "gauges:queued": 3.0}
        await stream.aclose()

    run(case)


def test_one_who_stalls_gets_the_newest_state_and_no_backlog(tmp_path: Path) -> None:
    """While one viewer takes nothing, the others are served and nothing is kept for him; then he gets one message with
    everything."""

    async def case() -> None:
        follower = Scripted(tmp_path)
        follower.second(1)
        feed = Feed(follower)
        slow, quick = feed.messages(), feed.messages()
        await next_of(slow)
        await next_of(quick)
        for seconds in range(2, 60):
            follower.second(seconds)
            assert (await next_of(quick))["current"]["points"][-1]["t_s"] == seconds
            assert len(feed._made) <= 2
        late = await next_of(slow)
        assert [point["t_s"] for point in late["current"]["points"]] == [float(t) for t in range(2, 60)]
        with pytest.raises(TimeoutError):  # no other message was waiting for him
            await asyncio.wait_for(next_of(slow), 0.2)
        await slow.aclose()
        await quick.aclose()
        assert feed.viewers == 0

    run(case)


def test_nothing_is_read_while_nobody_looks(tmp_path: Path) -> None:
    async def case() -> None:
        follower = Scripted(tmp_path)
        feed = Feed(follower)
        stream = feed.messages()
        await next_of(stream)
        await stream.aclose()
        await asyncio.sleep(0.05)
        asked = follower.asked
        await asyncio.sleep(0.05)
        assert follower.asked == asked > 0
        again = feed.messages()
        await next_of(again)  # at once, from the known state
        follower.second(1)
        assert (await next_of(again))["current"]["number"] == 1
        await again.aclose()

    run(case)


def test_twenty_viewers_share_each_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    original = Feed._make
    monkeypatch.setattr(Feed, "_make", lambda *given: (made.append(1), original(*given))[1])

    async def case() -> None:
        follower = Scripted(tmp_path)
        follower.second(1)
        feed = Feed(follower)
        streams = [feed.messages() for _ in range(20)]
        await asyncio.gather(*(next_of(stream) for stream in streams))
        made.clear()
        follower.second(2)
        messages = await asyncio.gather(*(next_of(stream) for stream in streams))
        assert all(message == messages[0] for message in messages)
        assert len(made) <= 2  # the change, and a check that nothing follows it
        assert feed.viewers == 20
        for stream in streams:
            await stream.aclose()

    run(case)


def test_when_it_closes_the_last_state_is_told(tmp_path: Path) -> None:
    async def case() -> None:
        follower = Scripted(tmp_path)
        feed = Feed(follower)
        stream = feed.messages()
        await next_of(stream)
        follower.state = RunState(path="p", name="x", status=RunStatus.FINISHED, version=9)
        closing = asyncio.create_task(feed.close())
        assert (await next_of(stream))["run"]["status"] == "finished"
        assert (await anext(stream)).startswith(b"event: end")
        assert not closing.done()  # the viewer may still send requests
        await stream.aclose()
        await closing

    run(case)


def test_it_closes_although_a_viewer_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "LEAVE_S", 0.01)

    async def case() -> None:
        feed = Feed(Scripted(tmp_path))
        stalled, quick = feed.messages(), feed.messages()
        await next_of(stalled)
        await next_of(quick)
        await feed.close()
        with pytest.raises(StopAsyncIteration):
            await next_of(quick)
        await stalled.aclose()

    run(case)


def test_of_500_trials_only_those_that_changed_are_told(tmp_path: Path) -> None:
    from fakes import synthetic

    run_directory = written(tmp_path, "large", synthetic.analysis(blocks=56))

    async def case() -> None:
        feed = Feed(RunFollower(run_directory.path))
        stream = feed.messages()
        first = await next_of(stream)
        assert len(first["trials"]) == 504 and len(first["run"]["settings"]) == 9
        line = run_directory.plan.read_text().splitlines()[-1]
        with run_directory.plan.open("a") as file:
            file.write(json.dumps({**json.loads(line), "number": 505, "block": 56}) + "\n")
        second = await next_of(stream)
        assert [trial["number"] for trial in second["trials"]] == [505]
        assert second["trials"][0]["outcome"] == "lost"
        await stream.aclose()

    run(case)


def test_every_figure_of_a_setting_is_that_of_the_analysis(tmp_path: Path) -> None:
    recorded(tmp_path, "run")

    async def case() -> None:
        feed = Feed(RunFollower(tmp_path / "run"))
        stream = feed.messages()
        while True:
            last = await next_of(stream)
            if last.get("run", {}).get("judged"):
                break
        analysis = feed.follower.analysis
        assert analysis is not None
        told_of = {setting["id"]: setting for setting in last["run"]["settings"]}
        for row in analysis.settings:
            estimate = row.estimates.get("goodput_per_s")
            assert told_of[row.setting.id]["value"] == (None if estimate is None else estimate.value)
        await stream.aclose()

    run(case)
