"""The interface of all planners.

On one machine: call `ask` for a trial and `tell` with its result, one by one. If several nodes run trials, several
blocks are in flight, each on one node and with one trial at a time: call `ask` for the first trial of a block,
`ask(block)` for each later trial of it, and `tell` with results as they come. The trials depend only on the seed, the
results, and the order of these calls: after a kill, a planner is rebuilt by repeating the calls with the results on
disk. No planner does I/O.
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
    """Fresh starts that confirm the winner of a race, `setting`, in the blocks from number `from_block` on."""

    setting: Setting
    from_block: int


class Planner(Protocol):
    """A source of trials. Within a block, each `ask` must be followed by the `tell` of its result before the next."""

    @property
    def planned_total(self) -> int:
        """The maximum number of trials in the run as known now: finished, in flight and still to come, without further
        retries."""

    @property
    def block_ended(self) -> bool:
        """True if the last result received completed its block, so that an analysis is worthwhile."""

    @property
    def progress(self) -> Progress:
        """The state of the plan that the analysis cannot derive from the results."""

    @property
    def confirming(self) -> Confirming | None:
        """The confirmation that the next new block belongs to, which should run on a node that has not confirmed that
        setting yet; None if it confirms nothing."""

    def left_s(self, noise: Noise, nodes: int = 1) -> float | None:
        """Time in s that the trials still to come will likely take on so many nodes: their likely number, given the
        results so far, times the mean time of the finished ones. None before the first has ended, and if their number
        cannot be foreseen. `noise`: that of this machine."""

    def ask(self, block: int | None = None) -> TrialSpec | None:
        """Returns the next trial of a block in flight; None once that block is over. Without `block`: the next trial of
        a block in flight that waits for one, or the first trial of a new block; None if nothing is left to do, or
        nothing until the result of a trial in flight is passed to `tell`. Some planners allow one block in flight at a
        time."""

    def tell(self, result: TrialResult) -> None:
        """Accepts the result of a trial in flight. Trials are numbered as they were asked for, without gaps. A result
        that is `lost` ends its block before its time; another block makes up for it."""
