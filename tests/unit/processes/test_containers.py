"""The container behind a port is asked for, and taken only if its process is one of this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from powerband.processes import containers
from powerband.processes.containers import Container, container_at, server_at
from powerband.processes.ports import pick_port

ID = "0123456789abcdef" * 4


@pytest.fixture
def client(tmp_path: Path) -> Path:
    """A container engine's client, which knows one container of any port, and notes which it is to kill."""
    program = tmp_path / "docker"
    program.write_text(
        f"#!/bin/sh\ncase $1 in ps) echo short;; inspect) echo 4711 {ID};; kill) echo $2 >> {tmp_path}/killed;; esac\n"
    )
    program.chmod(0o755)
    return program


def processes_in(monkeypatch: pytest.MonkeyPatch, container: str | None) -> None:
    monkeypatch.setattr(containers, "_id_of", lambda pid: container)


@pytest.mark.parametrize("words", [(), ("compose", "-f", "docker-compose.yml")])
@pytest.mark.parametrize(("container", "known"), [(ID, True), (ID[::-1], False), (None, False)])
def test_a_process_is_taken_if_it_is_in_that_container_here(
    client: Path, monkeypatch: pytest.MonkeyPatch, container: str | None, known: bool, words: tuple[str, ...]
) -> None:
    processes_in(monkeypatch, container)
    called = (str(client), *words)
    found = container_at(called, pick_port())
    assert found == (Container(called, 4711, ID) if known else None)


def test_without_a_client_or_an_answer_there_is_none(client: Path) -> None:
    client.write_text("#!/bin/sh\nexit 1\n")
    assert container_at((str(client),), pick_port()) is None
    assert container_at((f"{client}-missing",), pick_port()) is None


@pytest.mark.parametrize("words", [(), ("compose",)])
@pytest.mark.parametrize("container", [ID, None, ID[::-1]])
def test_it_is_killed_only_while_its_process_is_still_there(
    client: Path, monkeypatch: pytest.MonkeyPatch, container: str | None, words: tuple[str, ...]
) -> None:
    processes_in(monkeypatch, container)
    Container((str(client), *words), 4711, ID).end()
    assert client.with_name("killed").exists() is (container == ID)


@pytest.mark.parametrize(
    ("listens", "inside", "server"),
    [
        (("server", 7), None, ("server", 7)),
        (("docker-proxy", 7), Container(("docker",), 4711, ID), ("a container", 4711)),
        (("dockerd", 7), None, None),
        (None, None, None),
    ],
)
def test_the_server_behind_a_port_is_not_the_proxy_before_it(
    monkeypatch: pytest.MonkeyPatch,
    listens: tuple[str, int] | None,
    inside: Container | None,
    server: tuple[str, int] | None,
) -> None:
    monkeypatch.setattr(containers, "listener", lambda port: listens)
    monkeypatch.setattr(containers, "container_at", lambda client, port: inside)
    assert server_at(80) == server


def test_ctrl_c_in_the_terminal_does_not_reach_the_client_that_ends_a_container() -> None:
    (session,) = containers._output_of((sys.executable,), "-c", "import os; print(os.getsid(0))")
    assert int(session) != os.getsid(0)
