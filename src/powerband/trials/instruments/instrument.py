"""The base class of instruments, which make observations in a trial beside load and probe.

A trial calls the hooks of its instruments at the moments that their names say; an instrument overrides those that it
needs. It adds its observations to the trial's record, or the reason why there are none.
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
    """The longest time that `before_window` takes; an instrument that overrides it sets this."""

    def around_trial(self, pump: Pump) -> AbstractContextManager[object]:
        """Returns a context that is entered before the server is launched, and left when it is gone."""
        return nullcontext()

    def given(self) -> Mapping[str, str]:
        """Returns values of placeholders in the subject's templates; called within `around_trial`."""
        return {}

    def environment(self, rendered: Rendered) -> Mapping[str, str]:
        """Returns variables to add to the server's environment; called within `around_trial`, before each launch."""
        return {}

    def when_ready(self, subject: RunningSubject) -> None:
        """Called when the server is ready and has no load yet."""

    def around_load(self, subject: RunningSubject, pump: Pump) -> AbstractContextManager[object]:
        """Returns a context that is entered before go, and left after the load has reported its end."""
        return nullcontext()

    def before_window(self, subject: RunningSubject, pump: Pump) -> None:
        """Called when the warm-up is over; the measured window begins after it returns."""

    def after_load(self, subject: RunningSubject, pump: Pump) -> None:
        """Called when the load is gone and the server still runs."""

    def record(self) -> dict[str, Any]:
        """Returns the fields to add to the trial's record, however the trial ended."""
        return {}
