"""The interface of all planners.

On one machine: call `ask` for a trial and `tell` with its result, one by one. Where several nodes run trials, several
blocks are in flight, each on a node, with one trial each: call `ask` for the first trial of a block, `ask(block)` for
each that follows in it, and `tell` with results as they come. The trials depend only on the seed, the results, and the
order of these calls: after a kill, a planner is rebuilt by repeating them with the results on disk. No planner does
I/O.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from powerband.analyze.settings.compare import Progress
from powerband.base.machine import Noise
from powerband.model.plan import Setting, TrialSpec
from powerband.model.results import TrialResult


@dataclass(frozen=True)
class Confirming:
    """Fresh starts of a `setting`, in the blocks from this number on."""

    setting: Setting
    from_block: int


class Planner(Protocol):
    """Of one block, each `ask` must be answered by a `tell` before the next."""

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

    @property
    def confirming(self) -> Confirming | None:
        """What the next block begun confirms, and better on a node that has not confirmed it; None: nothing."""

    def left_s(self, noise: Noise) -> float | None:
        """Time that the trials still to come are likely to take one after the other: as long as those took that ended,
        and as many as such results lead to. None before the first, and where nothing is known of how many. `noise`: of
        this machine."""

    def ask(self, block: int | None = None) -> TrialSpec | None:
        """The next trial of a block in flight, None once it is over. Without `block`: of one whose last trial was told,
        or the first of a new one; None when there is nothing more to do, or nothing until a trial in flight is told.
        Some planners bear one block in flight at a time."""

    def tell(self, result: TrialResult) -> None:
        """Accepts the result of a trial in flight. Numbers count the trials asked for, without a gap. A result that is
        `lost` ends its block short of the trials that were to come; another block makes up for it."""
