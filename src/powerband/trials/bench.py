"""A bench is where trials run: this machine, or nodes of a cluster, each of which runs one trial at a time.

In: an experiment, its run directory, trials one by one. Out: their records. Which trial runs next is not decided here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

from powerband.loads import kind_of
from powerband.model.experiment import Experiment
from powerband.model.plan import TrialSpec
from powerband.model.results import NODE_LOST
from powerband.model.warmup import WarmupSeries
from powerband.processes.stop_request import StopRequest
from powerband.store import Failure, RunDir, TrialDir, TrialRecord
from powerband.trials.leaving import Leaving, left_known
from powerband.trials.opening import build_subject, check_environment
from powerband.trials.services import Services, check_services, services_up
from powerband.trials.trial import TrialObserver

HERE = ""
"""The name of the only place of the local bench."""
RunTrial = Callable[..., TrialRecord]


class BenchObserver(TrialObserver, Protocol):
    def note(self, text: str) -> None: ...


@dataclass(frozen=True)
class Job:
    """What a bench is opened for. `again`: the run is gone on with, so that its subject was built before."""

    experiment: Experiment
    run: RunDir
    observer: BenchObserver
    stop: StopRequest
    steady: Callable[[WarmupSeries], bool]
    again: bool = False


class Bench(Protocol):
    """Each `begin` is followed by an `ended` that tells of this trial, sooner or later."""

    @property
    def places(self) -> Sequence[str]:
        """Where a trial may begin; a node that was lost is no longer among them, one that came back is again."""

    def begin(self, place: str, experiment: Experiment, spec: TrialSpec, directory: TrialDir) -> None:
        """Begins a trial in a place that runs none. `experiment`: with the CPUs of this place."""

    def ended(self) -> tuple[str, TrialRecord]:
        """Waits until any trial has ended; its directory is whole then. One whose node was lost is recorded so
        (`NODE_LOST`). Raises as `run_trial` does."""


Opener = Callable[[Job], AbstractContextManager[Bench]]


@contextmanager
def prepared(job: Job) -> Iterator[Services]:
    """What must be there before the first trial, on the machine that runs it: the subject built, its services up.

    Raises SubjectError, UsageError, MeasurementError."""
    check_services(job.experiment)
    check_environment(job.experiment)
    kind_of(job.experiment).prepare(job.experiment, job.stop)
    given = build_subject(job.experiment.subject, job.run, job.stop, again=job.again)
    with services_up(job.experiment, job.run, given) as services:
        yield services


def record_lost(directory: TrialDir, spec: TrialSpec, node: str, why: str) -> TrialRecord:
    """The record of a trial of which nothing came back, written to its directory. Raises MeasurementError if the disk
    cannot be written."""
    directory.begin(spec)
    record = TrialRecord(
        spec=spec,
        status="interrupted",
        failure=Failure(NODE_LOST, why),
        wall_ns=time.time_ns(),
        monotonic_ns=time.monotonic_ns(),
        phases={},
        warmup_ended_by=None,
        node=node,
    )
    directory.write_record(record)
    return record


class LocalBench:
    """This machine. A trial runs when it is waited for, in this process."""

    places = (HERE,)

    def __init__(self, job: Job, services: Services, leaving: Leaving, trial: RunTrial) -> None:
        self._job = job
        self._services = services
        self._leaving = leaving
        self._trial = trial
        self._begun: tuple[Experiment, TrialSpec, TrialDir] | None = None

    def begin(self, place: str, experiment: Experiment, spec: TrialSpec, directory: TrialDir) -> None:
        assert self._begun is None, f"{place} runs a trial already"
        self._begun = experiment, spec, directory

    def ended(self) -> tuple[str, TrialRecord]:
        assert self._begun is not None, "no trial was begun"
        (experiment, spec, directory), self._begun = self._begun, None
        job = self._job
        with_what = {"steady": job.steady, "observer": job.observer, "stop": job.stop, "services": self._services}
        with self._leaving.changing(spec.setting) as changed:
            record = self._trial(experiment, spec, directory, **with_what)
            changed(record)
        return HERE, record


def local_bench(trial: RunTrial) -> Opener:
    """`trial`: the function that runs a trial (tests pass a simulation)."""

    @contextmanager
    def opened(job: Job) -> Iterator[Bench]:
        experiment = job.experiment
        with prepared(job) as services:
            given = services.given(experiment.settings()[0])
            with left_known(experiment, job.run, given, job.observer.note) as leaving:
                yield LocalBench(job, services, leaving, trial)

    return opened
