"""SIGKILL of what runs beside a trial's own processes, alone and with powerband: what `fakes/faults.py` says of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from fakes.faults import BESIDE, Beside, words_of
from fakes.needs import need_browser, need_postgresql
from powerband.store import RunDir

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.crowded,
    pytest.mark.long,
    pytest.mark.usefixtures("engine", "no_process_left"),
]

EXPERIMENT = """
name: killed
subject:
  command: [sh, -c, "exec {{engine}} serve --port {{port}} # {used}"]
  {more}
factors: {{aa: [1]}}
load: {{users: 2, duration: 3s}}
measure: {{warmup: 100ms, repeats: 2, retries: 0, foreign_cpu_max: 1, steal_max: 1, {measure}}}
"""
BUSY = (0, 5)  # a busy machine may make every trial invalid, which is not the matter here
PARTS = {
    "build": ({"more": "build: [sh, -c, 'sleep 60; true', '{folder}']"}, "sleep 60", ()),
    "database": ({"more": "services: {postgresql: {when: {}}}", "used": "{postgresql_port}"}, "postgres -D", ()),
    "live server": ({}, "powerband.live", ("--live",)),
    "browser": (
        {"more": 'visitor_url: "http://127.0.0.1:{port}/"', "measure": "visitor: true"},
        "--user-data-dir",
        (),
    ),
}


@pytest.fixture
def base() -> Iterator[Path]:
    """A folder that PostgreSQL's account can enter, too."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


def programs() -> dict[int, str]:
    """The command lines of all processes."""
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return {pid: " ".join(words_of(pid)) for pid in pids}


def the_first(words: Sequence[str], powerband: subprocess.Popen[str]) -> int:
    """The process with these words that has been there longest, waited for."""
    deadline_s = time.monotonic() + 60
    while not (found := [pid for pid, program in programs().items() if all(word in program for word in words)]):
        assert powerband.poll() is None and time.monotonic() < deadline_s, powerband.communicate()
        time.sleep(0.05)
    return min(found)


@pytest.mark.parametrize("together", [False, True], ids=["alone", "with powerband"])
@pytest.mark.parametrize("fault", BESIDE, ids=lambda fault: fault.victim)
def test_what_a_kill_does(base: Path, monkeypatch: pytest.MonkeyPatch, fault: Beside, together: bool) -> None:
    if fault.victim == "database":
        need_postgresql()
    if fault.victim == "browser":
        need_browser()
    parts, words, options = PARTS[fault.victim]
    temporary = base / "temporary"
    temporary.mkdir(mode=0o711)
    monkeypatch.setenv("TMPDIR", str(temporary))
    file = base / "killed.yaml"
    file.write_text(EXPERIMENT.format(**{"more": "", "used": "", "measure": "", **parts}))
    command = [sys.executable, "-m", "powerband", "run", str(file), "--runs", str(base / "runs"), *options]
    with subprocess.Popen(command, cwd=base, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as powerband:
        victim = the_first([words, str(base)], powerband)
        while fault.victim != "build" and not list(base.glob("runs/*/trials/0001/subject.json")):
            assert powerband.poll() is None, powerband.communicate()
            time.sleep(0.05)
        time.sleep(1.0 if fault.victim != "build" else 0.0)
        os.kill(victim, signal.SIGKILL)
        if together:
            powerband.kill()
        said = "".join(powerband.communicate(timeout=120))
    (path,) = (base / "runs").iterdir()
    measured = [record.status for record in RunDir(path).records()].count("measured")
    left = list(temporary.iterdir())
    if together:
        assert (powerband.returncode, measured) == (-9, 0)
        assert bool(left) == (fault.left != "nothing"), left
        if left:
            assert subprocess.run([*command[:3], "resume", str(path)], cwd=base, check=False).returncode in BUSY
            assert list(temporary.iterdir()) == []
        return
    assert (measured, left) == (fault.kept, [])
    assert fault.said in said
    assert powerband.returncode in (fault.code, *(BUSY if fault.kept else ())), said
