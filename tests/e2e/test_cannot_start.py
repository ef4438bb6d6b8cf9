"""The command line's answer when a real server cannot start with any setting, or with one of them."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.usefixtures("engine", "no_process_left")]

POWERBAND = str(Path(sys.executable).with_name("powerband"))
SERVER = """
import sys

def pool(size):
    return int(size + "x")

try:
    pool(sys.argv[1])
except ValueError as error:
    raise RuntimeError("no server") from error
"""


def test_a_server_that_starts_with_no_setting_ends_the_run_with_its_cause(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    began = time.monotonic()
    tuned = powerband(
        *(tmp_path, "tune", "-P", "threads=1,2,4,8", "--", sys.executable, "server.py", "{threads}", "{port}")
    )
    assert tuned.returncode == 4, tuned.stderr
    assert "ValueError: invalid literal for int()" in tuned.stderr
    assert "Traceback" not in tuned.stderr and "RuntimeError" not in tuned.stderr
    assert "first 4 starts, at 4 settings" in tuned.stderr
    assert time.monotonic() - began < 120  # four starts take some ten seconds on an idle machine


def powerband(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([POWERBAND, *words], check=False, cwd=folder, capture_output=True, text=True, timeout=300)


def test_a_port_that_another_program_holds_ends_the_run(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        url = f"http://127.0.0.1:{held.getsockname()[1]}/"
        done = powerband(tmp_path, "tune", "-P", "n=1,2", "--url", url, "--", sys.executable, "server.py", "{n}")
    assert done.returncode == 4, done.stderr
    assert "another program already listens" in done.stderr and "first 3 starts, at 2 settings" in done.stderr


# It ends once something is asked of it, so that it was taken for ready, however late a busy machine finds that.
LISTENS = """
import socket, sys

server = socket.create_server(("127.0.0.1", int(sys.argv[2])))
while not server.accept()[0].recv(1):
    pass
sys.exit("no module named nothere")
"""


def test_a_server_that_listens_and_never_answers_ends_the_run_after_three_starts(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(LISTENS)
    done = powerband(tmp_path, "tune", "-P", "n=1,2", "--", sys.executable, "server.py", "{n}", "{port}")
    assert done.returncode == 4, done.stderr
    cause, end = done.stderr.split("powerband: ")[-1], done.stderr.splitlines()[-1]
    assert cause.startswith("the server ended by itself before it answered a request of the load (exit code 1)")
    assert "no module named nothere" in cause
    assert end.startswith("So ended each of the first 3 starts, at 2 settings, and nothing was measured. Correct")


def test_a_load_where_nothing_listens_says_so(tmp_path: Path) -> None:
    with socket.socket() as bound:  # bound, but does not listen
        bound.bind(("127.0.0.1", 0))
        done = powerband(
            tmp_path, "load", f"http://127.0.0.1:{bound.getsockname()[1]}/", "-d", "300ms", "--warmup", "0s"
        )
    assert done.returncode == 4 and "nothing listens there: start the server" in done.stderr, done.stderr
