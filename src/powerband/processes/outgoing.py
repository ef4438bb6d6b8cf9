"""Counts the TCP connections that a process tree has opened itself: to a database, a remote, a backend.

In: the pid that all of the tree descends from. Out: a count. A connection whose local port is one that the tree listens
on came from outside, every other went out. Connections by Unix sockets cannot be told from a program's own wake-up
pipes, and are not counted.
"""

from __future__ import annotations

from powerband.base.procfs import ESTABLISHED, LISTEN, all_processes, socket_inodes, tcp_sockets, tree_of


def outgoing_connections(root_pid: int) -> int:
    """Established TCP connections that descendants of `root_pid` opened."""
    descendants = tree_of(root_pid, all_processes()) - {root_pid}
    inodes = {inode for pid in descendants for inode in socket_inodes(pid)}
    own = [each for each in tcp_sockets(root_pid) if each.inode in inodes]
    listens = {each.port for each in own if each.state == LISTEN}
    return sum(each.state == ESTABLISHED and each.port not in listens for each in own)
