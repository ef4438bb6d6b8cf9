"""A whole run with real engines, stopped and gone on with: every setting is measured once in every block."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from fakes.stand import FAKES
from powerband.store import RunDir

pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.usefixtures("engine", "no_process_left")]


def start(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, str(FAKES / "run_whole.py"), str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_was_stopped_is_completed(tmp_path: Path, number: signal.Signals) -> None:
    folder = tmp_path / "run"
    process = start(folder)
    deadline = time.monotonic() + 60
    while not (folder / "trials" / "0003" / "probe.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(number)
    process.communicate(timeout=120)
    assert process.returncode == (130 if number == signal.SIGINT else -signal.SIGKILL)
    before = [record for record in RunDir.open(folder).records() if record.status == "measured"]
    assert len(before) == 2

    resumed = start(folder)
    _, errors = resumed.communicate(timeout=120)
    assert resumed.returncode == 0, errors
    records = RunDir.open(folder).records()
    measured = Counter((record.spec.block, record.spec.setting.id) for record in records if record.status == "measured")
    assert measured == {(block, f"threads={threads}"): 1 for block in range(3) for threads in (1, 4)}
    assert [record for record in records if record.status == "measured"][:2] == before
    trials = json.loads((folder / "analysis.json").read_text())["trials"]
    assert [trial["number"] for trial in trials] == [record.spec.number for record in records]
