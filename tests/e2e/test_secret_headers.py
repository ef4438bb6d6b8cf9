"""A header's value comes from the environment: the server gets it, and no file of the run contains it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.usefixtures("engine", "no_process_left")]

TOKEN = "tiger-6"
HEADER = ("-H", "Authorization: Bearer {env:API_TOKEN}")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        knows = self.headers["Authorization"] == f"Bearer {TOKEN}"
        self.send_response(200 if knows else 401)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:  # type: ignore[override]
        pass


@pytest.fixture
def url() -> Iterator[str]:
    """The URL of a server that serves only requests with the token."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def powerband(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "powerband", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def test_a_server_gets_it_and_no_file_has_it(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_TOKEN", TOKEN)
    assert powerband(tmp_path, "load", url, "-c", "2", "-d", "1s", *HEADER).returncode == 0
    server = ("{engine}", "serve", "--port", "{port}")
    short = ("--no-progress", "--duration", "300ms", "--warmup", "100ms", "--repeats", "1", "--users", "2")
    done = powerband(tmp_path, "tune", "-P", "x=1", *short, *HEADER, "--", *server, "--threads", "{x}")
    assert done.returncode in (0, 5), done.stderr  # 5: a busy machine
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == "report.html" for path in files)
    assert not [path for path in files if TOKEN.encode() in path.read_bytes()]


def test_one_that_is_not_set_is_told_before_anything_starts(url: str, tmp_path: Path) -> None:
    for command in (("load", url, "-c", "2", "-d", "300ms"), ("tune", "-P", "x=1")):
        words = () if command[0] == "load" else ("--", "no-such-server", "{port}", "{x}")
        done = powerband(tmp_path, *command, *HEADER, *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert "API_TOKEN is not set, and a header takes its value from it" in done.stderr
