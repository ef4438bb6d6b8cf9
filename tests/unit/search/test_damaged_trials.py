"""A trial whose files were damaged after it ended is the only one that is discarded, and `resume` repeats it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fakes.finished_run import MADE, MadeUpTrials, Notes, new_run, run_to_its_end
from fakes.trials import failed_record, write_trial
from powerband.cli import powerband
from powerband.live.follow import RunFollower
from powerband.model.experiment import Experiment
from powerband.model.plan import TrialSpec
from powerband.processes.stop_request import StopRequest
from powerband.search.observer import Observer
from powerband.search.session import analyse_run, run_session
from powerband.store import RunDir, TrialDir, TrialRecord

TORN = 5


def cut_in_half(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def to_nothing(file: Path) -> None:
    file.write_bytes(b"")


def to_zeros(file: Path) -> None:
    """Replaces the second 4 KiB of a file by zeros, as after a power cut on a file system that writes sizes before
    contents."""
    whole = file.read_bytes()
    file.write_bytes(whole[:4096] + bytes(4096) + whole[8192:])


def to_another_shape(file: Path) -> None:
    file.write_bytes(b'{"type": "sample"}\n' + file.read_bytes())


Damage = Callable[[Path], None]
DAMAGES: list[tuple[str, Damage]] = [
    *((name, damage) for name in ("events.jsonl", "probe.jsonl") for damage in (cut_in_half, to_nothing, Path.unlink)),
    *(("record.json", damage) for damage in (cut_in_half, to_nothing, Path.unlink)),
    *(("probe.jsonl", damage) for damage in (to_zeros, to_another_shape)),
    ("spec.json", to_nothing),
]
EACH = pytest.mark.parametrize(("name", "damage"), DAMAGES, ids=lambda each: getattr(each, "__name__", each))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    run = new_run(tmp_path_factory.mktemp("whole"))
    run_to_its_end(run)
    return run


@pytest.fixture
def run(whole: RunDir, tmp_path: Path) -> Iterator[RunDir]:
    """A copy of one finished run."""
    yield RunDir(Path(shutil.copytree(whole.path, tmp_path / "20260101-120000-fake")))


@EACH
def test_every_command_reads_the_rest_of_the_run(run: RunDir, name: str, damage: Damage) -> None:
    damage(run.trial(TORN).path / name)
    analysis = analyse_run(MADE, run)
    (discarded,) = [trial for trial in analysis.trials if trial.damaged]
    assert (discarded.number, discarded.valid) == (TORN, False)
    assert sum(trial.valid for trial in analysis.trials) == len(analysis.trials) - 1
    (said,) = [text for text in analysis.warnings if text.startswith(f"trial {TORN} does not count: ")]
    assert said.endswith("; `powerband resume` measures it again")
    exports = [["export"], *([["export", "--what", "series"]] if damage is not to_another_shape else [])]
    for arguments in (["report"], ["compare", str(run.path)], *exports):
        done = CliRunner().invoke(powerband, [*arguments[:1], str(run.path), *arguments[1:]])
        assert done.exit_code == 0, (arguments, done.output)
    assert f"trial {TORN}" in run.report.read_text()


@EACH
def test_a_resumed_run_measures_it_again_and_nothing_else(run: RunDir, name: str, damage: Damage) -> None:
    before = run.analysis.read_text()
    damage(run.trial(TORN).path / name)
    trials, seen = MadeUpTrials(), Notes()
    run_to_its_end(run, trials, seen)
    assert trials.done == [TORN]
    assert run.analysis.read_text() == before
    assert any(text.startswith(f"trial {TORN} does not count") for text in seen.notes)


def test_a_live_page_names_the_trial(run: RunDir) -> None:
    cut_in_half(run.trial(TORN).probe)
    run.analysis.unlink()
    follower = RunFollower(run.path)
    for _ in range(2 * len(run.planned())):
        state = follower.poll()
    follower.close()
    assert any("is cut short" in text for text in state.warnings) and state.warnings == analyse_run(MADE, run).warnings
    assert state.valid == len(run.planned()) - 1


def test_a_plan_that_was_made_with_the_lost_result_is_kept(run: RunDir) -> None:
    """The repeated trial has another result than the lost one, by which later trials were chosen."""
    numbers = [record.spec.number for record in run.records()]
    for _ in range(2):
        cut_in_half(run.trial(TORN).probe)
        trials = MadeUpTrials(spread=0.5)
        run_to_its_end(run, trials)
        assert trials.done == [TORN]
    assert [record.spec.number for record in run.records()] == numbers
    again = MadeUpTrials()
    analysis = run_to_its_end(run, again)
    assert again.done == []
    assert not any(trial.damaged for trial in analysis.trials)
    assert analyse_run(MADE, run).warnings == analysis.warnings


def test_a_kill_while_it_is_measured_again_loses_no_more(run: RunDir) -> None:
    class KilledError(Exception):
        pass

    def kill(_: object) -> None:
        shutil.rmtree(run.trial(TORN).path)
        raise KilledError

    before = run.analysis.read_text()
    cut_in_half(run.trial(TORN).probe)
    with pytest.raises(KilledError):
        run_to_its_end(run, MadeUpTrials(kill))
    trials = MadeUpTrials()
    run_to_its_end(run, trials)
    assert trials.done == [TORN]
    assert run.analysis.read_text() == before


@pytest.mark.parametrize("is_last", [False, True])
def test_an_interruption_while_it_is_measured_again_loses_no_more(
    run: RunDir, stop: StopRequest, is_last: bool
) -> None:
    """Nothing is planned after the last trial, so its lost result is not in the way of its repetition."""
    number = len(run.records()) if is_last else TORN
    cut_in_half(run.trial(number).probe)

    def interrupted(_: Experiment, spec: TrialSpec, directory: TrialDir, **__: Any) -> TrialRecord:
        stop.request()
        return write_trial(directory, replace(failed_record(spec), status="interrupted", failure=None), None)

    run_session(MADE, run, Observer(), stop, trial=interrupted)
    assert any(text.startswith(f"trial {number} does not count") for text in analyse_run(MADE, run).warnings)
    trials, none = MadeUpTrials(spread=0.5), MadeUpTrials()
    run_to_its_end(run, trials)
    analysis = run_to_its_end(run, none)
    assert (trials.done, none.done) == ([number], [])
    assert analyse_run(MADE, run) == analysis


def test_without_an_analysis_it_is_measured_again_in_its_place(run: RunDir) -> None:
    cut_in_half(run.trial(TORN).probe)
    run.analysis.unlink()
    trials = MadeUpTrials()
    run_to_its_end(run, trials)
    assert trials.done == [TORN]


def test_every_trial_may_be_damaged(run: RunDir) -> None:
    for record in run.records():
        to_nothing(run.trial(record.spec.number).probe)
    analysis = analyse_run(MADE, run)
    assert not any(trial.valid for trial in analysis.trials)
    assert sum("does not count" in text for text in analysis.warnings) == 5
    trials = MadeUpTrials()
    run_to_its_end(run, trials)
    assert len(trials.done) == len(run.records())


def test_a_damaged_plan_keeps_the_trials(run: RunDir) -> None:
    lines = run.plan.read_text().splitlines(keepends=True)
    run.plan.write_text("".join([*lines[:2], "\0\0{\n", '{"number": 4}\n', *lines[4:]]))
    trials = MadeUpTrials()
    run_to_its_end(run, trials)
    assert trials.done == []


def test_a_record_holds_the_size_of_every_other_file(run: RunDir) -> None:
    directory = run.trial(1)
    sizes = json.loads(directory.record.read_text())["files"]
    assert sizes == {
        path.name: path.stat().st_size for path in sorted(directory.path.iterdir()) if path.name != "record.json"
    }


def test_a_record_without_sizes_reads_as_before(run: RunDir) -> None:
    for record in run.records():
        file = run.trial(record.spec.number).record
        data = json.loads(file.read_text())
        del data["files"]
        file.write_text(json.dumps(data))
    assert all(trial.valid for trial in analyse_run(MADE, run).trials)
