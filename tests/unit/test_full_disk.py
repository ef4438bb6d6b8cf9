"""A real file system of a few pages: if any file no longer fits, the run ends with one sentence, finished trials are
complete, and the run can be resumed once there is room."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.finished_run import MADE, run_to_its_end
from fakes.tmpfs import tmpfs
from fakes.trials import Figures, interval_lines, probe_lines, record_of
from powerband.base.errors import MeasurementError
from powerband.files.resolved import resolved_yaml
from powerband.model.experiment import Experiment, Measure
from powerband.model.plan import TrialSpec
from powerband.processes.line_file import LineFile
from powerband.report.html.report import write_report
from powerband.store import RunDir, SubjectAddress, TrialDir, TrialRecord

pytestmark = pytest.mark.long

PAGE = os.sysconf("SC_PAGE_SIZE")
SMALL = MADE.model_copy(update={"factors": {"threads": (1, 2)}, "measure": Measure(repeats=2)})
WRITTEN = {"experiment.yaml", "host.json", "plan.jsonl", "spec.json", "subject.json", "events.jsonl", "probe.jsonl",
           "record.json", "analysis.json", "report.html"}  # fmt: skip


@pytest.fixture
def disk() -> Iterator[Path]:
    """An empty tmpfs of 4 MB."""
    with tmpfs("4m") as folder:
        yield folder


def trial(_: Experiment, spec: TrialSpec, directory: TrialDir, **__: Any) -> TrialRecord:
    """Writes the files of a trial in the way that a trial does."""
    figures = Figures(window_s=0.5)
    directory.begin(spec)
    directory.write_address(SubjectAddress("http://127.0.0.1:1"))
    with LineFile(directory.events) as events, LineFile(directory.probe) as probe:
        for file, lines in ((events, interval_lines(figures)), (probe, probe_lines(figures))):
            for line in lines:
                file.write(json.dumps(line).encode() + b"\n")
    directory.write_record(record_of(spec, figures))
    return directory.read_record()


def whole_run(root: Path) -> RunDir:
    run = RunDir.create(root, "fake", resolved_yaml(SMALL), {})
    write_report(run, run_to_its_end(run, trial, of=SMALL))
    return run


def fill(disk: Path, pages: int) -> Path:
    """Fills the file system up to so many free pages."""
    free = os.statvfs(disk)
    filler = disk / "filler"
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, (free.f_bavail * free.f_frsize // PAGE - pages) * PAGE)
    return filler


def test_every_file_may_be_the_one_that_does_not_fit(disk: Path, tmp_path: Path) -> None:
    wanted = whole_run(tmp_path).analysis.read_text()
    unwritten = set()
    for pages in itertools.chain(range(40), itertools.count(40, 20)):
        filler = fill(disk, pages)
        try:
            last = whole_run(disk)
            break
        except MeasurementError as error:
            said = str(error)
        assert said.startswith(("cannot write to", "cannot begin a run"))
        assert "No space left on device" in said and "\n" not in said
        assert list(disk.rglob("*.tmp")) == []
        filler.unlink()
        for run in [RunDir(path) for path in disk.iterdir() if (path / "experiment.yaml").is_file()]:
            command = "report" if "/report.html: " in said else "resume"
            assert f"free some space, then `powerband {command} {run.path}`" in said
            unwritten |= WRITTEN - {file.name for file in run.path.rglob("*") if file.stat().st_size}
            kept = [record.spec for record in run.records()]
            run_to_its_end(run, trial, of=SMALL)
            assert kept == [record.spec for record in run.records()][: len(kept)]
            assert run.analysis.read_text() == wanted
        for path in disk.iterdir():
            shutil.rmtree(path)
    assert last.analysis.read_text() == wanted
    assert unwritten == WRITTEN - {"experiment.yaml", "host.json"}, "each of them was one that did not fit"
