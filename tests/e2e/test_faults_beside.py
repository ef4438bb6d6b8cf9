"""Processes beside a trial's own are killed by SIGKILL, alone and together with powerband, with the effect that
`fakes/faults.py` lists."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.faults import BESIDE, Beside, children_of, words_of
from fakes.needs import need_browser, need_jmeter, need_link, need_postgresql
from powerband.store import RunDir

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.crowded,
    pytest.mark.usefixtures("engine", "no_process_left"),
]

# Each phase may last a while: the subject begins late, answers late, and does not end when it is asked to.
EXPERIMENT = """
name: killed
subject:
  command:
    - sh
    - -c
    - >-
      sleep {begins}; exec {{engine}} serve --port {{port}} --wait {wait} --threads {threads} --misbehave ignore-sigterm
      # {used}
  stop: {{grace: {grace}}}
  {more}
factors: {{aa: [1]}}
load: {{{load}, duration: {window}}}
measure: {{warmup: {warmup}, repeats: 2, retries: 0, foreign_cpu_max: 1, steal_max: 1, slots: false, {measure}}}
"""
# A kill must come in its phase of the first trial, which lasts longer than a busy machine may delay the kill.
SHORT = {"begins": "0.3", "warmup": "300ms", "window": "500ms", "wait": "400ms", "threads": "16", "grace": "400ms"}
LONG = {
    "launch": {"begins": "3"},
    "warmup": {"warmup": "3s"},
    "measure": {"window": "3s"},
    "drain": {"wait": "1500ms", "threads": "1"},  # of two users one waits for the other
    "stop": {"grace": "3s"},
}
PLAN = Path(__file__).parents[2] / "examples" / "jmeter" / "plan.jmx"
PROPERTIES = 'host: "{host}", port: "{port}", users: "4", think_ms: "5"'
LINK = (
    "{link_delay: {type: duration, default: 1ms, help: one way}, "
    "link_rate: {type: string, default: unlimited, help: bandwidth}}"
)
BUSY = (0, 5)  # a busy machine may make every trial invalid, which is allowed here
# The part of the experiment that uses each victim, and the words by which its process is found.
PARTS = {
    "build": ({"more": "build: [sh, -c, 'sleep 60; true']"}, "sleep 60"),
    "database": ({"more": "services: {postgresql: {when: {}}}", "used": "{postgresql_port}"}, "postgres -D"),
    "link": ({"more": f"services: {{link: {{when: {{}}}}}}\n  parameters: {LINK}"}, "powerband-engine link"),
    "JMeter": ({"load": f"jmeter: {PLAN}, properties: {{{PROPERTIES}}}"}, "org.apache.jmeter"),
    "live server": ({}, "powerband.live"),
    "browser": ({"more": 'visitor_url: "http://127.0.0.1:{port}/"', "measure": "visitor: true"}, "--user-data-dir"),
}
NEEDS = {"database": need_postgresql, "link": need_link, "JMeter": need_jmeter, "browser": need_browser}
CASES = [
    pytest.param(
        *(fault, phase, together),
        id=f"{fault.victim}-{phase}-{'with powerband' if together else 'alone'}",
        marks=pytest.mark.table if together and phase not in ("", "measure") else pytest.mark.long,
    )
    for fault in BESIDE
    for phase in fault.phases or ("",)
    for together in (False, True)
]


@pytest.fixture
def base() -> Iterator[Path]:
    """A folder that PostgreSQL's account can enter too."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


def started_by(pid: int) -> Iterator[int]:
    """Yields the descendants of a process, each parent before its children."""
    for child in sorted(children_of(pid)):
        yield child
        yield from started_by(child)


def found(words: str, powerband: subprocess.Popen[str]) -> int:
    """Waits for the first process below powerband that has these words in its command line, and returns its pid."""
    deadline_s = time.monotonic() + 60
    while True:
        for pid in started_by(powerband.pid):
            if words in " ".join(words_of(pid)):
                return pid
        assert powerband.poll() is None and time.monotonic() < deadline_s, powerband.communicate()
        time.sleep(0.01)


def has_come(phase: str, runs: Path, powerband: int) -> bool:
    """True if the first trial has reached this phase. What an engine says goes into the file within half a second, but
    its last lines only after the trial: at the stop the engine has ended, and the probe has not."""
    if phase == "":
        return True
    if not (launched := list(runs.glob("*/trials/0001/subject.json"))) or phase == "launch":
        return bool(launched)
    events = launched[0].with_name("events.jsonl")
    said = events.read_text() if events.is_file() else ""
    if phase != "stop":
        return f'"phase":"{phase}"' in said
    running = [words_of(child)[1:2] for child in children_of(powerband)]
    return '"phase":"warmup"' in said and ["probe"] in running and ["load"] not in running


@pytest.mark.parametrize(("fault", "phase", "together"), CASES)
def test_what_a_kill_does(
    base: Path, monkeypatch: pytest.MonkeyPatch, fault: Beside, phase: str, *, together: bool
) -> None:
    NEEDS.get(fault.victim, lambda: None)()
    parts, words = PARTS[fault.victim]
    temporary = base / "temporary"
    temporary.mkdir(mode=0o711)
    monkeypatch.setenv("TMPDIR", str(temporary))
    file = base / "killed.yaml"
    times = SHORT | LONG.get(phase, {})
    file.write_text(EXPERIMENT.format(**{"more": "", "used": "", "measure": "", "load": "users: 2", **times, **parts}))
    command = [sys.executable, "-m", "powerband", "run", str(file), "--runs", str(base / "runs")]
    live = ["--live"] if fault.victim == "live server" else []
    with subprocess.Popen(
        [*command, *live], cwd=base, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as powerband:
        while not has_come(phase, base / "runs", powerband.pid):
            assert powerband.poll() is None, powerband.communicate()
            time.sleep(0.01)
        os.kill(found(words, powerband), signal.SIGKILL)
        if together:
            powerband.kill()
        said = "".join(powerband.communicate(timeout=120))
    (path,) = (base / "runs").iterdir()
    measured = [record.status for record in RunDir(path).records()].count("measured")
    left = list(temporary.iterdir())
    if together:
        # On a busy machine the kill may come after the trial.
        assert powerband.returncode == -9 and measured <= (phase in ("drain", "stop"))
        assert bool(left) == fault.leaves, left
        if left:
            assert subprocess.run([*command[:3], "resume", str(path)], cwd=base, check=False).returncode in BUSY
            assert list(temporary.iterdir()) == []
        return
    assert (measured, left) == (fault.kept, []), said
    assert fault.said in said
    assert powerband.returncode in (fault.code, *(BUSY if fault.kept else ())), said
