"""The connections of a process tree, some of whose processes may be another user's."""

from __future__ import annotations

import socket
from collections.abc import Iterable

import pytest

from powerband.base import procfs
from powerband.base.procfs import ESTABLISHED, LISTEN, ProcessStat, TcpSocket, socket_inodes, tcp_sockets
from powerband.processes import connections
from powerband.processes.connections import TreeConnections, connections_of

TABLE = [
    TcpSocket(80, LISTEN, "1", "0100007F"),
    TcpSocket(80, ESTABLISHED, "2", "0100007F"),
    TcpSocket(40_000, ESTABLISHED, "3", "0100007F"),
]


def process(pid: int, name: str, state: str = "S", *, parent: int = 1) -> ProcessStat:
    return ProcessStat(pid, name, state, parent, pid, pid, 0, 0, 0)


@pytest.mark.parametrize(
    ("seen", "found"),
    [
        ({10: set(), 11: {"1", "2", "3"}, 12: None}, TreeConnections(1, {"sh": 0, "server": 3})),
        ({10: set(), 11: None, 12: None}, TreeConnections(None, {"sh": 0})),
        ({10: None, 11: None, 12: None}, TreeConnections(None, {})),
        ({10: None, 11: {"1", "2", "3"}, 12: None}, TreeConnections(1, {"server": 3})),
    ],
    ids=["seen", "a server of another user", "a whole tree of another user", "a parent that does not show its own"],
)
def test_connections_that_cannot_be_seen_are_not_counted_as_none(
    monkeypatch: pytest.MonkeyPatch, seen: dict[int, set[str] | None], found: TreeConnections
) -> None:
    """A process that has ended, and that nobody has waited for, has none to see."""
    tree = [process(10, "sh"), process(11, "server", parent=10), process(12, "server", "Z", parent=10)]
    monkeypatch.setattr(connections, "all_processes", lambda: tree)
    monkeypatch.setattr(connections, "socket_inodes", seen.__getitem__)
    monkeypatch.setattr(connections, "tcp_sockets", lambda pid: TABLE)
    assert connections_of(10, and_its_own=True) == found


def test_no_process_has_no_connections_that_were_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "all_processes", list)
    monkeypatch.setattr(connections, "tcp_sockets", lambda pid: TABLE)
    assert connections_of(10, and_its_own=True) == TreeConnections(None, {})


def ends(
    inode: str, port: int, far: int, *, state: str = ESTABLISHED, mapped: bool = False, host: str = "0100007F"
) -> TcpSocket:
    """A socket at a port, connected to another port of the same machine. `mapped`: it is of IPv6."""
    before = "0000000000000000FFFF0000" if mapped else ""
    return TcpSocket(port, state, inode, f"{before}0100007F", f"{before}{host}:{far:04X}")


LISTENS = TcpSocket(8000, LISTEN, "1", "00000000")


@pytest.mark.parametrize(
    ("sockets", "outgoing", "inside"),
    [
        pytest.param([ends("11", 40_000, 8000), ends("2", 8000, 40_000)], 0, {"nginx": 1}, id="a proxy and its server"),
        pytest.param(
            [ends("11", 40_000, 8000), ends("2", 8000, 40_000, mapped=True)],
            0,
            {"nginx": 1},
            id="a server that listens on IPv6",
        ),
        pytest.param(
            [ends("11", 40_000, 8000), ends("0", 8000, 40_000)], 0, {"nginx": 1}, id="nobody has accepted it yet"
        ),
        pytest.param([ends("3", 40_000, 8000), ends("2", 8000, 40_000)], 1, {}, id="a database within the server"),
        pytest.param([ends("11", 40_000, 5432)], 1, {}, id="a server elsewhere on the machine"),
        pytest.param(
            [ends("11", 40_000, 8000, host="0200000A"), ends("2", 8000, 40_000)], 1, {}, id="the same ports elsewhere"
        ),
        pytest.param([ends("0", 8000, 40_000), ends("2", 8000, 40_001)], 0, {}, id="callers"),
    ],
)
def test_a_proxy_that_calls_the_server_behind_it_is_no_caller_of_others(
    monkeypatch: pytest.MonkeyPatch, sockets: list[TcpSocket], outgoing: int, inside: dict[str, int]
) -> None:
    seen = {10: set[str](), 11: {"10", "11"}, 12: {"1", "2", "3"}}
    tree = [process(10, "sh"), process(11, "nginx", parent=10), process(12, "node", parent=10)]
    monkeypatch.setattr(connections, "all_processes", lambda: tree)
    monkeypatch.setattr(connections, "socket_inodes", seen.__getitem__)
    monkeypatch.setattr(connections, "tcp_sockets", lambda pid: [LISTENS, *sockets])
    found = connections_of(10, and_its_own=True)
    assert (found.outgoing, found.inside) == (outgoing, inside)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_each_socket_of_a_connection_has_the_end_of_the_other_one() -> None:
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client, server.accept()[0]:
            ports = {port, client.getsockname()[1]}
            one, other = (each for each in tcp_sockets() if each.state == ESTABLISHED and each.port in ports)
            assert (one.near_end, one.far_end) == (other.far_end, other.near_end)


@pytest.mark.parametrize(
    ("names", "link", "found"),
    [
        (["0", "3"], "socket:[77]", {"77"}),
        (["0"], "/dev/null", set()),
        (["0"], FileNotFoundError(), set()),
        (["0"], PermissionError(), None),
        (PermissionError(), "", None),
        (FileNotFoundError(), "", set()),
    ],
)
def test_sockets_of_a_process_that_we_may_not_see_are_unknown(
    monkeypatch: pytest.MonkeyPatch, names: list[str] | OSError, link: str | OSError, found: Iterable[str] | None
) -> None:
    def told(answer: list[str] | str | OSError) -> list[str] | str:
        if isinstance(answer, OSError):
            raise answer
        return answer

    with monkeypatch.context() as patched:
        patched.setattr(procfs.os, "listdir", lambda path: told(names))
        patched.setattr(procfs.os, "readlink", lambda path: told(link))
        seen = socket_inodes(4711)
    assert seen == found
