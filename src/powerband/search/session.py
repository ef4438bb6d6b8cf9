"""Runs an experiment by joining planner, trials and analysis. Only this module passes results back to the planner.

In: an experiment (with its seed fixed: `with_seed`) and a run directory, new or half done. Out: the run directory
completed, and the final analysis. A run that was killed at any moment is resumed by calling `run_session` again: the
planner is rebuilt by replaying the results on disk, and only the trials that were in flight, or were damaged since, are
run again.
"""

from __future__ import annotations

import json
import secrets
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from powerband.analyze.settings.compare import Progress, analyse
from powerband.analyze.settings.node_costs import with_node_costs
from powerband.analyze.settings.nodes import CONFIRMED_ON, confirmed_on
from powerband.analyze.trial.faults import with_first_start
from powerband.analyze.trial.measure import measure
from powerband.analyze.trial.steady import is_steady
from powerband.base.errors import MeasurementError, UsageError
from powerband.base.machine import known_noise
from powerband.model.experiment import Experiment
from powerband.model.plan import Setting, Stage, TrialSpec
from powerband.model.results import Analysis, TrialResult
from powerband.processes.stop_request import StopRequest
from powerband.search.cpu_choice import CpuChoice
from powerband.search.finished import finished_trials, keep_seen
from powerband.search.forecast import forecast, users_leave
from powerband.search.observer import Observer
from powerband.search.planner import Planner
from powerband.search.turns import Turn, TurnLog, Turns, replay
from powerband.store import RunDir, TrialRecord, write_atomically, writing
from powerband.trials.bench import HERE, Job, Opener, RunTrial, local_bench, record_lost
from powerband.trials.leaving import several_started, with_left
from powerband.trials.opening import check_first_starts, check_first_trial
from powerband.trials.trial import run_trial

ANALYSE_SHARE = 20.0
"""On a cluster, the next analysis waits for so many times the duration of the last one."""
LOST_MOST = 3
"""A setting is taken for the cause once so many nodes were lost while they ran it, or nodes so many times in a row."""


def with_seed(experiment: Experiment) -> Experiment:
    """The experiment with a seed: its own, or a new random one. Call it before the experiment is written to the run
    directory, so that the seed is recorded there."""
    if experiment.design.seed is not None:
        return experiment
    return experiment.model_copy(update={"design": experiment.design.model_copy(update={"seed": secrets.randbits(32)})})


def run_session(
    experiment: Experiment,
    run: RunDir,
    observer: Observer,
    stop: StopRequest,
    *,
    trial: RunTrial = run_trial,
    bench: Opener | None = None,
    notes: Sequence[str] = (),
) -> Analysis:
    """Runs the trials that the plan still lacks and returns the final analysis, which is also in `analysis.json`.

    `stop`: a request ends the trials in flight and returns the analysis of the trials so far. `bench`: where trials
    run; None: on this machine, by the function `trial` (tests pass a simulation). `notes`: sentences for the viewer,
    which also become warnings of the analysis once a trial begins. Raises MeasurementError for a full disk or a missing
    engine, SubjectError for a server that cannot be built or started at all, UsageError if the directory was written by
    another experiment or version, if its experiment lost its seed, or if another process is running it."""
    if experiment.design.seed is None:
        raise UsageError(
            f"{run.experiment} has no design.seed, from which the plan of its trials follows: put back the one that it "
            "had (a report.html written before shows it), or begin a new run"
        )
    with run.locked():
        return _Session(experiment, run, observer, stop, notes).go_on(bench or local_bench(trial))


class _Session:
    """The state of a session. `planned`: the specs in `plan.jsonl`; `busy`: the trial that runs in each place; `asked`:
    the trials that the planner was asked for; `again`: of these, lost trials to be measured again; `ahead`: finished
    trials that the planner was not asked for yet, because a lost one comes before them: they are not run again.
    `lost_at`: by setting, the nodes that were lost while they ran it; `lost_in_row`: how often nodes were since a trial
    of it was measured. `repeated_s`: by number, the time of measurements of a trial that do not count. `places`: the
    number of places when the session began."""

    def __init__(
        self, experiment: Experiment, run: RunDir, observer: Observer, stop: StopRequest, notes: Sequence[str]
    ) -> None:
        self.experiment, self.run, self.observer, self.stop = experiment, run, observer, stop
        self.notes = list(notes)
        turns = Turns.read(run)
        self.planner = turns.planner(experiment)
        self.finished = finished = finished_trials(experiment, run, turns.in_flight)
        shown = {n: result for n in finished.results if (result := finished.shown(n)) is not None}
        if turns.turns is not None:
            shown = {**finished.results, **shown}
        replayed = replay(run, self.planner, turns.of(range(1, finished.last + 1)), finished.specs, shown)
        self.log = TurnLog(run) if turns.turns is not None else None
        self.turns, self.replayed = turns, replayed
        self.in_flight, self.node_of = replayed.in_flight, replayed.node_of
        self.asked = replayed.asked
        # Trials that ran when the run was left are run again in their blocks.
        running = self.in_flight.keys() & finished.lost.keys()
        self.results = {n: result for n, result in finished.results.items() if n in self.asked and n not in running}
        self.ahead = {
            spec: finished.results[n] for n, spec in finished.specs.items() if n not in {*self.asked, *finished.lost}
        }
        self.again = [spec for n, spec in self.asked.items() if n in finished.lost and n not in running]
        self.choices: dict[str, CpuChoice] = {}
        self.repeated_s: dict[int, float] = {}
        self.busy: dict[str, TrialSpec] = {}
        self.places = 1
        self.analyse_from_s = 0.0
        self.lost_at: dict[Setting, set[str]] = {}
        self.lost_in_row: Counter[Setting] = Counter()

    def go_on(self, bench: Opener) -> Analysis:
        run, observer, finished = self.run, self.observer, self.finished
        done = len(self.results) + len(self.ahead) - len(self.again)
        observer.run_started(self.experiment, run, self.planner.planned_total, done)
        for warning in (*self.notes, *finished.warnings()):
            observer.note(warning)
        keep_seen(run, finished)
        _mend_plan(run)
        self.planned = run.planned()
        again = bool(self.results)
        with bench(Job(self.experiment, run, observer, self.stop, is_steady, again)) as self.bench:
            self.places = len(self.bench.places)
            self._open_log()
            self._measure_again()
            self._go_on_in_flight()
            while self._begin_trials():
                self._end_trial()
        to_come = self._to_come
        if done and done == len(self.results) and not to_come:
            observer.note("nothing was left to measure: this run had ended")
        self.stop.cut_short = self.stop.requested and (to_come or bool(self.again))
        analysis = _write_analysis(self.experiment, run, self.results, at_rest(self.planner.progress))
        observer.analysed(analysis)
        return analysis

    @property
    def _to_come(self) -> bool:
        """True if trials of the plan, or its soak, are still to come."""
        progress = self.planner.progress
        return bool(progress.to_come or progress.soak_to_come)

    def _open_log(self) -> None:
        """Opens the log of planner calls of a run on nodes, after those that were repeated. Raises UsageError if the
        run was begun on one machine and would go on on a cluster, or the other way round."""
        if self.log is None and HERE not in self.bench.places:
            if self.asked:
                raise UsageError(
                    f"{self.run.path} was begun on one machine: take `cluster:` out of its experiment.yaml again, or "
                    "start a new run"
                )
            self.log = TurnLog(self.run)
            self.log.begin(len(self.bench.places))
            self.planner = Turns.read(self.run).planner(self.experiment)
        elif self.log is not None and HERE in self.bench.places:
            raise UsageError(f"{self.run.path} was begun on a cluster: put `cluster:` back into its experiment.yaml")
        elif self.log is not None:
            self.log.begin(self.turns.nodes, self.replayed.turns)

    def _measure_again(self) -> None:
        """Measures trials again whose files were lost, one by one; the planner has had their results."""
        for spec in self.again:
            if self.stop.requested or not self.bench.places:
                return
            nodes = [result.node for n, result in self.finished.seen.items() if n == spec.number]
            place = next((node for node in nodes if node in self.bench.places), self.bench.places[0])
            self._begin(place, spec)
            while self.busy:
                self._end(*self.bench.ended())

    def _go_on_in_flight(self) -> None:
        """Continues the trials that were in flight when the run was left: the planner gets the results that are on
        disk, all other trials run again on the same node. Then each block continues on its node; if that node is gone,
        it is lost."""
        lost = set[int]()
        for number, node in list(self.in_flight.items()):
            spec = self.asked[number]
            if number in self.results:
                self._tell(self.results[number])
            elif node in self.bench.places and not self.stop.requested:
                self._begin(node, spec)
            elif not self.stop.requested:
                self._lose(spec, node)
                lost.add(spec.block)
        for block, node in self.node_of.items() if self.log is not None and not self.stop.requested else ():
            if block in lost or any(spec.block == block for spec in self.busy.values()):
                continue
            while (following := self.planner.ask(block)) is not None:
                if not self._ask(following, block, node):
                    continue
                if node in self.bench.places and node not in self.busy:
                    self._begin(node, following)
                else:
                    self._lose(following, node)
                break

    def _begin_trials(self) -> bool:
        """Begins a trial in each idle place, as long as there are trials; False if no trial runs after that."""
        if not self.bench.places and not self.busy and not self.stop.requested and self._to_come:
            raise MeasurementError(
                "no node of the cluster is left: see the notes above for what became of each; finished trials are "
                f"kept, `powerband resume {self.run.path}` goes on with the nodes that are there then"
            )
        for place in self.bench.places:
            if self.stop.requested:
                break
            if place not in self.busy and (spec := self._next(place)) is not None:
                self._begin(place, spec)
        return bool(self.busy)

    def _next(self, place: str, block: int | None = None) -> TrialSpec | None:
        """The next trial to run in this place: one of `block`, else of another block that waits for a node, else of a
        new block."""
        while True:
            spec = None if block is None else self.planner.ask(block)
            within = block if spec is not None else None
            if spec is None and self._is_for_others(place):
                return None
            spec = spec or self.planner.ask()
            if spec is None:
                return None
            if self._ask(spec, within, place):
                return spec

    def _is_for_others(self, place: str) -> bool:
        """True if the next trial is a fresh start of the winner that should run on another node: this node has had one,
        and too few others have, which may still be busy."""
        if self.log is None or (following := self.planner.confirming) is None:
            return False
        begun = {
            node
            for node, spec in self.busy.items()
            if spec.stage is Stage.CONFIRM and spec.block >= following.from_block
        }
        nodes = {*begun, *confirmed_on(self.results.values(), following.setting)}
        return place in nodes and len(nodes) < CONFIRMED_ON and bool(set(self.bench.places) - nodes)

    def _ask(self, spec: TrialSpec, block: int | None, place: str) -> bool:
        """Records that the planner was asked for a trial, which is to run in this place. False if it has already run
        there: then the planner gets its result."""
        result = self.ahead.get(spec)
        if result is not None and result.node != place:
            result = None  # a block must not be measured on two nodes
        self.asked[spec.number] = spec
        if result is None:
            self._plan(spec)
            if spec.number in self.finished.specs:  # what it holds is damaged, or of another trial
                self.run.trial(spec.number).record.unlink(missing_ok=True)
        if self.log is not None:
            self.log.add(Turn(spec.number, block=block, node=place))
        if result is not None:
            self._tell(result)
        return result is None

    def _plan(self, spec: TrialSpec) -> None:
        if self.planned.get(spec.number) != spec:
            self.run.append_plan(spec, self.planner.planned_total, self._left_s())
            self.planned[spec.number] = spec

    def _left_s(self) -> float | None:
        """Time in s that the run will likely take from now on. None: not known."""
        return left_s(self.planner, self.experiment, max(1, len(self.bench.places)))

    def _begin(self, place: str, spec: TrialSpec) -> None:
        while self.notes:
            self.run.keep_note(self.notes.pop(0))
        self._plan(spec)
        if place not in self.choices:
            self.choices[place] = CpuChoice(
                self.experiment, [each for each in self.finished.results.values() if each.node == place]
            )
        self.observer.likely_left(self._left_s())
        self.observer.trial_started(spec, self.planner.planned_total)
        self.busy[place] = spec
        self.bench.begin(place, self.choices[place].experiment, spec, self.run.trial(spec.number))

    def _end_trial(self) -> None:
        """Waits until a trial ends, passes its result to the planner, and begins the next trial of its block in its
        place."""
        place, record = self.bench.ended()
        spec = self.busy[place]
        if (result := self._end(place, record)) is None:
            return
        self._tell(result)
        if result.status == "measured":
            self.lost_in_row[spec.setting] = 0
        if result.lost:
            self._check_lost(spec, place, result)
        if place in self.bench.places and not self.stop.requested and (following := self._next(place, spec.block)):
            self._begin(place, following)

    def _end(self, place: str, record: TrialRecord) -> TrialResult | None:
        """The result of a trial that has ended. None if it runs again, or if it was interrupted and the plan has no
        place for its repetition, since it has had a first result or later trials are finished: then its record is
        removed, and the run measures it when it is resumed."""
        spec, choice = self.busy.pop(place), self.choices[place]
        directory = self.run.trial(spec.number)
        if _is_first(spec, self.results.values()):
            check_first_trial(self.experiment, record, self.run, self.places)
        check_first_starts(self.experiment, record, self.run, self.places)
        if (told := several_started(record)) and told not in self.run.notes:
            self.observer.note(told)
            self.run.keep_note(told)
        is_old = self.log is None and spec.number <= self.finished.last
        if record.status == "interrupted" and (is_old or spec in self.again):
            directory.record.unlink()
            return None
        if spec.number in self.repeated_s:
            record = replace(record, repeated_s=self.repeated_s.pop(spec.number))
            directory.write_record(record)
        result = with_first_start(measure(directory, record, self.experiment), self.results.values())
        if choice.again(result):
            self.repeated_s[spec.number] = result.spent_s
            self.observer.note(_dealt_anew(choice))
            directory.record.unlink()
            if not self.stop.requested:
                self._begin(place, spec)
            return None
        self.results[spec.number] = result
        self.observer.trial_ended(record, result)
        return result

    def _lose(self, spec: TrialSpec, node: str) -> None:
        """Records a trial as lost: its node belonged to the run when it was left, and does not now."""
        why = f"when the run was resumed, {node} was not there any more"
        record = record_lost(self.run.trial(spec.number), spec, node, why)
        result = measure(self.run.trial(spec.number), record, self.experiment)
        self.observer.trial_ended(record, result)
        self._tell(result)

    def _tell(self, result: TrialResult) -> None:
        self.results[result.number] = result
        if self.log is not None:
            self.log.add(Turn(result.number, told=True))
        self.planner.tell(result)
        # Many nodes may end blocks faster than the trials so far can be analysed; then some blocks have no analysis.
        if self.planner.block_ended and (self.log is None or time.monotonic() >= self.analyse_from_s):
            began_s = time.monotonic()
            analysis = _write_analysis(self.experiment, self.run, self.results, self.planner.progress)
            self.observer.analysed(analysis)
            self.analyse_from_s = time.monotonic() + ANALYSE_SHARE * (time.monotonic() - began_s)

    def _check_lost(self, spec: TrialSpec, place: str, result: TrialResult) -> None:
        """Raises MeasurementError if a setting seems to be what ends nodes."""
        lost_at = self.lost_at.setdefault(spec.setting, set())
        lost_at.add(place)
        self.lost_in_row[spec.setting] += 1
        if max(len(lost_at), self.lost_in_row[spec.setting]) >= LOST_MOST:
            raise MeasurementError(
                f"at least {LOST_MOST} times a node was lost while {spec.setting.id} was running on it "
                f"({', '.join(sorted(lost_at))}), so that setting may be what ends them; the last: "
                f"{result.problems[0].message}. Leave it out, or look at such a node; finished trials are kept, "
                f"`powerband resume {self.run.path}` goes on"
            )


def left_s(planner: Planner, experiment: Experiment, nodes: int) -> float | None:
    """Like `Planner.left_s`; the forecast if no trial of the run has ended, None if nobody knows when users leave."""
    noise = known_noise()
    left = planner.left_s(noise, nodes)
    foreseen = not (experiment.objective.is_capacity or users_leave(experiment))
    if left is None and planner.progress.to_come and foreseen:
        expected = forecast(experiment, noise)
        return (expected.soak_ns + (expected.expected_ns - expected.soak_ns) / nodes) / 1e9
    return left


def _dealt_anew(choice: CpuChoice) -> str:
    if choice.shared:
        return (
            "the first trial is measured again: the load generator needs little CPU here, so the server gets all CPUs "
            "(--cpus sets them)"
        )
    return "the trial is measured again: on shared CPUs the load generator came too late, so it gets CPUs of its own"


def _is_first(spec: TrialSpec, results: Iterable[TrialResult]) -> bool:
    """True for the first trial of the run or of a revision that was not interrupted. A mistyped command fails here and
    ends the run."""
    return all(each.status == "interrupted" or each.setting.revision != spec.setting.revision for each in results)


def analyse_run(experiment: Experiment, run: RunDir) -> Analysis:
    """Analyses a run directory from its raw files (`powerband report`). Writes nothing. The race and its confirmation
    are known only if the trials are those of the experiment's own plan."""
    finished = finished_trials(experiment, run, Turns.read(run).in_flight)
    specs = [finished.specs[number] for number in finished.results]
    analysis = analyse_results(experiment, run, specs, list(finished.results.values()), finished.seen)
    return _of_run(replace(analysis, warnings=(*analysis.warnings, *finished.warnings())), run)


def analyse_results(
    experiment: Experiment,
    run: RunDir,
    specs: Sequence[TrialSpec],
    results: Sequence[TrialResult],
    seen: Mapping[int, TrialResult] | None = None,
) -> Analysis:
    """Like `analyse_run`, for trials that are already measured. `specs`: the specs of `results`; both are in order of
    their numbers. `seen`: by number, results that the planner gets in place of those."""
    if experiment.design.seed is None:
        because = "the trials are not known to be those of a plan, since experiment.yaml has no design.seed"
        return _without_plan(experiment, results, because)
    turns = Turns.read(run)
    planner = turns.planner(experiment)
    ran = {result.number: spec for spec, result in zip(specs, results, strict=True)}
    shown = {result.number: (seen or {}).get(result.number, result) for result in results}
    try:
        replayed = replay(run, planner, turns.of(shown), ran, shown)
        if any(number not in replayed.asked for number in shown):
            raise UsageError("there are trials that nobody asked for")
    except UsageError:
        because = "the trials are not those of this experiment's plan in this version of powerband"
        return _without_plan(experiment, results, because)
    return analyse(experiment, results, at_rest(planner.progress))


def _without_plan(experiment: Experiment, results: Sequence[TrialResult], because: str) -> Analysis:
    """The analysis of trials whose plan is unknown, with a warning that says why. Only the plan knows the racing
    settings, the eliminations with their reasons, and the confirmation."""
    analysis = analyse(experiment, results)
    unknown = f"{because}: they are judged as they are, without what a race or its confirmation said"
    return replace(analysis, warnings=(*analysis.warnings, unknown)) if results else analysis


def _of_run(analysis: Analysis, run: RunDir) -> Analysis:
    """The analysis with the facts that only the run directory has: costs of nodes, notes on the run, and the setting of
    a deployed server at the end."""
    noted = replace(analysis, warnings=(*analysis.warnings, *run.notes))
    return with_left(with_node_costs(noted, run), run)


def at_rest(progress: Progress) -> Progress:
    """The progress when no trial is running: a race that has not ended was stopped."""
    if progress.race is None or progress.race.ended_by != "running":
        return progress
    return replace(progress, race=replace(progress.race, ended_by="stopped"))


def _write_analysis(
    experiment: Experiment, run: RunDir, results: Mapping[int, TrialResult], progress: Progress
) -> Analysis:
    analysis = _of_run(analyse(experiment, [results[number] for number in sorted(results)], progress), run)
    with writing(run.path):
        write_atomically(run.analysis, json.dumps(analysis.to_json(), indent=1, allow_nan=False))
    return analysis


def _mend_plan(run: RunDir) -> None:
    """Removes a last line that a kill cut off, so that the next line does not join it."""
    if not run.plan.is_file():
        return
    data = run.plan.read_bytes()
    if data and not data.endswith(b"\n"):
        with writing(run.path), run.plan.open("r+b") as file:
            file.truncate(data.rfind(b"\n") + 1)
