"""Counts the TCP connections that a process tree has opened itself: to a database, a remote, a backend.

In: the pid that all of the tree descends from. Out: a count. A connection whose local port is one that the tree listens
on came from outside, every other went out. Connections by Unix sockets cannot be told from a program's own wake-up
pipes, and are not counted. Source: proc_pid_net(5).
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from pathlib import Path

from powerband.base.procfs import all_processes

_ESTABLISHED, _LISTEN = "01", "0A"


def outgoing_connections(root_pid: int) -> int:
    """Established TCP connections that descendants of `root_pid` opened."""
    listens: set[int] = set()
    connected: list[int] = []
    own: set[str] = set()
    for pid in _descendants(root_pid):
        own |= _sockets(pid)
    with suppress(OSError):
        for local, state, inode in _tcp(root_pid):
            if inode not in own:
                continue
            if state == _LISTEN:
                listens.add(local)
            elif state == _ESTABLISHED:
                connected.append(local)
    return sum(port not in listens for port in connected)


def _descendants(root_pid: int) -> list[int]:
    children: defaultdict[int, list[int]] = defaultdict(list)
    for process in all_processes():
        children[process.parent].append(process.pid)
    found, waiting = [], [root_pid]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += children[pid]
    return found[1:]


def _sockets(pid: int) -> set[str]:
    """The inodes of its sockets."""
    found = set()
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                target = str(entry.readlink())
                if target.startswith("socket:["):
                    found.add(target[len("socket:[") : -1])
    return found


def _tcp(pid: int) -> list[tuple[int, str, str]]:
    """Local port, state and inode of each TCP socket in the network namespace of a process."""
    rows = []
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
                fields = line.split()
                rows.append((int(fields[1].rpartition(":")[2], 16), fields[3], fields[9]))
    return rows
