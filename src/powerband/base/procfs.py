"""Reads processes and their sockets from /proc (proc_pid_stat(5), proc_pid_fd(5), proc_pid_net(5))."""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple


class ProcessStat(NamedTuple):
    """The process `pid` as the kernel describes it. `name`: its command, cut at 15 bytes; `state`: one letter (`R`
    runs, `S` sleeps, `Z` ended); `parent`, `session`: pids of its parent, and of the leader of its session. `started`:
    its start, in clock ticks since the machine's. `cpu_ticks`: the CPU time of all its threads; `reaped_ticks`: that of
    children that ended and were waited for; both in clock ticks (`TICKS_PER_S`). `rss_pages`: its resident memory."""

    pid: int
    name: str
    state: str
    parent: int
    session: int
    started: int
    cpu_ticks: int
    reaped_ticks: int
    rss_pages: int


TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


def process_stat(pid: int, proc: Path = _PROC) -> ProcessStat:
    """Reads one process. Raises OSError if there is no such process."""
    head, _, rest = Path(f"{proc}/{pid}/stat").read_text(errors="replace").rpartition(")")
    fields = rest.split()
    parent, session, started = (int(fields[at]) for at in (1, 3, 19))
    own, reaped = (int(fields[at]) + int(fields[at + 1]) for at in (11, 13))
    return ProcessStat(pid, head.partition("(")[2], fields[0], parent, session, started, own, reaped, int(fields[21]))


def all_processes(proc: Path = _PROC) -> list[ProcessStat]:
    """Reads all processes; those that end meanwhile may be missing."""
    found = []
    for name in os.listdir(proc):  # noqa: PTH208 - cheap with many processes
        if name.isdigit():
            with suppress(OSError):
                found.append(process_stat(int(name), proc))
    return found


def tree_of(root: int, processes: Iterable[ProcessStat]) -> set[int]:
    """The pids of a process and all that descends from it."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for process in processes:
        children[process.parent].append(process.pid)
    tree, waiting = {root}, [root]
    while waiting:
        # Processes were read at different times, so a reused pid may seem to descend from itself.
        below = [pid for pid in children[waiting.pop()] if pid not in tree]
        tree.update(below)
        waiting += below
    return tree


def socket_inodes(pid: int) -> set[str] | None:
    """The inodes of the sockets that a process has open, none if it has ended; None if we may not see them."""
    folder = f"/proc/{pid}/fd"
    found: set[str] = set()
    try:
        for name in os.listdir(folder):  # noqa: PTH208
            with suppress(FileNotFoundError):
                target = os.readlink(f"{folder}/{name}")  # noqa: PTH115
                if target.startswith("socket:["):
                    found.add(target[8:-1])
    except PermissionError:
        return None
    except OSError:
        return found
    return found


class TcpSocket(NamedTuple):
    """A TCP socket. `port`: the local one; `state`: two hexadecimal digits, as the kernel writes it; `inode`: the
    number by which `socket_inodes` finds its process, as text; `words`: the local address, as the kernel writes it;
    `far`: the address and port at the other end, as the kernel writes them."""

    port: int
    state: str
    inode: str
    words: str
    far: str = "00000000:0000"

    @property
    def host(self) -> str:
        """The local address as in a URL, `[::1]`."""
        words = (int(self.words[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(self.words), 8))
        address = ip_address(b"".join(words))
        return str(address) if address.version == 4 else f"[{address}]"

    @property
    def near_end(self) -> tuple[int, str]:
        """Its own end: the port and the last 32 bits of the address, which are the same in an IPv4 address and in the
        IPv6 one that stands for it. The other socket of a connection within one machine has it as `far_end`."""
        return self.port, self.words[-8:]

    @property
    def far_end(self) -> tuple[int, str]:
        """The other end, in the form of `near_end`."""
        words, _, port = self.far.partition(":")
        return int(port, 16), words[-8:]


ESTABLISHED, LISTEN = "01", "0A"


def tcp_sockets(pid: int | None = None) -> Iterator[TcpSocket]:
    """The TCP sockets of the network namespace of a process; None: of our own."""
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in Path(f"/proc/{'self' if pid is None else pid}/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                words, _, port = fields[1].partition(":")
                yield TcpSocket(int(port, 16), fields[3], fields[9], words, fields[2])
