"""Powerband from Python with real engines: the code blocks of the page as they stand, an interrupt, and a thread."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import powerband
from powerband.analyze.trial import measure
from powerband.model.results import Problem
from powerband.readings.evidence import Evidence, Source

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
pytestmark = [pytest.mark.e2e, pytest.mark.crowded, pytest.mark.usefixtures("engine", "no_process_left")]

TINY: dict[str, Any] = {
    "name": "tiny",
    "subject": {"use": "reference", "set": {"model": "fixed", "wait": "2ms"}},
    "factors": {"threads": [2]},
    "load": {"users": 2, "duration": "200ms"},
    "measure": {
        "warmup": "100ms",
        "repeats": 1,
        "retries": 0,
        "slots": False,
        "foreign_cpu_max": "100%",
        "steal_max": "100%",
    },
}


def doubting_nothing(source: Source) -> Source:
    """A source with the same metrics, whose problems make no trial invalid."""

    def problems(evidence: Evidence, metrics: Mapping[str, float]) -> Iterator[Problem]:
        return (replace(problem, fatal=False) for problem in source.problems(evidence, metrics))

    return replace(source, problems=problems)


def test_every_block_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = measure.sources_of  # tests of the page alone ignore a busy machine
    monkeypatch.setattr(measure, "sources_of", lambda kind: tuple(map(doubting_nothing, real(kind))))
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    assert len(blocks) >= 8
    said: list[object] = []
    names: dict[str, Any] = {"print": lambda *words: said.extend(words)}
    for number, block in enumerate(blocks, 1):
        exec(compile(block, f"docs/python.md, block {number}", "exec"), names)
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "trials.csv", "series.parquet", "throughput.png"}
    assert names["run"].answer.sentences and names["page"].is_file()
    assert f"print(error)  # {said[-1]}" in blocks[-1]
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_outside_the_main_thread(tmp_path: Path) -> None:
    """Outside the main thread no signal handler can be set, as in a web application."""
    found: list[powerband.Run] = []
    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=lambda: found.append(powerband.run(TINY, runs=tmp_path, progress=False)))
    thread.start()
    assert signal.getsignal(signal.SIGINT) is before
    thread.join(timeout=120)
    assert [trial.status for trial in found[0].trials] == ["measured"]


# The script runs as in a notebook: stdin is empty, output goes to objects that are no files, and only the exception
# itself shows an error.
NOTEBOOK = """
import io, sys
shown, told = io.StringIO(), io.StringIO()
real, sys.stdin, sys.stdout, sys.stderr = sys.stdout, io.StringIO(), shown, told
import powerband

class Tell(io.StringIO):
    def write(self, text):
        real.write(text)
        real.flush()
        return len(text)

sys.stderr = Tell()
try:
    run = powerband.run({tiny!r}, runs={runs!r}, set={{"load.duration": "60s"}})
except powerband.UserInterruptError as error:
    real.write("".join(error._render_traceback_()) + "\\n")
    real.flush()
"""


def test_an_interrupt_stops_cleanly_and_the_run_can_be_gone_on_with(tmp_path: Path) -> None:
    code = NOTEBOOK.format(tiny=TINY, runs=str(tmp_path))
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    assert first.startswith("tiny: "), first
    (run,) = tmp_path.iterdir()
    while not (run / "trials" / "0001" / "probe.jsonl").exists():
        assert process.poll() is None
        threading.Event().wait(0.01)
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert f"powerband: interrupted; finished trials are kept: powerband.resume('{run}') goes on" in rest
    assert [trial.status for trial in powerband.read(run).trials] == ["interrupted"]
