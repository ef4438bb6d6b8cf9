"""Merges and decodes the looks, i.e. the short loads with other numbers of users after a trial's own load, only once,
however many stretches of the trial are compared with them.

In: `slots` of a trial's record. Out: fleets. Not here: what follows from them (`analyze/trial/tried_slots.py`).
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from powerband.readings.fleet import MergedFleet, merge_fleet

LOOKS = ("alone", "doubled", "prompt")


class RecordedLooks:
    """The looks of one trial: short loads with other numbers of users after its own. `recorded`: `slots` of its record,
    with the summaries of each look by its name, or the reason why there are none."""

    def __init__(self, recorded: Mapping[str, Any]) -> None:
        self.recorded = recorded

    @property
    def requests(self) -> int:
        """The number of requests that ended in all looks, whatever their outcome."""
        each = (summary for name in LOOKS for summary in self.recorded.get(name, ()))
        return sum(sum(summary["total"]["outcomes"].values()) for summary in each)

    @cached_property
    def alone(self) -> MergedFleet | None:
        """The look with one user alone; None if no answer came in time."""
        return merge_fleet(self.recorded["alone"])

    @cached_property
    def doubled(self) -> MergedFleet | None:
        """The look with twice the users; None if no answer came in time."""
        return merge_fleet(self.recorded["doubled"])

    @cached_property
    def prompt(self) -> MergedFleet | None:
        """The look with one user who acknowledges each part of an answer at once; None if it was not tried."""
        return merge_fleet(self.recorded.get("prompt", ()))
