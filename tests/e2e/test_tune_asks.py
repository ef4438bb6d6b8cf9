"""`powerband tune` without further arguments asks on a terminal, proposes a command line, and starts nothing else."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.usefixtures("engine", "no_process_left")]

TUNE = (sys.executable, "-m", "powerband", "tune")


def told(answers: list[str], folder: Path, within_s: float = 120.0) -> tuple[int, str]:
    """Runs `powerband tune` on a terminal of its own, and returns its exit code and everything shown there. An answer
    is typed whenever the output ends with a colon."""
    here, there = pty.openpty()
    with subprocess.Popen(TUNE, stdin=there, stdout=there, stderr=there, cwd=folder, start_new_session=True) as process:
        os.close(there)
        said, answered, left = "", 0, list(answers)
        until_s = time.monotonic() + within_s
        while time.monotonic() < until_s:
            if select.select([here], [], [], 0.2)[0]:
                try:
                    said += os.read(here, 4096).decode(errors="replace")
                except OSError:  # the other end is closed
                    break
            if left and said[answered:].rstrip(" ").endswith(":") and said.endswith(" "):
                answered = len(said)
                os.write(here, (left.pop(0) + "\n").encode())
        os.close(here)
        return process.wait(timeout=60), said.replace("\r\n", "\n")


def test_a_known_server_is_proposed_with_its_knob_and_nothing_is_started(tmp_path: Path) -> None:
    code, said = told(["LOG=1 gunicorn -w 2 -b :8000 'my app:app'", "1,2", "1,2", "8", "", "1m", "n"], tmp_path)
    assert code == 0, said
    assert "This is gunicorn" in said and "threads (--threads): threads of each process" in said
    assert (
        "powerband tune -P workers=1,2 -P threads=8 --env LOG=1 --budget 1m -- "
        "gunicorn -w {workers} -b 127.0.0.1:{port} 'my app:app' --threads {threads}"
    ) in said.replace("\n", "")
    assert "Nothing was started" in said and not list(tmp_path.iterdir())


def test_a_server_that_says_what_it_takes_is_asked_only_if_that_is_wanted(tmp_path: Path, engine: Path) -> None:
    code, said = told(
        [f"{engine} serve --wait 1ms", "n", f"{engine} serve -x {{n}}", "1,2", "80", "/", "1m", "n"], tmp_path
    )
    assert code == 0 and "Its help names" not in said, said
    assert f"tune -P n=1,2 --url http://127.0.0.1:80/ --budget 1m -- {engine} serve -x {{n}}" in said.replace("\n", "")


@pytest.mark.parametrize(
    ("answers", "options"),
    [
        (["{engine} serve", "n", "LOG=1 N={{n}} {engine} serve --port {{port}}"], "--env LOG=1 --env N={n}"),
        (["PORT={{port}} N={{n}} {engine} serve"], "--env PORT={port} --env N={n}"),
    ],
    ids=["once written again", "with the port"],
)
def test_placeholders_in_variables_before_the_command_count(
    tmp_path: Path, engine: Path, answers: list[str], options: str
) -> None:
    code, said = told([*(each.format(engine=engine) for each in answers), "1,2", "", "1m", "n"], tmp_path)
    assert code == 0, said
    assert f"tune -P n=1,2 {options} --budget 1m -- {engine} serve" in said.replace("\n", "")


@pytest.mark.long
def test_the_line_is_run_once_it_is_confirmed(tmp_path: Path, engine: Path) -> None:
    code, said = told([f"{engine} serve --wait 1ms", "y", "1", "1,8", "/", "10s", "y"], tmp_path, 240.0)
    assert "Its help names what can vary" in said and "threads (--threads)" in said, said
    (run,) = (tmp_path / "runs").iterdir()
    command = json.loads((run / "host.json").read_text())["command"]
    assert (
        command[-7:] == [str(engine), "serve", "--wait", "1ms", "--threads", "{threads}", "--port"][-7:]
        or "{port}" in command
    )
    assert code in (0, 1, 5) and "threads" in said


def test_without_a_terminal_it_is_a_mistake(tmp_path: Path) -> None:
    done = subprocess.run(TUNE, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2 and "no command: write it after --" in done.stderr
