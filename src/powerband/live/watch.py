"""Opens the live page of a directory, for `powerband watch` and for the process beside a run.

In: a run directory, or a folder of them, and the address to listen on. Out: a server, until it is ended, whose address
is reported.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

from powerband.base.errors import UsageError
from powerband.live.growing_files import plain_text
from powerband.live.guard import access_for
from powerband.live.pages import run_address
from powerband.live.server import LivePages
from powerband.live.serving import bind, connections_max, serve

PORT = 8420
"""The preferred port, so that the address stays the same; if it is taken, any free one is used."""
HOST = "127.0.0.1"
NICE = 19  # beside a run, which has priority


def watch(
    directory: Path,
    *,
    host: str = HOST,
    port: int | None = None,
    token: str | None = None,
    told: Callable[[str], None],
    until: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Serves until SIGINT or SIGTERM, or until `until` returns. `directory`: a run, whose page is the first and whose
    siblings are its history; or a folder of runs. `port` None: `PORT` if it is free, otherwise any. `told` is called
    with the address.

    Raises UsageError if the directory does not exist, if it cannot listen on that address, or if it may not open enough
    files."""
    connections = connections_max()
    root, folder = _root_of(directory)
    listener = _listen(host, port)
    with listener:
        bound = listener.getsockname()[1]
        access = access_for(host, bound, token, socket.gethostname())
        told(_address(host, bound, run_address(folder) if folder else "/", access.token))
        asyncio.run(serve(LivePages(root, access), listener, connections, until))


def _root_of(directory: Path) -> tuple[Path, str]:
    """The folder of runs, and the name of the run if `directory` is one; otherwise an empty name."""
    try:
        there = directory.resolve(strict=True)
    except OSError:
        raise UsageError(
            f"{directory} does not exist: name a run directory, or the folder that runs are made in (runs by default)"
        ) from None
    if not there.is_dir():
        raise UsageError(f"{directory} is no folder: name a run directory, or the folder that runs are made in")
    if (there / "experiment.yaml").is_file() and there.name:
        if plain_text(there.name) != there.name:
            shown = plain_text(str(directory))
            raise UsageError(f"{shown}: its name is not UTF-8, so that no address can name it: rename the folder")
        return there.parent, there.name
    return there, ""


def _listen(host: str, port: int | None) -> socket.socket:
    try:
        return bind(host, PORT if port is None else port)
    except OSError as error:
        if port is None and error.errno == errno.EADDRINUSE:
            return bind(host, 0)
        why = error.strerror or str(error)
        raise UsageError(f"cannot listen on {host}, port {port if port is not None else PORT}: {why}") from None


def _address(host: str, port: int, path: str, token: str | None) -> str:
    everywhere = host in ("", "0.0.0.0", "::")
    name = socket.gethostname() if everywhere else host
    shown = f"[{name}]" if ":" in name else name
    return f"http://{shown}:{port}{path}" + (f"?token={token}" if token else "")
