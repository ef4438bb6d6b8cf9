"""`watch` and `--live`: the refused options, with their messages. The served pages are tested in tests/e2e."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from powerband.cli import invoke
from powerband.live import watch as watching
from powerband.live.beside import page_beside
from powerband.live.watch import watch


def test_a_folder_that_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert invoke(["watch", str(tmp_path / "absent")]) == 2
    assert "absent does not exist: name a run directory" in capsys.readouterr().err


def test_a_file_is_no_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert invoke(["watch", str(tmp_path / "file")]) == 2
    assert "is no folder" in capsys.readouterr().err


def test_a_run_whose_name_is_no_text_has_no_address(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"run-\xff")
    odd.mkdir()
    (odd / "experiment.yaml").write_text("name: x\n")
    assert invoke(["watch", str(odd)]) == 2
    assert "its name is not UTF-8, so that no address can name it: rename the folder" in capsys.readouterr().err


@pytest.mark.parametrize("token", ["short", "has space here", "ümlaut-here", "semi;colon"])
def test_a_token_that_no_address_can_carry(token: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert invoke(["watch", str(tmp_path), "--token", token]) == 2
    assert "--token: write 8 or more" in capsys.readouterr().err


async def ends_at_once(*_: object) -> None:
    """Stands for the server."""


def test_a_port_that_is_taken_is_said_where_it_was_asked_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert invoke(["watch", str(tmp_path), "--port", str(port)]) == 2
    assert f"cannot listen on 127.0.0.1, port {port}: Address already in use" in capsys.readouterr().err


def test_a_host_that_is_not_of_this_machine(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert invoke(["watch", str(tmp_path), "--host", "192.0.2.1"]) == 2
    assert "cannot listen on 192.0.2.1" in capsys.readouterr().err


def test_the_usual_port_gives_way_to_any_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "experiment.yaml").write_text("name: x\n")
    told: list[str] = []
    monkeypatch.setattr(watching, "serve", ends_at_once)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(watching, "PORT", taken.getsockname()[1])
        watch(tmp_path / "run", told=told.append)
        assert told[0].startswith("http://127.0.0.1:") and told[0].endswith("/runs/run/")
        assert f":{taken.getsockname()[1]}/" not in told[0]
    watch(tmp_path, told=told.append)
    assert told[1].endswith("/") and "/runs/" not in told[1]


def test_a_page_that_cannot_start_does_not_end_the_run(tmp_path: Path) -> None:
    said: list[str] = []
    with page_beside(tmp_path / "absent", said.append):
        pass
    assert said[0].startswith("no live page: ") and "does not exist" in said[0]
