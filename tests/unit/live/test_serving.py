"""Large answers are sent piece by piece, and only a few at once; connections leave descriptors for everything else."""

from __future__ import annotations

import asyncio
import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.responses import Response
from starlette.types import Message

from fakes.asgi import asked, scope_of
from powerband.base.errors import UsageError
from powerband.live import serving
from powerband.live.serving import (
    CONNECTIONS_MAX,
    DESCRIPTORS_KEPT,
    LARGE_BYTES_MAX,
    PIECE_BYTES,
    PiecewiseAnswers,
    connections_max,
)


@given(st.integers(0, 4 * PIECE_BYTES) | st.sampled_from([PIECE_BYTES, PIECE_BYTES + 1, 2 * PIECE_BYTES]))
def test_an_answer_arrives_whole_whatever_its_size(size: int) -> None:
    body = bytes(range(256)) * (size // 256 + 1)
    answer = asked(PiecewiseAnswers(Response(body[:size])), "/")
    assert (answer.status, answer.body) == (200, body[:size])


def test_no_piece_is_large() -> None:
    said: list[Message] = []

    async def send(message: Message) -> None:
        said.append(message)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    asyncio.run(PiecewiseAnswers(Response(b"x" * (3 * PIECE_BYTES + 1)))(scope_of("/"), receive, send))
    assert [len(message["body"]) for message in said[1:]] == [PIECE_BYTES] * 3 + [1]
    assert [message.get("more_body", False) for message in said[1:]] == [True] * 3 + [False]


def test_who_does_not_read_a_large_answer_cannot_fill_the_memory() -> None:
    size = LARGE_BYTES_MAX // 3
    app = PiecewiseAnswers(Response(b"x" * size))
    starts: list[int] = []

    async def read_by(stalls: bool) -> None:
        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                starts.append(message["status"])
            elif stalls:
                await asyncio.sleep(3600)

        async def receive() -> Message:
            return {"type": "http.disconnect"}

        await app(scope_of("/"), receive, send)

    async def many() -> None:
        stalled = [asyncio.ensure_future(read_by(stalls=True)) for _ in range(3)]
        await asyncio.sleep(0)
        await read_by(stalls=False)
        stalled.pop().cancel()
        await asyncio.sleep(0)
        await read_by(stalls=False)
        for each in stalled:
            each.cancel()

    asyncio.run(many())
    assert starts == [200, 200, 200, 503, 200]


@pytest.mark.parametrize(
    ("soft", "found"),
    [
        (resource.RLIM_INFINITY, CONNECTIONS_MAX),
        (1 << 20, CONNECTIONS_MAX),
        (1024, CONNECTIONS_MAX),
        (128, 128 - DESCRIPTORS_KEPT),
    ],
)
def test_the_most_connections(soft: int, found: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving.resource, "getrlimit", lambda _: (soft, soft))
    assert connections_max() == found


def test_too_few_descriptors_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving.resource, "getrlimit", lambda _: (64, 64))
    with pytest.raises(UsageError, match="`ulimit -n 416` in this shell"):
        connections_max()
