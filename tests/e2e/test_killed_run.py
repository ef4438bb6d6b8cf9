"""Powerband is killed by SIGKILL while a program beside the trial's subject runs: a build, a download, the browser."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import MARK, marked_processes
from fakes.needs import need_browser, need_jdk
from powerband.base.machine import cache_folder
from powerband.loads.jmeter.install import VERSION

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.usefixtures("engine", "no_process_left")]

PLAN = Path(__file__).parents[2] / "examples" / "jmeter" / "plan.jmx"
EXPERIMENT = """
name: killed
subject:
  command: ["{{engine}}", serve, --port, "{{port}}", {used}]
  {more}
factors: {{aa: [1]}}
load: {load}
measure: {{warmup: 100ms, repeats: 1, visitor: {visitor}}}
"""


def kill_once_there_is(
    name: str, folder: Path, more: str = "", *, used: str = "", visitor: str = "false", load: str = "users: 2"
) -> None:
    """Starts a run, and kills powerband alone as soon as the program with this name has been started."""
    file = folder / "killed.yaml"
    file.write_text(EXPERIMENT.format(more=more, used=used, visitor=visitor, load=f"{{{load}, duration: 60s}}"))
    command = [sys.executable, "-m", "powerband", "run", str(file), "--runs", str(folder)]
    mark = f"{MARK}={os.environ[MARK]}"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as powerband:
        deadline_s = time.monotonic() + 60
        while not any(name in program for program in marked_processes(mark).values()):
            assert powerband.poll() is None and time.monotonic() < deadline_s, powerband.communicate()[1]
            time.sleep(0.05)
        powerband.kill()


def test_a_build_ends_and_is_not_taken_for_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # The sum keeps "sleep 602" out of the shell's own arguments: only the sleep itself has it, after the file is there.
    script = "touch {build}/half; (trap '' TERM; sleep 601) & setsid sleep $((600 + 2)) & wait"
    kill_once_there_is("sleep 602", tmp_path, f'build: [sh, -c, "{script}"]', used='"{build}"')
    (attempt,) = (cache_folder() / "subjects").glob("engine-*.*/")
    assert (attempt / "half").is_file()
    assert not [path for path in attempt.parent.iterdir() if path.is_symlink()]


def test_a_browser_ends(tmp_path: Path) -> None:
    need_browser()
    kill_once_there_is("--headless=new", tmp_path, 'visitor_url: "http://127.0.0.1:{port}/"', visitor="true")


def test_a_fetch_of_jmeter_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_jdk()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "mvn").write_text("#!/bin/sh\n(trap '' TERM; sleep 601) & setsid sleep 602 & wait\n")
    (tmp_path / "bin" / "mvn").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    properties = '{host: "{host}", port: "{port}", users: "4", think_ms: "5"}'
    kill_once_there_is("sleep 602", tmp_path, load=f"jmeter: {PLAN}, properties: {properties}")
    assert not (cache_folder() / f"jmeter-{VERSION}").exists()
