"""The connections of a process tree: those that it opened itself, and how many sockets its processes hold.

In: the pid of the tree's root. Out: counts. A connection whose local port the tree listens on was accepted; all others
were opened by the tree: by a process that calls another of the tree, as a proxy in front of a server does, or outgoing.
Connections over Unix sockets cannot be told from a program's own wake-up pipes, so they do not count.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from powerband.base.procfs import (
    ESTABLISHED,
    LISTEN,
    ProcessStat,
    TcpSocket,
    all_processes,
    socket_inodes,
    tcp_sockets,
    tree_of,
)


@dataclass(frozen=True)
class TreeConnections:
    """Counts of a process tree. `outgoing`: established TCP connections that the tree opened to others, or one of its
    processes to itself, as to a database within it; None if none was seen, and not all of its processes show theirs.
    `held`: by process name, the different sockets of any kind that these processes have open; without the names of
    those that do not show it. `inside`: by process name, the connections that these processes opened to another of the
    tree."""

    outgoing: int | None
    held: dict[str, int]
    inside: dict[str, int] = field(default_factory=dict)


def connections_of(root_pid: int, *, and_its_own: bool = False) -> TreeConnections:
    """Counts the connections of the descendants of `root_pid`; with `and_its_own`, also those of that process."""
    processes = all_processes()
    descendants = tree_of(root_pid, processes) - (set() if and_its_own else {root_pid})
    inodes: dict[str, set[str]] = {}
    holders: defaultdict[str, set[ProcessStat]] = defaultdict(set)
    unseen: set[str] = set()
    for process in processes:
        if process.pid in descendants and process.state != "Z":
            found = socket_inodes(process.pid)
            if found is None:
                unseen.add(process.name)
            inodes.setdefault(process.name, set()).update(found or ())
            for inode in found or ():
                holders[inode].add(process)
    outgoing, inside = _opened(list(tcp_sockets(root_pid)), holders)
    held = {name: len(found) for name, found in inodes.items() if name not in unseen}
    # The sockets of powerband's own keeper, which is among them, may be unseen, too: its program may have capabilities.
    return TreeConnections(outgoing if outgoing or (inodes and not unseen) else None, held, inside)


def _opened(sockets: Sequence[TcpSocket], holders: Mapping[str, set[ProcessStat]]) -> tuple[int, dict[str, int]]:
    """The connections that processes opened: those that are outgoing, and by process name those from one of them to
    another. `sockets`: of their whole network namespace; `holders`: the processes that have a socket open, by its
    inode."""
    listens = {each.port: each.inode for each in sockets if each.state == LISTEN and each.inode in holders}
    # One that nobody has accepted yet belongs to no process, but its end is that of the socket that listens.
    ends = {
        (each.near_end, each.far_end): each.inode if each.inode in holders else listens[each.port]
        for each in sockets
        if each.inode in holders or each.port in listens
    }
    opened = [
        each for each in sockets if each.state == ESTABLISHED and each.inode in holders and each.port not in listens
    ]
    others = ((each, ends.get((each.far_end, each.near_end))) for each in opened)
    inside = [each for each, at in others if at is not None and holders[each.inode].isdisjoint(holders[at])]
    names = Counter(name for each in inside for name in {process.name for process in holders[each.inode]})
    return len(opened) - len(inside), dict(names)
