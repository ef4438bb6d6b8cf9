"""A run directory is followed while it grows, rests, was killed, is damaged, foreign or of another version."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from fakes import synthetic, synthetic_verdicts
from fakes.finished_run import MADE, run_to_its_end
from fakes.live_runs import exchanged, experiment_of, recorded, written
from fakes.live_trials import write_lines
from fakes.trials import failed_record, write_trial
from powerband.analyze.settings.compare import RESUME
from powerband.files.experiment_file import load_experiment
from powerband.files.resolved import resolved_yaml
from powerband.live import follow
from powerband.live.follow import RunFollower
from powerband.live.history import History
from powerband.live.live_standing import settings_of, trial_line
from powerband.live.payload import run_row, trial_row
from powerband.live.state import Outcome, RunState, RunStatus
from powerband.model.plan import Stage, TrialSpec
from powerband.model.results import Estimate
from powerband.report.wording.standings import ranked
from powerband.search.session import analyse_run
from powerband.store import RunDir


def settled(follower: RunFollower) -> RunState:
    state = follower.poll()
    while follower.more:
        state = follower.poll()
    return state


@contextmanager
def held(run: RunDir) -> Iterator[None]:
    with (run.path / ".lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture
def small(tmp_path: Path) -> RunDir:
    return recorded(tmp_path, "run")


def test_a_run_that_goes_on_is_not_to_be_resumed(tmp_path: Path) -> None:
    told = "4 of 9 planned trials were run"
    run = written(tmp_path, "run", replace(synthetic.analysis(), warnings=(f"{told}; resume the run to finish it",)))
    with held(run):
        assert settled(RunFollower(run.path)).warnings[0] == told
    assert settled(RunFollower(run.path)).warnings[0] == f"{told}; resume the run to finish it"


def test_a_finished_run_says_what_its_analysis_says(tmp_path: Path) -> None:
    analysis = synthetic.analysis()
    state = settled(RunFollower(written(tmp_path, "run", analysis).path))
    assert state.status is RunStatus.FINISHED
    assert (state.name, state.question) == (analysis.name, analysis.question)
    assert (state.done, state.valid, state.invalid, state.failed) == (45, 43, 1, 1)
    assert state.planned_total == 45 and state.judged == 45
    assert state.answer == analysis.answer.sentences
    assert [setting.id for setting in state.settings] == [row.setting.id for row in ranked(analysis)]
    by_id = {row.setting.id: row for row in analysis.settings}
    for setting in state.settings:
        estimate = by_id[setting.id].estimates["goodput_per_s"]
        assert (setting.estimate, setting.low, setting.high) == (estimate.value, estimate.low, estimate.high)
        assert setting.estimates == by_id[setting.id].estimates
    assert [line.outcome for line in state.trials].count(Outcome.VALID) == 43
    assert "0.61 cores" in state.trials[11].because and state.trials[11].value is None
    assert state.trials[0].value == analysis.trials[0].metrics["goodput_per_s"]
    assert state.warnings == analysis.warnings and state.current is None


def test_goodput_stands_beside_another_objective(tmp_path: Path) -> None:
    state = settled(RunFollower(written(tmp_path, "run", synthetic.analysis()).path))
    row = run_row(replace(state, objective="rss_bytes_max"), "run")
    assert "goodput" in row["columns"] and "memory" not in row["columns"]
    assert all(setting["others"]["goodput"].endswith("/s") for setting in row["settings"] if setting["trials"])


def test_a_time_without_an_end_is_a_lower_bound_everywhere(tmp_path: Path) -> None:
    base, metric = synthetic.analysis(), "response_time_ns_p99"
    late = base.settings[0]
    bound = Estimate(10e9, 10e9, 10e9, 0.95, 5, at_least=True)
    bounded = replace(late, estimates={**late.estimates, metric: bound}, effect=Estimate(9.0, 8.0, 9.9, 0.95, 5))
    analysis = replace(base, objective=metric, settings=(bounded, *base.settings[1:]))
    state = RunState("", "", RunStatus.FINISHED, objective=metric, unit="ns", settings=settings_of(analysis))
    told = run_row(state, "run")
    row = next(each for each in told["settings"] if each["id"] == late.setting.id)
    assert (row["low"], row["high"], row["interval"]) == (None, None, "–")
    assert (row["text"], row["effect_text"]) == ("≥ 10.0 s", "≥ +700 %")
    assert [each["id"] for each in told["settings"] if each["at_least"]] == [late.setting.id]
    trial = replace(base.trials[0], metrics={metric: 10e9, "error_rate": 0.05})
    spec = TrialSpec(trial.number, trial.block, 1, trial.setting, 1)
    line = trial_line(spec, trial, metric, Outcome.RECORDED, "")
    assert trial_row(line, "ns")["value_text"] == "≥ 10.0 s"


@pytest.mark.parametrize(
    ("leader", "other", "effect", "text"),
    [
        (0.004, 0.0056, Estimate(1.4, 1.12, 1.68, 0.95, 5), "+0.048 to +0.27 pts"),
        (0.004, 0.0056, Estimate(1.4, None, None, 0.95, 1), "+0.16 pts"),
        (0.0, 0.005, None, "+0.5 pts"),
    ],
)
def test_the_change_of_a_share_is_in_percentage_points_as_in_the_report(
    leader: float, other: float, effect: Estimate | None, text: str
) -> None:
    base, metric = synthetic.analysis(), "error_rate"
    first = next(row for row in base.settings if row.setting == base.answer.leader)
    second = next(row for row in base.settings if row.setting != base.answer.leader)
    rows = (
        replace(row, estimates={metric: Estimate(value, value, value, 0.95, 5)}, effect=ratio)
        for row, value, ratio in ((first, leader, None), (second, other, effect))
    )
    analysis = replace(base, objective=metric, direction="minimise", settings=tuple(rows))
    state = RunState("", "", RunStatus.FINISHED, objective=metric, unit="ratio", settings=settings_of(analysis))
    assert [each["effect_text"] for each in run_row(state, "run")["settings"]] == ["", text]


def test_a_race_says_who_is_out_after_which_block_and_why(tmp_path: Path) -> None:
    analysis = synthetic_verdicts.race_analysis()
    assert analysis.race is not None
    state = settled(RunFollower(written(tmp_path, "run", analysis, order="race").path))
    settings = {setting.id: setting for setting in state.settings}
    assert {s.id: s.left_after_block for s in state.settings if s.left_after_block is not None} == {
        departure.setting.id: departure.block for departure in analysis.race.departures
    }
    departed = analysis.race.departures[0]
    assert settings[departed.setting.id].because == departed.reason
    told = {setting.told for setting in state.settings if setting.left_after_block == 1}
    assert told == {"eliminated in round 2"}
    last = analysis.race.looks[-1]
    assert settings[last.leader.id].leads and settings[last.leader.id].effect is None
    for setting in state.settings:
        looks = [look for look in analysis.race.looks if setting.id in look.effects]
        assert [look.block for look in setting.looks] == [look.block for look in looks]
        assert [look.low for look in setting.looks] == [look.effects[setting.id].low for look in looks]
    assert "leads" in state.race


def test_a_run_that_goes_on_is_followed(small: RunDir, tmp_path: Path) -> None:
    """The run is written trial by trial, as a real one would be: the plan, the trial's files, its record."""
    run = RunDir(tmp_path / "grows")
    run.trials.mkdir(parents=True)
    shutil.copy(small.experiment, run.experiment)
    follower = RunFollower(run.path)
    assert settled(follower).status is RunStatus.STALE
    lines = small.plan.read_text().splitlines(keepends=True)
    with held(run):
        for number, line in enumerate(lines[:3], 1):
            with run.plan.open("a") as file:
                file.write(line)
            write_lines(run.trial(number), 5)
            shutil.copy(small.trial(number).spec, run.trial(number).spec)
            state = settled(follower)
            assert state.status is RunStatus.RUNNING and state.done == number - 1
            assert state.current is not None and state.current.number == number
            assert state.current.figures is not None and state.current.figures.rate_per_s == pytest.approx(
                1000, rel=0.2
            )
            assert state.trials[-1].outcome is Outcome.RUNNING
            assert state.eta_s is not None and state.eta_s > 0
            for name in ("events.jsonl", "probe.jsonl", "record.json"):
                shutil.copy(small.trial(number).path / name, run.trial(number).path / name)
            state = settled(follower)
            assert state.done == number and state.current is None
            assert state.trials[-1].outcome in (Outcome.VALID, Outcome.INVALID)
    state = settled(follower)
    assert state.status is not RunStatus.RUNNING


def test_a_trial_that_is_measured_again_goes_on(small: RunDir) -> None:
    """When a run is resumed, the old result may be in an analysis, and the trial may be none of the last."""
    analysis = analyse_run(load_experiment(small.experiment), small)
    lines = small.plan.read_text().splitlines()
    small.plan.write_text("".join(json.dumps({**json.loads(line), "left_s": 50.0}) + "\n" for line in lines))
    whole = small.trial(5).record.read_bytes()
    small.trial(5).record.write_text("{")
    follower = RunFollower(small.path, lambda: 2000)
    assert settled(follower).trials[4].because
    small.analysis.write_text(json.dumps(analysis.to_json()))
    assert settled(follower).warnings == analysis.warnings
    with held(small):
        assert settled(follower).done == 6
        small.trial(5).record.unlink()
        for number in range(1, 7):
            began_s = 1990 if number == 5 else 1000 + number
            os.utime(small.trial(number).spec, (began_s, began_s))
        state = settled(RunFollower(small.path, lambda: 2000))
        assert state.eta_s == pytest.approx(40), "since the trial that began last, which is not the last of the plan"
        state = settled(follower)
        assert (state.done, state.trials[4].outcome) == (5, Outcome.RUNNING)
        assert state.current is not None and state.current.number == 5
        small.trial(5).record.write_bytes(whole)
        assert settled(follower).trials[4].outcome is Outcome.VALID


def test_nothing_is_read_twice(small: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    follower = RunFollower(small.path)
    measured = []
    original = follow.measure
    monkeypatch.setattr(follow, "measure", lambda *given: (measured.append(1), original(*given))[1])
    before = settled(follower)
    assert len(measured) == before.done
    after = [follower.poll() for _ in range(3)]
    assert all(state is after[0] for state in after) and after[0] is before
    assert len(measured) == before.done


def test_records_of_a_run_at_rest_are_looked_at_once(small: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    follower = RunFollower(small.path)
    settled(follower)
    looked: list[Path] = []
    original = follow.changed_at
    monkeypatch.setattr(follow, "changed_at", lambda path: (looked.append(path), original(path))[1])
    follower.poll()
    assert looked and not [path for path in looked if path.name == "record.json"]


def test_a_run_that_was_copied_began_and_ended_when_it_was_measured(small: RunDir) -> None:
    for file in small.path.rglob("*"):
        os.utime(file, (9000, 9000))
    state = settled(RunFollower(small.path))
    host, last = json.loads(small.host.read_text()), small.records()[-1]
    assert state.started_s == host["wall_s"]
    lasted_ns = last.phases["stopped"] - last.monotonic_ns
    assert state.ended_s == pytest.approx((last.wall_ns + lasted_ns) / 1e9)
    small.host.unlink()
    small.trial(last.spec.number).record.write_text("{}")
    os.utime(small.trial(last.spec.number).record, (9001, 9001))
    state = settled(RunFollower(small.path))
    assert (state.started_s, state.ended_s) == (9000, 9001), "where nothing tells, the files' own times"


def test_results_of_a_run_whose_trials_were_removed_stay(tmp_path: Path) -> None:
    run = written(tmp_path, "run")
    shutil.rmtree(run.trials)
    run.trials.mkdir()
    assert settled(RunFollower(run.path)).valid == 43


def never_ready(run: RunDir) -> None:
    write_trial(run.trial(1), failed_record(run.trial(1).read_record().spec), None)


@pytest.mark.parametrize(
    "change",
    [
        lambda run: None,
        lambda run: run.keep_note("its experiment.yaml was changed"),
        never_ready,
        lambda run: run.trial(3).record.write_text("{"),
    ],
)
def test_without_an_analysis_it_is_made_as_the_report_makes_it(
    small: RunDir, change: Callable[[RunDir], object]
) -> None:
    change(small)
    follower = RunFollower(small.path)
    state = settled(follower)
    analysis = analyse_run(load_experiment(small.experiment), small)
    assert follower.analysis == analysis and state.warnings == analysis.warnings
    assert state.answer == analysis.answer.sentences
    assert {s.id: s.estimate for s in state.settings} == {
        row.setting.id: row.estimates["goodput_per_s"].value if row.estimates else None for row in analysis.settings
    }


def test_a_plan_tells_how_many_trials_there_will_be(tmp_path: Path) -> None:
    run = written(tmp_path, "run")
    lines = run.plan.read_text().splitlines(keepends=True)
    run.plan.write_text("".join(lines[:10]))
    with held(run):
        state = settled(RunFollower(run.path))
    assert (state.status, state.planned_total, state.done) == (RunStatus.RUNNING, 45, 10)
    # A plan of an older version has no planned total; the experiment gives it.
    old = [{key: value for key, value in json.loads(line).items() if key != "planned_total"} for line in lines[:10]]
    run.plan.write_text("".join(json.dumps(line) + "\n" for line in old))
    with held(run):
        assert settled(RunFollower(run.path)).planned_total == 45


def test_time_left_is_that_of_the_trials_to_come(tmp_path: Path) -> None:
    run = written(tmp_path, "run")
    lines = run.plan.read_text().splitlines(keepends=True)
    run.plan.write_text("".join(lines[:10]))
    for number in range(1, 11):
        os.utime(run.trial(number).spec, (1000 + 12 * number, 1000 + 12 * number))
    with held(run):
        state = settled(RunFollower(run.path))
    assert state.eta_s == pytest.approx(35 * 12)  # no trial is in flight
    experiment = run.experiment.read_text()
    run.experiment.write_text(experiment.replace("design:\n", "design:\n  budget: 3m\n"))
    with held(run):
        state = settled(RunFollower(run.path))  # a long time after it was left
    assert state.eta_s == pytest.approx(180 - 10 * 12)
    run.experiment.write_text(experiment)
    said = {**json.loads(lines[9]), "left_s": 50.0}
    run.plan.write_text("".join([*lines[:9], json.dumps(said) + "\n"]))
    with held(run):
        state = settled(RunFollower(run.path, lambda: 1000 + 12 * 10 + 8))
    assert state.eta_s == pytest.approx(42), "what the run said of itself when its last trial began"


def test_the_time_left_is_not_guessed_where_users_leave(tmp_path: Path) -> None:
    run, made = written(tmp_path, "run"), experiment_of(synthetic.analysis())
    run.plan.write_text(run.plan.read_text().splitlines(keepends=True)[0])
    for requests, known in ((None, True), (100, False)):
        load = made.load.model_copy(update={"requests_per_user": requests})
        run.experiment.write_text(resolved_yaml(made.model_copy(update={"load": load})))
        with held(run):
            state = settled(RunFollower(run.path))
        assert state.status is RunStatus.RUNNING and (state.eta_s is not None) is known


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (lambda run: run.trial(45).record.unlink(), RunStatus.STALE),
        (lambda run: run.plan.write_text(""), RunStatus.STALE),
        (lambda run: None, RunStatus.FINISHED),
    ],
)
def test_how_a_run_that_rests_came_to_rest(tmp_path: Path, change: object, status: str) -> None:
    run = written(tmp_path, "run")
    assert callable(change)
    change(run)
    state = settled(RunFollower(run.path))
    assert state.status == status
    assert any("powerband resume" in warning for warning in state.warnings) == (status == RunStatus.STALE)


@pytest.mark.parametrize(("more", "status"), [((), "finished"), (("0 of 9 rounds whole; " + RESUME,), "interrupted")])
def test_a_run_with_fewer_trials_than_it_may_take_has_ended_if_its_analysis_asks_for_no_more(
    tmp_path: Path, more: tuple[str, ...], status: str
) -> None:
    base = synthetic.analysis()
    run = written(tmp_path, "run", replace(base, warnings=(*base.warnings, *more)))
    run.plan.write_text(run.plan.read_text().replace('"planned_total": 45', '"planned_total": 47'))
    assert settled(RunFollower(run.path)).status == status
    (line,) = History(tmp_path).lines()
    assert line.status == status


def test_a_race_whose_confirmation_ended_early_has_finished(tmp_path: Path) -> None:
    made = MADE.model_copy(update={"design": MADE.design.model_copy(update={"confirm_early": True})})
    run = RunDir.create(tmp_path, "fake", resolved_yaml(made), {})
    run_to_its_end(run, of=made)
    *_, last = map(json.loads, run.plan.read_text().splitlines())
    assert last["stage"] == Stage.CONFIRM and last["planned_total"] > last["number"]
    assert settled(RunFollower(run.path)).status is RunStatus.FINISHED


def test_an_interrupted_run_is_told_from_a_finished_one(tmp_path: Path) -> None:
    base = synthetic_verdicts.race_analysis()
    assert base.race is not None
    stopped = replace(base, race=replace(base.race, ended_by="stopped", confirmation=None))
    run = written(tmp_path, "stopped", stopped, order="race")
    assert settled(RunFollower(run.path)).status is RunStatus.INTERRUPTED
    last = replace(base.trials[-1], status="interrupted", stage=Stage.COMPARE)
    cut = written(tmp_path, "cut", replace(base, trials=(*base.trials[:-1], last)), order="race")
    state = settled(RunFollower(cut.path))
    assert state.status is RunStatus.INTERRUPTED and state.trials[-1].outcome is Outcome.INTERRUPTED


def test_what_is_no_run_directory_is_explained(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "absent"):
        state = RunFollower(path).poll()
        assert state.status is RunStatus.UNREADABLE and "no experiment.yaml" in state.because


@pytest.mark.parametrize("text", ["", "name: [", "name: x\nfuture: {key: 1}\n", "\x00\x01", "- 1\n- 2\n", "{" * 1200])
def test_an_experiment_of_another_kind_is_explained(tmp_path: Path, text: str) -> None:
    run = written(tmp_path, "run")
    run.experiment.write_text(text)
    state = RunFollower(run.path).poll()
    assert state.status is RunStatus.UNREADABLE
    assert "this version of powerband" in state.because


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "damaged"),
        ('{"format": 2}', "its format is 2"),
        ("[]", "no analysis"),
        ('{"format": 1, "x": 1}', "damaged"),
    ],
)
def test_an_analysis_of_another_kind_is_left_aside(small: RunDir, text: str, said: str) -> None:
    small.analysis.write_text(text)
    state = settled(RunFollower(small.path))
    assert state.answer and state.settings[0].estimate  # computed again from the trials
    assert any("analysis.json is left aside" in warning and said in warning for warning in state.warnings)


@pytest.mark.parametrize("text", ["{", '{"format": 2}', "[]", "", '{"format": 1}', "null"])
def test_a_record_of_another_kind_is_named_and_the_others_stay(small: RunDir, text: str) -> None:
    small.trial(2).record.write_text(text)
    state = settled(RunFollower(small.path))
    assert state.trials[1].because and state.trials[1].value is None
    assert any(warning.startswith(("trial 2: ", "trial 2 does not count: ")) for warning in state.warnings)
    assert state.trials[0].because != state.trials[1].because
    assert state.status is not RunStatus.UNREADABLE


def test_damaged_lines_of_the_plan_are_counted(tmp_path: Path) -> None:
    run = written(tmp_path, "run")
    with run.plan.open("a") as file:
        file.write('nonsense\n{"number": "x"}\n[]\n{"cut": ')
    state = settled(RunFollower(run.path))
    assert len(state.trials) == 45
    assert any("3 lines of plan.jsonl" in warning for warning in state.warnings)


@pytest.mark.parametrize("name", ["events.jsonl", "probe.jsonl", "spec.json", "record.json"])
def test_trials_cut_short_never_crash(small: RunDir, name: str) -> None:
    for number in range(1, 7):
        path = small.trial(number).path / name
        path.write_bytes(path.read_bytes()[: number * 500])
    state = settled(RunFollower(small.path))
    assert state.status is not RunStatus.UNREADABLE and len(state.trials) == 6


@pytest.mark.parametrize("how", ["link", "pipe"])
@pytest.mark.parametrize("name", ["experiment.yaml", "host.json", "plan.jsonl", "trials", "left.json"])
def test_a_run_of_links_or_pipes_is_not_opened(small: RunDir, name: str, how: str) -> None:
    (small.path / name).touch()
    exchanged(small.path / name, how)
    state = RunFollower(small.path).poll()
    assert state.status is RunStatus.UNREADABLE
    assert state.because == f"{name} is a link, a pipe or a device, and none of these is opened"


@pytest.mark.parametrize("how", ["link", "pipe"])
@pytest.mark.parametrize("name", ["record.json", "probe.jsonl", "subject.log", "."])
def test_a_trial_of_links_or_pipes_is_not_opened_and_the_others_are(small: RunDir, name: str, how: str) -> None:
    exchanged(small.trial(2).path / name, how)
    follower = RunFollower(small.path)
    state = settled(follower)
    assert "none of these is opened" in state.trials[1].because or state.trials[1].outcome is Outcome.LOST
    assert follower.trial(2) is None and follower.trial(1) is not None
    assert all("none of these" not in line.because for line in state.trials if line.number != 2)


@pytest.mark.parametrize("number", ["NaN", "1e999", "-Infinity", "1" + 400 * "0"])
def test_an_analysis_with_what_is_no_number_is_left_aside(tmp_path: Path, number: str) -> None:
    run = written(tmp_path, "run")
    value = str(synthetic.analysis().settings[0].estimates["goodput_per_s"].value)
    text = run.analysis.read_text()
    assert value in text
    run.analysis.write_text(text.replace(value, number))
    state = settled(RunFollower(run.path))
    assert any("analysis.json is left aside" in warning and "no number" in warning for warning in state.warnings)
    json.dumps(run_row(state, "run"), allow_nan=False)


def test_a_record_with_what_is_no_number_is_named_and_the_others_stay(small: RunDir) -> None:
    record = small.trial(2).record
    record.write_text(json.dumps(json.loads(record.read_text()) | {"control_cpu_ns": float("inf")}))
    state = settled(RunFollower(small.path))
    assert "no number for bench_cpu_cores" in state.trials[1].because
    assert state.answer and "no number" not in state.trials[0].because
    json.dumps(run_row(state, "run"), allow_nan=False)
