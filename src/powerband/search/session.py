"""Runs an experiment by joining planner, trials and analysis. Only this module passes results back to the planner.

In: an experiment (with its seed fixed: `with_seed`) and a run directory, new or half done. Out: the run directory
completed, and the final analysis. A run that was killed at any moment is resumed by calling `run_session` again: the
planner is rebuilt by replaying the results on disk, and only the trial that was in flight is run again, and those that
were damaged since.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from powerband.analyze.settings.compare import Progress, analyse
from powerband.analyze.trial.measure import measure
from powerband.analyze.trial.steady import is_steady
from powerband.base.errors import UsageError
from powerband.loads import kind_of
from powerband.model.cpu_use import SHARES_FROM
from powerband.model.experiment import Experiment
from powerband.model.plan import REVISION, TrialSpec
from powerband.model.results import Analysis, TrialResult
from powerband.processes.stop_request import StopRequest
from powerband.search.cpu_choice import CpuChoice
from powerband.search.finished import Finished, finished_trials, keep_seen
from powerband.search.observer import Observer
from powerband.search.planner import Planner
from powerband.search.planners import planner_for
from powerband.store import RunDir, TrialRecord, write_atomically, writing
from powerband.trials.opening import build_subject, check_environment, check_first_starts, check_first_trial
from powerband.trials.services import check_services, services_up
from powerband.trials.trial import run_trial

RunTrial = Callable[..., TrialRecord]


def with_seed(experiment: Experiment) -> Experiment:
    """The experiment with a seed: its own, or a new random one. Call it before the experiment is written to the run
    directory, so that the seed is recorded there."""
    if experiment.design.seed is not None:
        return experiment
    return experiment.model_copy(update={"design": experiment.design.model_copy(update={"seed": secrets.randbits(32)})})


def run_session(
    experiment: Experiment, run: RunDir, observer: Observer, stop: StopRequest, *, trial: RunTrial = run_trial
) -> Analysis:
    """Runs the trials that the plan still lacks and returns the final analysis, which is also in `analysis.json`.

    `stop`: a first request ends the trial in flight and returns the analysis of the trials so far. `trial`: the
    function that runs a trial (tests pass a simulation). Raises MeasurementError for a full disk or a missing engine,
    SubjectError for a server that cannot be built or started at all, UsageError if the directory was written by another
    experiment or version, or if another process is running it."""
    assert experiment.design.seed is not None, "with_seed comes first"
    with run.locked():
        return _go_on(experiment, run, observer, stop, trial)


def _go_on(experiment: Experiment, run: RunDir, observer: Observer, stop: StopRequest, trial: RunTrial) -> Analysis:
    planner = planner_for(experiment, experiment.design.seed or 0)
    finished = finished_trials(experiment, run)
    replayed = _replay(run, planner, finished)
    results = {number: result for number, result in finished.results.items() if number in replayed}
    ahead = {spec: finished.results[n] for n, spec in finished.specs.items() if n not in {*replayed, *finished.lost}}
    again = [replayed[number] for number in replayed if number in finished.lost]
    observer.run_started(experiment, run, planner.planned_total, len(results) + len(ahead) - len(again))
    for warning in finished.warnings():
        observer.note(warning)
    keep_seen(run, finished)
    _mend_plan(run)
    planned = run.planned()
    check_services(experiment)
    check_environment(experiment)
    kind_of(experiment).prepare(experiment, stop)
    given = build_subject(experiment.subject, run, stop, again=bool(results))
    choice = CpuChoice(experiment, finished.results.values())
    with services_up(experiment, run, given) as services:

        def run_one(spec: TrialSpec) -> TrialResult | None:
            """None: a trial before others was interrupted; their plan has no place for its repetition."""
            if planned.get(spec.number) != spec:
                run.append_plan(spec, planner.planned_total)
                planned[spec.number] = spec
            observer.trial_started(spec, planner.planned_total)
            directory = run.trial(spec.number)
            made = choice.experiment
            record = trial(made, spec, directory, steady=is_steady, observer=observer, stop=stop, services=services)
            if _is_first(spec, results.values()):
                check_first_trial(experiment, record, run)
            check_first_starts(experiment, record, run)
            if record.status == "interrupted" and spec.number < finished.last:
                directory.record.unlink()
                return None
            result = measure(directory, record, experiment)
            if choice.again(result):
                observer.note(_dealt_anew(choice))
                directory.record.unlink()
                return None if stop.requested else run_one(spec)
            results[spec.number] = result
            observer.trial_ended(record, result)
            return result

        for lost in again:
            if stop.requested or run_one(lost) is None:
                break
        while not stop.requested and (spec := planner.ask()) is not None:
            result = ahead.pop(spec) if spec in ahead else run_one(spec)
            if result is None:
                break
            results[spec.number] = result
            planner.tell(result)
            if planner.block_ended:
                observer.analysed(_write_analysis(experiment, run, results, planner.progress))
    analysis = _write_analysis(experiment, run, results, at_rest(planner.progress))
    observer.analysed(analysis)
    return analysis


def _dealt_anew(choice: CpuChoice) -> str:
    if choice.shared:
        return (
            f"a request costs the server at least {SHARES_FROM:g} times what it costs the load generator: the server "
            "gets all CPUs, and this trial is measured again (--cpus says otherwise)"
        )
    return "on shared CPUs the load generator came too late: it gets CPUs of its own, and this trial is measured again"


def _is_first(spec: TrialSpec, results: Iterable[TrialResult]) -> bool:
    """True for the first trial of the run or of a revision. A mistyped command fails here and ends the run."""
    revision = spec.setting.as_dict().get(REVISION)
    return all(result.setting.as_dict().get(REVISION) != revision for result in results)


def analyse_run(experiment: Experiment, run: RunDir) -> Analysis:
    """Analyses a run directory from its raw files (`powerband report`). Writes nothing. The progress of the plan is
    known only if the trials are those of the experiment's own plan."""
    finished = finished_trials(experiment, run)
    specs = [finished.specs[number] for number in finished.results]
    analysis = analyse_results(experiment, run, specs, list(finished.results.values()), finished.seen)
    return replace(analysis, warnings=(*analysis.warnings, *finished.warnings()))


def analyse_results(
    experiment: Experiment,
    run: RunDir,
    specs: Sequence[TrialSpec],
    results: Sequence[TrialResult],
    seen: Mapping[int, TrialResult] | None = None,
) -> Analysis:
    """Like `analyse_run`, for trials that are already measured; `specs` holds what each was planned as. Both are in
    order of their numbers. `seen`: what the planner is told instead of a result, by number."""
    if experiment.design.seed is None:
        return analyse(experiment, results)
    planner = planner_for(experiment, experiment.design.seed)
    try:
        for spec, result in zip(specs, results, strict=True):
            _tell(run, planner, spec, (seen or {}).get(result.number, result))
    except UsageError:
        analysis = analyse(experiment, results)
        # Only the plan knows the racing settings, the eliminations with their reasons, and the confirmation.
        unknown = (
            "the trials are not those of this experiment's plan in this version of powerband: they are judged as they "
            "are, without what a race or its confirmation said"
        )
        return replace(analysis, warnings=(*analysis.warnings, unknown)) if results else analysis
    return analyse(experiment, results, at_rest(planner.progress))


def at_rest(progress: Progress) -> Progress:
    """The progress when no trial is running: a race that has not ended was stopped."""
    if progress.race is None or progress.race.ended_by != "running":
        return progress
    return replace(progress, race=replace(progress.race, ended_by="stopped"))


def _replay(run: RunDir, planner: Planner, finished: Finished) -> dict[int, TrialSpec]:
    """Passes the finished trials to the planner, in order, up to a lost one whose result nobody knows any more. Returns
    their specs by number. Raises UsageError if they are not of its plan."""
    replayed = {}
    for number in range(1, finished.last + 1):
        result = finished.shown(number)
        if result is None:
            break
        replayed[number] = _tell(run, planner, finished.specs.get(number), result)
    return replayed


def _tell(run: RunDir, planner: Planner, ran: TrialSpec | None, result: TrialResult) -> TrialSpec:
    spec = planner.ask()
    if spec is None or (ran is not None and spec != ran):
        wanted = "nothing more" if spec is None else f"{spec.setting.id} in block {spec.block}"
        raise UsageError(
            f"{run.path}: trial {result.number} is {result.setting.id} in block {result.block}, "
            f"but the plan wants {wanted}: the directory's experiment.yaml was changed, or another version of "
            "powerband wrote it; start a new run, or `powerband report` what there is"
        )
    planner.tell(result)
    return spec


def _write_analysis(
    experiment: Experiment, run: RunDir, results: Mapping[int, TrialResult], progress: Progress
) -> Analysis:
    analysis = analyse(experiment, [results[number] for number in sorted(results)], progress)
    with writing(run.path):
        write_atomically(run.analysis, json.dumps(analysis.to_json(), indent=1, allow_nan=False))
    return analysis


def _mend_plan(run: RunDir) -> None:
    """Removes a last line that a kill cut off, so that the next line does not join it."""
    if not run.plan.is_file():
        return
    text = run.plan.read_text()
    if text and not text.endswith("\n"):
        with writing(run.path):
            write_atomically(run.plan, text[: text.rfind("\n") + 1])
