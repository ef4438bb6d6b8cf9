"""The connections of a process tree: those that it opened itself, and how many sockets its processes hold.

In: the pid of the tree's root. Out: counts. A connection whose local port the tree listens on came from outside; all
others were opened by the tree. Connections over Unix sockets cannot be told from a program's own wake-up pipes, so they
do not count as outgoing.
"""

from __future__ import annotations

from dataclasses import dataclass

from powerband.base.procfs import ESTABLISHED, LISTEN, all_processes, socket_inodes, tcp_sockets, tree_of


@dataclass(frozen=True)
class TreeConnections:
    """Counts of a process tree. `outgoing`: established TCP connections that the tree opened; None if none was seen,
    and not all of its processes show theirs. `held`: by process name, the different sockets of any kind that these
    processes have open; without the names of those that do not show it."""

    outgoing: int | None
    held: dict[str, int]


def connections_of(root_pid: int, *, and_its_own: bool = False) -> TreeConnections:
    """Counts the connections of the descendants of `root_pid`; with `and_its_own`, also those of that process."""
    processes = all_processes()
    descendants = tree_of(root_pid, processes) - (set() if and_its_own else {root_pid})
    inodes: dict[str, set[str]] = {}
    unseen: set[str] = set()
    for process in processes:
        if process.pid in descendants and process.state != "Z":
            found = socket_inodes(process.pid)
            if found is None:
                unseen.add(process.name)
            inodes.setdefault(process.name, set()).update(found or ())
    everyone = set().union(*inodes.values())
    own = [each for each in tcp_sockets(root_pid) if each.inode in everyone]
    listens = {each.port for each in own if each.state == LISTEN}
    outgoing = sum(each.state == ESTABLISHED and each.port not in listens for each in own)
    held = {name: len(found) for name, found in inodes.items() if name not in unseen}
    # The sockets of powerband's own keeper, which is among them, may be unseen, too: its program may have capabilities.
    return TreeConnections(outgoing if outgoing or (inodes and not unseen) else None, held)
