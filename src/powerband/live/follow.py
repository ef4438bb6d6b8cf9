"""Follows a run directory. In: its files, while they grow. Out: a `RunState`. It never writes and never waits.

Each `poll` reads only new data: lines appended to the plan and to the trial in flight, new records, and `analysis.json`
if the run has rewritten it. A trial that is in no analysis yet is measured once, one trial per poll. If the run is at
rest and its last analysis is missing or old, a new one is made in memory, as `powerband report` makes it.

Incomplete lines are ignored until they are complete. Damaged or foreign files, and those of another version, are
reported in words.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from powerband.analyze.settings.compare import RESUME
from powerband.analyze.stored import stored_analysis
from powerband.analyze.trial.measure import measure
from powerband.base.errors import PowerbandError, UsageError
from powerband.base.machine import known_noise
from powerband.files.experiment_file import parse_experiment
from powerband.live.growing_files import (
    Tail,
    begun_s,
    changed_at,
    ended_s,
    is_held,
    is_out_of_files,
    raise_if_out_of_files,
    read_plain,
    refused,
    run_refused,
    within,
)
from powerband.live.live_nodes import nodes_now
from powerband.live.live_standing import (
    outcome_of,
    settings_of,
    settings_unjudged,
    status_at_rest,
    trial_line,
)
from powerband.live.state import NodeState, Outcome, RunState, RunStatus, TrialLine
from powerband.live.trial_seconds import TrialFollower
from powerband.model.experiment import Experiment
from powerband.model.metrics import METRICS
from powerband.model.plan import Stage, TrialSpec
from powerband.model.results import Analysis, TrialResult
from powerband.report.wording.standings import race_line
from powerband.search.forecast import forecast, users_leave
from powerband.search.session import analyse_results, analyse_run
from powerband.store import NOT_AS_WRITTEN, RunDir, TrialDir

_PACE_TRIALS = 50  # arbitrary: settings differ in pace, and all of a block should be among them
OUT_OF_FILES = "this process or this machine can open no more files: close some pages, or raise `ulimit -n`"
Version = tuple[int, int, int] | None


@dataclass
class _FollowedTrial:
    """A trial of the plan, and its result."""

    spec: TrialSpec
    began_s: float | None = None
    record: Version = None  # of the record that `result` and `because` are about
    result: TrialResult | None = None
    because: str = ""  # why it was not measured

    @property
    def recorded(self) -> bool:
        return self.record is not None


@dataclass
class _Known:
    """The contents of the directory read so far."""

    experiment: Experiment | None = None
    experiment_version: Version = None
    refused: str = ""  # why the experiment cannot be read
    trials: dict[int, _FollowedTrial] = field(default_factory=dict)
    planned_total: int | None = None
    left_s: float | None = None  # seconds left of the run, as the plan says at the trial that began last
    analysis: Analysis | None = None
    analysis_version: Version = None
    settled: frozenset[int] = frozenset()  # trials of an analysis that this process of the run wrote, or recorded ones
    # of a run at rest: none is repeated
    analysis_problem: str = ""
    own_analysis: bool = False  # made here, not read
    damaged: int = 0  # lines of the plan
    running: bool = False
    nodes: bytes | None = None  # nodes_now.json of a run on a cluster that is in progress
    nodes_version: Version = None


class RunFollower:
    """Follows one run directory. `more`: the last poll left data that can be read at once."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self.run = RunDir(path)
        self.more = False
        self._clock = clock
        self._known = _Known()
        self._plan = Tail(self.run.plan)
        self._current: TrialFollower | None = None
        self._guess: tuple[int, float | None] | None = None  # maximum number of trials, and seconds that one takes
        self._built: RunState | None = None
        self._version = 0
        self._stale = True  # True if anything but the trial in flight has changed since `_built`

    def poll(self) -> RunState:
        """The current state. Never raises, whatever the directory contains."""
        try:
            return self._poll()
        except Exception as error:  # a foreign directory may contain anything; report it
            if is_out_of_files(error):
                return self._unreadable(OUT_OF_FILES, RunStatus.UNKNOWN)
            return self._unreadable(f"this version of powerband cannot read it ({type(error).__name__}: {error})")

    def _poll(self) -> RunState:
        self.more = False
        if why := run_refused(self.run):
            return self._unreadable(why)
        if not os.path.isfile(self.run.experiment):  # noqa: PTH113 - says False of a folder that is closed to us
            return self._unreadable(f"{self.run.path.name} is no run directory: it has no experiment.yaml")
        self._read_experiment()
        if self._known.experiment is None:
            return self._unreadable(self._known.refused)
        self._check_lock()
        self._read_nodes()  # before the plan, which then contains each of their trials
        self._read_plan()
        self._read_analysis()
        self._read_records()  # after the analysis, which may have a trial that is being repeated
        self._measure_one()
        self._analyse_at_rest()
        self._follow_current()
        return self._state(self._known.experiment)

    def trial(self, number: int) -> TrialFollower | None:
        """A follower for any trial of the run, from its start; None if the plan has no trial of this number, or if its
        files must not be opened."""
        known, directory = self._known.trials.get(number), self.run.trial(number)
        if known is None or self._known.experiment is None or refused(within(directory.path)):
            return None
        return TrialFollower(directory, known.spec, self._known.experiment.measure)

    @property
    def analysis(self) -> Analysis | None:
        """The last analysis, made by the run or by this follower."""
        return self._known.analysis

    @property
    def report_is_old(self) -> bool:
        """True if the run has an analysis or a record that is newer than its report.html."""
        written, newer = changed_at(self.run.report), [self._known.analysis_version]
        newer += [trial.record for trial in list(self._known.trials.values())]
        return written is not None and any(each is not None and each[2] > written[2] for each in newer)

    @property
    def experiment(self) -> Experiment | None:
        """The run's experiment; None before the first poll, and if its file cannot be read."""
        return self._known.experiment

    def close(self) -> None:
        """Closes the files. A later poll opens them again, and reads them from the start."""
        self._plan.close()
        if self._current is not None:
            self._current.close()

    # --- reading ------------------------------------------------------------------------------------------------------

    def _read_experiment(self) -> None:
        known = self._known
        version = changed_at(self.run.experiment)
        if version == known.experiment_version:
            return
        text = read_plain(self.run.experiment)
        known.experiment_version, known.experiment, self._stale = version, None, True
        if text is None:
            known.refused = "its experiment.yaml cannot be opened: check its permissions"
            return
        try:
            known.experiment = parse_experiment(text.decode(), str(self.run.experiment))
        except (PowerbandError, ValueError) as error:
            known.refused = (
                f"its experiment.yaml cannot be read by this version of powerband: {error}. Use the version that wrote "
                "the run, or look at its report"
            )

    def _check_lock(self) -> None:
        """Notes whether a process holds the run."""
        running = is_held(self.run.path / ".lock")
        if running and not self._known.running:
            self._known.settled, self._known.own_analysis = frozenset(), False  # a resumed run may repeat any trial
        self._stale = self._stale or running != self._known.running
        self._known.running = running

    def _read_plan(self) -> None:
        known = self._known
        lines, again, more = self._plan.read()
        if again:
            known.trials.clear()
            known.damaged, self._stale = 0, True
        for line in lines:
            try:
                data = json.loads(line)
                spec = TrialSpec.from_json(data)
                total, left_s = data.get("planned_total"), data.get("left_s")
            except NOT_AS_WRITTEN:
                known.damaged += 1
                continue
            known.trials.setdefault(spec.number, _FollowedTrial(spec)).spec = spec
            known.planned_total = total if isinstance(total, int) else known.planned_total
            known.left_s = float(left_s) if isinstance(left_s, int | float) else None
        self._stale = self._stale or bool(lines)
        self.more = self.more or more

    def _read_nodes(self) -> None:
        """Reads what the nodes of a run do; the run rewrites this file when that changes."""
        known = self._known
        version = changed_at(self.run.nodes_now) if known.running and self._on_nodes else None
        if version != known.nodes_version:
            known.nodes = None if version is None else read_plain(self.run.nodes_now)
            known.nodes_version, self._stale = version, True

    def _nodes(self) -> tuple[NodeState, ...]:
        trials = self._known.trials
        nodes = nodes_now(self._known.nodes, {number: trial.spec for number, trial in trials.items()})
        for node in nodes:
            if node.trial is not None:
                trials[node.trial.number].began_s = node.trial.began_s
        return nodes

    @property
    def _on_nodes(self) -> bool:
        return self._known.experiment is not None and self._known.experiment.cluster is not None

    def _read_records(self) -> None:
        """Updates the trials whose records have come, or have gone or changed because a trial is repeated."""
        for number, trial in self._known.trials.items():
            if trial.recorded and number in self._known.settled:
                continue
            directory = self.run.trial(number)
            record = changed_at(directory.record)
            repeated = trial.record not in (None, record)
            if repeated or (record is None and self._known.running):
                trial.result, trial.because = None, ""
            if record != trial.record:
                trial.record, self._stale = record, True
            if (repeated or trial.began_s is None or (record is None and not self._on_nodes)) and (
                found := changed_at(directory.spec)
            ) is not None:
                trial.began_s = found[2] / 1e9
        if not self._known.running:
            self._known.settled = frozenset(number for number, trial in self._known.trials.items() if trial.recorded)

    def _read_analysis(self) -> None:
        """Reads the analysis that the run writes after each block, with every trial measured by then."""
        known = self._known
        version = changed_at(self.run.analysis)
        if version == known.analysis_version:
            return
        text = read_plain(self.run.analysis)
        seen_before = known.analysis_version is not None
        known.analysis_version, self._stale = version, True
        if text is None:
            return
        try:
            analysis = stored_analysis(text.decode("utf-8", "replace"))
        except UsageError as error:
            known.analysis_problem = f"its analysis.json is left aside: {error}"
            return
        known.own_analysis, known.analysis_problem = False, ""
        self._take(analysis)
        if seen_before:
            known.settled = frozenset(result.number for result in analysis.trials)

    def _take(self, analysis: Analysis) -> None:
        self._known.analysis = analysis
        for result in analysis.trials:
            if (trial := self._known.trials.get(result.number)) is not None:
                trial.result, trial.because = result, ""

    def _measure_one(self) -> None:
        """Measures one trial that is in no analysis: the newest first, since viewers wait for it."""
        experiment = self._known.experiment
        waiting = [t for t in self._known.trials.values() if t.recorded and t.result is None and not t.because]
        if not waiting or experiment is None:
            return
        trial = waiting[-1]
        try:
            trial.result = _measured(self.run.trial(trial.spec.number), experiment)
        except PowerbandError as error:
            trial.because = str(error)
        except Exception as error:  # one foreign trial must not hide the others
            raise_if_out_of_files(error)
            trial.because = f"its files cannot be read by this version of powerband ({type(error).__name__}: {error})"
        self._stale = True
        self.more = self.more or len(waiting) > 1

    def _analyse_at_rest(self) -> None:
        """Makes the final analysis of a run at rest, if the run was killed before writing it or the file was
        removed."""
        known, experiment = self._known, self._known.experiment
        if known.running or experiment is None or known.own_analysis or self.more:
            return
        done = [trial for trial in known.trials.values() if trial.result is not None]
        judged = {result.number for result in known.analysis.trials} if known.analysis else set()
        if not done or judged >= {trial.spec.number for trial in done}:
            return
        done.sort(key=lambda trial: trial.spec.number)
        results = [trial.result for trial in done if trial.result is not None]
        try:
            specs = [trial.spec for trial in done]
            self._take(self._as_reported(experiment) or analyse_results(experiment, self.run, specs, results))
        except Exception as error:  # as above
            raise_if_out_of_files(error)
            known.analysis_problem = f"it cannot be analysed ({type(error).__name__}: {error})"
        known.own_analysis = self._stale = True

    def _as_reported(self, experiment: Experiment) -> Analysis | None:
        """Returns the analysis that `analyse_run` makes; None if a file of the trials must not be opened or cannot be
        read, or if a metric is not finite."""
        if refused(within(self.run.trials)):
            return None
        try:
            found = analyse_run(experiment, self.run)
        except Exception as error:  # as above
            raise_if_out_of_files(error)
            return None
        whole = all(math.isfinite(value) for trial in found.trials for value in trial.metrics.values())
        return found if whole else None

    def _follow_current(self) -> None:
        """Follows the last trial of the plan while it has no record, unless nodes run the trials and have their
        files."""
        known = self._known
        here = known.running and not self._on_nodes
        open_now = [trial.spec for trial in known.trials.values() if not trial.recorded] if here else []
        spec = max(open_now, key=lambda spec: spec.number, default=None)
        if self._current is not None and (spec is None or self._current.spec != spec):
            self._current.close()
            self._current = None
        if spec is None:
            return
        self._current = self._current or self.trial(spec.number)
        if self._current is not None:
            self.more = self._current.read() or self.more

    # --- state --------------------------------------------------------------------------------------------------------

    def _state(self, experiment: Experiment) -> RunState:
        if self._stale or self._built is None:
            self._version += 1
            self._built = self._build(experiment)
            self._stale = False
        state = self._built
        if state.status is not RunStatus.RUNNING:
            return state
        current = None if self._current is None else self._current.state
        return replace(state, current=current, eta_s=self._eta_s(experiment, state))

    def _build(self, experiment: Experiment) -> RunState:
        known = self._known
        nodes = self._nodes()
        trials = list(known.trials.values())
        metric = experiment.objective.metric
        outcomes = [outcome_of(trial.result) for trial in trials if trial.result is not None]
        analysis = known.analysis
        results = [trial.result for trial in trials if trial.result is not None]
        planned, _ = self._first_guess(experiment)
        status = self._status(trials)
        done = sum(trial.recorded for trial in trials)
        total = known.planned_total if known.planned_total is not None else planned
        began = [trial.began_s for trial in trials if trial.began_s is not None]
        return RunState(
            path=str(self.run.path),
            name=experiment.name,
            status=status,
            question=experiment.question_shown,
            objective=metric,
            unit=METRICS[metric].unit,
            direction=experiment.objective.direction,
            planned_total=max(total, len(trials)) if status is not RunStatus.FINISHED else len(trials),
            at_most=status is not RunStatus.FINISHED and experiment.may_end_early,
            done=done,
            valid=outcomes.count(Outcome.VALID),
            invalid=outcomes.count(Outcome.INVALID),
            failed=outcomes.count(Outcome.FAILED),
            started_s=begun_s(self.run.host) or min(began, default=None),
            ended_s=self._ended_s(trials) if status is not RunStatus.RUNNING else None,
            settings=settings_unjudged(experiment, results) if analysis is None else settings_of(analysis),
            trials=self._lines(trials, metric, nodes),
            answer=() if analysis is None else analysis.answer.sentences,
            race="" if analysis is None else race_line(analysis, experiment),
            warnings=self._warnings(trials, status),
            blocks=None if experiment.objective.is_capacity else experiment.measure.repeats,
            judged=0 if analysis is None else len(analysis.trials),
            has_report=changed_at(self.run.report) is not None,
            nodes=nodes,
            version=self._version,
        )

    def _lines(self, trials: list[_FollowedTrial], metric: str, nodes: tuple[NodeState, ...]) -> tuple[TrialLine, ...]:
        """The lines of all trials. While the run is in progress, its last trial without a record is in flight (on nodes
        all of them, since a lost one has a record); other trials without a record are lost."""
        unrecorded = [trial.spec.number for trial in trials if not trial.recorded]
        in_flight = {max(unrecorded, default=0)} if self._known.running else set()
        if self._known.running and self._on_nodes:
            in_flight = set(self._known.trials)
        node_of = {node.trial.number: node.name for node in nodes if node.trial is not None}

        def line(trial: _FollowedTrial) -> TrialLine:
            if trial.recorded:
                return trial_line(trial.spec, trial.result, metric, Outcome.RECORDED, trial.because)
            outcome = Outcome.RUNNING if trial.spec.number in in_flight else Outcome.LOST
            told = trial_line(trial.spec, None, metric, outcome, trial.because)
            return replace(told, node=node_of.get(trial.spec.number, ""))

        return tuple(line(trial) for trial in trials)

    def _status(self, trials: list[_FollowedTrial]) -> RunStatus:
        """The status; a run at rest has finished, was asked to stop, or lost its process."""
        known = self._known
        if known.running:
            return RunStatus.RUNNING
        if not trials or any(not trial.recorded for trial in trials):
            return RunStatus.STALE
        last = trials[-1]
        interrupted = last.result is not None and last.result.status == "interrupted"
        race = None if known.analysis is None else known.analysis.race
        stopped = interrupted or (race is not None and race.under_way)
        lacking = known.planned_total is not None and len(trials) < known.planned_total
        warnings = None if known.analysis is None else known.analysis.warnings
        return status_at_rest(stopped=stopped, lacking=lacking, warnings=warnings)

    def _ended_s(self, trials: list[_FollowedTrial]) -> float | None:
        """The end of the last trial, as its record tells, else the time of its file."""
        records = [self.run.trial(trial.spec.number).record for trial in trials[-1:]]
        found = [(record, version) for record in records if (version := changed_at(record)) is not None]
        return next((ended_s(record) or version[2] / 1e9 for record, version in found), None)

    def _warnings(self, trials: list[_FollowedTrial], status: RunStatus) -> tuple[str, ...]:
        known = self._known
        said = list(known.analysis.warnings) if known.analysis is not None else []
        if status is RunStatus.RUNNING:
            said = [text.removesuffix(f"; {RESUME}") for text in said]
        if known.analysis_problem:
            said.append(known.analysis_problem)
        if known.damaged:
            said.append(f"{known.damaged} lines of plan.jsonl are damaged or of another version, and left out")
        said += [f"trial {trial.spec.number}: {trial.because}" for trial in trials if trial.because]
        if status is RunStatus.STALE:
            said.append(
                f"its process has gone without ending the run: `powerband resume {self.run.path}` goes on with it"
            )
        return tuple(said)

    def _eta_s(self, experiment: Experiment, state: RunState) -> float | None:
        """Returns the time left as the run itself said last, if it did; otherwise the time for the remaining trials, at
        the pace of those that began one after the other, or at a first guess, but no longer than the budget."""
        if state.planned_total is None:
            return None
        began = sorted(trial.began_s for trial in self._known.trials.values() if trial.began_s is not None)
        if began and self._known.left_s is not None:
            return max(0.0, self._known.left_s - max(0.0, self._clock() - began[-1]))
        gaps = [later - earlier for earlier, later in pairwise(began[-_PACE_TRIALS:]) if later > earlier]
        pace_s = statistics.median(gaps) if gaps else self._first_guess(experiment)[1]
        if pace_s is None:
            return None
        running_s = max(0.0, self._clock() - began[-1]) if began and state.done < len(self._known.trials) else 0.0
        soaks = any(trial.spec.stage is Stage.SOAK for trial in self._known.trials.values())
        gone_s = state.done * pace_s + running_s  # a run that was left and resumed rested meanwhile
        return experiment.design.left_s(state.planned_total - state.done, pace_s, running_s, gone_s, soaks=soaks)

    def _first_guess(self, experiment: Experiment) -> tuple[int, float | None]:
        """The maximum number of trials, and the duration of one in seconds, from the experiment alone. None: nobody
        knows when its users leave."""
        if self._guess is None:
            expected = forecast(experiment.without_soak(), known_noise())
            trials = expected.trials + (experiment.design.soak_ns is not None)
            each_s = expected.expected_ns / 1e9 / max(1, expected.trials)
            self._guess = trials, None if users_leave(experiment) else each_s
        return self._guess

    def _unreadable(self, because: str, status: RunStatus = RunStatus.UNREADABLE) -> RunState:
        self._stale = True
        state = RunState(
            path=str(self.run.path),
            name=self.run.path.name,
            status=status,
            because=because,
            has_report=changed_at(self.run.report) is not None,
        )
        if self._built is None or replace(self._built, version=0) != state:
            self._version += 1
            self._built = replace(state, version=self._version)
        return self._built


def _measured(directory: TrialDir, experiment: Experiment) -> TrialResult:
    """Raises PowerbandError if a file of the trial must not be opened, is damaged, or yields values that are not
    numbers."""
    if why := refused(within(directory.path)):
        raise UsageError(why)
    result = measure(directory, directory.read_record(), experiment)
    odd = [name for name, value in result.metrics.items() if not math.isfinite(value)]
    if odd:
        raise UsageError(f"its files give no number for {', '.join(odd)}")
    return result
