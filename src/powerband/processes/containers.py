"""Finds the server that a container engine's client started: it descends from the engine's daemon, not from the client.

In: the words that call the client, and the port of this machine that leads to the server. Out: a `Container`. Not here:
which commands are such a client's (`Subject.container_client`).
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from powerband.base.procfs import all_processes
from powerband.processes.ports import SYSTEMD, listener

A_CONTAINER = "a container"
"""The name that `server_at` gives to a server behind a published port."""
_PUBLISHERS = ("docker-proxy", "dockerd")
"""The programs that listen on a container's published port; dockerd itself if its `userland-proxy` is off."""
PASSES_ON = (SYSTEMD, "ssh", "sshd", "sshd-session", "kubectl", "rootlessport", "rootlesskit", "socat")
"""Programs that listen in place of a server elsewhere, which tell nothing of its work."""
_ANSWERS_WITHIN_S = 5.0  # arbitrary: an answer takes some tens of ms
_ID = re.compile(r"[0-9a-f]{64}")
_FAILURES = (OSError, subprocess.SubprocessError, ValueError)


@dataclass(frozen=True)
class Container:
    """A running container. `client`: the words that call the client; `pid`: its first process; `id`: the engine's name
    for it."""

    client: tuple[str, ...]
    pid: int
    id: str

    def end(self) -> None:
        """Kills the container if it still runs after its client has ended: the client was killed since it did not stop
        in time."""
        if _id_of(self.pid) == self.id:
            with suppress(*_FAILURES):
                _output_of(self.client, "kill", self.id)


def container_at(client: Sequence[str], port: int) -> Container | None:
    """Returns the container that serves a port of this machine: the one that publishes it, or one in the machine's own
    network that listens there. None if there is none, or if it cannot be seen."""
    found = [*_publishing(client, port), *_listening(port)]
    # A client may speak to another machine's daemon, whose numbers are not those of processes here.
    known = (Container(tuple(client), pid, name) for pid, name in found if name and _id_of(pid) == name)
    return next(known, None)


def server_at(port: int) -> tuple[str, int] | None:
    """Returns name and pid of the program that listens on a local port, the oldest of several; if a container publishes
    it, the container's first process. None if that cannot be seen."""
    found = listener(port)
    if found is None or found[0] not in _PUBLISHERS:
        return found
    inside = container_at(("docker",), port)
    return None if inside is None else (A_CONTAINER, inside.pid)


def _publishing(client: Sequence[str], port: int) -> Iterable[tuple[int, str]]:
    with suppress(*_FAILURES):
        for name in _output_of(client, "ps", "--quiet", "--filter", f"publish={port}"):
            pid, whole = _output_of(client, "inspect", "--format", "{{.State.Pid}} {{.Id}}", name)
            yield int(pid), whole


def _listening(port: int) -> Iterable[tuple[int, str | None]]:
    """Yields the first process of the pid namespace of the program that listens on a port."""
    if (found := listener(port)) is None:
        return
    pid, parents = found[1], {process.pid: process.parent for process in all_processes()}
    with suppress(OSError, KeyError):
        own = _namespace(pid)
        while _namespace(parents[pid]) == own:
            pid = parents[pid]
        yield pid, _id_of(pid)


def _output_of(client: Sequence[str], *words: str) -> list[str]:
    """Returns the words that a command of the client prints. Docker's own client stands for `docker compose`, whose
    commands differ. Raises one of `_FAILURES`."""
    called = client[: client.index("compose")] if "compose" in client else client
    done = subprocess.run(
        [*called, *words],
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C in the terminal must not end the command that kills a container
        capture_output=True,
        text=True,
        timeout=_ANSWERS_WITHIN_S,
        check=True,
    )
    return done.stdout.split()


def _id_of(pid: int) -> str | None:
    """Returns the id in the name of a process's cgroup; None if it has none, or if there is no such process."""
    with suppress(OSError):
        if found := _ID.search(Path(f"/proc/{pid}/cgroup").read_text()):
            return found[0]
    return None


def _namespace(pid: int) -> str:
    return str(Path(f"/proc/{pid}/ns/pid").readlink())
