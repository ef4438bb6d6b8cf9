"""The connections of a process tree, some of whose processes may be another user's."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from powerband.base import procfs
from powerband.base.procfs import ESTABLISHED, LISTEN, ProcessStat, TcpSocket, socket_inodes
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
