"""Earlier runs of an experiment show how much sessions of a machine differ; what cannot be read is left out."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from fakes.finished_run import MADE, MadeUpTrials, new_run, run_to_its_end
from powerband.analyze.runs.two_runs import ComparedRun
from powerband.search.earlier import earlier_runs


@pytest.mark.parametrize("damaged", [b"\xff\xfe", b"", b"[[[[", b"null"])
def test_a_run_whose_analysis_is_damaged_is_left_out(tmp_path: Path, damaged: bytes) -> None:
    first, broken = new_run(tmp_path), tmp_path / "broken"
    analysis = run_to_its_end(first, MadeUpTrials())
    shutil.copytree(first.path, broken)
    of = ComparedRun("first", MADE, analysis, {})
    assert len(earlier_runs(of, first.path, tmp_path / "second")) == 2
    (broken / "analysis.json").write_bytes(damaged)
    assert len(earlier_runs(of, first.path, tmp_path / "second")) == 1


def test_a_pipe_for_the_facts_of_the_host_is_not_opened(tmp_path: Path) -> None:
    first, other = new_run(tmp_path), tmp_path / "other"
    of = ComparedRun("first", MADE, run_to_its_end(first, MadeUpTrials()), {})
    shutil.copytree(first.path, other)
    (other / "host.json").unlink()
    assert len(earlier_runs(of, first.path, tmp_path / "second")) == 2
    os.mkfifo(other / "host.json")
    assert len(earlier_runs(of, first.path, tmp_path / "second")) == 1
