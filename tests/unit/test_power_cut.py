"""The power is cut at every moment of a run: no finished trial is lost, and no incomplete one counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes.finished_run import MADE, MadeUpTrials, new_run, run_to_its_end
from fakes.power_cut import DISKS, Moment, disk_after, recorded
from powerband.model.experiment import Measure
from powerband.store import RunDir

SMALL = MADE.model_copy(update={"factors": {"threads": (1, 2)}, "measure": Measure(repeats=2)})
RESUMED_EVERY = 40


def contents(run: RunDir, number: int) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in run.trial(number).path.iterdir()}


def test_at_every_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "runs"
    root.mkdir()
    with recorded(root, monkeypatch) as recorder:
        run = new_run(root)
        run_to_its_end(run, MadeUpTrials(ended=recorder.done.add), of=SMALL)
    whole = {record.spec.number: contents(run, record.spec.number) for record in run.records()}
    assert recorder.done == set(whole)
    assert len(recorder.moments) > 10 * len(whole)
    wanted = run.analysis.read_text()
    for number, moment in enumerate(recorder.moments):
        for disk in DISKS:
            check(moment, disk_after(moment, disk, root, tmp_path / "after") / run.path.name, whole)
        if number % RESUMED_EVERY == 0 and (tmp_path / "after" / run.path.name / "experiment.yaml").is_file():
            resumed = RunDir(tmp_path / "after" / run.path.name)
            run_to_its_end(resumed, of=SMALL)
            assert resumed.analysis.read_text() == wanted


def check(moment: Moment, path: Path, whole: dict[int, dict[str, bytes]]) -> None:
    if not moment.done and not (path / "experiment.yaml").is_file():
        return  # the run has not begun
    run = RunDir.open(path)
    records, damage = run.records_and_damage()
    there = {record.spec.number for record in records}
    assert moment.done <= there, "a finished trial was lost"
    assert damage == {}
    for number in there:
        assert contents(run, number) == whole[number], "a trial counts that is not whole"
