"""The connections of a process tree: those that it has opened itself, and how many sockets its processes hold.

In: the pid that all of the tree descends from. Out: counts. A connection whose local port is one that the tree listens
on came from outside, every other went out. Connections by Unix sockets cannot be told from a program's own wake-up
pipes, and are not counted as outgoing.
"""

from __future__ import annotations

from dataclasses import dataclass

from powerband.base.procfs import ESTABLISHED, LISTEN, all_processes, socket_inodes, tcp_sockets, tree_of


@dataclass(frozen=True)
class TreeConnections:
    """`outgoing`: established TCP connections that the tree opened; `held`: sockets of any kind that the processes of a
    name have open together, each once."""

    outgoing: int
    held: dict[str, int]


def connections_of(root_pid: int, *, and_its_own: bool = False) -> TreeConnections:
    """Of the descendants of `root_pid`; `and_its_own`: and of that process."""
    processes = all_processes()
    descendants = tree_of(root_pid, processes) - (set() if and_its_own else {root_pid})
    inodes: dict[str, set[str]] = {}
    for process in processes:
        if process.pid in descendants:
            inodes.setdefault(process.name, set()).update(socket_inodes(process.pid))
    everyone = set().union(*inodes.values())
    own = [each for each in tcp_sockets(root_pid) if each.inode in everyone]
    listens = {each.port for each in own if each.state == LISTEN}
    outgoing = sum(each.state == ESTABLISHED and each.port not in listens for each in own)
    return TreeConnections(outgoing, {name: len(found) for name, found in inodes.items()})
