"""The connections, descriptors, time and memory of the live page's server are bounded, whatever its clients do, and it
runs no code from the current folder."""

from __future__ import annotations

import asyncio
import fcntl
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse, IncompleteRead
from pathlib import Path
from threading import Thread

import pytest

from fakes import synthetic
from fakes.live_runs import written
from fakes.live_server import TIMEOUT_S, Served, Viewer
from powerband.live import serving
from powerband.live.beside import page_beside
from powerband.live.guard import access_for
from powerband.live.server import LivePages
from powerband.live.serving import bind, serve
from powerband.search.noise import wake_ups_ns
from powerband.store import RunDir

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.usefixtures("no_process_left")]

PATIENCE_S = 1.0
LARGE = "/static/echarts.min.js"


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return written(tmp_path / "runs", "20261120-100000-small", synthetic.analysis())


@contextmanager
def within(run: RunDir, connections: int) -> Iterator[tuple[str, int]]:
    """Runs the server in this process, with a short patience; yields its address."""
    pages = LivePages(run.path.parent, access_for("127.0.0.1", 0, None, "machine"))
    ended = False

    async def until() -> None:
        while not ended:
            await asyncio.sleep(0.02)

    with pytest.MonkeyPatch.context() as patch, bind("127.0.0.1", 0) as listener:
        patch.setattr(serving, "PATIENCE_S", PATIENCE_S)
        thread = Thread(target=asyncio.run, args=(serve(pages, listener, connections, until),))
        thread.start()
        try:
            yield listener.getsockname()
        finally:
            ended = True
            thread.join()


def status(address: tuple[str, int], path: str = "/") -> int:
    connection = HTTPConnection(*address, timeout=TIMEOUT_S)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


def is_dropped(client: socket.socket, said: bytes = b"") -> bool:
    """True if the server closes the connection after it has sent these bytes."""
    client.settimeout(TIMEOUT_S)
    heard = b""
    try:
        while piece := client.recv(4096):
            heard += piece
    except ConnectionResetError:
        pass
    return heard[: len(said)] == said


@pytest.mark.parametrize(
    ("begin", "drop"),
    [(b"", b""), (b"GET / HTTP/1.1\r\n", b""), (b"GET / HTTP/1.1\r\n", b"a: b\r\n"),
     (b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9999\r\n\r\n", b"x")],
)  # fmt: skip
def test_a_request_that_is_never_whole_is_dropped(run: RunDir, begin: bytes, drop: bytes) -> None:
    with within(run, 8) as address, socket.create_connection(address) as client:
        client.sendall(begin)
        until_s = time.monotonic() + 20 * PATIENCE_S  # it is dropped after one, on a busy machine later
        try:
            while time.monotonic() < until_s and drop:
                client.sendall(drop)
                time.sleep(0.05)
            assert not drop, "it takes what drips for ever"
        except (BrokenPipeError, ConnectionResetError):
            return
        assert is_dropped(client)


def test_one_who_does_not_read_is_dropped(run: RunDir) -> None:
    with within(run, 8) as address, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(address)
        client.sendall(f"GET {LARGE} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        time.sleep(4 * PATIENCE_S)
        answer = HTTPResponse(client)
        answer.begin()
        with pytest.raises(IncompleteRead):
            answer.read()
        assert status(address, LARGE) == 200


def test_one_who_waits_gives_way_to_one_who_asks(run: RunDir) -> None:
    with within(run, 8) as address:
        half = [socket.create_connection(address) for _ in range(60)]
        for client in half:
            client.sendall(b"GET / HTTP/1.1\r\n")
        assert status(address) == 200
        assert is_dropped(half[0])
        for client in half:
            client.close()


def test_a_head_that_is_too_large_is_refused(run: RunDir) -> None:
    with within(run, 8) as address, socket.create_connection(address) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\na: " + b"x" * 20_000)
        assert is_dropped(client, b"HTTP/1.1 400 ")


def test_with_few_descriptors_a_run_that_goes_on_never_looks_ended(run: RunDir, tmp_path: Path) -> None:
    with (run.path / ".lock").open("w") as lock, (tmp_path / "said").open("w") as said:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = ["sh", "-c", 'ulimit -n 128; exec "$@"', "sh", sys.executable, "-m", "powerband.live", str(run.path)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True)
        assert process.stdin is not None and process.stdout is not None
        try:
            server = Served(process.stdout.readline().strip(), process)
            viewer = Viewer(server, f"/runs/{run.path.name}/events")
            viewer.head()
            assert viewer.event()["run"]["status"] == "running"
            host, port = server.origin.removeprefix("http://").split(":")
            half = [socket.create_connection((host, int(port))) for _ in range(200)]
            for client in half:
                client.sendall(b"GET / HTTP/1.1\r\n")
            for _ in range(5):
                assert server.json(f"/runs/{run.path.name}/state")["run"]["status"] == "running"
                time.sleep(0.2)
            run.append_plan(next(iter(run.planned().values())))
            assert viewer.event()["run"]["status"] in ("running", "unknown")
            viewer.close()
            for client in half:
                client.close()
        finally:
            process.stdin.close()
            process.wait(TIMEOUT_S)
            process.stdout.close()
    assert (tmp_path / "said").stat().st_size == 0


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Fills the current folder with modules named like those that powerband imports; an imported one leaves its name in
    the file returned."""
    folder = tmp_path / "planted"
    folder.mkdir()
    ran = folder / "ran"
    for name in ("uvicorn", "starlette", "numpy", "sitecustomize"):
        (folder / f"{name}.py").write_text(f"open({str(ran)!r}, 'a').write('{name} ')\n")
    monkeypatch.chdir(folder)
    return ran


def test_the_page_beside_a_run_imports_nothing_from_the_current_folder(run: RunDir, planted: Path) -> None:
    said: list[str] = []
    with page_beside(run.path, said.append):
        assert not planted.exists() and said[0].startswith("live page: http://")


def test_neither_does_the_look_at_the_machine(planted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", ".")
    assert wake_ups_ns() and not planted.exists()
