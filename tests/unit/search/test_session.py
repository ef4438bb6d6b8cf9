from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes.trials import Figures, experiment, failed_record, record_of, write_trial
from powerband.base.errors import MeasurementError, UsageError
from powerband.model.experiment import Experiment, Measure
from powerband.model.plan import Stage, TrialSpec
from powerband.model.results import Analysis, AnswerKind, TrialResult
from powerband.processes.stop_request import StopRequest
from powerband.search.observer import Observer
from powerband.search.session import analyse_run, run_session, with_seed
from powerband.store import RunDir, TrialDir, TrialRecord


def threads(spec: TrialSpec) -> int:
    return int(spec.setting.as_dict()["threads"])


def by_threads(_experiment: Experiment, spec: TrialSpec, directory: TrialDir, **_: Any) -> TrialRecord:
    """Makes up a trial whose throughput follows the threads."""
    users = 10
    rate = 100.0 * threads(spec) + spec.block
    figures = Figures(goodput_per_s=rate, response_ns=users / rate * 1e9, window_s=5, threads=threads(spec))
    return write_trial(directory, record_of(spec, figures), figures)


class Watching(Observer):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def run_started(self, experiment: Experiment, run: RunDir, planned_total: int, done: int) -> None:
        self.calls.append(f"run {done}/{planned_total}")

    def note(self, text: str) -> None:
        self.calls.append(text)

    def trial_ended(self, record: TrialRecord, result: TrialResult) -> None:
        self.calls.append("trial")

    def analysed(self, analysis: Analysis) -> None:
        self.calls.append("analysed")


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir.create(tmp_path, "fake", "name: fake\n", {})


def test_a_session_runs_the_plan_and_leaves_its_analysis(run: RunDir, stop: StopRequest) -> None:
    watching = Watching()
    analysis = run_session(experiment(), run, watching, stop, trial=by_threads)
    assert analysis.answer.kind is AnswerKind.BEST
    assert analysis.answer.setting is not None and analysis.answer.setting.id == "threads=4"
    assert json.loads(run.analysis.read_text()) == json.loads(json.dumps(analysis.to_json()))
    assert watching.calls[0] == "run 0/9"
    block = ["trial"] * 3 + ["analysed"]
    assert watching.calls[1:] == block * 3 + ["analysed"]
    assert analyse_run(experiment(), run) == analysis


def test_a_request_that_reaches_one_of_several_processes_is_warned_of_once(run: RunDir, stop: StopRequest) -> None:
    def served_by_several(made: Experiment, spec: TrialSpec, directory: TrialDir, **rest: Any) -> TrialRecord:
        record = by_threads(made, spec, directory, **rest)
        return replace(record, subject={**record.subject, "serving": 2 + spec.number % 2})

    analysis = run_session(experiment(), run, watching := Watching(), stop, trial=served_by_several)
    (said,) = (text for text in analysis.warnings if "subject.apply" in text)
    assert watching.calls.count(said) == 1


def test_a_stop_ends_after_the_trial_in_flight_and_resume_goes_on(run: RunDir, stop: StopRequest) -> None:
    def stopping(made: Experiment, spec: TrialSpec, directory: TrialDir, **rest: Any) -> TrialRecord:
        if spec.number == 4:
            stop.request()
        return by_threads(made, spec, directory, **rest)

    run_session(experiment(), run, Observer(), stop, trial=stopping)
    assert len(run.records()) == 4
    stopped = analyse_run(experiment(), run)
    assert stopped.warnings[0].startswith("4 of 9 planned trials were run, 1 of 3 rounds whole")
    assert json.loads(run.analysis.read_text()) == json.loads(json.dumps(stopped.to_json()))
    again = StopRequest()
    watching = Watching()
    run_session(experiment(), run, watching, again, trial=by_threads)
    again.close()
    assert len(run.records()) == 9 and watching.calls[0] == "run 4/9"


def test_after_a_stop_in_the_first_trial_the_next_is_checked_as_the_first(run: RunDir, stop: StopRequest) -> None:
    def lacking(_experiment: Experiment, spec: TrialSpec, directory: TrialDir, **_: Any) -> TrialRecord:
        record = failed_record(spec, "descriptor_limit", "too few descriptors")
        if spec.number == 1:
            stop.request()
            record = replace(record, status="interrupted", failure=None)
        return write_trial(directory, record, None)

    run_session(experiment(), run, Observer(), stop, trial=lacking)
    again = StopRequest()
    with pytest.raises(MeasurementError, match="too few descriptors\nNothing was measured"):
        run_session(experiment(), run, Observer(), again, trial=lacking)
    again.close()
    assert [record.status for record in run.records()] == ["interrupted"]


def test_a_first_start_that_was_never_ready_is_excused_in_a_resumed_run_too(run: RunDir, stop: StopRequest) -> None:
    made = experiment(design={"order": "race", "seed": 7}, measure=Measure(repeats=8))

    def slow_at_first(made: Experiment, spec: TrialSpec, directory: TrialDir, **rest: Any) -> TrialRecord:
        if spec.number == 5 and not stop.requested:
            stop.request()
        if spec.number == 1:
            return write_trial(directory, failed_record(spec), None)
        return by_threads(made, spec, directory, **rest)

    run_session(made, run, Observer(), stop, trial=slow_at_first)
    again = StopRequest()
    analysis = run_session(made, run, Observer(), again, trial=by_threads)
    again.close()
    first = analysis.trials[0]
    (row,) = [row for row in analysis.settings if row.setting == first.setting]
    assert not first.valid and row.starts is not None and row.starts.failed == 0 and row.feasible
    assert any("the first start failed: it never got ready" in warning for warning in analysis.warnings)
    assert analyse_run(made, run) == analysis


def test_a_run_that_had_ended_says_so_when_it_is_resumed(run: RunDir, stop: StopRequest) -> None:
    run_session(experiment(), run, first := Watching(), stop, trial=by_threads)
    run_session(experiment(), run, again := Watching(), stop, trial=by_threads)
    said = "nothing was left to measure: this run had ended"
    assert said not in first.calls and again.calls == ["run 9/9", said, "analysed"]


def test_a_line_of_the_plan_that_a_kill_cut_off_may_hold_any_bytes(run: RunDir, stop: StopRequest) -> None:
    run_session(experiment(), run, Observer(), stop, trial=by_threads)
    whole = run.plan.read_bytes()
    run.plan.write_bytes(whole + b'{"number": 10, "\xff')
    run_session(experiment(), run, Observer(), stop, trial=by_threads)
    assert run.plan.read_bytes() == whole


def test_another_experiments_directory_is_refused(run: RunDir, stop: StopRequest) -> None:
    run_session(experiment(), run, Observer(), stop, trial=by_threads)
    with pytest.raises(UsageError, match=r"trial 1 is threads=\d+ in round 0, but the plan wants"):
        run_session(experiment({"threads": (8, 16, 32)}), run, Observer(), stop, trial=by_threads)


def test_a_run_that_lost_its_seed_is_judged_without_its_plan_and_not_gone_on_with(
    run: RunDir, stop: StopRequest
) -> None:
    run_session(experiment(), run, Observer(), stop, trial=by_threads)
    unseeded = experiment(design={"seed": None})
    with pytest.raises(UsageError, match=r"experiment\.yaml has no design\.seed"):
        run_session(unseeded, run, Observer(), stop, trial=by_threads)
    assert any("experiment.yaml has no design.seed" in text for text in analyse_run(unseeded, run).warnings)


def test_a_seed_is_drawn_once(run: RunDir) -> None:
    unseeded = experiment(design={"seed": None})
    seeded = with_seed(unseeded)
    assert seeded.design.seed is not None
    assert with_seed(seeded) is seeded


def test_a_race_is_run_confirmed_and_analysed_again_from_its_files(run: RunDir, stop: StopRequest) -> None:
    made = experiment(design={"order": "race", "seed": 7}, measure=Measure(repeats=8))
    analysis = run_session(made, run, Observer(), stop, trial=by_threads)
    assert analysis.race is not None and analysis.race.ended_by == "decided"
    assert analysis.race.confirmation is not None and analysis.race.confirmation.trials == 3
    assert len(analysis.trials) < 3 * 8 and "fresh starts confirm it" in analysis.answer.sentences[1]
    assert analyse_run(made, run) == analysis
    assert {record.spec.stage for record in run.records()} == {Stage.COMPARE, Stage.CONFIRM}


def test_a_race_that_was_stopped_says_so_and_goes_on(run: RunDir, stop: StopRequest) -> None:
    made = experiment(design={"order": "race", "seed": 7}, measure=Measure(repeats=8))

    def stopping(made: Experiment, spec: TrialSpec, directory: TrialDir, **rest: Any) -> TrialRecord:
        if spec.number == 4:
            stop.request()
        return by_threads(made, spec, directory, **rest)

    stopped = run_session(made, run, Observer(), stop, trial=stopping)
    assert stopped.race is not None and stopped.race.ended_by == "stopped" and stopped.race.trials == 4
    assert stopped.warnings[0].startswith("the race is not over after 4 trials")
    again = StopRequest()
    whole = run_session(made, run, Observer(), again, trial=by_threads)
    again.close()
    assert whole.race is not None and whole.race.ended_by == "decided"
