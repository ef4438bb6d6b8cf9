"""Callbacks of a run, for the live terminal view, a progress line or a test. Calls come from one thread.

A base class whose methods do nothing: override those you need. An observer decides nothing and must return at once,
since trials wait for it. `trials/` uses only its own narrower `TrialObserver`, which this class satisfies.
"""

from __future__ import annotations

from powerband.model.experiment import Experiment
from powerband.model.plan import TrialSpec
from powerband.model.results import Analysis, TrialResult
from powerband.store import RunDir, TrialRecord


class Observer:
    """Call order: run_started, then for each trial likely_left, trial_started, (phase | interval)*, trial_ended;
    analysed from time to time; note at any time."""

    def note(self, text: str) -> None:
        """A remark for the viewer: one or two sentences."""

    def run_started(self, experiment: Experiment, run: RunDir, planned_total: int, done: int) -> None:
        """The run starts; `done` of `planned_total` trials are already on disk (resume)."""

    def trial_started(self, spec: TrialSpec, planned_total: int) -> None:
        """A trial begins; `planned_total` may have changed since the last (retries, racing)."""

    def likely_left(self, seconds: float | None) -> None:
        """What the run will likely take from now on, with the trial that begins; None: not known."""

    def phase(self, name: str) -> None:
        """`launch` (of a server that runs already `apply`), `ready`, `warmup`, `measure`, `drain` or `stop` begins."""

    def interval(self, rate_per_s: float, response_time_ns_mean: float | None, in_flight: int) -> None:
        """A few times a second under load, merged over all load generators: successful requests per second, their mean
        response time (None if none ended), and requests in flight now."""

    def trial_ended(self, record: TrialRecord, result: TrialResult) -> None:
        """A trial is on disk and measured (or failed: see `record.failure`, `result.problems`)."""

    def analysed(self, analysis: Analysis) -> None:
        """The analysis after a block, and the final analysis at the end."""
