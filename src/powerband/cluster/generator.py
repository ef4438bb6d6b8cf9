"""The program that runs load engines on a node for the server of another: `python -m powerband.cluster.generator`.

It listens on the node's address, and serves peers that know the secret that Ray brought to both ends: it tells them the
time, and starts engines, one for each connection, whose stdin and stdout it passes on unchanged. It knows nothing of
Ray or of trials. An engine ends with its connection, or if the peer's kernel does not answer for `SILENT_S`; the end of
stdin, which the actor holds, ends all.

stdin:       {"address": A, "secret": S, "work": a folder that is removed at the end}
stdout:      {"said": "ready", "port": P, "descriptor_limit": N, "local_ports": N} or {"said": "failed", ...}
connection:  < a nonce   > {"proof": HMAC of the nonce, "wants": "clock" | "engine"}
  clock:     > any line  < "GOT ANSWERED", in ns of CLOCK_MONOTONIC
  engine:    > its stdin < its stdout, and at the end {"type":"gone","status":N,"stderr":"...",
                           and "run_wait_ns" and "turns", over the measured window, where it had one}
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import secrets
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from powerband.base.errors import PowerbandError
from powerband.cluster.below_ray import answers, as_if_started_here, check_priority
from powerband.processes.engine_fleet import find_engine
from powerband.processes.engine_process import descriptor_limit
from powerband.processes.ports import local_ports
from powerband.wire.message import encode

SILENT_S = 3
"""A peer that is silent for so long counts as gone. The kernels ask each other every second, so no code runs for it."""
END_S = 1.0
"""The time that an engine gets to end after the end of its stdin; then it is killed."""
GREETING_S = 3.0
LINE_MOST = 1 << 26  # bytes: a summary holds a histogram for each step
STDERR_MOST = 1 << 16
_READ_BYTES = 1 << 16
_BEGINS, _ENDS = b'{"type":"phase","phase":"measure"', b'{"type":"phase","phase":"drain"'


def proof(secret: str, nonce: str) -> str:
    """The proof of knowing `secret`: HMAC-SHA256 of the nonce, as hexadecimal digits."""
    return hmac.new(secret.encode(), nonce.encode(), hashlib.sha256).hexdigest()


def watch_peer(connection: socket.socket) -> None:
    """Sets up the connection so that it fails soon if the peer, or the way to it, is gone."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, SILENT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * SILENT_S)


class _Program:
    def __init__(self, engine: str, secret: str) -> None:
        self._engine, self._secret = engine, secret
        self._serving: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one connection."""
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            watch_peer(writer.get_extra_info("socket"))
            wants = await asyncio.wait_for(self._greet(reader, writer), GREETING_S)
            if wants == "clock":
                await _tell_time(reader, writer)
            elif wants == "engine":
                await self._run_engine(reader, writer)
        except (OSError, TimeoutError, ValueError):
            pass  # a peer that is gone, or that speaks another protocol
        finally:
            self._serving.discard(task)
            writer.close()

    async def end(self) -> None:
        """Ends all engines."""
        for task in tuple(self._serving):
            task.cancel()
        if self._serving:
            await asyncio.wait(tuple(self._serving), timeout=END_S)

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        """Asks the peer to prove that it knows the secret. Returns what the peer wants; empty without that proof."""
        nonce = secrets.token_hex(16)
        writer.write(nonce.encode() + b"\n")
        said = json.loads(await reader.readline() or b"{}")
        given = str(said.get("proof", "")) if isinstance(said, dict) else ""
        known = hmac.compare_digest(given.encode(), proof(self._secret, nonce).encode())
        return str(said.get("wants")) if known else ""

    async def _run_engine(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with tempfile.TemporaryFile() as stderr:
            process = await asyncio.create_subprocess_exec(
                *(self._engine, "load"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
                limit=LINE_MOST,
            )
            told = asyncio.ensure_future(_pass_on_commands(reader, process))
            try:
                waits = await _pass_on_events(process, writer)
                status = await process.wait()
                stderr.seek(0)
                words = stderr.read(STDERR_MOST).decode(errors="replace")
                writer.write(encode({"type": "gone", "status": status, "stderr": words, **waits}))
                await writer.drain()
            finally:
                told.cancel()
                await _end(process)


async def _tell_time(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await reader.readline():
        got_ns = time.monotonic_ns()
        writer.write(f"{got_ns} {time.monotonic_ns()}\n".encode())


async def _pass_on_commands(reader: asyncio.StreamReader, process: asyncio.subprocess.Process) -> None:
    """Passes the peer's data on to the engine until the connection ends; then ends the engine."""
    assert process.stdin is not None
    try:
        while data := await reader.read(_READ_BYTES):
            process.stdin.write(data)
            await process.stdin.drain()
    except OSError:
        pass
    await _end(process)


async def _pass_on_events(process: asyncio.subprocess.Process, writer: asyncio.StreamWriter) -> dict[str, int]:
    """Passes the engine's lines on to the peer, without half a line that a kill left. Returns how long the engine's
    threads waited for a CPU in the measured window, which no probe observes here; empty if that is not known."""
    assert process.stdout is not None
    waits = Waits()
    while (line := await process.stdout.readline()).endswith(b"\n"):
        waits.note(line, process.pid)
        writer.write(line)
        await writer.drain()
    return waits.sums()


class Waits:
    """Measures how long the threads of an engine were runnable without a CPU in its measured window, in ns, and how
    often they got one. The threads are read with each line of the engine; a thread that ended before the last reading
    counts as it was seen last."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[int, int]] | None = None  # by thread, when the window began
        self._now: dict[str, tuple[int, int]] = {}
        self._over = False

    def note(self, line: bytes, pid: int) -> None:
        """Reads the threads of the engine `pid`, which has just written this line."""
        if self._over or (self._before is None and not line.startswith(_BEGINS)):
            return
        self._now |= waits_of_threads(pid)
        if self._before is None:
            self._before = dict(self._now)
        self._over = line.startswith(_ENDS)

    def sums(self) -> dict[str, int]:
        """The sums over all threads within the window: `run_wait_ns`, and `turns` (how often one got a CPU); empty if
        the window did not begin and end."""
        if not self._over or not self._before:
            return {}
        waited_ns = turns = 0
        for thread, (now_ns, now) in self._now.items():
            before_ns, before = self._before.get(thread, (0, 0))
            waited_ns, turns = waited_ns + now_ns - before_ns, turns + now - before
        return {"run_wait_ns": waited_ns, "turns": turns}


def waits_of_threads(pid: int) -> dict[str, tuple[int, int]]:
    """The waits of a process's threads by thread id: the ns that each was runnable without a CPU so far, and how often
    it got one (second and third figure of schedstat). A thread that cannot be read is left out."""
    found = {}
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with suppress(OSError, ValueError):  # it has just ended, or the kernel lacks these figures
            _, waited, turns = path.read_text().split()
            found[path.parent.name] = int(waited), int(turns)
    return found


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        await asyncio.shield(asyncio.wait_for(process.wait(), END_S))
    except (TimeoutError, asyncio.CancelledError):
        with suppress(ProcessLookupError):
            process.kill()


async def run(order: dict[str, Any], stdin: asyncio.StreamReader, say: Callable[..., None]) -> None:
    """Serves connections until the end of stdin."""
    program = _Program(str(find_engine()), order["secret"])
    server = await asyncio.start_server(program.serve, order["address"], 0)
    port = server.sockets[0].getsockname()[1]
    say("ready", port=port, descriptor_limit=descriptor_limit(), local_ports=local_ports())
    await stdin.read()
    server.close()
    await program.end()


async def _main(say: Callable[..., None]) -> None:
    stdin = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin.buffer)
    if line := await stdin.readline():
        order = json.loads(line)
        await run(order, stdin, say)
        shutil.rmtree(order["work"], ignore_errors=True)  # after an error the actor reads the log in it first


def main() -> None:
    """Runs the program: reads the order from stdin and serves until the end of stdin; says `failed` if it cannot."""
    say = answers()
    as_if_started_here()
    try:
        check_priority()
        asyncio.run(_main(say))
    except PowerbandError as error:
        say("failed", kind="MeasurementError", message=str(error))
    except OSError as error:
        say(
            "failed",
            kind="MeasurementError",
            message=f"the load generator cannot be started here: {error.strerror or error}",
        )


if __name__ == "__main__":
    main()
