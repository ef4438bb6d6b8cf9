"""Free TCP ports that stay free: from outside the range in which the kernel picks ports for outgoing connections."""

from __future__ import annotations

import errno
import random
import socket
from pathlib import Path

from powerband.errors import MeasurementError

_LOWEST = 10_000
_HIGHEST = 65_535
_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
_DEFAULT_LOCAL_PORTS = (32_768, 60_999)


def pick_port() -> int:
    """A port on which nothing listens and no connection lingers. The load's own connections cannot take it, since it
    lies outside `ip_local_port_range` (unless that leaves nothing). Raises MeasurementError where none is found."""
    for port in random.sample(_candidates(local_port_range()), 200):
        if port_is_free(port):
            return port
    raise MeasurementError("no free TCP port was found among 200 tried: close some servers, or give a fixed port")


def port_is_free(port: int) -> bool:
    """Whether a server could bind this port on every address, IPv6 included, without SO_REUSEADDR."""
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


def someone_listens(host: str, port: int, timeout_s: float = 0.25) -> bool:
    """Whether a connection to the port is accepted."""
    try:
        socket.create_connection((host, port), timeout_s).close()
    except OSError:
        return False
    return True


def local_port_range() -> tuple[int, int]:
    """From which the kernel takes ports for outgoing connections, both ends included."""
    try:
        low, high = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    except (OSError, ValueError):
        return _DEFAULT_LOCAL_PORTS
    return int(low), int(high)


def _candidates(taken: tuple[int, int]) -> list[int]:
    """At least 200 ports to try: those outside the range, or all of them where the range leaves too few."""
    everything = range(_LOWEST, _HIGHEST + 1)
    outside = [port for port in everything if not taken[0] <= port <= taken[1]]
    return outside if len(outside) >= 200 else list(everything)
