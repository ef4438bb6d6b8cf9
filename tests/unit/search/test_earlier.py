"""Earlier runs of an experiment show how much sessions of a machine differ; what cannot be read is left out."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes.finished_run import MADE, MadeUpTrials, new_run, run_to_its_end
from powerband.analyze.runs.two_runs import ComparedRun
from powerband.model.results import Capacity, CapacityPoint, Estimate
from powerband.search.earlier import earlier_runs
from powerband.store import RunDir

FIRST = {"wall_s": 1000.0, "hostname": "here"}


def first_run(root: Path, host: Mapping[str, Any]) -> tuple[RunDir, ComparedRun]:
    run = new_run(root)
    run.host.write_text(json.dumps(host))
    return run, ComparedRun("first", MADE, run_to_its_end(run, MadeUpTrials()), host)


def copied(run: RunDir, to: Path, host: Mapping[str, Any]) -> None:
    shutil.copytree(run.path, to)
    (to / "host.json").write_text(json.dumps(host))


@pytest.mark.parametrize("damaged", [b"\xff\xfe", b"", b"[[[[", b"null"])
def test_a_run_whose_analysis_is_damaged_is_left_out(tmp_path: Path, damaged: bytes) -> None:
    (first, of), broken = first_run(tmp_path, FIRST), tmp_path / "broken"
    copied(first, broken, {**FIRST, "wall_s": 900.0})
    assert len(earlier_runs(of, first.path, tmp_path / "second")) == 2
    (broken / "analysis.json").write_bytes(damaged)
    assert len(earlier_runs(of, first.path, tmp_path / "second")) == 1


def test_a_pipe_for_the_facts_of_the_host_is_not_opened(tmp_path: Path) -> None:
    (first, of), other = first_run(tmp_path, FIRST), tmp_path / "other"
    copied(first, other, {**FIRST, "wall_s": 900.0})
    assert len(earlier_runs(of, first.path, tmp_path / "second")) == 2
    (other / "host.json").unlink()
    os.mkfifo(other / "host.json")
    assert len(earlier_runs(of, first.path, tmp_path / "second")) == 1


@pytest.mark.parametrize(
    ("ours", "other", "counts"),
    [
        ({}, {"wall_s": 900.0}, True),
        ({}, {"wall_s": 1100.0}, False),
        ({}, {"wall_s": None}, False),
        ({"commit": "a"}, {"wall_s": 900.0, "commit": "b"}, False),
        ({"commit": "a"}, {"wall_s": 900.0, "commit": "b-dirty"}, False),
        ({"commit": "a"}, {"wall_s": 1100.0, "commit": "a"}, True),
        ({"commit": "a-dirty"}, {"wall_s": 1100.0, "commit": "a-dirty"}, False),
        ({"commit": "a-dirty"}, {"wall_s": 900.0, "commit": "a-dirty"}, True),
        ({"builds": ["s-1"]}, {"wall_s": 1100.0, "builds": ["s-1"]}, True),
        ({"builds": ["s-1"]}, {"wall_s": 1100.0, "builds": ["s-2"]}, False),
    ],
)
def test_a_later_build_is_no_session_of_the_first_runs_server(
    tmp_path: Path, ours: Mapping[str, Any], other: Mapping[str, Any], counts: bool
) -> None:
    first, of = first_run(tmp_path, {**FIRST, **ours})
    copied(first, tmp_path / "other", {**FIRST, **other})
    assert len(earlier_runs(of, first.path, tmp_path / "second")) == 1 + counts


def test_the_guess_of_a_capacity_that_held_in_no_trial_is_no_figure(tmp_path: Path) -> None:
    first, of = first_run(tmp_path, FIRST)
    row = of.analysis.settings[0]
    for held, figures in ((1, [{row.setting: 500.0}]), (0, [])):
        curve = (CapacityPoint(500.0, 1, held, None, None, None, None),)
        searched = replace(row, capacity=Capacity(Estimate(500.0, 400.0, 600.0, 0.95, 1), curve))
        first.analysis.write_text(json.dumps(replace(of.analysis, settings=(searched,)).to_json()))
        assert earlier_runs(of, first.path, tmp_path / "second") == figures


def test_links_to_a_run_and_copies_of_it_are_one_run(tmp_path: Path) -> None:
    first, of = first_run(tmp_path, FIRST)
    (tmp_path / "baseline").symlink_to(first.path)
    shutil.copytree(first.path, tmp_path / "kept")
    copied(first, tmp_path / "second", {**FIRST, "wall_s": 900.0})
    shutil.copytree(tmp_path / "second", tmp_path / "second-kept")
    assert len(earlier_runs(of, tmp_path / "baseline", tmp_path / "second")) == 1
