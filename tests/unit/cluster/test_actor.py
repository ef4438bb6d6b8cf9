"""The actor on a node while it gets ready: it answers the driver, and what was closed meanwhile starts nothing."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from powerband.cluster import actor
from powerband.cluster.actor import NodeActor
from powerband.cluster.node import LOST


def test_a_node_answers_while_it_unpacks_and_starts_nothing_once_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, goes_on = threading.Event(), threading.Event()
    unpacked: list[Path] = []

    def slow(_: bytes, folder: Path) -> None:
        unpacked.append(folder)
        folder.mkdir(parents=True)
        begun.set()
        assert goes_on.wait(5), "nothing else ran meanwhile"
        (folder / "late").touch()

    monkeypatch.setattr(actor, "unpack", slow)

    async def scene() -> None:
        node = NodeActor()
        opening = asyncio.ensure_future(node.open({"moved": [], "copied": ["one", "two"]}, [b"", b""]))
        await asyncio.to_thread(begun.wait, 5)
        work = node._work
        assert work is not None and await node.heard() == ""
        closing = asyncio.ensure_future(node.close())
        await asyncio.sleep(0.05)
        assert not closing.done() and not opening.done()
        goes_on.set()
        answer, _ = await asyncio.gather(opening, closing)
        assert answer["failed"]["kind"] == LOST and node._program is None
        assert len(unpacked) == 1 and not work.exists()

    asyncio.run(scene())


def test_what_ended_an_earlier_program_is_not_said_of_the_next() -> None:
    async def scene() -> None:
        node = NodeActor()
        node._why = "the driver was not heard for 3 s"
        try:
            await node._clear()
            assert (await node._answer("ready"))["failed"]["message"] == "the program on the node stopped unexpectedly"
        finally:
            await node.close()

    asyncio.run(scene())
