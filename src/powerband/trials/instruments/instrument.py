"""Instruments: observations that a trial takes beside load and probe.

A trial calls the hooks of each of its instruments at the moments that they name; an instrument has those that it needs.
It keeps what it observed, and why it observed nothing, and adds that to the trial's record.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

from powerband.processes.engine_process import Pump
from powerband.processes.subject_process import Rendered, RunningSubject


class Instrument:
    """An instrument of one trial. Each hook may raise TrialFailed, which ends the trial."""

    pause_ns: ClassVar[int] = 0
    """The longest time that `before_window` takes; without one it is not called."""

    def around_trial(self, pump: Pump) -> AbstractContextManager[object]:
        """Entered before the subject is launched, left when it is gone."""
        return nullcontext()

    def given(self) -> Mapping[str, str]:
        """Values of placeholders in the subject's templates, within `around_trial`."""
        return {}

    def environment(self, rendered: Rendered) -> Mapping[str, str]:
        """Variables that are added to the subject's environment, within `around_trial`, before each launch."""
        return {}

    def when_ready(self, subject: RunningSubject) -> None:
        """The subject is ready; nothing loads it yet."""

    def around_load(self, subject: RunningSubject, pump: Pump) -> AbstractContextManager[object]:
        """Entered before go, left after the load's last word."""
        return nullcontext()

    def before_window(self, subject: RunningSubject, pump: Pump) -> None:
        """The warm-up is over; the measured window begins when this returns."""

    def after_load(self, subject: RunningSubject, pump: Pump) -> None:
        """The load is gone; the subject still runs."""

    def record(self) -> dict[str, Any]:
        """The fields that it adds to the trial's record, however the trial ended."""
        return {}
