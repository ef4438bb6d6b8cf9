"""Finds out where a server is: on this machine, or on another one.

A container or a virtual machine of this machine may have a network of its own, to which a bridge leads. Sources: the
kernel's Documentation/ABI/testing/sysfs-class-net, and its net/ipv4/fib_trie.c for /proc/net/route.
"""

from __future__ import annotations

import socket
import sys
from contextlib import suppress
from ipaddress import IPv4Address
from pathlib import Path
from typing import NamedTuple

from powerband.base.hosts import is_loopback

CONNECT_WITHIN_S = 1.0  # as for a subject that is asked whether it is ready
_WITHIN = ("", "veth", "tun", "tap", "dummy")
"""Kinds of interfaces that lead to no other machine, as the kernel names them; most have no name."""


class Place(NamedTuple):
    """The place of a server. `here`: it is on this machine; `own_network`: it has a network of its own there."""

    here: bool
    own_network: bool = False

    @property
    def in_our_network(self) -> bool:
        """True if its sockets are among those that this process sees."""
        return self.here and not self.own_network

    def record(self) -> dict[str, bool]:
        """The facts for a trial's record."""
        return {"here": self.here} | ({"own_network": True} if self.own_network else {})


def place_of(host: str, port: int) -> Place:
    """Returns where the server is. It is on this machine if its host, or the address of that host, is on loopback
    (Debian gives the machine's own name 127.0.1.1), if a connection to it has the same address at both ends, or if it
    is `behind_bridge`. A server that does not answer is on another machine."""
    if is_loopback(host):
        return Place(here=True)
    try:
        with socket.create_connection((host, port), CONNECT_WITHIN_S) as connection:
            own, other = connection.getsockname()[0], connection.getpeername()[0]
    except OSError:
        return Place(here=False)
    if own == other or is_loopback(other):
        return Place(here=True)
    apart = behind_bridge(other)
    return Place(here=apart, own_network=apart)


def behind_bridge(address: str, root: Path = Path("/")) -> bool:
    """True if an IPv4 address is reached by a bridge of this machine, none of whose ports leads to another machine."""
    with suppress(OSError, ValueError, IndexError):
        interfaces = root / "sys/class/net"
        bridge = interfaces / _way_to(address, root)
        if (bridge / "bridge").is_dir():
            return not any(_leads_out(interfaces / port.name) for port in (bridge / "brif").iterdir())
    return False


def _way_to(address: str, root: Path) -> str:
    """The name of the interface by which an address is reached. Raises ValueError if there is none, if a gateway is
    between, which may be on another machine, or if the address is none of IPv4, and OSError if the routes cannot be
    read."""
    sought = int(IPv4Address(address))
    found: list[tuple[int, int, str, int]] = []
    for line in (root / "proc/net/route").read_text().splitlines()[1:]:
        fields = line.split()
        net, gateway, mask = (_number(fields[at]) for at in (1, 2, 7))
        if sought & mask == net:
            found.append((mask, -int(fields[6]), fields[0], gateway))
    *_, name, gateway = max(found)
    if gateway:
        raise ValueError(address)
    return name


def _number(word: str) -> int:
    """An address or mask, which the kernel writes as a number of this machine's byte order."""
    return int.from_bytes(int(word, 16).to_bytes(4, sys.byteorder), "big")


def _leads_out(interface: Path) -> bool:
    """True if the interface is a network card, stands upon another interface, or is of a kind that may lead to another
    machine."""
    if (interface / "device").exists() or any(interface.glob("lower_*")):
        return True
    kinds = [line[8:] for line in (interface / "uevent").read_text().splitlines() if line.startswith("DEVTYPE=")]
    return (kinds or [""])[0] not in _WITHIN
