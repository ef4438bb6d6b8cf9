"""Picks ports, of TCP unless said otherwise, that are free and stay so, since they are outside the range from which the
kernel takes ports for outgoing connections; and finds out who uses a port."""

from __future__ import annotations

import errno
import os
import random
import socket
import struct
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from powerband.base.errors import MeasurementError
from powerband.base.procfs import LISTEN, ProcessStat, TcpSocket, all_processes, socket_inodes, tcp_sockets, tree_of

_LOWEST = 10_000  # the well-known ports of most servers are below
_HIGHEST = 65_535
_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
SYSTEMD = "systemd"
"""The program, a user's own one too, that listens for services which it starts at their first connection."""
_DEFAULT_LOCAL_PORTS = (32_768, 60_999)  # Linux's own


def pick_port() -> int:
    """Returns a port on which nothing listens and no connection lingers. The load's own connections cannot take it,
    since it lies outside `ip_local_port_range` (unless that leaves too few). Raises MeasurementError if none is
    found."""
    for port in random.sample(_candidates(local_port_range()), 200):
        if port_is_free(port):
            return port
    raise MeasurementError("no free TCP port was found among 200 tried: close some servers, or give a fixed port")


def pick_ports(count: int) -> list[int]:
    """Returns `count` different ports. Raises MeasurementError like `pick_port`."""
    picked: set[int] = set()
    while len(picked) < count:
        picked.add(pick_port())
    return list(picked)


def pick_udp_port() -> int:
    """Returns a UDP port of 127.0.0.1 that nobody has bound. Raises MeasurementError if none is found."""
    for port in random.sample(_candidates(local_port_range()), 200):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise MeasurementError("no free UDP port was found among 200 tried: close some servers")


def port_is_free(port: int) -> bool:
    """True if a server could bind this port on every address, IPv6 included, without SO_REUSEADDR."""
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind((address, port))
        except OSError as error:
            if family == socket.AF_INET6 and error.errno in _NO_IPV6:
                continue
            return False
    return True


def someone_listens(host: str, port: int) -> bool:
    """True if a connection to the port is accepted within 250 ms."""
    try:
        with socket.create_connection((host, port), 0.25) as connection:
            return not meets_itself(connection)
    except OSError:
        return False


def meets_itself(connection: socket.socket) -> bool:
    """True if both ends of a connection are one socket: where nobody listens on a local port, the kernel may give that
    very port to who connects to it. Such a socket does not linger once it is closed: that would keep the port from a
    server."""
    with suppress(OSError):  # the other end has closed it, so there is another
        if connection.getsockname() == connection.getpeername():
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return True
    return False


def listens_below(port: int, root: int) -> bool:
    """True if a socket listens on the port in the network namespace of a process, or of one that descends from it."""
    tree = tree_of(root, all_processes())
    return any(each.state == LISTEN and each.port == port for pid in tree for each in tcp_sockets(pid))


class Stranger(NamedTuple):
    """A program that listens on a port. `name`: with its pid, where that is known. `older`: True if it was started
    before the process that was asked about."""

    name: str
    older: bool


def stranger_on(port: int, root: int) -> Stranger | None:
    """Returns the program that listens on a local port, the oldest of several, if neither the process `root` nor a
    descendant of it does; None as well if /proc does not show it."""
    inodes = {each.inode for each in tcp_sockets() if each.state == LISTEN and each.port == port}
    if not inodes:
        return None
    processes = {process.pid: process for process in all_processes()}
    if root not in processes:
        return None
    tree = tree_of(root, processes.values())
    if any(_holds(pid, inodes) or not os.access(f"/proc/{pid}/fd", os.R_OK) for pid in tree & processes.keys()):
        return None
    outside = (process for pid, process in processes.items() if pid not in tree and _holds(pid, inodes))
    oldest = min(outside, key=lambda process: process.started, default=None)
    if oldest is None:
        return Stranger("a program of another user", older=False)
    return Stranger(f"{oldest.name} (pid {oldest.pid})", oldest.started < processes[root].started)


def listener(port: int) -> tuple[str, int] | None:
    """Returns name and pid of the program that listens on a local port, the oldest of several, but systemd only if it
    has passed the socket on to nobody; None if /proc does not show it."""
    oldest = min(_holders(port), key=lambda each: (each.name == SYSTEMD, each.started), default=None)
    return None if oldest is None else (oldest.name, oldest.pid)


def serving(port: int) -> int:
    """Returns how many processes serve a local port, as far as /proc shows. A parent that has passed the socket on to
    its children, as gunicorn's and nginx's does, is not one."""
    found = _holders(port)
    parents = {each.parent for each in found}
    return sum(each.pid not in parents for each in found)


def addresses_of(host: str) -> int:
    """Returns how many addresses of one kind a name has; 0 if it is not known."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return 0
    return max(Counter(family for family, *_ in found).values(), default=0)


def listening(root: int) -> list[TcpSocket]:
    """Returns the sockets on which a process and its descendants listen, as far as /proc shows."""
    inodes = {inode for pid in tree_of(root, all_processes()) for inode in socket_inodes(pid) or ()}
    return sorted(each for each in tcp_sockets() if each.state == LISTEN and each.inode in inodes)


def _holders(port: int) -> list[ProcessStat]:
    inodes = {each.inode for each in tcp_sockets() if each.state == LISTEN and each.port == port}
    return [each for each in all_processes() if inodes and _holds(each.pid, inodes)]


def _holds(pid: int, inodes: set[str]) -> bool:
    """True if the process has one of these sockets open; False if that cannot be seen."""
    return not inodes.isdisjoint(socket_inodes(pid) or ())


def local_port_range() -> tuple[int, int]:
    """Returns the range from which the kernel takes ports for outgoing connections, both ends included."""
    try:
        low, high = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    except (OSError, ValueError):
        return _DEFAULT_LOCAL_PORTS
    return int(low), int(high)


def local_ports() -> int:
    """Returns how many connections one address of this machine may open to one destination."""
    low, high = local_port_range()
    return high - low + 1


def _candidates(taken: tuple[int, int]) -> list[int]:
    """Returns at least 200 ports to try: those outside the range, or all of them if the range leaves too few."""
    everything = range(_LOWEST, _HIGHEST + 1)
    outside = [port for port in everything if not taken[0] <= port <= taken[1]]
    return outside if len(outside) >= 200 else list(everything)
