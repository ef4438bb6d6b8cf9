"""Runs with blocks in flight on simulated nodes: they are recorded, resumed, and ended when nothing else is
possible."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from fakes.edges import capacity_experiment
from fakes.finished_run import MadeUpTrials
from fakes.trials import experiment as fake_experiment
from fakes.trials import failed_record, write_trial
from powerband.base.errors import MeasurementError, SubjectError, UsageError
from powerband.files.resolved import resolved_yaml
from powerband.live.follow import RunFollower
from powerband.model.experiment import Experiment
from powerband.model.plan import Stage, TrialSpec
from powerband.model.results import Analysis, TrialResult
from powerband.processes.stop_request import StopRequest
from powerband.report.html.gather import gather
from powerband.search.observer import Observer
from powerband.search.planners import planner_for
from powerband.search.session import LOST_MOST, analyse_run, run_session
from powerband.search.turns import Turn, Turns, replay
from powerband.store import RunDir, TrialDir, TrialRecord
from powerband.trials.bench import Bench, Job, Opener, record_lost

MADE = fake_experiment({"threads": (1, 2, 4)}, measure={"repeats": 4}, design={"order": "blocks", "seed": 3})
Loses = Callable[[str, TrialSpec], bool]


class Simulated:
    """Nodes whose trials end in turn. `loses`: says whether a node is lost, for good, with a trial."""

    def __init__(self, job: Job, names: tuple[str, ...], loses: Loses) -> None:
        self.places: list[str] = list(names)
        self._job, self._loses = job, loses
        self._begun: list[tuple[str, Experiment, TrialSpec, TrialDir]] = []
        self._trial = MadeUpTrials()

    def begin(self, place: str, experiment: Experiment, spec: TrialSpec, directory: TrialDir) -> None:
        self._begun.append((place, experiment, spec, directory))

    def ended(self) -> tuple[str, TrialRecord]:
        place, experiment, spec, directory = self._begun.pop(0)
        if self._loses(place, spec):
            self.places.remove(place)
            return place, record_lost(directory, spec, place, f"{place} is lost: so it was told")
        record = replace(self._trial(experiment, spec, directory), node=place)
        directory.write_record(record)
        return place, record


def bench(*names: str, loses: Loses = lambda place, spec: False, kind: Callable[..., Bench] = Simulated) -> Opener:
    @contextmanager
    def opened(job: Job) -> Iterator[Bench]:
        yield kind(job, names, loses)

    return opened


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir.create(tmp_path, "nodes", resolved_yaml(MADE), {})


def go(run: RunDir, opener: Opener | None, observer: Observer | None = None, made: Experiment = MADE) -> Analysis:
    stop = StopRequest()
    try:
        return run_session(made, run, observer or Observer(), stop, bench=opener)
    finally:
        stop.close()


def nodes_of(analysis: Analysis) -> dict[int, set[str]]:
    found: dict[int, set[str]] = defaultdict(set)
    for trial in analysis.trials:
        found[trial.block].add(trial.node)
    return found


def check(run: RunDir, analysis: Analysis) -> None:
    assert all(len(nodes) == 1 for nodes in nodes_of(analysis).values())
    again = analyse_run(MADE, run)
    assert (again.answer, again.trials) == (analysis.answer, analysis.trials)


def test_blocks_run_beside_each_other_and_each_on_one_node(run: RunDir) -> None:
    analysis = go(run, bench("a", "b"))
    check(run, analysis)
    assert nodes_of(analysis) == {0: {"a"}, 1: {"b"}, 2: {"a"}, 3: {"b"}}
    assert [trial.block for trial in analysis.trials[:4]] == [0, 1, 0, 1]
    assert Turns.read(run).nodes == 2


def test_a_node_that_is_lost_has_its_block_made_up_for(run: RunDir) -> None:
    analysis = go(run, bench("a", "b", loses=lambda place, spec: place == "b" and spec.number > 5))
    check(run, analysis)
    assert [(trial.node, trial.block) for trial in analysis.trials if trial.lost] == [("b", 1)]
    whole = [block for block in nodes_of(analysis) if sum(t.block == block and t.valid for t in analysis.trials) == 3]
    assert len(whole) == MADE.measure.repeats


def test_with_no_node_left_it_is_said_that_the_run_can_be_gone_on_with_and_it_can(run: RunDir) -> None:
    with pytest.raises(MeasurementError, match="no node of the cluster is left"):
        go(run, bench("a", "b", loses=lambda place, spec: spec.number > 4))
    analysis = go(run, bench("c"))
    check(run, analysis)
    assert {trial.node for trial in analysis.trials if trial.number > 6} == {"c"}


def test_with_no_node_left_for_the_soak_it_is_said_too(run: RunDir) -> None:
    made = MADE.model_copy(update={"design": MADE.design.model_copy(update={"soak_ns": 4 * 10**9})})
    with pytest.raises(MeasurementError, match="no node of the cluster is left"):
        go(run, bench("a", "b", loses=lambda place, spec: spec.stage is Stage.SOAK), made=made)
    assert Stage.SOAK in {trial.stage for trial in go(run, bench("c"), made=made).trials if trial.node == "c"}


def test_a_setting_that_ends_one_node_after_the_other_ends_the_run(run: RunDir) -> None:
    killer = MADE.settings()[2]
    names = [f"n{number}" for number in range(6)]
    said = r"3 times a node was lost while threads=4 was running on it \(n\d, n\d, n\d\)"
    with pytest.raises(MeasurementError, match=said):
        go(run, bench(*names, loses=lambda place, spec: spec.setting == killer))
    assert sum(record.failure is not None for record in run.records()) == LOST_MOST


class Returning(Simulated):
    """Nodes that are back at once."""

    def ended(self) -> tuple[str, TrialRecord]:
        place, record = super().ended()
        if place not in self.places:
            self.places.append(place)
        return place, record


@pytest.mark.parametrize("nodes", ["a", "ab"])
def test_a_setting_that_ends_the_same_nodes_time_after_time_ends_the_run(run: RunDir, nodes: str) -> None:
    killer = MADE.settings()[2]
    with pytest.raises(MeasurementError, match="at least 3 times a node was lost while threads=4 was running on it"):
        go(run, bench(*nodes, loses=lambda place, spec: spec.setting == killer, kind=Returning))
    assert sum(record.failure is not None for record in run.records()) == LOST_MOST


def test_a_setting_that_is_measured_in_between_does_not_end_the_run(run: RunDir) -> None:
    killer = MADE.settings()[2]
    loses = bench("a", loses=lambda place, spec: spec.setting == killer and spec.block % 2 == 0, kind=Returning)
    analysis = go(run, loses)
    check(run, analysis)
    assert sum(trial.lost for trial in analysis.trials) > LOST_MOST


class Killed(Exception):  # noqa: N818 - no error
    pass


class Ran(Observer):
    """Notes the trials that end. Kills the run when so many have `ended`, or when so many have `started`."""

    def __init__(self, *, started: int = 0, ended: int = 0) -> None:
        self.started_left, self.ended_left = started, ended
        self.numbers: list[int] = []

    def trial_started(self, *_: object) -> None:
        self.started_left -= 1
        if self.started_left == 0:
            raise Killed

    def trial_ended(self, record: TrialRecord, result: TrialResult) -> None:
        self.numbers.append(result.number)
        self.ended_left -= 1
        if self.ended_left == 0:
            raise Killed


# After every trial with one node gone and one new; at four moments of two rounds with the same, and with one new node.
@pytest.mark.parametrize(
    ("nodes", "ended"),
    [*(("bc", n) for n in range(1, 12)), *((nodes, n) for nodes in ("ab", "c") for n in (1, 4, 6, 9))],
)
def test_a_killed_run_goes_on_with_the_nodes_that_are_there(run: RunDir, nodes: str, ended: int) -> None:
    with pytest.raises(Killed):
        go(run, bench("a", "b"), Ran(ended=ended))
    before = {record.spec.number for record in run.records()}
    analysis = go(run, bench(*nodes))
    check(run, analysis)
    gone = {trial.node for trial in analysis.trials if trial.lost}
    assert gone <= {"a", "b"} - set(nodes)
    assert before <= {trial.number for trial in analysis.trials}
    whole = [block for block in nodes_of(analysis) if sum(t.block == block and t.valid for t in analysis.trials) == 3]
    assert len(whole) == MADE.measure.repeats


def test_a_run_of_one_machine_does_not_go_on_on_a_cluster_nor_the_other_way_round(run: RunDir, tmp_path: Path) -> None:
    stop = StopRequest()
    with pytest.raises(Killed):
        run_session(MADE, run, Ran(ended=2), stop, trial=MadeUpTrials())
    stop.close()
    with pytest.raises(UsageError, match="begun on one machine"):
        go(run, bench("a"))
    other = RunDir.create(tmp_path / "other", "nodes", resolved_yaml(MADE), {})
    with pytest.raises(Killed):
        go(other, bench("a"), Ran(ended=2))
    with pytest.raises(UsageError, match="begun on a cluster"):
        go(other, None)


def test_a_file_of_turns_that_is_cut_short_or_gone_leaves_what_there_is(run: RunDir) -> None:
    analysis = go(run, bench("a", "b"))
    lines = run.turns.read_text().splitlines(keepends=True)
    run.turns.write_text("".join(lines[:-1]) + lines[-1][:4])
    assert analyse_run(MADE, run).trials == analysis.trials
    run.turns.unlink()
    again = analyse_run(MADE, run)
    assert again.trials == analysis.trials and "not those of this experiment's plan" in again.warnings[0]
    assert all(isinstance(json.loads(line), dict) for line in lines)


class Jumping(Simulated):
    """Nodes whose time of day is days apart from the driver's; that of node b jumps back with each trial."""

    def ended(self) -> tuple[str, TrialRecord]:
        place, record = super().ended()
        days = 5 if place == "a" else -40 * record.spec.number
        jumped = replace(record, wall_ns=record.wall_ns + days * 86_400 * 1_000_000_000)
        self._job.run.trial(record.spec.number).write_record(jumped)
        return place, jumped


def test_clocks_of_nodes_that_jump_change_nothing(tmp_path: Path) -> None:
    """No time of day of one machine is subtracted from that of another, or shown as that of the run."""
    found = []
    for kind in (Simulated, Jumping):
        run = RunDir.create(tmp_path / kind.__name__, "nodes", resolved_yaml(MADE), {"wall_s": 1_800_000_000.0})
        live = go(run, bench("a", "b", kind=kind))
        state = RunFollower(run.path).poll()
        found.append((live, analyse_run(MADE, run), gather(run, live).when, state.trials, state.settings))
    assert found[0] == found[1]
    assert found[0][2] == "15 January 2027, 08:00 UTC"


RACE = fake_experiment(
    {"threads": (1, 2, 4)}, measure={"repeats": 6}, design={"order": "race", "seed": 3, "confirm": 3}
)


class Uneven(Simulated):
    """Nodes of which the first is as fast as all the others together, so that it could take most trials."""

    def ended(self) -> tuple[str, TrialRecord]:
        self._begun.sort(key=lambda begun: (begun[0] != self.places[0] or self._turn % 4 == 0, begun[2].number))
        self._turn += 1
        return super().ended()

    _turn = 0


def fresh_on(analysis: Analysis) -> list[str]:
    """The nodes of the fresh starts of the named setting, in order."""
    return [t.node for t in analysis.trials if t.stage is Stage.CONFIRM and t.setting == analysis.answer.setting]


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("names", ["abcd", "ab", "a"])
def test_the_winner_is_confirmed_on_three_nodes_or_on_all(tmp_path: Path, names: str, early: bool) -> None:
    made = RACE.model_copy(update={"design": RACE.design.model_copy(update={"confirm_early": early})})
    directory = RunDir.create(tmp_path, "race", resolved_yaml(made), {})
    stop = StopRequest()
    analysis = run_session(made, directory, Observer(), stop, bench=bench(*names, kind=Uneven))
    stop.close()
    nodes = fresh_on(analysis)
    assert len(set(nodes)) == min(3, len(names))
    assert analysis.nodes is not None and set(analysis.nodes.confirmed_on) == set(nodes)
    assert len(nodes) == 3 or (early and len(names) < 3 and len(nodes) == 2)
    if len(names) < 3:
        only = f"Fresh starts confirm it on {len(names)} node{'s' if len(names) > 1 else ''} only"
        assert analysis.nodes.sentences[-1].startswith(only)
    again = analyse_run(made, directory)
    assert (again.answer, again.trials) == (analysis.answer, analysis.trials)


def test_where_a_node_is_lost_while_it_confirms_another_does(tmp_path: Path) -> None:
    directory = RunDir.create(tmp_path, "race", resolved_yaml(RACE), {})
    stop = StopRequest()
    loses = bench(*"abcd", loses=lambda place, spec: place == "b" and spec.stage is Stage.CONFIRM, kind=Uneven)
    analysis = run_session(RACE, directory, Observer(), stop, bench=loses)
    stop.close()
    assert analysis.nodes is not None and len(analysis.nodes.confirmed_on) == 3
    assert "b" not in analysis.nodes.confirmed_on


class Failing(Simulated):
    """Nodes on which no server gets ready."""

    def ended(self) -> tuple[str, TrialRecord]:
        place, _, spec, directory = self._begun.pop(0)
        return place, write_trial(directory, replace(failed_record(spec), node=place), None)


def check_nothing_ran_twice(run: RunDir, *sessions: Ran) -> None:
    analysis = analyse_run(MADE, run)
    check(run, analysis)
    assert not any("not those of this experiment's plan" in warning for warning in analysis.warnings)
    assert sorted(number for ran in sessions for number in ran.numbers) == [each.number for each in analysis.trials]
    whole = [block for block in nodes_of(analysis) if sum(t.block == block and t.valid for t in analysis.trials) == 3]
    assert len(whole) == MADE.measure.repeats


def test_a_run_whose_server_never_started_begins_anew_and_can_be_left_again(run: RunDir) -> None:
    """The records of the first starts are removed, so their results are not told again."""
    with pytest.raises(SubjectError, match="nothing was measured"):
        go(run, bench("a", "b", kind=Failing))
    first, second, third = Ran(ended=5), Ran(ended=3), Ran()
    for ran in (first, second):
        with pytest.raises(Killed):
            go(run, bench("a", "b"), ran)
    go(run, bench("a", "b"), third)
    check_nothing_ran_twice(run, first, second, third)


def test_a_turn_that_a_kill_cut_off_does_not_spoil_the_next(run: RunDir) -> None:
    first, second, third = Ran(ended=4), Ran(ended=3), Ran()
    with pytest.raises(Killed):
        go(run, bench("a", "b"), first)
    run.turns.write_text(run.turns.read_text()[:-5])
    with pytest.raises(Killed):
        go(run, bench("a", "b"), second)
    go(run, bench("a", "b"), third)
    check_nothing_ran_twice(run, first, second, third)


def test_a_finished_trial_behind_a_lost_one_is_told_and_not_run_again(run: RunDir) -> None:
    first, second, third = Ran(ended=7), Ran(ended=2), Ran()
    with pytest.raises(Killed):
        go(run, bench("a"), first)
    run.trial(2).record.unlink()
    lines = run.plan.read_text().splitlines(keepends=True)
    run.plan.write_text("".join(line for line in lines if '"number": 2,' not in line))
    with pytest.raises(Killed):
        go(run, bench("a"), second)
    assert second.numbers == [2, 8]
    go(run, bench("a"), third)
    first.numbers.remove(2)
    check_nothing_ran_twice(run, first, second, third)


class LastFirst(Simulated):
    """Nodes of which the one that began last ends first."""

    def ended(self) -> tuple[str, TrialRecord]:
        self._begun.insert(0, self._begun.pop())
        return super().ended()


def test_a_trial_in_flight_runs_again_on_its_own_node_though_a_later_one_is_finished(run: RunDir) -> None:
    first, second = Ran(ended=2), Ran()
    with pytest.raises(Killed):
        go(run, bench("a", "b", kind=LastFirst), first)
    assert first.numbers == [2, 3]
    left = analyse_run(MADE, run)
    assert [trial.number for trial in left.trials] == [2, 3] and "does not count" not in " ".join(left.warnings)
    go(run, bench("b", "a"), second)
    check_nothing_ran_twice(run, first, second)


@pytest.mark.parametrize("number", [5, 12])
def test_a_damaged_trial_whose_node_is_lost_while_it_is_measured_again_is_measured_by_the_next(
    run: RunDir, number: int
) -> None:
    before = go(run, bench("a", "b"))
    assert len(before.trials) == 12
    run.trial(number).probe.write_bytes(b"")
    go(run, bench("a", "b", loses=lambda place, spec: spec.number == number))
    for ran in ([number], []):
        seen = Ran()
        assert go(run, bench("a", "b"), seen).trials == before.trials
        assert seen.numbers == ran


class Stopped(Simulated):
    """Nodes whose run is stopped while the fifth trial runs."""

    def ended(self) -> tuple[str, TrialRecord]:
        if self._begun[0][2].number != 5:
            return super().ended()
        place, _, spec, directory = self._begun.pop(0)
        self._job.stop.request()
        interrupted = replace(failed_record(spec), status="interrupted", failure=None, node=place)
        return place, write_trial(directory, interrupted, None)


EXPLORED = fake_experiment(
    {"threads": tuple(range(1, 41))},
    measure={"repeats": 3},
    design={"order": "race", "seed": 3, "explore_above": 20, "explore_trials": 10, "finalists": 2, "confirm": 1},
)


@pytest.mark.parametrize("nodes", ["ab", "b"])
@pytest.mark.parametrize("kind", [Simulated, Stopped])
@pytest.mark.parametrize("made", [EXPLORED, capacity_experiment((1, 2), repeats=1)], ids=["explored", "capacity"])
def test_an_exploration_and_a_search_go_on_after_a_kill_or_a_stop(
    run: RunDir, made: Experiment, kind: type[Simulated], nodes: str
) -> None:
    first, second = Ran(started=5 if kind is Simulated else 0), Ran()
    with suppress(Killed):
        go(run, bench("a", "b", kind=kind), first, made)
    assert first.numbers[:3] == [1, 2, 3]
    analysis = go(run, bench(*nodes), second, made)
    again = analyse_run(made, run)
    assert (again.answer, again.trials) == (analysis.answer, analysis.trials)
    assert sum(trial.lost for trial in analysis.trials) <= 1, "it is lost with its node, once"
    explored = [trial for trial in analysis.trials if trial.stage is Stage.EXPLORE and trial.valid]
    if explored:
        assert len({trial.setting for trial in explored}) == made.design.explore_trials
        assert {trial.node for trial in explored} == {"a", "b"}
    assert sorted(first.numbers + second.numbers) == [trial.number for trial in analysis.trials]


def test_an_explored_setting_whose_node_is_lost_is_tried_on_another(run: RunDir) -> None:
    analysis = go(run, bench("a", "b", loses=lambda place, spec: place == "b" and spec.block > 1), made=EXPLORED)
    (lost,) = [trial for trial in analysis.trials if trial.lost]
    again = [trial for trial in analysis.trials if trial.setting == lost.setting and trial.stage is Stage.EXPLORE]
    assert [(trial.node, trial.valid) for trial in again] == [("b", False), ("a", True)]
    assert analyse_run(EXPLORED, run).trials == analysis.trials


def test_a_search_that_an_earlier_version_planned_otherwise_says_what_to_do(run: RunDir) -> None:
    planner = planner_for(capacity_experiment(), 0, nodes=2)
    spec = planner_for(capacity_experiment(), 0, nodes=2).ask()
    assert spec is not None and spec.stage is Stage.SATURATE
    run.turns.touch()
    earlier = {1: replace(spec, block=spec.block + 1)}
    with pytest.raises(UsageError, match=r"An earlier version of powerband planned .* in another way") as raised:
        replay(run, planner, [Turn(1, node="a")], earlier, {})
    assert f"`powerband report {run.path}`" in str(raised.value)
    assert f"`powerband run {run.experiment}` starts anew" in str(raised.value)
