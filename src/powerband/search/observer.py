"""Callbacks of a run, for the live terminal view, a progress line or a test. Calls come from one thread.

`Observer` is a base class whose methods do nothing: override those you need. An observer decides nothing and must
return at once, since trials wait for it. `trials/` uses only its own narrower `TrialObserver`, which it satisfies.
"""

from __future__ import annotations

from powerband.model.experiment import Experiment
from powerband.model.plan import TrialSpec
from powerband.model.results import Analysis, TrialResult
from powerband.store import RunDir, TrialRecord


class Observer:
    """The callbacks, which do nothing. They are called in this order: run_started, then for each trial likely_left,
    trial_started, (phase | interval)*, trial_ended; analysed from time to time; note at any time."""

    def note(self, text: str) -> None:
        """A remark for the viewer: one or two sentences."""

    def run_started(self, experiment: Experiment, run: RunDir, planned_total: int, done: int) -> None:
        """The run starts; `done` of `planned_total` trials are already on disk (resume)."""

    def trial_started(self, spec: TrialSpec, planned_total: int) -> None:
        """A trial begins; `planned_total` may have changed since the last trial (retries, racing)."""

    def likely_left(self, seconds: float | None) -> None:
        """The run will likely take so many `seconds` from now on, the trial that begins included; None: not known."""

    def phase(self, name: str) -> None:
        """A phase begins: `launch` (`apply` for a server that runs already), `ready`, `join`, `warmup`, `measure`,
        `drain`, `stop`, or that of an instrument."""

    def interval(self, rate_per_s: float, response_time_ns_mean: float | None, in_flight: int) -> None:
        """The load of the last moment, a few times a second, merged over all engines: successful requests per second,
        their mean response time in ns (None if none ended), and requests in flight now."""

    def trial_ended(self, record: TrialRecord, result: TrialResult) -> None:
        """A trial is on disk and measured (or failed: see `record.failure`, `result.problems`)."""

    def analysed(self, analysis: Analysis) -> None:
        """A new analysis is there: after a block, and the final one at the end."""
