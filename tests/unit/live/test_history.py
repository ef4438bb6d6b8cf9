"""The list of runs: it reads as little as possible, is right as far as it goes, and survives any content."""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fakes import synthetic, synthetic_verdicts
from fakes.live_runs import exchanged, written
from powerband.live import history
from powerband.live.follow import RunFollower
from powerband.live.history import History
from powerband.live.state import RunStatus
from powerband.model.plan import Setting, Stage
from powerband.store import RunDir


def test_a_line_holds_what_its_analysis_says(tmp_path: Path) -> None:
    analysis = synthetic.analysis()
    run = written(tmp_path, "20261120-100000-x", analysis)
    run.report.write_text("")
    (line,) = History(tmp_path).lines()
    assert (line.folder, line.name, line.question) == (run.path.name, analysis.name, analysis.question)
    assert (line.answer, line.sure) == analysis.answer.sentences[:2]
    assert (line.status, line.trials, line.has_report) == (RunStatus.FINISHED, 45, True)


def test_the_latest_comes_first(tmp_path: Path) -> None:
    for number, name in enumerate(("b", "c", "a")):
        run = written(tmp_path, name)
        os.utime(run.experiment, (1000 + number, 1000 + number))
    assert [line.folder for line in History(tmp_path).lines()] == ["a", "c", "b"]


def test_a_run_that_was_copied_began_when_it_was_begun(tmp_path: Path) -> None:
    for number, name in enumerate(("b", "c", "a")):
        run = written(tmp_path, name)
        run.host.write_text(json.dumps({"format": 1, "wall_s": 5000.25 + number}))
        os.utime(run.experiment, (9000 - number, 9000 - number))
    lines = History(tmp_path).lines()
    assert [(line.folder, line.began_s) for line in lines] == [("a", 5002.25), ("c", 5001.25), ("b", 5000.25)]


@pytest.mark.parametrize("wall_s", ["NaN", "1e300", "-1", '"x"', "null", "1" + 400 * "0", "1" + 5000 * "0"])
def test_a_begin_that_is_no_time_is_that_of_the_file(tmp_path: Path, wall_s: str) -> None:
    run = written(tmp_path, "run")
    run.host.write_text(f'{{"wall_s": {wall_s}}}')
    os.utime(run.experiment, (9000, 9000))
    assert History(tmp_path).lines()[0].began_s == 9000


def test_how_it_stands(tmp_path: Path) -> None:
    run = written(tmp_path, "run")
    lines = History(tmp_path)
    with (run.path / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert lines.lines()[0].status is RunStatus.RUNNING
    assert lines.lines()[0].status is RunStatus.FINISHED
    run.trial(45).record.write_text(json.dumps({"format": 1, "spec": {}, "status": "interrupted"}))
    os.utime(run.analysis, (1, 1))
    assert lines.lines()[0].status is RunStatus.INTERRUPTED
    run.trial(45).record.unlink()
    assert History(tmp_path).lines()[0].status is RunStatus.STALE


def more_planned(run: RunDir) -> None:
    """Raises the planned number of trials, so that the run has only a part of them."""
    run.plan.write_text(re.sub(r'("planned_total": )\d+', r"\g<1>99", run.plan.read_text()))


def of_the_future(run: RunDir) -> None:
    more_planned(run)
    run.experiment.write_text(run.experiment.read_text() + "future: {key: 1}\n")


@pytest.mark.parametrize("kind", ["grid", "race", "stopped race", "unconfirmed race"])
@pytest.mark.parametrize(
    "change",
    [
        lambda run: None,
        more_planned,
        of_the_future,
        lambda run: run.trial(run.plan.read_text().count("\n")).record.unlink(),
        lambda run: exchanged(run.host, "pipe"),
        lambda run: exchanged(run.trials, "link"),
    ],
)
def test_the_list_says_of_a_run_what_its_page_says(
    tmp_path: Path, kind: str, change: Callable[[RunDir], object]
) -> None:
    base = synthetic.analysis() if kind == "grid" else synthetic_verdicts.race_analysis()
    if kind == "unconfirmed race":
        base = replace(base, trials=tuple(trial for trial in base.trials if trial.stage is Stage.COMPARE))
    if kind == "stopped race":
        assert base.race is not None
        base = replace(base, race=replace(base.race, ended_by="stopped", confirmation=None))
    run = written(tmp_path, "run", base, order="blocks" if kind == "grid" else "race")
    if kind == "stopped race":
        more_planned(run)
    change(run)
    (line,) = History(tmp_path).lines()
    follower = RunFollower(run.path)
    state = follower.poll()
    while follower.more:
        state = follower.poll()
    assert line.status is state.status


def test_an_analysis_without_end_leaves_the_list_whole(tmp_path: Path) -> None:
    written(tmp_path, "run").analysis.write_text('{"answer": ' + 60_000 * "[")
    (line,) = History(tmp_path).lines()
    assert line.answer == ""


@pytest.mark.parametrize("number", ["1e999", "NaN", "-1", '"x"', "[]", "1" + 400 * "0"])
def test_a_plan_of_another_kind_leaves_the_list_whole(tmp_path: Path, number: str) -> None:
    run = written(tmp_path, "run")
    run.plan.write_text(f'{{"number": {number}}}\n')
    (line,) = History(tmp_path).lines()
    assert (line.trials, line.status) == (1, RunStatus.STALE)


def test_a_folder_whose_name_is_no_text_is_not_listed(tmp_path: Path) -> None:
    run = written(tmp_path, "run")
    run.path.rename(tmp_path / "\udcff")  # the byte 0xff
    written(tmp_path, "other")
    assert History(tmp_path).names() == ["other"]


def test_what_has_not_changed_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, "run")
    lines = History(tmp_path)
    before = lines.lines()
    monkeypatch.setattr(history, "read_plain", lambda *_: pytest.fail("it was read again"))
    assert lines.lines() == before


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"answer": 3, "name": 4}', "\x00", '{"answer": {"sentences": [1, {}]}}', '{"name": "cut sho'],
)
def test_an_analysis_of_another_kind_leaves_its_parts_empty(tmp_path: Path, text: str) -> None:
    run = written(tmp_path, "20261120-100000-some-name")
    run.analysis.write_text(text)
    run.plan.write_text("nonsense\n")
    (line,) = History(tmp_path).lines()
    assert line.name == "some-name" and line.trials == 1


def test_a_long_answer_is_found_at_the_head_of_a_large_analysis(tmp_path: Path) -> None:
    base = synthetic.analysis(blocks=56)
    long = replace(base, answer=replace(base.answer, sentences=("x" * 10_000, "sure")))
    run = written(tmp_path, "run", long)
    assert run.analysis.stat().st_size > 2**18
    (line,) = History(tmp_path).lines()
    assert line.answer == "x" * 4000 and line.sure == "sure"


def test_an_answer_that_names_many_settings_is_found(tmp_path: Path) -> None:
    base = synthetic.analysis()
    many = tuple(Setting((("server.tomcat.threads", number),)) for number in range(2000))
    run = written(tmp_path, "run", replace(base, answer=replace(base.answer, undecided=many)))
    assert run.analysis.read_text().index('"sentences"') > 2**17
    (line,) = History(tmp_path).lines()
    assert (line.answer, line.sure) == base.answer.sentences[:2]


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "/etc", "\0", ".hidden", "file", "link", "absent"])
def test_only_folders_right_here_are_found(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "link").symlink_to(tmp_path.parent)
    assert History(tmp_path).find(name) is None


def test_a_folder_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert History(tmp_path / "absent").lines() == []
    assert History(tmp_path / "absent").find("x") is None
