"""Calls an ASGI application without a socket: one request in, the whole answer out; or a stream, message by message."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from starlette.types import ASGIApp, Message, Scope

HERE = "127.0.0.1:8420"


@dataclass(frozen=True)
class Answered:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)


def scope_of(target: str, *, host: str = HERE, method: str = "GET", headers: Mapping[str, str] | None = None) -> Scope:
    path, _, query = target.partition("?")
    given = {"host": host, **(headers or {})}
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in given.items()],
        "client": ("127.0.0.1", 5),
        "server": ("127.0.0.1", 8420),
    }


async def ask(app: ASGIApp, target: str, **asked: Any) -> Answered:
    said: list[Message] = []

    async def receive() -> Message:
        await asyncio.sleep(3600)
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        said.append(message)

    await app(scope_of(target, **asked), receive, send)
    start = said[0]
    headers = {name.decode().lower(): value.decode("latin-1") for name, value in start["headers"]}
    return Answered(start["status"], headers, b"".join(message.get("body", b"") for message in said[1:]))


def asked(app: ASGIApp, target: str, **given: Any) -> Answered:
    return asyncio.run(ask(app, target, **given))
