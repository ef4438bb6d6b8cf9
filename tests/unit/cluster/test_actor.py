"""The actor on a node while it gets ready: it answers the driver, and what was closed meanwhile starts nothing."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from powerband.cluster import actor
from powerband.cluster.actor import NodeActor
from powerband.cluster.node import LOST
from powerband.store import name_alive


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


@pytest.mark.parametrize(
    ("method", "arguments", "why"),
    [
        ("open", ({"experiment": 5, "moved": [], "copied": []}, []), "TypeError"),
        ("generate", ({"address": "127.0.0.1"},), "KeyError: 'secret'"),
    ],
)
def test_a_program_that_ends_by_a_defect_says_what_it_was(
    method: str, arguments: tuple[Any, ...], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It once removed the log before it wrote its last words there. It is never a file of the current folder."""
    (tmp_path / "powerband.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(actor, "LEASE_S", 60)  # no driver is there to be heard, and the program may start slowly

    async def scene() -> None:
        node = NodeActor()
        try:
            failed = (await getattr(node, method)(*arguments))["failed"]
            assert failed["kind"] == LOST and "stopped unexpectedly (1)" in failed["message"]
            assert failed["message"].rpartition("\n")[2].startswith(why)
        finally:
            work = node._work
            await node.close()
        assert work is not None and not work.exists()

    asyncio.run(scene())


def test_a_lease_is_looked_at_only_when_it_may_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The measuring node is woken no more often than it must be."""
    slept, sleep = list[float](), asyncio.sleep
    monkeypatch.setattr(actor, "LEASE_S", 0.2)

    async def scene() -> None:
        node = NodeActor()

        async def heard_once(seconds: float) -> None:
            slept.append(seconds)
            await sleep(seconds)
            if len(slept) == 1:
                await node.heard()

        monkeypatch.setattr(asyncio, "sleep", heard_once)
        program = await asyncio.create_subprocess_exec("cat", stdin=asyncio.subprocess.PIPE)
        await node._hold_lease(program)
        assert program.returncode == 0 and "was not heard" in node._why
        assert slept == pytest.approx([0.2, 0.2], abs=0.1)

    asyncio.run(scene())


def test_actors_that_begin_at_once_leave_each_other_their_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that found another's folder before its owner was written there once removed it."""

    def meanwhile(pid: int) -> str:
        actor.remove_stale()
        return name_alive(pid)

    monkeypatch.setattr(actor, "name_alive", meanwhile)

    async def scene() -> None:
        node = NodeActor()
        try:
            assert (await node._clear()).is_dir()
        finally:
            await node.close()

    asyncio.run(scene())
