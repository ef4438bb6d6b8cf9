"""Defines a bench, the place where trials run: this machine, or the nodes of a cluster, each with one trial at a time.

In: an experiment, its run directory, trials one by one. Out: their records. Not here: which trial runs next.
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
from powerband.trials.leaving import Leaving, tracked_setting
from powerband.trials.opening import build_subject, check_environment
from powerband.trials.services import Services, check_services, services_up
from powerband.trials.trial import TrialObserver

HERE = ""
"""The name of the only place of the local bench."""
RunTrial = Callable[..., TrialRecord]


class BenchObserver(TrialObserver, Protocol):
    """Follows the trials of a whole run."""

    def note(self, text: str) -> None:
        """Gets a sentence for the user, about the machine, the build or a node."""


@dataclass(frozen=True)
class Job:
    """The run that a bench is opened for. `experiment`: what is measured; `run`: its directory; `observer`: gets notes
    and phases; `stop`: a request to end the run; `steady`: decides when a warm-up has lasted long enough; `again`: the
    run is resumed, so its subject was built before on this machine."""

    experiment: Experiment
    run: RunDir
    observer: BenchObserver
    stop: StopRequest
    steady: Callable[[WarmupSeries], bool]
    again: bool = False


class Bench(Protocol):
    """A place, or several, where trials run. Each trial that is begun is returned by a later `ended`."""

    @property
    def places(self) -> Sequence[str]:
        """The places in which a trial may begin. A node that is lost is not among them until it comes back."""

    def begin(self, place: str, experiment: Experiment, spec: TrialSpec, directory: TrialDir) -> None:
        """Begins a trial in a place that runs none. `experiment`: the experiment with the CPUs decided for this
        place."""

    def ended(self) -> tuple[str, TrialRecord]:
        """Waits until any trial has ended and its directory is complete; returns its place and its record. The record
        of a trial whose node was lost says so (`NODE_LOST`). Raises the errors of `run_trial`."""


Opener = Callable[[Job], AbstractContextManager[Bench]]


@contextmanager
def prepared(job: Job) -> Iterator[Services]:
    """Prepares the machine that runs trials: builds the subject, starts its services, and yields them.

    Raises SubjectError, UsageError, MeasurementError."""
    check_services(job.experiment)
    check_environment(job.experiment)
    kind_of(job.experiment).prepare(job.experiment, job.stop)
    given = build_subject(job.experiment.subject, job.run, job.stop, again=job.again, note=job.observer.note)
    with services_up(job.experiment, job.run, given) as services:
        yield services


def record_lost(directory: TrialDir, spec: TrialSpec, node: str, why: str) -> TrialRecord:
    """Writes the directory and the record of a trial of which nothing came back. Raises MeasurementError if the disk
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
    """This machine as a bench. A trial runs in this process, while `ended` waits for it."""

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
    """Returns the function that opens this machine as a bench. `trial`: runs a trial (tests pass a simulation)."""

    @contextmanager
    def opened(job: Job) -> Iterator[Bench]:
        experiment = job.experiment
        with prepared(job) as services:
            given = services.given(experiment.settings()[0])
            with tracked_setting(experiment, job.run, given, job.observer.note) as leaving:
                yield LocalBench(job, services, leaving, trial)

    return opened
