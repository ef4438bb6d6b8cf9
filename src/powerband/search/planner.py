"""The interface of all planners.

Call `ask` for a trial and `tell` with its result, one by one. The trials depend only on the seed and the results: after
a kill, a planner is rebuilt by replaying the results on disk. No planner does I/O.
"""

from __future__ import annotations

from typing import Protocol

from powerband.analyze.settings.compare import Progress
from powerband.model.plan import TrialSpec
from powerband.model.results import TrialResult


class Planner(Protocol):
    """Each `ask` must be answered by a `tell` before the next."""

    @property
    def planned_total(self) -> int:
        """Number of trials in the run as far as known: finished, in flight, and at most still to come,
        without further retries."""

    @property
    def block_ended(self) -> bool:
        """True if the last result received completed its block, so that an analysis is worthwhile."""

    @property
    def progress(self) -> Progress:
        """State of the plan that the analysis cannot derive from the results."""

    def ask(self) -> TrialSpec | None:
        """The next trial; None when there is nothing more to do."""

    def tell(self, result: TrialResult) -> None:
        """Accepts the result of the trial returned by the last `ask`."""
